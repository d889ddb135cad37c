package tablesql

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// State is the state of a row that was looked up.
type State byte

// The states.
const (
	Absent  State = 'a'
	Pending State = 'p'
	Failed  State = 'f'
	Settled State = 's' // in another terminal state
	Taken   State = 't' // another relay has it
	Held    State = 'h' // pending, and locked by us (see Lock)
	Waits   State = 'w' // pending, but not due; only where contents are read
	Again   State = 'r' // not read: too long together with other rows
)

// Seen is the result of looking up one row.
type Seen struct {
	State    State
	Attempts int64 // the stored count; 0 if none is stored
}

// Look is a lookup of rows of one relation. Seen, its result, is parallel to the rows.
type Look struct {
	Relation *Relation
	N        int
	Row      func(i int) *outbox.Row
	Seen     []Seen
	// Contents, if not nil, reads pending rows into Now (parallel to Seen), with their headers from a side
	// table. Bare: without long values. Changed: a row that only its first transaction wrote is not read;
	// this needs SystemColumns.
	Contents *Contents
	Bare     bool
	Changed  bool
	Apart    bool // each row that is read gets memory of its own: see mapping.Arena
	Now      []*outbox.Row
	// Most is how many bytes of contents all looks together may read. A further row is a longError. 0: no
	// limit.
	Most int

	spent *int

	side  *SideHeaders
	arena mapping.Arena
}

