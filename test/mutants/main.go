// Command mutants changes one condition or statement of a package at a time and
// runs the package's own tests on it. A change that no test notices (a survivor)
// is a line that the tests do not hold, or that nothing needs.
//
// With -rules it shows instead that each rule of package checkpoint is needed
// (rules.go).
//
// The tree is not changed: each mutant is built with `go test -c -overlay`.
// Survivors that are right are listed, with their reason, in survivors.txt. One
// that is not listed there is a failure, and so is an entry that no mutant or no
// survivor answers to.
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
	rules        string
	packages     []string
	files        []string // none: all
	count, part  int
	parts        int
	workers      int
	seed         uint64
	limit        time.Duration
}

func main() {
	o := options{parts: 1}
	var packages, files, part string
	flag.StringVar(&o.root, "root", ".", "the module's folder")
	flag.StringVar(&packages, "package", "checkpoint,sink", "which of "+strings.Join(names(), ", "))
	flag.StringVar(&files, "file", "", "which `files` of them, by name; none: all")
	flag.StringVar(&o.listed, "listed", "test/mutants/survivors.txt", "the survivors that are right")
	flag.IntVar(&o.count, "count", 0, "how many mutants, drawn by -seed; 0: all")
	flag.Uint64Var(&o.seed, "seed", 1, "what -count draws by, and the order")
	flag.StringVar(&part, "part", "1/1", "part `i/n` of them, so that n machines can share the work")
	flag.DurationVar(&o.limit, "for", 30*time.Minute, "begin no mutant after this time; 0: no limit")
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
	unknown, chosen := list.unknown(all, o.packages), choose(o.inFiles(all), o)
	if len(chosen) == 0 {
		return fmt.Errorf("none of %d mutants in %s is in files %q", len(all), strings.Join(o.packages, ", "), o.files)
	}
	fmt.Printf("%d mutants in %s, %d of them now\n", len(all), strings.Join(o.packages, ", "), len(chosen))
	if err := judgeAll(ctx, o, chosen); err != nil {
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

// inFiles are the mutants of the wanted files.
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

func judgeAll(ctx context.Context, o options, chosen []*mutant) error {
	for _, name := range o.packages {
		if !slices.ContainsFunc(chosen, func(m *mutant) bool { return m.pkg == name }) {
			continue
		}
		if err := judges[name].measure(ctx, o.root, name); err != nil {
			return fmt.Errorf("package %s without any change: %w", name, err)
		}
	}
	progress := &progress{total: len(chosen), done: map[fate]int{}}
	return each(ctx, o, chosen, func(dir string, m *mutant) {
		m.fate = judges[m.pkg].judge(ctx, o.root, dir, m)
		progress.add(m)
	})
}

// each works on items, several at once, each of these in a folder of its own. It begins
// none after the limit.
func each[T any](ctx context.Context, o options, items []T, work func(dir string, item T)) error {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	begin, next := time.Now(), make(chan T)
	var group sync.WaitGroup
	for i := range o.workers {
		group.Go(func() {
			for item := range next {
				work(filepath.Join(dir, fmt.Sprint(i)), item)
			}
		})
	}
	for _, item := range items {
		if ctx.Err() != nil || o.limit > 0 && time.Since(begin) > o.limit {
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
