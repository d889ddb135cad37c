package integration

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// Most tests wait for most of their time, so twice as many as there are processors run at
// once, unless -parallel says otherwise.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set(fmt.Sprint(2 * runtime.GOMAXPROCS(0))); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// long says that the long form of the suite was asked for.
var long = os.Getenv("OUTBOX_TEST_LONG") == "1"

// scaled returns a size in the short form and in the long one.
func scaled[T any](short, longer T) T {
	if long {
		return longer
	}
	return short
}

// onlyLong skips a test that takes long even on a fast machine.
func onlyLong(t *testing.T) {
	t.Helper()
	if !long {
		t.Skip("only in the long form: OUTBOX_TEST_LONG=1")
	}
}

// fields are keys of the configuration. JSON is YAML.
type fields map[string]any

// layout is an outbox table, and how applications write into it.
type layout struct {
	// ddl makes the table; empty: init --native-table does.
	ddl string
	// config is the table's entry of the configuration.
	config fields
	// insert takes topic, key and value from rows(topic, key, value), in order.
	insert string
	// payload and status are how to read them back; no status: no state is kept.
	payload, status string
	eventID         string // the header
	rules           history.Rules
}

func native() layout {
	return layout{
		config:  fields{"table": "public.outbox", "profile": "native", "grace": "200ms"},
		insert:  `INSERT INTO outbox (topic, key, payload) SELECT topic, key, value FROM rows`,
		payload: "payload", status: "status", eventID: "event-id",
	}
}

// world is an application's database, topics, and the program's configuration.
type world struct {
	t      *testing.T
	db     *harness.DB
	kafka  *harness.Cluster
	topic  string
	layout layout
	log    *history.Log
	dir    string

	config  fields // the whole file
	stream  fields // its only stream
	cluster fields // its only Kafka cluster
	table   fields // its only table

	// recovery is the longest of the test's faults.
	recovery time.Duration

	// records reads a topic; nil: all that is in it.
	records func(t testing.TB, topic string) []harness.Record
	sampler *sampler // of tests that are judged all through

	bothModes bool // the test changes the delivery, and says how many duplicates there may be

	// Of single tests: what stands in the way.
	proxy *harness.Proxy
	taken *pgconn.PgConn
	pair  *harness.Pair
}

// surroundings are the parts of a world. The zero value shares all of them with other tests.
type surroundings struct {
	db         *harness.DB
	kafka      *harness.Cluster
	layout     *layout
	partitions int32
	noTopic    bool
	noInit     bool
	// quick: the test is among the few of go test -short.
	quick bool
	// limit is how long the test may take; 0: as long as most.
	limit time.Duration
}

// newWorld makes the database and a topic, and runs init.
func newWorld(t *testing.T, s surroundings) *world {
	t.Helper()
	if testing.Short() && !s.quick {
		t.Skip("not in the short form")
	}
	harness.Binary(t, "failpoints")
	w := &world{t: t, db: s.db, kafka: s.kafka, log: &history.Log{}, dir: t.TempDir()}
	if w.db == nil {
		w.db = harness.Postgres(t)
	}
	if w.kafka == nil {
		w.kafka = harness.Kafka(t)
	}
	deadline(t, s.limit) // what all tests share is made by whichever comes first
	w.layout = native()
	if s.layout != nil {
		w.layout = *s.layout
	}
	w.configure()
	if w.layout.ddl != "" {
		w.db.Exec(t, w.layout.ddl)
	}
	if !s.noTopic {
		w.topic = w.kafka.Topic(t, max(s.partitions, 1))
	}
	w.db.Exec(t, `CREATE TABLE places (lane text PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 50)`)
	switch {
	case s.noInit:
	case os.Getenv("OUTBOX_TEST_DELIVERY") != "":
		w.bothModes = os.Getenv("OUTBOX_TEST_DELIVERY") == "both"
		w.exactlyOnce()
	default:
		w.init()
	}
	return w
}

