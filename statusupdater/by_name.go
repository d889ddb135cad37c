package statusupdater

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// This file marks rows that are known by their exactlyonce.Name only: the rows of a unit whose process ended
// before it marked them, and the rows listed in outbox_cdc.tally_left. Each row is locked, its record is made
// again, and the record's name is compared. Only the row that was published is marked: a later row with the
// same id has another name.

// named is a row that was published.
type named struct {
	name    exactlyonce.Name
	cluster string
	unit    uint64
	entry   int    // number in outbox_cdc.tally_left, or within the unit
	horizon uint64 // if the row is absent once all transactions before this id have ended, it will never appear
	item    *item  // the item whose mark asks for this row, or nil

	seen        exactlyonce.Seen
	now         exactlyonce.Name // name of the row that the table has now
	mark, leave bool
}

// naming computes the names of a table's rows.
type naming struct {
	plan    *mapping.Plan
	columns []tablesql.RowColumn
}

// of returns the name of a row in a query's result. It keeps no part of the row.
func (n *naming) of(row [][]byte) (exactlyonce.Name, error) {
	values := make([]mapping.Value, len(n.columns))
	at := 0
	for i := range values {
		value, width, err := n.columns[i].Read(row[at:])
		if err != nil {
			return exactlyonce.Name{}, err
		}
		values[i], at = value, at+width
	}
	return exactlyonce.NameOf(n.plan.Row(values, new(mapping.Arena))), nil
}

// settle decides about each row, and marks those that were published and are pending. The transaction has
// already begun.
func (r *round) settle(ctx context.Context, list []named) error {
	if err := r.inspect(ctx, list); err != nil {
		return err
	}
	var marked []int
	for i := range list {
		x := &list[i]
		if x.mark, x.leave = exactlyonce.Settle(x.name, x.seen, x.now); x.mark {
			marked = append(marked, i)
		}
	}
	return r.markNamed(ctx, list, marked)
}

func (r *round) inspect(ctx context.Context, list []named) error {
	var snapshot outbox.Snapshot
	names := r.target.naming
	l := &tablesql.Look{Relation: r.target.relation, N: len(list), Row: func(i int) *outbox.Row { return &outbox.Row{ID: list[i].name.ID} }}
	steps, err := l.Records(r.passOver(), tablesql.Select(names.columns, false, false), func(n int, row [][]byte) (err error) {
		list[n].now, err = names.of(row)
		return err
	}, &snapshot)
	if err == nil {
		err = tablesql.Run(ctx, r.conn, append([]tablesql.Step{r.settings().Step(nil)}, steps...)...)
	}
	if err != nil {
		return err
	}
	for i := range list {
		list[i].seen = list[i].judge(l.Seen[i].State, &snapshot)
	}
	return nil
}

func (x *named) judge(state tablesql.State, snapshot *outbox.Snapshot) exactlyonce.Seen {
	switch state {
	case tablesql.Held:
		return exactlyonce.Pending
	case tablesql.Pending:
		return exactlyonce.Locked
	case tablesql.Absent:
		// The transaction that wrote the entry has ended, so on the same server its id is below Xmax.
		// Otherwise the entry comes from another server, whose dump was restored here.
		elsewhere := x.item != nil && x.horizon >= snapshot.Xmax
		if snapshot.Xmin < x.horizon && !elsewhere {
			return exactlyonce.Absent
		}
	}
	return exactlyonce.Settled
}

// markNamed marks locked rows. If a trigger prevents the write, the row's entry stays.
func (r *round) markNamed(ctx context.Context, list []named, marked []int) error {
	if len(marked) == 0 {
		return nil
	}
	args, err := r.target.relation.RowArrays(len(marked), func(i int) *outbox.Row { return &outbox.Row{ID: list[marked[i]].name.ID} })
	if err != nil {
		return err
	}
	for _, i := range marked {
		list[i].mark, list[i].leave = false, true
	}
	r.stats.statements.Add(1)
	return tablesql.Run(ctx, r.conn, tablesql.Step{SQL: r.target.marking.Sent, Args: args, Each: func(row [][]byte) error {
		n, err := tablesql.Ordinal(row[0], len(marked))
		if err == nil {
			list[marked[n]].mark, list[marked[n]].leave = true, false
		}
		return err
	}})
}

