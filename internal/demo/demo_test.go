package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/wait"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// relay is a plain poller in the place of the stream: the demo does not care
// who publishes. spoil changes what is published. It names the server's operators, since those
// of the harness's hostile schema use no index.
type relay struct {
	spoil func([]*kgo.Record) []*kgo.Record
}

func (relay) init(ctx context.Context, t Target) error {
	conn, err := pgx.Connect(ctx, t.DSN)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE PUBLICATION "+t.Publication+" FOR TABLE "+t.Schema+"."+t.Table+" WITH (publish = 'insert')")
	if err == nil {
		_, err = conn.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", t.Slot)
	}
	return err
}

func (r relay) stream(ctx, kill context.Context, t Target) error {
	holder, err := holdSlot(kill, t)
	if err != nil {
		return err
	}
	defer holder.Close(kill)
	conn, err := pgx.Connect(kill, t.DSN)
	if err != nil {
		return err
	}
	defer conn.Close(kill)
	producer, err := kgo.NewClient(kgo.SeedBrokers(t.Brokers...))
	if err != nil {
		return err
	}
	defer producer.Close()
	for ctx.Err() == nil {
		if err := r.page(kill, conn, producer, t); err != nil {
			return err
		}
		_ = wait.Sleep(ctx, 5*time.Millisecond)
	}
	return nil
}

func (r relay) page(ctx context.Context, conn *pgx.Conn, producer *kgo.Client, t Target) error {
	rows, err := conn.Query(ctx, "SELECT id, key, payload FROM "+t.Schema+"."+t.Table+" WHERE status OPERATOR(pg_catalog.=) 'PENDING' ORDER BY id LIMIT 1000")
	if err != nil {
		return err
	}
	var ids []int64
	var records []*kgo.Record
	var id int64
	var key string
	var payload []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &key, &payload}, func() error {
		ids = append(ids, id)
		records = append(records, &kgo.Record{Topic: t.Topic, Key: []byte(key), Value: bytes.Clone(payload)})
		return nil
	})
	if err != nil {
		return err
	}
	if r.spoil != nil {
		records = r.spoil(records)
	}
	if err := producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "UPDATE "+t.Schema+"."+t.Table+" SET status = 'SENT' WHERE id OPERATOR(pg_catalog.=) ANY($1)", ids)
	return err
}

// holdSlot keeps the slot in use, as a stream does.
func holdSlot(ctx context.Context, t Target) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(t.DSN)
	if err != nil {
		return nil, err
	}
	cfg.RuntimeParams["replication"] = "database"
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := pglogrepl.StartReplication(ctx, conn.PgConn(), t.Slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names '" + t.Publication + "'"},
	}); err != nil {
		return nil, err
	}
	return conn, nil
}

// play runs a demo on the tests' database and gives its summary.
func play(t *testing.T, r relay, o Options) (Summary, error) {
	t.Helper()
	db := harness.Postgres(t)
	var out bytes.Buffer
	o.Out, o.JSON, o.Init, o.Stream, o.Postgres = &out, true, r.init, r.stream, db.DSN
	err := Run(t.Context(), t.Context(), o)
	for what, query := range map[string]string{
		"schema":      "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'outbox_cdc%'",
		"slot":        "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()",
		"publication": "SELECT count(*) FROM pg_publication",
	} {
		if n := harness.One[int](t, db, query); n != 0 {
			t.Errorf("the demo left a %s behind", what)
		}
	}
	var s Summary
	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), &s); err != nil {
			t.Fatalf("%v in %s", err, out.String())
		}
	}
	return s, err
}

func TestDemoOfAGoodRelay(t *testing.T) {
	s, err := play(t, relay{}, Options{Rows: 3000, Rate: 3000})
	if err != nil {
		t.Fatal(err)
	}
	if s.Inserted != 3000 || s.Published != 3000 || s.Sent != 3000 || !s.Good() || s.Kafka != "kfake (in-process)" || s.Latency.P99 <= 0 {
		t.Errorf("%+v", s)
	}
}

