package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// Steady load for as long as OUTBOX_TEST_SOAK says (make soak DURATION=1h), with
// a lost slot now and then. Nothing of what the process, the database and the slot
// hold may grow, and everything has arrived at the end.
func TestSoak(t *testing.T) {
	text := os.Getenv("OUTBOX_TEST_SOAK")
	if text == "" {
		t.Skip("only with OUTBOX_TEST_SOAK=1h")
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, surroundings{partitions: 3, limit: length + 5*time.Minute})
	w.serve()
	p := w.run().streaming()
	load := w.write(steady())
	seen := map[string][]float64{}
	const samples, losses = 120, 4
	began := time.Now()
	for i := range samples {
		waitUntil(t, began.Add(length*time.Duration(i+1)/samples))
		w.sample(p, seen)
		if i%(samples/losses) == samples/losses/2 {
			w.dropSlot()
		}
	}
	load.stop()
	w.settled(60 * time.Second)
	p.stop()
	w.judge(history.Rules{})
	for what, values := range seen {
		from, to := growth(values)
		t.Logf("%-24s %12.0f → %12.0f", what, from, to)
		if grows(values, slack[what]) {
			t.Errorf("%s grows from %.0f to %.0f: %.0f", what, from, to, values)
		}
	}
}

// slack is what each may differ by without meaning anything.
var slack = map[string]float64{
	"goroutines":               10,
	"open files":               5,
	"resident memory, bytes":   48 << 20,
	"database connections":     2,
	"the slot's lag, bytes":    8 << 20,
	"rows parked by the table": 0,
}

// sample adds a value of each.
func (w *world) sample(p *process, seen map[string][]float64) {
	w.t.Helper()
	add := func(what string, value float64) { seen[what] = append(seen[what], value) }
	add("goroutines", p.metric("go_goroutines"))
	add("open files", p.metric("process_open_fds"))
	add("resident memory, bytes", p.metric("process_resident_memory_bytes"))
	add("database connections", harness.One[float64](w.t, w.db,
		`SELECT count(*)::float8 FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'outbox-cdc%'`))
	add("rows parked by the table", harness.One[float64](w.t, w.db, `SELECT count(*)::float8 FROM outbox_cdc.park WHERE kind <> 'stream'`))
	add("the slot's lag, bytes", harness.One[float64](w.t, w.db,
		`SELECT coalesce(max(pg_wal_lsn_diff(pg_current_wal_insert_lsn(), confirmed_flush_lsn)), 0)::float8 FROM pg_replication_slots WHERE database = current_database()`))
}

// growth compares the second quarter, when all is warm, with the last one.
func growth(values []float64) (from, to float64) {
	n := len(values)
	return median(values[n/4 : n/2]), median(values[3*n/4:])
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// grows reports whether the difference is more than a tenth and the slack.
func grows(values []float64, slack float64) bool {
	from, to := growth(values)
	return to-from > max(slack, from/10)
}

func TestGrowthIsSeen(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	series := func(of func(i int) float64) (values []float64) {
		for i := range 120 {
			values = append(values, of(i)+5*r.Float64())
		}
		return values
	}
	for name, c := range map[string]struct {
		values []float64
		want   bool
	}{
		"level":       {series(func(int) float64 { return 100 }), false},
		"warming up":  {series(func(i int) float64 { return 100 + float64(min(i, 20)) }), false},
		"spikes":      {series(func(i int) float64 { return 100 + float64(i%7/6*500) }), false},
		"leaking":     {series(func(i int) float64 { return 100 + float64(i) }), true},
		"leaking few": {series(func(i int) float64 { return 100 + float64(i)/20 }), false},
		"falling":     {series(func(i int) float64 { return 300 - float64(i) }), false},
		"nothing":     {nil, false},
	} {
		if got := grows(c.values, 10); got != c.want {
			t.Errorf("%s: %v, %s", name, got, strings.TrimSpace(fmt.Sprint(c.values)))
		}
	}
}
