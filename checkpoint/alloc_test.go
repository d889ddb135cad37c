package checkpoint

import (
	"fmt"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/creep"
)

// hotPath is a Core that streams a table with nothing parked, and the rows for it.
type hotPath struct {
	core *Core
	rows []*outbox.Row
	at   outbox.LSN
	acks []outbox.Marked
	seen []outbox.Checked
}

func newHotPath(batch int) *hotPath {
	table := &outbox.Table{Schema: "public", Name: "outbox"}
	table.Mapping.Published, table.Mapping.OnFailed = outbox.PublishedStatus, outbox.OnFailedSkip
	table.Mapping.Cluster = outbox.ClusterMapping{Default: "main"}
	h := &hotPath{at: 1000, core: New(Config{
		Tables: []*outbox.Table{table}, MaxRows: 20_000, MaxBytes: 16 << 20, PageRows: 5000, SmallRound: 1000, MaxKeys: 1000, MaxRetryingKeys: 2000, MaxTopics: 10,
		BackoffMin: time.Second, BackoffMax: time.Minute, WatchEvery: time.Hour,
	})}
	h.core.Tick(time.Unix(1_800_000_000, 0))
	h.core.Connect(Connected{Streaming: true, Insert: 1})
	h.core.Keepalive(2)
	h.core.Take() // the WAL is behind the rows that a start looks at
	for i := range batch {
		h.rows = append(h.rows, &outbox.Row{
			Table: table, ID: fmt.Sprint(i), Cluster: "main", Topic: "orders", Key: fmt.Appendf(nil, "key-%d", i),
			Value: make([]byte, 256), Pending: true, Partition: -1,
		})
	}
	return h
}

// round takes the rows through the Core once: they are read, acknowledged, marked and confirmed. They come
// in one transaction or, with single, each in its own.
func (h *hotPath) round(tb testing.TB, single bool) {
	h.at += 1000
	h.core.Begin(outbox.Transaction{XID: 7, Commit: h.at})
	for i := range h.rows {
		h.core.Rows(h.rows[i : i+1])
		if single && i+1 < len(h.rows) {
			h.core.Commit(h.at + 10)
			h.at += 1000
			h.core.Begin(outbox.Transaction{XID: 7, Commit: h.at})
		}
	}
	h.core.Commit(h.at + 10)
	w := h.core.Take()
	if len(w.Check) > 0 {
		h.look(w.Check)
		w = h.core.Take()
	}
	published := 0
	for _, c := range w.Commands {
		published += len(c.Publish)
	}
	if published != len(h.rows) {
		tb.Fatalf("%d of %d rows are published", published, len(h.rows))
	}
	h.core.Outcome(outbox.Outcome{Class: outbox.Delivered, Rows: h.rows})
	h.acks = h.acks[:0]
	for _, m := range h.core.Take().Marks {
		h.acks = append(h.acks, outbox.Marked{Row: m.Row, Kind: m.Kind, State: outbox.MarkedSent})
	}
	h.core.Marked(h.acks)
	if h.core.Confirm() != h.at+10 {
		tb.Fatalf("confirmed %v, wanted %v", h.core.Confirm(), h.at+10)
	}
}

// look answers that each row is unchanged.
func (h *hotPath) look(rows []*outbox.Row) {
	h.seen = h.seen[:0]
	for _, r := range rows {
		h.seen = append(h.seen, outbox.Checked{Row: r, State: outbox.CheckPending})
	}
	h.core.Checked(h.seen)
}

// A look at many rows allocates its lists once.
func TestALookAllocatesLittle(t *testing.T) {
	const rows = 1000
	h := newHotPath(rows)
	h.rows[0].Table.Mapping.LookFirst = true
	h.round(t, false) // makes room
	creep.Hold(t, "checkpoint: rows that are looked at", rows, func() { h.round(t, false) })
}

func TestTheCoreAllocatesNextToNothing(t *testing.T) {
	for name, single := range map[string]bool{"transactions of one row": true, "one transaction": false} {
		const rows = 1000
		h := newHotPath(rows)
		h.round(t, single) // makes room
		creep.Hold(t, "checkpoint: "+name, rows, func() { h.round(t, single) })
	}
}

// BenchmarkCore measures a row's way through the Core. One operation is one row.
func BenchmarkCore(b *testing.B) {
	const rows = 500
	h := newHotPath(rows)
	b.ReportAllocs()
	for n := 0; n < b.N; n += rows {
		h.round(b, true)
	}
}

// BenchmarkParkedKeys measures a row's way through the Core while this many keys of its table are parked and
// wait for their next try. One operation is one row.
func BenchmarkParkedKeys(b *testing.B) {
	for _, keys := range []int{0, 1000, 10_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			h := newHotPath(1)
			h.park(keys)
			b.ReportAllocs()
			for b.Loop() {
				h.round(b, true)
				h.core.NextTick()
			}
		})
	}
}

// park parks this number of keys, whose next try is in an hour.
func (h *hotPath) park(keys int) {
	h.core.cfg.MaxKeys, h.core.cfg.MaxRetryingKeys = 2*keys, 4*keys
	for i := range keys {
		row := &outbox.Row{Table: h.rows[0].Table, Key: fmt.Appendf(nil, "parked-%d", i)}
		h.core.park(outbox.KeyScope(row), outbox.CauseRowError, "refused", h.core.now.Add(time.Hour))
	}
	for h.core.Take().Parks != nil {
		h.core.ParksWritten(outbox.ParksCommitted)
	}
	for _, p := range h.core.parks.list {
		p.nextSweep = h.core.now.Add(time.Hour)
	}
}
