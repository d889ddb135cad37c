package tablesql

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Lock begins a transaction on the connection, and locks in it those of the
// rows that are pending and that nobody else has locked: another relay's own
// SKIP LOCKED passes over them from then on. It never waits for a row. Each
// Look's Seen says what became of its rows: Held ones are locked until the
// transaction ends; Pending ones are locked by somebody else, or were until a
// moment ago. The snapshot returned is no newer than what was seen.
//
// After an error the transaction is of no more use, and holds nothing once it
// is rolled back.
func Lock(ctx context.Context, conn *pgx.Conn, s Settings, looks ...*Look) (outbox.Snapshot, error) {
	var snapshot outbox.Snapshot
	s.ByIndex = true
	steps := []Step{{SQL: "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"}, s.Step(nil)}
	for _, l := range looks {
		step, err := l.lockStep()
		if err != nil {
			return snapshot, err
		}
		steps = append(steps, step)
	}
	steps = append(steps, Step{SQL: "SELECT pg_current_snapshot()::text", Each: func(row [][]byte) (err error) {
		snapshot, err = outbox.ParseSnapshot(string(row[0]))
		return err
	}})
	for i, l := range looks {
		steps = append(steps, Step{SQL: l.Relation.look, Args: steps[2+i].Args, Each: l.read})
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

// lockStep locks pending rows and notes them as Held with their counts.
func (l *Look) lockStep() (Step, error) {
	r := l.Relation
	args, err := r.RowArrays(l.N, l.Row)
	if err != nil {
		return Step{}, err
	}
	l.expect()
	sql := "SELECT u.n, " + r.storedCount() + " FROM " + r.rowList() + " JOIN " + r.Name() + " AS t ON " + r.sameRow() +
		" WHERE " + Opaque(r.pending()) + " FOR UPDATE OF t SKIP LOCKED"
	return Step{SQL: sql, Args: args, Each: l.readLocked}, nil
}

func (l *Look) readLocked(row [][]byte) error {
	n, err := Ordinal(row[0], l.N)
	if err != nil {
		return err
	}
	attempts, err := Count(row[1])
	if err != nil {
		return fmt.Errorf("table %s: %w", l.Relation.Table, err)
	}
	l.Seen[n] = Seen{State: Held, Attempts: attempts}
	return nil
}

// Judge says what a row that was looked at in the snapshot is to code that wants
// to publish it.
func Judge(row *outbox.Row, seen Seen, snapshot *outbox.Snapshot) outbox.CheckState {
	switch seen.State {
	case Pending, Held:
		return outbox.CheckPending
	case Failed:
		return outbox.CheckFailed
	case Taken:
		return outbox.CheckTaken
	case Absent:
		if Invisible(row, snapshot) {
			return outbox.CheckInvisible
		}
	}
	return outbox.CheckSettled
}
