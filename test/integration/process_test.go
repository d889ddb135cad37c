package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// process is a running outbox-cdc.
type process struct {
	*harness.Process
	t *testing.T
}

// run starts outbox-cdc run. env are additional variables, NAME=VALUE.
func (w *world) run(env ...string) *process {
	w.t.Helper()
	cmd := exec.Command(harness.Binary(w.t, "failpoints"), "run", "--config", w.file(), "--log-format", "json", "--log-level", "debug")
	cmd.Env = append(os.Environ(), env...)
	p := &process{harness.Start(w.t, cmd), w.t}
	w.sampler.runs(p.Process)
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.sessions()
			p.dump()
		}
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

// dump has a process that hangs print its goroutines to the end of its log.
func (p *process) dump() {
	select {
	case <-p.Done():
		return
	default:
	}
	p.Try(syscall.SIGCONT)
	p.Try(syscall.SIGQUIT)
	select {
	case <-p.Done():
		path := filepath.Join(os.TempDir(), fmt.Sprintf("outbox-cdc-%d.log", p.PID()))
		if os.WriteFile(path, []byte(p.log()), 0o600) == nil {
			p.t.Logf("the log of process %d, with its goroutines at the end, is in %s", p.PID(), path)
		}
	case <-time.After(5 * time.Second):
	}
}

// logged counts lines with all of these texts.
func (p *process) logged(texts ...string) int { return len(p.Said(texts...)) }

// log is everything that it logged.
func (p *process) log() string { return strings.Join(p.Said(), "\n") }

// stop stops it cleanly, and expects that.
func (p *process) stop() {
	p.t.Helper()
	p.Stop(40 * time.Second)
}

// killed waits until the armed failpoint has ended the process.
func (p *process) killed(within time.Duration) {
	p.t.Helper()
	p.Ended(within)
	status, ok := p.State().Sys().(syscall.WaitStatus)
	if !ok || status.Signal() != syscall.SIGKILL {
		p.t.Fatalf("the process ended by itself: %v", p.State())
	}
}

// cpu returns how much processor time the process has used so far, or 0 where the
// system does not tell.
func (p *process) cpu() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
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

// runOnce makes the stream know its slot: it runs the program for the first time, and
// stops it when the rows from before the slot were swept.
func (w *world) runOnce() {
	w.t.Helper()
	p := w.run().streaming()
	p.Await(60*time.Second, "handed back to the stream", `"scope":"stream"`)
	p.stop()
}

// streaming waits until the process leads and streams.
func (p *process) streaming() *process {
	p.t.Helper()
	p.Await(30*time.Second, `"message":"streaming"`)
	return p
}
