package tablesql

import (
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Processing finds up to n rows that another relay has taken, longest first. For each row it returns the id,
// and a stamp that changes with every change of the row. The partial index on the status serves the query.
func (r *Relation) Processing(n int, found func(id, stamp string)) (Step, error) {
	stamp, err := r.stamp()
	if err != nil {
		return Step{}, err
	}
	read := func(row [][]byte) error {
		parts, err := r.readID(row)
		if err == nil {
			found(outbox.JoinID(parts...), string(row[len(parts)]))
		}
		return err
	}
	return Step{Each: read, SQL: fmt.Sprintf("%s ORDER BY %s LIMIT %d", r.selectIDs(r.ofOurs(r.processing()), stamp), joined(r.Table.Mapping.ID, ", ", Ref), n)}, nil
}

// Recover makes rows PENDING again that another relay took and did not finish, by the ids and stamps of
// Processing. It skips rows that have changed since, or that other sessions have locked. It returns one
// result row for each row that it wrote.
func (r *Relation) Recover(ids, stamps []string) (Step, error) {
	stamp, err := r.stamp()
	if err != nil {
		return Step{}, err
	}
	args, err := r.RowArrays(len(ids), func(i int) *outbox.Row { return &outbox.Row{ID: ids[i]} })
	if err != nil {
		return Step{}, err
	}
	args.BindArray(&Array{elements: stamps}, "text")
	s := &r.Table.Mapping.Status
	head := r.update([]assignment{{s.Column, sql.Literal(s.Pending[0])}})
	unchanged := stamp + " = u.stamp"
	return Step{SQL: r.change(head, r.processing(), true, []string{"stamp", "text"}, "u.n", unchanged), Args: args}, nil
}

func (r *Relation) processing() string {
	s := &r.Table.Mapping.Status
	return r.oneOf(s.Column, s.Processing)
}

// stamp returns an expression that tells versions of a row apart: the transaction that wrote it, which needs
// SELECT on the whole table, and the version column.
func (r *Relation) stamp() (string, error) {
	version := "''"
	if v := r.Table.Mapping.Status.Version; v != "" {
		version = "coalesce(" + Ref(v) + "::text, '')"
	}
	switch {
	case r.SystemColumns:
		return "t.xmin::text || ':' || " + version, nil
	case r.Table.Mapping.Status.Version != "":
		return version, nil
	}
	return "", r.unfit("has rows to recover, but nothing tells whether one has changed",
		"GRANT SELECT ON "+r.Name()+" (on the whole table), map a version column, or set recover_after: 0s")
}
