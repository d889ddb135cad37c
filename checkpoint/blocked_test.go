package checkpoint

import (
	"errors"
	"runtime"
	"strconv"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// blockedCore returns a Core and two rows of one key, which the WAL has brought. The rows go to two
// clusters, and each cluster has refused its row (on_failed: block).
func blockedCore() (c *Core, first, second *outbox.Row) {
	c = New(blockedConfig())
	table := c.cfg.Tables[0]
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

// blockedConfig returns a configuration of one table with on_failed: block.
func blockedConfig() Config {
	table := &outbox.Table{Schema: "public", Name: "outbox"}
	table.Mapping.Published, table.Mapping.OnFailed = outbox.PublishedStatus, outbox.OnFailedBlock
	table.Mapping.Cluster = outbox.ClusterMapping{Column: "cluster", Default: "main", Known: []string{"main", "other"}}
	return Config{
		Tables: []*outbox.Table{table}, MaxRows: 20, MaxBytes: 1 << 20, PageRows: 3, SmallRound: 3, MaxKeys: 10, MaxRetryingKeys: 20, MaxTopics: 10,
		BackoffMin: time.Second, BackoffMax: 4 * time.Second, WatchEvery: time.Hour,
	}
}

// The first row becomes FAILED, and its key waits for the operator. The second row is to be tried again:
// this must not end the key's wait.
func TestABlockedKeyStaysSoWhenAnotherRowFails(t *testing.T) {
	c, first, second := blockedCore()
	c.Marked([]outbox.Marked{{Row: first, Kind: outbox.MarkAttempt, State: outbox.MarkedFailed, Attempts: 3}})
	c.Marked([]outbox.Marked{{Row: second, Kind: outbox.MarkAttempt, State: outbox.MarkedRetry, Attempts: 1}})
	if p := c.parks.of(outbox.KeyScope(first)); p == nil || p.Cause != outbox.CauseBlocked || p.RowID != "1" {
		t.Errorf("the key is parked as %+v", p)
	}
}

// A look finds the first row deleted. Before the answer arrives, the second row becomes FAILED. The key
// waits for the second row.
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
	if p := c.parks.of(outbox.KeyScope(first)); p == nil || p.Cause != outbox.CauseBlocked || p.RowID != "2" {
		t.Errorf("the key is parked as %+v", p)
	}
}

// Both rows become FAILED, and the key remembers the second. When that row is deleted, the table names the
// first, and the key waits for it (seed 77718). When no FAILED row is left, the key is free.
func TestAKeyWaitsForEachOfItsFailedRows(t *testing.T) {
	c, first, second := blockedCore()
	for _, r := range []*outbox.Row{first, second} {
		c.Marked([]outbox.Marked{{Row: r, Kind: outbox.MarkAttempt, State: outbox.MarkedFailed, Attempts: 3}})
	}
	p := c.parks.of(outbox.KeyScope(first))
	for i, want := range []struct {
		looked string
		failed []*outbox.Row
		cause  outbox.Cause
		row    string
	}{
		{"2", []*outbox.Row{first}, outbox.CauseBlocked, "1"},
		{"1", nil, outbox.CauseRowError, ""},
	} {
		c.Tick(epochStart.Add(time.Duration(i+1) * time.Hour))
		look := c.Take().Check
		if len(look) != 1 || look[0].ID != want.looked {
			t.Fatalf("looks at %v, not at %s", outboxIDs(look), want.looked)
		}
		c.Checked([]outbox.Checked{{Row: look[0], State: outbox.CheckSettled}})
		if !c.Take().Failed || p.Cause != outbox.CauseBlocked {
			t.Fatalf("the table is not asked, or the key parked as %+v", p.Park)
		}
		c.FailedRows(want.failed)
		if p.Cause != want.cause || p.RowID != want.row {
			t.Errorf("the key is parked as %+v", p.Park)
		}
	}
}

// While the table refuses the query for FAILED rows, its keys go on waiting. The query is repeated later.
func TestAKeyWaitsWhenTheTableRefusesToTell(t *testing.T) {
	c, first, _ := blockedCore()
	c.Marked([]outbox.Marked{{Row: first, Kind: outbox.MarkAttempt, State: outbox.MarkedFailed, Attempts: 3}})
	c.Tick(epochStart.Add(time.Hour))
	c.Checked([]outbox.Checked{{Row: c.Take().Check[0], State: outbox.CheckSettled}})
	c.Take()
	c.FailedRefused(first.Table, errors.New("refused"))
	if p := c.parks.of(outbox.KeyScope(first)); p.Cause != outbox.CauseBlocked || c.Take().Failed {
		t.Errorf("asked again at once, or the key parked as %+v", p.Park)
	}
	c.Tick(epochStart.Add(2 * time.Hour))
	if !c.Take().Failed {
		t.Error("not asked again")
	}
}

// A row shares its block of memory with many others (mapping.Arena). A key may be parked until an operator
// acts, and must not keep that block.
func TestAParkKeepsNothingOfItsRow(t *testing.T) {
	for _, key := range [][]byte{[]byte("k"), nil} {
		c, chunk := New(blockedConfig()), weak.Pointer[byte]{}
		c.Tick(epochStart)
		c.Connect(Connected{Streaming: true})
		func() {
			memory := append(make([]byte, 0, 1<<10), "1 x"...)
			chunk = weak.Make(&memory[0])
			text := unsafe.String(&memory[0], len(memory))
			r := &outbox.Row{Table: c.cfg.Tables[0], ID: text[:1], Cluster: "main", Topic: text[2:3], Key: key, Pending: true, XID: 7, Commit: 10}
			c.Begin(outbox.Transaction{XID: 7, Commit: 10})
			c.Rows([]*outbox.Row{r})
			c.Commit(20)
			c.Take()
			c.Outcome(outbox.Outcome{Rows: []*outbox.Row{r}, Class: outbox.Refused, Scope: outbox.KeyScope(r), Blocked: true, Err: errors.New("refused")})
			c.Take()
			c.Marked([]outbox.Marked{{Row: r, Kind: outbox.MarkAttempt, State: outbox.MarkedFailed, Attempts: 3}})
			c.Take()
		}()
		if len(c.parks.list) != 1 || c.parks.list[0].RowID != "1" || c.parks.list[0].failedRow != "1" {
			t.Fatalf("parked: %+v", c.parks.list)
		}
		runtime.GC()
		if chunk.Value() != nil {
			t.Errorf("key %q: the row's memory is kept", key)
		}
		runtime.KeepAlive(c)
	}
}

// The set of topics that took records must not keep such a block of memory either.
func TestATopicKeepsNothingOfItsRow(t *testing.T) {
	s, chunk := topicSet{proven: map[outbox.Scope]bool{}}, weak.Pointer[byte]{}
	func() {
		memory := append(make([]byte, 0, 1<<10), "x"...)
		chunk = weak.Make(&memory[0])
		s.tookRecord(&outbox.Row{Cluster: "main", Topic: unsafe.String(&memory[0], 1)})
	}()
	runtime.GC()
	if chunk.Value() != nil {
		t.Error("the row's memory is kept")
	}
	if !s.proven[outbox.TopicScope("main", "x")] {
		t.Error("the topic is not known")
	}
}

// While many keys of a table wait for a retry, the table's other rows are published. While more than
// MaxRetryingKeys keys wait, the table is not swept.
func TestATableIsSweptWhileItsKeysWait(t *testing.T) {
	cfg := blockedConfig()
	cfg.Tables[0].Mapping.OnFailed = outbox.OnFailedSkip
	cfg.MaxKeys, cfg.MaxRetryingKeys = 2, 6
	c := New(cfg)
	c.Tick(epochStart)
	c.Connect(Connected{Streaming: true})
	fail := func(n int) {
		r := &outbox.Row{Table: cfg.Tables[0], ID: strconv.Itoa(n), Cluster: "main", Topic: "x", Key: []byte(strconv.Itoa(n))}
		c.park(outbox.KeyScope(r), outbox.CauseRowError, "refused", epochStart.Add(time.Hour))
	}
	for n := range cfg.MaxRetryingKeys {
		fail(n)
	}
	table := c.parks.of(outbox.TableScope(cfg.Tables[0]))
	if table == nil || !c.due(table) {
		t.Errorf("with %d keys the table is not swept: %+v", c.parks.keys[table.Scope.Table], table)
	}
	fail(cfg.MaxRetryingKeys)
	if c.due(table) {
		t.Errorf("with %d keys the table is swept", c.parks.keys[table.Scope.Table])
	}
}

// A row without a key was parked and deleted, and a row with a key got its id. The page for the park brings
// the new row. Earlier rows of its key may be left under the cluster's park, so the new row is left to the
// sweep of that park.
func TestAPageOfARowBringsNoOtherRow(t *testing.T) {
	cfg := blockedConfig()
	c := New(cfg)
	c.Tick(epochStart)
	c.Connect(Connected{Streaming: true})
	c.park(outbox.ClusterScope("main"), outbox.CauseCluster, "the Kafka cluster is unusable", time.Time{})
	gone := &outbox.Row{Table: cfg.Tables[0], ID: "1", Cluster: "main", Topic: "x"}
	p := c.park(outbox.RowScope(gone), outbox.CauseRowError, "refused", time.Time{})
	c.ask([]*park{p}, nil)
	c.Swept(outbox.Page{Rows: []*outbox.Row{{Table: cfg.Tables[0], ID: "1", Cluster: "main", Topic: "x", Key: []byte("k")}}})
	if c.rows.inFlight != 0 {
		t.Error("it is published")
	}
}

// A sweep of the parked stream leaves out a table with too many waiting keys, and brings the rows of the
// other tables.
func TestACrowdedTableStopsNoOther(t *testing.T) {
	cfg := blockedConfig()
	other := *cfg.Tables[0]
	other.Name = "other"
	cfg.Tables = append(cfg.Tables, &other)
	cfg.MaxKeys, cfg.MaxRetryingKeys = 2, 6
	c := New(cfg)
	c.Tick(epochStart)
	c.Connect(Connected{Cause: outbox.CauseSlot})
	for n := range cfg.MaxRetryingKeys + 1 {
		r := &outbox.Row{Table: cfg.Tables[0], ID: strconv.Itoa(n), Cluster: "main", Topic: "x", Key: []byte(strconv.Itoa(n))}
		c.park(outbox.KeyScope(r), outbox.CauseRowError, "refused", epochStart.Add(time.Hour))
	}
	page := c.Take().Sweep
	if page == nil || len(page.Parts) != 1 || page.Parts[0].Table != &other {
		t.Errorf("the sweep is %+v", page)
	}
}

// While so many keys wait that their table is not swept, they are tried without backoff, so that they use up
// their budgets. Keys whose attempts are not counted, or not bounded, do wait.
func TestKeysOfACrowdedTableHurry(t *testing.T) {
	for name, x := range map[string]struct {
		keys, budget, counted int
		hurry                 bool
	}{
		"crowded": {7, 10, 3, true}, "not crowded": {6, 10, 3, false}, "without a budget": {7, 0, 3, false}, "not counted": {7, 10, 0, false},
	} {
		cfg := blockedConfig()
		cfg.MaxKeys, cfg.MaxRetryingKeys, cfg.MaxRows, cfg.PageRows = 2, 6, 100, 20
		cfg.Tables[0].Mapping.OnFailed, cfg.Tables[0].Mapping.Status.MaxAttempts = outbox.OnFailedSkip, x.budget
		c := New(cfg)
		c.Tick(epochStart)
		c.Connect(Connected{Streaming: true})
		for n := range x.keys {
			r := &outbox.Row{Table: cfg.Tables[0], ID: strconv.Itoa(n), Cluster: "main", Topic: "x", Key: []byte(strconv.Itoa(n))}
			c.park(outbox.KeyScope(r), outbox.CauseRowError, "refused", epochStart.Add(time.Hour))
		}
		narrow := 0
		for range 2 { // the table's park and the parks of keys take turns
			if page := c.Take().Sweep; page != nil {
				if page.Parts[0].Include[0].Kind == outbox.ScopeKey {
					narrow = len(page.Parts[0].Include)
				}
				c.Swept(outbox.Page{})
			}
		}
		if began := name == "crowded" || name == "not counted"; began != (narrow == x.keys) {
			t.Errorf("%s: %d keys are swept", name, narrow)
		}
		p := c.parks.list[0]
		if c.nextTry(p, outbox.Marked{State: outbox.MarkedRetry, Attempts: x.counted}); p.Next.After(c.now) == x.hurry {
			t.Errorf("%s: tried again at %v", name, p.Next)
		}
	}
}

// When a table hurries, a row of a page that cannot become a record uses up its budget at once. The page's
// good rows are published. A row that Kafka refuses is charged one attempt. A small page ends this.
func TestBadRowsOfACrowdedTable(t *testing.T) {
	cfg := blockedConfig()
	cfg.MaxKeys, cfg.MaxRetryingKeys, cfg.MaxRows, cfg.PageRows, cfg.SmallRound = 2, 6, 100, 20, 1
	cfg.Tables[0].Mapping.OnFailed, cfg.Tables[0].Mapping.Status.MaxAttempts = outbox.OnFailedSkip, 10
	c := New(cfg)
	c.Tick(epochStart)
	c.Connect(Connected{Streaming: true})
	c.topics.proven[outbox.TopicScope("main", "x")] = true
	rows := 0
	row := func(err error) *outbox.Row {
		rows++
		return &outbox.Row{Table: cfg.Tables[0], ID: strconv.Itoa(rows), Cluster: "main", Topic: "x", Key: []byte(strconv.Itoa(rows)), Pending: true, Err: err}
	}
	crowd := func(n int) {
		for range n {
			c.park(outbox.KeyScope(row(nil)), outbox.CauseRowError, "refused", epochStart.Add(time.Hour))
		}
	}
	bad := errors.New("no record")
	// charged takes a page of the table with a bad row and a good one, which Kafka refuses.
	charged := func(when string, spends, more bool) (badRow *outbox.Row) {
		t.Helper()
		c.Take()
		c.ask([]*park{c.parks.of(outbox.TableScope(cfg.Tables[0]))}, nil)
		page := []*outbox.Row{row(bad), row(nil)}
		c.Swept(outbox.Page{Rows: page, More: more})
		r := c.Take()
		if len(r.Commands) != 1 || len(r.Commands[0].Publish) != 1 || r.Commands[0].Publish[0] != page[1] {
			t.Fatalf("%s: %+v", when, r.Commands)
		}
		if len(r.Marks) != 1 || r.Marks[0].Row != page[0] || r.Marks[0].Spends != spends {
			t.Fatalf("%s: the bad row: %+v", when, r.Marks)
		}
		c.Outcome(outbox.Outcome{Rows: page[1:], Class: outbox.Refused, Scope: outbox.KeyScope(page[1]), Blocked: true, Err: bad})
		if r = c.Take(); len(r.Marks) != 1 || r.Marks[0].Spends {
			t.Fatalf("%s: the refused row: %+v", when, r.Marks)
		}
		return page[0]
	}
	crowd(3)
	charged("some are parked", false, true)
	crowd(3)
	spent := charged("it is crowded", true, true)
	c.parks.keys[spent.Table.String()] = 3
	charged("it is crowded no more", true, true)
	c.remarkLater(outbox.Marked{Row: spent, Kind: outbox.MarkAttempt}, c.now)
	if marks := c.Take().Marks; len(marks) != 1 || !marks[0].Spends {
		t.Errorf("asked again: %+v", marks)
	}
	c.ask([]*park{c.parks.of(outbox.TableScope(cfg.Tables[0]))}, nil)
	c.Swept(outbox.Page{})
	c.parks.keys[spent.Table.String()] = 3
	charged("no flood is left", false, true)
}

// A key's park may await the answer to the mark of an attempt. It is written after that answer, or not at
// all if the row is FAILED. If a position waits for the park, it is written at once.
func TestAParkIsWrittenWhenItsRowIsCharged(t *testing.T) {
	for name, x := range map[string]struct {
		with   func(c *Core)
		answer outbox.MarkState
		// puts are the writes of the key before and after the answer.
		puts [2]int
	}{
		"it is FAILED":         {func(*Core) {}, outbox.MarkedFailed, [2]int{0, 0}},
		"it is tried again":    {func(*Core) {}, outbox.MarkedRetry, [2]int{0, 1}},
		"it is answered later": {func(*Core) {}, 0, [2]int{0, 0}},
		"a hand-back ends": {func(c *Core) {
			topic := c.park(topicScope("y"), outbox.CauseTopic, "", time.Time{})
			topic.phase, c.hb = keeping, &handback{parks: []*park{topic}, step: hbRemoving}
		}, outbox.MarkedRetry, [2]int{1, 1}},
		"a position waits": {func(c *Core) {
			c.Begin(outbox.Transaction{XID: 7, Commit: 10})
			c.settleUnder(c.ledger.hold(), c.parks.list[1])
		}, outbox.MarkedRetry, [2]int{1, 1}},
	} {
		cfg := blockedConfig()
		cfg.Tables[0].Mapping.OnFailed = outbox.OnFailedSkip
		c := New(cfg)
		c.Tick(epochStart)
		c.Connect(Connected{Streaming: true})
		wide := c.park(outbox.TableScope(cfg.Tables[0]), outbox.CauseKeys, "", time.Time{})
		wide.durable, wide.written, wide.asked = true, wide.version, true
		c.ask([]*park{wide}, nil)
		r := &outbox.Row{Table: cfg.Tables[0], ID: "1", Cluster: "main", Topic: "x", Key: []byte("k"), Pending: true, Err: errors.New("no record")}
		c.Swept(outbox.Page{Rows: []*outbox.Row{r}, More: true})
		x.with(c)
		writes := func() (puts, deletes int) {
			c.ready = Ready{}
			c.forgetUnwritten()
			if c.writeParks(); c.ready.Parks != nil {
				for _, p := range c.ready.Parks.Put {
					if p.Scope == outbox.KeyScope(r) {
						puts++
					}
				}
				deletes = len(c.ready.Parks.Delete)
				c.ParksWritten(outbox.ParksCommitted)
			}
			return puts, deletes
		}
		before, _ := writes()
		if x.answer != 0 {
			c.Marked([]outbox.Marked{{Row: r, Kind: outbox.MarkAttempt, State: x.answer, Attempts: 1}})
		}
		after, deletes := writes()
		if got := [2]int{before, after}; got != x.puts || deletes > 0 {
			t.Errorf("%s: the key is written %v times, %d are deleted", name, got, deletes)
		}
		if gone := c.parks.of(outbox.KeyScope(r)) == nil; gone != (name == "it is FAILED") {
			t.Errorf("%s: it is gone: %v", name, gone)
		}
	}
}
