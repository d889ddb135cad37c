package security

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// goodWriter inserts a row for the world's topic every few milliseconds until stop is
// called, which gives the ids of its first and its last row.
func (w *world) goodWriter() (stop func() (from, to int64)) {
	w.t.Helper()
	conn := w.db.Conn(w.t)
	ctx, cancel := context.WithCancel(w.t.Context())
	var from, to int64
	done := make(chan error, 1)
	go func() {
		for n := 0; ctx.Err() == nil; n++ {
			err := conn.QueryRow(w.t.Context(), `INSERT INTO outbox (topic, key, payload) VALUES ($1, $2, 'good') RETURNING id`, w.topic, fmt.Sprint("good", n%10)).Scan(&to)
			if err != nil {
				done <- err
				return
			}
			if from == 0 {
				from = to
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
		done <- nil
	}()
	return func() (int64, int64) {
		w.t.Helper()
		cancel()
		if err := <-done; err != nil {
			w.t.Fatal(err)
		}
		return from, to
	}
}

// sent waits until the good rows between two ids are SENT, and tells how long they
// took.
func (w *world) sent(what string, from, to int64, within time.Duration) {
	w.t.Helper()
	harness.Eventually(w.t, within, func() error {
		n, err := harness.TryOne[int](w.t.Context(), w.db, `SELECT count(*) FROM outbox WHERE id BETWEEN $1 AND $2 AND topic = $3 AND status <> 'SENT'`, from, to, w.topic)
		if err == nil && n > 0 {
			err = fmt.Errorf("%s: %d rows of the good writer are not SENT", what, n)
		}
		return err
	})
	w.t.Logf("%s: the good writer's rows: %s", what, harness.One[string](w.t, w.db, `SELECT format('%s rows, p50 %s ms, p99 %s ms, most %s ms', count(*),
			round(1000 * percentile_cont(0.5) WITHIN GROUP (ORDER BY age)), round(1000 * percentile_cont(0.99) WITHIN GROUP (ORDER BY age)), round(1000 * max(age)))
		FROM (SELECT extract(epoch FROM sent_at - created_at)::float8 AS age FROM outbox WHERE id BETWEEN $1 AND $2 AND topic = $3) AS a`, from, to, w.topic))
}

// goodFor lets the good writer write for a while, and waits for its rows.
func (w *world) goodFor(what string, d, within time.Duration) {
	w.t.Helper()
	stop := w.goodWriter()
	time.Sleep(d)
	from, to := stop()
	w.sent(what, from, to, within)
}

// floods returns the number of topic names that a hostile writer makes up.
func floods() int {
	if long {
		return 300_000
	}
	return 3000
}

// flood has a hostile writer name them, each with a key of its own, next to the good
// writer.
func (w *world) flood() {
	w.t.Helper()
	stop := w.goodWriter()
	for i := 0; i < floods(); i += 10_000 {
		w.db.Exec(w.t, `INSERT INTO outbox (topic, key, payload) SELECT 'none-' || i, 'k' || i, '' FROM generate_series($1::int, $2::int) AS i`, i+1, min(i+10_000, floods()))
	}
	from, to := stop()
	w.sent("during", from, to, 2*time.Minute)
	w.unknownParked()
	w.goodFor("after", 3*time.Second, time.Minute)
}

// A writer names very many topics that do not exist: another's rows are published as
// ever, during that, after it, after the slot was lost and after a restart.
func TestTopicNamesWithoutEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	most := 1000
	if !long {
		most = 100
	}
	w.stream["max_parked_topics"] = most
	p := w.run()
	w.goodFor("before", time.Second, time.Minute)

	w.flood()

	w.tell(p, "first process", most)
	w.stopped(p)
	p = w.run()
	w.goodFor("after a restart", 3*time.Second, time.Minute)

	w.tell(p, "second process", most)
	w.stopped(p)
	w.db.Exec(t, `SELECT pg_drop_replication_slot($1)`, w.stream["slot"])
	p = w.run()
	w.goodFor("after the slot was lost", 3*time.Second, 2*time.Minute)
	w.tell(p, "third process", most)

	// One of the topics is made after all, one that is parked alone, and one that is not.
	for _, kind := range []string{"=", "<>"} {
		topic := harness.One[string](t, w.db, `SELECT o.topic FROM outbox o WHERE o.status = 'PENDING' AND o.topic LIKE 'none-%' AND (SELECT count(*) FROM outbox_cdc.park p WHERE p.topic = o.topic) `+kind+` 1 LIMIT 1`)
		w.make(topic)
		harness.Eventually(t, 2*time.Minute, func() error {
			status, err := harness.TryOne[string](t.Context(), w.db, `SELECT status FROM outbox WHERE topic = $1`, topic)
			if err == nil && status != "SENT" {
				err = fmt.Errorf("the row of %s, which exists now, is %s", topic, status)
			}
			return err
		})
	}
	if n := harness.One[int](t, w.db, `SELECT count(*) FROM outbox WHERE attempts > 0 OR status = 'FAILED'`); n > 0 {
		t.Errorf("%d rows were charged an attempt for topics that are missing", n)
	}

	// The flood is taken away: nothing stays parked.
	w.db.Exec(t, `DELETE FROM outbox WHERE status = 'PENDING' AND topic LIKE 'none-%'`)
	harness.Eventually(t, 4*time.Minute, func() error {
		n, err := harness.TryOne[int](t.Context(), w.db, `SELECT count(*) FROM outbox_cdc.park`)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d scopes are still parked", n)
		}
		return err
	})
	w.goodFor("at the end", time.Second, time.Minute)
	w.stopped(p)
}

