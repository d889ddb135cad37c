package statusupdater

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// bench is an updater that runs on a database with the table of one layout.
type bench struct {
	t       testing.TB
	db      *harness.DB
	table   *outbox.Table
	updater *Updater
	answers *mailbox.Mailbox[outbox.Marked]
}

func newBench(t testing.TB, l fixture.Layout) *bench {
	t.Helper()
	return newBenchOn(t, harness.Postgres(t), l, Config{})
}

// newBenchOn makes the table, and runs an updater until the test ends.
func newBenchOn(t testing.TB, db *harness.DB, l fixture.Layout, cfg Config) *bench {
	t.Helper()
	db.Exec(t, l.DDL)
	return runOn(t, db, l.Table, cfg)
}

func runOn(t testing.TB, db *harness.DB, table *outbox.Table, cfg Config) *bench {
	t.Helper()
	b := &bench{t: t, db: db, table: table, answers: mailbox.New[outbox.Marked]()}
	if cfg.Pool == nil {
		cfg.Pool = pool(t, db.DSN)
	}
	cfg.Log = zerolog.New(zerolog.NewTestWriter(t))
	b.updater = New(cfg, b.answers)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.updater.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("Run returned %v", err)
		}
	})
	return b
}

func pool(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(context.Background(), dsn+"&pool_max_conns=8&connect_timeout=2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// insert adds rows by an INSERT … RETURNING that returns the row's id as text.
func (b *bench) insert(sql string) []*outbox.Row {
	b.t.Helper()
	conn := b.db.Conn(b.t)
	rows, err := conn.Query(b.t.Context(), sql)
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	var out []*outbox.Row
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			b.t.Fatal(err)
		}
		parts := make([]string, len(values))
		for i, v := range values {
			parts[i] = v.(string)
		}
		out = append(out, &outbox.Row{Table: b.table, ID: outbox.JoinID(parts...), Pending: true})
	}
	if rows.Err() != nil {
		b.t.Fatal(rows.Err())
	}
	return out
}

func (b *bench) im2be(n int) []*outbox.Row {
	return b.insert(fmt.Sprintf(`INSERT INTO outbox (aggregate_id, event_id, topic, payload_bytes)
		SELECT gen_random_uuid(), gen_random_uuid(), 'orders', decode(repeat('ab', 128), 'hex') FROM generate_series(1, %d)
		RETURNING aggregate_id::text, event_id::text`, n))
}

func marks(kind outbox.MarkKind, reason string, rows ...*outbox.Row) []outbox.Mark {
	out := make([]outbox.Mark, len(rows))
	for i, r := range rows {
		out[i] = outbox.Mark{Row: r, Kind: kind, Reason: reason}
	}
	return out
}

func (b *bench) do(kind outbox.MarkKind, reason string, rows ...*outbox.Row) {
	b.updater.Do(marks(kind, reason, rows...)...)
}

// await waits for n answers.
func (b *bench) await(n int) map[*outbox.Row]outbox.Marked {
	b.t.Helper()
	got := make(map[*outbox.Row]outbox.Marked)
	deadline := time.After(time.Minute)
	for len(got) < n {
		select {
		case <-b.answers.Ready():
			for _, a := range b.answers.Take(nil) {
				if _, twice := got[a.Row]; twice {
					b.t.Fatalf("row %q was answered twice", a.Row.ID)
				}
				got[a.Row] = a
			}
		case <-deadline:
			b.t.Fatalf("%d of %d answers within a minute", len(got), n)
		}
	}
	return got
}

// expect marks one row and checks its answer.
func (b *bench) expect(kind outbox.MarkKind, row *outbox.Row, state outbox.MarkState, attempts int) outbox.Marked {
	b.t.Helper()
	b.do(kind, "no \x00 such\xff topic", row)
	a := b.await(1)[row]
	if a.State != state || a.Attempts != attempts || a.Kind != kind {
		b.t.Fatalf("answer %+v, want state %d and %d attempts", a, state, attempts)
	}
	return a
}

func (b *bench) one(sql string, args ...any) string {
	b.t.Helper()
	return harness.One[string](b.t, b.db, sql, args...)
}

func (b *bench) want(want, sql string, args ...any) {
	b.t.Helper()
	if got := b.one(sql, args...); got != want {
		b.t.Fatalf("%s: %q, want %q", strings.TrimSpace(sql), got, want)
	}
}

// The server that tests share lives as long as their process.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/outbox-cdc/outbox-cdc/internal/localpg.(*process).wait"))
}