// At looks up rows of any number of relations in one snapshot, which it returns. It fills each Look's Seen.
// prepare: see Prepares.
func At(ctx context.Context, conn *pgx.Conn, s Settings, prepare bool, looks ...*Look) (outbox.Snapshot, error) {
	var snapshot outbox.Snapshot
	spent := 0
	s.ByIndex = true
	relations := make([]*Relation, len(looks))
	for i, l := range looks {
		relations[i] = l.Relation
	}
	steps := append([]Step{{SQL: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"}}, s.Pin(relations...)...)
	steps = append(steps, s.Step(readSnapshot(&snapshot), "pg_catalog.pg_current_snapshot()::pg_catalog.text"))
	for _, l := range looks {
		args, err := l.begin(&spent)
		if err != nil {
			return snapshot, err
		}
		look := l.Relation.look
		if l.Contents != nil {
			changed := l.Changed && l.Relation.SystemColumns
			if look = l.Contents.lookSQL(l.Bare, changed); changed {
				args.bind(writerArray(l.N, l.Row), binaryFormat, "integer[]")
			}
		}
		steps = append(steps, Step{SQL: look, Args: args, Each: l.read})
		if steps, err = l.withHeaders(steps); err != nil {
			return snapshot, err
		}
	}
	if prepare {
		if err := Prepare(ctx, conn, s, steps[1:]); err != nil {
			return snapshot, err
		}
	}
	if err := Run(ctx, conn, append(steps, Step{SQL: "COMMIT"})...); err != nil {
		return snapshot, err
	}
	attach(looks)
	return snapshot, nil
}

// Lock begins a transaction on the connection. In it, Lock locks those rows that are pending and that no
// other session has locked. Another relay's SKIP LOCKED then passes over them. Lock never waits for a row.
// Each Look's Seen has the result: a Held row is locked until the transaction ends; a Pending row is locked
// by another session, or was a moment ago. The returned snapshot is no newer than what was seen. Each Look
// must have Contents.
//
// After an error the transaction is useless. It holds no locks once it is rolled back.
func Lock(ctx context.Context, conn *pgx.Conn, s Settings, looks ...*Look) (outbox.Snapshot, error) {
	var snapshot outbox.Snapshot
	spent := 0
	s.ByIndex = true
	steps := []Step{{SQL: "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"}, s.Step(nil)}
	for _, l := range looks {
		args, err := l.begin(&spent)
		if err != nil {
			return snapshot, err
		}
		steps = append(steps, Step{SQL: l.Contents.lockSQL(l.Bare), Args: args, Each: l.readLocked})
	}
	steps = append(steps, Step{SQL: "SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text", Each: readSnapshot(&snapshot)})
	for i, l := range looks {
		steps = append(steps, Step{SQL: l.Contents.states, Args: steps[2+i].Args, Each: l.read})
	}
	for _, l := range looks {
		var err error
		if steps, err = l.withHeaders(steps); err != nil {
			return snapshot, err
		}
	}
	if err := Run(ctx, conn, steps...); err != nil {
		return snapshot, err
	}
	attach(looks)
	return snapshot, nil
}

// withHeaders adds the step that reads headers from a side table.
func (l *Look) withHeaders(steps []Step) ([]Step, error) {
	if l.Contents == nil {
		return steps, nil
	}
	relation := l.Relation
	if l.Bare {
		relation = relation.Brief()
	}
	side, step, err := relation.HeadersOf(l.N, l.latest)
	if l.side = side; side == nil {
		return steps, err
	}
	return append(steps, step), err
}

// attach gives pending rows the headers that were read. A row whose headers had no room is looked up again.
func attach(looks []*Look) {
	for _, l := range looks {
		for i := range l.Seen {
			switch {
			case l.side == nil || l.Now[i] == nil:
			case l.side.Late(i):
				l.Seen[i].State, l.Now[i] = Again, nil
			default:
				l.side.Attach(i)
			}
		}
	}
}

// begin binds the rows. It assumes that each row is pending and was never tried, as most rows are. lookSQL
// returns only the rows for which this is false, which saves a third of the server's work.
func (l *Look) begin(spent *int) (Params, error) {
	l.Seen, l.Now, l.spent = make([]Seen, l.N), make([]*outbox.Row, l.N), spent
	l.arena.Apart = l.Apart
	for i := range l.Seen {
		l.Seen[i].State = Pending
	}
	return l.Relation.RowArrays(l.N, l.Row)
}

func readSnapshot(into *outbox.Snapshot) func(row [][]byte) error {
	return func(row [][]byte) (err error) {
		*into, err = outbox.ParseSnapshot(string(row[0]))
		return err
	}
}

// latest returns the row as it was read, or as it was before if its contents were not read.
func (l *Look) latest(i int) *outbox.Row {
	if l.Now[i] != nil {
		return l.Now[i]
	}
	return l.Row(i)
}

// lookSQL selects the rows for which the assumption of begin, or one of the terms, is false.
func (r *Relation) lookSQL(state string, terms ...string) string {
	return "SELECT u.n, " + r.exists() + ", " + state + ", " + r.storedCount() +
		" FROM " + r.rowList() + " LEFT JOIN " + r.Name() + " AS t ON " + r.sameRow() + " WHERE (" + r.usual(terms...) + ") IS NOT TRUE"
}

// usual returns the condition that a row is as begin assumes, and that the terms are true.
func (r *Relation) usual(terms ...string) string {
	return allOf(append([]string{r.exists(), r.pending(), r.storedCount() + " = 0"}, terms...)...)
}

func (r *Relation) exists() string { return Ref(r.Table.Mapping.ID[0]) + " IS NOT NULL" }

func (l *Look) read(row [][]byte) error {
	n, err := Ordinal(row[0], l.N)
	if err != nil {
		return err
	}
	if l.Seen[n].State == Held {
		return nil // nobody else can have changed the row
	}
	if string(row[1]) != "t" {
		l.Seen[n] = Seen{State: Absent}
		return nil
	}
	attempts, err := strconv.ParseInt(string(row[3]), 10, 64)
	if err != nil {
		return fmt.Errorf("reading the attempts of a row of table %s: %w", l.Relation.Table, err)
	}
	l.Seen[n] = Seen{State: State(row[2][0]), Attempts: attempts}
	if len(row) > 4 && l.Seen[n].State == Pending {
		return l.readNow(n, row[4:])
	}
	return nil
}

// longError says that rows are too long to be read together. row is the first one that did not fit.
type longError struct{ row *outbox.Row }

func (*longError) Error() string { return "the rows are too long to be looked at together" }

// before returns how many of the rows come before that row. These fit, because servers return rows in order.
func (e *longError) before(rows []*outbox.Row) int { return max(0, slices.Index(rows, e.row)) }

func (l *Look) readNow(n int, row [][]byte) (err error) {
	if l.Most > 0 && *l.spent >= l.Most {
		return &longError{l.Row(n)}
	}
	if l.Now[n], err = l.Contents.read(row, l.Row(n), &l.arena); err == nil {
		*l.spent += l.Now[n].Size()
	}
	return err
}

func (l *Look) readLocked(row [][]byte) error {
	n, err := Ordinal(row[0], l.N)
	if err != nil {
		return err
	}
	if l.Seen[n].Attempts, err = Count(row[1]); err != nil {
		return fmt.Errorf("table %s: %w", l.Relation.Table, err)
	}
	l.Seen[n].State = Held
	return l.readNow(n, row[2:])
}

// Records returns the steps that lock the pending rows and select columns of them, then take a snapshot, and
// then look up the other rows. If a row is absent in that snapshot, and its transaction had ended by then, it
// will never appear. free: rows that other sessions have locked are skipped, and Pending; otherwise the steps
// wait for them. If the role may not lock rows, the rows are only read. The steps run in a transaction that
// has begun.
func (l *Look) Records(free bool, columns Selected, record func(n int, row [][]byte) error, snapshot *outbox.Snapshot) ([]Step, error) {
	args, err := l.begin(nil)
	if err != nil {
		return nil, err
	}
	lock := ""
	switch {
	case l.Relation.Lockable && free:
		lock = " FOR UPDATE OF t SKIP LOCKED"
	case l.Relation.Lockable:
		lock = " FOR UPDATE OF t"
	}
	locked := Step{SQL: l.Relation.lockingSQL(columns.list, l.Relation.pending(), lock), Args: args, Each: func(row [][]byte) error {
		n, err := Ordinal(row[0], l.N)
		if err != nil {
			return err
		}
		l.Seen[n] = Seen{State: Held}
		return record(n, row[1:])
	}}
	return append([]Step{locked}, l.after(args, snapshot)...), nil
}

// lockingSQL selects columns of the rows that meet the condition, and locks these rows.
func (r *Relation) lockingSQL(columns, condition, lock string) string {
	return "SELECT u.n, " + columns + " FROM " + r.rowList() + " JOIN " + r.Name() + " AS t ON " + r.sameRow() + " WHERE " + Opaque(condition) + lock
}

// States returns the steps that take a snapshot and then look up the rows, in a transaction that has begun.
func (l *Look) States(snapshot *outbox.Snapshot) ([]Step, error) {
	args, err := l.begin(nil)
	return l.after(args, snapshot), err
}

// after returns the steps that take a snapshot and then look up the rows that are not Held.
func (l *Look) after(args Params, snapshot *outbox.Snapshot) []Step {
	return []Step{
		{SQL: "SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text", Each: readSnapshot(snapshot)},
		{SQL: l.Relation.look, Args: args, Each: l.read},
	}
}

// Ordinal reads a position in a list of n. SQL counts from 1; the result counts from 0.
func Ordinal(text []byte, n int) (int, error) {
	i, err := strconv.Atoi(string(text))
	if err != nil || i < 1 || i > n {
		return 0, fmt.Errorf("the server answered with the ordinal %q of a list of %d", text, n)
	}
	return i - 1, nil
}

// Judge returns what a lookup in the snapshot means for the row's publication.
func Judge(row *outbox.Row, seen Seen, snapshot *outbox.Snapshot) outbox.CheckState {
	switch seen.State {
	case Pending, Held:
		return outbox.CheckPending
	case Failed:
		return outbox.CheckFailed
	case Taken:
		return outbox.CheckTaken
	case Again:
		return outbox.CheckAgain
	case Waits:
		return outbox.CheckWaits
	case Absent:
		if Invisible(row, snapshot) {
			return outbox.CheckInvisible
		}
	}
	return outbox.CheckSettled
}

// Invisible reports whether a row that a lookup found absent may still appear: its transaction, known from
// the WAL, had not ended in the snapshot. A commit that waits for a standby is decoded before it is visible.
func Invisible(row *outbox.Row, s *outbox.Snapshot) bool {
	return row.XID != 0 && !s.Ended(s.Widen(row.XID))
}
