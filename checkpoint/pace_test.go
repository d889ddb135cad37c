package checkpoint

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Pacing stops what brings rows into memory, and nothing else.
func TestPace(t *testing.T) {
	t.Parallel()
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{Published: outbox.PublishedStatus}}
	start := time.Unix(1000, 0)
	paced := func(conn Connected) *Core {
		c := New(Config{Tables: []*outbox.Table{table}, MaxRows: 1000, MaxBytes: 1 << 20, PageRows: 100, SmallRound: 50, MaxKeys: 10, MaxRetryingKeys: 20, MaxTopics: 10, BackoffMin: time.Second, BackoffMax: time.Minute, WatchEvery: time.Hour})
		c.Tick(start)
		c.Connect(conn)
		c.Pace(start.Add(time.Second), 7)
		return c
	}

	c := paced(Connected{Streaming: true})
	if c.Take(); c.Reading() {
		t.Error("the WAL is read")
	}
	if !c.NextTick().Equal(start.Add(time.Second)) {
		t.Errorf("the next tick is at %v", c.NextTick())
	}
	if c.Tick(start.Add(time.Second)); !c.Reading() {
		t.Error("the WAL is not read once the time has come")
	}

	c = paced(Connected{Streaming: true})
	c.cfg.WALBudget = 1 << 30
	c.Retained(1 << 30)
	if r := c.Take(); r.Sweep != nil {
		t.Error("a page is asked for")
	}
	if !c.Reading() {
		t.Error("rows that are discarded are not read: they hold back WAL")
	}
	c.Tick(start.Add(time.Second))
	if r := c.Take(); r.Sweep == nil || r.Sweep.Limit != 7 {
		t.Errorf("the page asked for is %+v", r.Sweep)
	}
	c.Swept(outbox.Page{More: true, Rows: []*outbox.Row{{Table: table, ID: "1", Pending: true}}})
	if c.Arrived() != 1 || !c.Sweeping() {
		t.Errorf("%d rows came, more left: %v", c.Arrived(), c.Sweeping())
	}
}
