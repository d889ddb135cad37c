package compare_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/compare"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/sweeper"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// A relay that sends one row rightly, one with another value and one not at
// all, and a record of its own: each is told, and the slot is gone afterwards.
func TestLiveComparison(t *testing.T) {
	t.Parallel()
	db, kafka := harness.Postgres(t), harness.Kfake(t)
	topic := kafka.Topic(t, 3)
	db.Exec(t, `CREATE TABLE outbox (id bigserial PRIMARY KEY, topic text, key text, payload text, status text NOT NULL DEFAULT 'PENDING')`)
	db.Exec(t, `CREATE PUBLICATION compared FOR TABLE outbox WITH (publish = 'insert')`)
	orders := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID: []string{"id"}, Topic: outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{{Column: "topic"}}},
		Key: &outbox.Expr{Column: "key", Encoding: outbox.EncodingText}, Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "payload"}},
		Cluster: outbox.ClusterMapping{Default: "main", Known: []string{"main"}}, Order: []string{"id"},
		Published: outbox.PublishedStatus, Status: outbox.StatusMapping{Column: "status", Pending: []string{"PENDING"}, Sent: "SENT", Failed: "FAILED"},
	}}
	sw, err := sweeper.New(sweeper.Config{Pool: db.Pool(t), Tables: []*outbox.Table{orders}})
	if err != nil {
		t.Fatal(err)
	}
	client, reader := client(t, kafka), reader(t, kafka)
	began := make(chan struct{})
	result := make(chan *compare.Report, 1)
	go func() {
		report, err := compare.Run(t.Context(), compare.Config{
			Stream: "orders", Access: postgres.Access{DSN: db.DSN}, Publication: "compared", Tables: []*outbox.Table{orders},
			Readers: map[string]*sink.Reader{"main": reader}, Partition: sink.PartitionOf, Check: sw.Check,
			For: 2 * time.Second, Settle: 2 * time.Second, Examples: 3, Limit: 1000, Began: func() { close(began) },
		})
		if err != nil {
			t.Error(err)
		}
		result <- report
	}()
	await(t, began)
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ($1, 'a', 'right'), ($1, 'b', 'wrong'), ($1, 'c', 'never'), ($1, 'd', 'later'), (NULL, 'e', 'nowhere')`, topic)
	db.Exec(t, `INSERT INTO outbox (topic, key, payload, status) VALUES ($1, 'f', 'not ours', 'SENT')`, topic)
	db.Exec(t, `UPDATE outbox SET status = 'SENT' WHERE key IN ('a', 'b', 'c')`)
	produce(t, client, topic, "a", "right")
	produce(t, client, topic, "b", "other")
	report := await(t, result)
	if report == nil {
		t.FailNow()
	}
	want := map[compare.Kind]int{compare.Value: 1, compare.Missing: 1, compare.Waiting: 1, compare.Refused: 1}
	for _, k := range report.Kinds {
		if want[k.Kind] != k.Count {
			t.Errorf("%s: %d (%+v), wanted %d", k.Kind, k.Count, k.Examples, want[k.Kind])
		}
		delete(want, k.Kind)
	}
	if len(want) > 0 || report.Same != 1 || report.Rows != 5 || report.Records != 2 || report.Differences != 3 {
		t.Errorf("%+v; not told: %v", report, want)
	}
	harness.Eventually(t, 10*time.Second, func() error {
		if n := harness.One[int](t, db, `SELECT count(*)::int FROM pg_replication_slots WHERE slot_name LIKE 'outbox_cdc_compare_%' AND database = current_database()`); n != 0 {
			return context.DeadlineExceeded
		}
		return nil
	})
}

// A row that is longer than max_row_bytes can be no record, and is not held in memory; one that is long
// by columns that are not mapped is compared like any other.
func TestLiveLongRows(t *testing.T) {
	t.Parallel()
	size := 4 << 20
	if os.Getenv("OUTBOX_TEST_LONG") == "1" {
		size = 270 << 20 // PostgreSQL cannot print its message at once
	}
	db, kafka := harness.Postgres(t), harness.Kfake(t)
	topic := kafka.Topic(t, 1)
	db.Exec(t, `CREATE TABLE outbox (id bigserial PRIMARY KEY, key text, payload bytea, other text, status text NOT NULL DEFAULT 'PENDING')`)
	db.Exec(t, `CREATE PUBLICATION compared FOR TABLE outbox WITH (publish = 'insert')`)
	orders := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID: []string{"id"}, Topic: outbox.Template{Literals: []string{topic}}, MaxRowBytes: 1 << 20,
		Key: &outbox.Expr{Column: "key", Encoding: outbox.EncodingText}, Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "payload"}},
		Cluster: outbox.ClusterMapping{Default: "main", Known: []string{"main"}}, Order: []string{"id"},
		Published: outbox.PublishedStatus, Status: outbox.StatusMapping{Column: "status", Pending: []string{"PENDING"}, Sent: "SENT", Failed: "FAILED"},
	}}
	sw, err := sweeper.New(sweeper.Config{Pool: db.Pool(t), Tables: []*outbox.Table{orders}})
	if err != nil {
		t.Fatal(err)
	}
	client, reader := client(t, kafka), reader(t, kafka)
	report, err := compare.Run(t.Context(), compare.Config{
		Stream: "orders", Access: postgres.Access{DSN: db.DSN}, Publication: "compared", Tables: []*outbox.Table{orders},
		Readers: map[string]*sink.Reader{"main": reader}, Partition: sink.PartitionOf, Check: sw.Check, MaxFrame: 2<<20 + 64<<10,
		For: 2 * time.Second, Settle: 2 * time.Second, Examples: 3, Limit: 1000, Began: func() {
			db.Exec(t, `INSERT INTO outbox (key, payload) VALUES ('a', convert_to(repeat('x', $1), 'UTF8'))`, size)
			db.Exec(t, `INSERT INTO outbox (key, payload, other) VALUES ('b', 'right', repeat('x', 5000000))`)
			db.Exec(t, `UPDATE outbox SET status = 'SENT' WHERE key = 'b'`)
			produce(t, client, topic, "b", "right")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if report.Same != 1 || report.Rows != 2 || len(report.Kinds) != 1 || report.Kinds[0].Kind != compare.Refused || report.Kinds[0].Count != 1 {
		t.Errorf("%+v", report)
	}
}

func reader(t *testing.T, kafka *harness.Cluster) *sink.Reader {
	t.Helper()
	r, err := sink.Config{Cluster: "main", Brokers: kafka.Addrs}.Reader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func client(t *testing.T, kafka *harness.Cluster) sarama.Client {
	t.Helper()
	conf := sarama.NewConfig()
	conf.Version = sarama.MaxVersion
	conf.Producer.Return.Successes = true
	conf.Producer.RequiredAcks = sarama.WaitForAll
	conf.Producer.Partitioner = sarama.NewMurmur2Partitioner
	c, err := sarama.NewClient(kafka.Addrs, conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func produce(t *testing.T, c sarama.Client, topic, key, value string) {
	t.Helper()
	p, err := sarama.NewSyncProducerFromClient(c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	if _, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(key), Value: sarama.StringEncoder(value)}); err != nil {
		t.Fatal(err)
	}
}

func await[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatal("not within a minute")
		panic("unreachable")
	}
}
