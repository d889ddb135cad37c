package checkpoint

import (
	"errors"
	"slices"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Rows that were published before the connection are skipped. Published is not asked behind PublishedTo.
// Settled is correct after every step.
func TestWhatWasPublishedBefore(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedNone)
	var asked []string
	c.Connect(Connected{Streaming: true, PublishedTo: 20, Published: func(r *outbox.Row) bool {
		asked = append(asked, r.ID)
		return r.ID == "1"
	}})
	c.ready = Ready{}
	settled := func(want outbox.LSN, one bool, when string) {
		t.Helper()
		if got := c.Settled(); got != want || c.OneTransaction() != one {
			t.Errorf("%s: settled up to %v, one transaction %v; want %v, %v", when, got, c.OneTransaction(), want, one)
		}
	}
	row := func(id string) *outbox.Row { return rowOf(table, id) }
	settled(0, false, "at the begin")
	c.Begin(outbox.Transaction{XID: 7, Commit: 10})
	settled(9, true, "in a transaction")
	two := row("2")
	c.Rows([]*outbox.Row{row("1"), two})
	c.Commit(12)
	settled(9, false, "while a row is in the sink")
	c.Begin(outbox.Transaction{XID: 8, Commit: 20})
	settled(9, false, "in the next transaction")
	c.Rows([]*outbox.Row{row("1")})
	c.Commit(22)
	c.Outcome(outbox.Outcome{Rows: []*outbox.Row{two}, Class: outbox.Delivered})
	settled(21, false, "when the row is delivered")
	c.Begin(outbox.Transaction{XID: 9, Commit: 30})
	settled(29, true, "in the last transaction")
	c.Rows([]*outbox.Row{row("1")})
	if got := published(c); !slices.Equal(got, []string{"2", "1"}) || !slices.Equal(asked, []string{"1", "2", "1"}) || c.tables.before.published != nil {
		t.Errorf("asked about %v, published %v", asked, got)
	}
	c.Drain()
	c.Commit(32)
	c.Begin(outbox.Transaction{XID: 10, Commit: 40})
	c.Commit(42)
	settled(29, false, "when later transactions are left to the next process")
}

// A stream whose tables kept a state before has parks in our table. Nothing would sweep them, so they are
// ignored.
func TestParksOfATableThatKeptAState(t *testing.T) {
	t.Parallel()
	for _, scope := range []outbox.ScopeKind{outbox.ScopeStream, outbox.ScopeTable, outbox.ScopeKey} {
		c, table, _ := begun(t, outbox.PublishedNone)
		park := outbox.Park{Scope: outbox.Scope{Kind: scope}, Cause: outbox.CauseSlot, Reason: "before"}
		switch scope {
		case outbox.ScopeTable:
			park.Scope = outbox.TableScope(table)
		case outbox.ScopeKey:
			park.Scope = outbox.KeyScope(rowOf(table, "1"))
		}
		c.Connect(Connected{Streaming: true, Parks: []outbox.Park{park}})
		c.ready = Ready{}
		c.Begin(outbox.Transaction{XID: 7, Commit: 10})
		c.Rows([]*outbox.Row{rowOf(table, "1")})
		c.Commit(12)
		if got := published(c); !slices.Equal(got, []string{"1"}) || c.Confirm() != 0 || c.ready.Sweep != nil {
			t.Errorf("%v: published %v, confirmed %v", scope, got, c.Confirm())
		}
	}
}

// Rows behind other rows that could not be read are not published, even if the table's definition fits again.
func TestNothingPassesRowsThatWereNotRead(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedNone)
	c.Connect(Connected{Streaming: true})
	c.ready = Ready{}
	c.Begin(outbox.Transaction{XID: 7, Commit: 10})
	c.TableBroken(table, errors.New("a column is gone"))
	c.Passed(7)
	c.Rows([]*outbox.Row{rowOf(table, "1")})
	c.Commit(12)
	c.Begin(outbox.Transaction{XID: 8, Commit: 20})
	c.TableMapped(table)
	c.Rows([]*outbox.Row{rowOf(table, "2")})
	c.Commit(22)
	if got := published(c); len(got) > 0 || c.Settled() != 9 || c.Reading() {
		t.Errorf("published %v, settled up to %v", got, c.Settled())
	}
}
