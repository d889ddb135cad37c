package checkpoint

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// flying puts a row into memory and in flight.
func (c *Core) flying(r *outbox.Row, s state) uint32 {
	h := c.rows.add(r, noTx)
	c.rows.fly(h, s)
	return h
}

// The answer to the mark of an attempt decides what happens to the key's park.
func TestWhatAnAttemptMakesOfItsKey(t *testing.T) {
	t.Parallel()
	type answer struct {
		kind  outbox.MarkKind
		state outbox.MarkState
		tries int
		alone bool
		block bool
		with  func(c *Core, p *park)
	}
	for name, x := range map[string]struct {
		answer
		cause outbox.Cause
		rowID string
		next  time.Duration
		tries int
	}{
		"tried again":                {answer{outbox.MarkAttempt, outbox.MarkedRetry, 0, false, false, nil}, outbox.CauseRowError, "", time.Second, 1},
		"as the database counts":     {answer{outbox.MarkAttempt, outbox.MarkedRetry, 3, false, false, nil}, outbox.CauseRowError, "", 4 * time.Second, 3},
		"another row is FAILED":      {answer{outbox.MarkAttempt, outbox.MarkedRetry, 3, false, true, func(_ *Core, p *park) { p.RowID = "9" }}, outbox.CauseBlocked, "9", 0, 0},
		"FAILED, and skipped":        {answer{outbox.MarkAttempt, outbox.MarkedFailed, 3, false, false, nil}, outbox.CauseRowError, "", 0, 0},
		"FAILED, and blocks":         {answer{outbox.MarkAttempt, outbox.MarkedFailed, 3, false, true, nil}, outbox.CauseBlocked, "1", time.Hour, 0},
		"settled, and skipped":       {answer{outbox.MarkAttempt, outbox.MarkedSettled, 0, false, false, nil}, outbox.CauseRowError, "", 0, 0},
		"settled, and blocks":        {answer{outbox.MarkAttempt, outbox.MarkedSettled, 0, false, true, nil}, outbox.CauseBlocked, "1", 0, 0},
		"sent":                       {answer{outbox.MarkSent, outbox.MarkedSent, 0, false, true, nil}, outbox.CauseRowError, "", 0, 0},
		"an earlier row was sent":    {answer{outbox.MarkSent, outbox.MarkedSent, 0, false, true, func(_ *Core, p *park) { p.failedRow = "9" }}, outbox.CauseRowError, "", 30 * time.Second, 5},
		"sent, row that failed lost": {answer{outbox.MarkSent, outbox.MarkedSent, 0, false, true, func(_ *Core, p *park) { p.failedRow = "" }}, outbox.CauseRowError, "", 30 * time.Second, 5},
		"so, and its time has come":  {answer{outbox.MarkSent, outbox.MarkedSent, 0, false, true, func(c *Core, p *park) { p.failedRow, p.Next = "", c.now }}, outbox.CauseRowError, "", 0, 0},
		"sent, and the operator's":   {answer{outbox.MarkSent, outbox.MarkedSent, 0, false, true, func(c *Core, p *park) { c.leaveToOperator(p, "9", 0, c.now.Add(time.Minute)) }}, outbox.CauseBlocked, "9", time.Minute, 5},
		"sent, another is FAILED":    {answer{outbox.MarkSent, outbox.MarkedSent, 0, false, true, func(_ *Core, p *park) { p.RowID = "9" }}, outbox.CauseBlocked, "9", 0, 5},
		"refused by itself":          {answer{outbox.MarkAttempt, outbox.MarkedRefused, 0, true, false, nil}, outbox.CauseRowError, "", time.Second, 1},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		c.cfg.WatchEvery = time.Hour
		if x.block {
			table.Mapping.OnFailed = outbox.OnFailedBlock
		}
		r := rowOf(table, "1")
		h := c.flying(r, attempt)
		p := c.keyed(r)
		p.failedRow, p.Next, p.tries = "1", c.now.Add(30*time.Second), 5
		if x.with != nil {
			x.with(c, p)
		}
		if x.tries == 1 {
			p.tries = 0
		}
		if x.state == outbox.MarkedFailed && x.block || x.state == outbox.MarkedSettled && x.block || x.state == outbox.MarkedRetry && x.block {
			p.tries = 0
		}
		c.Marked([]outbox.Marked{{Row: r, Kind: x.kind, State: x.answer.state, Attempts: x.answer.tries, Alone: x.alone, Err: errOurs}})
		next := time.Duration(0)
		if !p.Next.IsZero() {
			next = p.Next.Sub(c.now)
		}
		if p.Cause != x.cause || p.RowID != x.rowID || next != x.next || p.tries != x.tries {
			t.Errorf("%s: cause %s, row %q, next in %v, tries %d", name, p.Cause, p.RowID, next, p.tries)
		}
		if c.rows.entries[h].row != nil {
			t.Errorf("%s: the row stays in memory", name)
		}
		if x.alone && p.Reason != errOurs.Error() {
			t.Errorf("%s: the reason is %q", name, p.Reason)
		}
	}
}

