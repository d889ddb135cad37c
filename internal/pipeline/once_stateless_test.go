package pipeline

import (
	"errors"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sql"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

func coreWithoutState() *checkpoint.Core {
	table := &outbox.Table{Schema: "public", Name: "events", Mapping: outbox.Mapping{Published: outbox.PublishedNone}}
	core := checkpoint.New(checkpoint.Config{Tables: []*outbox.Table{table}, MaxRows: 10, MaxBytes: 1 << 20, WatchEvery: time.Second})
	core.Tick(time.Now())
	core.Connect(checkpoint.Connected{Streaming: true})
	return core
}

// While the database refuses to note positions, no more rows come than the next start can keep names of.
// There are two exceptions: a transaction goes on to its end, and so do the rows of earlier leaders, because
// nothing can be noted before that.
func TestRowsWaitForTheTally(t *testing.T) {
	t.Parallel()
	core, s := coreWithoutState(), newStateless([]string{"main", "other"})
	o := &once{stateless: s}
	full := func(want bool, when string) {
		t.Helper()
		if o.full(core) != want {
			t.Errorf("%s: full is %v", when, !want)
		}
	}
	core.Begin(outbox.Transaction{XID: 7, Commit: 10})
	s.delivered(&outbox.Unit{Cluster: "main", Number: 1, UpTo: 10, Rows: mostUnnoted})
	s.delivered(&outbox.Unit{Cluster: "other", Number: 1, UpTo: 10, Rows: 1})
	s.delivered(nil)
	full(false, "in the middle of one transaction")
	core.Commit(20)
	full(true, "behind it")
	core.Begin(outbox.Transaction{XID: 8, Commit: 20})
	full(true, "in the next one, while something can be noted")
	core.Commit(20)
	s.earlier = 20
	full(false, "before the last row that an earlier leader published")
	core.Keepalive(21)
	full(true, "at it")
	notes := s.notes(core.Settled())
	if len(notes) != 2 || notes[0].last.Number != 1 || notes[0].settled.upTo != 20 {
		t.Errorf("%+v can be noted", notes)
	}
	s.positions["other"].Noted(1)
	full(false, "with as many as may be")
	if (*once)(nil).full(core) || (&once{}).full(core) {
		t.Error("others wait, too")
	}
}

// A waiting row keeps everything after it from being noted, also after a restart: the names of earlier
// leaders count too.
func TestNamesAreBoundedBehindARowThatWaits(t *testing.T) {
	t.Parallel()
	core, s := coreWithoutState(), newStateless([]string{"main"})
	o := &once{stateless: s}
	names := make([]exactlyonce.Name, mostUnnoted)
	s.found("main", []exactlyonce.Placed{{Unit: exactlyonce.Unit{Number: 1, UpTo: 50, Names: names}, Offset: 1}})
	s.tell(&checkpoint.Connected{Streaming: true, Insert: 1000}, settledOn{})
	core.Begin(outbox.Transaction{XID: 7, Commit: 10})
	table := &outbox.Table{Schema: "public", Name: "events", Mapping: outbox.Mapping{Published: outbox.PublishedNone}}
	core.Rows([]*outbox.Row{{Table: table, ID: "1", XID: 7, Commit: 10, Pending: true, Topic: "t"}}) // Kafka refuses it
	core.Commit(11)
	if o.full(core) {
		t.Error("what earlier leaders published is not read")
	}
	core.Begin(outbox.Transaction{XID: 8, Commit: 100})
	core.Commit(101)
	s.delivered(&outbox.Unit{Cluster: "main", Number: 2, UpTo: 100, Rows: 1})
	if !o.full(core) {
		t.Errorf("%d rows are published and cannot be noted, and reading goes on", s.positions["main"].Rows())
	}
}

// The Core is told once, with the connection, which rows were published before it. Nothing of these can be
// noted before the WAL was read to the last of their rows.
func TestWhatWasPublishedBeforeIsTold(t *testing.T) {
	t.Parallel()
	row := func(commit outbox.LSN) *outbox.Row { return &outbox.Row{ID: "1", Commit: commit} }
	unit := func(number uint64, upTo outbox.LSN) exactlyonce.Placed {
		return exactlyonce.Placed{Unit: exactlyonce.Unit{Number: number, UpTo: upTo, Names: []exactlyonce.Name{exactlyonce.NameInLog(row(upTo))}}}
	}
	s := newStateless([]string{"main", "other"})
	s.found("main", []exactlyonce.Placed{unit(4, 30)})
	s.found("main", []exactlyonce.Placed{unit(5, 900)}) // from a former server
	s.found("other", []exactlyonce.Placed{unit(1, 20)})
	server := statestore.Server{Slot: "7001", Guard: 5}
	making := checkpoint.Connected{Insert: 90}
	s.tell(&making, settledOn{})
	connected := checkpoint.Connected{Insert: 100, Streaming: true}
	s.tell(&connected, settledOn{10, server})
	if making.Published != nil || connected.PublishedTo != 99 {
		t.Errorf("told of %v, up to %v", making.Published != nil, connected.PublishedTo)
	}
	for commit, want := range map[outbox.LSN]bool{10: true, 11: false, 20: true, 30: true, 31: false} {
		if connected.Published(row(commit)) != want {
			t.Errorf("the row of %v was published: %v", commit, !want)
		}
	}
	for settled, want := range map[outbox.LSN]int{19: 0, 20: 1, 30: 2, 99: 2} {
		notes := s.notes(settled)
		if len(notes) != want || want > 0 && notes[0].settled != (settledOn{settled, server}) {
			t.Errorf("settled up to %v: %+v", settled, notes)
		}
	}
	s.tell(&connected, settledOn{200, server})
	if connected.PublishedTo != 200 || connected.Published(row(201)) || !connected.Published(row(200)) {
		t.Error("a position behind all names does not count")
	}
	var none *stateless
	none.tell(&connected, settledOn{})
	none.delivered(nil)
}

// A clean stop notes the last position and closes the tally. It does not close it while the journal names
// rows that the WAL was not read to: in another mode they would be published again.
func TestTallyIsClosedWhenAllUnitsAreNoted(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	db.Exec(t, sql.Schema)
	db.Exec(t, sql.Tally)
	pool := db.Pool(t)
	store := &store{db: postgres.On(pool), Store: statestore.New(statestore.Config{DB: pool, Stream: "orders"})}
	if _, err := store.Lead(t.Context(), "me"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.OpenTally(t.Context(), "main", "topic-1", statestore.Claim{}, false); err != nil {
		t.Fatal(err)
	}
	leader := db.Conn(t)
	if _, err := leader.Exec(t.Context(), "SELECT pg_advisory_lock(4711)"); err != nil {
		t.Fatal(err)
	}
	s := newStateless([]string{"main"})
	o := &once{
		questions: newQuestions(&telling{log: zerolog.Nop()}, "s", newLink(), pool), core: coreWithoutState(), store: store, stateless: s,
		cfg: &Config{Once: &Once{Journals: map[string]string{"main": "topic"}}},
	}
	stopped := func(want string) {
		t.Helper()
		o.closeTallies(t.Context())
		if got := harness.One[string](t, db, `SELECT unit || ' ' || place || ' ' || (lsn - '0/0') || ' ' || closed FROM outbox_cdc.tally`); got != want {
			t.Errorf("the tally is %s, want %s", got, want)
		}
	}
	s.found("main", []exactlyonce.Placed{{Unit: exactlyonce.Unit{Number: 1, UpTo: 5}, Offset: 10}, {Unit: exactlyonce.Unit{Number: 2, UpTo: 30}, Offset: 20}})
	s.tell(&checkpoint.Connected{Streaming: true, Insert: 100}, settledOn{0, statestore.Server{Slot: "7001", Guard: 4711}})
	o.core.Keepalive(10)
	if err := o.noteLast(t.Context(), "main"); !errors.Is(err, statestore.ErrUnsettled) {
		t.Errorf("with a row that the WAL was not read to: %v", err)
	}
	stopped("1 10 9 false")
	o.core.Keepalive(40)
	stopped("2 20 39 true")
}

// A position that another server had confirmed after a failover would make this server pass over rows.
func TestConfirmedBeforeIsOfThisServersHistory(t *testing.T) {
	t.Parallel()
	s := &replication.State{Timeline: 3, Ended: map[uint32]outbox.LSN{1: 0x100, 2: 0x200}}
	for _, c := range []struct {
		timeline             uint32
		point, stopped, want outbox.LSN
	}{
		{3, 0x300, 0, 0x300}, {3, 0x300, 0x400, 0x400}, {2, 0x150, 0x180, 0x180}, {2, 0x150, 0x280, 0x200}, {1, 0x80, 0, 0x80}, {4, 0x80, 0, 0}, {0, 0, 0, 0},
	} {
		if got := confirmedBefore(statestore.Identity{Timeline: c.timeline, SlotPoint: c.point, Stopped: c.stopped}, s); got != c.want {
			t.Errorf("timeline %d, %v and %v: %v, want %v", c.timeline, c.point, c.stopped, got, c.want)
		}
	}
}
