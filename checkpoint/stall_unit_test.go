package checkpoint

import (
	"slices"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// stateless returns a Core of a table without state, and rows of one key with these ids, which the sink has.
func stateless(t *testing.T, ids ...string) (*Core, []*outbox.Row) {
	t.Helper()
	c, table, _ := begun(t, outbox.PublishedNone)
	c.gate = nil
	c.Begin(outbox.Transaction{XID: 7, Commit: 10})
	var rows []*outbox.Row
	for _, id := range ids {
		r := rowOf(table, id)
		r.Key = []byte("k")
		rows = append(rows, r)
	}
	c.Rows(rows)
	c.ready = Ready{}
	return c, rows
}

func (c *Core) refuse(r *outbox.Row) {
	c.Outcome(outbox.Outcome{Rows: []*outbox.Row{r}, Class: outbox.Refused, Scope: outbox.KeyScope(r), Blocked: true, Err: errOurs})
}

func (c *Core) giveBackAll(scope outbox.Scope, err error, rows ...*outbox.Row) {
	c.Outcome(outbox.Outcome{Rows: rows, Class: outbox.Withdrawn, Scope: scope, Err: err})
}

func (c *Core) stalledIDs(s *stall) (ids []string) {
	for _, h := range s.rows {
		ids = append(ids, c.rows.entries[h].row.ID)
	}
	return ids
}

// A row that is refused waits with the rows of its key, in the order of the WAL, whichever comes back
// first; a note tells of it once, and what comes of the key waits behind.
func TestRowsWithoutStateWaitInOrder(t *testing.T) {
	t.Parallel()
	c, rows := stateless(t, "1", "2", "3")
	key := outbox.KeyScope(rows[0])
	c.refuse(rows[0])
	c.giveBackAll(key, nil, rows[2])
	c.giveBackAll(key, nil, rows[1])
	other, more := rowOf(rows[0].Table, "5"), rowOf(rows[0].Table, "4")
	more.Key = rows[0].Key
	c.Rows([]*outbox.Row{more, other})
	s := c.stallOf(key)
	if got := c.stalledIDs(s); !slices.Equal(got, []string{"1", "2", "3", "4"}) || len(c.stalls) != 1 || !s.next.Equal(c.now.Add(time.Second)) || !s.blocked {
		t.Errorf("%v wait: %+v", got, s)
	}
	if got := published(c); !slices.Equal(got, []string{"5"}) || c.inSinkOf(key) {
		t.Errorf("%v are published", got)
	}
	notes := slices.DeleteFunc(c.ready.Notes, func(n Note) bool { return n.Kind != NoteStalled })
	if len(notes) != 1 || notes[0].Row.ID != "1" || notes[0].Reason != errOurs.Error() {
		t.Errorf("%+v", notes)
	}
	c.ready = Ready{}
	if c.retryStalls(); len(c.ready.Commands) != 0 {
		t.Error("tried again at once")
	}
	c.later(time.Second)
	c.retryStalls()
	if got := published(c); !slices.Equal(got, []string{"1", "2", "3", "4"}) || c.ready.Commands[0].Release == nil || len(c.stalls) != 0 {
		t.Errorf("%+v", c.ready.Commands)
	}
}

// No note tells about rows that the sink withdraws without an error.
func TestWhatIsWithdrawnIsNotTold(t *testing.T) {
	t.Parallel()
	c, rows := stateless(t, "1")
	if c.giveBackAll(outbox.StreamScope(), nil, rows...); len(c.stalls) != 1 || slices.ContainsFunc(c.ready.Notes, func(n Note) bool { return n.Kind == NoteStalled }) {
		t.Errorf("%+v", c.ready.Notes)
	}
	c.later(time.Second)
	if c.retryStalls(); len(c.ready.Commands) != 1 || c.ready.Commands[0].Release != nil {
		t.Errorf("the sink blocks nothing: %+v", c.ready.Commands)
	}
}

// Rows of a key and of its topic that are due together go in the order of the WAL; those of a key that still
// waits wait with it.
func TestStallsAreTriedTogether(t *testing.T) {
	t.Parallel()
	for _, keyWaits := range []bool{false, true} {
		c, rows := stateless(t, "1", "2", "3")
		topic := outbox.TopicScope("main", "t")
		c.giveBackAll(topic, errTopic, rows[0], rows[2])
		c.giveBackAll(outbox.KeyScope(rows[0]), nil, rows[1])
		more := rowOf(rows[0].Table, "4")
		more.Key = rows[0].Key
		c.Rows([]*outbox.Row{more})
		if got := c.stalledIDs(c.stallOf(outbox.KeyScope(more))); !slices.Equal(got, []string{"2", "4"}) {
			t.Errorf("%v wait with the key", got)
		}
		c.later(time.Second)
		if keyWaits {
			c.stallOf(outbox.KeyScope(rows[0])).next = c.now.Add(1)
		}
		c.ready = Ready{}
		c.retryStalls()
		want := []string{"1", "2", "3", "4"}
		if keyWaits {
			if got := c.stalledIDs(c.stalls[0]); !slices.Equal(got, []string{"1", "2", "3", "4"}) || len(c.stalls) != 1 {
				t.Errorf("%v wait", got)
			}
			want = nil
		}
		if got := published(c); !slices.Equal(got, want) {
			t.Errorf("%v are published, the key waits %v", got, keyWaits)
		}
	}
}

// Rows of a topic wait behind rows of the topic that the sink gave back. Rows of other topics do not wait.
func TestRowsWaitWithTheirTopic(t *testing.T) {
	t.Parallel()
	c, rows := stateless(t, "1")
	c.giveBackAll(outbox.TopicScope("main", "t"), errTopic, rows...)
	c.Rows([]*outbox.Row{onTopic(rows[0].Table, "2", "t"), onTopic(rows[0].Table, "3", "other")})
	if got := c.stalledIDs(c.stalls[0]); !slices.Equal(got, []string{"1", "2"}) || !slices.Equal(published(c), []string{"3"}) {
		t.Errorf("%v wait, %v are published", got, published(c))
	}
}

// What stays: a stall before its time, one whose first row cannot become a record, one of which the sink has
// rows.
func TestWhichStallsStay(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with  func(c *Core, s *stall, r *outbox.Row)
		stays bool
	}{
		"its time has come": {func(*Core, *stall, *outbox.Row) {}, false},
		"before its time":   {func(c *Core, s *stall, _ *outbox.Row) { s.next = c.now.Add(1) }, true},
		"no record":         {func(_ *Core, _ *stall, r *outbox.Row) { r.Err = errOurs }, true},
		"the sink has a row": {func(c *Core, _ *stall, r *outbox.Row) {
			o := rowOf(r.Table, "2")
			o.Key = r.Key
			c.flying(o, inSink)
		}, true},
		"the sink has taken it": {func(c *Core, _ *stall, r *outbox.Row) {
			o := rowOf(r.Table, "2")
			o.Key = r.Key
			c.flying(o, acked)
		}, false},
		"the sink has another key's": {func(c *Core, _ *stall, r *outbox.Row) { c.flying(rowOf(r.Table, "2"), inSink) }, false},
		"nothing waits":              {func(c *Core, s *stall, _ *outbox.Row) { c.drop(s.rows[0]); s.rows = nil }, false},
	} {
		c, rows := stateless(t, "1")
		c.giveBackAll(outbox.KeyScope(rows[0]), nil, rows...)
		s := c.stalls[0]
		s.next = c.now
		x.with(c, s, rows[0])
		c.retryStalls()
		if stays := len(c.stalls) == 1 && c.stalls[0] == s; stays != x.stays {
			t.Errorf("%s: stays %v", name, stays)
		}
	}
}

