package tablesql

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// State is what a look found of a row.
type State byte

// The states.
const (
	Absent  State = 'a'
	Pending State = 'p'
	Failed  State = 'f'
	Settled State = 's' // terminal in another way
	Taken   State = 't' // another relay has it
	Held    State = 'h' // pending, and locked by us; see Lock
)

// Seen is one row as looked at.
type Seen struct {
	State    State
	Attempts int64 // the stored count, 0 where none is kept
}

// Look is rows of one relation to be looked at, and what was seen: Seen is
// parallel to them.
type Look struct {
	Relation *Relation
	N        int
	Row      func(i int) *outbox.Row
	Seen     []Seen
	// Headers says that rows that are pending get the headers that a side table has
	// for them.
	Headers bool

	side *SideHeaders
}

// At looks at rows of any number of relations in one snapshot, which it
// returns, and fills each Look's Seen. prepare: see Prepares.
func At(ctx context.Context, conn *pgx.Conn, s Settings, prepare bool, looks ...*Look) (outbox.Snapshot, error) {
	var snapshot outbox.Snapshot
	s.ByIndex = true
	steps := []Step{
		{SQL: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"},
		s.Step(func(row [][]byte) (err error) {
			snapshot, err = outbox.ParseSnapshot(string(row[0]))
			return err
		}, "pg_catalog.pg_current_snapshot()::pg_catalog.text"),
	}
	for _, l := range looks {
		step, err := l.step()
		if err != nil {
			return snapshot, err
		}
		steps = append(steps, step)
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

// withHeaders adds the step that reads the headers of a side table.
func (l *Look) withHeaders(steps []Step) ([]Step, error) {
	if !l.Headers {
		return steps, nil
	}
	side, step, err := l.Relation.HeadersOf(l.N, l.Row)
	if l.side = side; side == nil {
		return steps, err
	}
	return append(steps, step), err
}

// attach gives pending rows the headers that were read.
func attach(looks []*Look) {
	for _, l := range looks {
		for i := range l.Seen {
			if l.side != nil && (l.Seen[i].State == Pending || l.Seen[i].State == Held) {
				l.side.Attach(i)
			}
		}
	}
}

func (l *Look) step() (Step, error) {
	r := l.Relation
	args, err := r.RowArrays(l.N, l.Row)
	if err != nil {
		return Step{}, err
	}
	l.expect()
	return Step{SQL: r.look, Args: args, Each: l.read}, nil
}

// expect takes rows for what most are, pending and never tried: lookSQL leaves those
// out, which a third of the server's work on a look was for.
func (l *Look) expect() {
	l.Seen = make([]Seen, l.N)
	for i := range l.Seen {
		l.Seen[i].State = Pending
	}
}

// lookSQL selects what expect does not.
func (r *Relation) lookSQL() string {
	exists := Ref(r.Table.Mapping.ID[0]) + " IS NOT NULL"
	return "SELECT u.n, " + exists + ", " + r.state() + ", " + r.storedCount() +
		" FROM " + r.rowList() + " LEFT JOIN " + r.Name() + " AS t ON " + r.sameRow() +
		" WHERE (" + exists + " AND " + r.pending() + " AND " + r.storedCount() + " = 0) IS NOT TRUE"
}

func (l *Look) read(row [][]byte) error {
	n, err := Ordinal(row[0], l.N)
	if err != nil {
		return err
	}
	if l.Seen[n].State == Held {
		return nil // nobody else can have changed it
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
	return nil
}

// Ordinal reads a place in a list of n, counted from 1 by SQL and from 0 here.
func Ordinal(text []byte, n int) (int, error) {
	i, err := strconv.Atoi(string(text))
	if err != nil || i < 1 || i > n {
		return 0, fmt.Errorf("the server answered with the ordinal %q of a list of %d", text, n)
	}
	return i - 1, nil
}

// Invisible says that a row which a look in the snapshot found absent may yet
// appear: its transaction, known from the log, had not ended for the snapshot.
// Commits that wait for a standby are decoded before they are visible.
func Invisible(row *outbox.Row, s *outbox.Snapshot) bool {
	return row.XID != 0 && !s.Ended(s.Widen(row.XID))
}
