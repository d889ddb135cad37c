package tablesql

import (
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Records are the steps that lock those of the rows that are pending, with what
// records are made of, and then look at the others; in between the snapshot, so that a row
// that is absent then, and whose transaction had ended for the snapshot, will not come. free:
// rows that others have locked are passed over, and Pending; else they are waited for. Where
// the role may not lock rows they are only read. The steps are for a transaction that has begun.
func (l *Look) Records(free bool, columns Selected, record func(n int, row [][]byte) error, snapshot *outbox.Snapshot) ([]Step, error) {
	r := l.Relation
	args, err := r.RowArrays(l.N, l.Row)
	if err != nil {
		return nil, err
	}
	sql := "SELECT u.n, " + columns.list + " FROM " + r.rowList() + " JOIN " + r.Name() + " AS t ON " + r.sameRow() + " WHERE " + Opaque(r.pending())
	switch {
	case r.Lockable && free:
		sql += " FOR UPDATE OF t SKIP LOCKED"
	case r.Lockable:
		sql += " FOR UPDATE OF t"
	}
	l.expect()
	locked := Step{SQL: sql, Args: args, Each: func(row [][]byte) error {
		n, err := Ordinal(row[0], l.N)
		if err != nil {
			return err
		}
		l.Seen[n] = Seen{State: Held}
		return record(n, row[1:])
	}}
	after, err := l.States(snapshot)
	return append([]Step{locked}, after...), err
}

// States are the steps that take a snapshot and then look at the rows that are not Held, in
// the transaction that has begun.
func (l *Look) States(snapshot *outbox.Snapshot) ([]Step, error) {
	args, err := l.Relation.RowArrays(l.N, l.Row)
	if err != nil {
		return nil, err
	}
	if l.Seen == nil {
		l.expect()
	}
	return []Step{SnapshotStep(snapshot), {SQL: l.Relation.look, Args: args, Each: l.read}}, nil
}

// SnapshotStep reads the snapshot of the moment.
func SnapshotStep(snapshot *outbox.Snapshot) Step {
	return Step{SQL: "SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text", Each: func(row [][]byte) (err error) {
		*snapshot, err = outbox.ParseSnapshot(string(row[0]))
		return err
	}}
}
