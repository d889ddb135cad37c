package checkpoint

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// A row of a table without state is refused, and the connection ends before the
// sink has given back the rows behind it. A row that the next connection brings
// waits for them: it is published after them, and the sink is released only then.
func TestAStallOutlastsItsConnection(t *testing.T) {
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{Published: outbox.PublishedNone}}
	c := New(Config{Tables: []*outbox.Table{table}, MaxRows: 100, MaxBytes: 1 << 20, PageRows: 10, BackoffMin: time.Second, BackoffMax: time.Minute})
	now := time.Unix(1000, 0)
	c.Tick(now)
	log := func(ids ...string) []*outbox.Row {
		var rows []*outbox.Row
		for i, id := range ids {
			at := outbox.LSN(100 * (i + 1))
			row := &outbox.Row{Table: table, ID: id, Cluster: "main", Topic: "t", Key: []byte("k"), Pending: true, XID: uint32(i + 7), Commit: at, Partition: -1}
			c.Begin(outbox.Transaction{XID: row.XID, Commit: at, End: at + 10})
			c.Rows([]*outbox.Row{row})
			c.Commit(at + 10)
			rows = append(rows, row)
		}
		return rows
	}
	commands := func() (did []string) {
		for _, cmd := range c.Take().Commands {
			if cmd.Release != nil {
				did = append(did, "release")
			}
			for _, r := range cmd.Publish {
				did = append(did, r.ID)
			}
		}
		return did
	}
	expect := func(when string, want ...string) {
		t.Helper()
		if got := commands(); !slices.Equal(got, want) {
			t.Fatalf("%s: %v, wanted %v", when, got, want)
		}
	}

	c.Connect(Connected{Streaming: true})
	rows := log("1", "2")
	expect("at first", "1", "2")
	c.Outcome(outbox.Outcome{Rows: rows[:1], Class: outbox.Refused, Scope: outbox.KeyScope(rows[0]), Blocked: true, Err: errors.New("too large")})
	c.Disconnect()
	expect("without a connection")

	c.Connect(Connected{Streaming: true})
	log("1", "2", "3")
	c.Tick(now.Add(time.Hour))
	expect("while the sink has a row of the key")
	c.Outcome(outbox.Outcome{Rows: rows[1:], Class: outbox.Withdrawn, Scope: outbox.KeyScope(rows[0])})
	c.Tick(now.Add(2 * time.Hour))
	expect("when it is back", "release", "1", "2", "3")
}
