package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/failpoint"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// exactlyOnce has the stream deliver exactly once, and makes what that needs. Topics are read
// as a read_committed consumer reads them.
func (w *world) exactlyOnce() {
	w.t.Helper()
	w.stream["delivery"], w.cluster["fencing"] = "exactly_once", "required"
	w.init()
	if out, err := w.command("init", "--kafka", "--config", w.file()); err != nil {
		w.t.Fatalf("outbox-cdc init --kafka: %v\n%s", err, out)
	}
	w.records = w.kafka.Committed
}

// kill -9 on the way of a row, at different moments, under load: each row is there once for a
// read_committed consumer, those of a key in order, and every one is SENT.
func TestExactlyOnceThroughKills(t *testing.T) {
	for name, on := range map[string]struct {
		layout layout
		path   []string
	}{
		"status": {native(), scaled([]string{failpoint.AfterProduce, failpoint.BeforeMark, failpoint.AfterMark}, hotPath)},
		"none": {stateless(), scaled([]string{failpoint.AfterProduce, failpoint.AfterAck, failpoint.BeforeConfirm},
			[]string{failpoint.AfterDecode, failpoint.BeforeProduce, failpoint.AfterProduce, failpoint.AfterAck, failpoint.BeforeConfirm})},
	} {
		t.Run(name, func(t *testing.T) { exactlyOnceThroughKills(t, on.layout, on.path) })
	}
}

func exactlyOnceThroughKills(t *testing.T, l layout, path []string) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 3, noInit: true, layout: &l})
	w.exactlyOnce()
	w.small()
	load := w.write(steady())
	kills := 0
	for _, name := range path {
		for _, hit := range scaled([]int{3}, []int{1, 2, 3, 7, 20, 50}) {
			kills++
			w.run(at(name, hit)).killed(60 * time.Second)
		}
	}
	p := w.run()
	w.recovered()
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	h := w.judge(history.Rules{})
	if units := harness.One[int](t, w.db, `SELECT unit FROM outbox_cdc.tally WHERE closed`); units < len(h.Records)/1000 || units == 0 {
		t.Errorf("%d units for %d records", units, len(h.Records))
	}
	t.Logf("%d kills, %d records", kills, len(h.Records))
}

// Streams of both modes run in one process, on one cluster, and are killed together. The rows of the one come
// once for a read_committed consumer, those of the other at least once, and status, page, metrics and dashboard
// tell them apart.
func TestBothModesInOneProcess(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 3, noInit: true})
	w.config["http"] = fields{"listen": "127.0.0.1:0", "page": true}
	w.small()
	other := w.withStream("s2", "other")
	w.exactlyOnce()
	loads := []*writers{w.write(steady()), other.write(steady())}
	for range scaled(1, 5) {
		p := w.run().streaming().streaming()
		w.recovered()
		p.Signal(syscall.SIGKILL)
		p.Ended(30 * time.Second)
	}
	w.checked("nobody leads: the stream was killed")
	w.stream["mode"] = "shadow" // which publishes nothing, and so may look
	shadow := w.run()
	shadow.Await(30*time.Second, `"stream":"s"`, "it publishes and marks nothing")
	shadow.stop()
	delete(w.stream, "mode")
	p := w.run().streaming().streaming()
	dashboard := dashboardFills(t, p, true)
	w.recovered()
	other.recovered()
	w.checked("open, as always while the stream runs")
	for _, l := range loads {
		l.stop()
	}
	w.settled(30 * time.Second)
	other.settled(30 * time.Second)
	harness.Eventually(t, 20*time.Second, func() error {
		if p.metric("outbox_cdc_transactions_committed_total", `stream="s"`) == 0 || p.metric("outbox_cdc_tally_open", `stream="s"`) != 1 || p.metric("outbox_cdc_tally_waiting_units") != 0 {
			return errors.New("the metrics do not tell of transactions that are all noted")
		}
		return nil
	})
	if n := p.metric("outbox_cdc_transactions_committed_total", `stream="s2"`) + p.metric("outbox_cdc_tally_open", `stream="s2"`); n != 0 {
		t.Errorf("the stream that delivers at least once has transactions: %v", n)
	}
	p.shows("/streams/s", "Delivered exactly once", "Tally of cluster main: open, as always", "transactions committed")
	p.shows("/api/v1/status", `"delivery": "exactly_once"`, `"units_waiting": 0`, `"left_rows": 0`, `"delivery": "at_least_once"`)
	dashboard()
	p.stop()
	w.checked("closed: all that was published is marked")
	w.judge(history.Rules{})
	other.judge(history.Rules{Duplicates: scaled(1, 5) * window})
}

