package checkpoint

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

var simWindow = flag.Int("sim.window", 1, "TestExhaustive: how many steps after the first deviation the second one may come")

// TestExhaustive runs small cases: three rows with two keys, one of which is refused once, in a stream that
// starts parked or streaming. A run without deviations takes all events in a fixed, fair order. Then, at
// every step, each other possible event is tried instead (a crash of the server, the process killed or
// stopped, a lost answer, a commit that waits for the standby, …). After each of these, again each other
// event is tried within a window of steps:
//
//	go test ./checkpoint -run TestExhaustive -sim.window=20 -timeout 1h
func TestExhaustive(t *testing.T) {
	t.Parallel()
	for _, small := range smallCases() {
		t.Run(small.name, func(t *testing.T) {
			t.Parallel()
			explore(t, small)
		})
	}
}

// TestLeaseLoss runs what two processes can do to each other. At every step the leader loses its lead: its
// connection ends, or it is stopped and the server gives up on it, or it is killed. After that, for a window
// of steps, each possible event is tried in place of the next one: the process goes on; its batch, its mark
// or its write of parks arrives late; the other process is faster or slower, or fails as well.
// To cover the whole rest of the run:
//
//	go test ./checkpoint -run TestLeaseLoss -sim.window=1000 -timeout 2h
func TestLeaseLoss(t *testing.T) {
	t.Parallel()
	for _, small := range []smallCase{
		{name: "streaming", slotThere: true, procs: 2, refused: 1, lease: true},
		{name: "new slot", procs: 2, refused: 1, lease: true},
		{name: "new slot, first row invisible", invisible: true, procs: 2, lease: true},
	} {
		t.Run(small.name, func(t *testing.T) {
			t.Parallel()
			explore(t, small)
		})
	}
}

// losses are the events by which a process loses its lead.
var losses = []eventKind{evDrop, evFreeze, evKill}

type smallCase struct {
	name      string
	slotThere bool
	invisible bool // the first row's commit waits for the standby
	procs     int
	refused   int
	lease     bool // the first deviation is the loss of the lead
}

func smallCases() []smallCase {
	return []smallCase{
		{name: "streaming", slotThere: true, procs: 1, refused: 1},
		{name: "new slot", procs: 1, refused: 1},
		{name: "new slot, first row invisible", invisible: true, procs: 1},
		{name: "streaming, two processes", slotThere: true, procs: 2},
	}
}

// explore tries each deviation from the fixed order, and pairs of deviations.
func explore(t *testing.T, small smallCase) {
	var runs atomic.Int64
	straight := newGuided(nil)
	if v := small.run(straight, nil); v != nil {
		t.Fatalf("without deviations: %v", v)
	}
	var first [][]deviation
	for step, n := range straight.options {
		for choice := 1; choice < n; choice++ {
			if !small.lease || slices.Contains(losses, straight.kinds[step][choice]) {
				first = append(first, []deviation{{step, choice}})
			}
		}
	}
	var next atomic.Int64
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(first)) && !t.Failed(); i = next.Add(1) - 1 {
				runs.Add(small.deviate(t, first[i]))
			}
		})
	}
	group.Wait()
	t.Logf("%d runs", runs.Load())
}

// deviate runs a case with the deviation, and then with each second deviation near it.
func (s smallCase) deviate(t *testing.T, first []deviation) (runs int64) {
	g := newGuided(first)
	if !s.check(t, g) {
		return 1
	}
	runs = 1
	for step := first[0].step + 1; step < min(len(g.options), first[0].step+1+*simWindow); step++ {
		for choice := 1; choice < g.options[step]; choice++ {
			runs++
			if !s.check(t, newGuided([]deviation{first[0], {step, choice}})) {
				return runs
			}
		}
	}
	return runs
}

func (s smallCase) check(t *testing.T, g *guided) bool {
	v := s.run(g, nil)
	if v == nil {
		return true
	}
	var lines []string
	s.run(newGuided(g.deviations), func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) })
	t.Errorf("deviations %v: %v\n%s", g.deviations, v, strings.Join(lines, "\n"))
	return false
}

type deviation struct{ step, choice int }

// guided chooses the first option, except where a deviation says otherwise. It remembers how many options
// there were.
type guided struct {
	calm
	deviations []deviation
	options    []int
	kinds      [][]eventKind // of the options
}

func newGuided(d []deviation) *guided { return &guided{deviations: d} }

// choose returns one of the numbers 0 to n-1.
func (g *guided) choose(n int) int {
	step := len(g.options)
	g.options = append(g.options, n)
	for _, d := range g.deviations {
		if d.step == step {
			return min(d.choice, n-1)
		}
	}
	return 0
}

