// Command mutants changes one condition or statement of a package at a time, and
// runs the package's own tests with this change (a mutant). A mutant that no test
// notices is a survivor: its line is not covered by the tests, or is not needed.
//
// With -rules the command shows instead that each rule of package checkpoint is
// needed (rules.go).
//
// The source tree is not changed. All mutants of a package are built into one test
// binary (`go test -c -overlay`), and a variable selects one. Each test, and each
// schedule of the core's simulation, is first run without a mutant. This run tells
// for which mutants the test makes a difference. A mutant is then run only with these
// tests, the quickest first. Survivors that are justified are listed, with their
// reason, in survivors.txt. The command fails if a survivor is not in that list, or
// if an entry of the list has no mutant or no survivor.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

type options struct {
	root, listed string
	results      string
	rules        string
	packages     []string
	files        []string // none: all
	trace        bool
	count, part  int
	schedules    int
	effort       time.Duration
	parts        int
	workers      int
	seed         uint64
	limit        time.Duration
	begin        time.Time
}

func main() {
	o := options{parts: 1, begin: time.Now()}
	var packages, files, part string
	flag.StringVar(&o.root, "root", ".", "the module's folder")
	flag.StringVar(&packages, "package", "checkpoint,sink", "which of "+strings.Join(names(), ", "))
	flag.StringVar(&files, "file", "", "which `files` of them, by name; none: all")
	flag.StringVar(&o.listed, "listed", "test/mutants/survivors.txt", "the survivors that are right")
	flag.IntVar(&o.schedules, "schedules", 3000, "how many schedules of a simulation there are at most to notice a mutant")
	flag.BoolVar(&o.trace, "trace", false, "tell of each survivor what it changes in the schedules, if anything")
	flag.DurationVar(&o.effort, "effort", 0, "the most processor time for the tests of one mutant, which also ends servers that tests start; 0: all that say something")
	flag.StringVar(&o.results, "results", "", "remember in this `file` what was judged; a run with it goes on where the last one ended")
	flag.IntVar(&o.count, "count", 0, "how many mutants, drawn by -seed; 0: all")
	flag.Uint64Var(&o.seed, "seed", 1, "what -count draws by, and the order")
	flag.StringVar(&part, "part", "1/1", "part `i/n` of them, so that n machines can share the work")
	flag.DurationVar(&o.limit, "for", 0, "begin no mutant after this time; 0: no limit")
	flag.StringVar(&o.rules, "rules", "", "show instead that these `rules` of package checkpoint are needed, or all")
	flag.IntVar(&o.workers, "workers", runtime.GOMAXPROCS(0), "how many at once")
	flag.Parse()
	o.packages = strings.Split(packages, ",")
	if files != "" {
		o.files = strings.Split(files, ",")
	}
	if _, err := fmt.Sscanf(part, "%d/%d", &o.part, &o.parts); err != nil || o.part < 1 || o.part > o.parts {
		fmt.Fprintf(os.Stderr, "mutants: -part is i/n, such as 2/3, not %q\n", part)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	work := run
	if o.rules != "" {
		work = judgeRules
	}
	if err := work(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run judges the chosen mutants and prints what became of them.
func run(ctx context.Context, o options) error {
	list, err := readList(filepath.Join(o.root, o.listed))
	if err != nil {
		return err
	}
	all, err := o.mutants()
	if err != nil {
		return err
	}
	unknown, chosen := list.unknown(all, o.packages), choose(o.inFiles(slices.Clone(all)), o)
	if len(chosen) == 0 {
		return fmt.Errorf("none of %d mutants in %s is in files %q", len(all), strings.Join(o.packages, ", "), o.files)
	}
	fmt.Printf("%d mutants in %s, %d of them now\n", len(all), strings.Join(o.packages, ", "), len(chosen))
	if err := judgeAll(ctx, o, all, chosen); err != nil {
		return err
	}
	return report(chosen, list, unknown)
}

func (o *options) mutants() ([]*mutant, error) {
	var all []*mutant
	for _, name := range o.packages {
		found, err := generate(o.root, name)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// inFiles returns the mutants of the wanted files.
func (o *options) inFiles(all []*mutant) []*mutant {
	if len(o.files) == 0 {
		return all
	}
	return slices.DeleteFunc(all, func(m *mutant) bool { return !slices.Contains(o.files, filepath.Base(m.file)) })
}

// choose draws what this run looks at, in an order that the seed decides.
func choose[T any](all []T, o options) []T {
	r := rand.New(rand.NewPCG(o.seed, 0)) // #nosec G404 -- a sample
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if o.count > 0 && o.count < len(all) {
		all = all[:o.count]
	}
	var chosen []T
	for i, item := range all {
		if i%o.parts == o.part-1 {
			chosen = append(chosen, item)
		}
	}
	return chosen
}

func judgeAll(ctx context.Context, o options, all, chosen []*mutant) error {
	known, err := o.known()
	if err != nil {
		return err
	}
	progress := &progress{total: len(chosen), done: map[fate]int{}}
	for _, name := range o.packages {
		of := func(m *mutant) bool { return m.pkg == name }
		if i := slices.IndexFunc(chosen, of); i >= 0 {
			if err := judgePackage(ctx, o, name, filter(all, of), filter(chosen, of), known, progress); err != nil {
				return err
			}
		}
	}
	return nil
}

func filter(all []*mutant, of func(*mutant) bool) []*mutant {
	return slices.DeleteFunc(slices.Clone(all), func(m *mutant) bool { return !of(m) })
}

func judgePackage(ctx context.Context, o options, name string, all, chosen []*mutant, known map[string]fate, progress *progress) error {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	begin := time.Now()
	court, err := judges[name].convene(ctx, o, name, dir, all)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s: %d tests and %d schedules pass without a mutant; %s to build and run them\n",
		name, len(court.tests), len(court.seeds), time.Since(begin).Round(time.Second))
	err = each(ctx, o, chosen, func(dir string, m *mutant) {
		switch was, judged := known[m.key()]; {
		case judged:
			m.fate = was
		case m.fate == waiting:
			m.fate = court.judge(ctx, dir, m, o.effort)
			o.remember(m)
		}
		progress.add(m)
	})
	if err == nil && o.trace && len(court.seeds) > 0 {
		err = court.trace(ctx, o, filter(chosen, func(m *mutant) bool { return m.fate == alive }))
	}
	return err
}

// each works on items, several at once, each of these in a folder of its own. It begins
// none after the limit.
func each[T any](ctx context.Context, o options, items []T, work func(dir string, item T)) error {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	next := make(chan T)
	var group sync.WaitGroup
	for i := range o.workers {
		group.Go(func() {
			for item := range next {
				work(filepath.Join(dir, fmt.Sprint(i)), item)
			}
		})
	}
	for _, item := range items {
		if ctx.Err() != nil || o.limit > 0 && time.Since(o.begin) > o.limit {
			break
		}
		next <- item
	}
	close(next)
	group.Wait()
	return ctx.Err()
}

// progress tells of each survivor at once, and every half minute how far it is.
type progress struct {
	mu    sync.Mutex
	total int
	done  map[fate]int
	said  time.Time
}

func (p *progress) add(m *mutant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[m.fate]++
	if m.fate == alive {
		fmt.Printf("ALIVE %s:%d: %s\n", m.file, m.line, m.change())
	}
	if time.Since(p.said) > 30*time.Second {
		p.said = time.Now()
		fmt.Fprintf(os.Stderr, "%d of %d: %d killed, %d alive, %d unbuilt\n",
			p.done[killed]+p.done[alive]+p.done[unbuilt], p.total, p.done[killed], p.done[alive], p.done[unbuilt])
	}
}

// report sums up per package and fails on what the list does not explain.
func report(chosen []*mutant, list *list, unknown []string) error {
	counts := map[string]map[fate]int{}
	var bad []string
	for _, m := range chosen {
		if counts[m.pkg] == nil {
			counts[m.pkg] = map[fate]int{}
		}
		counts[m.pkg][m.fate]++
		reason, listed := list.reasons[m.key()]
		switch {
		case m.fate == alive && !listed:
			bad = append(bad, "no test notices it, and it is not listed:\n  "+m.key())
		case m.fate == killed && listed:
			bad = append(bad, fmt.Sprintf("listed as a survivor (%s), and a test notices it:\n  %s", reason, m.key()))
		}
	}
	for _, key := range unknown {
		bad = append(bad, "listed as a survivor, and there is no such mutant:\n  "+key)
	}
	for name, c := range counts {
		fmt.Printf("%s: %d killed, %d alive, %d unbuilt, %d not run\n", name, c[killed], c[alive], c[unbuilt], c[waiting])
	}
	if len(bad) > 0 {
		return fmt.Errorf("%s\n%d in all", strings.Join(bad, "\n"), len(bad))
	}
	return nil
}