// withStream adds a stream of a table and a topic of its own, at least once, and returns the world as its
// applications see it.
func (w *world) withStream(name, table string) *world {
	w.t.Helper()
	other := *w
	other.log, other.topic = &history.Log{}, w.kafka.Topic(w.t, 3)
	other.table, other.stream = maps.Clone(w.table), maps.Clone(w.stream)
	other.layout.insert = strings.Replace(w.layout.insert, "outbox", table, 1)
	other.table["table"] = "public." + table
	other.stream["name"], other.stream["publication"], other.stream["tables"] = name, table, []any{other.table}
	slot := fmt.Sprint(w.stream["slot"]) + "_2"
	other.stream["slot"] = slot[max(0, len(slot)-63):]
	w.config["streams"] = []any{w.stream, other.stream}
	return &other
}

// checked expects a finding of check about the tally.
func (w *world) checked(found string) {
	w.t.Helper()
	out, _ := w.command("check", "--stream", "s", "--config", w.file()) // the cluster has one broker, which is a warning
	if !strings.Contains(out, found) {
		w.t.Errorf("outbox-cdc check does not say %q:\n%s", found, out)
	}
}

// shows expects texts on one of the program's pages.
func (p *process) shows(path string, texts ...string) {
	p.t.Helper()
	harness.Eventually(p.t, 20*time.Second, func() error {
		code, text, err := p.page(path)
		for _, want := range texts {
			if err == nil && !strings.Contains(text, want) {
				err = fmt.Errorf("%s (%d) lacks %q:\n%s", path, code, want, text)
			}
		}
		return err
	})
}

// A sweep by command finds out what a leader published that was killed, marks it, and publishes
// only the rest. The tally is closed after it, so the mode may change.
func TestExactlyOnceSweepByCommand(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 3, noInit: true})
	w.exactlyOnce()
	w.small()
	for range scaled(1, 5) {
		load := w.write(steady())
		w.run(at(failpoint.BeforeMark, 3)).killed(60 * time.Second)
		load.stop()
		if out, err := w.command("sweep", "--once", "--config", w.file()); err != nil {
			t.Fatalf("outbox-cdc sweep: %v\n%s", err, out)
		}
		w.settled(time.Second)
		if open := harness.One[int](t, w.db, `SELECT count(*) FROM outbox_cdc.tally WHERE NOT closed`); open > 0 {
			t.Error("the tally is open after a sweep that found nothing more")
		}
	}
	w.resetJournal()
	w.judge(history.Rules{})
}

// resetJournal: a journal that is another one than the database knows is refused until it is
// reset, which nobody can do under a leader. What was marked is not published again.
func (w *world) resetJournal() {
	w.t.Helper()
	reset := func(why string) {
		w.t.Helper()
		if out, err := w.command("journal", "reset", "--yes", "--config", w.file()); (err != nil) != (why != "") || !strings.Contains(out, why) {
			w.t.Fatalf("outbox-cdc journal reset: %v\n%s", err, out)
		}
	}
	w.db.Exec(w.t, `UPDATE outbox_cdc.tally SET journal = 'another'`)
	p := w.run()
	p.Await(60*time.Second, "the stream does not work", "outbox-cdc journal reset", `"needs_a_person":true`)
	p.stop()
	reset("")
	p = w.run()
	w.writeRows(steady(), 50)
	w.settled(60 * time.Second)
	reset("leads the stream")
	p.stop()
}

