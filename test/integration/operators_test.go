package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// What operators do to the database, the slot and our schema, by accident; docs/security.md says what is promised.

// Our schema is dropped while the program runs: it says so, stops at once when
// asked to, and goes on after init.
func TestOurSchemaIsDropped(t *testing.T) {
	t.Parallel()              // it mostly waits
	const drain = time.Minute // what a stop that waited in vain would take
	w := newWorld(t, surroundings{})
	w.stream["drain_timeout"] = drain.String()
	p := w.run().streaming()
	w.db.Exec(t, `DROP SCHEMA outbox_cdc CASCADE`)
	p.Await(15*time.Second, "the stream does not work", "run outbox-cdc init")
	began := time.Now()
	p.Stop(drain)
	if took := time.Since(began); took > drain/2 {
		t.Errorf("the stop took %v", took)
	}
	p = w.run()
	p.Await(15*time.Second, "the stream does not work", "run outbox-cdc init")
	if out, err := w.command("init", "--config", w.file()); err != nil {
		t.Fatal(out)
	}
	p.streaming()
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ('`+w.topic+`', 'k', 'v')`)
	w.settled(30 * time.Second)
	p.stop()
}

// An ordinary restart of PostgreSQL is called that: nothing is parked as
// unreadable, and the slot is kept.
func TestPostgresIsRestarted(t *testing.T) {
	t.Parallel() // it mostly waits
	db := harness.PrivatePostgres(t, localpg.Options{})
	w := newWorld(t, surroundings{db: db})
	p := w.run().streaming()
	for i := range 2 {
		w.db.Exec(t, fmt.Sprintf(`INSERT INTO outbox (topic, key, payload) VALUES ('%s', 'k', '%d')`, w.topic, i))
		w.settled(30 * time.Second)
		if err := db.Server.Restart(t.Context(), localpg.Fast); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, 60*time.Second, func() error {
			if n := p.logged(`"message":"streaming"`); n < i+2 {
				return fmt.Errorf("streaming %d times", n)
			}
			return nil
		})
	}
	if text := p.log(); strings.Contains(text, "protocol violation") || strings.Contains(text, "unreadable") || strings.Contains(text, "made the slot") {
		t.Error("a restart is taken for something else")
	}
	p.stop()
}

// Two configurations stream the same table: the second refuses to start, and says
// which stream has it; init and check say so too. When the first has stopped, as
// when the stream was renamed, the second takes over: nothing comes twice.
func TestTwoStreamsOnOneTable(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	insert := func(value string) {
		w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ('`+w.topic+`', 'k', '`+value+`')`)
	}
	first := w.run().streaming()
	insert("1")
	w.settled(30 * time.Second)

	w.dir, w.stream["name"], w.stream["slot"] = t.TempDir(), "renamed", fmt.Sprint(w.stream["slot"])+"_renamed"
	if out, err := w.command("init", "--config", w.file()); exitCode(err) != 3 || !strings.Contains(out, "stream s leads on it") {
		t.Errorf("init: %v\n%s", err, out)
	}
	if out, err := w.command("check", "--config", w.file()); exitCode(err) != 3 || !strings.Contains(out, "stream s leads on it") {
		t.Errorf("check: %v\n%s", err, out)
	}
	second := w.run()
	second.Await(30*time.Second, "the stream does not work", "stream s leads on it from slot")
	insert("2")
	w.settled(30 * time.Second)
	if second.logged("leading") > 0 {
		t.Error("the second stream leads")
	}
	first.stop()
	second.streaming()
	second.Await(30*time.Second, "handed back to the stream")
	insert("3")
	w.settled(30 * time.Second)

	w.dir, w.stream["name"] = t.TempDir(), "again" // with the slot that it has: an ordinary standby
	third := w.run()
	third.Await(30*time.Second, "waiting as a standby")
	second.stop()
	third.streaming()
	insert("4")
	w.settled(30 * time.Second)
	third.stop()
	if got := w.values(); got != "1 2 3 4" {
		t.Errorf("published: %s", got)
	}
}

