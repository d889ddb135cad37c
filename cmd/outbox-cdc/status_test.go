package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/internal/slots"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// freeAddress is an address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := localpg.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func inRFC3339(s string) bool {
	_, err := time.Parse(time.RFC3339, s)
	return err == nil
}

// Without a process, the status comes from the database. Then it comes from a process that leads, which asks
// for its token.
func TestStatusFromDatabaseAndProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a program")
	}
	address := freeAddress(t)
	db, _, c := ends(t, fmt.Sprintf("http: {listen: %q, auth: {token: hunter2, username: ops, password: hunter2}}", address))

	out, _ := command(t, 1, "status", "-c", c)
	mustHave(t, out, "from the database, since no process answers", "connection refused", "orders: stopped: no process leads", "does not exist: run makes it")
	command(t, 0, "init", "-c", c, "--native-table")
	db.Exec(t, `INSERT INTO outbox (topic, key, payload, status, created_at) VALUES ('orders', 'a', 'x', 'PENDING', now() - interval '2 minutes'), ('orders', 'a', 'x', 'FAILED', now())`)
	r := decoded[status.Report](t, "status", "-c", c)
	s := r.Streams[0]
	if s.Source != status.FromDatabase || s.Mode != status.ModeStopped || s.Leader != nil || !s.Slot.Exists || s.Slot.Active || s.Slot.Budget != 8<<30 ||
		s.Slot.Growth != nil || *s.Tables[0].Pending != 1 || *s.Tables[0].Failed != 1 || s.Tables[0].Oldest < 100 || s.Flow != nil || s.Error != "" {
		t.Errorf("%+v\n%+v", s, s.Slot)
	}
	out, _ = command(t, 0, "status", "-c", c, "--database")
	mustHave(t, out, "No process leads: nobody has led it yet", "look at", "1 row is FAILED in table public.outbox", "1 pending, the oldest for 2 min; 1 failed", "parked         nothing", "end of slot    not known yet", "not active", "the server has no limit")

	run := startRun(t, c)
	harness.Eventually(t, patience, func() error {
		r := decoded[status.Report](t, "status", "-c", c)
		if s := r.Streams[0]; s.Source != status.FromProcess || s.Mode != status.ModeStream || s.Flow == nil || s.Flow.Published != 1 || s.Slot == nil {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	out, _ = command(t, 0, "status", "-c", c)
	mustHave(t, out, "orders: streaming, 1 row FAILED\n", "(the process at http://"+address+"), epoch 1", "kafka main", "usable", "since the start 1 published")
	out, _ = command(t, 0, "status", "-c", c, "--database")
	mustHave(t, out, "orders: streaming, 1 row FAILED\n", "outbox-cdc/orders@", "reserved, active")
	if l := decoded[status.Report](t, "status", "-c", c, "--database").Streams[0].Leader; l == nil || !inRFC3339(l.Since) {
		t.Errorf("%+v", l)
	}
	if res, err := http.Get("http://" + address + "/api/v1/status"); err != nil || res.StatusCode != http.StatusUnauthorized {
		t.Errorf("without credentials: %v %v", res, err)
	} else {
		res.Body.Close()
	}
	rewrite(t, c, "password: hunter2", "password: other")
	out, _ = command(t, 0, "status", "-c", c)
	mustHave(t, out, "refuses the credentials of http.auth", "orders: streaming, 1 row FAILED\n")
	rewrite(t, c, ", username: ops, password: other", "")
	if r := decoded[status.Report](t, "status", "-c", c); r.Process != "http://"+address {
		t.Errorf("by the token: %+v", r)
	}
	_, out = command(t, exitUsage, "status", "-c", c, "--address", "http://192.0.2.1:9187")
	mustHave(t, out, "would go to http://192.0.2.1:9187 in plain text")
	run.stop(t)

	db.Exec(t, `ALTER TABLE outbox RENAME TO letters`)
	out, _ = command(t, 1, "status", "-c", c)
	mustHave(t, out, "it is called public.letters now; write table: public.letters in the configuration, or rename it back")
	at, err := url.Parse(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	rewrite(t, c, at.Host, freeAddress(t))
	out, _ = command(t, 1, "status", "-c", c, "--database")
	mustHave(t, out, "orders: cannot connect; who leads is unknown\n", "parked", "not known")
	if strings.Contains(out, "nothing") {
		t.Errorf("it is not known that nothing is parked: %s", out)
	}
}

// If the tables keep no state, parks from a time when they did are ignored.
func TestStatusOfTablesWithoutState(t *testing.T) {
	db, _, c := ends(t, `http: {listen: "off"}`)
	command(t, 0, "init", "-c", c, "--native-table")
	db.Exec(t, `INSERT INTO outbox_cdc.park (stream, scope, kind, cause, reason, since) VALUES ('orders', '\x00', 'stream', 'slot', 'the slot was lost', now())`)
	out, _ := command(t, 0, "status", "-c", c, "--database")
	mustHave(t, out, "the slot was lost")
	rewrite(t, c, "{table: public.outbox, profile: native}", "{table: public.outbox, id: id, topic: {column: topic}, key: {column: key}, payload: {column: payload}, published: none}")
	out, _ = command(t, 0, "status", "-c", c, "--database")
	mustHave(t, out, "parked         nothing")
}

func TestStatusOfWhatCannotBeReached(t *testing.T) {
	c := file(t, "postgres://u:hunter2@127.0.0.1:1/db", "", `http: {listen: "off"}`)
	rewrite(t, c, `, replication_dsn: ""`, "")
	out, _ := command(t, exitFailure, "status", "-c", c)
	mustHave(t, out, "http.listen is off", "orders: cannot connect; who leads is unknown", "trouble", "connection refused")
	_, e := command(t, exitUsage, "status", "-c", c, "--stream", "x")
	mustHave(t, e, `there is no stream "x"`)
	_, e = command(t, exitUsage, "status", "-c", c, "--address", "nowhere")
	mustHave(t, e, `"nowhere" is not an address`)
}

func TestWatchPrintsALineEach(t *testing.T) {
	var out bytes.Buffer
	w := &statusWatch{io: streams{out: &out, err: io.Discard}, json: true, repeat: true}
	for range 2 {
		if err := w.show(status.Report{Streams: []status.Stream{{Name: "orders"}}}); err != nil {
			t.Error(err)
		}
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !json.Valid([]byte(lines[1])) {
		t.Errorf("%q", lines)
	}
	if err := w.show(status.Report{Streams: []status.Stream{{Error: "x"}}}); exitCode(err) != exitFailure || !errors.Is(err, errReported) {
		t.Error(err)
	}
}

func TestProcessURL(t *testing.T) {
	for _, c := range []struct{ listen, scheme, address, want string }{
		{"127.0.0.1:9187", "http", "", "http://127.0.0.1:9187"},
		{":9187", "https", "", "https://127.0.0.1:9187"},
		{"0.0.0.0:9187", "http", "", "http://127.0.0.1:9187"},
		{"[::]:9187", "http", "", "http://127.0.0.1:9187"},
		{"off", "http", "there:1", "http://there:1"},
		{"off", "http", "https://there:1/", "https://there:1"},
		{"off", "http", "", ""},
		{"127.0.0.1:0", "http", "", ""},
	} {
		got, err := processURL(c.listen, c.scheme, c.address)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %s, %v", c, got, err)
		}
	}
}

// The status in words when many things are wrong at the same time.
func TestStatusInWords(t *testing.T) {
	safe, growth, lag, pending, failed := int64(5<<30), 1e6, 12.5, int64(100_000), int64(3)
	r := status.Report{Process: "http://127.0.0.1:9187", Streams: []status.Stream{{
		Name: "orders", Mode: status.ModeHold, Reason: "Kafka cluster main cannot be used: connection refused",
		Leader: &status.Leader{Name: "outbox-cdc/orders@here", Here: true, Epoch: 3},
		Slot: &status.Slot{
			At:   time.Unix(0, 0),
			Name: "outbox_cdc_orders", Exists: true, Active: true, WALStatus: "extended", Retained: 6 << 30, Budget: 8 << 30, Safe: &safe,
			Lag: 5 << 20, LagSeconds: &lag, Growth: &growth, GrowthOver: 300, Loss: &status.Loss{Seconds: 2147.5, By: status.LossByBudget},
		},
		Tables: []status.Table{{Name: "public.outbox", Pending: &pending, PendingCapped: true, Oldest: 4000, Failed: &failed}, {Name: "public.other"}, {Name: "public.large", Pending: new(int64), FailedUnknown: true}},
		Kafka:  []status.Cluster{{Name: "main", Error: "connection refused"}},
		Flow:   &status.Flow{InFlight: 20000},
		Parks:  status.Parks{Total: 3, Top: []status.ParkGroup{{Kind: "key", Cause: "row_error", Reason: "too large", Count: 3, Since: time.Unix(0, 0), Example: `key "a" of topic t in table public.outbox`}}},
	}}}
	status.Judge(&r.Streams[0])
	var out bytes.Buffer
	if err := printStatus(&out, &r); err != nil {
		t.Fatal(err)
	}
	golden := "testdata/status.txt"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(golden, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || out.String() != string(want) {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// For a slot that the server has invalidated, the loss is not "not in sight": the slot is lost.
func TestStatusOfALostSlot(t *testing.T) {
	t.Parallel()
	r := status.Report{Streams: []status.Stream{{
		Name: "orders", Mode: status.ModeStopped,
		Slot: &status.Slot{Name: "outbox_cdc_orders", Exists: true, WALStatus: "lost", Budget: 8 << 30, Lost: "its WAL exceeded max_slot_wal_keep_size (64MB)"},
	}}}
	status.Judge(&r.Streams[0])
	var out bytes.Buffer
	if err := printStatus(&out, &r); err != nil {
		t.Fatal(err)
	}
	mustHave(t, out.String(), "slot lost", "the server gave it up, its WAL exceeded max_slot_wal_keep_size (64MB)")
	if strings.Contains(out.String(), "end of slot") {
		t.Error(out.String())
	}
}

func TestTrustIsInTheCertificateItself(t *testing.T) {
	_, err := newProcess(&config.HTTP{Listen: "127.0.0.1:1", TLS: &config.HTTPTLS{CertFile: "missing"}}, "")
	if err == nil || !strings.Contains(err.Error(), "http.tls.cert_file") {
		t.Error(err)
	}
}

func TestALostSlotHasNothingLeft(t *testing.T) {
	for state, want := range map[string]string{"lost": "none", "reserved": "no limit"} {
		if got := left(&slots.Slot{WALStatus: state}); got != want {
			t.Errorf("a slot that is %s: %q, want %q", state, got, want)
		}
	}
}