// A stream is killed, and started with another mode or another mapping: which of its rows were
// published cannot be said so, and the start says what to do. After a clean stop
// both may change, there and back.
func TestExactlyOnceChangesOfModeAndMapping(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 3, noInit: true})
	w.exactlyOnce()
	w.small()
	delivery := func(mode string) { w.stream["delivery"] = mode }
	remapped := func(is bool) {
		if delete(w.table, "payload"); is {
			w.table["payload"] = fields{"column": "payload", "empty_tombstone": true}
		}
	}
	refused := func(mode, why string) {
		t.Helper()
		delivery(mode)
		defer delivery("exactly_once")
		p := w.run()
		p.Await(60*time.Second, "the stream does not work", why, `"needs_a_person":true`)
		p.stop()
	}
	load := w.write(steady())
	w.run(at(failpoint.BeforeMark, 3)).killed(60 * time.Second)
	load.stop()
	w.stopsWithoutKafka() // what is in the journal is not known then, and the tally stays open
	refused("at_least_once", "did not stop cleanly")
	prefix := w.cluster["transactional_id_prefix"]
	w.cluster["transactional_id_prefix"] = fmt.Sprint(prefix, "-2")
	refused("exactly_once", "with transactional id")
	w.cluster["transactional_id_prefix"] = prefix
	name := w.stream["name"]
	w.stream["name"] = fmt.Sprint(name, "-2")
	refused("exactly_once", "did not stop cleanly")
	w.stream["name"] = name
	kafka := w.config["kafka"]
	w.config["kafka"] = fields{"clusters": fields{"renamed": w.cluster}}
	refused("exactly_once", "to Kafka cluster main exactly once and did not stop cleanly")
	w.config["kafka"] = kafka
	w.stream["journal"] = fields{"topic": w.topic + "-journal"}
	if out, err := w.command("init", "--kafka", "--config", w.file()); err != nil {
		t.Fatalf("outbox-cdc init --kafka: %v\n%s", err, out)
	}
	refused("exactly_once", "is not the journal that the database knows")
	delete(w.stream, "journal")
	remapped(true)
	refused("exactly_once", "published with another mapping")
	remapped(false)
	w.anotherKafka(func() { refused("exactly_once", "is not the journal that the database knows") })
	table := w.tableName()
	w.db.Exec(t, `ALTER TABLE `+table+` RENAME TO renamed`)
	was := w.table["table"]
	w.table["table"] = "public.renamed"
	refused("exactly_once", "does not have the table any more")
	w.table["table"] = was
	w.db.Exec(t, `ALTER TABLE renamed RENAME TO outbox`)
	// Rows that are left after a recovery are still named by the old mapping.
	lock, err := w.db.Conn(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), `SELECT FROM `+w.tableName()+` WHERE status = 'PENDING' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	p := w.run()
	harness.Eventually(t, 60*time.Second, func() error {
		if n := harness.One[int](t, w.db, `SELECT count(*) FROM outbox_cdc.tally_left`); n == 0 {
			return errors.New("no row is left to be marked")
		}
		return nil
	})
	p.Signal(syscall.SIGKILL)
	p.Ended(30 * time.Second)
	remapped(true)
	refused("exactly_once", "published with another mapping")
	remapped(false)
	refused("at_least_once", "did not stop cleanly")
	w.table["published"] = "delete" // those rows are published: they are deleted now
	p = w.run()
	p.Await(60*time.Second, `"message":"streaming"`)
	p.stop()
	delete(w.table, "published")
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []struct {
		delivery string
		remapped bool
	}{{"exactly_once", false}, {"at_least_once", true}, {"exactly_once", true}, {"at_least_once", false}} {
		delivery(mode.delivery)
		remapped(mode.remapped)
		p := w.run()
		w.writeRows(steady(), 50)
		w.settled(60 * time.Second)
		if mode.delivery == "at_least_once" {
			p.Signal(syscall.SIGKILL)
			p.Ended(30 * time.Second)
			refused("exactly_once", "at least once and did not stop cleanly")
			delivery(mode.delivery)
			p = w.run()
			p.Await(60*time.Second, `"message":"leading"`)
		}
		p.stop()
	}
	w.judge(history.Rules{})
}

// anotherKafka has another cluster, with topic and journal of the same names, at the address.
func (w *world) anotherKafka(do func()) {
	w.t.Helper()
	other := harness.PrivateKafka(w.t, harness.KafkaOptions{})
	other.CreateTopic(w.t, w.topic, 3, nil)
	brokers := w.cluster["brokers"]
	defer func() { w.cluster["brokers"] = brokers }()
	w.cluster["brokers"] = other.Addrs
	if out, err := w.command("init", "--kafka", "--config", w.file()); err != nil {
		w.t.Fatalf("outbox-cdc init --kafka: %v\n%s", err, out)
	}
	do()
}

// A stop that lasts longer than drain_timeout leaves rows published and not marked. The log says what
// becomes of them, and it does.
func TestExactlyOnceStopsBeforeItsMarks(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{noInit: true})
	w.exactlyOnce()
	w.stream["drain_timeout"] = "500ms"
	w.db.Exec(t, `CREATE FUNCTION public.pause() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_catalog.pg_advisory_xact_lock_shared(1); RETURN NEW; END $$;
		CREATE TRIGGER pause BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION public.pause()`)
	lock := w.db.Conn(t)
	if _, err := lock.Exec(t.Context(), `SELECT pg_advisory_lock(1)`); err != nil {
		t.Fatal(err)
	}
	p := w.run().streaming()
	w.writeRows(steady(), 50)
	w.kafka.AwaitRecords(t, w.topic, 1, 30*time.Second)
	p.stop()
	p.Await(time.Second, "stopped before everything sent was acknowledged and marked", "asks the journal which of those rows were published")
	if _, err := lock.Exec(t.Context(), `SELECT pg_advisory_unlock(1)`); err != nil {
		t.Fatal(err)
	}
	p = w.run()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// stopsWithoutKafka leads while no broker can be reached, and stops cleanly.
func (w *world) stopsWithoutKafka() {
	w.t.Helper()
	brokers := w.cluster["brokers"]
	w.cluster["brokers"] = []string{"127.0.0.1:1"}
	defer func() { w.cluster["brokers"] = brokers }()
	p := w.run()
	p.Await(60*time.Second, `"message":"leading"`)
	p.stop()
}

// A leader is stopped in the middle of the transaction that marks a unit. It is replaced as fast as any,
// although the unit has to be noted first, and what was published is marked.
func TestExactlyOnceAfterAFrozenMark(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 3, noInit: true})
	w.exactlyOnce()
	w.small()
	a := w.run(at(failpoint.BeforeMark, 3) + ":10m")
	load := w.write(steady())
	a.Await(30*time.Second, "failpoint "+failpoint.BeforeMark)
	b := w.run()
	b.Await(20*time.Second, "waiting as a standby")
	began := time.Now()
	a.Signal(syscall.SIGSTOP)
	w.delivered(began, 6*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	b.stop()
	w.judge(history.Rules{})
}

// A leader loses its lead right before it commits a Kafka transaction. The next leader ends the transaction, so that
// the commit, should it still be sent, is refused, and publishes its rows once.
func TestExactlyOnceLosesTheLeadBeforeACommit(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 3, noInit: true})
	w.exactlyOnce()
	w.small()
	a := w.run(at(failpoint.BeforeCommit, 3) + ":8s")
	load := w.write(steady())
	a.Await(30*time.Second, "failpoint "+failpoint.BeforeCommit)
	b := w.run()
	b.Await(20*time.Second, "waiting as a standby")
	w.db.Exec(t, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = current_database()`)
	b.streaming()
	w.recovered()
	a.Await(30*time.Second, "waiting as a standby")
	load.stop()
	w.settled(30 * time.Second)
	b.stop()
	w.judge(history.Rules{})
}

