package sweeper

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// bench is a sweeper on a database with the table of one layout.
type bench struct {
	t       testing.TB
	db      *harness.DB
	table   *outbox.Table
	sweeper *Sweeper
}

func newBench(t testing.TB, l fixture.Layout) *bench {
	t.Helper()
	db := harness.Postgres(t)
	db.Exec(t, l.DDL)
	return newBenchOn(t, db, db.DSN, l.Table)
}

func newBenchOn(t testing.TB, db *harness.DB, dsn string, tables ...*outbox.Table) *bench {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), dsn+"&pool_max_conns=4")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s, err := New(Config{Pool: pool, Tables: tables, Log: zerolog.New(zerolog.NewTestWriter(t))})
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t: t, db: db, table: tables[0], sweeper: s}
}

// everything returns a request for every pending row of the table.
func (b *bench) everything(limit int) outbox.SweepRequest {
	return outbox.SweepRequest{
		Parts: []outbox.SweepPart{{Table: b.table, Include: []outbox.Scope{outbox.StreamScope()}}},
		Limit: limit,
	}
}

func (b *bench) sweep(req outbox.SweepRequest) outbox.Page {
	b.t.Helper()
	page, err := b.sweeper.Sweep(b.t.Context(), req)
	if err != nil {
		b.t.Fatal(err)
	}
	return page
}

func (b *bench) watch(part outbox.SweepPart) outbox.Candidates {
	b.t.Helper()
	part.Table = b.table
	found, err := b.sweeper.Watch(b.t.Context(), outbox.WatchRequest{Parts: []outbox.SweepPart{part}, Limit: 100})
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}

// values returns the rows' values, separated by spaces.
func values(rows []*outbox.Row) string {
	texts := make([]string, len(rows))
	for i, r := range rows {
		texts[i] = string(r.Value)
	}
	return strings.Join(texts, " ")
}

func keys(rows []*outbox.Row) string {
	texts := make([]string, len(rows))
	for i, r := range rows {
		texts[i] = fmt.Sprintf("%q", r.Key)
	}
	return strings.Join(texts, " ")
}

// The server that tests share lives as long as their process.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/outbox-cdc/outbox-cdc/internal/localpg.(*process).wait"))
}
