package checkpoint

import (
	"errors"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/outbox"
)

// blockedCore is a Core to which the log has brought two rows of one key, for two
// clusters, each of which has refused its row (on_failed: block).
func blockedCore() (c *Core, first, second *outbox.Row) {
	table := &outbox.Table{Schema: "public", Name: "outbox"}
	table.Mapping.Published, table.Mapping.OnFailed = outbox.PublishedStatus, outbox.OnFailedBlock
	table.Mapping.Cluster = outbox.ClusterMapping{Column: "cluster", Default: "main", Known: []string{"main", "other"}}
	c = New(Config{
		Tables: []*outbox.Table{table}, MaxRows: 20, MaxBytes: 1 << 20, PageRows: 3, SmallRound: 3, MaxKeys: 10,
		BackoffMin: time.Second, BackoffMax: 4 * time.Second, WatchEvery: time.Hour,
	})
	c.Tick(epochStart)
	c.Connect(Connected{Streaming: true})
	first = &outbox.Row{Table: table, ID: "1", Cluster: "main", Topic: "x", Key: []byte("k"), Pending: true, XID: 7, Commit: 10}
	second = &outbox.Row{Table: table, ID: "2", Cluster: "other", Topic: "x", Key: []byte("k"), Pending: true, XID: 7, Commit: 10}
	c.Begin(outbox.Transaction{XID: 7, Commit: 10})
	c.Rows([]*outbox.Row{first, second})
	c.Commit(20)
	c.Take()
	for _, r := range []*outbox.Row{first, second} {
		c.Outcome(outbox.Outcome{Rows: []*outbox.Row{r}, Class: outbox.Refused, Scope: outbox.KeyScope(first), Blocked: true, Err: errors.New("refused")})
	}
	c.Take()
	return c, first, second
}

// The first row becomes FAILED and leaves the key to the operator; the second is to
// be tried again, and does not take the key back.
func TestABlockedKeyStaysSoWhenAnotherRowFails(t *testing.T) {
	c, first, second := blockedCore()
	c.Marked([]outbox.Marked{{Row: first, Kind: outbox.MarkAttempt, State: outbox.MarkedFailed, Attempts: 3}})
	c.Marked([]outbox.Marked{{Row: second, Kind: outbox.MarkAttempt, State: outbox.MarkedRetry, Attempts: 1}})
	if p := c.parks[outbox.KeyScope(first)]; p == nil || p.Cause != outbox.CauseBlocked || p.RowID != "1" {
		t.Errorf("the key is parked as %+v", p)
	}
}

// The first row is looked at when it was deleted, and the second one becomes FAILED
// before the answer is here: the key waits for that one.
func TestAKeyWaitsForTheRowThatFailedDuringALook(t *testing.T) {
	c, first, second := blockedCore()
	c.Marked([]outbox.Marked{{Row: first, Kind: outbox.MarkAttempt, State: outbox.MarkedFailed, Attempts: 3}})
	c.Tick(epochStart.Add(time.Hour))
	look := c.Take().Check
	if len(look) != 1 || look[0].ID != "1" {
		t.Fatalf("looks at %v", outboxIDs(look))
	}
	c.Marked([]outbox.Marked{{Row: second, Kind: outbox.MarkAttempt, State: outbox.MarkedFailed, Attempts: 3}})
	c.Checked([]outbox.Checked{{Row: look[0], State: outbox.CheckSettled}})
	if p := c.parks[outbox.KeyScope(first)]; p == nil || p.Cause != outbox.CauseBlocked || p.RowID != "2" {
		t.Errorf("the key is parked as %+v", p)
	}
}
