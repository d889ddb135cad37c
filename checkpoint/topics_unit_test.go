package checkpoint

import (
	"slices"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

func topicScope(name string) outbox.Scope { return outbox.TopicScope("main", name) }

// onTopic returns a row of its own key that names the topic.
func onTopic(table *outbox.Table, id, topic string) *outbox.Row {
	r := rowOf(table, id)
	r.Topic = topic
	return r
}

// missing returns a Core with a topic that is parked because it cannot be used.
func missing(t *testing.T) (*Core, *outbox.Table, *park) {
	t.Helper()
	c, table, _ := begun(t, outbox.PublishedStatus)
	table.Mapping.Cluster.Default = "main"
	c.cfg.WatchEvery = time.Second
	c.parkTopic(outbox.Outcome{Scope: topicScope("x"), Blocked: true, Err: errTopic, Rows: []*outbox.Row{onTopic(table, "1", "x")}})
	return c, table, c.parks.of(topicScope("x"))
}

// later moves the time on.
func (c *Core) later(d time.Duration) { c.Tick(c.now.Add(d)) }

// A topic that the sink blocks again waits longer each time; what else is given back of it changes nothing.
func TestATopicWaitsLongerEachTime(t *testing.T) {
	t.Parallel()
	c, table, p := missing(t)
	c.cfg.MaxTopics = 1 // that is it
	for tries, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
		if p.Next.Sub(c.now) != want || p.tries != tries+1 {
			t.Fatalf("after %d tries it waits %v", p.tries, p.Next.Sub(c.now))
		}
		version := p.version
		c.parkTopic(outbox.Outcome{Scope: p.Scope, Err: errTopic, Rows: []*outbox.Row{onTopic(table, "2", "x")}})
		if p.version != version {
			t.Fatal("parked again by what was given back later")
		}
		c.parkTopic(outbox.Outcome{Scope: p.Scope, Blocked: true, Err: errTopic, Rows: []*outbox.Row{onTopic(table, "3", "x")}})
	}
}

// A topic whose rows come back for its error is parked, though it was blocked earlier.
func TestATopicThatWasBlockedEarlierIsParked(t *testing.T) {
	t.Parallel()
	c, table, _ := missing(t)
	if c.parkTopic(outbox.Outcome{Scope: topicScope("z"), Err: errTopic, Rows: []*outbox.Row{onTopic(table, "2", "z")}}); c.parks.of(topicScope("z")) == nil {
		t.Error("it is not")
	}
}

// Which topics there are is asked for a topic whose wait is over, not more often than the shortest
// wait, and not in shadow.
func TestTopicsAreAskedFor(t *testing.T) {
	t.Parallel()
	c, _, p := missing(t)
	asked := func() (n int) {
		for _, cmd := range c.Take().Commands {
			if cmd.List {
				n++
			}
		}
		return n
	}
	if c.Take(); asked() != 0 {
		t.Error("asked during the wait")
	}
	c.later(time.Second)
	c.cfg.Shadow = true
	if asked() != 0 {
		t.Error("asked in shadow")
	}
	if c.cfg.Shadow = false; asked() != 1 {
		t.Error("not asked after the wait")
	}
	if !c.NextTick().Equal(c.now.Add(time.Second)) || asked() != 0 {
		t.Error("asked twice at once")
	}
	if c.later(time.Second); asked() != 1 {
		t.Error("not asked again")
	}
	for name, change := range map[string]func(){
		"listed":  func() { p.listed = true },
		"ready":   func() { p.sweptOut = true },
		"looking": func() { p.scan = scanAny },
		"keeping": func() { p.phase = keeping },
		"waiting": func() { p.Next = c.now.Add(1) },
	} {
		before := *p
		if change(); c.awaitsList(p) {
			t.Errorf("%s: it awaits the list", name)
		}
		*p = before
	}
	if !c.awaitsList(p) || c.awaitsList(&park{Park: outbox.Park{Scope: outbox.StreamScope()}}) {
		t.Error("a topic that is missing awaits the list, and nothing else")
	}
}

