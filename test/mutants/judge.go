package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// judge says which tests decide over a package's mutants. Only tests of the package
// itself count, so that each is held by those that stand next to it.
type judge struct {
	files     []string // which files are changed; none: all
	skip      string   // tests that say nothing of a mutant, or take too long
	schedules string   // what seeds_test.go.txt needs of the package's simulation; empty: there is none
}

// judges are the packages whose mutants are looked at.
var judges = map[string]*judge{
	"checkpoint": {skip: "^Test(Simulation|SimulationOnce|RulesMatter|OnceRulesMatter)$", schedules: coreSeeds},
	"sink": {skip: "^TestSimulation$", schedules: sinkSeeds, files: []string{
		"machine.go", "machine_commands.go", "machine_send.go", "machine_reply.go", "machine_topics.go", "machine_fence.go", "machine_time.go",
		"machine_transactions.go", "batch.go", "codes.go", "partition_queue.go", "queue.go", "topic.go", "partition.go",
	}},
	"replication":        {files: []string{"judge.go", "plan.go", "message.go", "frames.go", "gather.go", "names.go"}},
	"statusupdater":      {},
	"internal/preflight": {files: []string{"judge_kafka.go", "judge_server.go", "judge_slot.go", "judge_table.go", "differences.go"}},
	"internal/mapping":   {},
	"decoder":            {},
}

func names() []string {
	var all []string
	for name := range judges {
		if !strings.HasPrefix(name, "test/") {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func (j *judge) includes(file string) bool {
	return len(j.files) == 0 || slices.Contains(j.files, file)
}

// memory is the address space that a mutant may use, in KiB: one that fills
// memory without end must not take the machine along.
const memory = 8 << 20

// A mutant that takes more than several times what the package as it is takes hangs. On
// the processor, since others use the machine, too; by the clock it may just wait.
const (
	slack   = 3 * time.Second
	waits   = time.Minute
	several = 5
)

// court is a package with all its mutants in one binary, and what its tests say of them.
type court struct {
	in      string // the package's folder
	binary  string
	tests   []witness // the quickest first
	seeds   []witness
	mutants int
}

// witness is a test or a schedule, and the mutants that made a difference in it.
type witness struct {
	name string
	took time.Duration
	hits []bool
}

// convene builds the package with its mutants and lets its tests run without any: they must pass.
func (j *judge) convene(ctx context.Context, o options, name, dir string, mutants []*mutant) (*court, error) {
	c := &court{in: filepath.Join(o.root, name), binary: filepath.Join(dir, "all.test"), mutants: len(mutants)}
	for i, m := range mutants {
		m.number = i + 1
	}
	if err := c.build(ctx, o.root, dir, name, mutants, j.schedules); err != nil {
		return nil, err
	}
	err := errors.Join(c.hear(ctx, o, j, dir), c.hearSchedules(ctx, o, j))
	return c, err
}

// build leaves out mutants that cannot be built, until the others can.
func (c *court) build(ctx context.Context, root, dir, name string, mutants []*mutant, schedules string) error {
	for {
		overlay, err := c.overlay(root, dir, name, mutants, schedules)
		if err != nil {
			return err
		}
		out, err := compile(ctx, root, name, c.binary, overlay)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if !removeUnbuilt(out, mutants) {
			return fmt.Errorf("package %s with its mutants: %w\n%s", name, err, out)
		}
	}
}

var compileError = regexp.MustCompile(`([a-z0-9_]+\.go):(\d+):\d+: `)

// removeUnbuilt marks the mutants of the lines that the compiler complains about.
func removeUnbuilt(out string, mutants []*mutant) (some bool) {
	for _, found := range compileError.FindAllStringSubmatch(out, -1) {
		line, _ := strconv.Atoi(found[2])
		for _, m := range mutants {
			if m.fate != unbuilt && filepath.Base(m.file) == found[1] && m.line <= line && line <= m.lastLine && len(m.edits) > 0 {
				m.fate, m.edits, some = unbuilt, nil, true
			}
		}
	}
	return some
}

//go:embed runtime.go.txt
var runtimeText string

//go:embed seeds_test.go.txt
var seedsText string

//go:embed seeds_core_test.go.txt
var coreSeeds string

//go:embed seeds_sink_test.go.txt
var sinkSeeds string

// overlay writes the files with their mutants and go's description of where they belong.
func (c *court) overlay(root, dir, name string, mutants []*mutant, schedules string) (string, error) {
	files := map[string][]byte{}
	fill := strings.NewReplacer("PACKAGE", path.Base(name), "MUTANTS", strconv.Itoa(len(mutants)))
	files[filepath.Join(root, name, "mutants_overlay.go")] = []byte(fill.Replace(runtimeText))
	if schedules != "" {
		files[filepath.Join(root, name, "mutants_overlay_test.go")] = []byte(fill.Replace(seedsText))
		files[filepath.Join(root, name, "mutants_schedules_test.go")] = []byte(schedules)
	}
	of := map[string][]*mutant{}
	for _, m := range mutants {
		of[m.file] = append(of[m.file], m)
	}
	for file, mutants := range of {
		source, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return "", err
		}
		files[filepath.Join(root, file)] = []byte(withMutants(string(source), mutants, func(m *mutant) int { return m.number }))
	}
	return overlayOf(dir, files)
}

// hear runs each test alone.
func (c *court) hear(ctx context.Context, o options, j *judge, dir string) error {
	listed, err := execute(ctx, c.in, c.binary, []string{"-test.list=^(Test|Fuzz|Example)"})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, listed)
	}
	skip := regexp.MustCompile(cmp.Or(j.skip, "^$"))
	var mu sync.Mutex
	var bad error
	var names []string
	for name := range strings.FieldsSeq(listed) {
		if !skip.MatchString(name) && !strings.HasPrefix(name, "TestMutant") && regexp.MustCompile("^(Test|Fuzz|Example)").MatchString(name) {
			names = append(names, name)
		}
	}
	o.limit = 0
	err = each(ctx, o, names, func(_ string, name string) {
		hits := filepath.Join(dir, name)
		env := []string{"MUTANT_HITS=" + hits}
		if o.effort > 0 {
			env = append(env, cpuLimit+strconv.Itoa(1+int(o.effort.Seconds())))
		}
		begin := time.Now()
		out, took, err := measure(ctx, c.in, c.binary, testArgs([]string{name}), env...)
		took = max(took, time.Since(begin)/4) // while one waits, a few others go on
		var exit *exec.ExitError
		if o.effort > 0 && (took > o.effort || errors.As(err, &exit) && !exit.Exited()) {
			return // too much for one mutant; the kernel counts other than it tells
		}
		seen, _ := os.ReadFile(hits) // #nosec G304 -- ours; none: nothing was hit
		mu.Lock()
		defer mu.Unlock()
		w := witness{name: name, took: took, hits: make([]bool, c.mutants+1)}
		for hit := range strings.FieldsSeq(string(seen)) {
			n, _ := strconv.Atoi(hit)
			w.hits[n] = true
		}
		c.tests = append(c.tests, w)
		if err != nil {
			bad = errors.Join(bad, fmt.Errorf("%s without any change: %w\n%s", name, err, out))
		}
	})
	slices.SortFunc(c.tests, func(a, b witness) int { return cmp.Compare(a.took, b.took) })
	return errors.Join(err, bad)
}

