package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

var errOurs = errors.New("refused")

// keyed parks a key as durable.
func (c *Core) keyed(r *outbox.Row) *park {
	p := c.park(outbox.KeyScope(r), outbox.CauseRowError, "", time.Time{})
	p.durable, p.written, p.asked = true, p.version, true
	return p
}

func (c *Core) parkedTable(t *outbox.Table, cause outbox.Cause) *park {
	p := c.park(outbox.TableScope(t), cause, "", time.Time{})
	p.durable, p.written, p.asked = true, p.version, true
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
		{[4]uint64{4, 4, 2, 2}, []*park{x}},
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
		"no table's park": {func(c *Core, _ *outbox.Table, _, wide *park) { c.unpark(wide) }, true, false},
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

// Nothing of a cluster or topic is published while it cannot be used.
func TestWhatBlocksASweep(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		scope  outbox.Scope
		with   func(*Core, *park)
		blocks bool
	}{
		"a cluster":                    {outbox.ClusterScope("main"), func(*Core, *park) {}, false},
		"a cluster that is down":       {outbox.ClusterScope("main"), func(c *Core, _ *park) { c.down["main"] = true }, true},
		"another cluster is down":      {outbox.ClusterScope("main"), func(c *Core, _ *park) { c.down["other"] = true }, false},
		"a topic":                      {topicScope("x"), func(*Core, *park) {}, true},
		"a topic that is listed":       {topicScope("x"), func(_ *Core, p *park) { p.listed = true }, false},
		"a topic with nothing left":    {topicScope("x"), func(_ *Core, p *park) { p.sweptOut = true }, false},
		"a listed topic, cluster down": {topicScope("x"), func(c *Core, p *park) { p.listed = true; c.down["main"] = true }, true},
		"the stream":                   {outbox.StreamScope(), func(c *Core, _ *park) { c.down["main"] = true }, false},
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

// A page is asked for while there is room for one. Scans take turns with sweeps.
func TestWhenASweepIsAskedFor(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with         func(c *Core, key, topic *park)
		sweep, looks bool
	}{
		"a key":                 {func(*Core, *park, *park) {}, true, false},
		"shadow":                {func(c *Core, _, _ *park) { c.cfg.Shadow = true }, false, false},
		"paced":                 {func(c *Core, _, _ *park) { c.Pace(c.now.Add(1), 0) }, false, false},
		"a page is outstanding": {func(c *Core, _, _ *park) { c.sweeps.page = &pageRequest{} }, false, false},
		"a hand-back":           {func(c *Core, _, _ *park) { c.hb = &handback{} }, false, false},
		"room for a page":       {func(c *Core, _, _ *park) { c.rows.count = c.cfg.MaxRows - c.cfg.PageRows }, true, false},
		"room for less":         {func(c *Core, _, _ *park) { c.rows.count = c.cfg.MaxRows - c.cfg.PageRows + 1 }, false, false},
		"bytes fill memory":     {func(c *Core, _, _ *park) { c.rows.bytes = c.cfg.MaxBytes }, false, false},
		"nothing is due":        {func(c *Core, key, _ *park) { key.Next = c.now.Add(1) }, false, false},
		"a look as well":        {func(_ *Core, _, topic *park) { topic.scan = scanAny }, true, true},
		"a look, after a look":  {func(c *Core, _, topic *park) { topic.scan = scanAny; c.sweeps.scannedLast = true }, true, false},
		"only a look, after a look": {func(c *Core, key, topic *park) {
			topic.scan, c.sweeps.scannedLast, key.Next = scanAny, true, c.now.Add(1)
		}, true, true},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		key, topic := c.keyed(rowOf(table, "a")), c.park(topicScope("x"), outbox.CauseTopic, "", time.Time{})
		x.with(c, key, topic)
		c.requestSweep()
		if got := c.ready.Sweep != nil; got != x.sweep || got && c.sweeps.page.scan != x.looks {
			t.Errorf("%s: asked %v", name, got)
		}
		if c.ready.Sweep != nil && c.sweeps.scannedLast != x.looks {
			t.Errorf("%s: looked last %v", name, c.sweeps.scannedLast)
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
		if p.sweptOut != x.ready || p.nextSweep.Equal(c.now.Add(sweepPause)) != x.next || c.Sweeping() != x.page.More {
			t.Errorf("%s: ready %v, next sweep %v", name, p.sweptOut, p.nextSweep)
		}
	}
}

// The database's refusal parks the table, longer each time, and ends a hand-back that asked.
func TestARefusedSweep(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		c.sweeps.page = &pageRequest{}
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
			c.sweeps.page = &pageRequest{hb: h}
		case "a sweep":
			c.sweeps.page = &pageRequest{}
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
		"one is not ready":      {func(_ *Core, _ *outbox.Table, a, _ *park) { a.sweptOut = false }, all[1:]},
		"one is not durable":    {func(_ *Core, _ *outbox.Table, a, _ *park) { a.durable = false }, all[1:]},
		"one waits":             {func(c *Core, _ *outbox.Table, a, _ *park) { a.Next = c.now.Add(1) }, all[1:]},
		"one is being removed":  {func(_ *Core, _ *outbox.Table, a, _ *park) { a.phase = absorbed }, nil},
		"their table is parked": {func(c *Core, table *outbox.Table, _, _ *park) { c.parkedTable(table, outbox.CauseKeys) }, nil},
		"their table is ready":  {func(c *Core, table *outbox.Table, _, _ *park) { c.parkedTable(table, outbox.CauseKeys).sweptOut = true }, []string{"table"}},
		"a topic is ready": {func(c *Core, _ *outbox.Table, _, _ *park) {
			p := c.park(topicScope("x"), outbox.CauseTopic, "", time.Time{})
			p.sweptOut, p.durable = true, true
		}, []string{"x"}},
		"a table and a topic are": {func(c *Core, table *outbox.Table, _, _ *park) {
			p := c.park(topicScope("x"), outbox.CauseTopic, "", time.Time{})
			p.sweptOut, p.durable = true, true
			c.parkedTable(table, outbox.CauseKeys).sweptOut = true
		}, []string{"table"}},
		"a cluster is down": {func(c *Core, _ *outbox.Table, _, _ *park) { c.down["main"] = true }, nil},
		"a cluster is down, and parked": {func(c *Core, _ *outbox.Table, _, _ *park) {
			c.down["main"] = true
			c.park(outbox.ClusterScope("main"), outbox.CauseCluster, "", time.Time{})
		}, all},
		"their table is not read": {func(c *Core, table *outbox.Table, _, _ *park) {
			c.tables.broken[table.String()] = true
			c.parkedTable(table, outbox.CauseMapping).sweptOut = true
		}, nil},
		"the publication lacks their table": {func(c *Core, table *outbox.Table, _, _ *park) {
			c.tables.lacking[table.String()] = true
			c.parkedTable(table, outbox.CausePublication).sweptOut = true
		}, nil},
		"half of its keys are parked": {func(c *Core, table *outbox.Table, _, _ *park) {
			c.cfg.MaxKeys = 4
			c.parkedTable(table, outbox.CauseKeys).sweptOut = true
		}, []string{"table"}},
		"more of its keys are": {func(c *Core, table *outbox.Table, _, _ *park) {
			c.cfg.MaxKeys = 3
			c.parkedTable(table, outbox.CauseKeys).sweptOut = true
		}, nil},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		a, b := c.keyed(rowOf(table, "a")), c.keyed(rowOf(table, "b"))
		a.sweptOut, b.sweptOut = true, true
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
		"a page":            {func(c *Core) { c.sweeps.page = &pageRequest{} }, false},
		"a gate":            {func(c *Core) { c.gate = &gate{} }, false},
		"another hand-back": {func(c *Core) { c.hb = &handback{} }, false},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		c.gate = nil
		p := c.keyed(rowOf(table, "a"))
		p.sweptOut = true
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
		"a page is outstanding":           {func(c *Core, _ *handback) { c.sweeps.page = &pageRequest{} }, false, false, false},
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
		p.sweptOut = true
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

// scopesOf returns the parts of a request, shortly: the table, and what is wanted and not wanted of it.
func scopesOf(parts []outbox.SweepPart) (got []string) {
	short := func(scopes []outbox.Scope) (s string) {
		for _, x := range scopes {
			s += " " + cmp.Or(x.Key, x.Topic, x.Table, x.Cluster, "all")
		}
		return s
	}
	for _, p := range parts {
		got = append(got, p.Table.Name+":"+short(p.Include)+" -"+short(p.Exclude))
	}
	slices.Sort(got)
	return got
}

// What a sweep asks for: of each table what its parks want, without what waits, fails or stays parked.
func TestWhatASweepAsksFor(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with func(c *Core, a, b *outbox.Table) []*park
		want []string
	}{
		"keys of two tables": {func(c *Core, a, b *outbox.Table) []*park {
			return []*park{c.keyed(rowOf(a, "1")), c.keyed(rowOf(b, "2"))}
		}, []string{"a: 1 -", "b: 2 -"}},
		"a key of one": {func(c *Core, a, _ *outbox.Table) []*park { return []*park{c.keyed(rowOf(a, "1"))} }, []string{"a: 1 -"}},
		"a table":      {func(c *Core, a, _ *outbox.Table) []*park { return []*park{c.parkedTable(a, outbox.CauseKeys)} }, []string{"a: public.a -"}},
		"the stream": {func(c *Core, _, _ *outbox.Table) []*park {
			return []*park{c.park(outbox.StreamScope(), outbox.CauseSlot, "", time.Time{})}
		}, []string{"a: all -", "b: all -"}},
		"a table, a key of it waits": {func(c *Core, a, _ *outbox.Table) []*park {
			c.keyed(rowOf(a, "1")).Next = c.now.Add(1)
			return []*park{c.parkedTable(a, outbox.CauseKeys)}
		}, []string{"a: public.a - 1"}},
		"a table, a key of it does not wait": {func(c *Core, a, _ *outbox.Table) []*park {
			c.keyed(rowOf(a, "1"))
			return []*park{c.parkedTable(a, outbox.CauseKeys)}
		}, []string{"a: public.a -"}},
		"a hand-back leaves out what stays parked": {func(c *Core, a, _ *outbox.Table) []*park {
			c.keyed(rowOf(a, "1"))
			p := c.parkedTable(a, outbox.CauseKeys)
			p.phase = keeping
			return []*park{p}
		}, []string{"a: public.a - 1"}},
		"the stream, a table waits": {func(c *Core, a, _ *outbox.Table) []*park {
			c.parkedTable(a, outbox.CauseMapping).Next = c.now.Add(1)
			return []*park{c.park(outbox.StreamScope(), outbox.CauseSlot, "", time.Time{})}
		}, []string{"b: all - public.a"}},
		"the stream, a table has many keys": {func(c *Core, a, _ *outbox.Table) []*park {
			c.parkedTable(a, outbox.CauseKeys)
			c.parks.keys[a.String()] = c.cfg.MaxRetryingKeys + 1
			return []*park{c.park(outbox.StreamScope(), outbox.CauseSlot, "", time.Time{})}
		}, []string{"b: all - public.a"}},
		"keys, a table has many": {func(c *Core, a, _ *outbox.Table) []*park {
			c.parkedTable(a, outbox.CauseKeys)
			c.parks.keys[a.String()] = c.cfg.MaxRetryingKeys + 1
			return []*park{c.keyed(rowOf(a, "1"))}
		}, []string{"a: 1 -"}},
		"the stream, a table has refused": {func(c *Core, a, _ *outbox.Table) []*park {
			c.parkedTable(a, outbox.CauseWriteBack).refusedAt = c.sweeps.wholeCame + 1
			return []*park{c.park(outbox.StreamScope(), outbox.CauseSlot, "", time.Time{})}
		}, []string{"b: all - public.a"}},
		"the stream, it refused before the last page": {func(c *Core, a, _ *outbox.Table) []*park {
			c.sweeps.wholeCame = 5
			c.parkedTable(a, outbox.CauseWriteBack).refusedAt = 5
			return []*park{c.park(outbox.StreamScope(), outbox.CauseSlot, "", time.Time{})}
		}, []string{"a: all -", "b: all -"}},
		"a key of a table that has refused": {func(c *Core, a, _ *outbox.Table) []*park {
			c.parkedTable(a, outbox.CauseWriteBack).refusedAt = 5
			return []*park{c.keyed(rowOf(a, "1"))}
		}, []string{"a: 1 -"}},
		"a cluster is down": {func(c *Core, a, _ *outbox.Table) []*park {
			c.down["main"] = true
			return []*park{c.parkedTable(a, outbox.CauseKeys)}
		}, []string{"a: public.a - main"}},
		"a key, another waits": {func(c *Core, a, _ *outbox.Table) []*park {
			c.keyed(rowOf(a, "2")).Next = c.now.Add(1)
			return []*park{c.keyed(rowOf(a, "1"))}
		}, []string{"a: 1 -"}},
		"a key, a topic waits": {func(c *Core, a, _ *outbox.Table) []*park {
			c.park(topicScope("x"), outbox.CauseTopic, "", time.Time{})
			return []*park{c.keyed(rowOf(a, "1"))}
		}, []string{"a: 1 - x"}},
		"so, and it is parked": {func(c *Core, a, _ *outbox.Table) []*park {
			c.down["main"] = true
			c.park(outbox.ClusterScope("main"), outbox.CauseCluster, "", time.Time{})
			return []*park{c.parkedTable(a, outbox.CauseKeys)}
		}, []string{"a: public.a - main"}},
		"a hand-back, a cluster is down": {func(c *Core, a, _ *outbox.Table) []*park {
			c.down["main"] = true
			p := c.parkedTable(a, outbox.CauseKeys)
			p.phase = keeping
			return []*park{p}
		}, []string{"a: public.a -"}},
		"unknown topics": {func(c *Core, a, _ *outbox.Table) []*park {
			p := c.parkTopics(a, "")
			p.knownTopics[topicScope("x")] = true
			c.keyed(rowOf(a, "1")).Next = c.now.Add(1)
			return []*park{p}
		}, []string{"a: public.a - x 1"}},
		"unknown topics of a table that waits": {func(c *Core, a, _ *outbox.Table) []*park {
			c.parkedTable(a, outbox.CauseMapping).Next = c.now.Add(1)
			return []*park{c.parkTopics(a, "")}
		}, nil},
		"a table with unknown topics": {func(c *Core, a, _ *outbox.Table) []*park {
			c.parkTopics(a, "")
			return []*park{c.parkedTable(a, outbox.CauseKeys)}
		}, []string{"a: public.a -"}},
	} {
		c, a, _ := begun(t, outbox.PublishedStatus)
		b := &outbox.Table{Schema: "public", Name: "b", Mapping: a.Mapping}
		a.Name = "a"
		c.cfg.Tables = append(c.cfg.Tables, b)
		for _, table := range c.cfg.Tables {
			table.Mapping.Cluster.Default = "main"
		}
		c.tables = newTableSet(c.cfg.Tables)
		c.flying(rowOf(a, "flies"), inSink)
		parks := x.with(c, a, b)
		got := c.parts(parks)
		if !slices.Equal(scopesOf(got), x.want) {
			t.Errorf("%s: %q", name, scopesOf(got))
		}
		for _, part := range got {
			if ids := part.ExcludeIDs; part.Table == a && !slices.Equal(ids, []string{"flies"}) || part.Table == b && ids != nil {
				t.Errorf("%s: %v of %v are left out", name, ids, part.Table)
			}
			if known := part.Known != nil; part.Table == a && known != (name == "a table with unknown topics") {
				t.Errorf("%s: only known topics: %v", name, known)
			}
		}
	}
}

// Which row of a page may be published.
func TestWhatOfAPageIsPublished(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with func(c *Core, key, wide *park, s *pageRequest)
		may  bool
	}{
		"the key's page":               {func(*Core, *park, *park, *pageRequest) {}, true},
		"the table's page":             {func(_ *Core, _, wide *park, s *pageRequest) { s.parks = []*park{wide} }, true},
		"another's page":               {func(_ *Core, _, _ *park, s *pageRequest) { s.parks = nil }, false},
		"the key failed since":         {func(_ *Core, key, _ *park, s *pageRequest) { key.failedAt = s.askedAt + 1 }, false},
		"the table failed since":       {func(_ *Core, _, wide *park, s *pageRequest) { wide.failedAt = s.askedAt + 1 }, false},
		"it failed before":             {func(_ *Core, key, _ *park, s *pageRequest) { key.failedAt = s.askedAt }, true},
		"the key waits":                {func(c *Core, key, _ *park, _ *pageRequest) { key.Next = c.now.Add(1) }, false},
		"the table waits":              {func(c *Core, _, wide *park, _ *pageRequest) { wide.Next = c.now.Add(1) }, false},
		"its hand-back":                {func(_ *Core, key, _ *park, _ *pageRequest) { key.phase = keeping }, true},
		"another's hand-back":          {func(_ *Core, _, wide *park, _ *pageRequest) { wide.phase = keeping }, false},
		"parked again by another park": {func(c *Core, key, _ *park, _ *pageRequest) { c.unpark(key) }, false},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		r := rowOf(table, "1")
		key, wide := c.keyed(r), c.parkedTable(table, outbox.CauseKeys)
		s := &pageRequest{parks: []*park{key}, askedAt: c.generation + 1}
		x.with(c, key, wide, s)
		if c.mayPublish(r, s) != x.may {
			t.Errorf("%s: %v", name, !x.may)
		}
	}
}

// A wider park absorbs the keys that a small page found in order, unless rows of them are in flight, or they have
// failed since or wait.
func TestWhatASmallPageAbsorbs(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with  func(c *Core, p, wide *park, r *outbox.Row)
		small bool
		goes  bool
	}{
		"in order":           {func(*Core, *park, *park, *outbox.Row) {}, true, true},
		"a large page":       {func(*Core, *park, *park, *outbox.Row) {}, false, false},
		"a row is in flight": {func(c *Core, _, _ *park, r *outbox.Row) { c.flying(r, acked) }, true, false},
		"another's row is":   {func(c *Core, _, _ *park, r *outbox.Row) { c.flying(rowOf(r.Table, "9"), acked) }, true, true},
		"it waits":           {func(c *Core, p, _ *park, _ *outbox.Row) { p.Next = c.now.Add(1) }, true, false},
		"failed since":       {func(c *Core, p, _ *park, _ *outbox.Row) { p.failedAt = c.sweeps.page.askedAt + 1 }, true, false},
		"failed before":      {func(c *Core, p, _ *park, _ *outbox.Row) { p.failedAt = c.sweeps.page.askedAt }, true, true},
		"a page of its own":  {func(c *Core, p, _ *park, _ *outbox.Row) { c.sweeps.page.parks = []*park{p} }, true, true},
		"another's page": {func(c *Core, _, _ *park, r *outbox.Row) {
			c.sweeps.page.parks = []*park{c.keyed(rowOf(r.Table, "8"))}
		}, true, false},
		"another table's page": {func(c *Core, _, _ *park, _ *outbox.Row) {
			c.sweeps.page.parks = []*park{{Park: outbox.Park{Scope: outbox.Scope{Kind: outbox.ScopeTable, Table: "public.other"}}}}
		}, true, false},
		"not written yet":          {func(c *Core, p, _ *park, _ *outbox.Row) { c.parks.wait(p, 1) }, true, false},
		"no wider park is durable": {func(_ *Core, _, wide *park, _ *outbox.Row) { wide.durable = false }, true, false},
		"the wider one is removed": {func(_ *Core, _, wide *park, _ *outbox.Row) { wide.phase = keeping }, true, false},
		"a hand-back":              {func(c *Core, _, _ *park, _ *outbox.Row) { c.hb = &handback{} }, true, false},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		r := rowOf(table, "1")
		p, wide := c.keyed(r), c.parkedTable(table, outbox.CauseKeys)
		topic := c.park(topicScope("x"), outbox.CauseTopic, "", time.Time{})
		topic.sweptOut = true
		c.ask([]*park{wide}, nil)
		x.with(c, p, wide, r)
		c.Swept(outbox.Page{More: !x.small, Snapshot: outbox.Snapshot{Xmin: 9, Xmax: 9}})
		if (p.phase == absorbed) != x.goes || topic.phase != sweeping {
			t.Errorf("%s: phase %d, a topic's %d", name, p.phase, topic.phase)
		}
	}
}