// A mark that does not find its row visible yet is repeated after a short wait, and NextTick counts that wait.
func TestAMarkIsRepeated(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	r := rowOf(table, "1")
	c.flying(r, acked)
	c.Marked([]outbox.Marked{{Row: r, Kind: outbox.MarkSent, State: outbox.MarkedInvisible}})
	if len(c.Take().Marks) != 0 || !c.NextTick().Equal(c.now.Add(invisibleWait)) {
		t.Error("repeated at once, or never")
	}
	c.later(invisibleWait)
	if m := c.Take().Marks; len(m) != 1 || m[0].Row != r || m[0].Kind != outbox.MarkSent {
		t.Errorf("%+v", m)
	}
	if len(c.Take().Marks) != 0 {
		t.Error("repeated twice")
	}
}

// When a row fails, its key's park awaits the key's rows that the sink still has, and no
// others.
func TestWhatAParkAwaits(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	key := func(id, k string, s state) *entry {
		r := rowOf(table, id)
		r.Key = []byte(k)
		return &c.rows.entries[c.flying(r, s)]
	}
	first := key("1", "k", inSink).row.Handle
	second, other, done := key("2", "k", inSink).row.Handle, key("3", "j", inSink).row.Handle, key("4", "k", acked).row.Handle
	c.Outcome(outbox.Outcome{Rows: []*outbox.Row{c.rows.entries[first].row}, Class: outbox.Refused, Err: errOurs})
	p := c.parks.list[0]
	awaits := func(h uint32) bool { return c.rows.entries[h].awaits == p }
	if p.awaiting != 2 || !awaits(first) || !awaits(second) || awaits(other) || awaits(done) || p.failedRow != "1" {
		t.Errorf("%d are awaited", p.awaiting)
	}
	c.Outcome(outbox.Outcome{Rows: []*outbox.Row{c.rows.entries[second].row}, Class: outbox.Delivered})
	if p.awaiting != 1 {
		t.Errorf("%d are awaited after an answer", p.awaiting)
	}
	c.Marked([]outbox.Marked{{Row: c.rows.entries[first].row, Kind: outbox.MarkAttempt, State: outbox.MarkedRetry}})
	if p.awaiting != 0 {
		t.Errorf("%d are awaited after the attempt's mark", p.awaiting)
	}
}

// A row that cannot become a record is charged when the earlier rows of its key are
// answered.
func TestNoRecordFailsInTurn(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		first, bad := rowOf(table, "1"), rowOf(table, "2")
		bad.Key, bad.Err = first.Key, errOurs
		if waits {
			c.flying(first, inSink)
		}
		c.failInTurn(c.rows.add(bad, noTx))
		p := c.parks.ofKey(bad)
		charged := slices.ContainsFunc(c.ready.Marks, func(m outbox.Mark) bool { return m.Row == bad && m.Kind == outbox.MarkAttempt })
		if p == nil || charged == waits || p.awaiting != 1 || (p.failedRow == "2") == waits {
			t.Errorf("behind a row in the sink %v: charged %v, park %+v", waits, charged, p)
		}
	}
}

