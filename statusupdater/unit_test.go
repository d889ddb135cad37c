package statusupdater

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/sweeper"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/sql"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// once is a bench whose updater has exactly-once delivery, with a leader.
type once struct {
	*bench
	guard *tablesql.Guard
}

const leadersKey = 4711

// prepareOnce makes what init makes, and opens a tally.
func prepareOnce(t testing.TB, db *harness.DB, l fixture.Layout) {
	t.Helper()
	db.Exec(t, sql.Schema)
	db.Exec(t, sql.Tally)
	db.Exec(t, l.DDL)
	db.Exec(t, `INSERT INTO outbox_cdc.tally (stream, cluster, journal) VALUES ('orders', 'main', 'topic-1')`)
}

func newOnce(t testing.TB, l fixture.Layout, cfg Config) *once {
	t.Helper()
	db := harness.Postgres(t)
	prepareOnce(t, db, l)
	o := &once{guard: new(tablesql.Guard)}
	o.hold(t, db)
	cfg.Once = &Once{Stream: "orders", Guard: o.guard}
	cfg.Tables = []*outbox.Table{l.Table}
	if cfg.LockedRetry == 0 {
		cfg.LockedRetry = 50 * time.Millisecond
	}
	o.bench = runOn(t, db, l.Table, cfg)
	return o
}

// hold makes a session of the database the leader's.
func (o *once) hold(t testing.TB, db *harness.DB) {
	t.Helper()
	if _, err := db.Conn(t).Exec(t.Context(), "SELECT pg_advisory_lock($1)", leadersKey); err != nil {
		t.Fatal(err)
	}
	o.guard.Hold(leadersKey)
}

// rows inserts rows with these bodies, and reads them as a sweep does.
func (o *once) rows(bodies ...string) []*outbox.Row {
	o.t.Helper()
	for _, body := range bodies {
		o.db.Exec(o.t, `INSERT INTO plain (key, body) VALUES ('k', $1)`, body)
	}
	return readPending(o.t, o.db, o.table)
}

