package checkpoint

import (
	"errors"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// A row is refused again and again for an error that its table takes for
// passing. Every mark says so, also one that is repeated because the row was
// not visible; the key waits longer each time, and the row is never FAILED.
func TestUnchargedRefusals(t *testing.T) {
	s := newScene(t, worldRules{})
	c := New(s.procs[0].core.cfg)
	now := time.Unix(1000, 0)
	c.Tick(now)
	c.Connect(Connected{Streaming: true})
	c.Take()
	row := &outbox.Row{Table: c.cfg.Tables[0], ID: "1", Cluster: "main", Topic: "t", Key: []byte("k"), Pending: true, XID: 7, Commit: 10, Partition: -1}
	c.Begin(outbox.Transaction{XID: 7, Commit: 10, End: 20})
	c.Rows([]*outbox.Row{row})
	c.Commit(20)
	if r := c.Take(); len(r.Commands) != 1 || len(r.Commands[0].Publish) != 1 {
		t.Fatalf("%+v", r)
	}
	c.Outcome(outbox.Outcome{
		Rows: []*outbox.Row{row}, Class: outbox.Refused, Scope: outbox.KeyScope(row), Blocked: true, Err: errors.New("passing"), Uncharged: true,
	})
	if r := c.Take(); len(r.Marks) != 1 || r.Marks[0].Kind != outbox.MarkAttempt || !r.Marks[0].Uncharged {
		t.Fatalf("%+v", r.Marks)
	}
	c.Marked([]outbox.Marked{{Row: row, Kind: outbox.MarkAttempt, State: outbox.MarkedInvisible}})
	c.Tick(now.Add(time.Second))
	if r := c.Take(); len(r.Marks) != 1 || !r.Marks[0].Uncharged || r.Marks[0].Reason != "passing" {
		t.Fatalf("%+v", r.Marks)
	}
	c.Marked([]outbox.Marked{{Row: row, Kind: outbox.MarkAttempt, State: outbox.MarkedRetry}})
	for _, n := range c.Take().Notes {
		if n.Kind == NoteFailed {
			t.Fatalf("%+v", n)
		}
	}
	p := c.parks.of(outbox.KeyScope(row))
	if p == nil || p.Cause != outbox.CauseRowError || !p.Next.After(c.now) || p.tries != 1 {
		t.Fatalf("%+v", p)
	}
	for tries := 2; tries < 5; tries++ { // however many attempts were stored before
		h := c.flying(row, attempt)
		c.rows.entries[h].uncharged = true
		c.Marked([]outbox.Marked{{Row: row, Kind: outbox.MarkAttempt, State: outbox.MarkedRetry, Attempts: 1}})
		if p.tries != tries || !p.Next.Equal(c.backoff(tries)) {
			t.Errorf("try %d: %+v", tries, p)
		}
	}
}
