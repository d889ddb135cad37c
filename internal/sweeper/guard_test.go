package sweeper

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// On a server without the leader's session, nothing is read.
func TestGuardedLooksAndPages(t *testing.T) {
	t.Parallel()
	b := newBench(t, fixture.Plain())
	b.db.Exec(t, `INSERT INTO plain (key, body, created_at) VALUES ('k', 'a', now() - interval '1 hour'), ('k', 'b', now() - interval '1 hour')`)
	guard := new(tablesql.Guard)
	s, err := New(Config{Pool: b.db.Pool(t), Tables: []*outbox.Table{b.table}, Guard: guard, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	rows := b.sweep(b.everything(10)).Rows
	reads := map[string]func() (int, error){
		"page": func() (int, error) {
			page, err := s.Sweep(t.Context(), b.everything(10))
			return len(page.Rows), err
		},
		"look": func() (int, error) {
			answers, err := s.Check(t.Context(), rows)
			return len(answers), err
		},
		"watch": func() (int, error) {
			part := b.everything(10).Parts[0]
			found, err := s.Watch(t.Context(), outbox.WatchRequest{Parts: []outbox.SweepPart{part}, Limit: 10})
			return len(found.Rows), err
		},
	}
	refused := func(when string) error {
		for what, read := range reads {
			if n, err := read(); !errors.Is(err, tablesql.ErrNotLeading) || tablesql.FaultOf(err) != tablesql.Passing || n != 0 {
				return fmt.Errorf("%s %s: %d, %w", what, when, n, err)
			}
		}
		return nil
	}
	if err := refused("without a leader"); err != nil {
		t.Error(err)
	}
	leader := b.db.Conn(t)
	if _, err := leader.Exec(t.Context(), "SELECT pg_advisory_lock(-4712)"); err != nil {
		t.Fatal(err)
	}
	guard.Hold(-4712)
	for range 2 { // by a prepared statement, too
		for what, read := range reads {
			if n, err := read(); err != nil || n != 2 {
				t.Errorf("%s with the leader: %d, %v", what, n, err)
			}
		}
	}
	guard.Hold(4713)
	if err := refused("with another's lock"); err != nil {
		t.Error(err)
	}
	guard.Hold(-4712)
	_ = leader.Close(t.Context())
	harness.Eventually(t, 20*time.Second, func() error { return refused("when its session has ended") })
}
