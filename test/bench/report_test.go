package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMedianAndPercentile(t *testing.T) {
	t.Parallel()
	if got := median([]float64{3, 1, 2}); got != 2 {
		t.Errorf("median of three: %v", got)
	}
	if got := median([]float64{4, 1}); got != 1 {
		t.Errorf("median of two is a round that took place: %v", got)
	}
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for p, want := range map[float64]float64{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := percentile(hundred, p); got != want {
			t.Errorf("percentile %v: %v, wanted %v", p, got, want)
		}
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 43: "43", 0.5: "0.50", 12.345: "12.35", 123.4: "123", 1234.5: "1,234", 1234567: "1,234,567", -2500: "-2,500"} {
		if got := number(&v); got != want {
			t.Errorf("%v is shown as %q, wanted %q", v, got, want)
		}
	}
}

// Others read bench.json: these names stay.
func TestTheFieldsOfTheReport(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bench.json")
	if err := writeJSON(path, []Result{{Bar: "B1", Note: "why not"}}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines []map[string]any
	if err := json.Unmarshal(text, &lines); err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields("bar what value unit reference ratio goal ok cpu_seconds missed_by peak_rss_mib wal_bytes_per_row rounds conditions quiet machine versions settings") {
		if _, there := lines[0][name]; !there {
			t.Errorf("no field %s", name)
		}
	}
	cpu, _ := lines[0]["cpu_seconds"].(map[string]any)
	for _, name := range []string{"outbox-cdc", "postgres", "kafka"} {
		if _, there := cpu[name]; !there {
			t.Errorf("no field cpu_seconds.%s", name)
		}
	}
}

func TestEachRowOnceAndInOrder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rows    []int
		keys    int
		trouble string
	}{
		"as it should be":    {[]int{0, 1, 2, 3}, 2, ""},
		"keys interleave":    {[]int{1, 3, 0, 2}, 2, ""},
		"one is missing":     {[]int{0, 1, 3}, 2, "missing"},
		"one came twice":     {[]int{0, 1, 2, 3, 3}, 2, "twice"},
		"a key out of order": {[]int{2, 0, 1, 3}, 2, "after"},
		"nobody wrote it":    {[]int{0, 1, 2, 3, 9}, 2, "nobody"},
	} {
		j := newJudge(4, c.keys)
		for _, i := range c.rows {
			j.see(i)
		}
		err := j.fault()
		if (err == nil) != (c.trouble == "") || err != nil && !strings.Contains(err.Error(), c.trouble) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
