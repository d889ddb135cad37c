package pipeline

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// A park is logged as a warning once per cause, until it is handed back. A new reason is logged at a lower
// level.
func TestAParkIsNewsOnce(t *testing.T) {
	t.Parallel()
	d := &driver{questions: &questions{telling: &telling{}}, told: map[parkedFor]string{}}
	for i, c := range []struct {
		kind   outbox.ScopeKind
		cause  outbox.Cause
		reason string
		want   zerolog.Level
	}{
		{outbox.ScopeStream, outbox.CausePublication, "renamed", zerolog.WarnLevel},
		{outbox.ScopeStream, outbox.CausePublication, "renamed", zerolog.DebugLevel},
		{outbox.ScopeStream, outbox.CausePublication, "dropped", zerolog.InfoLevel},
		{outbox.ScopeStream, outbox.CauseSlot, "lost", zerolog.WarnLevel},
		{outbox.ScopeTable, outbox.CausePublication, "dropped", zerolog.WarnLevel},
		{outbox.ScopeTable, outbox.CauseWriteBack, "dropped", zerolog.InfoLevel}, // for the same, by another cause
		{outbox.ScopeTopic, outbox.CauseSlot, "x", zerolog.WarnLevel},
		{outbox.ScopeTopic, outbox.CauseSlot, "x", zerolog.WarnLevel}, // counted by loglimit
	} {
		if got := d.news(&outbox.Park{Scope: outbox.Scope{Kind: c.kind}, Cause: c.cause, Reason: c.reason}); got != c.want {
			t.Errorf("%d: %v, want %v", i, got, c.want)
		}
	}
	d.renamed.Store("public.outbox", "public.old") // and told
	for _, p := range []outbox.Park{
		{Scope: outbox.Scope{Kind: outbox.ScopeTable, Table: "public.outbox"}, Cause: outbox.CauseMapping},
		{Scope: outbox.StreamScope(), Cause: outbox.CauseUnreadable, Reason: "table public.outbox is gone from the WAL"},
	} {
		if got := d.news(&p); got != zerolog.InfoLevel {
			t.Errorf("a park for a table that was told to be renamed: %v", got)
		}
	}
	following := &outbox.Park{Scope: outbox.Scope{Kind: outbox.ScopeTable, Table: "public.letters"}, Cause: outbox.CausePublication, Reason: "no publication"}
	d.follow(following.Scope, following.Reason)
	if got := d.news(following); got != zerolog.InfoLevel {
		t.Errorf("a park that follows from what is told: %v", got)
	}
	following.Scope, d.told = outbox.StreamScope(), map[parkedFor]string{} // which tells it
	if got := d.news(following); got != zerolog.WarnLevel {
		t.Errorf("the park that tells what its tables' parks follow from: %v", got)
	}
}

// While the database is known to be away, failures that follow from that are logged at a lower level.
func TestWhatFollowsFromAnOutageIsNoNews(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	q := newQuestions(newTelling(zerolog.New(&said).Level(zerolog.InfoLevel), nil, nil), "orders", newLink(), nil)
	q.retried(t.Context(), io.EOF, time.Second, "before")
	q.report(io.EOF, time.Second)
	q.retried(t.Context(), io.EOF, time.Second, "meanwhile")
	q.retried(t.Context(), errors.New("no right"), time.Second, "otherwise")
	q.report(&pgconn.PgError{Code: pgerrcode.CannotConnectNow, Message: "starting up"}, time.Second)
	q.report(&pgconn.PgError{Code: pgerrcode.InvalidPassword, Message: "wrong password"}, time.Second)
	q.works()
	q.retried(t.Context(), io.EOF, time.Second, "after")
	if got := strings.Count(said.String(), `"level":"error"`); got != 2 || !strings.Contains(said.String(), "wrong password") {
		t.Errorf("%d errors, want that it is away and then what only a person can fix: %s", got, said.String())
	}
	for text, want := range map[string]bool{"before": true, "meanwhile": false, "otherwise": true, "after": true} {
		if got := strings.Contains(said.String(), text); got != want {
			t.Errorf("%s: told %v, want %v: %s", text, got, want, said.String())
		}
	}
}

// The end of a connection is logged quietly only if somebody ended the connection and logged why.
func TestOnlyAConnectionThatIsThereIsEnded(t *testing.T) {
	t.Parallel()
	l := newLink()
	l.restart()
	if l.told.Load() {
		t.Error("the next connection's end would not be told")
	}
}