// A row that is given back without a park gets one; a clean stop drops it.
func TestARowIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with func(c *Core, r *outbox.Row)
		want outbox.Cause
	}{
		"no park":       {func(*Core, *outbox.Row) {}, outbox.CauseMissed},
		"its key's":     {func(c *Core, r *outbox.Row) { c.keyed(r) }, outbox.CauseRowError},
		"the table's":   {func(c *Core, r *outbox.Row) { c.parkedTable(r.Table, outbox.CauseMapping) }, ""},
		"a clean stop":  {func(c *Core, _ *outbox.Row) { c.draining = true }, ""},
		"topic's error": {func(*Core, *outbox.Row) {}, outbox.CauseMissed},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		r := rowOf(table, "1")
		x.with(c, r)
		behind := rowOf(table, "2")
		behind.Key = r.Key
		h, next := c.flying(r, inSink), c.flying(behind, inSink)
		c.Outcome(outbox.Outcome{Rows: []*outbox.Row{r}, Class: outbox.Withdrawn, Scope: outbox.StreamScope()})
		p := c.parks.ofKey(r)
		if (p == nil) != (x.want == "") || p != nil && p.Cause != x.want || c.rows.entries[h].row != nil {
			t.Errorf("%s: %+v", name, p)
		}
		if x.want == outbox.CauseMissed && (p.awaiting != 1 || c.rows.entries[next].awaits != p) {
			t.Errorf("%s: the row behind it is not awaited", name)
		}
	}
}

// A scope that the sink blocked is released once it is parked.
func TestWhatIsReleased(t *testing.T) {
	t.Parallel()
	for _, blocked := range []bool{true, false} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		r := rowOf(table, "1")
		c.flying(r, inSink)
		c.Outcome(outbox.Outcome{Rows: []*outbox.Row{r}, Class: outbox.Refused, Scope: outbox.KeyScope(r), Blocked: blocked, Err: errOurs})
		released := slices.ContainsFunc(c.ready.Commands, func(cmd outbox.Command) bool { return cmd.Release != nil && *cmd.Release == outbox.KeyScope(r) })
		if released != blocked {
			t.Errorf("blocked %v, released %v", blocked, released)
		}
	}
}

// A round of the watch: when it begins, what it requests, and what it finds.
func TestRoundsOfTheWatch(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with func(c *Core, table *outbox.Table)
		asks bool
	}{
		"its time":             {func(c *Core, _ *outbox.Table) { c.watch.at = c.now }, true},
		"before it":            {func(c *Core, _ *outbox.Table) { c.watch.at = c.now.Add(1) }, false},
		"a row is due":         {func(c *Core, _ *outbox.Table) { c.watch.at, c.watch.due = c.now.Add(1), c.now }, true},
		"a row is due later":   {func(c *Core, _ *outbox.Table) { c.watch.at, c.watch.due = c.now.Add(1), c.now.Add(1) }, false},
		"a round is under way": {func(c *Core, _ *outbox.Table) { c.watch.at, c.watch.step = c.now, watchReading }, false},
		"shadow":               {func(c *Core, _ *outbox.Table) { c.watch.at, c.cfg.Shadow = c.now, true }, false},
		"not streaming":        {func(c *Core, _ *outbox.Table) { c.watch.at, c.streaming = c.now, false }, false},
		"no state":             {func(c *Core, _ *outbox.Table) { c.watch.at, c.tables.stateless = c.now, true }, false},
		"the stream is parked": {func(c *Core, _ *outbox.Table) {
			c.watch.at = c.now
			c.park(outbox.StreamScope(), outbox.CauseMissed, "", time.Time{})
		}, false},
		"the only table is parked": {func(c *Core, table *outbox.Table) { c.watch.at = c.now; c.parkedTable(table, outbox.CauseKeys) }, false},
		"a key is parked":          {func(c *Core, table *outbox.Table) { c.watch.at = c.now; c.keyed(rowOf(table, "1")) }, true},
		"waits for what is settled": {func(c *Core, _ *outbox.Table) {
			c.watch.at, c.watch.step, c.watch.upTo, c.ledger.received = c.now, watchWaiting, 10, 9
		}, false},
		"it is settled, none is left": {func(c *Core, table *outbox.Table) {
			c.watch.at, c.watch.step, c.watch.upTo, c.ledger.received = c.now, watchWaiting, 10, 10
			c.watch.rows = []*outbox.Row{rowOf(table, "1")}
			c.keyed(c.watch.rows[0])
		}, true},
		"it is settled, one is left": {func(c *Core, table *outbox.Table) {
			c.watch.at, c.watch.step, c.watch.upTo, c.ledger.received = c.now, watchWaiting, 10, 10
			c.watch.rows = []*outbox.Row{rowOf(table, "1")}
		}, false},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		x.with(c, table)
		c.progressWatch()
		if got := c.ready.Watch != nil; got != x.asks || got && (c.watch.step != watchReading || !c.watch.at.Equal(c.now.Add(c.cfg.WatchEvery)) || !c.watch.due.IsZero()) {
			t.Errorf("%s: asked %v, %+v", name, got, c.watch)
		}
	}
}

