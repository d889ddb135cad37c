package checkpoint

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

var errOurs = errors.New("refused")

// keyed parks a key as durable.
func (c *Core) keyed(r *outbox.Row) *park {
	p := c.park(outbox.KeyScope(r), outbox.CauseRowError, "", time.Time{})
	p.durable, p.written = true, p.version
	return p
}

func (c *Core) parkedTable(t *outbox.Table, cause outbox.Cause) *park {
	p := c.park(outbox.TableScope(t), cause, "", time.Time{})
	p.durable, p.written = true, p.version
	return p
}

// The park that was swept longest ago is next: a wide one, or the narrow ones, the oldest of these first.
func TestSweepsTakeTurns(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	if got := c.nextTarget(); len(got) != 0 {
		t.Error("nothing is parked")
	}
	a, b := c.keyed(rowOf(table, "a")), c.keyed(rowOf(table, "b"))
	x := c.park(topicScope("x"), outbox.CauseTopic, "", time.Time{})
	y := c.park(topicScope("y"), outbox.CauseTopic, "", time.Time{})
	x.listed, y.listed = true, true
	for i, step := range []struct {
		last [4]uint64 // a, b, x, y
		want []*park
	}{
		{[4]uint64{4, 3, 2, 1}, []*park{y}},
		{[4]uint64{4, 3, 1, 2}, []*park{x}},
		{[4]uint64{2, 1, 3, 4}, []*park{b, a}},
		{[4]uint64{1, 5, 3, 4}, []*park{a, b}},
		{[4]uint64{3, 4, 3, 4}, []*park{x}},
	} {
		for k, p := range []*park{a, b, x, y} {
			p.lastSweep = step.last[k]
		}
		if got := c.nextTarget(); !slices.Equal(got, step.want) {
			t.Errorf("%d: %d are next, the first is %v", i, len(got), got[0].Scope)
		}
	}
	c.ask([]*park{x}, nil)
	if x.lastSweep != c.generation || c.sweeps.page.askedAt != c.generation {
		t.Error("it is not noted when the park was swept")
	}
}

// Which parks may be swept by themselves.
func TestWhichParksAreDue(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with       func(c *Core, table *outbox.Table, key, wide *park)
		key, table bool
	}{
		"a key under its table's park": {func(*Core, *outbox.Table, *park, *park) {}, false, true},
		"so many keys that they go first": {func(c *Core, table *outbox.Table, _, _ *park) {
			c.parks.keys[table.String()] = c.cfg.MaxRetryingKeys + 1
		}, true, false},
		"as many as may be": {func(c *Core, table *outbox.Table, _, _ *park) {
			c.parks.keys[table.String()] = c.cfg.MaxRetryingKeys
		}, false, true},
		"so many, most of them the operator's": {func(c *Core, table *outbox.Table, _, _ *park) {
			c.parks.keys[table.String()], c.parks.blocked[table.String()] = c.cfg.MaxRetryingKeys+5, 5
		}, false, true},
		"many rows cannot be marked": {func(c *Core, table *outbox.Table, _, _ *park) {
			c.parks.unmarked[table.String()] = c.cfg.MaxKeys + 1
		}, true, false},
		"so many, and the table waits": {func(c *Core, table *outbox.Table, _, wide *park) {
			c.parks.keys[table.String()], wide.Next = c.cfg.MaxRetryingKeys+1, c.now.Add(1)
		}, false, false},
		"the table waits":         {func(c *Core, _ *outbox.Table, _, wide *park) { wide.Next = c.now.Add(1) }, false, false},
		"the table waits no more": {func(c *Core, _ *outbox.Table, _, wide *park) { wide.Next = c.now }, false, true},
		"swept a moment ago":      {func(c *Core, _ *outbox.Table, _, wide *park) { wide.nextSweep = c.now.Add(1) }, false, false},
		"its rows are awaited":    {func(_ *Core, _ *outbox.Table, _, wide *park) { wide.awaiting = 1 }, false, false},
		"it refuses marks":        {func(c *Core, table *outbox.Table, _, _ *park) { c.retries.refused[table.String()] = 1 }, false, false},
		"the stream is parked": {func(c *Core, _ *outbox.Table, _, _ *park) {
			c.park(outbox.StreamScope(), outbox.CauseMissed, "", time.Time{})
		}, false, false},
		"no table's park": {func(c *Core, _ *outbox.Table, _, wide *park) { c.unpark(wide) }, true, true},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		key, wide := c.keyed(rowOf(table, "a")), c.parkedTable(table, outbox.CauseKeys)
		x.with(c, table, key, wide)
		if got := c.due(key); got != x.key {
			t.Errorf("%s: the key is due: %v", name, got)
		}
		if got := c.due(wide); got != x.table {
			t.Errorf("%s: the table is due: %v", name, got)
		}
	}
}

