package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// bar is something to measure: what a round of it does, and the lines that come
// of it. A round gives one sample for each line.
type bar struct {
	name  string
	lines []line
	once  bool // it takes its own medians, or is too large to repeat
	round func(b *bench, t *testing.T, rows int) []sample
}

// line is one figure of a bar, and its goal.
type line struct {
	what, unit, goal string
	missed           func(Result) string // by how much, empty: not missed; nil: no goal
}

// The goals. Each says by how much it was missed.

func ratioAtLeast(least float64) func(Result) string {
	return func(r Result) string { return below(valueOf(r.Ratio), least) }
}

func atLeast(least float64) func(Result) string {
	return func(r Result) string { return below(*r.Value, least) }
}

func atMost(most float64) func(Result) string {
	return func(r Result) string { return above(*r.Value, most, r.Unit) }
}

// aboveReference: the value is above its reference by no more than this.
func aboveReference(most float64) func(Result) string {
	return func(r Result) string {
		if r.Reference == nil {
			return "no reference"
		}
		return above(*r.Value-*r.Reference, most, r.Unit)
	}
}

func below(value, least float64) string {
	if value >= least {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*(1-value/least))
}

func above(value, most float64, unit string) string {
	if value <= most {
		return ""
	}
	over := value - most
	return withUnit(&over, unit)
}

// bars in their order.
var bars = []bar{
	{name: "B1", round: (*bench).decoded, lines: []line{
		{"stream waiting rows, published: none; reference: the server's own decoding", "rows/s", "ratio ≥ 0.65", ratioAtLeast(0.65)},
		{"the same; reference: pg_recvlogical to /dev/null", "rows/s", "ratio ≥ 1.8", ratioAtLeast(1.8)},
	}},
	{name: "B2", round: (*bench).writtenBack, lines: []line{
		{"the same with SENT written back; reference: bare UPDATEs of 1000 on one connection", "rows/s", "ratio ≥ 0.95", ratioAtLeast(0.95)},
	}},
	{name: "B3", round: (*bench).latencies, lines: append(latencyLines(200), latencyLines(1000)...)},
	{name: "B4", once: true, round: (*bench).memory, lines: []line{
		{"peak memory, published: none", "MiB", "≤ 64 MiB", atMost(64)},
		{"peak memory, SENT written back", "MiB", "≤ 64 MiB", atMost(64)},
		{"peak memory, sweep", "MiB", "≤ 64 MiB", atMost(64)},
		{"peak memory, all rows in one transaction", "MiB", "≤ 128 MiB", atMost(128)},
		{"peak memory, payloads of 1 MiB (a row for each 1000)", "MiB", "≤ 128 MiB", atMost(128)},
	}},
	{name: "B5", round: (*bench).oneKey, lines: []line{
		{"all rows of one key, published: none", "rows/s", "≥ 50,000 rows/s", atLeast(50_000)},
		{"all rows of one key, SENT written back", "rows/s", "", nil},
	}},
	{name: "B6", round: (*bench).slotLost, lines: []line{
		{"sweep of PENDING rows after the slot was lost; reference: B2", "rows/s", "ratio ≥ 0.8", ratioAtLeast(0.8)},
	}},
	{name: "B7", once: true, round: (*bench).emptySweep, lines: []line{
		{"empty sweep over ten times as many SENT rows", "ms", "≤ 5 ms", atMost(5)},
		{"sequential scans in it", "scans", "0", atMost(0)},
	}},
	{name: "B8", once: true, round: (*bench).idle, lines: []line{
		{"idle stream, CPU", "% of a core", "≤ 0.5 %", atMost(0.5)},
		{"idle stream, statements on the database", "1/s", "≤ 2 /s", atMost(2)},
	}},
	{name: "B9", round: (*bench).takeover, lines: []line{
		{"leader killed until the standby publishes", "s", "≤ 5 s", atMost(5)},
	}},
	{name: "B10", once: true, round: (*bench).brokerBack, lines: []line{
		{"broker back until rows are published", "s", "≤ 3 s", atMost(3)},
		{"rows FAILED by the outage", "rows", "0", atMost(0)},
	}},
	{name: "B11", round: (*bench).many, lines: []line{
		{"10 tables in a stream; reference: 1 table", "rows/s", "ratio ≥ 0.8", ratioAtLeast(0.8)},
		{"50 tables in a stream; reference: 1 table", "rows/s", "ratio ≥ 0.8", ratioAtLeast(0.8)},
		{"10 streams in a process; reference: 1 stream", "rows/s", "ratio ≥ 0.8", ratioAtLeast(0.8)},
		{"memory for each further stream", "MiB", "≤ 16 MiB", atMost(16)},
	}},
	{name: "B12", round: (*bench).startUp, lines: []line{
		{"start with nothing to do until ready", "s", "≤ 1 s", atMost(1)},
	}},
	onceBar,
	{name: "mapping", round: (*bench).mapped, lines: []line{
		{"B1's rows, with a topic by a map of 20 values; reference: without", "rows/s", "ratio ≥ 0.85", ratioAtLeast(0.85)},
		{"B1's rows, with a key out of JSON; reference: without", "rows/s", "ratio ≥ 0.85", ratioAtLeast(0.85)},
	}},
	cost("im2be", im2be()), cost("hot", hot()), cost("native", native()), cost("delete", deleting()), cost("none", unmarked()),
	scale("partitions", "1,000 partitions", func(rows int) job { j := standard(im2be(), rows); j.partitions = 1000; return j }),
	scale("transaction", "one transaction of five times as many rows", func(rows int) job { j := standard(im2be(), 5*rows); j.perTx = j.rows; return j }),
	scale("payload", "payloads of 1 MiB, a row for each 1000", large),
	scale("tables", "50 tables in a stream", func(rows int) job { j := standard(im2be(), rows); j.tables = 50; return j }),
	scale("waiting", "ten times as many rows waiting", func(rows int) job { return standard(im2be(), 10*rows) }),
	{name: "scale-unindexed", once: true, round: (*bench).unindexed, lines: []line{
		{"sweep of PENDING rows where no index serves it", "rows/s", "", nil},
	}},
	{name: "scale-head-start", once: true, round: (*bench).besideRelay, lines: []line{
		{"sweep of PENDING rows with a head start of 5 s", "rows/s", "", nil},
	}},
}

