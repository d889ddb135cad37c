package sweeper

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// Check looks up rows in one snapshot and returns an answer for each, in order. If the server cannot print a
// row, or the rows have more than PageBytes in total, the later rows get CheckAgain. A *TableError names the
// table that refuses the query. Any other error is temporary.
func (s *Sweeper) Check(ctx context.Context, rows []*outbox.Row) ([]outbox.Checked, error) {
	return tablesql.Around(rows, func(rows []*outbox.Row, bare bool) (answers []outbox.Checked, err error) {
		err = s.fresh(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
			answers, err = s.check(ctx, conn, rows, true, bare)
			return err
		})
		return answers, err
	})
}

// States is Check without the rows' present values. So no row gets CheckAgain for its length.
func (s *Sweeper) States(ctx context.Context, rows []*outbox.Row) (answers []outbox.Checked, err error) {
	err = s.fresh(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		answers, err = s.check(ctx, conn, rows, false, false)
		return err
	})
	return answers, err
}

// check looks up rows. now: it also reads the rows' present values. bare: without long values.
func (s *Sweeper) check(ctx context.Context, conn *pgx.Conn, rows []*outbox.Row, now, bare bool) ([]outbox.Checked, error) {
	answers := make([]outbox.Checked, len(rows))
	places := make(map[*outbox.Table][]int) // positions of a table's rows in the list
	contents := make(map[*outbox.Table]*tablesql.Contents)
	var looks []*tablesql.Look
	for i, row := range rows {
		answers[i] = outbox.Checked{Row: row, State: outbox.CheckPending}
		if !row.Table.Stateful() {
			continue // the table keeps no state, so the row counts as pending
		}
		if places[row.Table] == nil {
			p, err := s.plan(ctx, conn, row.Table)
			if err != nil {
				return nil, err
			}
			looks = append(looks, &tablesql.Look{Relation: p.relation, Bare: bare, Most: s.cfg.PageBytes, Apart: s.apart.Load()})
			contents[row.Table] = p.contents
			places[row.Table] = make([]int, 0, len(rows)-i)
		}
		places[row.Table] = append(places[row.Table], i)
	}
	for _, l := range looks {
		table := l.Relation.Table
		at := places[table]
		all := table.Mapping.NeedsLook() || slices.ContainsFunc(at, func(i int) bool { return rows[i].Stale })
		if now && (all || slices.ContainsFunc(at, func(i int) bool { return rows[i].Late })) {
			l.Contents, l.Changed = contents[table], !all
		}
		l.N, l.Row = len(at), func(i int) *outbox.Row { return rows[at[i]] }
	}
	snapshot, err := s.look(ctx, conn, looks)
	if err != nil {
		return nil, err
	}
	for _, l := range looks {
		for i, at := range places[l.Relation.Table] {
			answers[at].State, answers[at].Now = tablesql.Judge(rows[at], l.Seen[i], &snapshot), l.Now[i]
		}
	}
	return answers, nil
}

// Now returns a row with its present values while it is pending; otherwise nil.
func (s *Sweeper) Now(ctx context.Context, row *outbox.Row) (*outbox.Row, error) {
	var now *outbox.Row
	err := s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		p, err := s.plan(ctx, conn, row.Table)
		if err != nil {
			return err
		}
		l := &tablesql.Look{Relation: p.relation, Contents: p.contents, N: 1, Row: func(int) *outbox.Row { return row }}
		_, err = s.look(ctx, conn, []*tablesql.Look{l})
		now = l.Now[0]
		return err
	})
	return now, err
}

// look looks up rows of several tables. If that is refused, it asks each table alone, to find the one that
// refuses.
func (s *Sweeper) look(ctx context.Context, conn *pgx.Conn, looks []*tablesql.Look) (outbox.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	settings := s.settings()
	snapshot, err := tablesql.At(ctx, conn, settings, s.prepare, looks...)
	if err == nil || tablesql.FaultOf(err) == tablesql.Passing {
		return snapshot, err
	}
	for _, l := range looks {
		if rollback := tablesql.Run(ctx, conn, tablesql.Step{SQL: "ROLLBACK"}); rollback != nil {
			return snapshot, rollback
		}
		if _, alone := tablesql.At(ctx, conn, settings, s.prepare, l); alone != nil {
			return snapshot, tablesql.Refusal(l.Relation.Table, fmt.Errorf("looking at rows of table %s: %w", l.Relation.Table, alone))
		}
	}
	return snapshot, err // refused together but not one by one: the cause is over
}
