package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// loose returns a table that lets applications insert what cannot become a record.
// What a row was to carry is in body, whatever its payload is.
func loose() layout {
	return layout{
		ddl: `CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text, key text, payload bytea, headers jsonb, body bytea NOT NULL,
			status text NOT NULL DEFAULT 'PENDING', tries int NOT NULL DEFAULT 0, problem text, created_at timestamptz NOT NULL DEFAULT clock_timestamp())`,
		config: fields{
			"table": "public.outbox", "id": "id", "topic": fields{"column": "topic"}, "key": fields{"column": "key"}, "payload": fields{"column": "payload"},
			"headers": []any{fields{"json": "headers"}}, "event_id": fields{"header": "id"}, "created_at": "created_at", "order": "id", "grace": "200ms",
			"status": fields{"column": "status", "pending": []string{"PENDING"}, "sent": "SENT", "failed": "FAILED", "attempts": "tries", "max_attempts": 2, "last_error": "problem"},
		},
		insert:  `INSERT INTO outbox (topic, key, payload, body) SELECT topic, key, value, value FROM rows`,
		payload: "body", status: "status", eventID: "id",
	}
}

// rowOf returns a row of a key, for insertAs.
func (w *world) rowOf(key string) history.Insert {
	return history.Insert{Topic: w.topic, Key: key, Keyed: true}
}

// insertAs commits a row with a statement of its own, and runs more of them in its
// transaction. in says what row it is.
func (w *world) insertAs(in history.Insert, insert string, then ...string) history.Insert {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.db.Own())
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(w.t.Context()))
	tx, err := conn.Begin(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	other := *w
	other.layout.insert = insert
	key := &in.Key
	if !in.Keyed {
		key = nil
	}
	rows, err := other.insert(w.t.Context(), tx, in.Topic, key, 1, 10)
	for _, sql := range then {
		if err == nil {
			_, err = tx.Exec(w.t.Context(), sql)
		}
	}
	if err == nil {
		err = tx.Commit(w.t.Context())
	}
	if err != nil {
		w.t.Fatal(err)
	}
	rows[0].Refused = in.Refused
	w.conclude(rows, history.Committed)
	return rows[0]
}

// Rows that cannot become records, among the good ones of hot keys and of others
// under load, are charged by themselves, end FAILED with a word on the column, and
// are delivered when they are fixed and requeued. Their neighbours are not
// touched: all are delivered once, in order, and nobody waits until they are fixed.
func TestRowsThatCannotBecomeRecords(t *testing.T) {
	t.Parallel() // it mostly waits
	l := loose()
	w := newWorld(t, surroundings{layout: &l, partitions: 3})
	p := w.run().streaming()
	load := w.write(steady())
	load.wrote(100, 30*time.Second)
	kinds := []struct{ values, problem string }{
		{`topic, key, NULL, NULL::jsonb, value`, `column "payload"`},
		{`NULL, key, value, NULL::jsonb, value`, `column "topic"`},
		{`'no such/name', key, value, NULL::jsonb, value`, `no legal Kafka topic name`},
		{`topic, key, value, '[1, 2]'::jsonb, value`, `column "headers"`},
	}
	problems := map[history.Insert]string{}
	for i := range scaled(6, 60) {
		for j, kind := range kinds {
			row := w.rowOf(fmt.Sprintf("k%d", (i+j)%8)) // of which four are hot
			row.Refused = true
			row = w.insertAs(row, `INSERT INTO outbox (topic, key, payload, headers, body) SELECT `+kind.values+` FROM rows`)
			problems[row] = kind.problem
		}
		// Others do not wait for them.
		w.becomes(w.insertAs(w.rowOf(fmt.Sprintf("good%d", i)), l.insert), history.Sent, 10*time.Second)
	}
	p.Await(10*time.Second, "the row cannot become a record", `"table":"public.outbox"`, `column \"`)
	for bad, problem := range problems {
		w.becomes(bad, history.Failed, 30*time.Second)
		got := harness.One[string](t, w.db, `SELECT status || ' ' || tries || ' ' || problem FROM outbox WHERE starts_with(convert_from(body, 'UTF8'), $1 || '|')`, bad.Ref)
		if !strings.HasPrefix(got, "FAILED 2 ") || !strings.Contains(got, problem) {
			t.Errorf("row %s: %q, wanted %q", bad.Ref, got, problem)
		}
	}
	load.wrote(100, 30*time.Second)
	if n := harness.One[int](t, w.db, `SELECT count(*) FROM outbox WHERE status = 'FAILED'`); n != len(problems) {
		t.Errorf("%d rows are FAILED, wanted the %d bad ones", n, len(problems))
	}
	w.db.Exec(t, `UPDATE outbox SET topic = $1, payload = body, headers = NULL, tries = 0, status = 'PENDING' WHERE status = 'FAILED'`, w.topic)
	fixed := time.Now()
	for bad := range problems {
		w.becomes(bad, history.Sent, 30*time.Second)
	}
	w.recovery = time.Since(fixed)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.db.Exec(t, `DELETE FROM rewrites WHERE was = 'FAILED' AND became = 'PENDING'`) // ours, when they were fixed
	w.judge(history.Rules{Late: refused})
}