// unknownParked waits until the table's unknown topics are parked as one.
func (w *world) unknownParked() {
	w.t.Helper()
	harness.Eventually(w.t, 2*time.Minute, func() error {
		n, err := harness.TryOne[int](w.t.Context(), w.db, `SELECT count(*) FROM outbox_cdc.park WHERE kind = 'topic' AND "table" <> ''`)
		if err == nil && n != 1 {
			err = fmt.Errorf("%d scopes of unknown topics are parked", n)
		}
		return err
	})
}

// tell judges what the process has used up.
func (w *world) tell(p *harness.Process, what string, most int) {
	w.t.Helper()
	parks := 0
	harness.Eventually(w.t, 30*time.Second, func() error { // parks of rows that are FAILED go with the next hand-backs
		if parks = harness.One[int](w.t, w.db, `SELECT count(*) FROM outbox_cdc.park`); parks > most+50 {
			return fmt.Errorf("%s: %d scopes are parked", what, parks)
		}
		return nil
	})
	mib := p.Peak() >> 20
	lines := slices.DeleteFunc(p.Said(), func(line string) bool { return strings.Contains(line, `"level":"debug"`) })
	size := len(strings.Join(lines, "\n"))
	w.t.Logf("%s: %d parks, %d lines of log (%d KiB), %d MiB", what, parks, len(lines), size>>10, mib)
	if len(lines) > 3000 {
		w.t.Errorf("%s: it logged %d lines, the last:\n%s", what, len(lines), strings.Join(lines[len(lines)-5:], "\n"))
	}
	if mib > 256 {
		w.t.Errorf("%s: its memory was %d MiB", what, mib)
	}
}

// kafkaClient returns a client of its own.
func (w *world) kafkaClient() sarama.Client {
	w.t.Helper()
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	client, err := sarama.NewClient(w.kafka.Addrs, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = client.Close() })
	return client
}