// A table's park stays when a page of the whole stream found it in order: its own hand-back comes.
func TestAPageOfTheStreamAbsorbsKeysAlone(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	stream, wide, key := c.park(outbox.StreamScope(), outbox.CauseSlot, "", time.Time{}), c.parkedTable(table, outbox.CauseKeys), c.keyed(rowOf(table, "1"))
	stream.durable = true
	c.ask([]*park{stream}, nil)
	if c.Swept(outbox.Page{}); wide.phase != sweeping || key.phase != absorbed {
		t.Errorf("phases %d and %d", wide.phase, key.phase)
	}
}

// Each request has its own generation, and that of the last page of the whole stream is remembered.
func TestRequestsAreTold(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	stream, key := c.park(outbox.StreamScope(), outbox.CauseSlot, "", time.Time{}), c.keyed(rowOf(table, "1"))
	for _, x := range []struct {
		park  *park
		whole bool
	}{{key, false}, {stream, true}} {
		before, came := c.generation, c.sweeps.wholeCame
		c.ask([]*park{x.park}, nil)
		if c.generation != before+1 {
			t.Error("a request is not told from a failure before it")
		}
		c.Swept(outbox.Page{More: true})
		if whole := c.sweeps.wholeCame != came; whole != x.whole || whole && c.sweeps.wholeCame != c.generation {
			t.Errorf("a page of %v is one of the whole stream: %v", x.park.Scope, whole)
		}
	}
	before := c.generation
	if c.askScan([]*park{c.park(topicScope("x"), outbox.CauseTopic, "", time.Time{})}); c.generation != before+2 {
		t.Error("a look is not told from a failure before it")
	}
}

