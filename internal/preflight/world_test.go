package preflight

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sql"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// The servers that tests share live as long as their process.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/outbox-cdc/outbox-cdc/internal/localpg.(*process).wait"),
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"), // sarama's admin client, in the harness
		goleak.IgnoreAnyFunction("github.com/outbox-cdc/outbox-cdc/test/harness.(*Node).start.func1"))
}

// native is the native table with its mapping.
func native() *outbox.Table {
	return &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID:             []string{"id"},
		Cluster:        outbox.ClusterMapping{Default: "main", Known: []string{"main"}},
		Topic:          outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{{Column: "topic"}}},
		TopicAllow:     []string{"*"},
		Key:            &outbox.Expr{Column: "key", Encoding: outbox.EncodingText},
		Payload:        outbox.PayloadMapping{Expr: outbox.Expr{Column: "payload"}, Tombstone: true},
		Headers:        []outbox.HeaderMapping{{JSON: "headers"}},
		EventID:        outbox.EventID{Name: "event-id", Columns: []string{"event_id"}},
		CreatedAt:      "created_at",
		AvailableAfter: []string{"available_after"},
		Order:          []string{"id"},
		Published:      outbox.PublishedStatus,
		Status: outbox.StatusMapping{
			Column: "status", Pending: []string{"PENDING"}, Sent: "SENT", Failed: "FAILED", SentAt: "sent_at",
			Attempts: "attempts", MaxAttempts: 10, LastError: "last_error",
		},
		OnFailed: outbox.OnFailedSkip,
	}}
}

// world is a stream on a real database, in good order.
type world struct {
	t      *testing.T
	db     *harness.DB
	stream Stream
}

func newWorld(t *testing.T, db *harness.DB, brokers ...string) *world {
	t.Helper()
	w := &world{t: t, db: db}
	table := native()
	w.stream = Stream{
		Name: "orders", DSN: db.DSN, WALBudget: 8 << 30, PoolConnections: 7,
		Tables: []Table{{Table: table, Native: true}},
		Replication: replication.Config{
			DSN: db.DSN, Name: "outbox-cdc/orders@test", Slot: "outbox_cdc_" + db.Name, Publication: "outbox_cdc_orders",
			Tables: []*outbox.Table{table}, SenderTimeout: 4 * time.Second,
		},
	}
	if len(brokers) > 0 {
		w.stream.Kafka = map[string]sink.Config{"main": {Cluster: "main", Brokers: brokers, TransactionalID: "outbox-cdc-" + db.Name, RequestTimeout: 3 * time.Second}}
	}
	return w
}

// made is a world in which init has made everything.
func made(t *testing.T, db *harness.DB, brokers ...string) *world {
	t.Helper()
	w := newWorld(t, db, brokers...)
	db.Exec(t, sql.NativeTable("public", "outbox"))
	w.init(replication.Setup{})
	return w
}

// init makes what init would.
func (w *world) init(setup replication.Setup) {
	w.t.Helper()
	pg := w.db.Conn(w.t).PgConn()
	setup.Config, setup.Stream = w.stream.Replication, w.stream.Name
	state, err := replication.Inspect(w.t.Context(), pg, setup.Config)
	if err != nil {
		w.t.Fatal(err)
	}
	plan, err := replication.InitPlan(&state, setup)
	if err == nil {
		err = replication.Apply(w.t.Context(), pg, setup, plan, replication.Progress{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) check() Report {
	w.t.Helper()
	return Run(context.Background(), []Stream{w.stream}, Options{})
}

// find gives the finding of a check on a subject; a part of it is enough.
func find(t *testing.T, r Report, check, subject string) Finding {
	t.Helper()
	for _, f := range r.Findings {
		if f.Check == check && strings.Contains(f.Subject, subject) {
			return f
		}
	}
	t.Fatalf("no finding of %s on %q in\n%s", check, subject, show(r))
	return Finding{}
}

// expect checks a finding's level and that its text, fixes included, says all
// of the parts.
func expect(t *testing.T, f Finding, level Level, parts ...string) {
	t.Helper()
	text := f.Found + "\n" + strings.Join(f.Hints, "\n")
	if f.Level != level {
		t.Errorf("%s %s: %s, want %s: %s", f.Check, f.Subject, f.Level, level, text)
	}
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s %s: %q is not in:\n%s", f.Check, f.Subject, part, text)
		}
	}
	if (level == Warn || level == Fail) && (f.Why == "" || len(f.Hints) == 0 || f.Hints[0] == "") {
		t.Errorf("%s %s: it does not say why it matters, or what fixes it: %+v", f.Check, f.Subject, f)
	}
}

func show(r Report) string {
	text, _ := json.MarshalIndent(r, "", " ")
	return string(text)
}