func (w *world) make(topic string) {
	w.t.Helper()
	admin, err := sarama.NewClusterAdminFromClient(w.kafkaClient())
	if err == nil {
		err = admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// A topic that topic.allow does not have fails its row alone.
func TestTopicsThatAreNotAllowed(t *testing.T) {
	w := newWorld(t)
	maps.Copy(w.table, fields{"topic": fields{"column": "topic", "allow": []any{w.topic, "shipping.*"}}})
	p := w.run()
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ('payments', 'a', ''), ('__consumer_offsets', 'a', ''), ($1, 'a', 'good')`, w.topic)
	harness.Eventually(t, time.Minute, func() error {
		n, err := harness.TryOne[int](t.Context(), w.db, `SELECT count(*) FROM outbox WHERE topic = $1 AND status = 'SENT' OR topic <> $1 AND status = 'FAILED'
			AND last_error LIKE '%' || topic || '%topic.allow of table public.outbox does not allow: add it there%'`, w.topic)
		if err == nil && n != 3 {
			err = fmt.Errorf("%d of 3 rows are as they should be", n)
		}
		return err
	})
	if n := p.Said("the topic cannot be written to"); len(n) > 0 {
		t.Errorf("brokers were asked about a topic: %s", n[0])
	}
	w.stopped(p)
}

// A writer names very many topics that are not allowed, each with a key of its own:
// another's rows are published as ever, and go on coming from the WAL.
func TestForbiddenTopicsWithoutEnd(t *testing.T) {
	w := newWorld(t)
	maps.Copy(w.table, fields{"topic": fields{"column": "topic", "allow": []any{w.topic}}})
	if !long {
		w.stream["max_parked_keys"] = 100
	}
	p := w.run()
	w.goodFor("before", time.Second, time.Minute)
	w.flood()
	if n := harness.One[int](t, w.db, `SELECT count(*) FROM outbox_cdc.park WHERE kind = 'table'`); n > 0 {
		t.Error("the whole table is parked")
	}
	w.tell(p, "first process", 1000)
	w.stopped(p)
	p = w.run()
	w.goodFor("after a restart", 3*time.Second, time.Minute)
	w.tell(p, "second process", 1000)
	harness.Eventually(t, 2*time.Minute, func() error { // they are charged all the same
		n, err := harness.TryOne[int](t.Context(), w.db, `SELECT count(*) FROM outbox WHERE status = 'FAILED'`)
		if err == nil && n == 0 {
			err = errors.New("no row is FAILED")
		}
		return err
	})
	w.stopped(p)
}

// Nothing gets into a topic of Kafka's own, not even a marker of fencing, though the
// configuration allows rows to name it.
func TestKafkasOwnTopics(t *testing.T) {
	w := newWorld(t)
	maps.Copy(w.table, fields{"topic": fields{"column": "topic", "allow": []any{"*", "__consumer_offsets", "__transaction_state"}}})
	const own = "__consumer_offsets"
	w.groups()
	before := w.ends(own)
	p := w.run()
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ('`+own+`', 'a', ''), ('__transaction_state', 'a', ''), ($1, 'a', 'good')`, w.topic)
	p.Await(time.Minute, "topic "+own+" is Kafka's own")
	p.Await(time.Minute, "topic __transaction_state is Kafka's own")
	w.goodFor("beside", time.Second, time.Minute)
	w.stopped(p)
	if after := w.ends(own); !maps.Equal(before, after) {
		t.Errorf("the ends of %s were %v, are %v", own, before, after)
	}
}

// groups has Kafka make its topic of consumers' offsets.
func (w *world) groups() {
	w.t.Helper()
	group := fmt.Sprint("g", os.Getpid())
	client, err := kgo.NewClient(kgo.SeedBrokers(w.kafka.Addrs...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(w.topic))
	if err != nil {
		w.t.Fatal(err)
	}
	defer client.Close()
	harness.Eventually(w.t, time.Minute, func() error {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		client.PollFetches(ctx)
		if id, generation := client.GroupMetadata(); generation < 0 {
			return fmt.Errorf("group %s has no generation", id)
		}
		return nil
	})
}

// ends returns the ends of a topic's partitions.
func (w *world) ends(topic string) map[int32]int64 {
	w.t.Helper()
	client := w.kafkaClient()
	partitions, err := client.Partitions(topic)
	ends := map[int32]int64{}
	for _, p := range partitions {
		if ends[p], err = client.GetOffset(topic, p, sarama.OffsetNewest); err != nil {
			break
		}
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if len(ends) == 0 {
		w.t.Fatalf("topic %s has no partitions", topic)
	}
	return ends
}