// hearSchedules runs the simulation, a part of the schedules on each processor.
func (c *court) hearSchedules(ctx context.Context, o options, j *judge) error {
	if j.schedules == "" {
		return nil
	}
	var parts [][]int
	for i := range o.schedules {
		if i < o.workers {
			parts = append(parts, nil)
		}
		parts[i%o.workers] = append(parts[i%o.workers], i+1)
	}
	var mu sync.Mutex
	var bad error
	o.limit = 0
	err := each(ctx, o, parts, func(in string, part []int) {
		out, err := c.play(ctx, in, part, "MUTANT_SEEN="+filepath.Join(in, "seen"))
		seen, _ := os.ReadFile(filepath.Join(in, "seen")) // #nosec G304 -- ours
		mu.Lock()
		defer mu.Unlock()
		for line := range strings.Lines(string(seen)) {
			var micros int
			var bits []byte
			w := witness{hits: make([]bool, c.mutants+1)}
			if _, err := fmt.Sscanf(line, "%s %d %x", &w.name, &micros, &bits); err != nil {
				bad = errors.Join(bad, err)
			}
			w.took = time.Duration(micros) * time.Microsecond
			for i := range w.hits {
				w.hits[i] = bits[i/8]&(1<<(i%8)) != 0
			}
			c.seeds = append(c.seeds, w)
		}
		if err != nil {
			bad = errors.Join(bad, fmt.Errorf("schedules without any change: %w\n%s", err, out))
		}
	})
	slices.SortFunc(c.seeds, func(a, b witness) int { return cmp.Compare(a.took, b.took) })
	return errors.Join(err, bad)
}

func (c *court) play(ctx context.Context, dir string, schedules any, env ...string) (string, error) {
	file := filepath.Join(dir, "schedules")
	if err := writeNumbers(file, schedules); err != nil {
		return "", err
	}
	return execute(ctx, c.in, c.binary, []string{"-test.run=^TestMutantSeeds$"}, append(env, "MUTANT_SEEDS="+file)...)
}

var differs = regexp.MustCompile(`(?m)^differs\t(\d+)\t(.*(?:\n\t.*)?)`)