// Of a cluster or a topic nothing is published while it cannot be used.
func TestWhatBlocksASweep(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		scope  outbox.Scope
		with   func(*Core, *park)
		blocks bool
	}{
		"a cluster":                    {outbox.ClusterScope("main"), func(*Core, *park) {}, false},
		"a cluster that is down":       {outbox.ClusterScope("main"), func(c *Core, _ *park) { c.down["main"] = errOurs }, true},
		"another cluster is down":      {outbox.ClusterScope("main"), func(c *Core, _ *park) { c.down["other"] = errOurs }, false},
		"a topic":                      {topicScope("x"), func(*Core, *park) {}, true},
		"a topic that is listed":       {topicScope("x"), func(_ *Core, p *park) { p.listed = true }, false},
		"a topic with nothing left":    {topicScope("x"), func(_ *Core, p *park) { p.ready = true }, false},
		"a listed topic, cluster down": {topicScope("x"), func(c *Core, p *park) { p.listed = true; c.down["main"] = errOurs }, true},
		"the stream":                   {outbox.StreamScope(), func(c *Core, _ *park) { c.down["main"] = errOurs }, false},
		"kept":                         {outbox.StreamScope(), func(_ *Core, p *park) { p.phase = keeping }, true},
		"being removed":                {outbox.StreamScope(), func(_ *Core, p *park) { p.phase = absorbed }, true},
		"the operator's":               {outbox.StreamScope(), func(_ *Core, p *park) { p.Cause = outbox.CauseBlocked }, true},
		"paused":                       {outbox.StreamScope(), func(_ *Core, p *park) { p.Cause = outbox.CausePaused }, true},
		"waits":                        {outbox.StreamScope(), func(c *Core, p *park) { p.Next = c.now.Add(1) }, true},
		"its time has come":            {outbox.StreamScope(), func(c *Core, p *park) { p.Next = c.now }, false},
	} {
		c, _, _ := begun(t, outbox.PublishedStatus)
		p := c.park(x.scope, outbox.CauseTopic, "", time.Time{})
		if x.with(c, p); c.blocksSweep(p) != x.blocks {
			t.Errorf("%s: %v", name, !x.blocks)
		}
	}
}