// Unknown topics of a table await the list while there is nothing to scan for.
func TestUnknownTopicsAwaitTheList(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	p := c.parkTopics(table, "")
	if !c.awaitsList(p) {
		t.Error("they do not")
	}
	for name, change := range map[string]func(){
		"looking":     func() { p.scan = scanListed },
		"keeping":     func() { p.phase = keeping },
		"swept later": func() { p.nextSweep = c.now.Add(1) },
	} {
		before := *p
		if change(); c.awaitsList(p) {
			t.Errorf("%s: they await the list", name)
		}
		*p = before
	}
	c.Topics("main", map[string]bool{"x": true})
	if p.scan != scanListed {
		t.Errorf("scan %d once the topics are listed", p.scan)
	}
}

// What a list says of a topic: it is there, it is missing, or nothing, if the list is
// another cluster's.
func TestTopicsAreListed(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		cluster string
		names   map[string]bool
		next    time.Duration // until it may be swept
		listed  bool
		scan    scan
		tries   int
	}{
		"listed":                    {"main", map[string]bool{"x": true}, 1, true, scanNone, 1},
		"missing":                   {"main", map[string]bool{"y": true}, 1, false, scanNone, 2},
		"missing, looked at by now": {"main", nil, 0, false, scanAny, 1},
		"another cluster's":         {"other", map[string]bool{"x": true}, 0, false, scanNone, 1},
	} {
		c, _, p := missing(t)
		c.later(time.Second)
		p.nextSweep = c.now.Add(x.next)
		c.Topics(x.cluster, x.names)
		if p.listed != x.listed || p.scan != x.scan || p.tries != x.tries || x.listed && !p.nextSweep.IsZero() {
			t.Errorf("%s: listed %v, scan %d, tries %d, swept in %v", name, p.listed, p.scan, p.tries, p.nextSweep.Sub(c.now))
		}
	}
}

// What a scan of a topic's rows says.
func TestLookedAtATopic(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		rows, more, ended bool
		with              func(*Core, *park)
		ready             bool
		scan              scan
		swept             time.Duration
		tries             int
	}{
		"rows":                    {rows: true, ended: true, scan: scanNone, swept: time.Second, tries: 2},
		"none":                    {ended: true, ready: true, scan: scanNone, swept: sweepPause, tries: 1},
		"none yet":                {scan: scanAny, swept: sweepPause, tries: 1},
		"none on a page of many":  {more: true, ended: true, scan: scanAny, tries: 1},
		"failed since":            {rows: true, ended: true, with: func(_ *Core, p *park) { p.failedAt = 1 << 40 }, scan: scanAny, tries: 1},
		"failed as it was asked":  {ended: true, with: func(c *Core, p *park) { p.failedAt = c.sweeps.page.askedAt }, ready: true, scan: scanNone, swept: sweepPause, tries: 1},
		"handed back":             {rows: true, ended: true, with: func(_ *Core, p *park) { p.phase = absorbed }, scan: scanAny, tries: 1},
		"parked again by another": {rows: true, ended: true, with: func(c *Core, p *park) { c.parks.byScope[p.Scope] = &park{} }, scan: scanAny, tries: 1},
	} {
		c, table, p := missing(t)
		p.scan = scanAny
		c.askScan([]*park{p})
		if x.with != nil {
			x.with(c, p)
		}
		page := outbox.Page{More: x.more}
		if x.rows {
			page.Rows = []*outbox.Row{onTopic(table, "1", "x")}
		}
		c.scanned(c.sweeps.page, &page, x.ended)
		swept := time.Duration(0)
		if !p.nextSweep.IsZero() {
			swept = p.nextSweep.Sub(c.now)
		}
		if p.sweptOut != x.ready || p.scan != x.scan || swept != x.swept || p.tries != x.tries {
			t.Errorf("%s: ready %v, scan %d, swept in %v, tries %d", name, p.sweptOut, p.scan, swept, p.tries)
		}
	}
}

// Scans take a twentieth of the time at most, but the next comes by the longest wait.
func TestLooksAreFewerTheLongerTheyTake(t *testing.T) {
	t.Parallel()
	c, _, _ := begun(t, outbox.PublishedStatus)
	c.cfg.WatchEvery, c.cfg.BackoffMax = time.Second, time.Minute
	for took, want := range map[time.Duration]time.Duration{0: time.Second, time.Second: 20 * time.Second, time.Hour: time.Minute} {
		if got := c.scanAgain(&pageRequest{at: c.now.Add(-took)}).Sub(c.now); got != want {
			t.Errorf("a look of %v is repeated after %v", took, got)
		}
	}
}