// Many keys are swept some hundred at a time, and rows are counted for the cause that covers them most narrowly.
func TestManyKeysAreSwept(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	c.cfg.MaxKeys, c.cfg.MaxRetryingKeys = maxKeysASweep+1, maxKeysASweep+1
	for i := range maxKeysASweep + 1 {
		c.keyed(rowOf(table, fmt.Sprint(i)))
	}
	if got := c.nextTarget(); len(got) != maxKeysASweep {
		t.Errorf("%d keys at once", len(got))
	}
	c.park(outbox.StreamScope(), outbox.CauseSlot, "", time.Time{})
	key, other := rowOf(table, "1"), rowOf(table, "x")
	causes := c.Causes([]*outbox.Row{key, other})
	if len(causes) != 2 || !slices.Equal(causes[outbox.CauseRowError], []*outbox.Row{key}) || !slices.Equal(causes[outbox.CauseSlot], []*outbox.Row{other}) {
		t.Errorf("%v", causes)
	}
}

// While what the WAL brings is discarded and not swept, a snapshot is asked for now and then: the transactions that
// it shows ended are forgotten. One that shows none is not followed by the next at once.
func TestDiscardedTransactionsAreForgotten(t *testing.T) {
	t.Parallel()
	for _, scope := range []outbox.Scope{outbox.StreamScope(), {Kind: outbox.ScopeTable, Table: "public.outbox"}} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		c.Pause([]outbox.Park{{Scope: scope}})
		most, asked := 0, 0
		for n := range uint32(20 * c.cfg.MaxRows) {
			r := rowOf(table, "1")
			r.XID, r.Commit = 100+n, outbox.LSN(1000+10*n)
			c.Begin(outbox.Transaction{XID: r.XID, Commit: r.Commit})
			c.Rows([]*outbox.Row{r})
			c.Commit(r.Commit + 1)
			w := c.Take()
			if w.Parks != nil {
				c.ParksWritten(outbox.ParksCommitted)
			}
			if w.Sweep != nil {
				if len(w.Sweep.Parts) > 0 {
					t.Fatalf("what is paused is swept: %+v", w.Sweep)
				}
				asked++
				c.Swept(outbox.Page{Snapshot: outbox.Snapshot{Xmin: uint64(r.XID), Xmax: uint64(r.XID) + 1, InProgress: []uint64{uint64(r.XID)}}})
			}
			most = max(most, len(c.txs.discarded))
			c.later(time.Second)
		}
		if most > c.cfg.MaxRows+1 || asked > 20 {
			t.Errorf("%v: %d transactions are remembered, %d snapshots asked for", scope, most, asked)
		}
		clear(c.txs.discarded)
		for n := range uint32(2 * c.cfg.MaxRows) {
			if w := c.Take(); w.Sweep != nil && len(c.txs.discarded) <= c.cfg.MaxRows {
				t.Fatalf("a snapshot is asked for when %d are remembered", len(c.txs.discarded))
			} else if w.Sweep == nil && len(c.txs.discarded) == c.cfg.MaxRows+1 {
				t.Fatal("no snapshot is asked for")
			}
			c.discardXID(10_000 + n)
		}
		if c.Swept(outbox.Page{Snapshot: outbox.Snapshot{Xmin: 9000, Xmax: 9000}}); c.Take().Sweep != nil {
			t.Error("it is asked for at once again")
		}
		if at := c.NextTick(); at.After(c.now.Add(sweepPause)) || at.IsZero() {
			t.Errorf("the next is at %v", at)
		}
		if c.later(sweepPause); c.Take().Sweep == nil {
			t.Error("it is not asked for again")
		}
	}
}
