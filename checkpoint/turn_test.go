package checkpoint

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// crowded returns a Core whose stream is swept, with fourteen tables and waits shorter than it takes
// to ask them all. The last table is good.
func crowded() (c *Core, good *outbox.Table, step func() Ready) {
	var tables []*outbox.Table
	for i := range 14 {
		tables = append(tables, &outbox.Table{Schema: "public", Name: fmt.Sprintf("t%d", i), Mapping: outbox.Mapping{Published: outbox.PublishedStatus}})
	}
	now := time.Unix(1000, 0)
	c = New(Config{
		Tables: tables, MaxRows: 400, MaxBytes: 1 << 20, PageRows: 10, SmallRound: 5, MaxKeys: 10, MaxRetryingKeys: 20, MaxTopics: 10,
		BackoffMin: time.Millisecond, BackoffMax: 2 * time.Millisecond, WatchEvery: time.Hour,
	})
	c.Tick(now)
	c.Connect(Connected{Cause: outbox.CauseMissed, Reason: "a start"})
	return c, tables[13], func() Ready {
		now = now.Add(time.Millisecond)
		c.Tick(now)
		r := c.Take()
		if r.Parks != nil {
			c.ParksWritten(outbox.ParksCommitted)
		}
		return r
	}
}

// Tables that refuse to be read do not keep the stream's sweep from its turn: the other table is swept.
func TestRefusingTablesLeaveTheStreamItsTurn(t *testing.T) {
	t.Parallel()
	c, good, step := crowded()
	for range 1000 {
		r := step()
		switch {
		case r.Sweep == nil:
		case r.Sweep.Parts[0].Table != good:
			c.SweepRefused(r.Sweep.Parts[0].Table, errors.New("refused"))
		case len(r.Sweep.Parts) == 1:
			return
		default:
			c.SweepRefused(r.Sweep.Parts[1].Table, errors.New("refused"))
		}
	}
	t.Error("the stream was never swept without the tables that refuse")
}

// Tables that refuse every mark do not either: only their first pages wait in memory.
func TestUnmarkableTablesLeaveTheStreamItsTurn(t *testing.T) {
	t.Parallel()
	c, good, step := crowded()
	ids, lastly := 0, 0
	for n := range 1000 {
		r := step()
		var answers []outbox.Marked
		for _, m := range r.Marks {
			answers = append(answers, outbox.Marked{Row: m.Row, Kind: m.Kind, State: outbox.MarkedRefused, Err: errors.New("refused")})
		}
		if r.Sweep != nil {
			var page outbox.Page
			for _, part := range r.Sweep.Parts {
				if part.Table == good && len(page.Rows) < r.Sweep.Limit {
					lastly = n
					continue
				}
				for len(page.Rows) < r.Sweep.Limit {
					ids++
					page.Rows = append(page.Rows, &outbox.Row{Table: part.Table, ID: fmt.Sprint(ids), Cluster: "main", Topic: "x", Key: []byte("k"), Pending: true})
				}
			}
			page.More = true
			c.Swept(page)
		}
		for _, cmd := range r.Commands {
			if len(cmd.Publish) > 0 {
				c.Outcome(outbox.Outcome{Class: outbox.Delivered, Rows: cmd.Publish})
			}
		}
		c.Marked(answers)
	}
	if rows, _, _ := c.Memory(); lastly < 900 || rows > 13*20 {
		t.Errorf("the good table was swept last in step %d; %d rows in memory", lastly, rows)
	}
}
