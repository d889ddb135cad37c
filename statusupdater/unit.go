package statusupdater

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgerrcode"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// This file marks rows that were published in Kafka transactions. The rows of a unit are marked in the
// transaction that notes the unit, or get an entry in outbox_cdc.tally_left there. So the marks and the note
// are kept or lost together. A unit that was noted is not marked again: a second mark would undo an
// operator's requeue. See docs/exactly-once.md.

// Once configures exactly-once delivery.
type Once struct {
	// Stream is the name under which the tallies are kept.
	Stream string
	// Guard lets a write commit only on the server of the leader's session.
	Guard *tablesql.Guard
	// Idle is how long this process may be silent before the server ends its open transaction. The
	// transaction of a stopped process blocks a unit that the next leader has to note. So Idle is shorter
	// than the time after which a silent leader is replaced. Default 2 s.
	Idle time.Duration
}

// way is how a mark is written.
type way uint8

const (
	ordinary way = iota
	ofUnit       // together with the other rows of its unit, which is noted
	ofLeft       // together with the removal of the row's entry from outbox_cdc.tally_left
)

func wayOf(m *outbox.Mark) way {
	switch {
	case m.Unit != nil:
		return ofUnit
	case m.InTally:
		return ofLeft
	}
	return ordinary
}

// errNoted: the unit is noted already, by an earlier try or another process.
var errNoted = errors.New("the unit was noted before")

// mostAhead is how many units a noted unit may be ahead of the tally's head. The next start reads all units
// in between, and the journal must keep the missing one until then.
const mostAhead = 5000

// errAhead: the unit has to wait until the tally's head advances.
var errAhead = fmt.Errorf("%d later units are noted in outbox_cdc.tally_unit, and the tally's head does not move on", mostAhead)

// sameUnit returns how many of the first items belong to one unit.
func sameUnit(items []*item) int {
	n := 1
	for n < len(items) && items[n].mark.Unit == items[0].mark.Unit {
		n++
	}
	return n
}

// wholeUnits returns how many of the first items are whole units with at most the given number of rows in
// total. It returns at least one unit.
func wholeUnits(items []*item, rows int) int {
	n := sameUnit(items)
	for n < len(items) {
		size := sameUnit(items[n:])
		if n+size > rows {
			break
		}
		n += size
	}
	return n
}

// noting is the part of a transaction that notes units.
type noting struct {
	args   tablesql.Params // of sql.TallyNote
	behind tablesql.Params // of sql.TallyBehind
	units  int
	// noted, there and ahead count the units: those newly noted, those with a tally, and those ahead of the
	// tally's head.
	noted, there, ahead int
	furthest            int  // how far the last unit is ahead of the head
	inOrder             bool // earlier units are noted, so the head can follow
	told                bool // the server has run the statements on the tally
}

func newNoting(stream string, units []*outbox.Unit) *noting {
	var clusters, numbers, places tablesql.Array
	for _, u := range units {
		clusters.Add(u.Cluster)
		numbers.AddInt(int64(u.Number)) // #nosec G115 -- counted from 1
		places.AddInt(u.Place)
	}
	n := &noting{units: len(units)}
	for _, args := range []*tablesql.Params{&n.args, &n.behind} {
		args.Bind([]byte(stream), "text")
		args.BindArray(&clusters, "text")
		args.BindArray(&numbers, "bigint")
	}
	n.args.BindArray(&places, "bigint")
	return n
}

// steps returns the statements that note the units.
func (n *noting) steps() []tablesql.Step {
	return []tablesql.Step{
		{SQL: sql.TallyNote, Args: n.args, Each: func([][]byte) error { n.noted++; return nil }},
		{SQL: sql.TallyBehind, Args: n.behind, Each: func(row [][]byte) (err error) {
			n.told = true
			for i, to := range []*int{&n.there, &n.ahead, &n.furthest} {
				if *to, err = strconv.Atoi(string(row[i])); err != nil {
					return err
				}
			}
			return nil
		}},
	}
}