// A leader is stopped, replaced and continued; connections to database and brokers are cut, answers
// get lost, rows are locked while they are published; a start finds no broker. Nothing
// comes twice.
func TestExactlyOnceThroughFaults(t *testing.T) {
	for name, l := range map[string]layout{"status": native(), "none": stateless()} {
		t.Run(name, func(t *testing.T) { exactlyOnceThroughFaults(t, l) })
	}
}

func exactlyOnceThroughFaults(t *testing.T, l layout) {
	onlyLong(t)
	t.Parallel() // it mostly waits
	k := harness.PrivateKafka(t, harness.KafkaOptions{Proxied: true})
	w := newWorld(t, surroundings{kafka: k, partitions: 3, noInit: true, layout: &l})
	w.exactlyOnce()
	proxy := k.Proxies[0]
	w.small()
	a := w.run().streaming()
	b := w.run()
	b.Await(20*time.Second, "waiting as a standby")
	load := w.write(steady())
	faults := []struct {
		name   string
		happen func()
	}{
		{"the leader is stopped and continued", func() {
			a.Signal(syscall.SIGSTOP)
			b.streaming()
			w.recovered()
			a.Signal(syscall.SIGCONT)
			a.Await(30*time.Second, "waiting as a standby")
			a, b = b, a
		}},
		{"the replication connection ends", func() {
			w.db.Exec(t, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = current_database()`)
		}},
		{"every session ends", func() {
			w.db.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'outbox-cdc%'`)
		}},
		{"rows are locked", func() { w.lockSome(t.Context(), 700*time.Millisecond) }},
		{"connections to the broker are cut", proxy.Cut},
		{"answers of the broker get lost", func() {
			proxy.Silence(harness.Replies)
			time.Sleep(50 * time.Millisecond) // how long the fault lasts
			proxy.Speak()
		}},
		{"requests to the broker get lost", func() {
			proxy.Silence(harness.Requests)
			time.Sleep(50 * time.Millisecond) // how long the fault lasts
			proxy.Speak()
		}},
		{"no broker at a start", func() {
			proxy.Refuse()
			for _, p := range []*process{a, b} {
				p.Signal(syscall.SIGKILL)
				p.Ended(30 * time.Second)
			}
			a = w.run()
			if l.status == "" { // it reads no WAL, of which nothing could be swept later, and its connection lives on
				a.Await(30*time.Second, `"message":"leading"`)
				waitUntil(t, time.Now().Add(6*time.Second)) // twice wal_sender_timeout, and longer than others wait
				if n := a.logged(`"message":"streaming"`) + a.logged("the replication connection ended"); n > 0 {
					t.Error("it streams before the journal was read, or has lost its connection")
				}
			} else {
				a.streaming() // its clusters are not recovered yet
			}
			proxy.Allow()
			w.recovered()
			b = w.run()
		}},
	}
	for round := range scaled(1, 5) {
		for _, f := range faults {
			began := time.Now()
			load.wrote(100, 30*time.Second)
			f.happen()
			w.recovered()
			t.Logf("round %d, %s: %v", round, f.name, time.Since(began).Round(time.Millisecond))
		}
	}
	load.stop()
	w.settled(60 * time.Second)
	b.stop()
	a.stop()
	w.judge(history.Rules{})
}