// A scan is for a table's unknown topics alone, or for many topics.
func TestNextLook(t *testing.T) {
	t.Parallel()
	c, table, p := missing(t)
	if c.nextScan() != nil {
		t.Error("nothing is to be looked for")
	}
	p.scan = scanAny
	if got := c.nextScan(); len(got) != 1 || got[0] != p {
		t.Error("the topic is to be looked for")
	}
	for name, change := range map[string]func(){
		"keeping":     func() { p.phase = keeping },
		"awaiting":    func() { p.awaiting = 1 },
		"swept later": func() { p.nextSweep = c.now.Add(1) },
	} {
		before := *p
		if change(); c.nextScan() != nil {
			t.Errorf("%s: it is looked for", name)
		}
		*p = before
	}
	for i := range maxKeysASweep + 1 {
		c.park(topicScope(string(rune('A'+i))), outbox.CauseTopic, "", time.Time{}).scan = scanAny
	}
	if got := c.nextScan(); len(got) != maxKeysASweep {
		t.Errorf("%d at once", len(got))
	}
	unknown := c.parkTopics(table, "")
	unknown.scan = scanListed
	if got := c.nextScan(); len(got) != 1 || got[0] != unknown {
		t.Error("unknown topics are looked for by themselves")
	}
}

// What a scan of a table's unknown topics says.
func TestLookedAtUnknownTopics(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		scan   scan
		topics []string // of rows, "-" before one: it cannot become a record
		known  []string
		keys   int
		more   bool
		most   int // topics that may be parked one by one
		parked int
		ready  bool
		then   scan
		swept  time.Duration
	}{
		"listed are found":                 {scan: scanListed, topics: []string{"a", "b"}, parked: 2, then: scanListed, swept: sweepPause},
		"known meanwhile":                  {scan: scanListed, topics: []string{"a"}, known: []string{"a"}, then: scanAny},
		"none is listed":                   {scan: scanListed, then: scanAny},
		"few are missing":                  {scan: scanAny, topics: []string{"a", "b"}, most: 2, parked: 2, then: scanAny, swept: sweepPause},
		"many are missing":                 {scan: scanAny, topics: []string{"a", "b"}, most: 1, then: scanNone, swept: time.Second},
		"as many as may be, and more come": {scan: scanAny, topics: []string{"a"}, most: 2, more: true, then: scanNone, swept: time.Second},
		"nothing is left":                  {scan: scanAny, ready: true, then: scanNone, swept: sweepPause},
		"only what can be no record":       {scan: scanAny, topics: []string{"-a", "-b"}, ready: true, then: scanNone, swept: sweepPause},
		"few of these":                     {scan: scanAny, topics: []string{"-a"}, most: 5, ready: true, then: scanNone, swept: sweepPause},
		"these, and half the keys":         {scan: scanAny, topics: []string{"-a"}, keys: 5, ready: true, then: scanNone, swept: sweepPause},
		"these, and more keys":             {scan: scanAny, topics: []string{"-a"}, keys: 6, then: scanNone, swept: time.Second},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		c.cfg.WatchEvery, c.cfg.MaxKeys, c.cfg.MaxTopics = time.Second, 10, x.most
		p := c.parkTopics(table, "")
		for _, topic := range x.known {
			p.knownTopics[topicScope(topic)] = true
		}
		c.parks.keys[table.String()] = x.keys
		c.askScan([]*park{p})
		p.scan = x.scan
		page := outbox.Page{More: x.more}
		for i, topic := range x.topics {
			r := onTopic(table, string(rune('1'+i)), topic)
			if topic[0] == '-' {
				r.Topic, r.Err = topic[1:], errTopic
			}
			page.Rows = append(page.Rows, r)
		}
		before := len(c.parks.list)
		c.scanned(c.sweeps.page, &page, true)
		swept := time.Duration(0)
		if !p.nextSweep.IsZero() {
			swept = p.nextSweep.Sub(c.now)
		}
		if got := len(c.parks.list) - before; got != x.parked || p.sweptOut != x.ready || p.scan != x.then || swept != x.swept {
			t.Errorf("%s: %d parked, ready %v, scan %d, swept in %v", name, got, p.sweptOut, p.scan, swept)
		}
	}
}