// A round of the watch asks for the tables that are not parked, and leaves out the scopes that are. Where a
// table's unknown topics are parked, it asks only for the known topics.
func TestWhatTheWatchAsksFor(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	other := &outbox.Table{Schema: "public", Name: "other", Mapping: table.Mapping}
	c.cfg.Tables = append(c.cfg.Tables, other)
	c.tables = newTableSet(c.cfg.Tables)
	c.parkedTable(other, outbox.CauseKeys)
	c.keyed(rowOf(table, "1"))
	c.parkTopics(table, "").knownTopics[topicScope("x")] = true
	c.requestWatch()
	parts := c.ready.Watch.Parts
	if got := scopesOf(parts); !slices.Equal(got, []string{"outbox: - public.other 1"}) || len(parts[0].Known) != 1 || c.ready.Watch.Limit != c.cfg.PageRows {
		t.Errorf("%q, %v", got, parts[0].Known)
	}
}

// Candidates, or their absence, decide how the round goes on.
func TestWhatTheWatchFinds(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		found outbox.Candidates
		due   time.Duration // as known before; 0: none
		step  watchStep
		want  time.Duration
	}{
		"nothing":                   {outbox.Candidates{}, 0, watchIdle, 0},
		"nothing, one is known":     {outbox.Candidates{}, time.Minute, watchIdle, time.Minute},
		"a row":                     {outbox.Candidates{Rows: make([]*outbox.Row, 1)}, 0, watchWaiting, 0},
		"one is due in a second":    {outbox.Candidates{NextDue: time.Unix(1001, 0)}, 0, watchIdle, time.Second},
		"one was due sooner":        {outbox.Candidates{NextDue: time.Unix(1001, 0)}, time.Millisecond, watchIdle, time.Millisecond},
		"one was due later":         {outbox.Candidates{NextDue: time.Unix(1001, 0)}, time.Minute, watchIdle, time.Second},
		"one is due by our clock":   {outbox.Candidates{NextDue: time.Unix(1000, 0)}, 0, watchIdle, sweepPause},
		"one has been due for long": {outbox.Candidates{NextDue: time.Unix(900, 0)}, 0, watchIdle, sweepPause},
	} {
		c, _, _ := begun(t, outbox.PublishedStatus)
		if c.watch.step = watchReading; x.due > 0 {
			c.watch.due = c.now.Add(x.due)
		}
		c.Watched(x.found)
		due := time.Duration(0)
		if !c.watch.due.IsZero() {
			due = c.watch.due.Sub(c.now)
		}
		if c.watch.step != x.step || due != x.want {
			t.Errorf("%s: step %d, due in %v", name, c.watch.step, due)
		}
	}
}

// A candidate that is parked when it would be read again is left out: its key may be handed back, and the row
// published, between the second read and its answer.
func TestAParkedCandidateIsLeftOut(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	parked, missed := rowOf(table, "1"), rowOf(table, "2")
	p := c.keyed(parked)
	c.watch.step, c.watch.rows = watchWaiting, []*outbox.Row{parked, missed}
	c.progressWatch()
	if got := c.ready.Rewatch; !slices.Equal(got, []*outbox.Row{missed}) || c.watch.step != watchReadingAgain {
		t.Fatalf("%v are read again", outboxIDs(got))
	}
	c.unpark(p)
	if c.Rewatched([]*outbox.Row{missed}); c.parks.ofKey(parked) != nil || c.parks.ofKey(missed) == nil {
		t.Errorf("%+v", c.parks.list)
	}
}