// lockSome has an application hold locks on rows that are PENDING or will be marked in a moment.
func (w *world) lockSome(ctx context.Context, d time.Duration) {
	w.t.Helper()
	tx, err := w.db.Conn(w.t).Begin(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	condition := "true"
	if w.layout.status != "" {
		condition = "status = 'PENDING'"
	}
	for end := time.Now().Add(d); time.Now().Before(end); {
		sql := fmt.Sprintf(`SELECT FROM %s WHERE %s FOR UPDATE SKIP LOCKED LIMIT 20`, w.tableName(), condition)
		if _, err := tx.Exec(ctx, sql); err != nil {
			w.t.Fatal(err)
		}
	}
}

// A partition loses its leader after the rows of a transaction are acknowledged, and before the transaction ends. Until its
// marker is there no row is SENT, and log, status and metric name the partition.
func TestExactlyOnceNamesAMissingEnd(t *testing.T) {
	t.Parallel() // it mostly waits
	k := harness.PrivateKafka(t, harness.KafkaOptions{Brokers: 2, Settings: map[string]string{
		"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500", "transaction.state.log.replication.factor": "1",
	}})
	w := newWorld(t, surroundings{kafka: k, noTopic: true, noInit: true})
	stays, goes := k.Nodes[0], k.Nodes[1]
	harness.Eventually(t, 60*time.Second, func() error {
		w.topic = fmt.Sprint("apart-", time.Now().UnixNano())
		return k.Coordinates(w.topic+"-s-main", stays)
	})
	w.cluster["transactional_id_prefix"] = w.topic
	w.stream["journal"] = fields{"topic": w.topic + "-journal"}
	for topic, on := range map[string]map[int32][]int32{
		w.topic:              {0: {int32(goes.ID())}}, // the only one: the first transaction may have a single row
		w.topic + "-journal": {0: {int32(stays.ID())}},
	} {
		keep := "-1"
		k.Admin(t, func(a sarama.ClusterAdmin) error {
			return a.CreateTopic(topic, &sarama.TopicDetail{
				NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: on,
				ConfigEntries: map[string]*string{"retention.ms": &keep, "retention.bytes": &keep},
			}, false)
		})
	}
	w.exactlyOnce()
	w.serve()
	p := w.run(at(failpoint.BeforeCommit, 1) + ":15s").streaming()
	w.writeRows(steady(), 200)
	p.Await(60*time.Second, "failpoint "+failpoint.BeforeCommit)
	goes.Kill()
	harness.Eventually(t, 30*time.Second, func() error {
		if leaders := k.Leaders(t, w.topic); leaders[0] >= 0 {
			return fmt.Errorf("partition 0 is led by %d", leaders[0])
		}
		return nil
	})
	named := w.topic + ", partition 0"
	p.Await(60*time.Second, "the Kafka cluster cannot be used", named)
	harness.Eventually(t, 60*time.Second, func() error {
		if n := p.metric("outbox_cdc_transaction_end_missing", fmt.Sprintf("topic=%q", w.topic), `partition="0"`); n != 1 {
			return errors.New("the metric does not name the partition")
		}
		_, text, err := p.page("/api/v1/status")
		if err == nil && !strings.Contains(text, named) {
			err = fmt.Errorf("the status does not name %s: %s", named, text)
		}
		return err
	})
	if sent := w.mustCount()[history.Sent]; sent > 0 {
		t.Errorf("%d rows are SENT, and a marker of their transaction is missing", sent)
	}
	goes.Start(t)
	w.settled(60 * time.Second)
	harness.Eventually(t, 30*time.Second, func() error {
		if n := p.metric("outbox_cdc_transaction_end_missing"); n != 0 {
			return fmt.Errorf("%v partitions are named after the repair", n)
		}
		return nil
	})
	p.stop()
	w.judge(history.Rules{})
}

// A failover loses marks, and the tally with them: the rows are PENDING on the new primary,
// the journal names them, and they are marked there and not published again.
func TestExactlyOnceThroughAFailover(t *testing.T) {
	onlyLong(t)
	t.Parallel() // it mostly waits
	pair := harness.PrivatePair(t, nil)
	w := newWorld(t, surroundings{db: pair.Either, partitions: 3, noInit: true})
	w.exactlyOnce()
	w.small()
	p := w.run().streaming()
	writers := w.write(patient())
	writers.wrote(200, 30*time.Second)
	p.Signal(syscall.SIGKILL)
	p.Ended(30 * time.Second)
	writers.wrote(500, 30*time.Second) // PENDING on both servers
	from := len(w.log.Inserts())       // before the standby has them all
	pair.CaughtUp(t)
	pair.Link.Refuse()
	p = w.run().streaming()
	w.recovered() // those rows are marked on a server that nobody will have
	writers.wrote(200, 60*time.Second)
	w.recovered()
	pair.FailOver(t)
	w.recovered()
	p.Await(60*time.Second, "handed back to the stream", "stream")
	writers.wrote(200, 60*time.Second)
	writers.stop()
	w.settled(60 * time.Second)
	p.stop()
	if lost := w.takeBack(from); lost == 0 {
		t.Error("nothing was taken back: the test is void")
	}
	w.judge(history.Rules{})
}
