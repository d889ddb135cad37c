package compare

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

var table = &outbox.Table{Schema: "public", Name: "outbox"}

func row(id, topic, key, value string, headers ...outbox.Header) *outbox.Row {
	return &outbox.Row{Table: table, ID: id, Topic: topic, Key: []byte(key), Value: []byte(value), Headers: headers, Partition: -1, Pending: true}
}

var late = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func sent(topic string, partition int32, key, value string, headers ...outbox.Header) Record {
	return Record{Topic: topic, Partition: partition, Key: []byte(key), Value: []byte(value), Headers: headers, At: late}
}

func header(name, value string) outbox.Header {
	return outbox.Header{Name: name, Value: []byte(value)}
}

// alwaysTwo is a partitioner that puts every key on partition 2.
func alwaysTwo(outbox.Partitioner, string, []byte) int32 { return 2 }

func TestKindsOfDifference(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rows    []*outbox.Row
		records []Record
		pending []string // ids
		ignore  []string
		want    map[Kind]int
		same    int
	}{
		"equal": {
			rows: []*outbox.Row{row("1", "t", "k", "v", header("a", "1"))}, records: []Record{sent("t", 2, "k", "v", header("a", "1"))}, same: 1,
		},
		"equal events twice are two events": {
			rows:    []*outbox.Row{row("1", "t", "k", "v"), row("2", "t", "k", "v")},
			records: []Record{sent("t", 2, "k", "v"), sent("t", 2, "k", "v")}, same: 2,
		},
		"sent twice": {
			rows: []*outbox.Row{row("1", "t", "k", "v")}, records: []Record{sent("t", 2, "k", "v"), sent("t", 2, "k", "v")},
			same: 1, want: map[Kind]int{Repeated: 1},
		},
		"never sent":    {rows: []*outbox.Row{row("1", "t", "k", "v")}, want: map[Kind]int{Missing: 1}},
		"not sent yet":  {rows: []*outbox.Row{row("1", "t", "k", "v")}, pending: []string{"1"}, want: map[Kind]int{Waiting: 1}},
		"nobody's row":  {records: []Record{sent("t", 2, "k", "v")}, want: map[Kind]int{Extra: 1}},
		"earlier row's": {records: []Record{{Topic: "t", Value: []byte("v"), At: late.Add(-time.Hour)}}, want: map[Kind]int{Before: 1}},
		"other partition": {
			rows: []*outbox.Row{row("1", "t", "k", "v")}, records: []Record{sent("t", 1, "k", "v")}, want: map[Kind]int{Partition: 1},
		},
		"other key": {
			rows: []*outbox.Row{row("1", "t", "k", "v")}, records: []Record{sent("t", 2, "K", "v")}, want: map[Kind]int{Key: 1},
		},
		"null key": {
			rows: []*outbox.Row{row("1", "t", "", "v")}, records: []Record{{Topic: "t", Value: []byte("v"), At: late}}, want: map[Kind]int{Key: 1},
		},
		"other value": {
			rows: []*outbox.Row{row("1", "t", "k", "v")}, records: []Record{sent("t", 2, "k", "w")}, want: map[Kind]int{Value: 1},
		},
		"other topic": {
			rows: []*outbox.Row{row("1", "t", "k", "v")}, records: []Record{sent("u", 2, "k", "v")}, want: map[Kind]int{Topic: 1},
		},
		"header lacking": {
			rows: []*outbox.Row{row("1", "t", "k", "v", header("a", "1"))}, records: []Record{sent("t", 2, "k", "v")}, want: map[Kind]int{Headers: 1},
		},
		"null header is no empty header": {
			rows:    []*outbox.Row{row("1", "t", "k", "v", outbox.Header{Name: "a"})},
			records: []Record{sent("t", 2, "k", "v", header("a", ""))}, want: map[Kind]int{Headers: 1},
		},
		"header ignored": {
			rows:    []*outbox.Row{row("1", "t", "k", "v", header("id", "1"))},
			records: []Record{sent("t", 2, "k", "v")}, ignore: []string{"id"}, same: 1,
		},
		"a likely pair is not taken by an unlikely one": {
			rows:    []*outbox.Row{row("1", "t", "k", "a"), row("2", "t", "k", "b")},
			records: []Record{sent("t", 2, "k", "c"), sent("t", 2, "K", "b")},
			want:    map[Kind]int{Value: 1, Key: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, recordsFirst := range []bool{false, true} {
				if recordsFirst && len(c.records) > len(c.rows) && c.same > 0 {
					continue // which one is the repeated cannot be told
				}
				got := run1(c.rows, c.records, c.pending, c.ignore, recordsFirst)
				if got.Same != c.same || len(got.Kinds) != len(c.want) {
					t.Fatalf("records first %v: %+v, wanted %d equal and %v", recordsFirst, got, c.same, c.want)
				}
				for _, k := range got.Kinds {
					if k.Count != c.want[k.Kind] || len(k.Examples) == 0 || k.Examples[0].Detail == "" {
						t.Errorf("records first %v: %+v, wanted %d", recordsFirst, k, c.want[k.Kind])
					}
				}
			}
		})
	}
}

func run1(rows []*outbox.Row, records []Record, pending, ignore []string, recordsFirst bool) *Report {
	c := New(alwaysTwo, ignore, 3)
	takeRows := func() {
		for _, r := range rows {
			c.Row(r)
		}
	}
	if !recordsFirst {
		takeRows()
	}
	for _, r := range records {
		c.Record(r)
	}
	if recordsFirst {
		takeRows()
	}
	still := map[*outbox.Row]bool{}
	for _, p := range ordered(c.expected) {
		for _, id := range pending {
			still[p.row] = still[p.row] || p.row.ID == id
		}
	}
	return c.Finish(still, late.Add(-time.Minute))
}

func TestRefusedRowIsTold(t *testing.T) {
	t.Parallel()
	c := New(alwaysTwo, nil, 3)
	c.Row(&outbox.Row{Table: table, ID: "1", Partition: -1, Err: errNoTopic{}})
	got := c.Finish(nil, late)
	if got.Differences != 1 || got.Kinds[0].Kind != Refused || got.Kinds[0].Examples[0].Detail != "topic is NULL" {
		t.Fatalf("%+v", got)
	}
}

type errNoTopic struct{}

func (errNoTopic) Error() string { return "topic is NULL" }

// Matched pairs are not kept: a comparison of days must not fill the memory.
func TestMatchedPairsLeaveMemory(t *testing.T) {
	t.Parallel()
	c := New(alwaysTwo, nil, 3)
	for i := range 3 * remembered {
		key := string(rune('a'+i%26)) + string(rune(i))
		c.Row(row("1", "t", key, "v"))
		c.Record(sent("t", 2, key, "v"))
	}
	if c.waiting != 0 || len(c.matched) > remembered || len(c.oldest) > remembered || len(c.expected)+len(c.found) != 0 {
		t.Fatalf("%d unmatched, %d remembered", c.waiting, len(c.matched))
	}
}
