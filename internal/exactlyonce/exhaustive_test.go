package exactlyonce

import (
	"flag"
	"strings"
	"testing"
)

var (
	simWindow = flag.Int("sim.window", 0, "steps after a first deviation in which TestExhaustive tries a second one")
	simStride = flag.Int("sim.stride", 1, "TestExhaustive tries every n-th first deviation with a second one")
)

// TestExhaustive plays a small case in a fixed order, and then once for every deviation from it at every
// step: every request is lost before or after it took effect, or is delayed and arrives at every later
// step; every kill, takeover, timeout, failover, lock and requeue happens; every two things happen in the
// other order. Each of these runs is repeated with a second deviation near the first one. With -short,
// deviations are at every fourth step, and delayed requests arrive at every tenth.
func TestExhaustive(t *testing.T) {
	steps, arrivals := 1, 1
	if testing.Short() {
		steps, arrivals = 4, 10
	}
	for _, stateless := range []bool{false, true} {
		e := explorer{t: t, stateless: stateless, stride: arrivals}
		n := e.length()
		for first := 0; first < n; first += steps {
			for i := 0; e.play(deviation{first, i}); i++ {
				if strings.HasPrefix(e.last, "delay ") {
					e.arrivals(first, i, n)
				}
				if (first+i)%*simStride == 0 {
					e.seconds(first, i)
				}
			}
		}
		t.Logf("stateless %v: %d steps, %d schedules", stateless, n, e.runs)
	}
}

type deviation struct{ step, choice int }

type explorer struct {
	t         *testing.T
	stateless bool
	stride    int // number of steps between the steps at which a delayed request arrives
	runs      int
	last      string // the last deviation made
}

func (e *explorer) setup() *world {
	w := newWorld(0, 2)
	w.stateless = e.stateless
	w.cfg.MaxRows = 2
	w.insert("a", 0, true)
	w.script = []func(){
		func() { w.insert("b", 1, e.stateless) }, // where visibility matters, the row becomes visible later
		func() { w.insert("a", 0, true) },
	}
	w.start()
	return w
}

func (e *explorer) length() int {
	w := e.setup()
	w.run()
	return w.steps
}

// arrivals plays the case again for each later step, at which the delayed request takes effect.
func (e *explorer) arrivals(step, choice, n int) {
	for later := step + 1; later < n+40; later += e.stride {
		e.play(deviation{step, choice}, deviation{later, -1})
	}
}

func (e *explorer) seconds(step, choice int) {
	for later := step + 1; later <= step+*simWindow; later++ {
		for i := 0; e.play(deviation{step, choice}, deviation{later, i}); i++ {
		}
	}
}

// play plays the case with these deviations. It reports whether each of them had its alternative.
func (e *explorer) play(deviations ...deviation) bool {
	w := e.setup()
	for w.violation == nil {
		if len(deviations) > 0 && w.steps >= deviations[0].step {
			all := w.alternatives()
			d := deviations[0]
			deviations = deviations[1:]
			switch {
			case d.choice < 0:
				w.arriveAll()
				continue
			case d.choice >= len(all):
				return false
			}
			e.last = all[d.choice].name
			w.do(all[d.choice])
			continue
		}
		next := w.progress()
		if len(next) == 0 || w.steps > 1500 {
			break
		}
		w.do(next[0])
	}
	w.settle()
	e.runs++
	if w.violation != nil {
		e.t.Fatalf("stateless %v, %q: %v\n%s", e.stateless, e.last, w.violation, strings.Join(w.story, "\n"))
	}
	return true
}

// arriveAll lets all delayed requests take effect now.
func (w *world) arriveAll() {
	for _, m := range w.net {
		if w.held[m] {
			delete(w.held, m)
			w.do(action{"late: " + m.what(), func() { w.handle(m) }})
		}
	}
}

// alternatives returns what can happen instead of the next action.
func (w *world) alternatives() []action {
	out := w.progress()
	if len(out) > 0 {
		out = out[1:]
	}
	add := func(when bool, name string, do func()) {
		if when {
			out = append(out, action{name, do})
		}
	}
	for _, m := range w.net {
		add(!m.lost, "lose "+m.what(), func() { w.lose(m) })
		add(!m.lost && !m.handled, "delay "+m.what(), func() { w.held[m] = true; w.lose(m) })
	}
	for _, p := range w.procs {
		add(true, "kill", func() { w.kill(p) })
		add(true, "kill and start", func() { w.kill(p); w.start() })
		add(p.m != nil && p.phase == running, "gives up", func() { p.m.GiveUp(); p.take() })
		add(p.m != nil && p.phase == running, "keeps its id alive", func() { p.m.KeepAlive(); p.take() })
	}
	add(len(w.procs) < 3, "takeover", func() { w.start() })
	add(w.kafka.coord.state == ongoing, "timeout", w.timeout)
	for back := range 3 {
		add(true, "failover", func() { w.failover(back) })
	}
	for i := range w.db.rows {
		r := w.db.rows[i]
		add(r.status == sent && !w.stateless, "requeue", func() { w.requeue(i) })
		add(r.status == pending && !w.stateless && !w.locked[r.content], "lock", func() { w.locked[r.content] = true })
		add(w.locked[r.content], "unlock", func() { delete(w.locked, r.content) })
		add(!r.visible, "visible", func() { w.db.rows[i].visible = true })
		add(r.visible && !w.stateless, "id again", func() { w.reinsert(i) })
		add(!w.poison[r.content] && !w.stateless && r.status == pending, "too large from now on", func() { w.poison[r.content] = true })
	}
	for _, l := range w.kafka.logs {
		add(!l.down, "no leader", func() { l.down = true })
		add(l.down, "leader", func() { l.down = false })
	}
	return out
}
