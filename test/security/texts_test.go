package security

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// A table's owner has every mark refused with a text of its own, never the same twice. Another table's rows go out, and neither
// memory, log, metrics nor what the page shows grow with the number of texts.
func TestErrorTextsWithoutEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.Exec(t, `CREATE TABLE other (LIKE outbox INCLUDING ALL);
		CREATE SEQUENCE texts;
		CREATE FUNCTION talk() RETURNS trigger LANGUAGE plpgsql SET log_min_messages = panic AS $$ BEGIN
			RAISE EXCEPTION 'text % %', nextval('public.texts'), repeat('much ', 400) USING ERRCODE = 'P' || lpad((random() * 9999)::int::text, 4, '0');
		END $$;
		CREATE TRIGGER talk BEFORE UPDATE ON other FOR EACH ROW EXECUTE FUNCTION talk();
		ALTER PUBLICATION outbox ADD TABLE other`)
	w.stream["tables"] = []any{w.table, fields{"table": "public.other", "profile": "native", "grace": "200ms"}}
	w.stream["max_parked_keys"] = 100
	texts, within := 3000, 3*time.Minute
	if long {
		texts, within = 200_000, 3*time.Hour
	}
	s := w.serve()
	insert := func(n int) {
		w.db.Exec(t, `INSERT INTO other (topic, key, payload) SELECT $1, 'k' || n, '' FROM generate_series(1, $2::int) AS n`, w.topic, n)
	}
	insert(200)
	w.awaitWithin(time.Minute, `SELECT count(*) FROM outbox_cdc.park WHERE kind = 'table'`, 1)
	metrics, peak := s.size("/metrics"), s.run.Peak()
	insert(texts)
	stop := w.goodWriter()
	harness.Eventually(t, within, func() error {
		n, err := harness.TryOne[int](t.Context(), w.db, `SELECT last_value FROM texts`)
		if err == nil && n < texts {
			err = fmt.Errorf("%d texts of %d", n, texts)
		}
		return err
	})
	from, to := stop()
	w.sent("during", from, to, time.Minute)
	s.notGrown(metrics, peak)
	if lines := s.run.Said("was changed while it waited"); len(lines) > 0 {
		t.Errorf("no row was changed, but: %s", lines[0])
	}
	w.stopped(s.run)
}

// A broker refuses every record of a topic with a text of its own, never the same twice, some of them long. Before that it answers some
// with a code that Kafka does not have.
func TestTextsOfABrokerWithoutEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.kafka = harness.Kfake(t, kfake.SeedTopics(1, "good", "bad"))
	w.topic, w.cluster["brokers"] = "good", w.kafka.Addrs
	var texts atomic.Int64
	w.kafka.Fake.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		w.kafka.Fake.KeepControl()
		asked := r.(*kmsg.ProduceRequest)
		if !slices.ContainsFunc(asked.Topics, func(t kmsg.ProduceRequestTopic) bool { return t.Topic == "bad" }) {
			return nil, nil, false
		}
		return refusal(asked, func(topic string, p *kmsg.ProduceResponseTopicPartition) {
			if topic != "bad" {
				p.ErrorCode = kerr.NotLeaderForPartition.Code // it is sent again, and then not with the others
				return
			}
			n := texts.Add(1)
			text := fmt.Sprint("text ", n, strings.Repeat(" much", 400))
			if n%500 == 1 {
				text += strings.Repeat(" more", 200_000)
			}
			p.ErrorCode, p.ErrorMessage = kerr.InvalidRecord.Code, &text
			if n%100 == 2 {
				p.ErrorCode = int16(1000 + n%30_000)
			}
		}), nil, true
	})
	w.db.Exec(t, `CREATE TABLE other (LIKE outbox INCLUDING ALL); ALTER PUBLICATION outbox ADD TABLE other`)
	w.tries(1)
	w.stream["tables"] = []any{w.table, fields{"table": "public.other", "profile": "native", "grace": "200ms", "status": w.table["status"]}}
	w.stream["max_parked_keys"] = 100
	s := w.serve()
	rows, within := 1000, 3*time.Minute
	if long {
		rows, within = 200_000, 3*time.Hour
	}
	refuse := func(n int) {
		w.db.Exec(t, `INSERT INTO other (topic, key, payload) SELECT 'bad', 'k' || n, '' FROM generate_series(1, $1::int) AS n`, n)
		w.awaitWithin(within, `SELECT count(*) FROM other WHERE status <> 'FAILED'`, 0)
	}
	refuse(200)
	metrics, peak := s.size("/metrics"), s.run.Peak()
	stop := w.goodWriter()
	refuse(rows)
	from, to := stop()
	w.sent("during", from, to, time.Minute)
	s.notGrown(metrics, peak)
	t.Logf("%d texts", texts.Load())
	if texts.Load() < int64(rows) {
		t.Errorf("only %d texts", texts.Load())
	}
	w.stopped(s.run)
}

// refusal answers a produce request: each partition with the error that say gives it.
func refusal(asked *kmsg.ProduceRequest, say func(topic string, p *kmsg.ProduceResponseTopicPartition)) kmsg.Response {
	answer := asked.ResponseKind().(*kmsg.ProduceResponse)
	for _, at := range asked.Topics {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic = at.Topic
		for _, ap := range at.Partitions {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.BaseOffset = ap.Partition, -1
			say(at.Topic, &p)
			topic.Partitions = append(topic.Partitions, p)
		}
		answer.Topics = append(answer.Topics, topic)
	}
	return answer
}

// size returns the length of an answer: 1000 times its number of lines, plus its size in KB.
func (s *served) size(path string) int {
	s.t.Helper()
	code, body := s.ask("GET", path, "")
	if code != 200 {
		s.t.Fatalf("%s: %d %s", path, code, body)
	}
	return strings.Count(body, "\n")*1000 + len(body)/1000
}

// notGrown says that texts have made neither memory nor metrics, log nor status much larger.
func (s *served) notGrown(metrics int, peak int64) {
	s.t.Helper()
	s.t.Logf("the process took %d MiB before, %d MiB after", peak>>20, s.run.Peak()>>20)
	if grown := (s.run.Peak() - peak) >> 20; grown > 64 {
		s.t.Errorf("memory grew by %d MiB", grown)
	}
	if now := s.size("/metrics"); now > metrics*5/4 {
		s.t.Errorf("metrics grew from %d to %d", metrics, now)
	}
	if n := s.size("/api/v1/status"); n > 200_000 {
		s.t.Errorf("the status takes %d", n)
	}
	s.tell(s.run, "process", 250)
}