// deadline ends a test that hangs with a clear message, long before go test's.
func deadline(t *testing.T, limit time.Duration) {
	limit = cmp.Or(limit, scaled(6*time.Minute, 20*time.Minute))
	timer := time.AfterFunc(limit, func() { panic(fmt.Sprintf("%s takes longer than %v", t.Name(), limit)) })
	t.Cleanup(func() { timer.Stop() })
}

// configure makes a configuration that is quick to notice things.
func (w *world) configure() {
	w.table = maps.Clone(w.layout.config)
	w.cluster = fields{"brokers": w.kafka.Addrs, "request_timeout": "3s", "dial_timeout": "1s"}
	w.stream = fields{
		"name":           "s",
		"slot":           "slot_" + w.db.Name, // slots are the whole server's
		"publication":    "outbox",
		"postgres":       fields{"dsn": w.db.DSN, "wal_sender_timeout": "3s"},
		"tables":         []any{w.table},
		"backoff":        fields{"min": "100ms", "max": "1s"},
		"watch_interval": "500ms",
	}
	// Transactional ids are the whole cluster's, and tests share it.
	w.cluster["transactional_id_prefix"] = "t-" + w.db.Name + fmt.Sprint(time.Now().UnixNano())
	w.config = fields{
		"kafka":   fields{"clusters": fields{"main": w.cluster}},
		"streams": []any{w.stream},
		"http":    fields{"listen": "off"},
	}
}

// file writes the configuration and gives its path.
func (w *world) file() string {
	w.t.Helper()
	return harness.ConfigFile(w.t, w.dir, w.config)
}

