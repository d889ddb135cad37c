package demo

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// read gives the checker the events of customer 7, and one of customer 8.
func read(numbers ...int) *checker {
	c := newChecker(1)
	for i, no := range numbers {
		c.take(&kgo.Record{
			Offset: int64(i), Key: []byte("customer-7"), Value: fmt.Appendf(nil, `{"no":%d,"customer":7}`, no),
		}, &commits{}, time.Now())
	}
	return c
}

func TestCheckerJudges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		read      []int
		committed int
		want      Summary
	}{
		"all in order":         {[]int{1, 2, 3}, 3, Summary{Published: 3}},
		"the last is lost":     {[]int{1, 2}, 3, Summary{Published: 2, Lost: 1}},
		"one is lost":          {[]int{1, 3}, 3, Summary{Published: 2, Lost: 1}},
		"everything is lost":   {nil, 3, Summary{Lost: 3}},
		"two change places":    {[]int{1, 3, 2}, 3, Summary{Published: 3, OutOfOrder: 1}},
		"one comes twice":      {[]int{1, 2, 2, 3}, 3, Summary{Published: 4, Duplicates: 1}},
		"the beginning again":  {[]int{1, 2, 3, 1, 2}, 3, Summary{Published: 5, Duplicates: 2}},
		"late, and then twice": {[]int{2, 1, 1}, 2, Summary{Published: 3, OutOfOrder: 1, Duplicates: 1}},
		"not committed":        {[]int{1, 2}, 1, Summary{Published: 2, Duplicates: 1}},
	} {
		var got Summary
		checker := read(c.read...)
		checker.judge(map[int]int{7: c.committed}, &got)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestForeignRecordsCount(t *testing.T) {
	t.Parallel()
	c := newChecker(1)
	for _, r := range []*kgo.Record{
		{Key: nil, Value: []byte(`{"no":1,`)},
		{Key: []byte("customer-7"), Value: []byte("something else")},
		{Key: []byte("customer-7"), Value: nil},
		{Key: []byte("customer-9999"), Value: []byte(`{"no":1,`)},
	} {
		c.take(r, &commits{}, time.Now())
	}
	var got Summary
	c.judge(nil, &got)
	if got.Duplicates != 4 || got.Published != 4 {
		t.Errorf("got %+v, want four records too many", got)
	}
	if c.distinct() != 0 {
		t.Errorf("%d events, want none", c.distinct())
	}
}

func TestCommitsAreForgottenOnRollback(t *testing.T) {
	t.Parallel()
	var c commits
	first, second := time.Unix(1, 0), time.Unix(2, 0)
	c.note([]events{{customer: 1, last: 3, count: 3}}, first)
	c.note([]events{{customer: 1, last: 5, count: 2}}, first) // whose COMMIT failed
	c.note([]events{{customer: 1, last: 4, count: 1}}, second)
	if at, ok := c.when(1, 3); !ok || !at.Equal(first) {
		t.Errorf("the third at %v", at)
	}
	if at, ok := c.when(1, 4); !ok || !at.Equal(second) {
		t.Errorf("the fourth at %v", at)
	}
	if _, ok := c.when(1, 5); ok {
		t.Error("the fifth was never committed")
	}
}

func TestSplitSharesAllRows(t *testing.T) {
	t.Parallel()
	r := newRand(1)
	for range 1000 {
		n := 1 + r.IntN(20)
		sum, before := 0, 0
		for _, p := range split(r, n) {
			if p.customer <= before || p.count < 1 {
				t.Fatalf("not ascending, or empty: %+v", p)
			}
			before, sum = p.customer, sum+p.count
		}
		if sum != n {
			t.Fatalf("%d rows, want %d", sum, n)
		}
	}
}