func (g *guided) note(events []event) {
	kinds := make([]eventKind, len(events))
	for i := range events {
		kinds[i] = events[i].kind
	}
	g.kinds = append(g.kinds[:len(g.options)], kinds)
}

// run runs one small case from its start until all is settled.
func (s smallCase) run(g *guided, trace func(string, ...any)) *violation {
	w := s.world(g)
	w.trace = trace
	for idle := 0; w.bad == nil && idle < 5; {
		events := w.ordered()
		if len(events) == 0 {
			idle++
			w.doKind(evKeepalive)
			w.doKind(evStatus)
			w.advance(600 * time.Millisecond)
			continue
		}
		w.step++
		g.note(events)
		events[g.choose(len(events))].f()
		w.checkStep()
	}
	if w.bad == nil {
		w.heal()
		s.settle(w)
	}
	return w.bad
}

// settle brings the healed world to rest.
func (s smallCase) settle(w *world) {
	w.chooser = calm{}
	for i := 0; w.bad == nil && !w.settled(); i++ {
		if i == 3000 {
			w.checkAtRest()
			return
		}
		events := w.ordered()
		if len(events) == 0 || i%50 == 49 {
			w.advance(500 * time.Millisecond)
			for _, k := range []eventKind{evVisible, evKeepalive, evStatus} {
				w.doKind(k)
			}
			continue
		}
		w.step++
		events[0].f()
		w.checkStep()
	}
	w.checkEnd()
}

func (s smallCase) world(g *guided) *world {
	table := &outbox.Table{Schema: "public", Name: "outbox"}
	table.Mapping.Published, table.Mapping.OnFailed = outbox.PublishedStatus, outbox.OnFailedSkip
	table.Mapping.Cluster = outbox.ClusterMapping{Default: "main"}
	table.Mapping.Status.MaxAttempts = 3
	p := plan{keys: 2, topics: 2, overlap: true, procs: s.procs, tables: []*outbox.Table{table}, clusters: []string{"main"}}
	p.cfg = Config{
		Tables: p.tables, MaxRows: 20, MaxBytes: 1 << 20, PageRows: 3, SmallRound: 3, MaxKeys: 10, MaxRetryingKeys: 20, MaxTopics: 10,
		BackoffMin: time.Second, BackoffMax: 4 * time.Second, WatchEvery: time.Hour,
	}
	for k := range p.weights {
		p.weights[k] = 1
	}
	w := newWorld(g, p)
	w.slot, w.patience = slot{}, !s.lease
	if s.slotThere {
		w.slot = slot{exists: true, confirmed: w.insert, persisted: w.insert}
	}
	for i, key := range []string{"k", "k", "j"} {
		t := w.begin()
		r := &dbRow{table: table, cluster: "main", topic: "x", key: key}
		if i == 0 {
			r.poison = s.refused
		}
		w.addRow(t, r)
		if i > 0 {
			continue // its commit is one of the events
		}
		w.commit(t, !s.invisible)
	}
	return w
}

// fixed is the order in which events are taken without deviations; deviations
// are what else is possible. Kinds that are in neither do not happen.
var (
	fixed = []eventKind{
		evBoot, evTake, evNotice, evTick, evLead, evConnect, evFence, evState, evReceive, evCommand, evSend, evArrive, evSinkAnswer,
		evOutcome, evMark, evMarked, evQuery, evAnswer, evParks, evParksAnswer, evCommit, evMakeSlot, evResume, evStopped,
	}
	deviating = []eventKind{
		evVisible, evStatus, evKeepalive, evClock, evInvisible, evCrash, evSlotLost, evDrop, evKill, evFreeze, evParksUnknown, evMarkLost,
		evDelete, evDrain, evStray,
	}
)

// ordered lists the possible events. The first one is next in the fixed order.
func (w *world) ordered() []event {
	var events []event
	for _, e := range w.list() {
		if rank[e.kind] > 0 {
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return rank[a.kind] - rank[b.kind] })
	if len(events) == 0 || rank[events[0].kind] > len(fixed) {
		return nil
	}
	return events
}

// rank is the place of each kind in the fixed order; 0: the kind does not happen.
var rank = func() (rank [numEvents]int) {
	for i, k := range append(append([]eventKind(nil), fixed...), deviating...) {
		rank[k] = i + 1
	}
	return rank
}()

// doKind takes one event of the kind, if one is possible.
func (w *world) doKind(kind eventKind) {
	for _, e := range w.list() {
		if e.kind == kind {
			w.step++
			e.f()
			w.checkStep()
			return
		}
	}
}