// init runs outbox-cdc init, and begins to record updates of rows in a terminal state (audit). env are
// additional variables, NAME=VALUE.
func (w *world) init(env ...string) {
	w.t.Helper()
	args := []string{"init", "--config", w.file()}
	if w.layout.ddl == "" {
		args = append(args, "--native-table")
	}
	if out, err := w.commandWith(env, args...); err != nil {
		w.t.Fatalf("outbox-cdc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	w.audit()
}

// audit makes a trigger that records each update of a row in a terminal state.
func (w *world) audit() {
	if w.layout.status == "" {
		return
	}
	w.db.Exec(w.t, `CREATE TABLE rewrites (ref text, was text, became text);
		CREATE FUNCTION rewritten() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$ BEGIN
			INSERT INTO rewrites VALUES (split_part(convert_from(OLD.`+w.layout.payload+`, 'UTF8'), '|', 1), OLD.status, NEW.status); RETURN NULL; END $$;
		CREATE TRIGGER rewritten AFTER UPDATE ON `+w.tableName()+` FOR EACH ROW WHEN (OLD.status <> 'PENDING') EXECUTE FUNCTION rewritten()`)
}

func (w *world) tableName() string { return fmt.Sprint(w.table["table"]) }

// command runs the program to its end.
func (w *world) command(args ...string) (string, error) { return w.commandWith(nil, args...) }

func (w *world) commandWith(env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, harness.Binary(w.t, "failpoints"), args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// exitCode returns the exit code of a command; 0: it ended without an error.
func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// counts returns the number of rows by status.
func (w *world) counts() (map[history.Status]int, error) {
	counts := map[history.Status]int{}
	err := w.query(`SELECT `+w.layout.status+`, count(*) FROM `+w.tableName()+` GROUP BY 1`, func(rows pgx.Rows) error {
		var s string
		var n int
		err := rows.Scan(&s, &n)
		counts[history.Status(s)] = n
		return err
	})
	return counts, err
}

func (w *world) query(sql string, row func(pgx.Rows) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, w.db.Own())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// settled waits until nothing is PENDING.
func (w *world) settled(within time.Duration) {
	w.t.Helper()
	if w.layout.status == "" {
		w.arrived(within)
		return
	}
	harness.Eventually(w.t, within, func() error {
		counts, err := w.counts()
		if n := counts[history.Pending]; err == nil && n > 0 {
			err = fmt.Errorf("%d rows are PENDING, %d SENT, %d FAILED", n, counts[history.Sent], counts[history.Failed])
		}
		return err
	})
}

// history reads the present state, while writers may be at work: first the topics, then the recorded
// inserts, then the table. So each record is among the inserts, and each insert is in the table.
func (w *world) history(topics ...string) *history.History {
	w.t.Helper()
	h := &history.History{}
	if len(topics) == 0 {
		topics = []string{w.topic}
	}
	for _, topic := range topics {
		read := w.kafka.Records
		if w.records != nil {
			read = w.records
		}
		for _, r := range read(w.t, topic) {
			h.Records = append(h.Records, w.record(r))
		}
	}
	h.Inserts, h.Samples = w.inserted(h.Records), w.sampler.taken()
	w.readStates(h)
	return h
}

// inserted returns the inserts that writers have recorded. A row can be in a topic before its writer has got
// the answer to its COMMIT, so inserted waits for such answers for a while.
func (w *world) inserted(records []history.Record) []history.Insert {
	const patience = 10 * time.Second
	for end := time.Now().Add(patience); ; waitUntil(w.t, time.Now().Add(50*time.Millisecond)) {
		inserts := slices.Clone(w.log.Inserts())
		known := make(map[string]bool, len(inserts))
		for i := range inserts {
			known[inserts[i].Ref] = true
		}
		missing := slices.ContainsFunc(records, func(r history.Record) bool { return !known[r.Ref] })
		if !missing || time.Now().After(end) || w.t.Context().Err() != nil {
			return inserts
		}
	}
}

func (w *world) record(r harness.Record) history.Record {
	ref, seq, _, _ := history.ParseValue(r.Value)
	rec := history.Record{
		Ref: ref, Seq: seq, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: string(r.Key), Keyed: r.Key != nil,
		At: r.Timestamp,
	}
	if w.layout.eventID != "" {
		rec.EventID = string(r.Header(w.layout.eventID))
		if rec.EventID == "" {
			w.t.Errorf("record %s has no header %s", ref, w.layout.eventID)
		}
	}
	return rec
}

func (w *world) readStates(h *history.History) {
	w.t.Helper()
	if w.layout.status == "" {
		return
	}
	ref := `split_part(convert_from(` + w.layout.payload + `, 'UTF8'), '|', 1)`
	err := w.query(`SELECT `+ref+`, `+w.layout.status+` FROM `+w.tableName(), func(rows pgx.Rows) error {
		var s history.State
		err := rows.Scan(&s.Ref, (*string)(&s.Status))
		h.States = append(h.States, s)
		return err
	})
	err = errors.Join(err, w.query(`SELECT ref, was, became FROM rewrites`, func(rows pgx.Rows) error {
		var r history.Rewrite
		err := rows.Scan(&r.Ref, &r.From, &r.To)
		h.Rewrites = append(h.Rewrites, r)
		return err
	}))
	if err != nil {
		w.t.Fatal(err)
	}
}

// judge fails the test with the stories of the violations.
func (w *world) judge(rules history.Rules, topics ...string) *history.History {
	w.t.Helper()
	h := w.history(topics...)
	w.check(h, rules)
	return h
}

// check is judge of a history that is at hand.
func (w *world) check(h *history.History, rules history.Rules) {
	w.t.Helper()
	rules = w.sampler.judged(rules)
	if w.stream["delivery"] == "exactly_once" && !w.bothModes {
		rules.Duplicates = 0
	}
	rules.Deletes = rules.Deletes || w.layout.rules.Deletes
	rules.Stateless = rules.Stateless || w.layout.rules.Stateless
	if found := history.Check(h, rules); len(found) > 0 {
		w.t.Errorf("%d inserts, %d records, %d rows:\n%s", len(h.Inserts), len(h.Records), len(h.States), history.Report(found))
	}
	if !rules.Unfinished {
		w.tell(h)
	}
}

// duplicates counts records that repeat an earlier one.
func duplicates(h *history.History) int {
	refs := map[string]bool{}
	for _, r := range h.Records {
		refs[r.Ref] = true
	}
	return len(h.Records) - len(refs)
}
