package statestore

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
)

// What is paused, and who leads, is told even if a further question fails.
func TestWhatALeaderWatches(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	s := New(Config{DB: pool, Stream: "orders"})
	lead(t, s)
	for _, table := range []string{"", "public.outbox"} {
		if err := s.Pause(t.Context(), table, "me"); err != nil {
			t.Fatal(err)
		}
	}
	broken := errors.New("broken")
	fails := postgres.Question{SQL: "SELECT 1/0", Read: func(rows pgx.Rows, err error) error {
		if err == nil {
			_, err = pgx.CollectOneRow(rows, pgx.RowTo[int])
		}
		return errors.Join(broken, err)
	}}
	w, err := s.Watch(t.Context(), fails)
	if !errors.Is(err, broken) || !postgres.HasCode(err, "22012") {
		t.Errorf("%v", err)
	}
	if !w.Told || w.Lost != nil || len(w.Paused) != 2 || w.Paused[0].Scope != outbox.StreamScope() ||
		w.Paused[1].Scope != (outbox.Scope{Kind: outbox.ScopeTable, Table: "public.outbox"}) || w.Paused[1].Reason != "paused by me" || w.Paused[1].Since.IsZero() {
		t.Errorf("%+v", w)
	}
	if err := s.Resume(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	lead(t, New(Config{DB: pool, Stream: "orders"}))
	if w, err = s.Watch(t.Context()); err != nil || len(w.Paused) > 0 || !errors.Is(w.Lost, ErrFenced) {
		t.Errorf("%+v, %v", w, err)
	}
	if _, err := pool.Exec(t.Context(), "DELETE FROM outbox_cdc.leader"); err != nil {
		t.Fatal(err)
	}
	if err := s.Leads(t.Context()); !errors.Is(err, ErrNoSchema) {
		t.Errorf("%v", err)
	}
	if _, err := pool.Exec(t.Context(), "DROP SCHEMA outbox_cdc CASCADE"); err != nil {
		t.Fatal(err)
	}
	if w, err = s.Watch(t.Context(), fails); !errors.Is(err, ErrNoSchema) || w.Told {
		t.Errorf("%+v, %v", w, err)
	}
}