// Beyond MaxTopics a table's unknown topics are parked together, if the sink has or gives back rows of
// them.
func TestUnknownTopicsAreParked(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with func(*Core, *outbox.Table)
		one  bool // the topic by itself
		all  bool
	}{
		"room for one more":     {func(c *Core, _ *outbox.Table) { c.cfg.MaxTopics = 2 }, true, false},
		"no room":               {func(*Core, *outbox.Table) {}, false, true},
		"it took a record":      {func(c *Core, _ *outbox.Table) { c.topics.proven[topicScope("z")] = true }, true, false},
		"known by an open park": {func(c *Core, other *outbox.Table) { c.parkTopics(other, "").knownTopics[topicScope("z")] = true }, true, false},
	} {
		c, table, _ := missing(t)
		other := &outbox.Table{Schema: "public", Name: "other", Mapping: table.Mapping}
		c.cfg.Tables, c.cfg.MaxTopics = append(c.cfg.Tables, other), 1
		c.tables = newTableSet(c.cfg.Tables)
		x.with(c, other)
		c.parkTopic(outbox.Outcome{Scope: topicScope("z"), Blocked: true, Err: errTopic, Rows: []*outbox.Row{onTopic(table, "9", "z")}})
		if one, all := c.parks.of(topicScope("z")) != nil, c.parks.of(outbox.TopicsScope(table)) != nil; one != x.one || all != x.all {
			t.Errorf("%s: parked by itself %v, all unknown %v", name, one, all)
		}
	}
}

// The sink gives back the rows that it says, and those of the topic that it still has.
func TestWhatTheSinkGivesBack(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	other := &outbox.Table{Schema: "public", Name: "other"}
	scope := topicScope("z")
	gives := func(when string, want bool, rows ...*outbox.Row) {
		t.Helper()
		if c.givesBack(outbox.Outcome{Scope: scope, Rows: rows}, table) != want {
			t.Errorf("%s: %v", when, !want)
		}
	}
	gives("nothing", false)
	gives("a row", true, onTopic(table, "1", "z"))
	gives("another table's", false, onTopic(other, "1", "z"))
	h := c.rows.add(onTopic(table, "2", "z"), noTx)
	c.rows.fly(h, acked)
	gives("one that it took", false)
	c.rows.fly(h, inSink)
	gives("one that it has", true)
	c.rows.entries[h].row.Table = other
	gives("one of another table that it has", false)
	c.rows.entries[h].row.Table, c.rows.entries[h].row.Topic = table, "y"
	gives("one of another topic that it has", false)
}

// Rows that cannot become a record are left to the unknown topics' park when many keys are
// parked.
func TestNoRecordOfAnUnknownTopic(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with func(c *Core, table *outbox.Table)
		left bool
	}{
		"many keys":            {func(*Core, *outbox.Table) {}, true},
		"fewer keys":           {func(c *Core, table *outbox.Table) { c.parks.keys[table.String()]-- }, false},
		"tables without state": {func(c *Core, _ *outbox.Table) { c.tables.stateless = true }, false},
		"it took a record":     {func(c *Core, _ *outbox.Table) { c.topics.proven[topicScope("z")] = true }, false},
		"parked by itself":     {func(c *Core, _ *outbox.Table) { c.park(topicScope("z"), outbox.CauseTopic, "", time.Time{}) }, false},
		"parked already":       {func(c *Core, table *outbox.Table) { c.parkTopics(table, "") }, true},
		"known by now":         {func(c *Core, table *outbox.Table) { c.parkTopics(table, "").knownTopics[topicScope("z")] = true }, false},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		c.parks.keys[table.String()] = c.cfg.MaxKeys
		x.with(c, table)
		if p := c.unknownTopicsPark(onTopic(table, "1", "z")); (p != nil) != x.left || p != nil && p.Scope != outbox.TopicsScope(table) {
			t.Errorf("%s: left to %+v", name, p)
		}
	}
}