// A database that an earlier version initialised has no place for what is
// remembered now: it works, and says what is missing; init adds it.
func TestAnEarlierSchema(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.db.Exec(t, `ALTER TABLE outbox_cdc.leader DROP COLUMN relations, DROP COLUMN claim, DROP COLUMN paused`)
	p := w.run()
	p.Await(30*time.Second, "schema outbox_cdc is of an earlier version")
	p.streaming()
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ('`+w.topic+`', 'k', '1')`)
	w.settled(30 * time.Second)
	w.db.Exec(t, swap)
	p.Await(15*time.Second, "table public.outbox is another table than before")
	if out, err := w.command("init", "--config", w.file()); err != nil {
		t.Fatal(out)
	}
	if n := harness.One[int](t, w.db, `SELECT count(*) FROM pg_attribute WHERE attrelid = 'outbox_cdc.leader'::regclass AND attname IN ('claim', 'relations', 'paused')`); n != 3 {
		t.Error("init does not add the columns")
	}
	p.stop()
	w.db.Exec(t, `ALTER TABLE outbox_cdc.leader DROP COLUMN paused`) // the version before had the others
	w.says("init")
	w.says("pause")
	w.says("resume")
}

// A rollout with a wrong broker, topic, privilege or table does not turn green
// behind a leader that works; an outage of Kafka is told, and restarts nobody.
func TestReadyMeansThatItCouldDoItsWork(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.serve()
	proxy := harness.NewProxy(t, w.kafka.Addrs[0])
	leader := w.run()
	leader.readyz(http.StatusOK, "")
	brokers, table := w.cluster["brokers"], w.table["table"]
	for name, c := range map[string]struct {
		wrong, right func()
		reason       string
	}{
		"broker": {func() { w.cluster["brokers"] = []string{"127.0.0.1:1"} }, func() { w.cluster["brokers"] = brokers }, "Kafka cluster main"},
		"topic":  {func() { w.table["topic"] = fields{"constant": "nowhere"} }, func() { delete(w.table, "topic") }, "nowhere"},
		"table":  {func() { w.table["table"] = "public.elsewhere" }, func() { w.table["table"] = table }, "public.elsewhere"},
	} {
		c.wrong()
		w.dir = t.TempDir()
		p := w.run()
		c.right()
		p.Await(30*time.Second, "waiting as a standby")
		p.readyz(http.StatusServiceUnavailable, c.reason)
		if code, _, err := p.page("/healthz"); code != http.StatusOK {
			t.Errorf("%s: /healthz: %d %v", name, code, err)
		}
		p.stop()
	}
	w.dir = t.TempDir()
	standby := w.run()
	standby.readyz(http.StatusOK, "")
	standby.stop()
	leader.stop()

	w.cluster["brokers"] = []string{proxy.Addr()}
	proxy.Refuse()
	w.dir = t.TempDir()
	p := w.run()
	p.readyz(http.StatusServiceUnavailable, "Kafka cluster main")
	p.stop()
}

// readyz waits for an answer.
func (p *process) readyz(want int, reason string) {
	p.t.Helper()
	harness.Eventually(p.t, 60*time.Second, func() error {
		code, body, err := p.page("/readyz")
		if err == nil && (code != want || !strings.Contains(body, reason)) {
			err = fmt.Errorf("/readyz: %d %s", code, body)
		}
		return err
	})
}

// A copy of the database (here: another one that has nothing in common but the
// configuration) is streamed with the same transactional id. The brokers let the
// latest of them publish; the other says what is wrong.
func TestACopyOfTheDatabaseIsStreamed(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})

	original := w.run().streaming()
	original.usable()
	c := newWorld(t, surroundings{kafka: w.kafka})
	c.cluster["transactional_id_prefix"] = w.cluster["transactional_id_prefix"]
	copied := c.run().streaming()
	copied.usable()
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ('`+w.topic+`', 'k', 'v')`)
	original.Await(30*time.Second, "the stream does not work", "it does not lead in this database: one of the two databases is a copy")
	if original.logged("Unknown error") > 0 {
		t.Error("an error has no name")
	}
	copied.stop()
	w.settled(60 * time.Second)
	original.stop()
}

// A standby is promoted while the primary goes on, so the database is there twice, with the
// same history, and so is the program, with the same configuration. The process that cannot publish says
// why. When the copy is given up, every row of the original arrives.
func TestAPromotedCopyIsStreamed(t *testing.T) {
	t.Parallel() // it mostly waits
	pair := harness.PrivatePair(t, nil)
	w := newWorld(t, surroundings{db: pair.Primary, partitions: 2})
	original := w.run().streaming()
	original.usable()
	load := w.write(steady())
	load.wrote(200, 30*time.Second)
	pair.CaughtUp(t)
	pair.Standby.Exec(t, `SELECT pg_promote()`)
	// Marks that the standby had not received, so that the copy publishes, and fences, for sure.
	pair.Standby.Exec(t, `UPDATE outbox SET status = 'PENDING' WHERE id IN (SELECT id FROM outbox WHERE status = 'SENT' ORDER BY id DESC LIMIT 100)`)

	w.dir, w.stream["postgres"] = t.TempDir(), fields{"dsn": pair.Standby.DSN, "wal_sender_timeout": "3s"}
	copied := w.run()
	copied.Await(30*time.Second, "the database is at another address than before")
	copied.streaming()
	copied.usable()
	original.Await(60*time.Second, "the stream does not work", "it does not lead in this database: one of the two databases is a copy")
	load.wrote(100, 30*time.Second)
	copied.stop()
	w.recovered()
	load.stop()
	w.settled(60 * time.Second)
	original.stop()
	// Rows that were PENDING in both come twice, and so does what was under way when either was fenced.
	w.judge(history.Rules{Duplicates: 2 * len(w.log.Inserts())})
}

