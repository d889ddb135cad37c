package security

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// A writer inserts FAILED rows with very long errors, keys and topics, and with
// control sequences in them. Listings, the page and its JSON show the beginning,
// in little memory, and a terminal obeys nobody.
func TestListingsAreBounded(t *testing.T) {
	w := newWorld(t)
	mb := 12
	if long {
		mb = 200
	}
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, headers, status, last_error)
		SELECT 'orders', repeat('k', $1), convert_to(repeat('p', $1), 'UTF8'), NULL, 'FAILED', repeat('e', $1) FROM generate_series(1, 5)`, mb*1_000_000)
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, status, last_error)
		VALUES ('orders', E'\x1b]52;c;aGk=\x07\nforged', convert_to(E'\x1b[2J\u202E', 'UTF8'), 'FAILED', E'\x1b[2K\x1b[1A\u202E\u009b')`)

	for _, args := range [][]string{{"failed", "list"}, {"failed", "list", "--json"}, {"failed", "show", "1"}, {"failed", "show", "6"}, {"failed", "requeue", "--all"}} {
		out, took := w.measured(args...)
		if took > 100 {
			t.Errorf("%v took %d MiB", args, took)
		}
		if len(out) > 4<<20 || strings.ContainsAny(out, "\x1b\x07\u202e\u009b") || strings.Contains(out, "\nforged") {
			t.Errorf("%v printed %d bytes: %q", args, len(out), out[:min(len(out), 2000)])
		}
	}
	if out, _ := w.measured("failed", "show", "6", "--payload"); !strings.Contains(out, "\x1b[2J") {
		t.Errorf("the payload is not the row's where there is no terminal: %q", out)
	}
	var listing struct {
		Tables []struct{ Rows []struct{ Key, Error string } }
	}
	out, _ := w.measured("failed", "list", "--json")
	if err := json.Unmarshal([]byte(out), &listing); err != nil || len(listing.Tables) != 1 || len(listing.Tables[0].Rows) != 6 {
		t.Fatalf("%v: %.1000s", err, out)
	}
	rows := listing.Tables[0].Rows
	if rows[5].Key != "\x1b]52;c;aGk=\x07\nforged" || rows[0].Error != strings.Repeat("e", 1000)+"…" {
		t.Errorf("%q, %q", rows[5].Key, rows[0].Error)
	}
}

// A writer inserts rows with very long topics and states. A start, which looks at some of them,
// and check read the beginnings.
func TestASampleOfRowsIsBounded(t *testing.T) {
	w := newWorld(t)
	w.db.Exec(t, `ALTER TABLE outbox DROP CONSTRAINT outbox_status_check, DROP CONSTRAINT outbox_topic_check`)
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, status)
		SELECT n || repeat('t', 20000000), 'bad', '', n || repeat('s', 20000000) FROM generate_series(1, 8) AS n`)
	if out, took := w.measured("check"); took > 100 || !strings.Contains(out, strings.Repeat("s", 200)) {
		t.Errorf("check took %d MiB: %.2000s", took, out)
	}
	p := w.serve()
	w.good(3, 20*time.Second)
	harness.Eventually(t, 30*time.Second, func() error { // then it has looked
		code, body := p.ask(http.MethodGet, "/readyz", "")
		if code != http.StatusOK {
			return fmt.Errorf("/readyz: %d, %s", code, body)
		}
		return nil
	})
	if got := p.run.Peak() >> 20; got > peakMiB {
		t.Errorf("the process took %d MiB", got)
	}
}

// The page is in the process that streams: who looks at the rows does not end it.
func TestPageIsBounded(t *testing.T) {
	w := newWorld(t)
	mb := 12
	if long {
		mb = 200
	}
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, status, last_error)
		SELECT 'orders', repeat('k', $1), convert_to(repeat('p', $1), 'UTF8'), 'FAILED', repeat('e', $1) FROM generate_series(1, 5)`, mb*1_000_000)
	address := freeAddress(t)
	w.config["http"] = fields{"listen": address, "page": true, "show_payloads": true}
	p := w.run()
	for _, path := range []string{"/failed", "/api/v1/failed", "/failed/row?table=public.outbox&id=[%221%22]", "/api/v1/failed/row?table=public.outbox&id=[%221%22]", "/api/v1/status"} {
		answer, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if err != nil || n > 8<<20 || answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, %d bytes, %v", path, answer.Status, n, err)
		}
	}
	if got := p.Peak() >> 20; got > peakMiB {
		t.Errorf("the process took %d MiB", got)
	}
	w.good(3, 20*time.Second)
}

// measured runs a command and gives what it printed, and its memory in MiB.
func (w *world) measured(args ...string) (out string, mib int64) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	cmd := w.command(ctx, args...)
	text, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(text), "--yes") && args[0] != "check" { // which has found something
		w.t.Errorf("outbox-cdc %s: %v\n%.2000s", strings.Join(args, " "), err, text)
	}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		mib = usage.Maxrss >> 10
	}
	return string(text), mib
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