// The keys of rows that are still PENDING are parked, whether the rows were missed or have become due. Notes
// tell how many there are.
func TestMissedRowsAreParked(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	c.Take()
	missed, due, parked := rowOf(table, "1"), rowOf(table, "2"), rowOf(table, "3")
	due.AvailableAt = 5
	was := c.keyed(parked)
	c.watch.step = watchReadingAgain
	c.Rewatched([]*outbox.Row{missed, due, parked})
	if p := c.parks.ofKey(missed); p == nil || p.Cause != outbox.CauseMissed {
		t.Errorf("%+v", p)
	}
	if p := c.parks.ofKey(due); p == nil || p.Cause != outbox.CauseScheduled || p.Reason == missedReason {
		t.Errorf("%+v", p)
	}
	if was.Cause != outbox.CauseRowError || c.watch.step != watchIdle {
		t.Errorf("%+v", was)
	}
	var told []Note
	for _, n := range c.Take().Notes {
		if n.Kind == NoteMissed {
			told = append(told, n)
		}
	}
	if len(told) != 2 || told[0].N != 1 || told[0].Cause != outbox.CauseMissed || told[1].N != 1 || told[1].Cause != outbox.CauseScheduled {
		t.Errorf("%+v", told)
	}
	c.watch.step, c.watch.rows = watchReading, []*outbox.Row{missed}
	if c.WatchRefused(table, errors.New("refused")); c.watch.step != watchIdle || c.watch.rows != nil || c.parks.of(outbox.TableScope(table)) == nil {
		t.Errorf("%+v", c.watch)
	}
}

// Scheduled rows of the WAL are left to the watch. The test tells which rows are scheduled.
func TestScheduledRows(t *testing.T) {
	t.Parallel()
	c, table, now := begun(t, outbox.PublishedStatus)
	r := rowOf(table, "1")
	micros := now.UnixMicro()
	for name, x := range map[string]struct {
		available, committed int64
		want                 bool
	}{
		"now":                                   {micros, 0, false},
		"later":                                 {micros + 1, 0, true},
		"later by our clock, not at its commit": {micros + 1, micros + 1, false},
		"later, by both":                        {micros + 2, micros + 1, true},
		"earlier":                               {micros - 1, micros - 2, false},
	} {
		r.AvailableAt, c.ledger.opened = x.available, x.committed
		if c.scheduled(r) != x.want {
			t.Errorf("%s: %v", name, !x.want)
		}
	}
}

