package checkpoint

// The simulation runs the Core in a made-up world (sim_*_test.go): a database, a
// slot, Kafka, one or two processes, and faults of all of them (the events of
// sim_run_test.go), in an order that a seed decides. After each step and at the end the invariants I1 to
// I12 of docs/internals/design.md are checked, and some more rules, which have names:
// "contract" is what the Core and its driver promise each other (see Ready); "parts" is
// what the parts of the Core promise about themselves (parts_test.go); "busy" is that no
// request is repeated without end; "missed" is that the watch finds only rows that the
// stream missed; and "block" is that a blocked key waits for the operator.
//
//	go test ./checkpoint -run 'TestSimulation$'                     3,000 seeds
//	go test ./checkpoint -run 'TestSimulation$' -sim.seeds=100000   more of them
//	go test ./checkpoint -run 'TestSimulation$' -sim.seed=42 -v     one, with its story
//	go test ./checkpoint -run 'TestWorldRulesMatter$' -v            each rule is needed
//
// -sim.from says which seed to begin with, -sim.full prints the story of a
// failing seed in full and not only what concerns its row.

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	simSeeds = flag.Int("sim.seeds", defaultSeeds, "how many seeds TestSimulation runs")
	simFrom  = flag.Uint64("sim.from", 1, "the first seed")
	simSeed  = flag.Uint64("sim.seed", 0, "run this seed alone and print its story")
	simAll   = flag.Bool("sim.all", false, "run all seeds, count what breaks, and print the shortest story of each")
	simRule  = flag.String("sim.rule", "", "run in the world in which this rule is needed often (see rules_test.go)")
	simFull  = flag.Bool("sim.full", false, "print stories in full")
)

// switches are the rules that a run does without, and the world it runs in.
type switches struct {
	world worldRules
	// often are faults that every seed has, so that what needs them is found soon.
	often []eventKind
	// about changes every seed's plan, if it is not nil.
	about func(*plan)
}

// simulate runs one seed. With steps < 0, it runs as many steps as the seed's plan says.
func simulate(seed uint64, off switches, steps int, trace func(string, ...any)) (v *violation, planned int) {
	p := drawPlan(rand.New(rand.NewPCG(seed, 2)), off.often)
	if off.about != nil {
		off.about(&p)
	}
	w := newWorld(randomChooser{rand.New(rand.NewPCG(seed, 1))}, p)
	w.off, w.trace = off.world, trace
	if steps < 0 {
		steps = w.plan.steps
	}
	defer func() {
		if p := recover(); p != nil {
			w.bad = nil
			w.fail("panic", nil, "%v\n%s", p, stack())
			v = w.bad
		}
	}()
	return w.run(steps), w.plan.steps
}

func stack() string {
	buf := make([]byte, 4096)
	return string(buf[:runtime.Stack(buf, false)])
}

// shrink looks for the smallest number of steps with faults that still breaks an invariant.
func shrink(seed uint64, off switches, planned int) int {
	best := planned
	for n := 10; n < planned; n += max(1, planned/60) {
		if v, _ := simulate(seed, off, n, nil); v != nil {
			best = n
			break
		}
	}
	return best
}

// story returns the story of a seed's run, as far as it is about the broken row.
func story(seed uint64, off switches, steps int) string {
	var lines []string
	v, _ := simulate(seed, off, steps, func(format string, args ...any) {
		lines = append(lines, fmt.Sprintf(format, args...))
	})
	if v != nil && v.row != nil && !*simFull {
		lines = slices.DeleteFunc(lines, func(line string) bool { return !concerns(line, v.row) })
	}
	return strings.Join(lines, "\n")
}

// concerns drops lines about other rows.
func concerns(line string, r *dbRow) bool {
	for _, dull := range []string{"status", "keepalive", "requests "} {
		if strings.Contains(line, dull) {
			return false
		}
	}
	if strings.Contains(line, "row ") && !r.null && !strings.Contains(line, "key "+r.key) {
		return strings.Contains(line, "row "+r.id)
	}
	return true
}

// firstBroken runs seeds until one breaks an invariant, and returns it; 0: none did.
func firstBroken(from uint64, n int, off switches) (seed uint64, v *violation) {
	var next atomic.Uint64
	var found atomic.Bool
	var mu sync.Mutex
	var group sync.WaitGroup
	next.Store(from)
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for s := next.Add(1) - 1; s < from+uint64(n) && !found.Load(); s = next.Add(1) - 1 {
				if bad, _ := simulate(s, off, -1, nil); bad != nil {
					found.Store(true)
					mu.Lock()
					if v == nil || s < seed {
						seed, v = s, bad
					}
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	return seed, v
}

func TestSimulation(t *testing.T) {
	t.Parallel()
	playSeeds(t, *simSeeds, worldOf(*simRule))
}

// playSeeds fails with the story of the first seed that breaks an invariant.
func playSeeds(t *testing.T, n int, world switches) {
	from := *simFrom
	if *simSeed != 0 {
		from, n = *simSeed, 1
		t.Log(story(*simSeed, world, -1))
	}
	if *simAll {
		census(t, from, n, world)
		return
	}
	seed, v := firstBroken(from, n, world)
	if v == nil {
		return
	}
	_, planned := simulate(seed, world, 0, nil)
	steps := shrink(seed, world, planned)
	t.Fatalf("seed %d: %v\nrepeat with: go test ./checkpoint -run '%s$' -sim.seed=%d -v\nits story with %d of %d steps:\n%s",
		seed, v, t.Name(), seed, steps, planned, story(seed, world, steps))
}

// census counts what breaks over all seeds.
func census(t *testing.T, from uint64, n int, world switches) {
	var mu sync.Mutex
	var group sync.WaitGroup
	var next atomic.Uint64
	counts := map[string][]uint64{}
	next.Store(from)
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for s := next.Add(1) - 1; s < from+uint64(n); s = next.Add(1) - 1 {
				if bad, _ := simulate(s, world, -1, nil); bad != nil {
					mu.Lock()
					kind := bad.invariant
					if kind == "I11" {
						kind += bad.text[max(0, len(bad.text)-40):]
					}
					if kind == "panic" || kind == "contract" {
						kind += " " + bad.text[:min(60, len(bad.text))]
					}
					counts[kind] = append(counts[kind], s)
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	for kind, seeds := range counts {
		slices.Sort(seeds)
		t.Errorf("%s: %d of %d seeds: %v", kind, len(seeds), n, seeds[:min(8, len(seeds))])
	}
}