func readPending(t testing.TB, db *harness.DB, table *outbox.Table) []*outbox.Row {
	t.Helper()
	s, err := sweeper.New(sweeper.Config{Pool: db.Pool(t), Tables: []*outbox.Table{table}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	page, err := s.Sweep(t.Context(), outbox.SweepRequest{
		Parts: []outbox.SweepPart{{Table: table, Include: []outbox.Scope{outbox.StreamScope()}}}, Limit: 10_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	return page.Rows
}

func unitMarks(number uint64, rows ...*outbox.Row) []outbox.Mark {
	u := &outbox.Unit{Cluster: "main", Number: number, Place: int64(number) * 10, Rows: len(rows)}
	out := marks(outbox.MarkSent, "", rows...)
	for i := range out {
		out[i].Unit = u
	}
	return out
}

func placed(number uint64, rows ...*outbox.Row) exactlyonce.Placed {
	p := exactlyonce.Placed{Unit: exactlyonce.Unit{Number: number, Table: "public.plain"}, Offset: int64(number) * 10}
	for _, r := range rows {
		p.Names = append(p.Names, exactlyonce.NameOf(r))
	}
	return p
}

func leftMarks(rows ...*outbox.Row) []outbox.Mark {
	out := marks(outbox.MarkSent, "", rows...)
	for i := range out {
		out[i].InTally = true
	}
	return out
}

// mark sends marks and waits for the states in the answers.
func (o *once) mark(marks ...outbox.Mark) string {
	o.t.Helper()
	o.updater.Do(marks...)
	got := o.await(len(marks))
	var states []string
	for _, m := range marks {
		states = append(states, map[outbox.MarkState]string{
			outbox.MarkedSent: "sent", outbox.MarkedSettled: "settled", outbox.MarkedInvisible: "invisible", outbox.MarkedRefused: "refused",
		}[got[m.Row].State])
	}
	return strings.Join(states, " ")
}

// table shows bodies with the first letters of their states.
func (o *once) shown() string {
	o.t.Helper()
	return o.one(`SELECT coalesce(string_agg(body || left(status, 1), ' ' ORDER BY id), '') FROM plain`)
}

// tally returns the units that are noted and the ids of the rows left.
func (o *once) tally() string { return tallyOf(o.t, o.db) }

func tallyOf(t testing.TB, db *harness.DB) string {
	t.Helper()
	return harness.One[string](t, db, `SELECT 'units ' || coalesce((SELECT string_agg(unit::text, ',' ORDER BY unit) FROM outbox_cdc.tally_unit), '')
		|| ' left ' || coalesce((SELECT string_agg(id[1], ',' ORDER BY unit, entry) FROM outbox_cdc.tally_left), '')`)
}

func (o *once) expect(what, got, want string) {
	o.t.Helper()
	if got != want {
		o.t.Fatalf("%s: %s, want %s", what, got, want)
	}
}

func TestUnitIsMarkedOnce(t *testing.T) {
	t.Parallel()
	o := newOnce(t, fixture.Plain(), Config{})
	rows := o.rows("a", "b", "c")
	o.expect("a unit", o.mark(unitMarks(1, rows[0], rows[1])...), "sent sent")
	o.expect("tally", o.tally(), "units 1 left ")
	o.db.Exec(t, `UPDATE plain SET status = 'PENDING' WHERE body = 'a'`) // requeued
	o.expect("a repeated unit", o.mark(unitMarks(1, rows[0], rows[1])...), "settled settled")
	o.db.Exec(t, `UPDATE outbox_cdc.tally SET unit = 1`)
	o.db.Exec(t, `DELETE FROM outbox_cdc.tally_unit`)
	o.expect("behind the head", o.mark(unitMarks(1, rows[0], rows[1])...), "settled settled")
	o.expect("the requeue", o.shown(), "aP bS cP")
	o.expect("tally", o.tally(), "units  left ")

	// Several units share a transaction, unless one of them was noted before.
	more := o.rows("d", "e")
	batch := append(unitMarks(2, more[1]), append(unitMarks(1, rows[0]), unitMarks(3, more[2], more[3])...)...)
	o.expect("three units", o.mark(batch...), "sent settled sent sent")
	o.expect("the rows", o.shown(), "aP bS cS dS eS")
	o.expect("tally", o.tally(), "units 2,3 left ")
}

// A unit that was noted before changes nothing, even if its mark comes just when its number is removed
// because the head has passed it.
func TestLateUnitMeetsTheHead(t *testing.T) {
	t.Parallel()
	o := newOnce(t, fixture.Plain(), Config{})
	rows := o.rows("a")
	o.expect("a unit", o.mark(unitMarks(1, rows...)...), "sent")
	o.db.Exec(t, `UPDATE plain SET status = 'PENDING'`) // requeued
	tx, err := o.db.Conn(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), sql.TallyAdvance, "orders", "main"); err != nil {
		t.Fatal(err)
	}
	o.updater.Do(unitMarks(1, rows...)...)
	harness.Eventually(t, 20*time.Second, func() error {
		if o.one(`SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == "0" {
			return errors.New("it does not wait for the head")
		}
		return nil
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := o.await(1)[rows[0]]; a.State != outbox.MarkedSettled {
		t.Errorf("%+v", a)
	}
	o.expect("the requeue", o.shown(), "aP")
	o.expect("tally", o.tally(), "units  left ")
}

// A row of the transaction with the highest id is not visible yet when its unit is noted. While that
// transaction goes on, nothing may take the row for gone. It is marked when the transaction has ended.
func TestRowOfTheLatestTransactionIsNotGone(t *testing.T) {
	t.Parallel()
	o := newOnce(t, fixture.Plain(), Config{})
	row := o.rows("copied")[0]
	conn := o.db.Conn(t)
	writing, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hidden := *row
	var xid int64
	err = writing.QueryRow(t.Context(), `INSERT INTO plain (key, body, created_at) SELECT key, body, created_at FROM plain RETURNING id::text, pg_current_xact_id()::text::bigint`).Scan(&hidden.ID, &xid)
	if err != nil {
		t.Fatal(err)
	}
	hidden.XID = uint32(xid)
	o.updater.Do(unitMarks(1, &hidden)...)
	if got := o.await(1)[&hidden]; got.State != outbox.MarkedInvisible {
		t.Fatalf("state %d before its transaction has ended", got.State)
	}
	if horizon := harness.One[int64](t, o.db, `SELECT horizon::text::bigint FROM outbox_cdc.tally_left`); horizon <= xid {
		t.Errorf("the row's transaction is %d, the horizon %d: the row is taken for gone", xid, horizon)
	}
	o.expect("before its transaction has ended", o.mark(leftMarks(&hidden)...), "invisible")
	if err := writing.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.expect("when it has", o.mark(leftMarks(&hidden)...), "sent")
	o.expect("tally", o.tally(), "units 1 left ")
}

// Rows that another session has locked do not delay the others. They get entries, and are marked when that is
// possible.
func TestRowsOfAUnitThatCannotBeMarked(t *testing.T) {
	t.Parallel()
	o := newOnce(t, fixture.Plain(), Config{})
	rows := o.rows("free", "locked", "gone", "hidden", "failed")
	locker := o.db.Conn(t)
	tx, err := locker.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM plain WHERE body = 'locked' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	o.db.Exec(t, `DELETE FROM plain WHERE body = 'gone'`)
	o.db.Exec(t, `UPDATE plain SET status = 'FAILED' WHERE body = 'failed'`)
	// A row whose transaction came through the WAL and is not visible yet.
	hidden := o.db.Conn(t)
	writing, err := hidden.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var xid int64
	if err := writing.QueryRow(t.Context(), `DELETE FROM plain WHERE body = 'hidden' RETURNING pg_current_xact_id()::text::bigint`).Scan(&xid); err != nil {
		t.Fatal(err)
	}
	absent := *rows[3]
	absent.ID, absent.XID = "4000000", uint32(xid)

	o.updater.Do(unitMarks(1, rows[0], rows[1], rows[2], &absent, rows[4])...)
	got := o.await(4)
	for row, want := range map[*outbox.Row]outbox.MarkState{
		rows[0]: outbox.MarkedSent, rows[2]: outbox.MarkedSettled, &absent: outbox.MarkedInvisible, rows[4]: outbox.MarkedSettled,
	} {
		if got[row].State != want {
			t.Errorf("row %s: state %d, want %d", row.ID, got[row].State, want)
		}
	}
	o.expect("tally", o.tally(), "units 1 left "+rows[1].ID+",4000000")

	o.expect("before its transaction has ended", o.mark(leftMarks(&absent)...), "invisible")
	if err := writing.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := o.await(1)[rows[1]]; a.State != outbox.MarkedSent {
		t.Errorf("the locked row: %+v", a)
	}
	harness.Eventually(t, 20*time.Second, func() error { // other tests' transactions on this server count too
		if got := o.mark(leftMarks(&absent)...); got != "settled" {
			return errors.New(got)
		}
		return nil
	})
	o.expect("tally", o.tally(), "units 1 left ")
	o.expect("a mark of what is not left", o.mark(leftMarks(rows[1])...), "settled")
}

// A table that stays locked delays neither the head of the tally, for which the journal is kept, nor the
// marks of other tables. Its rows are marked when it is unlocked.
func TestALockedTableHoldsNoHeadUp(t *testing.T) {
	t.Parallel()
	o := newOnce(t, fixture.Plain(), Config{LockTimeout: 20 * time.Millisecond, StatementTimeout: time.Second, BatchRows: 2, Connections: 2})
	rows := o.rows("a", "b", "c", "d", "e", "other")
	tx, err := o.db.Conn(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `LOCK TABLE plain`); err != nil {
		t.Fatal(err)
	}
	for i, row := range rows[:4] {
		o.updater.Do(unitMarks(uint64(i+1), row)...)
	}
	want := "units 1,2,3,4 left " + rows[0].ID + "," + rows[1].ID + "," + rows[2].ID + "," + rows[3].ID
	harness.Eventually(t, 30*time.Second, func() error {
		if got := o.tally(); got != want {
			return errors.New(got)
		}
		return nil
	})
	// A unit that somebody else noted before does not keep the other units of its batch from being noted.
	o.db.Exec(t, `INSERT INTO outbox_cdc.tally_unit VALUES ('orders', 'main', 6, 60)`)
	o.updater.Do(append(unitMarks(5, rows[4]), unitMarks(6, rows[5])...)...)
	harness.Eventually(t, 30*time.Second, func() error {
		if got := o.tally(); got != strings.Replace(want, "4", "4,5,6", 1)+","+rows[4].ID {
			return errors.New(got)
		}
		return nil
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.await(6)
	o.expect("rows", o.shown(), "aS bS cS dS eS otherP")
	o.expect("tally", o.tally(), "units 1,2,3,4,5,6 left ")
}

// Only a limited number of units is noted ahead of the head, because the next start reads them.
func TestUnitsWaitForTheHead(t *testing.T) {
	t.Parallel()
	o := newOnce(t, fixture.Plain(), Config{Connections: 1})
	rows := o.rows("first", "far")
	o.updater.Do(append(unitMarks(mostAhead+1, rows[1]), unitMarks(1, rows[0])...)...) // they share a batch
	if a := o.await(1)[rows[0]]; a.State != outbox.MarkedSent {
		t.Errorf("%+v", a)
	}
	harness.Eventually(t, 20*time.Second, func() error {
		if o.updater.Stats().Repeated < 2 {
			return errors.New("it was not tried again")
		}
		return nil
	})
	o.expect("tally", o.tally(), "units 1 left ")
	o.expect("rows", o.shown(), "firstS farP")
	o.db.Exec(t, sql.TallyAdvance, "orders", "main")
	if a := o.await(1)[rows[1]]; a.State != outbox.MarkedSent {
		t.Errorf("%+v", a)
	}
}

// A dump that is restored elsewhere has horizons from other transaction ids. A row that is absent there does
// not keep the tally open for ever.
func TestHorizonOfAnotherServer(t *testing.T) {
	t.Parallel()
	o := newOnce(t, fixture.Plain(), Config{})
	rows := o.rows("gone")
	o.db.Exec(t, `DELETE FROM plain`)
	o.db.Exec(t, `INSERT INTO outbox_cdc.tally_left (stream, cluster, unit, entry, "table", id, hash, horizon)
		SELECT 'orders', 'main', 1, 0, 'public.plain', $1, $2, '4000000000000'`, []string{rows[0].ID}, make([]byte, len(exactlyonce.Hash{})))
	o.expect("the row", o.mark(leftMarks(rows[0])...), "settled")
	o.expect("tally", o.tally(), "units  left ")
}

// A row with the id of a row left is marked only if it is that row.
func TestLeftRowsAreMarkedByTheirNames(t *testing.T) {
	t.Parallel()
	o := newOnce(t, fixture.Plain(), Config{})
	rows := o.rows("a", "b", "c")
	if err := o.updater.Recover(t.Context(), "main", placed(1, rows...)); err != nil {
		t.Fatal(err)
	}
	o.expect("recovered", o.shown(), "aS bS cS")
	// As if all rows had been locked. Then b is deleted and its id given to another row, and a is requeued.
	o.db.Exec(t, `UPDATE plain SET status = 'PENDING'`)
	var leave leaving
	leave.stream, leave.horizon = "orders", 1
	for i, r := range rows {
		leave.put("main", 1, i, "public.plain", exactlyonce.NameOf(r))
	}
	conn := o.db.Conn(t)
	if err := tablesql.Run(t.Context(), conn, leave.steps()...); err != nil {
		t.Fatal(err)
	}
	o.db.Exec(t, `DELETE FROM plain WHERE body = 'b'`)
	o.db.Exec(t, `INSERT INTO plain (id, key, body) OVERRIDING SYSTEM VALUE VALUES ($1::text::bigint, 'k', 'new')`, rows[1].ID)
	left := LeftRows([]*outbox.Table{o.table}, []exactlyonce.Left{
		{Unit: 1, Table: "public.plain", Name: exactlyonce.NameOf(rows[0])},
		{Unit: 1, Table: "public.plain", Name: exactlyonce.NameOf(rows[1])},
		{Unit: 1, Table: "public.gone", Name: exactlyonce.NameOf(rows[2])},
	})
	if len(left) != 2 {
		t.Fatalf("%d rows", len(left))
	}
	o.expect("marks", o.mark(leftMarks(left...)...), "sent settled")
	o.expect("rows", o.shown(), "aS newP cP")
	o.expect("tally", o.tally(), "units 1 left "+rows[2].ID)
}

func TestRecovery(t *testing.T) {
	t.Parallel()
	o := newOnce(t, fixture.Plain(), Config{})
	rows := o.rows("a", "b", "c", "d")
	tx, err := o.db.Conn(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `SELECT FROM plain WHERE body = 'b' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `INSERT INTO plain (body) VALUES ('unseen')`); err != nil {
		t.Fatal(err)
	}
	o.db.Exec(t, `UPDATE plain SET body = 'c2' WHERE body = 'c'`) // as a later row with its id
	unit := placed(7, rows...)
	unseen := *rows[0]
	unseen.ID = "5000000"
	unit.Names = append(unit.Names, exactlyonce.NameOf(&unseen))
	for range 2 { // the second time, it is noted already
		if err := o.updater.Recover(t.Context(), "main", unit); err != nil {
			t.Fatal(err)
		}
		o.expect("rows", o.shown(), "aS bP c2P dS")
		o.expect("tally", o.tally(), "units 7 left "+rows[1].ID+",5000000")
		o.db.Exec(t, `UPDATE plain SET status = 'PENDING' WHERE body = 'a'`)
		o.db.Exec(t, `UPDATE plain SET status = 'SENT' WHERE body = 'a'`)
	}
	o.expect("a late mark", o.mark(unitMarks(7, rows[0])...), "settled")

	// A table that is not ours any more: all of it is left.
	other := placed(8, rows[3])
	other.Table = "public.other"
	if err := o.updater.Recover(t.Context(), "main", other); err != nil {
		t.Fatal(err)
	}
	o.expect("tally", o.tally(), "units 7,8 left "+rows[1].ID+",5000000,"+rows[3].ID)

	// Without the tally's row nothing is noted or marked.
	if err := o.updater.Recover(t.Context(), "nowhere", placed(1, rows[2])); err == nil || !strings.Contains(err.Error(), "no tally") {
		t.Error(err)
	}
	o.expect("rows", o.shown(), "aS bP c2P dS")
}

// A process is stopped in the middle of a unit's transaction. The next leader has to note the unit, and
// waits for nothing but the lead.
func TestAFrozenSessionHoldsNoRecoveryUp(t *testing.T) {
	t.Parallel()
	l, db := fixture.Plain(), harness.Postgres(t)
	prepareOnce(t, db, l)
	db.Exec(t, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END';
		CREATE TRIGGER slow AFTER UPDATE ON plain FOR EACH STATEMENT EXECUTE FUNCTION slow()`)
	through, proxy := db.Proxied(t)
	o := &once{guard: new(tablesql.Guard)}
	o.hold(t, db)
	marking := &Once{Stream: "orders", Guard: o.guard, Idle: time.Second}
	o.bench = runOn(t, db, l.Table, Config{Pool: pool(t, through.DSN), LockTimeout: 20 * time.Second, StatementTimeout: 5 * time.Minute, Once: marking})
	rows := o.rows("a", "b")
	blocker := db.Conn(t)
	exec(t, blocker, `SELECT pg_advisory_lock(7)`)
	o.updater.Do(unitMarks(1, rows...)...)
	harness.Eventually(t, 20*time.Second, func() error {
		if n := harness.One[int](t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'`); n != 1 {
			return fmt.Errorf("%d transactions wait", n)
		}
		return nil
	})
	proxy.Silence(harness.Requests, harness.Replies)
	defer proxy.Speak()
	exec(t, blocker, `SELECT pg_advisory_unlock(7)`)
	next := New(Config{Pool: db.Pool(t), Tables: []*outbox.Table{l.Table}, Once: marking, Log: zerolog.Nop()}, mailbox.New[outbox.Marked]())
	harness.Eventually(t, 20*time.Second, func() error { return next.Recover(t.Context(), "main", placed(1, rows...)) })
	o.expect("rows", o.shown(), "aS bS")
	o.expect("tally", o.tally(), "units 1 left ")
}

// A session that ends between the note and the mark leaves neither.
func TestKilledBetweenNoteAndMark(t *testing.T) {
	t.Parallel()
	o := newOnce(t, fixture.Plain(), Config{})
	rows := o.rows("a", "b")
	o.db.Exec(t, `CREATE SEQUENCE kills; CREATE FUNCTION kill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF nextval('public.kills') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(1); END IF; RETURN NULL; END $$;
		CREATE TRIGGER kill BEFORE UPDATE ON plain FOR EACH STATEMENT EXECUTE FUNCTION kill()`)
	o.expect("marks", o.mark(unitMarks(1, rows...)...), "sent sent")
	o.expect("rows", o.shown(), "aS bS")
	o.expect("tally", o.tally(), "units 1 left ")
	if n := o.updater.Stats().Repeated; n == 0 {
		t.Error("nothing was repeated")
	}
}

// One row that the database refuses is left, the others of its unit are marked.
func TestARefusedRowOfAUnit(t *testing.T) {
	t.Parallel()
	o := newOnce(t, fixture.Plain(), Config{})
	rows := o.rows("a", "bad", "c")
	o.db.Exec(t, `ALTER TABLE plain ADD CONSTRAINT no CHECK (body <> 'bad' OR status = 'PENDING')`)
	o.expect("marks", o.mark(unitMarks(1, rows...)...), "sent refused sent")
	o.expect("tally", o.tally(), "units 1 left "+rows[1].ID)
	again := leftMarks(rows[1])
	again[0].Refused = true
	o.expect("again", o.mark(again...), "refused")
	o.db.Exec(t, `ALTER TABLE plain DROP CONSTRAINT no`)
	o.expect("allowed", o.mark(again...), "sent")
	o.expect("tally", o.tally(), "units 1 left ")
}

// Nothing is written where the leader's session is not.
func TestUnitsWaitForTheLeadersServer(t *testing.T) {
	t.Parallel()
	o := newOnce(t, fixture.Plain(), Config{BackoffMax: 100 * time.Millisecond})
	rows := o.rows("a", "b", "refused")
	o.guard.Hold(0)
	o.updater.Do(marks(outbox.MarkAttempt, "too large", rows[2])...)
	if err := o.updater.Recover(t.Context(), "main", placed(1, rows[0])); !errors.Is(err, tablesql.ErrNotLeading) {
		t.Errorf("recovery: %v", err)
	}
	o.updater.Do(unitMarks(2, rows[1])...)
	harness.Eventually(t, 20*time.Second, func() error {
		if o.updater.Stats().Repeated < 2 {
			return errors.New("not tried")
		}
		return nil
	})
	o.expect("rows", o.shown(), "aP bP refusedP")
	o.expect("tally", o.tally(), "units  left ")
	o.want("0", `SELECT sum(tries)::text FROM plain`)
	o.guard.Hold(leadersKey)
	got := o.await(2)
	if got[rows[1]].State != outbox.MarkedSent || got[rows[2]].State != outbox.MarkedRetry {
		t.Errorf("%+v", got)
	}
	o.want("1", `SELECT sum(tries)::text FROM plain`)
}

// Without privileges on the tally nothing is marked, and the error says what grants them.
func TestTallyWithoutPrivileges(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	layout := fixture.Plain()
	prepareOnce(t, db, layout)
	role := sql.Identifier("u_" + db.Name)
	db.Exec(t, `CREATE ROLE `+role+` LOGIN PASSWORD 'w'; GRANT USAGE ON SCHEMA outbox_cdc TO `+role+`; GRANT SELECT, UPDATE ON plain TO `+role)
	defer func() { db.Exec(t, "DROP OWNED BY "+role+"; DROP ROLE "+role) }()
	poor, err := pgxpool.New(t.Context(), db.Server.DSNAs(db.Name, "u_"+db.Name, "w"))
	if err != nil {
		t.Fatal(err)
	}
	defer poor.Close()
	o := &once{guard: new(tablesql.Guard)}
	o.hold(t, db)
	u := New(Config{Pool: poor, Tables: []*outbox.Table{layout.Table}, Once: &Once{Stream: "orders", Guard: o.guard}}, mailbox.New[outbox.Marked]())
	o.bench = &bench{t: t, db: db, table: layout.Table, updater: u}
	rows := o.rows("a")
	err = u.Recover(t.Context(), "main", placed(1, rows...))
	if e, ok := errors.AsType[*postgres.Error](err); !ok || !strings.Contains(e.Hint, "outbox_cdc.tally_left") {
		t.Errorf("without privileges: %v", err)
	}
	o.expect("rows", o.shown(), "aP")
	db.Exec(t, `GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_cdc.tally, outbox_cdc.tally_unit, outbox_cdc.tally_left TO `+role)
	if err := u.Recover(t.Context(), "main", placed(1, rows...)); err != nil {
		t.Error(err)
	}
	o.expect("rows", o.shown(), "aS")
}

// Units and names work for every kind of table, also where the role may not lock rows: there a
// locked row holds the others of its unit up for a lock timeout at most.
func TestUnitsOfEveryKindOfTable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		layout         fixture.Layout
		insert, rights string
	}{
		{fixture.Im2be(), `INSERT INTO outbox (aggregate_id, event_id, topic, payload_bytes) SELECT gen_random_uuid(), gen_random_uuid(), 'orders', 'x' FROM generate_series(1, 4)`, "SELECT, UPDATE"},
		{fixture.Stamps(), `INSERT INTO "Odd ""Schema"."out-box" ("the topic", "select", "pay""load") SELECT 'orders', n, '{"a": 1e3}' FROM generate_series(1, 4) n`, "SELECT, UPDATE"},
		{fixture.Deleting(), `INSERT INTO queue (key, body) SELECT '\x00ff', 'x' || n FROM generate_series(1, 4) n`, "SELECT, DELETE"},
	} {
		t.Run(c.layout.Table.Name, func(t *testing.T) {
			t.Parallel()
			db := harness.Postgres(t)
			prepareOnce(t, db, c.layout)
			db.Exec(t, c.insert)
			role := sql.Identifier("u_" + db.Name)
			db.Exec(t, `CREATE ROLE `+role+` LOGIN PASSWORD 'w'; GRANT USAGE ON SCHEMA outbox_cdc, `+sql.Identifier(c.layout.Table.Schema)+` TO `+role+`;
				GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_cdc.tally, outbox_cdc.tally_unit, outbox_cdc.tally_left TO `+role+`;
				GRANT `+c.rights+` ON `+sql.Identifier(c.layout.Table.Schema, c.layout.Table.Name)+` TO `+role)
			o := &once{guard: new(tablesql.Guard)}
			o.hold(t, db)
			o.bench = runOn(t, db, c.layout.Table, Config{
				Pool: pool(t, db.Server.DSNAs(db.Name, "u_"+db.Name, "w")), Tables: []*outbox.Table{c.layout.Table},
				Once: &Once{Stream: "orders", Guard: o.guard}, LockTimeout: 100 * time.Millisecond, LockedRetry: 50 * time.Millisecond,
			})
			rows := readPending(t, db, c.layout.Table)
			tx := o.lock(t, rows[1])
			o.updater.Do(unitMarks(1, rows[0], rows[1])...)
			if a := o.await(1); a[rows[0]].State != outbox.MarkedSent {
				t.Errorf("next to a locked row: %+v", a)
			}
			unit := placed(2, rows[2], rows[3])
			unit.Table = c.layout.Table.String()
			if err := o.updater.Recover(t.Context(), "main", unit); err != nil {
				t.Fatal(err)
			}
			if got := readPending(t, db, c.layout.Table); len(got) != 1 || got[0].ID != rows[1].ID {
				t.Errorf("%d rows are pending", len(got))
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if a := o.await(1)[rows[1]]; a.State != outbox.MarkedSent {
				t.Errorf("the locked row: %+v", a)
			}
			o.expect("tally", o.tally(), "units 1,2 left ")
		})
	}
}

// lock has somebody lock a row.
func (o *once) lock(t *testing.T, row *outbox.Row) pgx.Tx {
	t.Helper()
	tx, err := o.db.Conn(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := o.table.Mapping.ID[len(o.table.Mapping.ID)-1]
	parts := outbox.SplitID(row.ID)
	if _, err := tx.Exec(t.Context(), "SELECT FROM "+sql.Identifier(o.table.Schema, o.table.Name)+" WHERE "+sql.Identifier(id)+"::text = $1 FOR UPDATE", parts[len(parts)-1]); err != nil {
		t.Fatal(err)
	}
	return tx
}

// A failover that loses marks loses their unit's note with them: the leader there marks what the
// journal names, and the former leader neither reads nor writes anything.
func TestFailoverLosesMarks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts two servers")
	}
	pair := harness.PrivatePair(t, nil)
	layout := fixture.Plain()
	prepareOnce(t, pair.Primary, layout)
	o := &once{guard: new(tablesql.Guard)}
	o.hold(t, pair.Primary)
	cfg := Config{Once: &Once{Stream: "orders", Guard: o.guard}, Tables: []*outbox.Table{layout.Table}}
	o.bench = runOn(t, pair.Primary, layout.Table, cfg)
	rows := o.rows("a", "b")
	pair.CaughtUp(t)
	pair.Link.Refuse()
	o.expect("before", o.mark(unitMarks(1, rows...)...), "sent sent")

	// A standby refuses writes: that passes.
	standby := pool(t, pair.Standby.DSN)
	after := New(Config{Pool: standby, Tables: cfg.Tables, Once: &Once{Stream: "orders", Guard: o.guard}}, mailbox.New[outbox.Marked]())
	if err := after.Recover(t.Context(), "main", placed(1, rows...)); err == nil || tablesql.FaultOf(err) != tablesql.Passing {
		t.Errorf("on a standby: %v", err)
	}
	pair.FailOver(t)
	if got := readPending(t, pair.Standby, layout.Table); len(got) != 2 {
		t.Fatalf("%d rows are pending: nothing was lost", len(got))
	}
	s, err := sweeper.New(sweeper.Config{Pool: standby, Tables: cfg.Tables, Guard: o.guard, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	if answers, err := s.Check(context.Background(), rows); !errors.Is(err, tablesql.ErrNotLeading) {
		t.Errorf("the leader before looks at rows: %v, %v", answers, err)
	}
	if err := after.Recover(t.Context(), "main", placed(2, rows...)); !errors.Is(err, tablesql.ErrNotLeading) {
		t.Errorf("the leader before marks: %v", err)
	}
	o.hold(t, pair.Standby)
	o.expect("tally", tallyOf(t, pair.Standby), "units  left ")
	if err := after.Recover(t.Context(), "main", placed(1, rows...)); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%d %s", len(readPending(t, pair.Standby, layout.Table)), tallyOf(t, pair.Standby)); got != "0 units 1 left " {
		t.Error(got)
	}
}