// The answer to a mark changes the notes, the list of parks and the key's park.
func TestWhatAnAnswerToAMarkDoes(t *testing.T) {
	t.Parallel()
	answer := func(c *Core, r *outbox.Row, kind outbox.MarkKind, state outbox.MarkState) {
		c.Marked([]outbox.Marked{{Row: r, Kind: kind, State: state, Alone: true, Err: errOurs}})
	}
	t.Run("a key without a park", func(t *testing.T) {
		t.Parallel()
		for _, kind := range []outbox.MarkKind{outbox.MarkSent, outbox.MarkAttempt} {
			for _, state := range []outbox.MarkState{outbox.MarkedRetry, outbox.MarkedFailed, outbox.MarkedSettled, outbox.MarkedSent, outbox.MarkedRefused} {
				if kind == outbox.MarkSent && state == outbox.MarkedRefused {
					continue // it is parked by itself
				}
				c, table, _ := begun(t, outbox.PublishedStatus)
				table.Mapping.OnFailed = outbox.OnFailedBlock
				r := rowOf(table, "1")
				c.flying(r, attempt)
				if answer(c, r, kind, state); len(c.parks.list) != 0 || c.rows.count != 0 {
					t.Errorf("%d %d: %+v", kind, state, c.parks.list)
				}
			}
		}
	})
	t.Run("a note tells of a row that cannot become a record, and of no row that Kafka refused", func(t *testing.T) {
		t.Parallel()
		c, table, _ := begun(t, outbox.PublishedStatus)
		unfit, refused := rowOf(table, "1"), rowOf(table, "2")
		unfit.Err = errors.New("no topic")
		c.charge(c.flying(unfit, inSink), unfit.Err)
		c.charge(c.flying(refused, inSink), errors.New("too large"))
		n := slices.DeleteFunc(c.ready.Notes, func(n Note) bool { return n.Kind == NoteParked })
		if len(n) != 1 || n[0].Kind != NoteUnfit || n[0].Row != unfit || n[0].Reason != "no topic" {
			t.Errorf("%+v", n)
		}
	})
	t.Run("a note tells of a row that is FAILED", func(t *testing.T) {
		t.Parallel()
		c, table, _ := begun(t, outbox.PublishedStatus)
		r := rowOf(table, "1")
		h := c.flying(r, attempt)
		c.rows.entries[h].reason = "too large"
		answer(c, r, outbox.MarkAttempt, outbox.MarkedFailed)
		if n := c.ready.Notes; len(n) != 1 || n[0].Kind != NoteFailed || n[0].Row != r || n[0].Reason != "too large" {
			t.Errorf("%+v", n)
		}
	})
	t.Run("the park is written and shown", func(t *testing.T) {
		t.Parallel()
		for _, state := range []outbox.MarkState{outbox.MarkedRetry, outbox.MarkedRefused} {
			c, table, _ := begun(t, outbox.PublishedStatus)
			r := rowOf(table, "1")
			p := c.keyed(r)
			c.flying(r, attempt)
			before := c.ParkChanges()
			if answer(c, r, outbox.MarkAttempt, state); !p.dirty() || c.ParkChanges() == before {
				t.Errorf("%d: %+v", state, p)
			}
		}
	})
	t.Run("the key's reason is shown", func(t *testing.T) {
		t.Parallel()
		c, table, _ := begun(t, outbox.PublishedStatus)
		r := rowOf(table, "1")
		p := c.keyed(r)
		p.RowID = "9" // another row is FAILED: only the reason changes, and the cause
		c.parks.setCause(p, outbox.CauseBlocked)
		c.flying(r, attempt)
		answer(c, r, outbox.MarkAttempt, outbox.MarkedRefused)
		if p.Reason != errOurs.Error() {
			t.Errorf("%+v", p)
		}
	})
	t.Run("a key whose trouble is over goes when a wider park covers it", func(t *testing.T) {
		t.Parallel()
		c, table, _ := begun(t, outbox.PublishedStatus)
		c.parkedTable(table, outbox.CauseKeys)
		r := rowOf(table, "1")
		h := c.flying(r, attempt)
		p := c.keyed(r)
		p.failedRow, p.awaiting, c.rows.entries[h].awaits = "1", 1, p
		if answer(c, r, outbox.MarkAttempt, outbox.MarkedSettled); p.phase != absorbed {
			t.Errorf("%+v", p)
		}
	})
	t.Run("nobody waits for it", func(t *testing.T) {
		t.Parallel()
		c, table, _ := begun(t, outbox.PublishedStatus)
		c.flying(rowOf(table, "1"), acked)
		gone, beyond := rowOf(table, "2"), rowOf(table, "3")
		gone.Handle, beyond.Handle = 1, uint32(len(c.rows.entries))
		for _, r := range []*outbox.Row{gone, beyond} {
			answer(c, r, outbox.MarkSent, outbox.MarkedSent)
		}
		if c.rows.count != 1 || len(c.parks.list) != 0 {
			t.Errorf("%d rows", c.rows.count)
		}
	})
}

