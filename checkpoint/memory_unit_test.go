package checkpoint

import (
	"fmt"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Rows are scattered when few are left of the many that came since the oldest one: not while they leave in order.
func TestScattered(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	pass := func(r *outbox.Row, through bool) {
		c.Begin(outbox.Transaction{Commit: r.Commit, End: r.Commit + 1})
		c.Rows([]*outbox.Row{r})
		c.Commit(r.Commit + 1)
		c.Take()
		if !through {
			return
		}
		c.Outcome(outbox.Outcome{Rows: []*outbox.Row{r}, Class: outbox.Delivered})
		c.Take()
		c.Marked([]outbox.Marked{{Row: r, Kind: outbox.MarkSent}})
	}
	row := func(i int) *outbox.Row {
		r := rowOf(table, fmt.Sprint(i))
		r.Key, r.Commit = []byte(r.ID), outbox.LSN(1000+10*i)
		return r
	}
	for i := range 3 * c.cfg.MaxRows {
		if pass(row(i), true); c.Scattered() {
			t.Fatal("none is left")
		}
	}
	n := 3 * c.cfg.MaxRows
	pass(row(n), false)
	for i := range c.cfg.MaxRows {
		if c.Scattered() != (i > c.cfg.MaxRows/2) {
			t.Fatalf("after %d rows: %v", i, c.Scattered())
		}
		pass(row(n+1+i), true)
	}
	c.Outcome(outbox.Outcome{Rows: []*outbox.Row{c.rows.entries[c.rows.head].row}, Class: outbox.Delivered})
	c.Take()
	c.Marked([]outbox.Marked{{Row: c.rows.entries[c.rows.head].row, Kind: outbox.MarkSent}})
	if c.Scattered() {
		t.Error("the last has left")
	}
}