// trace prints what survivors change in the schedules of the simulation, if anything.
func (c *court) trace(ctx context.Context, o options, survivors []*mutant) error {
	var parts [][]*mutant
	for i, m := range survivors {
		if i < o.workers {
			parts = append(parts, nil)
		}
		parts[i%o.workers] = append(parts[i%o.workers], m)
	}
	o.limit = 0
	var mu sync.Mutex
	return each(ctx, o, parts, func(dir string, part []*mutant) {
		var numbers, schedules []int
		for _, m := range part {
			numbers = append(numbers, m.number)
		}
		for i := range o.schedules {
			schedules = append(schedules, i+1)
		}
		env := []string{"MUTANT_SEEDS=" + filepath.Join(dir, "schedules"), "MUTANT_TRACE=" + filepath.Join(dir, "mutants")}
		err := errors.Join(writeNumbers(filepath.Join(dir, "schedules"), schedules), writeNumbers(filepath.Join(dir, "mutants"), numbers))
		out := ""
		if err == nil {
			out, err = execute(ctx, c.in, c.binary, []string{"-test.run=^TestMutantTraces$", testLimit}, env...)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, found := range differs.FindAllStringSubmatch(out, -1) {
			n, _ := strconv.Atoi(found[1])
			fmt.Printf("%s\n\t%s\n", part[slices.Index(numbers, n)].key(), found[2])
		}
		if err != nil {
			fmt.Println(err, out)
		}
	})
}

// writeNumbers writes a list, one a line.
func writeNumbers(file string, numbers any) error {
	text := strings.Join(strings.Fields(strings.Trim(fmt.Sprint(numbers), "[]")), "\n")
	return errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600))
}

func testArgs(names []string) []string {
	return []string{"-test.short", "-test.failfast", "-test.run=^(" + strings.Join(names, "|") + ")$"}
}

// What is heard first, since most mutants die of it.
const (
	quickTest  = 300 * time.Millisecond
	firstSeeds = 40
)

// judge says what becomes of a mutant. Only tests in which it makes a difference are run.
func (c *court) judge(ctx context.Context, dir string, m *mutant, effort time.Duration) fate {
	tests, seeds := hit(c.tests, m), hit(c.seeds, m)
	quick := slices.IndexFunc(tests, func(w witness) bool { return w.took > quickTest })
	if quick < 0 {
		quick = len(tests)
	}
	first := min(firstSeeds, len(seeds))
	play := func(ctx context.Context, names, env []string) (string, error) { return c.play(ctx, dir, names, env...) }
	try := func(ctx context.Context, names, env []string) (string, error) {
		return execute(ctx, c.in, c.binary, testArgs(names), env...)
	}
	left := effort
	for _, step := range []struct {
		heard []witness
		run   func(ctx context.Context, names, env []string) (string, error)
	}{{seeds[:first], play}, {tests[:quick], try}, {seeds[first:], play}, {tests[quick:], try}} {
		var names []string
		took := time.Duration(0)
		for _, w := range step.heard {
			if effort > 0 && took+w.took > left {
				break
			}
			names = append(names, w.name)
			took += w.took
		}
		if len(names) == 0 {
			continue
		}
		left -= took
		limit := slack + several*took
		limited, cancel := context.WithTimeout(ctx, waits+several*limit)
		out, err := step.run(limited, names, []string{fmt.Sprint("MUTANT=", m.number), cpuLimit + strconv.Itoa(int(limit.Seconds()))})
		cancel()
		switch {
		case ctx.Err() != nil:
			return waiting
		case err != nil:
			m.by = killer(out)
			return killed
		}
	}
	return alive
}

func hit(all []witness, m *mutant) []witness {
	var some []witness
	for _, w := range all {
		if w.hits[m.number] {
			some = append(some, w)
		}
	}
	return some
}

var failure = regexp.MustCompile(`schedule \d+.*|--- FAIL: \S+|panic: .*|fatal error: .*`)

// killer returns what the output tells about the test that failed.
func killer(out string) string {
	if found := failure.FindAllString(out, -1); len(found) > 0 {
		return found[len(found)-1]
	}
	return "time"
}

// overlayOf writes changed files and go's description of where they belong.
func overlayOf(dir string, files map[string][]byte) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range files {
		original, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		replace[original] = filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(replace[original], text, 0o600); err != nil {
			return "", err
		}
	}
	overlay := filepath.Join(dir, "overlay.json")
	described, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	return overlay, errors.Join(err, os.WriteFile(overlay, described, 0o600))
}

func compile(ctx context.Context, root, pkg, binary, overlay string) (string, error) {
	args := []string{"test", "-c", "-vet=off", "-gcflags=-e", "-o", binary}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...) // #nosec G204 -- our own arguments
	cmd.Dir = root
	return output(cmd)
}

// cpuLimit is the variable with the seconds on the processor that a process may use.
const cpuLimit = "CPU_LIMIT="

func execute(ctx context.Context, dir, binary string, args []string, env ...string) (string, error) {
	out, _, err := measure(ctx, dir, binary, args, env...)
	return out, err
}

// measure also tells how long it was on the processor.
func measure(ctx context.Context, dir, binary string, args []string, env ...string) (string, time.Duration, error) {
	script := fmt.Sprintf(`ulimit -v %d; ulimit -t ${CPU_LIMIT:-unlimited}; exec "$0" "$@"`, memory)
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", script, binary}, args...)...) // #nosec G204 -- our own arguments
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append(env, "RAPID_NOFAILFILE=1", "GOMAXPROCS=1")...) // the tree is not changed
	cmd.WaitDelay = time.Second
	out, err := output(cmd)
	if cmd.ProcessState == nil {
		return out, 0, err
	}
	return out, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
}

func output(cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}