// A table whose marks are refused is parked once, however many of its rows are refused. If its next try was
// due, its backoff grows. A park of the table for another cause takes over this cause.
func TestATableThatRefusesMarks(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	wide := c.parkedTable(table, outbox.CauseKeys)
	wide.tries, wide.Next = 5, c.now.Add(time.Hour)
	refuse := func() *park { return c.parkWriteBack(outbox.TableScope(table), errOurs) }
	p := refuse()
	if p != wide || p.Cause != outbox.CauseWriteBack || p.tries != 1 || p.Next.Sub(c.now) != time.Second {
		t.Fatalf("%+v", p)
	}
	version := p.version
	if refuse(); p.version != version || p.tries != 1 {
		t.Errorf("parked twice at once: %+v", p)
	}
	c.later(time.Second)
	if refuse(); p.tries != 2 || p.Next.Sub(c.now) != 2*time.Second {
		t.Errorf("%+v", p)
	}
	c.unpark(p)
	if p := refuse(); p.tries != 1 || p.Cause != outbox.CauseWriteBack {
		t.Errorf("%+v", p)
	}
}

// When the sink has delivered a row, no park awaits the row any more. When the sink refuses a row, the key's
// park awaits the row until its attempt is charged.
func TestWhoAwaitsARow(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	taken, refused := rowOf(table, "1"), rowOf(table, "2")
	done, h := c.flying(taken, inSink), c.flying(refused, inSink)
	p := c.park(topicScope("t"), outbox.CauseTopic, "", time.Time{})
	if c.awaitAnswers(p); p.awaiting != 2 {
		t.Fatalf("%d are awaited", p.awaiting)
	}
	c.Outcome(outbox.Outcome{Rows: []*outbox.Row{taken}, Class: outbox.Delivered})
	if p.awaiting != 1 || c.rows.entries[done].state != acked || !c.topics.proven[topicScope("t")] {
		t.Errorf("%d are awaited", p.awaiting)
	}
	if c.awaitAnswers(p); p.awaiting != 1 {
		t.Error("what the sink has taken is awaited")
	}
	c.Outcome(outbox.Outcome{Rows: []*outbox.Row{refused}, Class: outbox.Refused, Err: errOurs})
	if q := c.parks.ofKey(refused); p.awaiting != 0 || q.awaiting != 1 || c.rows.entries[h].awaits != q {
		t.Errorf("the topic awaits %d, the key %d", p.awaiting, q.awaiting)
	}
}

// A topic that the sink blocks is parked. Rows that the sink gives back for another reason park no topic.
func TestWhatParksATopic(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, errTopic} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		table.Mapping.Cluster.Default = "main"
		r := onTopic(table, "1", "x")
		c.flying(r, inSink)
		c.Outcome(outbox.Outcome{Rows: []*outbox.Row{r}, Class: outbox.Withdrawn, Scope: topicScope("x"), Blocked: err != nil, Err: err})
		released := slices.ContainsFunc(c.ready.Commands, func(cmd outbox.Command) bool { return cmd.Release != nil && *cmd.Release == topicScope("x") })
		if parked := c.parks.of(topicScope("x")) != nil; parked != (err != nil) || released != (err != nil) {
			t.Errorf("%v: parked %v, released %v", err, parked, released)
		}
	}
}

// A row that cannot become a record and names an unknown topic is left to the unknown topics' park when many keys
// are parked.
func TestNoRecordIsLeftToItsTopics(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	c.gate = nil
	p := c.parkTopics(table, "")
	c.parks.keys[table.String()] = c.cfg.MaxKeys
	r := rowOf(table, "1")
	r.Err = errOurs
	h := c.rows.add(r, noTx)
	if c.publish(h); c.rows.entries[h].row != nil || len(c.ready.Marks) != 0 || c.parks.ofKey(r) != nil || p.Cause != outbox.CauseTopic {
		t.Errorf("%+v", c.parks.list)
	}
}

// The watch notes only what it found, and begins the next round at once only after a full
// page.
func TestWhatTheWatchTells(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	c.Take()
	c.watch.step = watchReadingAgain
	at := c.watch.at
	c.Rewatched([]*outbox.Row{rowOf(table, "1")})
	told := slices.DeleteFunc(c.ready.Notes, func(n Note) bool { return n.Kind != NoteMissed })
	if len(told) != 1 || told[0].Cause != outbox.CauseMissed {
		t.Errorf("%+v", told)
	}
	if !c.watch.at.Equal(at) {
		t.Error("the next round begins at once, though the page was not full")
	}
}