// A sweep of a page is asked for while there is room for one, and looks take turns with sweeps.
func TestWhenASweepIsAskedFor(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with         func(c *Core, key, topic *park)
		sweep, looks bool
	}{
		"a key":                 {func(*Core, *park, *park) {}, true, false},
		"shadow":                {func(c *Core, _, _ *park) { c.cfg.Shadow = true }, false, false},
		"paced":                 {func(c *Core, _, _ *park) { c.Pace(c.now.Add(1), 0) }, false, false},
		"a page is outstanding": {func(c *Core, _, _ *park) { c.sweeps.page = &sweep{} }, false, false},
		"a hand-back":           {func(c *Core, _, _ *park) { c.hb = &handback{} }, false, false},
		"room for a page":       {func(c *Core, _, _ *park) { c.rows.count = c.cfg.MaxRows - c.cfg.PageRows }, true, false},
		"room for less":         {func(c *Core, _, _ *park) { c.rows.count = c.cfg.MaxRows - c.cfg.PageRows + 1 }, false, false},
		"bytes fill memory":     {func(c *Core, _, _ *park) { c.rows.bytes = c.cfg.MaxBytes }, false, false},
		"nothing is due":        {func(c *Core, key, _ *park) { key.Next = c.now.Add(1) }, false, false},
		"a look as well":        {func(_ *Core, _, topic *park) { topic.look = lookAny }, true, true},
		"a look, after a look":  {func(c *Core, _, topic *park) { topic.look = lookAny; c.sweeps.lookedLast = true }, true, false},
		"only a look, after a look": {func(c *Core, key, topic *park) {
			topic.look, c.sweeps.lookedLast, key.Next = lookAny, true, c.now.Add(1)
		}, true, true},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		key, topic := c.keyed(rowOf(table, "a")), c.park(topicScope("x"), outbox.CauseTopic, "", time.Time{})
		x.with(c, key, topic)
		c.requestSweep()
		if got := c.ready.Sweep != nil; got != x.sweep || got && c.sweeps.page.look != x.looks {
			t.Errorf("%s: asked %v", name, got)
		}
		if c.ready.Sweep != nil && c.sweeps.lookedLast != x.looks {
			t.Errorf("%s: looked last %v", name, c.sweeps.lookedLast)
		}
	}
}

// What a page says of the parks that it was asked for.
func TestASweptPage(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		page  outbox.Page
		rows  int
		with  func(c *Core, p *park)
		ready bool
		next  bool
	}{
		"nothing":               {ready: true, next: true},
		"a small round":         {rows: 2, ready: true, next: true},
		"more than that":        {rows: 3},
		"more to come":          {page: outbox.Page{More: true}},
		"transactions are open": {with: func(c *Core, _ *park) { c.txs.started = []uint64{1 << 40} }, next: true},
		"failed since":          {with: func(_ *Core, p *park) { p.failedAt = 1 << 40 }},
		"failed when asked":     {with: func(c *Core, p *park) { p.failedAt = c.sweeps.page.askedAt }, ready: true, next: true},
		"parked again":          {with: func(c *Core, p *park) { c.parks.byScope[p.Scope] = &park{} }},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		c.cfg.SmallRound = 2
		p := c.parkedTable(table, outbox.CauseKeys)
		c.ask([]*park{p}, nil)
		if x.with != nil {
			x.with(c, p)
		}
		for i := range x.rows {
			x.page.Rows = append(x.page.Rows, rowOf(table, string(rune('a'+i))))
		}
		x.page.Snapshot.Xmax = 100
		c.Swept(x.page)
		if p.ready != x.ready || p.nextSweep.Equal(c.now.Add(sweepPause)) != x.next || c.Sweeping() != x.page.More {
			t.Errorf("%s: ready %v, next sweep %v", name, p.ready, p.nextSweep)
		}
	}
}

// The database's refusal parks the table, longer each time, and ends a hand-back that asked.
func TestARefusedSweep(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		c.sweeps.page = &sweep{}
		c.SweepRefused(table, errOurs)
		if p := c.parks.of(outbox.TableScope(table)); p.Next.Sub(c.now) != want || p.refusedAt != c.generation || c.sweeps.page != nil {
			t.Errorf("%+v", p)
		}
	}
	p := c.keyed(rowOf(table, "a"))
	for of, ends := range map[string]bool{"the hand-back's": true, "a sweep": false, "nobody's": false} {
		h := &handback{parks: []*park{p}}
		c.hb, p.phase = h, keeping
		switch of {
		case "the hand-back's":
			c.sweeps.page = &sweep{hb: h}
		case "a sweep":
			c.sweeps.page = &sweep{}
		default:
			c.sweeps.page = nil
		}
		if c.SweepRefused(table, errOurs); (c.hb == nil) != ends {
			t.Errorf("%s: the hand-back has ended %v", of, c.hb == nil)
		}
		c.hb, p.phase = nil, sweeping
	}
}

