package statestore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

func database(t *testing.T) (*harness.DB, *pgxpool.Pool) {
	t.Helper()
	db := harness.Postgres(t)
	pool := db.Pool(t)
	for range 2 { // it may be repeated
		db.Exec(t, sql.Schema)
	}
	return db, pool
}

func lead(t *testing.T, s *Store) Leadership {
	t.Helper()
	l, err := s.Lead(t.Context(), "host")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func write(t *testing.T, s *Store, change outbox.ParkChange) {
	t.Helper()
	if result, err := s.Write(t.Context(), change); err != nil || result != outbox.ParksCommitted {
		t.Fatalf("result %d, %v", result, err)
	}
}

func load(t *testing.T, s *Store) map[outbox.Scope]outbox.Park {
	t.Helper()
	list, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byScope := map[outbox.Scope]outbox.Park{}
	for _, p := range list {
		p.Since, p.Next = p.Since.UTC(), p.Next.UTC()
		byScope[p.Scope] = p
	}
	return byScope
}

// hostileParks are one park of each kind, with names and keys that quoting
// could get wrong.
func hostileParks() []outbox.Park {
	since := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	park := func(s outbox.Scope, cause outbox.Cause) outbox.Park {
		return outbox.Park{Scope: s, Cause: cause, Reason: "because", Since: since}
	}
	table := `odd."schema"`
	list := []outbox.Park{
		park(outbox.StreamScope(), outbox.CauseSlot),
		park(outbox.ClusterScope(`it's`), outbox.CauseCluster),
		park(outbox.Scope{Kind: outbox.ScopeTable, Table: table}, outbox.CauseMapping),
		park(outbox.TopicScope("c", "topic"), outbox.CauseTopic),
		park(outbox.TopicScope("ct", "opic"), outbox.CauseTopic),
		park(outbox.Scope{Kind: outbox.ScopeKey, Table: table, Topic: "t", Key: "a\x00b\xff'\\"}, outbox.CauseRowError),
		park(outbox.Scope{Kind: outbox.ScopeKey, Table: table, Topic: "t", Key: ""}, outbox.CauseRowError),
		park(outbox.Scope{Kind: outbox.ScopeKey, Table: table, Topic: "t", Key: strings.Repeat("k", 100_000)}, outbox.CauseMissed),
		park(outbox.Scope{Kind: outbox.ScopeRow, Table: table, ID: outbox.JoinID("1", `a,"b\{}`, "", "NULL", "ü")}, outbox.CauseScheduled),
		park(outbox.Scope{Kind: outbox.ScopeRow, Table: table, ID: ""}, outbox.CauseMissed),
	}
	list[5].Next = since.Add(time.Hour)
	list[6].Cause, list[6].RowID = outbox.CauseBlocked, outbox.JoinID("7", "x y")
	return list
}

func TestParksComeBackAsWritten(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	s := New(Config{DB: pool, Stream: "orders"})
	lead(t, s)
	parks := hostileParks()
	write(t, s, outbox.ParkChange{Put: parks})
	got := load(t, s)
	if len(got) != len(parks) {
		t.Fatalf("%d parks of %d", len(got), len(parks))
	}
	for _, p := range parks {
		if got[p.Scope] != p {
			t.Errorf("got  %+v\nwant %+v", got[p.Scope], p)
		}
	}
	if other := load(t, New(Config{DB: pool, Stream: "others"})); len(other) != 0 {
		t.Errorf("another stream sees %d parks", len(other))
	}
	change := outbox.ParkChange{Put: []outbox.Park{parks[0]}}
	change.Put[0].Reason = "a\x00b\xff" + strings.Repeat("é", 5000)
	for _, p := range parks {
		change.Delete = append(change.Delete, p.Scope) // the first is put as well: it stays
	}
	write(t, s, change)
	got = load(t, s)
	if len(got) != 1 || !strings.HasPrefix(got[outbox.StreamScope()].Reason, "a?b?é") {
		t.Errorf("left: %v", got)
	}
}

func TestLastParkOfAScopeWins(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	s := New(Config{DB: pool, Stream: "orders"})
	lead(t, s)
	p := hostileParks()[0]
	again := p
	again.Reason = "second"
	write(t, s, outbox.ParkChange{Put: []outbox.Park{p, again}})
	if got := load(t, s)[p.Scope].Reason; got != "second" {
		t.Errorf("reason %q", got)
	}
	write(t, s, outbox.ParkChange{})
}

func TestScopesThatCannotBeTextAreRefused(t *testing.T) {
	t.Parallel()
	s := New(Config{Stream: "orders"}) // refused before anything is sent
	for _, scope := range []outbox.Scope{outbox.ClusterScope("a\x00"), outbox.TopicScope("c", "\xff"), {Kind: outbox.ScopeRow, ID: "\xff"}} {
		var e *postgres.Error
		if result, err := s.Write(t.Context(), outbox.ParkChange{Put: []outbox.Park{{Scope: scope}}}); result != 0 || !errors.As(err, &e) || !e.Permanent {
			t.Errorf("%q: %d, %v", scope, result, err)
		}
	}
}

func TestManyParksInOneWrite(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	s := New(Config{DB: pool, Stream: "orders"})
	lead(t, s)
	var change outbox.ParkChange
	for i := range 10_000 {
		change.Put = append(change.Put, outbox.Park{
			Scope: outbox.Scope{Kind: outbox.ScopeKey, Table: "public.outbox", Topic: "t", Key: fmt.Sprint(i)},
			Cause: outbox.CauseRowError, Since: time.Now(),
		})
	}
	write(t, s, change)
	if got := len(load(t, s)); got != 10_000 {
		t.Errorf("%d parks", got)
	}
}

// A leader that another one replaced writes nothing any more.
func TestOldLeadersAreFenced(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	old, young := New(Config{DB: pool, Stream: "orders"}), New(Config{DB: pool, Stream: "orders"})
	if l := lead(t, old); l.Epoch != 1 || l.Interrupted || l.PreviousHolder != "" {
		t.Errorf("first: %+v", l)
	}
	if l := lead(t, old); l.Epoch != 2 || l.Interrupted {
		t.Errorf("again: %+v", l)
	}
	park := hostileParks()[0]
	write(t, old, outbox.ParkChange{Put: []outbox.Park{park}})
	if err := old.Identify(t.Context(), Identity{Stopped: 77}); err != nil {
		t.Fatal(err)
	}
	l := lead(t, young)
	if l.Epoch != 3 || !l.Interrupted || !strings.HasPrefix(l.PreviousHolder, "host #") || l.PreviousSince.IsZero() || l.Known.Stopped != 77 {
		t.Errorf("successor: %+v", l)
	}
	if result, err := old.Write(t.Context(), outbox.ParkChange{Delete: []outbox.Scope{park.Scope}}); result != 0 || !errors.Is(err, ErrFenced) {
		t.Errorf("the old leader's write: %d, %v", result, err)
	}
	if err := old.Identify(t.Context(), outbox.Identity{Slot: "x"}); !errors.Is(err, ErrFenced) {
		t.Errorf("the old leader's slot: %v", err)
	}
	if got := load(t, young); len(got) != 1 {
		t.Errorf("parks: %v", got)
	}
	if l := lead(t, old); !l.Interrupted {
		t.Error("the old leader does not learn of its successor")
	}
}

func TestIdentityIsRemembered(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	s := New(Config{DB: pool, Stream: "orders"})
	if l := lead(t, s); !reflect.DeepEqual(l.Known, outbox.Identity{Relations: map[string]uint32{}}) {
		t.Errorf("at first: %+v", l.Known)
	}
	id := outbox.Identity{
		Slot: "ob", SystemID: "7400000000000000001", Timeline: 4_000_000_000, SlotPoint: 1 << 63, Stopped: 5, Publication: "1 5 7=9",
		Relations: map[string]uint32{`public."äö: =`: 4_000_000_000, "public.outbox": 0},
	}
	if err := s.Identify(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if l := lead(t, s); !reflect.DeepEqual(l.Known, id) {
		t.Errorf("got %+v, want %+v", l.Known, id)
	}
}

// The epoch rises while a write of the old leader waits: that write must lose.
func TestRaiseDuringAWrite(t *testing.T) {
	t.Parallel()
	db, pool := database(t)
	old, young := New(Config{DB: pool, Stream: "orders"}), New(Config{DB: pool, Stream: "orders"})
	lead(t, old)
	tx, err := db.Conn(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "SELECT FROM outbox_cdc.leader FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	raised, written := make(chan error, 1), make(chan error, 1)
	go func() { _, err := young.Lead(t.Context(), "host"); raised <- err }()
	waiters := func(n int64) {
		harness.Eventually(t, 10*time.Second, func() error {
			got, err := harness.TryOne[int64](t.Context(), db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
			if err == nil && got != n {
				err = fmt.Errorf("%d sessions wait, not %d", got, n)
			}
			return err
		})
	}
	waiters(1)
	go func() {
		_, err := old.Write(t.Context(), outbox.ParkChange{Put: hostileParks()})
		written <- err
	}()
	waiters(2)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-raised; err != nil {
		t.Error(err)
	}
	if err := <-written; !errors.Is(err, ErrFenced) {
		t.Errorf("the old leader's write: %v", err)
	}
	if got := load(t, young); len(got) != 0 {
		t.Errorf("%d parks", len(got))
	}
}

func TestMissingSchemaSaysWhatToDo(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	pool := db.Pool(t)
	s := New(Config{DB: pool, Stream: "orders"})
	_, leadErr := s.Lead(t.Context(), "host")
	_, loadErr := s.Load(t.Context())
	_, writeErr := s.Write(t.Context(), outbox.ParkChange{})
	for _, err := range []error{leadErr, loadErr, writeErr, s.Identify(t.Context(), Identity{})} {
		var e *postgres.Error
		if !errors.As(err, &e) || !e.Permanent || !errors.Is(err, ErrNoSchema) || !strings.Contains(err.Error(), "run outbox-cdc init") {
			t.Errorf("%v", err)
		}
	}
	db.Exec(t, "CREATE SCHEMA outbox_cdc; CREATE TABLE outbox_cdc.leader (stream text)")
	if _, err := s.Lead(t.Context(), "host"); !errors.Is(err, ErrNoSchema) {
		t.Errorf("a schema of another version: %v", err)
	}
}

// An answer that never comes leaves the outcome open, and writing the change
// again settles it.
func TestLostAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	direct, pool := database(t)
	db, proxy := direct.Proxied(t)
	through := db.Pool(t)
	s := New(Config{DB: through, Stream: "orders"})
	lead(t, s)
	change := outbox.ParkChange{Put: hostileParks()}
	write(t, s, change) // the statement is prepared, so the next write is one flight
	write(t, s, outbox.ParkChange{Delete: []outbox.Scope{outbox.StreamScope()}})

	proxy.Silence(harness.Replies)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if result, err := s.Write(ctx, change); result != outbox.ParksUnknown || err == nil {
		t.Errorf("result %d, %v", result, err)
	}
	proxy.Speak()
	reader := New(Config{DB: pool, Stream: "orders"})
	harness.Eventually(t, 10*time.Second, func() error {
		if got := len(load(t, reader)); got != len(change.Put) {
			return fmt.Errorf("%d parks: the write was to have arrived", got)
		}
		return nil
	})
	harness.Eventually(t, 10*time.Second, func() error {
		result, err := s.Write(t.Context(), change)
		if err == nil && result != outbox.ParksCommitted {
			err = fmt.Errorf("result %d", result)
		}
		return err
	})
}

// A synchronous standby that is away must not keep parks from being written.
func TestMissingStandbyDelaysOnly(t *testing.T) {
	t.Parallel()
	db := harness.PrivatePostgres(t, localpg.Options{})
	pool := db.Pool(t)
	db.Exec(t, sql.Schema)
	db.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = 'ghost'")
	db.Exec(t, "SELECT pg_reload_conf()")
	harness.Eventually(t, 10*time.Second, func() error {
		got, err := harness.TryOne[string](t.Context(), db, "SHOW synchronous_standby_names")
		if err == nil && got != "ghost" {
			err = errors.New("not reloaded")
		}
		return err
	})
	s := New(Config{DB: pool, Stream: "orders"})
	s.cfg.SyncWait = 300 * time.Millisecond
	if l := lead(t, s); l.Interrupted {
		t.Errorf("its own first try is taken for another leader: %+v", l)
	}
	write(t, s, outbox.ParkChange{Put: hostileParks()})
	if got := len(load(t, s)); got != len(hostileParks()) {
		t.Errorf("%d parks", got)
	}
}

// The grants that init documents are enough.
func TestLeastPrivileges(t *testing.T) {
	t.Parallel()
	db := harness.PrivatePostgres(t, localpg.Options{})
	db.Exec(t, sql.Schema)
	db.Exec(t, `CREATE ROLE writer LOGIN PASSWORD 'w'`)
	writer, err := pgxpool.New(t.Context(), db.Server.DSNAs(db.Name, "writer", "w"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(writer.Close)
	s := New(Config{DB: writer, Stream: "orders"})
	var e *postgres.Error
	if _, err := s.Lead(t.Context(), "host"); !errors.As(err, &e) || !e.Permanent || !strings.Contains(e.Hint, "grants") {
		t.Errorf("without privileges: %v", err)
	}
	db.Exec(t, `GRANT USAGE ON SCHEMA outbox_cdc TO writer; GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_cdc.leader, outbox_cdc.park TO writer`)
	lead(t, s)
	write(t, s, outbox.ParkChange{Put: hostileParks()})
	write(t, s, outbox.ParkChange{Delete: []outbox.Scope{outbox.StreamScope()}})
	if got := len(load(t, s)); got != len(hostileParks())-1 {
		t.Errorf("%d parks", got)
	}
}

func FuzzArrayLiteral(f *testing.F) {
	f.Add("a", `b"\`)
	f.Add("", "{NULL,}")
	f.Fuzz(func(t *testing.T, a, b string) {
		literal, err := arrayLiteral(outbox.JoinID(a, b))
		if err != nil {
			if storable(a) == nil && storable(b) == nil {
				t.Fatal(err)
			}
			return
		}
		var plain strings.Builder
		inQuotes := false
		for i := 1; i < len(literal)-1; i++ { // every byte outside quotes is a comma
			switch c := literal[i]; {
			case inQuotes && c == '\\':
				i++
				plain.WriteByte(literal[i])
			case c == '"':
				inQuotes = !inQuotes
			case !inQuotes && c == ',':
				plain.WriteByte(0)
			case !inQuotes:
				t.Fatalf("%q: %q outside of quotes", literal, c)
			default:
				plain.WriteByte(c)
			}
		}
		if got := plain.String(); got != outbox.JoinID(a, b) {
			t.Fatalf("%q reads as %q, want %q", literal, got, outbox.JoinID(a, b))
		}
	})
}