// A row of the WAL that names a listed topic has it parked alone, once the sink has given back what it had.
func TestAListedTopicIsParkedAlone(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	p := c.parkTopics(table, "")
	r := onTopic(table, "1", "z")
	if c.parkIfListed(p, r) != p {
		t.Error("parked alone, and not listed")
	}
	c.topics.listed["main"] = map[string]bool{"z": true}
	p.awaiting = 1
	if c.parkIfListed(p, r) != p {
		t.Error("parked alone while the sink has rows")
	}
	p.awaiting = 0
	if alone := c.parkIfListed(p, r); alone.Scope != topicScope("z") || !alone.listed || p.takes(r) {
		t.Errorf("parked as %+v", alone)
	}
}

// Topics that took records before are none of the unknown ones, when these are parked first.
func TestTopicsThatTookRecordsAreKnown(t *testing.T) {
	c, table, _ := begun(t, outbox.PublishedStatus)
	first, second := onTopic(table, "1", "a"), onTopic(table, "2", "b")
	second.Cluster = "other"
	for _, r := range []*outbox.Row{first, first, second, first} {
		c.topics.tookRecord(r)
	}
	p := c.parkTopics(table, "")
	if p.takes(first) || p.takes(second) || !p.takes(onTopic(table, "3", "b")) {
		t.Errorf("known are %v", p.knownTopics)
	}
	if n := testing.AllocsPerRun(10, func() { c.topics.tookRecord(first); c.topics.tookRecord(second) }); n != 0 {
		t.Errorf("%v allocations for topics that took records", n)
	}
	c.topics.tookRecord(onTopic(table, "3", "b"))
	if c.parkTopics(table, ""); !p.takes(onTopic(table, "3", "b")) {
		t.Error("what is parked as unknown becomes known by a park of its own alone")
	}
}

// What scans ask for: the topics of all tables but those that are parked whole; for unknown topics those
// that brokers list, or all rows if there are none.
func TestWhatALookAsksFor(t *testing.T) {
	t.Parallel()
	c, table, p := missing(t)
	if got := scopesOf(c.scanParts([]*park{p})); !slices.Equal(got, []string{"outbox: x -"}) {
		t.Errorf("%q", got)
	}
	wide := c.parkedTable(table, outbox.CauseKeys)
	if got := c.scanParts([]*park{p}); len(got) != 0 {
		t.Errorf("of a parked table %q", scopesOf(got))
	}
	c.unpark(wide)
	unknown := c.parkTopics(table, "")
	unknown.scan = scanListed
	if got := scopesOf(c.scanParts([]*park{unknown})); !slices.Equal(got, []string{"outbox: public.outbox - x"}) || unknown.scan != scanAny {
		t.Errorf("nothing is listed: %q, scan %d", got, unknown.scan)
	}
	for _, topic := range []string{"d", "c", "b", "a"} {
		unknown.knownTopics[topicScope(topic)] = true
	}
	c.topics.listed = map[string]map[string]bool{"main": {"x": true, "n": true, "m": true}, "aux": {"k": true}}
	unknown.scan = scanListed
	if got := scopesOf(c.scanParts([]*park{unknown})); !slices.Equal(got, []string{"outbox: k m n -"}) || unknown.scan != scanListed {
		t.Errorf("%q, scan %d", got, unknown.scan)
	}
	unknown.scan = scanAny
	if got := scopesOf(c.scanParts([]*park{unknown})); !slices.Equal(got, []string{"outbox: public.outbox - a b c d x"}) {
		t.Errorf("%q", got)
	}
	if known := c.knownTopicsOf(table); len(known) != 5 || c.knownTopicsOf(&outbox.Table{Name: "other"}) != nil {
		t.Errorf("%v", known)
	}
}

// The park of a topic that the sink blocks, or that becomes known, awaits the topic's rows in the sink. A
// parked topic is not parked again.
func TestTopicsAwaitTheirRows(t *testing.T) {
	t.Parallel()
	for name, parks := range map[string]func(c *Core, table *outbox.Table) *park{
		"blocked": func(c *Core, _ *outbox.Table) *park {
			c.parkTopic(outbox.Outcome{Scope: topicScope("x"), Blocked: true, Err: errTopic})
			return c.parks.of(topicScope("x"))
		},
		"known":   func(c *Core, table *outbox.Table) *park { return c.parkKnownTopic(onTopic(table, "1", "x"), "") },
		"unknown": func(c *Core, table *outbox.Table) *park { return c.parkTopics(table, "") },
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		c.flying(onTopic(table, "1", "x"), inSink)
		p := parks(c, table)
		if p.awaiting != 1 {
			t.Errorf("%s: %d rows are awaited", name, p.awaiting)
		}
		version := p.version
		if name == "known" && (c.parkKnownTopic(onTopic(table, "1", "x"), "") != p || p.version != version) {
			t.Error("parked twice")
		}
	}
}

