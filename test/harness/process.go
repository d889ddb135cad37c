package harness

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg/cleanup"
)

// ConfigFile writes a configuration into a folder, as JSON, which is YAML, and
// gives the file's path. A process that starts meanwhile reads the old file or the new one.
func ConfigFile(t testing.TB, dir string, config any) string {
	t.Helper()
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "outbox-cdc.yaml")
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Peak returns the most memory that the process has had, in bytes, or 0 where the
// system does not tell.
func (p *Process) Peak() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return 0
}

// Process is a program that a test runs. What it prints is kept line by line.
type Process struct {
	t    testing.TB
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu    sync.Mutex
	lines []string
	used  int // how far Await has read: a line is awaited once
}

// Start runs a program until the test ends. It dies with the test's process.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		t.Fatalf("harness: starting %s: %v", cmd.Path, err)
	}
	_ = in.Close() // the child has its own
	dir := roomFor(t, "process")
	if _, err := cleanup.Tie(dir, cmd.Process.Pid, "KILL"); err != nil {
		t.Fatal(err)
	}
	p := &Process{t: t, cmd: cmd, done: make(chan struct{})}
	go func() {
		p.read(out)
		_ = cmd.Wait() // cmd.ProcessState tells
		_ = os.RemoveAll(dir)
		close(p.done)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s said last:\n%s", cmd.Path, p.Tail(60))
		}
		p.Kill()
	})
	return p
}

func (p *Process) read(out io.ReadCloser) {
	defer out.Close()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p.mu.Lock()
		p.lines = append(p.lines, lines.Text())
		p.mu.Unlock()
	}
}

// Await waits for a line with all of these texts, after those of earlier calls,
// and gives it.
func (p *Process) Await(within time.Duration, texts ...string) string {
	p.t.Helper()
	var line string
	Eventually(p.t, within, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		for i := p.used; i < len(p.lines); i++ {
			if hasAll(p.lines[i], texts) {
				line, p.used = p.lines[i], i+1
				return nil
			}
		}
		select {
		case <-p.done:
			return fmt.Errorf("the process has ended (%v) and did not say %q", p.cmd.ProcessState, texts)
		default:
			return fmt.Errorf("not said: %q", texts)
		}
	})
	return line
}

// hasAll reports whether a line has the texts; in a line of JSON also as its values
// read, so that quotes need no escapes.
func hasAll(line string, texts []string) bool {
	plain := line
	var parsed map[string]any
	if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &parsed) == nil {
		plain = fmt.Sprint(parsed)
	}
	for _, text := range texts {
		if !strings.Contains(line, text) && !strings.Contains(plain, text) {
			return false
		}
	}
	return true
}

// Said returns the lines with all of these texts.
func (p *Process) Said(texts ...string) (lines []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.lines {
		if hasAll(line, texts) {
			lines = append(lines, line)
		}
	}
	return lines
}

// Tail returns the last n lines.
func (p *Process) Tail(n int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines[max(0, len(p.lines)-n):], "\n")
}

// Signal sends a signal.
func (p *Process) Signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("%v to %s: %v", sig, p.cmd.Path, err)
	}
}

// Try sends a signal, and says whether there was a process to take it.
func (p *Process) Try(sig syscall.Signal) bool { return p.cmd.Process.Signal(sig) == nil }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// State returns how the process ended, or nil while it runs.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// PID returns the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends it with SIGKILL, if it still runs.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails where it has ended
	<-p.done
}

// Stop ends it with SIGTERM, and expects exit code 0.
func (p *Process) Stop(within time.Duration) {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	if code := p.Ended(within); code != 0 {
		p.t.Fatalf("%s: a clean stop ended with exit code %d", p.cmd.Path, code)
	}
}

// Ended waits for the end and gives the exit code, -1 for a signal.
func (p *Process) Ended(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		p.t.Fatalf("%s has not ended after %v", p.cmd.Path, within)
		return 0
	}
}
