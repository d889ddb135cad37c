package exactlyonce

import (
	"flag"
	"strings"
	"testing"
)

var (
	simSeeds = flag.Int("sim.seeds", 2000, "schedules of TestSimulation")
	simSeed  = flag.Uint64("sim.seed", 0, "one schedule of TestSimulation, with its story")
	simOff   = flag.String("sim.off", "", "rules of the simulated surroundings to switch off")
)

// TestSimulation plays random schedules: faults of every kind at any step.
func TestSimulation(t *testing.T) {
	if *simSeed > 0 {
		w := play(*simSeed)
		t.Log("\n" + strings.Join(w.story, "\n"))
		if w.violation != nil {
			t.Fatal(w.violation)
		}
		return
	}
	for seed := range uint64(*simSeeds) {
		if w := play(seed + 1); w.violation != nil {
			t.Fatalf("seed %d, step %d: %v", seed+1, w.steps, w.violation)
		}
	}
}

// play is one random schedule.
func play(seed uint64) *world {
	w := newWorld(seed, 3)
	w.knownParts = 1 + w.rng.IntN(3)
	w.stateless = w.rng.IntN(4) == 0
	trouble := 2 + w.rng.IntN(20) // one fault in so many steps
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

// oldMode leaves behind what a process of at_least_once does that was killed: rows that
// it published without marking them, and batches on their way.
func (w *world) oldMode() {
	c := &w.kafka.coord
	c.epoch = 3
	for range 1 + w.rng.IntN(3) {
		w.insert("k0", 0, true)
		r := w.db.rows[len(w.db.rows)-1].record(false)
		w.legacy = append(w.legacy, &legacyBatch{Partition{"t", 0}, c.epoch, r})
	}
}

// faults are what can happen besides progress.
func (w *world) faults() []action {
	var out []action
	add := func(when bool, name string, do func()) {
		if when {
			out = append(out, action{name, do})
		}
	}
	key := w.rng.IntN(4)
	part := int32(key % 3)
	add(w.contents < 14, "", func() { w.insert("k"+string(rune('0'+key)), part, w.stateless || w.rng.IntN(4) > 0) })
	add(w.contents < 14, "", func() { w.insert("k"+string(rune('0'+key)), part, true) })
	add(w.contents < 14 && !w.stateless, "poison", func() {
		w.insert("k"+string(rune('0'+key)), part, true)
		w.poison[w.db.rows[len(w.db.rows)-1].content] = true
	})
	for _, m := range w.net {
		if m.lost {
			add(!m.handled, "drop "+m.what(), func() { w.remove(m) })
			add(w.held[m], "late: "+m.what(), func() { delete(w.held, m); w.handle(m) })
		} else {
			add(true, "", func() { w.lose(m) })
		}
	}
	for _, p := range w.procs {
		add(true, "", func() { w.kill(p) })
		add(p.m != nil && p.phase == running, p.name+" gives up", func() { p.m.GiveUp(); p.take() })
		add(p.m != nil && p.phase == running, p.name+" keeps its id alive", func() { p.m.KeepAlive(); p.take() })
	}
	add(len(w.procs) < 3, "takeover", func() { w.start() })
	add(true, "timeout", w.timeout)
	for i := range w.db.rows {
		r := &w.db.rows[i]
		add(r.status == sent && !w.stateless && w.requeued[r.content] < 2, "", func() { w.requeue(i) })
		add(!r.visible, "visible "+r.content, func() { r.visible = true })
		add(r.status == pending && !w.stateless && w.locked[r.content], "unlock "+r.content, func() { delete(w.locked, r.content) })
		add(r.status == pending && !w.stateless && !w.locked[r.content], "lock "+r.content, func() { w.locked[r.content] = true })
		add(r.visible && !w.stateless && w.rng.IntN(8) == 0 && w.contents < 14, "", func() { w.reinsert(i) })
	}
	back := w.rng.IntN(4)
	add(w.rng.IntN(3) == 0, "", func() { w.failover(back) })
	for _, l := range w.kafka.logs {
		add(!l.down, "no leader for "+l.at.Topic, func() { l.down = true })
		add(l.down, "leader for "+l.at.Topic, func() { l.down = false })
		add(!w.stateless && l.at != journalAt && !w.missing[l.at], "topic missing", func() { w.missing[l.at] = true })
		add(!w.stateless && l.at != journalAt && !w.forbidden[l.at], "topic forbidden", func() { w.forbidden[l.at] = true })
		add(w.forbidden[l.at], "topic allowed", func() { delete(w.forbidden, l.at) })
		add(w.missing[l.at], "topic there", func() { delete(w.missing, l.at) })
	}
	return out
}
