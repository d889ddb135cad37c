package sweeper

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

var errStillOpen = errors.New("connections are still open")

// native returns our own table as init makes it.
func native(t testing.TB) fixture.Layout {
	t.Helper()
	ddl, err := os.ReadFile("../../sql/native_table.sql")
	if err != nil {
		t.Fatal(err)
	}
	return fixture.Layout{DDL: string(ddl), Table: &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID:             []string{"id"},
		Cluster:        outbox.ClusterMapping{Default: "main"},
		Topic:          outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{{Column: "topic"}}},
		Key:            &outbox.Expr{Column: "key"},
		Payload:        outbox.PayloadMapping{Expr: outbox.Expr{Column: "payload"}, Tombstone: true},
		Headers:        []outbox.HeaderMapping{{JSON: "headers"}},
		CreatedAt:      "created_at",
		AvailableAfter: []string{"available_after"},
		Order:          []string{"id"},
		Published:      outbox.PublishedStatus,
		Status: outbox.StatusMapping{
			Column: "status", Pending: []string{"PENDING"}, Sent: "SENT", Failed: "FAILED", SentAt: "sent_at",
			Attempts: "attempts", MaxAttempts: 10, LastError: "last_error",
		},
		Grace: 5 * time.Second,
	}}}
}

const manySent = `INSERT INTO outbox (aggregate_id, event_id, topic, payload_bytes, status, created_at, sent_at)
	SELECT gen_random_uuid(), gen_random_uuid(), 'orders', 'x', 'SENT', now() - i * interval '1 s', now() FROM generate_series(1, 50000) i`

const manySentNative = `INSERT INTO outbox (key, topic, payload, status, created_at, sent_at)
	SELECT i % 1000, 'orders', 'x', 'SENT', now() - i * interval '1 s', now() FROM generate_series(1, 50000) i`

// A table full of sent rows costs the sweep nothing, whether or not the statistics are up to date.
func TestNothingScansTheTable(t *testing.T) {
	t.Parallel()
	im2be := fixture.Im2be()
	for _, c := range []struct {
		name   string
		layout fixture.Layout
		fill   string
	}{{"im2be", im2be, manySent}, {"native", native(t), manySentNative}} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c.layout)
			b.db.Exec(t, `ALTER TABLE outbox SET (autovacuum_enabled = off)`)
			b.db.Exec(t, c.fill)
			b.everyRead(t)
			b.db.Exec(t, `VACUUM ANALYZE outbox`)
			b.everyRead(t)
		})
	}
}

// everyRead runs every read of the sweeper, with and without scopes, and checks the server's counters.
func (b *bench) everyRead(t *testing.T) {
	t.Helper()
	before := b.scans()
	b.sweep(b.everything(1000))
	req := b.everything(1000)
	flight := []string{strings.Repeat("0", 8) + "-0000-0000-0000-000000000000\x0000000000-0000-0000-0000-000000000001"}
	if b.table.Mapping.ID[0] == "id" {
		flight = []string{"7"}
	}
	req.Parts[0].ExcludeIDs = flight
	req.Parts[0].Exclude = []outbox.Scope{{Kind: outbox.ScopeKey, Table: b.table.String(), Topic: "orders", Key: strings.Split(flight[0], "\x00")[0]}}
	b.sweep(req)
	req.Parts[0].Include, req.Parts[0].Exclude = req.Parts[0].Exclude, nil
	b.sweep(req)
	b.watch(outbox.SweepPart{ExcludeIDs: flight})
	topics := make([]outbox.Scope, 10_000)
	for i := range topics {
		topics[i] = outbox.TopicScope("main", fmt.Sprint("none-", i))
	}
	for _, part := range []outbox.SweepPart{{Exclude: topics}, {Known: topics}, {Include: topics}} {
		req := b.everything(1000)
		req.Parts[0].Exclude, req.Parts[0].Known = part.Exclude, part.Known
		if part.Include != nil {
			req.Parts[0].Include = part.Include
		}
		b.sweep(req)
	}
	b.checks([]*outbox.Row{{Table: b.table, ID: flight[0]}}, []outbox.CheckState{outbox.CheckSettled})
	if _, err := b.sweeper.Failed(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.sweeper.CountPending(t.Context(), b.table); err != nil {
		t.Fatal(err)
	}
	if after := b.scans(); after != before {
		t.Errorf("the table was scanned %d times", after-before)
	}
}

// scans returns how often the table was scanned from end to end. The counters of other sessions arrive when
// these are idle, at the latest when they end.
func (b *bench) scans() int {
	b.t.Helper()
	b.sweeper.cfg.Pool.Reset()
	harness.Eventually(b.t, 5*time.Second, func() error {
		if b.sweeper.cfg.Pool.Stat().TotalConns() > 0 {
			return errStillOpen
		}
		return nil
	})
	return harness.One[int](b.t, b.db, `SELECT seq_scan::int FROM pg_stat_user_tables WHERE relname = 'outbox'`)
}
