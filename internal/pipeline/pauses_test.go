package pipeline

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/sql"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// An answer to an older question that arrives later neither ends nor begins a pause.
func TestAnOlderAnswerOfPausesCountsForNothing(t *testing.T) {
	t.Parallel()
	p := &pauses{}
	pause := []outbox.Park{{Scope: outbox.StreamScope()}}
	for i, told := range []struct {
		found paused
		want  int
	}{{paused{2, pause}, 1}, {paused{1, nil}, 1}, {paused{3, nil}, 0}, {paused{2, pause}, 0}} {
		if n := len(p.newer(told.found)); n != told.want {
			t.Errorf("%d: %d pauses, want %d", i, n, told.want)
		}
	}
}

// A question over a dead connection does not delay another one, such as that of a new connection to the slot.
func TestAQuestionForPausesHasItsTime(t *testing.T) {
	t.Parallel()
	db, proxy := harness.Postgres(t).Proxied(t)
	db.Exec(t, sql.Schema)
	pool, err := pgxpool.New(t.Context(), db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	p := &pauses{store: &store{Store: statestore.New(statestore.Config{DB: pool, Stream: "s"})}}
	if _, _, err := p.ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.Silence(harness.Requests, harness.Replies)
	asked := make(chan error, 2)
	for range cap(asked) {
		go func() {
			_, _, err := p.ask(t.Context())
			asked <- err
		}()
	}
	for range cap(asked) {
		select {
		case err := <-asked:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("it waits for ever")
		}
	}
}

func TestASweepThatIsPaused(t *testing.T) {
	t.Parallel()
	table := &outbox.Table{Schema: "public", Name: "outbox"}
	p := &pauses{cfg: &Config{Tables: []*outbox.Table{table}}}
	other := outbox.Park{Scope: outbox.Scope{Kind: outbox.ScopeTable, Table: "public.gone"}}
	if err := p.refusal([]outbox.Park{other}); err != nil {
		t.Errorf("a table of another configuration: %v", err)
	}
	why := p.refusal([]outbox.Park{other, {Scope: outbox.TableScope(table)}})
	if why == nil || p.refusal([]outbox.Park{{Scope: outbox.StreamScope()}}) == nil {
		t.Fatal("it is swept though it is paused")
	}
	ended := 0
	o := &oneShotSweep{status: func() status.Stream { return status.Stream{Flow: &status.Flow{}} }, giveUp: time.Minute, finish: func() { ended++ }}
	o.fail(nil)
	if ended != 0 {
		t.Error("over though nothing is paused")
	}
	o.fail(why)
	o.progress(time.Now().Add(time.Hour), 0)
	if err := o.failed; ended != 1 || !errors.Is(err, why) {
		t.Error(ended, err)
	}
	(*oneShotSweep)(nil).fail(why)
}

// A paused scope is not left to the sweeper, and the log does not say that it is.
func TestWhatTheLogSaysOfAPause(t *testing.T) {
	t.Parallel()
	if text := parkedText(outbox.CausePaused); text == parkedText(outbox.CauseSlot) {
		t.Error(text)
	}
}