// cost is what a table's design costs the primary.
func cost(name string, l layout) bar {
	return bar{name: "cost-" + name, once: true, round: func(b *bench, t *testing.T, rows int) []sample {
		w := b.newWorld(t, standard(l, rows))
		w.prime()
		size := func() float64 {
			return oneFloat(w, `SELECT pg_total_relation_size('`+w.tables[0]+`')::float8`) / float64(rows)
		}
		inserted := oneFloat(w, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8`)
		w.fill()
		inserted = (oneFloat(w, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8`) - inserted) / float64(rows)
		before := size()
		s := b.deliver(w)
		s.note = fmt.Sprintf("per row: %.0f bytes of WAL for the INSERT; table and indexes %.0f bytes before and %.0f after; %.0f %% of the updates were HOT",
			inserted, before, size(), 100*oneFloat(w, `SELECT (n_tup_hot_upd / greatest(n_tup_upd, 1)::float8) FROM pg_stat_user_tables WHERE relname = '`+w.tables[0]+`'`))
		return []sample{s}
	}, lines: []line{{"cost on the primary: " + l.name, "rows/s", "", nil}}}
}

func scale(name, what string, of func(rows int) job) bar {
	return bar{name: "scale-" + name, once: true, round: func(b *bench, t *testing.T, rows int) []sample {
		return []sample{b.streamed(t, of(rows))}
	}, lines: []line{{what + ", SENT written back", "rows/s", "", nil}}}
}

// unindexed is a sweep that has to find what is PENDING among what was sent.
func (b *bench) unindexed(t *testing.T, rows int) []sample {
	return []sample{b.swept(t, standard(hot(), rows))}
}

// besideRelay is a sweep of rows that another relay has a head start with.
func (b *bench) besideRelay(t *testing.T, rows int) []sample {
	l := im2be()
	l.config["head_start"] = "5s"
	return []sample{b.swept(t, standard(l, rows))}
}

// large is a few rows with payloads of 1 MiB.
func large(rows int) job {
	j := standard(im2be(), max(20, rows/1000))
	j.bytes, j.perTx = 1<<20, 10
	return j
}