// Beyond MaxTopics the unknown topics are parked, once, of the tables whose rows the sink gives back.
func TestOfWhichTablesUnknownTopicsAreParked(t *testing.T) {
	t.Parallel()
	c, table, _ := missing(t)
	other, third := &outbox.Table{Schema: "public", Name: "other", Mapping: table.Mapping}, &outbox.Table{Schema: "public", Name: "third", Mapping: table.Mapping}
	c.cfg.Tables, c.cfg.MaxTopics = append(c.cfg.Tables, other, third), 1
	c.tables = newTableSet(c.cfg.Tables)
	was := c.parkTopics(third, "")
	version := was.version
	block := func(rows ...*outbox.Row) {
		c.parkTopic(outbox.Outcome{Scope: topicScope("z"), Blocked: true, Err: errTopic, Rows: rows})
	}
	block(onTopic(table, "1", "z"), onTopic(third, "2", "z"))
	p := c.parks.of(outbox.TopicsScope(table))
	if p == nil || c.parks.of(outbox.TopicsScope(other)) != nil || was.version != version {
		t.Errorf("%+v, that of another table %+v", p, was)
	}
	p.phase = keeping
	c.hb, c.gate = &handback{parks: []*park{p}}, &gate{keeping: true, park: p}
	if block(onTopic(table, "1", "z")); p.phase != sweeping || p.version != 2 {
		t.Errorf("it is handed back, and rows come: %+v", p)
	}
	c.parks.keys[table.String()] = c.cfg.MaxKeys
	version = p.version
	if q := c.unknownTopicsPark(onTopic(table, "3", "u")); q != p || p.version != version {
		t.Errorf("parked again: %+v", q)
	}
	p.phase = keeping
	c.hb, c.gate = &handback{parks: []*park{p}}, &gate{keeping: true, park: p}
	if q := c.unknownTopicsPark(onTopic(table, "3", "u")); q != p || p.phase != sweeping {
		t.Errorf("it is handed back, and a row comes: %+v", q)
	}
}

// Lists are not asked for while nothing waits for one, and concern the parks that do.
func TestWhoWaitsForAList(t *testing.T) {
	t.Parallel()
	c, _, p := missing(t)
	p.listed = true
	if c.wantTopics(); len(c.ready.Commands) != 0 || !c.topics.askAt.IsZero() {
		t.Error("asked for nobody")
	}
	tries := p.tries
	if c.Topics("main", nil); p.scan != scanNone || p.tries != tries {
		t.Errorf("%+v", p)
	}
	p.listed = false
	c.later(time.Second)
	p.nextSweep = c.now.Add(1)
	if c.Topics("main", nil); p.tries != 2 || p.Next.Sub(c.now) != 2*time.Second {
		t.Errorf("still missing: %+v", p)
	}
}

// A row of the WAL that names a topic which brokers list is discarded under a park of that topic.
func TestARowParksAListedTopic(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	p := c.parkTopics(table, "")
	c.topics.listed["main"] = map[string]bool{"z": true}
	c.Begin(outbox.Transaction{XID: 7, Commit: 10})
	c.Rows([]*outbox.Row{onTopic(table, "1", "z"), onTopic(table, "2", "y")})
	own := c.parks.of(topicScope("z"))
	key := c.keyed(rowOf(table, "3"))
	c.topics.listed["main"]["t"] = true
	if c.Rows([]*outbox.Row{rowOf(table, "3")}); c.parks.of(topicScope("t")) != nil || key.phase != sweeping {
		t.Error("a row of a parked key parks its topic")
	}
	if own == nil || len(own.waiting) != 1 || len(p.waiting) != 1 || c.parks.of(topicScope("y")) != nil {
		t.Errorf("%+v", own)
	}
}