// The database answers at another address than it did for the leader before.
func TestTheDatabaseIsElsewhere(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.run().streaming().stop()
	w.db.Exec(t, `UPDATE outbox_cdc.leader SET claim = claim || '{"server": "192.0.2.1:5432"}'`)
	p := w.run()
	p.Await(30*time.Second, "the database is at another address than before", `"before":"192.0.2.1:5432"`)
	p.streaming().stop()
}

// The reader of the log goes away: the program goes on. Every line of the log is
// one JSON object without a key twice.
func TestTheLogsReaderGoesAway(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	cmd := exec.Command(harness.Binary(t, "failpoints"), "run", "--config", w.file(), "--log-format", "json")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := bufio.NewReaderSize(stderr, 16).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	_ = stderr.Close()
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ('`+w.topic+`', 'k', 'v')`)
	w.settled(30 * time.Second)

	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the stop: %v", err)
	}
	p := w.run().streaming()
	p.usable()
	p.stop()
	for _, line := range p.Said() {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil || strings.Count(line, `"cluster":`) > 1 {
			t.Errorf("not one JSON object without a key twice: %s", line)
		}
	}
}

// usable waits until the process can publish.
func (p *process) usable() {
	p.t.Helper()
	harness.Eventually(p.t, 30*time.Second, func() error {
		if p.logged("the Kafka cluster can be used") == 0 {
			return errors.New("the Kafka cluster cannot be used yet")
		}
		return nil
	})
}

// values returns what the topic holds.
func (w *world) values() string {
	w.t.Helper()
	var values []string
	for _, r := range w.kafka.Records(w.t, w.topic) {
		values = append(values, string(r.Value))
	}
	return strings.Join(values, " ")
}

// puts inserts rows of one key into a table that is like the native one.
func (w *world) puts(table string, values ...string) {
	w.t.Helper()
	for _, v := range values {
		w.db.Exec(w.t, `INSERT INTO `+table+` (topic, key, payload) VALUES ('`+w.topic+`', 'k', '`+v+`')`)
	}
}

// A privilege is missing: the process leads and says what it lacks, and is not
// ready before it has it.
func TestReadyWantsThePrivileges(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{noInit: true})
	w.serve()
	writer, _ := w.roles()
	w.db.Exec(t, `REVOKE UPDATE ON outbox FROM `+writer)
	p := w.run()
	p.readyz(http.StatusServiceUnavailable, "UPDATE")
	w.db.Exec(t, `GRANT UPDATE ON outbox TO `+writer)
	p.readyz(http.StatusOK, "")
	p.stop()
}

// A real broker goes away after the start: the leader is alive and not ready, for
// as long as it lasts.
func TestReadyWhileKafkaIsAway(t *testing.T) {
	t.Parallel() // it mostly waits
	k := harness.PrivateKafka(t, harness.KafkaOptions{})
	w := newWorld(t, surroundings{kafka: k})
	w.serve()
	p := w.run()
	p.readyz(http.StatusOK, "")
	k.Nodes[0].Kill()
	w.puts("outbox", "1")
	p.readyz(http.StatusServiceUnavailable, "Kafka")
	if code, _, err := p.page("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %v", code, err)
	}
	k.Start(t, k.Nodes[0])
	p.readyz(http.StatusOK, "")
	w.settled(60 * time.Second)
	p.stop()
}

// The slot is advanced by hand, past rows, while no process runs: they are swept.
// Where the table keeps no state they are lost, and the log says so.
func TestTheSlotIsAdvancedByHand(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, l := range map[string]layout{"state": native(), "none": stateless()} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, surroundings{layout: &l})
			insert := func(value string) {
				w.db.Exec(t, strings.Replace(l.insert, "FROM rows", `FROM (VALUES ('`+w.topic+`', 'k', '`+value+`'::bytea)) rows (topic, key, value)`, 1))
			}
			p := w.run().streaming()
			insert("1")
			w.kafka.AwaitRecords(t, w.topic, 1, 30*time.Second)
			p.stop()
			insert("2")
			w.db.Exec(t, `SELECT pg_replication_slot_advance('`+fmt.Sprint(w.stream["slot"])+`', pg_current_wal_insert_lsn())`)
			insert("3")
			p = w.run()
			want := "1 2 3"
			if name == "none" {
				want = "1 3"
				p.Await(30*time.Second, "rows may be lost", "was moved on from")
			}
			harness.Eventually(t, 30*time.Second, func() error {
				if got := w.values(); got != want {
					return errors.New("published: " + got)
				}
				return nil
			})
			p.stop()
		})
	}
}