// left marks rows with entries in outbox_cdc.tally_left, and removes the entries, in one transaction.
func (r *round) left(ctx context.Context, items []*item) ([]*item, error) {
	list, err := r.find(ctx, items)
	if err == nil && len(list) > 0 {
		err = r.settle(ctx, list)
	}
	if err == nil {
		err = writeMarks(ctx, r.conn, append(r.settled(list), tablesql.Step{SQL: "COMMIT"})...)
	}
	if err != nil {
		return items, r.rollback(ctx, err)
	}
	return r.answerLeft(items, list), nil
}

// find begins the transaction and locks the items' entries in outbox_cdc.tally_left.
func (r *round) find(ctx context.Context, items []*item) ([]named, error) {
	var args tablesql.Params
	var ids tablesql.Array
	for _, it := range items {
		ids.Add(idLiteral(it.mark.Row.ID))
	}
	args.Bind([]byte(r.cfg.Once.Stream), "text")
	args.Bind([]byte(r.key.table.String()), "text")
	args.BindArray(&ids, "text")
	var list []named
	find := tablesql.Step{SQL: sql.TallyFind, Args: args, Each: func(row [][]byte) error {
		x, err := parseLeft(row, items)
		list = append(list, x)
		return err
	}}
	settings := r.settings()
	settings.ByIndex = false // thousands of entries may be there
	err := tablesql.Run(ctx, r.conn, beginStep, settings.Step(nil), find)
	if err != nil && tablesql.FaultOf(err) != tablesql.Passing && tablesql.FaultOf(err) != tablesql.Locked {
		err = tallyError(err)
	}
	return list, err
}

func parseLeft(row [][]byte, items []*item) (x named, err error) {
	n, err := tablesql.Ordinal(row[0], len(items))
	if err != nil {
		return x, err
	}
	x = named{item: items[n], cluster: string(row[1]), name: exactlyonce.Name{ID: items[n].mark.Row.ID}}
	hash, err := tablesql.StoredText(row[4])
	if err == nil && len(hash) != len(x.name.Hash) {
		err = fmt.Errorf("a row of outbox_cdc.tally_left has a hash of %d bytes, not of %d: somebody changed it", len(hash), len(x.name.Hash))
	}
	if err != nil {
		return x, err
	}
	copy(x.name.Hash[:], hash)
	if x.unit, err = strconv.ParseUint(string(row[2]), 10, 63); err != nil {
		return x, err
	}
	if x.entry, err = strconv.Atoi(string(row[3])); err != nil {
		return x, err
	}
	x.horizon, err = strconv.ParseUint(string(row[5]), 10, 64)
	return x, err
}

// settled returns the steps that remove the entries of settled rows.
func (r *round) settled(list []named) []tablesql.Step {
	var args tablesql.Params
	var clusters, units, entries tablesql.Array
	n := 0
	for i := range list {
		if x := &list[i]; !x.leave {
			clusters.Add(x.cluster)
			units.AddInt(int64(x.unit)) // #nosec G115 -- read as a positive bigint
			entries.AddInt(int64(x.entry))
			n++
		}
	}
	if n == 0 {
		return nil
	}
	args.Bind([]byte(r.cfg.Once.Stream), "text")
	args.BindArray(&clusters, "text")
	args.BindArray(&units, "bigint")
	args.BindArray(&entries, "integer")
	return []tablesql.Step{{SQL: sql.TallySettled, Args: args}}
}

// answerLeft answers the items whose rows are settled or not visible yet. It returns the others, whose rows
// are locked or were not written. An item without an entry is settled.
func (r *round) answerLeft(items []*item, list []named) []*item {
	state := make(map[*item]outbox.MarkState, len(items))
	for i := range list {
		x := &list[i]
		if s, known := state[x.item]; known && s != outbox.MarkedSent {
			continue // one id was published twice, and one of the two rows still has an entry
		}
		switch {
		case x.leave && x.seen == exactlyonce.Absent:
			state[x.item] = outbox.MarkedInvisible
		case x.leave:
			state[x.item] = 0
		case x.mark:
			state[x.item] = outbox.MarkedSent
		}
	}
	var rest []*item
	var answers []outbox.Marked
	for _, it := range items {
		s, known := state[it]
		switch {
		case !known:
			s = outbox.MarkedSettled
		case s == 0:
			rest = append(rest, it)
			continue
		}
		answers = append(answers, answerTo(it, s))
	}
	r.answer(answers)
	return rest
}

