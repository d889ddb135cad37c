package exactlyonce

import (
	"flag"
	"strconv"
	"strings"
	"testing"
)

var (
	simSeeds = flag.Int("sim.seeds", 2000, "schedules of TestSimulation")
	simSeed  = flag.Uint64("sim.seed", 0, "one schedule of TestSimulation, with its story")
	simKinds = flag.Int("sim.kinds", 0, "only the first kinds of faults (see faults)")
	simOff   = flag.String("sim.off", "", "rules of the simulated surroundings to switch off")
)

// TestSimulation plays random schedules, with faults of every kind at any step.
func TestSimulation(t *testing.T) {
	if *simSeed > 0 {
		w := play(*simSeed)
		t.Log("\n" + strings.Join(w.story, "\n"))
		if w.violation != nil {
			t.Fatal(w.violation)
		}
		return
	}
	if testing.Short() { // -short also comes with the race detector, which cannot find anything: there is one goroutine
		*simSeeds = min(*simSeeds, 200)
	}
	happened := map[string]int{}
	for seed := range uint64(*simSeeds) {
		w := play(seed + 1)
		if w.violation != nil {
			t.Fatalf("seed %d, step %d: %v", seed+1, w.steps, w.violation)
		}
		happened["steps"] += w.steps
		for what, n := range w.happened {
			happened[what] += n
		}
	}
	t.Log(happened)
}

// play plays one random schedule.
func play(seed uint64) *world {
	w := newWorld(seed, 3)
	w.kafka.drops = seed%2 == 0
	w.knownParts = 1 + w.rng.IntN(3)
	w.cfg.UnitRows, w.cfg.UnitBytes, w.cfg.PageBytes = 1+w.rng.IntN(2), 100+w.rng.IntN(200), 1+w.rng.IntN(400)
	w.stateless = w.rng.IntN(4) == 0
	w.kinds = []int{2, 3, 4, 6, 6}[w.rng.IntN(5)] // some schedules have faults of the network only, others of processes, too
	if *simKinds > 0 {
		w.kinds = *simKinds
	}
	trouble := 2 + w.rng.IntN(20) // one fault in this many steps
	if !w.stateless && w.rng.IntN(3) == 0 {
		w.oldMode()
	}
	w.start()
	for range 40 + w.rng.IntN(260) {
		if w.violation != nil {
			return w
		}
		next := w.progress()
		if len(next) == 0 || w.rng.IntN(trouble) == 0 {
			next = w.faults()
		}
		if len(next) == 0 {
			continue
		}
		i := 0
		if w.rng.IntN(3) > 0 {
			i = w.rng.IntN(len(next))
		}
		w.do(next[i])
	}
	w.settle()
	return w
}

// oldMode leaves what a killed process that delivered at least once leaves: rows that it published without
// marking them, and batches under way.
func (w *world) oldMode() {
	c := &w.kafka.coord
	c.epoch = 3
	for range 1 + w.rng.IntN(3) {
		w.insert("k0", 0, true)
		r := w.db.rows[len(w.db.rows)-1].record(false)
		w.legacy = append(w.legacy, &legacyBatch{Partition{"t", 0}, c.epoch, r})
	}
}

// faults returns the faults that can happen now, of a kind chosen at random.
func (w *world) faults() []action {
	var groups [][]action
	kinds := [][]action{w.inserts(), w.cuts(), w.ends(), w.onRows(), w.onServers(), w.onTopics()}
	for _, group := range kinds[:w.kinds] {
		if len(group) > 0 {
			groups = append(groups, group)
		}
	}
	if len(groups) == 0 {
		return nil
	}
	return groups[w.rng.IntN(len(groups))]
}

type actions []action

func (a *actions) add(when bool, name string, do func()) {
	if when {
		*a = append(*a, action{name, do})
	}
}

func (w *world) inserts() (out actions) {
	n := w.rng.IntN(4)
	key, part, room := "k"+strconv.Itoa(n), int32(n%3), w.contents < 14
	out.add(room, "", func() { w.insert(key, part, w.stateless || w.rng.IntN(4) > 0) })
	out.add(room, "", func() { w.insert(key, part, true) })
	out.add(room && !w.stateless, "poison", func() {
		w.insert(key, part, true)
		w.poison[w.db.rows[len(w.db.rows)-1].content] = true
	})
	return out
}

func (w *world) cuts() (out actions) {
	for _, m := range w.net {
		out.add(!m.lost, "", func() { w.lose(m) })
		out.add(m.lost && !m.handled, "drop "+m.what(), func() { w.remove(m) })
		out.add(w.held[m], "late: "+m.what(), func() { delete(w.held, m); w.handle(m) })
	}
	return out
}

func (w *world) ends() (out actions) {
	for _, p := range w.procs {
		out.add(true, "", func() { w.kill(p) })
		out.add(p.m != nil && p.phase == running, p.name+" gives up", func() { p.m.GiveUp(); p.take() })
		out.add(p.m != nil && p.phase == running, p.name+" keeps its id alive", func() { p.m.KeepAlive(); p.take() })
	}
	out.add(len(w.procs) < 3, "takeover", func() { w.start() })
	out.add(w.kafka.coord.state == ongoing, "timeout", w.timeout)
	return out
}

func (w *world) onRows() (out actions) {
	for i := range w.db.rows {
		r := &w.db.rows[i]
		out.add(!r.visible, "visible "+r.content, func() { r.visible = true })
		if w.stateless {
			continue
		}
		out.add(r.status == sent && w.requeued[r.content] < 2, "", func() { w.requeue(i) })
		out.add(r.visible && w.rng.IntN(8) == 0 && w.contents < 14, "", func() { w.reinsert(i) })
		if r.status != pending {
			continue
		}
		out.add(w.locked[r.content], "unlock "+r.content, func() { delete(w.locked, r.content) })
		out.add(!w.locked[r.content], "lock "+r.content, func() { w.locked[r.content] = true })
		out.add(!w.poison[r.content] && w.rng.IntN(6) == 0, "too large from now on: "+r.content, func() { w.poison[r.content] = true })
	}
	return out
}

func (w *world) onServers() (out actions) {
	back := w.rng.IntN(4)
	out.add(w.rng.IntN(2) == 0, "", func() { w.failover(back) })
	for _, l := range w.kafka.logs {
		out.add(!l.down, "no leader for "+l.at.Topic, func() { l.down = true })
		out.add(l.down, "leader for "+l.at.Topic, func() { l.down = false })
	}
	return out
}

func (w *world) onTopics() (out actions) {
	if w.stateless {
		return nil // otherwise their rows would wait for ever
	}
	for _, l := range w.kafka.logs[1:] {
		out.add(!w.missing[l.at], "topic missing", func() { w.missing[l.at] = true })
		out.add(w.missing[l.at], "topic there", func() { delete(w.missing, l.at) })
		out.add(!w.forbidden[l.at], "topic forbidden", func() { w.forbidden[l.at] = true })
		out.add(w.forbidden[l.at], "topic allowed", func() { delete(w.forbidden, l.at) })
	}
	return out
}