// With its connection a stall goes, and the sink is told, unless the sink has rows of it.
func TestAStallGoesWithItsConnection(t *testing.T) {
	t.Parallel()
	for _, has := range []bool{false, true} {
		c, rows := stateless(t, "1", "2")
		c.refuse(rows[0])
		if !has {
			c.giveBackAll(outbox.KeyScope(rows[0]), nil, rows[1])
		}
		c.ready = Ready{}
		c.Disconnect()
		released := len(c.ready.Commands) == 1 && *c.ready.Commands[0].Release == outbox.KeyScope(rows[0])
		if count, _, _ := c.Memory(); (len(c.stalls) == 1) != has || released == has || has && count != 1 || !has && count != 0 {
			t.Errorf("the sink has one %v: %d stalls, released %v, %d rows", has, len(c.stalls), released, count)
		}
		if !has {
			continue
		}
		c.giveBackAll(outbox.KeyScope(rows[0]), nil, rows[1])
		if count, _, _ := c.Memory(); count != 0 || len(c.stalls[0].rows) != 0 {
			t.Error("a row of an earlier connection is kept: the WAL brings it again")
		}
	}
}

// A row that cannot become a record stalls its key, also behind one that the sink has.
func TestARowWithoutStateThatCanBeNoRecord(t *testing.T) {
	t.Parallel()
	c, rows := stateless(t, "1")
	bad := rowOf(rows[0].Table, "2")
	bad.Key, bad.Err = rows[0].Key, errOurs
	c.Rows([]*outbox.Row{bad})
	if s := c.stallOf(outbox.KeyScope(bad)); s == nil || len(c.parks.list) != 0 || s.blocked {
		t.Errorf("%+v", c.stalls)
	}
}
