package statestore

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// tallyDatabase has the tables of the mode, and a Store that leads.
func tallyDatabase(t *testing.T) (*harness.DB, *Store) {
	t.Helper()
	db, pool := database(t)
	for range 2 { // it may be repeated
		db.Exec(t, sql.Tally)
	}
	s := New(Config{DB: pool, Stream: "orders"})
	lead(t, s)
	return db, s
}

func ordersClaim(part, of int) Claim {
	return Claim{Slot: "s", Lock: 77, Tables: []ClaimedTable{{Name: "public.outbox", Part: part, Of: of, By: "id"}}}
}

func open(t *testing.T, s *Store, cluster string) exactlyonce.Tally {
	t.Helper()
	journal := "topic-1"
	if cluster != "main" {
		journal = "topic-2"
	}
	tally, err := s.OpenTally(t.Context(), cluster, journal, ordersClaim(0, 0), false)
	if err != nil {
		t.Fatal(err)
	}
	return tally
}

// Two names lead to one Kafka, so the units of both would be in one journal. However close together they
// come, one is opened, and the other only when that one is closed.
func TestAJournalHasOneTally(t *testing.T) {
	t.Parallel()
	_, s := tallyDatabase(t)
	both := make(chan error)
	for _, cluster := range []string{"main", "alias"} {
		go func() {
			_, err := s.OpenTally(t.Context(), cluster, "topic-1", ordersClaim(0, 0), false)
			both <- err
		}()
	}
	var e *postgres.Error
	switch first, second := <-both, <-both; {
	case (first == nil) == (second == nil):
		t.Fatalf("%v, %v", first, second)
	case !errors.As(errors.Join(first, second), &e), !errors.Is(e, ErrShared), !e.Permanent, !strings.Contains(e.Error(), "in use by stream orders on Kafka cluster "):
		t.Errorf("%v", e)
	}
	opened, refused := "main", "alias"
	if _, there, err := s.ReadTally(t.Context(), "alias"); err != nil {
		t.Fatal(err)
	} else if there {
		opened, refused = refused, opened
	}
	if _, there, err := s.ReadTally(t.Context(), refused); there || err != nil {
		t.Errorf("%s is there: %v, %v", refused, there, err)
	}
	if err := s.CloseTally(t.Context(), opened); err != nil {
		t.Fatal(err)
	}
	if _, err := s.OpenTally(t.Context(), refused, "topic-1", ordersClaim(0, 0), false); err != nil {
		t.Error(err)
	}
}

// shown is a tally in one line.
func shown(t *testing.T, s *Store) string {
	t.Helper()
	y, there, err := s.ReadTally(t.Context(), "main")
	if err != nil || !there {
		t.Fatalf("there: %v, %v", there, err)
	}
	return fmt.Sprintf("%s head %d@%d marked %v left %d closed %v lsn %v", y.Journal, y.Head.Number, y.Head.Offset, y.Marked, len(y.Left), y.Closed, y.LSN)
}

func wantTally(t *testing.T, s *Store, want string) {
	t.Helper()
	if got := shown(t, s); got != want {
		t.Fatalf("%s, want %s", got, want)
	}
}