// judge returns the error of the transaction so far.
func (n *noting) judge(err error) error {
	switch {
	case err != nil && !n.told && postgres.ServerError(err) != nil:
		return tallyError(err)
	case err != nil:
		return err
	case n.there < n.units:
		return tallyError(errors.New("the stream has no tally on this Kafka cluster any more"))
	case n.noted < n.units || n.ahead < n.units:
		return errNoted
	case n.furthest > mostAhead && !n.inOrder:
		return errAhead
	}
	return nil
}

// tallyError wraps the error of a statement on our own tables. It says nothing about the user's table.
func tallyError(err error) error {
	e := &postgres.Error{What: "note what was published in the tally", Err: err}
	if postgres.HasCode(err, pgerrcode.InsufficientPrivilege, pgerrcode.UndefinedTable, pgerrcode.InvalidSchemaName) {
		e.Hint = "run outbox-cdc init, which makes outbox_cdc.tally, outbox_cdc.tally_unit and outbox_cdc.tally_left and grants SELECT, INSERT, UPDATE and DELETE on them"
	}
	return e
}

var beginStep = tablesql.Step{SQL: "BEGIN ISOLATION LEVEL READ COMMITTED"}

// unitsOf returns the units of the items, in order.
func unitsOf(items []*item) (units []*outbox.Unit) {
	for len(items) > 0 {
		units = append(units, items[0].mark.Unit)
		items = items[sameUnit(items):]
	}
	return units
}

// errPart reports a bug of this program. A unit whose marks are incomplete is not noted: the rows without a
// mark would be neither marked nor listed in the tally.
var errPart = errors.New("marks of a unit are missing, so none of its rows is marked: start the stream again")

func whole(items []*item) bool {
	for len(items) > 0 {
		n := sameUnit(items)
		if n != items[0].mark.Unit.Rows {
			return false
		}
		items = items[n:]
	}
	return true
}

// units marks the rows of units and notes the units, in one transaction.
func (r *round) units(ctx context.Context, items []*item) ([]*item, error) {
	if !whole(items) {
		return items, errPart
	}
	w := &written{items: items, state: make([]outbox.MarkState, len(items))}
	started := time.Now()
	if err := r.markUnits(ctx, w); err != nil {
		return items, r.rollback(ctx, err)
	}
	leaving, err := r.unmarked(ctx, w)
	if err == nil {
		err = writeMarks(ctx, r.conn, append(leaving, tablesql.Step{SQL: "COMMIT"})...)
	}
	if err != nil {
		return items, r.rollback(ctx, err)
	}
	r.cfg.OnBatch(Batch{Table: r.key.table, Kind: r.key.kind, Rows: w.rows, Took: time.Since(started)})
	if left := r.answerWritten(w); len(left) > 0 {
		r.setAside(r.asLeft(left), left)
	}
	return nil, nil
}

// markUnits notes the units and marks their rows, without committing.
func (r *round) markUnits(ctx context.Context, w *written) error {
	mark, err := r.target.step(outbox.MarkSent, r.passOver(), w)
	if err != nil {
		return err
	}
	n := newNoting(r.cfg.Once.Stream, unitsOf(w.items))
	steps := append([]tablesql.Step{r.settings().Step(nil)}, append(n.steps(), mark)...)
	if r.prepare {
		if err := tablesql.Prepare(ctx, r.conn, r.settings(), steps); err != nil {
			return &unsent{err}
		}
	}
	r.stats.statements.Add(1)
	return n.judge(tablesql.Run(ctx, r.conn, append([]tablesql.Step{beginStep}, steps...)...))
}

