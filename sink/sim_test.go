package sink

// The simulation runs the machine in a made-up world, in an order that a seed decides: topics
// and their brokers, the coordinator of producer ids and of transactions (sim_kafka_test.go,
// sim_once_test.go), and a stream that publishes the rows of a table until each is delivered or
// known to be at fault (sim_rows_test.go). Faults come for a while. Then the world heals, all must
// end well, and nothing may go on. What is checked is in sim_check_test.go and where it happens.
//
//	go test ./sink -run 'TestSimulation$'                     2,000 seeds
//	go test ./sink -run 'TestSimulation$' -sim.seeds=100000   more of them
//	go test ./sink -run 'TestSimulation$' -sim.seed=42 -v     one, with its story

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

var (
	simSeeds = flag.Int("sim.seeds", 2000, "how many seeds TestSimulation runs")
	simFrom  = flag.Uint64("sim.from", 1, "the first seed")
	simSeed  = flag.Uint64("sim.seed", 0, "run this seed alone and print its story")
)

func TestSimulation(t *testing.T) {
	t.Parallel()
	from, n := *simFrom, *simSeeds
	if testing.Short() { // also under the race detector, and there is one goroutine per world
		n = min(n, 200)
	}
	if *simSeed != 0 {
		from, n = *simSeed, 1
		t.Log(simStory(*simSeed))
	}
	var next atomic.Uint64
	var mu sync.Mutex
	var group sync.WaitGroup
	next.Store(from)
	bad, broken := uint64(0), error(nil)
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for seed := next.Add(1) - 1; seed < from+uint64(n); seed = next.Add(1) - 1 {
				if err := simulate(seed, nil); err != nil {
					next.Store(from + uint64(n)) // no more
					mu.Lock()
					if broken == nil || seed < bad {
						bad, broken = seed, err
					}
					mu.Unlock()
					return
				}
			}
		})
	}
	group.Wait()
	if broken != nil {
		t.Fatalf("seed %d: %v\nits story: go test ./sink -run 'TestSimulation$' -sim.seed=%d -v", bad, broken, bad)
	}
}