// Recover settles the rows of a unit that is in the journal but not in the tally, and notes the unit in the
// tally. Rows that were published and are pending are marked. Rows whose fate is not known yet get an entry
// in outbox_cdc.tally_left; so do all rows of the unit if they cannot be marked together. A unit that was
// noted meanwhile is skipped. Recover works without Run and repeats nothing: an error is either temporary or
// says what to do.
func (u *Updater) Recover(ctx context.Context, cluster string, unit exactlyonce.Placed) error {
	table := u.tableOf(unit.Table)
	p := &process{Updater: u, session: &session{pool: u.cfg.Pool}, key: markGroup{table: table, kind: outbox.MarkSent, way: ofLeft, free: true}}
	of := &outbox.Unit{Cluster: cluster, Number: unit.Number, Place: unit.Offset, Rows: len(unit.Names)}
	err := errUnknownTable
	if table != nil {
		err = p.recover(ctx, of, unit.Names)
	}
	if ctx.Err() == nil && apart(err) {
		u.targets.Forget(table)
		err = p.with(ctx, nil, func(ctx context.Context, r *round) error {
			leave := leaving{stream: r.cfg.Once.Stream}
			for i, name := range unit.Names {
				leave.put(cluster, unit.Number, i, unit.Table, name)
			}
			n := newNoting(r.cfg.Once.Stream, []*outbox.Unit{of})
			n.inOrder = true
			return r.noteLeft(ctx, n, &leave)
		})
	}
	if errors.Is(err, errNoted) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("marking the rows of unit %d of Kafka cluster %s, which was published: %w", unit.Number, cluster, err)
	}
	return nil
}

// apart reports whether the error keeps the rows of a unit from being marked together, while single rows may
// still be marked.
func apart(err error) bool {
	switch {
	case err == nil, errors.Is(err, errNoted), errors.As(err, new(*postgres.Error)):
		return false
	case errors.Is(err, errUnknownTable), timedOut(err), errors.Is(err, context.DeadlineExceeded):
		return true
	}
	return tablesql.FaultOf(err) != tablesql.Passing
}

// errUnknownTable: the table was taken out of the configuration.
var errUnknownTable = errors.New("the table was taken out of the stream")

func (u *Updater) tableOf(name string) *outbox.Table {
	for _, t := range u.cfg.Tables {
		if t.String() == name {
			return t
		}
	}
	return nil
}

func (p *process) recover(ctx context.Context, of *outbox.Unit, names []exactlyonce.Name) error {
	conn, t, err := p.connect(ctx, false)
	if err != nil {
		return err
	}
	postgres.Release(conn)
	return p.with(ctx, t, func(ctx context.Context, r *round) error { return r.rollback(ctx, r.recoverUnit(ctx, of, names)) })
}

func (r *round) recoverUnit(ctx context.Context, of *outbox.Unit, names []exactlyonce.Name) error {
	n := newNoting(r.cfg.Once.Stream, []*outbox.Unit{of})
	n.inOrder = true
	if err := n.judge(tablesql.Run(ctx, r.conn, append([]tablesql.Step{beginStep, r.settings().Step(nil)}, n.steps()...)...)); err != nil {
		return err
	}
	leave := leaving{stream: r.cfg.Once.Stream}
	if err := tablesql.Run(ctx, r.conn, leave.horizonStep()); err != nil {
		return err
	}
	list := make([]named, len(names))
	for i := range names {
		list[i] = named{name: names[i], cluster: of.Cluster, unit: of.Number, entry: i, horizon: leave.horizon}
	}
	if err := r.settle(ctx, list); err != nil {
		return err
	}
	for i := range list {
		if list[i].leave {
			leave.put(of.Cluster, of.Number, i, r.key.table.String(), list[i].name)
		}
	}
	return writeMarks(ctx, r.conn, append(leave.steps(), tablesql.Step{SQL: "COMMIT"})...)
}

// LeftRows returns the rows that the tally's entries name, of the given tables.
func LeftRows(tables []*outbox.Table, left []exactlyonce.Left) (rows []*outbox.Row) {
	byName := make(map[string]*outbox.Table, len(tables))
	for _, t := range tables {
		byName[t.String()] = t
	}
	for i := range left {
		if t := byName[left[i].Table]; t != nil {
			rows = append(rows, &outbox.Row{Table: t, ID: left[i].Name.ID})
		}
	}
	return rows
}

func idLiteral(id string) string {
	var columns tablesql.Array
	for _, part := range outbox.SplitID(id) {
		columns.Add(part)
	}
	return columns.Literal()
}