func TestTallyIsOpenedMovedAndClosed(t *testing.T) {
	t.Parallel()
	db, s := tallyDatabase(t)
	if _, there, err := s.ReadTally(t.Context(), "main"); there || err != nil {
		t.Errorf("before it is opened: %v, %v", there, err)
	}
	open(t, s, "main")
	open(t, s, "main")
	wantTally(t, s, "topic-1 head 0@0 marked map[] left 0 closed false lsn 0/0")

	note := func(unit int) {
		db.Exec(t, `INSERT INTO outbox_cdc.tally_unit SELECT 'orders', 'main', n, n * 10 FROM (SELECT $1::bigint AS n) AS u`, unit)
	}
	advance := func() {
		if err := s.AdvanceTally(t.Context(), "main"); err != nil {
			t.Fatal(err)
		}
	}
	advance()
	note(2)
	advance()
	wantTally(t, s, "topic-1 head 0@0 marked map[2:20] left 0 closed false lsn 0/0")
	note(1)
	note(4)
	db.Exec(t, `INSERT INTO outbox_cdc.tally_unit VALUES ('orders', 'other', 3, 30), ('payments', 'main', 3, 30)`)
	advance()
	wantTally(t, s, "topic-1 head 2@20 marked map[4:40] left 0 closed false lsn 0/0")

	// Nothing is closed before everything is settled.
	if err := s.CloseTally(t.Context(), "main"); !errors.Is(err, ErrUnsettled) {
		t.Errorf("closed with a gap: %v", err)
	}
	note(3)
	db.Exec(t, `INSERT INTO outbox_cdc.tally_left VALUES ('orders', 'main', 4, 0, 'public.outbox', '{a,b}', decode(repeat('07', 20), 'hex'), '9')`)
	if err := s.CloseTally(t.Context(), "main"); !errors.Is(err, ErrUnsettled) {
		t.Errorf("closed with a row left: %v", err)
	}
	y, _, err := s.ReadTally(t.Context(), "main")
	want := exactlyonce.Left{Unit: 4, Table: "public.outbox", Name: exactlyonce.Name{ID: outbox.JoinID("a", "b")}}
	for i := range want.Name.Hash {
		want.Name.Hash[i] = 7
	}
	if err != nil || len(y.Left) != 1 || y.Left[0] != want {
		t.Errorf("left %+v, %v", y.Left, err)
	}
	db.Exec(t, `DELETE FROM outbox_cdc.tally_left`)
	if err := s.CloseTally(t.Context(), "main"); err != nil {
		t.Fatal(err)
	}
	wantTally(t, s, "topic-1 head 4@40 marked map[] left 0 closed true lsn 0/0")
	if err := s.CloseTally(t.Context(), "nowhere"); err != nil {
		t.Errorf("closing none: %v", err)
	}

	// Another journal is seen, and not taken.
	if y, err := s.OpenTally(t.Context(), "main", "topic-2", ordersClaim(0, 0), false); err != nil || y.Journal != "topic-1" || !y.Closed {
		t.Errorf("%+v, %v", y, err)
	}
	open(t, s, "main")
	wantTally(t, s, "topic-1 head 4@40 marked map[] left 0 closed false lsn 0/0")

	// A deposed leader opens and closes nothing.
	later := New(Config{DB: db.Pool(t), Stream: "orders"})
	lead(t, later)
	if _, err := s.OpenTally(t.Context(), "main", "topic-1", ordersClaim(0, 0), false); !errors.Is(err, ErrFenced) {
		t.Errorf("opened by a deposed leader: %v", err)
	}
	if err := s.CloseTally(t.Context(), "main"); !errors.Is(err, ErrFenced) {
		t.Errorf("closed by a deposed leader: %v", err)
	}
}

// A position is noted only where the leader's lock is held, and never goes back. It counts on its own server; on
// another it is forgotten.
func TestPositionsOfTablesWithoutState(t *testing.T) {
	t.Parallel()
	db, s := tallyDatabase(t)
	open(t, s, "main")
	ours, other := Server{"7001", 4711}, Server{"7002", 4711}
	on := ours
	settle := func(unit uint64, lsn outbox.LSN) error {
		return s.SettleTally(t.Context(), "main", exactlyonce.Placed{Unit: exactlyonce.Unit{Number: unit}, Offset: int64(unit) * 10}, lsn, on)
	}
	positions := func(insert outbox.LSN, of Server, want string) {
		t.Helper()
		found, err := s.Positions(t.Context(), []string{"main"}, 0, insert, of)
		if got := fmt.Sprint(found, errors.Is(err, ErrFenced)); got != want {
			t.Errorf("on %v, whose WAL ends at %v: %s, %v; want %s", of, insert, got, err, want)
		}
	}
	positions(0x1000, ours, "[] true") // without the leader
	if err := settle(1, 100); !errors.Is(err, ErrFenced) {
		t.Errorf("on a server without the leader: %v", err)
	}
	leader := db.Conn(t)
	if _, err := leader.Exec(t.Context(), "SELECT pg_advisory_lock(4711)"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		unit uint64
		lsn  outbox.LSN
	}{{3, 0x300}, {3, 0x310}, {3, 0x200}} {
		if err := settle(step.unit, step.lsn); err != nil {
			t.Fatal(err)
		}
	}
	if err := settle(2, 0x400); !errors.Is(err, ErrFenced) {
		t.Errorf("an earlier unit: %v", err)
	}
	wantTally(t, s, "topic-1 head 3@30 marked map[] left 0 closed false lsn 0/310")

	positions(0x310, ours, "[{main 3 0/310}] false")
	positions(0x310, Server{"7001", 4712}, "[] true") // another server than the leader's
	if _, err := s.Positions(t.Context(), []string{"main", "nowhere"}, 0, 0x310, ours); !errors.Is(err, ErrFenced) {
		t.Errorf("a tally that is not there: %v", err)
	}
	// A position behind the end of the WAL was never there.
	positions(0x30f, ours, "[{main 3 0/0}] false")
	positions(0x310, ours, "[{main 3 0/0}] false")
	// A dump was restored into a database cluster with lower positions: rows there must not be passed over.
	if err := settle(4, 0x400); err != nil {
		t.Fatal(err)
	}
	positions(0x1000, other, "[{main 4 0/0}] false")
	positions(0x1000, ours, "[{main 4 0/0}] false")
	if err := settle(5, 0x500); err != nil {
		t.Fatal(err)
	}
	on = other
	if err := settle(6, 0x100); err != nil {
		t.Fatal(err)
	}
	positions(0x1000, other, "[{main 6 0/100}] false")
	// The slot was confirmed further: a crash may take it back.
	for _, settled := range []outbox.LSN{0x200, 0x150} {
		found, err := s.Positions(t.Context(), []string{"main"}, settled, 0x1000, other)
		if err != nil || len(found) != 1 || found[0] != (Position{"main", 6, 0x200}) {
			t.Errorf("with a slot at %v: %v, %v", settled, found, err)
		}
	}
}

