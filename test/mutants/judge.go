package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// judge says which tests decide over a package's mutants.
type judge struct {
	files []string   // which files are changed; none: all
	runs  [][]string // of the test binary, cheapest first; one that fails kills

	timeouts []time.Duration // how long each run may take, from the unchanged package
}

// judges are the packages whose mutants are looked at. Only tests of the package
// itself count, so that each is held by those that stand next to it.
var judges = map[string]*judge{
	"checkpoint": {runs: [][]string{
		{"-test.run=TestSimulation$", "-sim.seeds=3000"},
		{"-test.short", "-test.skip=TestSimulation$"},
	}},
	"sink": {files: []string{
		"machine.go", "machine_commands.go", "machine_send.go", "machine_reply.go", "machine_topics.go", "machine_fence.go", "machine_time.go",
		"batch.go", "class.go", "partition_queue.go", "queue.go", "topic.go", "partition.go",
	}, runs: [][]string{
		{"-test.short", "-test.run=^Test(ExactlyOnceInOrder|Judge|Queue|Backoff|SequencesWrap|BatchesAreBounded|NewEpochStartsAtZero|Murmur2IsTheJavaClients|NothingLeavesPastItsTime)$"},
		{"-test.short"},
	}},
	"replication":        {files: []string{"judge.go", "plan.go", "message.go", "frames.go", "gather.go", "names.go"}, runs: [][]string{{"-test.short"}}},
	"statusupdater":      {runs: [][]string{{"-test.short"}}},
	"internal/preflight": {files: []string{"judge_kafka.go", "judge_server.go", "judge_slot.go", "judge_table.go", "differences.go"}, runs: [][]string{{"-test.short"}}},
	"internal/mapping":   {runs: [][]string{{"-test.short"}}},
	"decoder":            {runs: [][]string{{"-test.short"}}},
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
const memory = 16 << 20

// slack is what a mutant has beyond five times what the package as it is takes,
// before it counts as hanging: others use the machine, too.
var slack = 30 * time.Second

// measure runs the tests on the package as it is: they must pass, and tell how
// long a mutant may take.
func (j *judge) measure(ctx context.Context, root, name string) error {
	dir, err := os.MkdirTemp("", "unchanged")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "unchanged.test")
	if out, err := compile(ctx, root, name, binary, ""); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	j.timeouts = nil
	for _, args := range j.runs {
		begin := time.Now()
		if out, err := execute(ctx, filepath.Join(root, name), binary, args); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		j.timeouts = append(j.timeouts, 5*time.Since(begin)+slack)
	}
	return nil
}

// judge builds a mutant in a folder of its own and runs the tests on it.
func (j *judge) judge(ctx context.Context, root, dir string, m *mutant) fate {
	overlay, err := m.overlay(root, dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		return waiting
	}
	binary := filepath.Join(dir, "mutant.test")
	if _, err := compile(ctx, root, m.pkg, binary, overlay); err != nil {
		return unless(ctx, unbuilt)
	}
	for i, args := range j.runs {
		limited, cancel := context.WithTimeout(ctx, j.timeouts[i])
		_, err := execute(limited, filepath.Join(root, m.pkg), binary, args)
		cancel()
		if err != nil {
			return unless(ctx, killed)
		}
	}
	return alive
}

// unless is the fate, if it was not the end of the run that decided it.
func unless(ctx context.Context, f fate) fate {
	if ctx.Err() != nil {
		return waiting
	}
	return f
}

// overlay writes the changed file and go's description of where it belongs.
func (m *mutant) overlay(root, dir string) (string, error) {
	path := filepath.Join(root, m.file)
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return overlayOf(dir, map[string][]byte{path: slices.Concat(source[:m.from], []byte(m.with), source[m.to:])})
}

// overlayOf writes changed files and go's description of where they belong.
func overlayOf(dir string, files map[string][]byte) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for path, text := range files {
		original, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		replace[original] = filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(replace[original], text, 0o600); err != nil {
			return "", err
		}
	}
	overlay := filepath.Join(dir, "overlay.json")
	described, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	return overlay, errors.Join(err, os.WriteFile(overlay, described, 0o600))
}

func compile(ctx context.Context, root, pkg, binary, overlay string) (string, error) {
	args := []string{"test", "-c", "-vet=off", "-o", binary}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...) // #nosec G204 -- our own arguments
	cmd.Dir = root
	return output(cmd)
}

func execute(ctx context.Context, dir, binary string, args []string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", fmt.Sprintf(`ulimit -v %d; exec "$0" "$@"`, memory), binary}, args...)...) // #nosec G204 -- our own arguments
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "RAPID_NOFAILFILE=1") // the tree is not changed
	cmd.WaitDelay = time.Second
	return output(cmd)
}

func output(cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}
