package integration

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

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/localpg/leash"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// process is a running outbox-cdc.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu    sync.Mutex
	lines []string
	// used is how far awaitLog has read: a line is awaited once.
	used int
}

// theLeash ends processes that outlive the tests.
var theLeash = sync.OnceValues(func() (*leash.Folder, error) { return leash.Open("outbox-cdc-run-") })

// run starts outbox-cdc run. env are additional variables, NAME=VALUE.
func (w *world) run(env ...string) *process {
	w.t.Helper()
	cmd := exec.Command(harness.Binary(w.t, "failpoints"), "run", "--config", w.file(), "--log-format", "json", "--log-level", "debug")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.StderrPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	p := &process{t: w.t, cmd: cmd, done: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	untie := tie(w.t, cmd.Process.Pid)
	go func() {
		p.read(out)
		_ = cmd.Wait() // cmd.ProcessState tells
		untie()
		close(p.done)
	}()
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("process %d logged:\n%s", cmd.Process.Pid, p.tail(80))
			w.sessions()
			p.dump()
		}
		p.kill()
	})
	return p
}

// sessions logs what the database is doing.
func (w *world) sessions() {
	sql := `SELECT pid, usename, application_name, state, wait_event_type || '/' || wait_event, clock_timestamp() - query_start, query
		FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'`
	err := w.query(sql, func(rows pgx.Rows) error {
		values, err := rows.Values()
		w.t.Logf("session %v", values)
		return err
	})
	if err != nil {
		w.t.Logf("listing sessions: %v", err)
	}
	w.show(`SELECT kind, "table", topic, convert_from(key, 'UTF8'), id, cause, reason, since, next, row_id FROM outbox_cdc.park`)
	if w.layout.status != "" {
		w.show(`SELECT key, ` + w.layout.status + `, count(*), min(id::text), max(attempts) FROM ` + w.tableName() + ` GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 30`)
	}
}

// show logs what a query finds.
func (w *world) show(sql string) {
	err := w.query(sql, func(rows pgx.Rows) error {
		values, err := rows.Values()
		w.t.Logf("%v", values)
		return err
	})
	if err != nil {
		w.t.Logf("%s: %v", sql, err)
	}
}

func tie(t *testing.T, pid int) (untie func()) {
	t.Helper()
	f, err := theLeash()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(f.Dir, fmt.Sprint(pid))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := leash.Tie(dir, pid, "KILL"); err != nil {
		t.Fatal(err)
	}
	return func() { _ = os.RemoveAll(dir) }
}

func (p *process) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p.mu.Lock()
		p.lines = append(p.lines, lines.Text())
		p.mu.Unlock()
	}
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("%v to the process: %v", sig, err)
	}
}

// kill ends it with SIGKILL, if it still runs.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails where it has ended
	<-p.done
}

// dump has a process that hangs print its goroutines to the end of its log.
func (p *process) dump() {
	select {
	case <-p.done:
		return
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-p.done:
		p.mu.Lock()
		defer p.mu.Unlock()
		path := filepath.Join(os.TempDir(), fmt.Sprintf("outbox-cdc-%d.log", p.cmd.Process.Pid))
		if os.WriteFile(path, []byte(strings.Join(p.lines, "\n")), 0o600) == nil {
			p.t.Logf("the log of process %d, with its goroutines at the end, is in %s", p.cmd.Process.Pid, path)
		}
	case <-time.After(5 * time.Second):
	}
}

// stop stops it cleanly, and expects that.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.ended(40 * time.Second); code != 0 {
		p.t.Fatalf("a clean stop ended with exit code %d", code)
	}
}

// ended waits for the process to end and gives its exit code, -1 for a signal.
func (p *process) ended(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		p.t.Fatalf("the process has not ended after %v", within)
		return 0
	}
}

// killed waits until the armed failpoint has ended the process.
func (p *process) killed(within time.Duration) {
	p.t.Helper()
	p.ended(within)
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Signal() != syscall.SIGKILL {
		p.t.Fatalf("the process ended by itself: %v", p.cmd.ProcessState)
	}
}

// awaitLog waits for a line with all of these texts, after those of earlier
// calls, and gives it.
func (p *process) awaitLog(within time.Duration, texts ...string) string {
	p.t.Helper()
	var line string
	harness.Eventually(p.t, within, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		for i := p.used; i < len(p.lines); i++ {
			if containsAll(p.lines[i], texts) {
				line, p.used = p.lines[i], i+1
				return nil
			}
		}
		select {
		case <-p.done:
			return fmt.Errorf("the process has ended (%v) and did not log %q", p.cmd.ProcessState, texts)
		default:
			return fmt.Errorf("not logged: %q", texts)
		}
	})
	return line
}

// logged counts lines with all of these texts.
func (p *process) logged(texts ...string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.lines {
		if containsAll(line, texts) {
			n++
		}
	}
	return n
}

func containsAll(line string, texts []string) bool {
	plain := line
	var parsed map[string]any
	if json.Unmarshal([]byte(line), &parsed) == nil { // so that quotes need no escapes
		plain = fmt.Sprint(parsed)
	}
	for _, text := range texts {
		if !strings.Contains(line, text) && !strings.Contains(plain, text) {
			return false
		}
	}
	return true
}

func (p *process) tail(n int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines[max(0, len(p.lines)-n):], "\n")
}

// peak is the most memory that the process has had, in bytes, or 0 where the
// system does not tell.
func (p *process) peak() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
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

// cpu is how much processor time the process has used so far, or 0 where the
// system does not tell.
func (p *process) cpu() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	var user, system int64 // in hundredths of a second, the 14th and 15th field
	_, after, _ := strings.Cut(string(text), ") ")
	parts := strings.Fields(after)
	if len(parts) < 13 {
		return 0
	}
	_, _ = fmt.Sscan(parts[11]+" "+parts[12], &user, &system)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// streaming waits until the process leads and streams.
func (p *process) streaming() *process {
	p.t.Helper()
	p.awaitLog(30*time.Second, `"message":"streaming"`)
	return p
}