func TestDemoFindsWhatARelayDoesWrong(t *testing.T) {
	if testing.Short() {
		t.Skip("the checker is tested without servers too")
	}
	for name, c := range map[string]struct {
		spoil func([]*kgo.Record) []*kgo.Record
		found func(Summary) bool
	}{
		"twice": {
			func(r []*kgo.Record) []*kgo.Record { return append(r, clones(r)...) },
			func(s Summary) bool { return s.Duplicates == 500 && s.Lost == 0 },
		},
		"backwards": {
			func(r []*kgo.Record) []*kgo.Record {
				backwards := make([]*kgo.Record, 0, len(r))
				for i := len(r) - 1; i >= 0; i-- {
					backwards = append(backwards, r[i])
				}
				return backwards
			},
			func(s Summary) bool { return s.OutOfOrder > 0 && s.Duplicates == 0 && s.Lost == 0 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := play(t, relay{spoil: c.spoil}, Options{Rows: 500})
			if !errors.Is(err, ErrBad) || !c.found(s) {
				t.Errorf("%v: %+v", err, s)
			}
		})
	}
}

func clones(records []*kgo.Record) []*kgo.Record {
	again := make([]*kgo.Record, 0, len(records))
	for _, r := range records {
		again = append(again, &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value})
	}
	return again
}

func TestDemoThroughAnOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes its time")
	}
	s, err := play(t, relay{}, Options{Duration: time.Second, Rate: 500, Outage: 500 * time.Millisecond})
	if err != nil || s.Inserted == 0 {
		t.Errorf("%v: %+v", err, s)
	}
}

func TestInterruptedDemoSumsUp(t *testing.T) {
	db := harness.Postgres(t)
	ctx, interrupt := context.WithCancel(t.Context())
	var out bytes.Buffer
	r := relay{}
	stream := func(streamCtx, kill context.Context, target Target) error {
		time.AfterFunc(300*time.Millisecond, interrupt)
		return r.stream(streamCtx, kill, target)
	}
	err := Run(ctx, t.Context(), Options{Out: &out, Duration: time.Hour, Rate: 500, Postgres: db.DSN, Init: r.init, Stream: stream})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "arrived once and in order") {
		t.Errorf("no summary in\n%s", out.String())
	}
}

func TestDemoInterruptedAtTheStart(t *testing.T) {
	r := relay{}
	ctx, interrupt := context.WithCancel(t.Context())
	never := func(streamCtx, kill context.Context, _ Target) error {
		interrupt() // the slot is not taken yet
		<-kill.Done()
		return nil
	}
	err := Run(ctx, t.Context(), Options{Out: &bytes.Buffer{}, Postgres: harness.Postgres(t).DSN, Init: r.init, Stream: never})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestDemoOnGivenBrokers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a broker")
	}
	cluster := harness.Kafka(t)
	s, err := play(t, relay{}, Options{Rows: 500, Brokers: cluster.Addrs})
	if err != nil || s.Published != 500 || strings.Contains(s.Kafka, "kfake") {
		t.Errorf("%v: %+v", err, s)
	}
	harness.Eventually(t, 10*time.Second, func() error {
		if topics := cluster.Topics(t); len(topics) > 0 {
			return fmt.Errorf("left behind: %v", topics)
		}
		return nil
	})
}

func TestDemoNamesTheFix(t *testing.T) {
	r := relay{}
	for want, o := range map[string]Options{
		"--outage":         {Outage: time.Second, Brokers: []string{"localhost:9"}},
		"--brokers":        {ExactlyOnce: true},
		"negative":         {Rows: -1},
		"--serve":          {Serve: true, JSON: true},
		"no broker":        {Brokers: []string{"127.0.0.1:9"}, Postgres: harness.Postgres(t).DSN},
		"--postgres":       {Postgres: "postgres://nobody@127.0.0.1:9/x"},
		"the stream ended": {Rows: 1, Postgres: harness.Postgres(t).DSN, Stream: func(context.Context, context.Context, Target) error { return errors.New("boom") }},
	} {
		o.Out, o.Init = &bytes.Buffer{}, r.init
		if o.Stream == nil {
			o.Stream = r.stream
		}
		if err := Run(t.Context(), t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("wanted an error about %q, got %v", want, err)
		}
	}
}