// unmarked reads the states of the rows that were passed over. It returns the step that adds an entry to
// outbox_cdc.tally_left for each row still to be marked. Such a row is answered if it is not visible yet; a
// pending row gets no answer yet.
func (r *round) unmarked(ctx context.Context, w *written) ([]tablesql.Step, error) {
	var at []int
	for i := range w.items {
		if w.state[i] == 0 {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return nil, nil
	}
	var snapshot outbox.Snapshot
	l := &tablesql.Look{Relation: r.target.relation, N: len(at), Row: func(i int) *outbox.Row { return w.items[at[i]].mark.Row }}
	leave := leaving{stream: r.cfg.Once.Stream}
	steps, err := l.States(&snapshot)
	if err == nil {
		err = tablesql.Run(ctx, r.conn, append(steps, leave.horizonStep())...)
	}
	if err != nil {
		return nil, err
	}
	for n, i := range at {
		row := w.items[i].mark.Row
		switch state := l.Seen[n].State; {
		case state == tablesql.Pending:
			leave.add(w.items, i)
		case state == tablesql.Absent && tablesql.Invisible(row, &snapshot):
			w.state[i] = outbox.MarkedInvisible
			leave.add(w.items, i)
		default:
			w.state[i] = outbox.MarkedSettled
		}
	}
	return leave.steps(), nil
}

// asLeft turns marks of units into marks of rows with an entry in outbox_cdc.tally_left, and returns the key
// of their queue.
func (p *process) asLeft(items []*item) markGroup {
	for _, it := range items {
		it.mark.Unit, it.mark.InTally = nil, true
	}
	return markGroup{table: p.key.table, kind: p.key.kind, way: ofLeft, free: true}
}

// leaving collects new entries of outbox_cdc.tally_left. The horizon is the id of the transaction that
// inserts them: each row published before it has a transaction with a lower id. The xmax of a snapshot would
// not do. It is the last ended id plus one, and a row's transaction that is still open may have a higher id.
type leaving struct {
	stream  string
	horizon uint64

	clusters, units, entries, tables, ids, hashes tablesql.Array
	n                                             int
}

// horizonStep reads the horizon. The transaction has noted the units, so it has an id.
func (l *leaving) horizonStep() tablesql.Step {
	return tablesql.Step{SQL: "SELECT pg_catalog.pg_current_xact_id()::pg_catalog.text", Each: func(row [][]byte) (err error) {
		l.horizon, err = strconv.ParseUint(string(row[0]), 10, 64)
		return err
	}}
}

// add makes an entry for items[i]. The items are whole units.
func (l *leaving) add(items []*item, i int) {
	u, row := items[i].mark.Unit, items[i].mark.Row
	first := i
	for first > 0 && items[first-1].mark.Unit == u {
		first--
	}
	l.put(u.Cluster, u.Number, i-first, row.Table.String(), exactlyonce.NameOf(row))
}

func (l *leaving) put(cluster string, unit uint64, entry int, table string, name exactlyonce.Name) {
	l.n++
	l.clusters.Add(cluster)
	l.units.AddInt(int64(unit)) // #nosec G115 -- counted from 1
	l.entries.AddInt(int64(entry))
	l.tables.Add(table)
	l.ids.Add(idLiteral(name.ID))
	l.hashes.Add(`\x` + hex.EncodeToString(name.Hash[:]))
}

func (l *leaving) steps() []tablesql.Step {
	if l.n == 0 {
		return nil
	}
	var args tablesql.Params
	args.Bind([]byte(l.stream), "text")
	for _, a := range []struct {
		of  *tablesql.Array
		typ string
	}{{&l.clusters, "text"}, {&l.units, "bigint"}, {&l.entries, "integer"}, {&l.tables, "text"}, {&l.ids, "text"}, {&l.hashes, "bytea"}} {
		args.BindArray(a.of, a.typ)
	}
	args.Bind(strconv.AppendUint(nil, l.horizon, 10), "text")
	return []tablesql.Step{{SQL: sql.TallyLeave, Args: args}}
}

// noteLeft notes units whose rows cannot be marked together, and makes an entry for each row.
func (r *round) noteLeft(ctx context.Context, n *noting, leave *leaving) error {
	steps := append([]tablesql.Step{beginStep, r.settings().Step(nil)}, n.steps()...)
	steps = append(steps, leave.horizonStep())
	if err := n.judge(tablesql.Run(ctx, r.conn, steps...)); err != nil {
		return r.rollback(ctx, err)
	}
	if err := writeMarks(ctx, r.conn, append(leave.steps(), tablesql.Step{SQL: "COMMIT"})...); err != nil {
		return r.rollback(ctx, tallyError(err))
	}
	return nil
}

// rollback ends a failed transaction and returns err. If the rollback takes long it closes the connection,
// which ends the transaction too.
func (r *round) rollback(ctx context.Context, err error) error {
	if err == nil || r.conn.IsClosed() || r.conn.PgConn().TxStatus() == 'I' {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if tablesql.Run(ctx, r.conn, tablesql.Step{SQL: "ROLLBACK"}) != nil {
		_ = r.conn.Close(ctx) // the connection is given up anyway
	}
	return err
}

func (p *process) unitFault(ctx context.Context, items []*item, err error) {
	f := tablesql.FaultOf(err)
	if p.failing.IsZero() && !errors.Is(err, errNoted) && !errors.Is(err, errAhead) {
		p.failing = time.Now()
	}
	switch {
	case f == tablesql.Locked && !p.key.free:
		p.key.free = true
		p.groups = append(p.groups, items)
	case (errors.Is(err, errNoted) || errors.Is(err, errAhead)) && p.splitUnits(items):
	case errors.Is(err, errNoted):
		p.queue.putBack(p.asLeft(items), items)
	case errors.Is(err, errAhead):
		p.wait(items, err)
	case errors.As(err, new(*postgres.Error)), f == tablesql.Passing && !suspicious(items, err), f == tablesql.Locked && p.lockable():
		p.repeat(ctx, items, err)
	case f != tablesql.Passing && f != tablesql.Locked && !p.reloaded:
		p.reloaded = true
		p.targets.Forget(p.key.table)
		p.groups = append(p.groups, items)
	case p.splitUnits(items):
	default:
		p.leave(ctx, items)
	}
}

// splitUnits makes the first of several units be tried by itself. It returns false where there is only one
// unit.
func (p *process) splitUnits(items []*item) bool {
	n := sameUnit(items)
	if n == len(items) {
		return false
	}
	p.groups = append(p.groups, items[n:], items[:n:n])
	return true
}

// wait queues units for a later try. No worker waits for them: the unit that the tally's head needs must get
// a worker.
func (p *process) wait(items []*item, err error) {
	p.tellRepeat(items, err, p.cfg.LockedRetry)
	p.later(p.key, items, p.cfg.LockedRetry)
}

// leave notes units and makes an entry for each of their rows. The rows are then marked one by one.
func (p *process) leave(ctx context.Context, items []*item) {
	err := p.with(ctx, nil, func(ctx context.Context, r *round) error {
		leave := leaving{stream: r.cfg.Once.Stream}
		for i := range items {
			leave.add(items, i)
		}
		return r.noteLeft(ctx, newNoting(r.cfg.Once.Stream, unitsOf(items)), &leave)
	})
	n := sameUnit(items)
	switch {
	case (errors.Is(err, errNoted) || errors.Is(err, errAhead)) && n < len(items): // find out which unit it is
		for ; len(items) > 0; items = items[n:] {
			n = sameUnit(items)
			p.leave(ctx, items[:n:n])
		}
	case err == nil, errors.Is(err, errNoted):
		p.queue.putBack(p.asLeft(items), items)
	case errors.Is(err, errAhead):
		p.wait(items, err)
	case ctx.Err() == nil:
		p.repeat(ctx, items, err)
	}
}

// with runs f on a connection. target may be nil if f does not touch the table.
func (p *process) with(ctx context.Context, t *target, f func(ctx context.Context, r *round) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.StatementTimeout)
	defer cancel()
	conn, err := p.cfg.Pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connecting to note what was published: %w", err)
	}
	defer func() { go postgres.Release(conn) }() // nobody waits for the connection's reset
	r := &round{process: p, conn: conn.Conn(), target: t, limit: p.cfg.StatementTimeout * 5 / 6}
	if err = f(ctx, r); err != nil {
		discard(conn, err)
	}
	return err
}