// mapped is B1 with what a mapping can do in place of columns that say it.
func (b *bench) mapped(t *testing.T, rows int) []sample {
	run := func(key string, value fields) sample { return b.streamed(t, standard(documented(key, value), rows)) }
	topics := fields{"OrderPlaced": theTopic, "com.acme.billing.*": theTopic}
	for i := range 18 {
		topics[fmt.Sprint("OrderChanged", i)] = theTopic
	}
	without := run("topic", fields{"column": "topic"}).value
	return []sample{
		run("topic", fields{"column": "event_type", "map": topics}).over(without),
		run("key", fields{"column": "doc", "path": "/customer/id"}).over(without),
	}
}

// writtenBack is B2.
func (b *bench) writtenBack(t *testing.T, rows int) []sample {
	s := b.streamed(t, standard(im2be(), rows))
	return []sample{s.over(b.markedBare(t, rows))}
}

// latencyLines are B3's of a rate.
func latencyLines(perSecond int) []line {
	at := fmt.Sprintf(" at %d rows/s", perSecond)
	return []line{
		{"commit to readable" + at + ", SENT written back, p50; reference: the broker's own", "ms", "≤ 0.5 ms above", aboveReference(0.5)},
		{"the same, p99", "ms", "≤ 5 ms above", aboveReference(5)},
		{"commit to SENT visible" + at + ", p99", "ms", "≤ 100 ms", atMost(100)},
		{"the broker's own time meanwhile, on the loaded machine, p50", "ms", "", nil},
		{"the same, p99", "ms", "", nil},
	}
}

// latencies is B3: 20 s of each rate, less in a warm-up and for few rows.
func (b *bench) latencies(t *testing.T, rows int) (samples []sample) {
	for _, perSecond := range []int{200, 1000} {
		lasting := min(20*time.Second, max(4*time.Second, time.Duration(rows)*20*time.Microsecond))
		samples = append(samples, b.latency(t, perSecond, lasting)...)
	}
	return samples
}

// memory is B4.
func (b *bench) memory(t *testing.T, rows int) []sample {
	whole := standard(im2be(), rows)
	whole.perTx = rows
	runs := []func(*testing.T) sample{
		func(t *testing.T) sample { return b.streamed(t, standard(unmarked(), rows)) },
		func(t *testing.T) sample { return b.streamed(t, standard(im2be(), rows)) },
		func(t *testing.T) sample { return b.swept(t, standard(im2be(), rows)) },
		func(t *testing.T) sample { return b.streamed(t, whole) },
		func(t *testing.T) sample { return b.streamed(t, large(rows)) },
	}
	var samples []sample
	for _, run := range runs {
		t.Run("run", func(t *testing.T) {
			s := run(t)
			if s.peak == nil {
				b.cannot(t, "the peak is read from /proc/PID/status")
			}
			s.note = fmt.Sprintf("at %.0f rows/s", s.value)
			s.value = *s.peak
			samples = append(samples, s)
		})
	}
	return samples
}

// oneKey is B5.
func (b *bench) oneKey(t *testing.T, rows int) []sample {
	none, sent := standard(unmarked(), rows), standard(im2be(), rows)
	none.keys, sent.keys = 1, 1
	return []sample{b.streamed(t, none), b.streamed(t, sent)}
}

// slotLost is B6. Each round has B2's of its own number for reference, or one
// that it takes itself.
func (b *bench) slotLost(t *testing.T, rows int) []sample {
	s := b.swept(t, standard(im2be(), rows))
	if rows == b.rows && b.at < len(b.marked) {
		return []sample{s.over(b.marked[b.at].value)}
	}
	return []sample{s.over(b.streamed(t, standard(im2be(), rows)).value)}
}

// many is B11.
func (b *bench) many(t *testing.T, rows int) []sample {
	run := func(tables, streams int) sample {
		j := standard(im2be(), rows)
		j.tables, j.streams = tables, streams
		return b.streamed(t, j)
	}
	one, ten, fifty, streams := run(1, 1), run(10, 1), run(50, 1), run(1, 10)
	samples := []sample{ten.over(one.value), fifty.over(one.value), streams.over(one.value)}
	if one.peak == nil {
		b.cannot(t, "the peak is read from /proc/PID/status")
	}
	return append(samples, sample{value: (*streams.peak - *one.peak) / 9})
}

func oneFloat(w *world, sql string) float64 { return harness.One[float64](w.t, w.dbs[0], sql) }