// What may be handed back: the widest that is ready, else all narrow ones.
func TestHandbackCandidates(t *testing.T) {
	t.Parallel()
	all := []string{"a", "b"}
	for name, x := range map[string]struct {
		with func(c *Core, table *outbox.Table, a, b *park)
		want []string // of keys; "table", "x"
	}{
		"keys":                  {func(*Core, *outbox.Table, *park, *park) {}, all},
		"one is not ready":      {func(_ *Core, _ *outbox.Table, a, _ *park) { a.ready = false }, all[1:]},
		"one is not durable":    {func(_ *Core, _ *outbox.Table, a, _ *park) { a.durable = false }, all[1:]},
		"one waits":             {func(c *Core, _ *outbox.Table, a, _ *park) { a.Next = c.now.Add(1) }, all[1:]},
		"one is being removed":  {func(_ *Core, _ *outbox.Table, a, _ *park) { a.phase = absorbed }, nil},
		"their table is parked": {func(c *Core, table *outbox.Table, _, _ *park) { c.parkedTable(table, outbox.CauseKeys) }, nil},
		"their table is ready":  {func(c *Core, table *outbox.Table, _, _ *park) { c.parkedTable(table, outbox.CauseKeys).ready = true }, []string{"table"}},
		"a topic is ready": {func(c *Core, _ *outbox.Table, _, _ *park) {
			p := c.park(topicScope("x"), outbox.CauseTopic, "", time.Time{})
			p.ready, p.durable = true, true
		}, []string{"x"}},
		"a table and a topic are": {func(c *Core, table *outbox.Table, _, _ *park) {
			p := c.park(topicScope("x"), outbox.CauseTopic, "", time.Time{})
			p.ready, p.durable = true, true
			c.parkedTable(table, outbox.CauseKeys).ready = true
		}, []string{"table"}},
		"a cluster is down": {func(c *Core, _ *outbox.Table, _, _ *park) { c.down["main"] = errOurs }, nil},
		"a cluster is down, and parked": {func(c *Core, _ *outbox.Table, _, _ *park) {
			c.down["main"] = errOurs
			c.park(outbox.ClusterScope("main"), outbox.CauseCluster, "", time.Time{})
		}, all},
		"their table is not read": {func(c *Core, table *outbox.Table, _, _ *park) {
			c.tables.broken[table.String()] = true
			c.parkedTable(table, outbox.CauseMapping).ready = true
		}, nil},
		"the publication lacks their table": {func(c *Core, table *outbox.Table, _, _ *park) {
			c.tables.lacking[table.String()] = true
			c.parkedTable(table, outbox.CausePublication).ready = true
		}, nil},
		"half of its keys are parked": {func(c *Core, table *outbox.Table, _, _ *park) {
			c.cfg.MaxKeys = 4
			c.parkedTable(table, outbox.CauseKeys).ready = true
		}, []string{"table"}},
		"more of its keys are": {func(c *Core, table *outbox.Table, _, _ *park) {
			c.cfg.MaxKeys = 3
			c.parkedTable(table, outbox.CauseKeys).ready = true
		}, nil},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		a, b := c.keyed(rowOf(table, "a")), c.keyed(rowOf(table, "b"))
		a.ready, b.ready = true, true
		x.with(c, table, a, b)
		var got []string
		for _, p := range c.handbackCandidates() {
			switch p.Scope.Kind {
			case outbox.ScopeTable:
				got = append(got, "table")
			case outbox.ScopeTopic:
				got = append(got, p.Scope.Topic)
			default:
				got = append(got, p.Scope.Key)
			}
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A hand-back begins while nothing else that it would meet is under way, and gives up at its
// deadline, or when memory is full of what it cannot let go.
func TestWhenAHandBackBegins(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with   func(*Core)
		begins bool
	}{
		"idle":              {func(*Core) {}, true},
		"shadow":            {func(c *Core) { c.cfg.Shadow = true }, false},
		"not streaming":     {func(c *Core) { c.streaming = false }, false},
		"a page":            {func(c *Core) { c.sweeps.page = &sweep{} }, false},
		"a gate":            {func(c *Core) { c.gate = &gate{} }, false},
		"another hand-back": {func(c *Core) { c.hb = &handback{} }, false},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		c.gate = nil
		p := c.keyed(rowOf(table, "a"))
		p.ready = true
		x.with(c)
		before := c.hb
		c.startHandback()
		if got := c.hb != before; got != x.begins || got && (p.phase != keeping || !c.hb.deadline.Equal(c.now.Add(handbackLimit)) || !c.gate.keeps(rowOf(table, "a")) || c.gate.keeps(rowOf(table, "b"))) {
			t.Errorf("%s: it begins %v", name, got)
		}
	}
	for name, x := range map[string]struct {
		with   func(c *Core, h *handback)
		stream bool
		ends   bool
		asks   bool
	}{
		"it asks":                         {func(*Core, *handback) {}, false, false, true},
		"at its deadline":                 {func(c *Core, h *handback) { h.deadline = c.now }, false, false, true},
		"after its deadline":              {func(c *Core, h *handback) { h.deadline = c.now.Add(-1) }, false, true, false},
		"memory is full":                  {func(c *Core, _ *handback) { c.rows.count = c.cfg.MaxRows }, false, true, false},
		"of the stream, memory is full":   {func(c *Core, _ *handback) { c.rows.count = c.cfg.MaxRows }, true, false, true},
		"of the stream, in a transaction": {func(c *Core, _ *handback) { c.ledger.inTx = true }, true, false, false},
		"of the stream, in one, and full": {func(c *Core, _ *handback) { c.ledger.inTx, c.rows.count = true, c.cfg.MaxRows }, true, true, false},
		"of a key, in a transaction":      {func(c *Core, _ *handback) { c.ledger.inTx = true }, false, false, true},
		"it waits":                        {func(c *Core, h *handback) { h.retry = c.now.Add(1) }, false, false, false},
		"it has waited":                   {func(c *Core, h *handback) { h.retry = c.now }, false, false, true},
		"a page is outstanding":           {func(c *Core, _ *handback) { c.sweeps.page = &sweep{} }, false, false, false},
		"removing, after its deadline":    {func(c *Core, h *handback) { h.step, h.deadline = hbRemoving, c.now.Add(-1) }, false, false, false},
		"rows outstanding":                {func(_ *Core, h *handback) { h.step, h.outstanding = hbRows, 1 }, false, false, false},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		c.gate = nil
		p := c.keyed(rowOf(table, "a"))
		if x.stream {
			c.unpark(p)
			p = c.park(outbox.StreamScope(), outbox.CauseMissed, "", time.Time{})
			p.durable = true
		}
		p.ready = true
		c.startHandback()
		h := c.hb
		x.with(c, h)
		page := c.sweeps.page
		c.progressHandback()
		if asks := c.sweeps.page != page; (c.hb == nil) != x.ends || asks != x.asks || asks && (h.step != hbReading || !c.ready.Sweep.ForHandback || !c.ready.Sweep.WriteWAL) {
			t.Errorf("%s: ended %v, asked %v", name, c.hb == nil, asks)
		}
		if x.ends && (p.phase != sweeping || c.gate != nil || !p.nextSweep.Equal(c.now.Add(sweepPause))) {
			t.Errorf("%s: the park is %+v", name, p)
		}
	}
}

// Once its rows are marked a hand-back that saw all goes on, another one asks again in a moment.
func TestWhenItsRowsAreDone(t *testing.T) {
	t.Parallel()
	c, _, _ := begun(t, outbox.PublishedStatus)
	h := &handback{step: hbRows, parks: []*park{{}}, deadline: c.now.Add(time.Hour)}
	c.hb = h
	if c.progressHandback(); h.step != hbWaiting || !h.retry.Equal(c.now.Add(invisibleWait)) {
		t.Errorf("%+v", h)
	}
	h.step, h.complete = hbRows, true
	if c.progressHandback(); h.step != hbRemoving {
		t.Errorf("%+v", h)
	}
}