func TestOrphans(t *testing.T) {
	t.Parallel()
	db, s := tallyDatabase(t)
	open(t, s, "main")
	orphans := func(s *Store, c Claim, clusters ...string) string {
		t.Helper()
		found, err := s.Orphans(t.Context(), clusters, c)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(found)
	}
	renamed := New(Config{DB: db.Pool(t), Stream: "orders-2"})
	lead(t, renamed)
	mine := ordersClaim(0, 0)
	for _, c := range []struct{ what, got, want string }{
		{"recovered", orphans(s, mine, "main"), "[]"},
		{"a cluster taken out", orphans(s, mine, "other"), "[{orders main public.outbox}]"},
		{"a stream renamed", orphans(renamed, mine, "main"), "[{orders main public.outbox}]"},
		{"other tables", orphans(renamed, Claim{Lock: 78, Tables: []ClaimedTable{{Name: "public.other"}}}, "main"), "[]"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}

	// A stream that leads recovers its own tallies.
	claim := Claim{Slot: "s", Lock: 91, Tables: mine.Tables}
	if _, err := s.Claim(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	leader := db.Conn(t)
	if _, err := leader.Exec(t.Context(), "SELECT pg_advisory_lock(91)"); err != nil {
		t.Fatal(err)
	}
	if got := orphans(renamed, Claim{Lock: 78, Tables: mine.Tables}, "main"); got != "[]" {
		t.Errorf("of a stream that leads: %s", got)
	}

	// Until it is recovered, a tally keeps a table that its stream no longer has, even while the stream leads.
	others := Claim{Slot: "s", Lock: 91, Tables: []ClaimedTable{{Name: "public.other"}}}
	if _, err := s.Claim(t.Context(), others); err != nil {
		t.Fatal(err)
	}
	for _, recovered := range []bool{false, true} {
		want := "[{orders main public.outbox}]"
		if recovered {
			want = "[]"
		}
		if _, err := s.OpenTally(t.Context(), "main", "topic-1", others, recovered); err != nil {
			t.Fatal(err)
		}
		if got := orphans(renamed, Claim{Lock: 78, Tables: mine.Tables}, "main"); got != want {
			t.Errorf("of a leader without the table, recovered %v: %s, want %s", recovered, got, want)
		}
	}
	_ = leader.Close(t.Context())

	// A share's tally is no orphan of another share.
	if _, err := s.OpenTally(t.Context(), "main", "topic-1", ordersClaim(1, 2), true); err != nil {
		t.Fatal(err)
	}
	if got := orphans(renamed, ordersClaim(2, 2), "main"); got != "[]" {
		t.Errorf("of another share: %s", got)
	}
	harness.Eventually(t, 20*time.Second, func() error { // the lock is gone when the server has seen the connection end
		if got := orphans(renamed, ordersClaim(1, 2), "main"); got != "[{orders main public.outbox}]" {
			return fmt.Errorf("of the same share: %s", got)
		}
		return nil
	})
	open(t, s, "main")
	if err := s.CloseTally(t.Context(), "main"); err != nil {
		t.Fatal(err)
	}
	if got := orphans(renamed, mine, "main"); got != "[]" {
		t.Errorf("closed: %s", got)
	}
}

// Errors say what is missing and what to do. A stream that never delivered exactly once has no tally.
func TestTallyIsMissingOrNotOurs(t *testing.T) {
	t.Parallel()
	db, pool := database(t)
	s := New(Config{DB: pool, Stream: "orders"})
	lead(t, s)
	var e *postgres.Error
	if _, err := s.OpenTally(t.Context(), "main", "topic-1", ordersClaim(0, 0), false); !errors.As(err, &e) || !errors.Is(err, ErrNoSchema) || !e.Permanent || e.Hint != "run outbox-cdc init" {
		t.Errorf("without the tables: %v", err)
	}
	if _, there, err := s.ReadTally(t.Context(), "main"); there || err != nil {
		t.Errorf("without the tables: %v, %v", there, err)
	}
	if found, err := s.Orphans(t.Context(), nil, ordersClaim(0, 0)); len(found) != 0 || err != nil {
		t.Errorf("without the tables: %v, %v", found, err)
	}
	if there, err := s.HasTallies(t.Context()); there || err != nil {
		t.Errorf("without the tables: %v, %v", there, err)
	}
	db.Exec(t, sql.Tally)
	role := "w_" + db.Name
	db.Exec(t, `CREATE ROLE `+sql.Identifier(role)+` LOGIN PASSWORD 'w'; GRANT USAGE ON SCHEMA outbox_cdc TO `+sql.Identifier(role)+`;
		GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_cdc.leader, outbox_cdc.park TO `+sql.Identifier(role))
	defer func() { db.Exec(t, "DROP OWNED BY "+sql.Identifier(role)+"; DROP ROLE "+sql.Identifier(role)) }()
	writer, err := pgxpool.New(t.Context(), db.Server.DSNAs(db.Name, role, "w"))
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	poor := New(Config{DB: writer, Stream: "orders"})
	lead(t, poor)
	if there, err := poor.HasTallies(t.Context()); !there || err != nil {
		t.Errorf("without privileges: %v, %v", there, err)
	}
	if _, err := poor.OpenTally(t.Context(), "main", "topic-1", ordersClaim(0, 0), false); !errors.As(err, &e) || !e.Permanent || !strings.Contains(e.Hint, "outbox_cdc.tally_left") {
		t.Errorf("without privileges: %v", err)
	}
	db.Exec(t, `GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_cdc.tally, outbox_cdc.tally_unit, outbox_cdc.tally_left TO `+sql.Identifier(role))
	open(t, poor, "main")
	if err := poor.CloseTally(t.Context(), "main"); err != nil {
		t.Errorf("with the privileges that init grants: %v", err)
	}
}

// A leadership that published at least once, or under other transactional ids, is known to the next until it ends
// cleanly or another takes its place.
func TestUncleanLeaderships(t *testing.T) {
	t.Parallel()
	db, s := tallyDatabase(t)
	unclean := func(s *Store, c Claim) string {
		t.Helper()
		found, err := s.Unclean(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(found)
	}
	claimed := func(s *Store, c Claim) {
		t.Helper()
		if _, err := s.Claim(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	claimed(s, ordersClaim(0, 0))
	want("of a version that does not say how it delivers", unclean(s, ordersClaim(0, 0)), "[]")
	mine := ordersClaim(1, 2)
	mine.Delivery, mine.IDs = "exactly_once", map[string]string{"main": "a-orders-main"}
	claimed(s, mine)
	lead(t, s) // of a start that is refused: it claims nothing
	want("killed", unclean(s, mine), "[{orders public.outbox exactly_once map[main:a-orders-main]}]")
	want("another share", unclean(s, ordersClaim(2, 2)), "[]")
	want("another table", unclean(s, Claim{Tables: []ClaimedTable{{Name: "public.other"}}}), "[]")
	if err := s.Clean(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	want("a leader that claimed nothing stopped", unclean(s, mine), "[{orders public.outbox exactly_once map[main:a-orders-main]}]")
	claimed(s, mine)
	if err := s.Clean(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	want("stopped cleanly", unclean(s, mine), "[]")

	// What a clean stop leaves is there for one leadership: the claim of the next one removes it.
	fences := map[string]*outbox.Fences{"main": {PID: 7, Epoch: 3, Topics: map[string]outbox.FencedTopic{"a": {ID: "x", Partitions: []int32{0, 2}}}}, "other": nil}
	claimed(s, mine)
	if err := s.Clean(t.Context(), fences); err != nil {
		t.Fatal(err)
	}
	for _, times := range []string{"at first", "nobody has claimed since"} {
		if got := lead(t, s).Fences; !reflect.DeepEqual(got, fences) {
			t.Errorf("%s: the next leader inherits %+v", times, got)
		}
	}
	claimed(s, mine)
	if got := lead(t, s).Fences; len(got) > 0 {
		t.Errorf("the leader after it inherits %+v", got)
	}

	mine.Delivery, mine.IDs = "at_least_once", nil
	claimed(s, mine)
	renamed := New(Config{DB: db.Pool(t), Stream: "orders-2"})
	lead(t, renamed)
	want("under another name", unclean(renamed, mine), "[{orders public.outbox at_least_once map[]}]")
	claimed(renamed, mine) // over the same slot
	if err := renamed.Clean(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	want("the other name stopped cleanly", unclean(s, mine), "[]")
}