// simulate runs one seed.
func simulate(seed uint64, trace func(string)) (err error) {
	w := newSim(seed)
	w.trace = trace
	defer func() {
		switch p := recover().(type) {
		case nil:
		case violation:
			err = p
		default:
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	w.run()
	return nil
}

func simStory(seed uint64) string {
	var story strings.Builder
	err := simulate(seed, func(line string) { story.WriteString(line + "\n") })
	fmt.Fprintln(&story, err)
	return story.String()
}

// violation ends a run.
type violation string

func (v violation) Error() string { return string(v) }

// simPlan is what a seed is about. Each has only some of the faults and its own relation of
// speeds: rare schedules come from such extremes.
type simPlan struct {
	fencing  bool // there is a transactional id
	once     bool // transactions
	old      bool // brokers without topic ids
	told     bool // brokers tell max.message.bytes
	named    bool // they name rejected records
	storm    time.Duration
	every    time.Duration // between mishaps, at most
	mishaps  []mishap
	losses   int // of 1000 tries, how many have a fate of their own
	fates    []fate
	latency  time.Duration // at most
	pause    time.Duration // between rows, at most
	patience time.Duration // how long a row may take when nothing has been wrong for so long
}

// sim is a world with one machine.
type sim struct {
	*rand.Rand
	plan  simPlan
	trace func(string)
	begin time.Time
	now   time.Time
	m     *machine
	seed  uint64
	to    []simEvent // to come
	spins int        // wakes without time in between
	steps int
	asked []time.Time

	// What is wrong now, how many things, and when anything last was.
	wrong  int
	hurt   time.Time
	calm   bool      // nothing gets wrong any more
	shut   bool      // nothing may be sent
	shutAt time.Time // when last
	dark   int       // no broker can be reached
	mute   int       // brokers do not answer for metadata
	stuck  int       // the coordinator does nothing
	blind  int       // partition logs cannot be read
	unread bool      // and never could

	simKafka
	simOnce
	simTable
}

type simEvent struct {
	at time.Time
	do func()
}

func newSim(seed uint64) *sim {
	w := &sim{Rand: rand.New(rand.NewPCG(seed, 1)), seed: seed, begin: time.Unix(1_000_000, 0)}
	w.now, w.hurt = w.begin, w.begin
	w.drawPlan()
	w.makeTopics()
	w.makeRows()
	cfg := machineConfig{
		limits:     limits{rows: 1 + w.IntN(8), bytes: 300 + w.IntN(3000)},
		topicGrace: time.Duration(1+w.IntN(3)) * time.Second, outageAfter: time.Second,
		refresh: time.Duration(5+w.IntN(25)) * time.Second, keepAlive: time.Duration(w.IntN(3)) * 20 * time.Second,
		random:   func(n int) int { return int((seed + uint64(w.now.UnixMilli())) % uint64(n)) }, // not of the order of calls
		journals: []string{simJournals},
		heldFor:  []time.Duration{0, 300 * time.Millisecond, 2 * time.Second}[seed%3],
	}
	if w.plan.once {
		w.beginOnce()
		cfg.transactions = &Transactions{Journal: simJournal, MaxRows: 1 + w.IntN(12), Timeout: time.Minute}
	}
	var known []string
	for _, t := range w.topics {
		if w.coin() {
			known = append(known, t.name)
		}
	}
	w.m = newMachine("main", cfg, known)
	return w
}

func (w *sim) drawPlan() {
	p := &w.plan
	p.once = w.oneIn(3)
	p.fencing = p.once || !w.oneIn(3)
	p.old, p.told, p.named, w.unread = w.oneIn(6), w.coin(), w.coin(), w.oneIn(8)
	p.storm = time.Duration(1+w.IntN(20)) * time.Second
	p.latency = []time.Duration{3 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond, 200 * time.Millisecond}[w.IntN(4)]
	p.pause = []time.Duration{2 * time.Millisecond, 50 * time.Millisecond, 500 * time.Millisecond}[w.IntN(3)]
	p.every = []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second}[w.IntN(3)]
	p.losses = []int{0, 20, 100, 400}[w.IntN(4)]
	p.patience = 6*time.Second + 40*p.latency
	part := w.IntN(4) // of four parts of all that can be
	for _, f := range fates {
		if w.IntN(4) < part && (!p.once || !f.plain) {
			p.fates = append(p.fates, f)
			p.patience = max(p.patience, f.patience+40*p.latency)
		}
	}
	part = w.IntN(4)
	for _, h := range mishaps {
		if w.IntN(4) < part && (!p.once || !h.never) {
			p.mishaps = append(p.mishaps, h)
			p.patience = max(p.patience, h.patience+40*p.latency)
		}
	}
	if p.once {
		p.patience = max(p.patience, 2*stuckAfter) + 10*time.Second + 200*p.latency // transactions go one after the other
	}
}

// ---- chance and time

func (w *sim) coin() bool         { return w.IntN(2) == 0 }
func (w *sim) oneIn(n int) bool   { return w.IntN(n) == 0 }
func (w *sim) lat() time.Duration { return w.upTo(w.plan.latency) }
func (w *sim) upTo(d time.Duration) time.Duration {
	return time.Millisecond + time.Duration(w.Int64N(int64(d)))
}

func (w *sim) fail(format string, args ...any) {
	w.tell("VIOLATION: "+format, args...)
	panic(violation(fmt.Sprintf(format, args...)))
}

func (w *sim) tell(format string, args ...any) {
	if w.trace != nil {
		w.trace(fmt.Sprintf("%8.3f ", w.now.Sub(w.begin).Seconds()) + fmt.Sprintf(format, args...))
	}
}

// after makes something happen later.
func (w *sim) after(d time.Duration, do func()) {
	w.to = append(w.to, simEvent{w.now.Add(d), do})
}

// wrongFor makes something be wrong for a while.
func (w *sim) wrongFor(most time.Duration, what string, begin, end func()) {
	w.tell("%s", what)
	w.wrong++
	begin()
	w.after(w.upTo(most), func() {
		w.tell("no more: %s", what)
		w.wrong--
		w.hurt = w.now
		end()
	})
}

// run is a whole life: a start, a storm, its end, and rest.
func (w *sim) run() {
	if !w.plan.once {
		w.start(0)
	}
	w.after(w.upTo(w.plan.pause), w.publish)
	w.after(w.upTo(w.plan.every), w.mishap)
	w.after(0, func() {})
	for w.now.Sub(w.begin) < w.plan.storm {
		w.step()
	}
	w.calm = true
	w.tell("the storm is over")
	for deadline := w.now.Add(3 * time.Minute); !w.settled(); w.step() {
		if w.now.After(deadline) {
			w.fail("it does not come to an end: %s", w.describe())
		}
	}
	w.rest()
}

// mishap makes something go wrong, while there is a storm.
func (w *sim) mishap() {
	if w.calm || len(w.plan.mishaps) == 0 {
		return
	}
	w.hurt = w.now
	w.plan.mishaps[w.IntN(len(w.plan.mishaps))].do(w)
	w.after(w.upTo(w.plan.every), w.mishap)
}

// step lets happen what is next.
func (w *sim) step() {
	i := 0
	for j := range w.to {
		if w.to[j].at.Before(w.to[i].at) {
			i = j
		}
	}
	wake := w.m.next()
	if !wake.IsZero() && (len(w.to) == 0 || wake.Before(w.to[i].at)) {
		if w.spins++; wake.After(w.now) {
			w.now, w.spins = wake, 0
		}
		if w.spins > 3 {
			w.fail("it wants to be woken without end: %s", w.describe())
		}
		if w.oneIn(20) { // timers are late
			w.now = w.now.Add(w.upTo(20 * time.Millisecond))
		}
		w.feed(nil)
		return
	}
	if len(w.to) == 0 {
		w.fail("nothing happens any more: %s", w.describe())
	}
	e := w.to[i]
	w.to = slices.Delete(w.to, i, i+1)
	if e.at.After(w.now) {
		w.now, w.spins = e.at, 0
		if w.oneIn(2) { // woken for nothing
			w.feed(nil)
		}
	}
	w.feed(e.do)
}

// feed gives the machine an input, or the time alone, and does what it wants done.
func (w *sim) feed(do func()) {
	w.m.now, w.m.closed = w.now, w.shut
	due := w.m.next()
	early := do == nil && (due.IsZero() || due.After(w.now))
	unusableBefore := w.m.usability == unusable
	if do != nil {
		do()
		w.m.closed = w.shut
		w.checkDirty()
	}
	if w.shut {
		w.shutAt = w.now
	}
	w.m.tick(w.now)
	out := w.m.take()
	if early && (len(out.send)+len(out.outcomes)+len(out.requests)+len(out.ends) > 0 || out.ask != nil || out.job != nil || len(out.states) > 0 && !unusableBefore) {
		w.fail("it had something to do and was not woken for it: %+v", out)
	}
	w.collect(out)
	w.checkParts()
	w.checkPatience()
}

// collect does what the machine wants done.
func (w *sim) collect(out work) {
	if out.fatal != nil {
		w.fail("the end: %v", out.fatal)
	}
	slices.SortFunc(out.send, func(a, b *batch) int { // topics come in any order
		return strings.Compare(a.queue.String(), b.queue.String())
	})
	for _, n := range out.notes {
		w.tell("note: %s %s %v", n.topic, n.text, n.err)
		w.notes[n.text+n.topic]++
		if n.text == madeAgain(n.topic) && w.topic(n.topic).made < 2 {
			w.fail("topic %s was made once", n.topic)
		}
		if strings.HasSuffix(n.text, " partitions now") { // its rows are placed again, and a row that was named is sent again
			for _, r := range w.of {
				if r.pub != nil && r.pub.Topic == n.topic {
					r.named = nil
				}
			}
		}
	}
	for _, o := range out.outcomes {
		w.outcome(&o)
	}
	slices.SortFunc(w.blocked, func(a, b outbox.Scope) int { return strings.Compare(a.String(), b.String()) })
	for _, s := range w.blocked {
		w.after(w.upTo(2*time.Second), func() { w.release(s) })
	}
	w.blocked = nil
	w.delivering(out)
	w.withdrawn()
	for _, b := range out.send {
		w.send(b)
	}
	if out.ask != nil {
		w.ask(out.ask)
	}
	if out.job != nil {
		w.job(out.job)
	}
	for _, r := range out.requests {
		w.request(r)
	}
	if found := out.recovery; found != nil {
		w.after(w.lat(), func() { w.m.wasRecovered(found) })
	}
	for _, s := range out.states {
		w.state(&s)
	}
}

func (q *partitionQueue) String() string { return fmt.Sprintf("%s/%d", q.topic.name, q.partition) }

// settled reports whether every row has its outcome and nothing is under way.
func (w *sim) settled() bool {
	if w.wrong > 0 || w.flying() > 0 || w.m.asking || w.m.jobOut || len(w.requests) > 0 || len(w.parked) > 0 || len(w.to) > w.publishing {
		return false
	}
	for _, l := range w.lines {
		for _, r := range l.rows {
			if r.pub != nil || !r.done && !r.failed && w.canGo(l) {
				return false
			}
		}
	}
	return true
}

// rest checks that nothing goes on when there is nothing to do, but what keeps topics and the
// producer id known.
func (w *sim) rest() {
	w.resting = true
	w.pass(w.m.cfg.refresh + 3*time.Second) // it hears of what came last
	asked, jobs, seals := len(w.asked), w.jobs, w.seals
	long := 2 * max(w.m.cfg.refresh, w.m.cfg.keepAlive)
	w.pass(long)
	w.checkRest(long, len(w.asked)-asked, w.jobs-jobs, w.seals-seals)
}

// pass lets time go by.
func (w *sim) pass(d time.Duration) {
	end := w.now.Add(d)
	w.after(d, func() {})
	for w.now.Before(end) {
		w.step()
	}
}

// requestKinds are for stories.
var requestKinds = map[exactlyonce.Kind]string{
	exactlyonce.Init: "init", exactlyonce.Add: "add", exactlyonce.Commit: "commit", exactlyonce.Abort: "abort", exactlyonce.Read: "read", exactlyonce.Last: "last", exactlyonce.Ends: "ends",
}

// scopeOf returns a scope with which the row may be withdrawn.
func (w *sim) scopeOf(r *outbox.Row) outbox.Scope {
	return []outbox.Scope{
		outbox.StreamScope(), outbox.ClusterScope("main"), outbox.TopicScope("main", r.Topic), outbox.TableScope(r.Table), outbox.KeyScope(r),
	}[w.IntN(5)]
}
