package statusupdater

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/failpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// round is one statement for some of a process's items, and what it needs: connection, target and limits.
type round struct {
	*process
	conn   *pgx.Conn
	target *target
	limit  time.Duration // the longest time that the server may take for a statement
}

func (r *round) run(ctx context.Context, items []*item) ([]*item, error) {
	switch {
	case r.key.kind == outbox.MarkAttempt:
		// An attempt takes two steps. The stored count is read, and then raised only if it is unchanged. So
		// repeating a statement with an unknown outcome cannot charge a row twice, and the count tells
		// whether the first try was written.
		left, err := r.look(ctx, items, r.judgeAttempt)
		if err != nil || len(left) == 0 {
			return left, err
		}
		return r.mark(ctx, left)
	case r.key.way == ofUnit:
		return r.units(ctx, items)
	case r.key.way == ofLeft:
		return r.left(ctx, items)
	}
	left, err := r.mark(ctx, items)
	if err != nil || len(left) == 0 {
		return left, err
	}
	return r.look(ctx, left, r.judgeSent)
}

// mark marks the items and returns those that the statement did not find.
func (r *round) mark(ctx context.Context, items []*item) ([]*item, error) {
	w := &written{items: items, state: make([]outbox.MarkState, len(items))}
	step, err := r.target.step(r.key.kind, r.passOver(), w)
	if err != nil {
		return items, err
	}
	if err := r.exec(ctx, step, w); err != nil {
		markUnsure(items, err)
		return items, err
	}
	return r.answerWritten(w), nil
}

// unsent wraps an error that occurred before a statement was sent.
type unsent struct{ error }

func (e *unsent) Unwrap() error { return e.error }

func markUnsure(items []*item, err error) {
	if errors.As(err, new(*unsent)) || !tablesql.Unknown(err) {
		return
	}
	for _, it := range items {
		it.unsure = true
	}
}

func (t *target) attemptArgs(items []*item) (tablesql.Params, error) {
	return t.relation.AttemptArrays(len(items), func(i int) tablesql.Attempt {
		m := &items[i].mark
		return tablesql.Attempt{Row: m.Row, Reason: m.Reason, Expected: items[i].expected, Spends: m.Spends}
	})
}

func (t *target) ids(items []*item) (tablesql.Params, error) {
	return t.relation.RowArrays(len(items), func(i int) *outbox.Row { return items[i].mark.Row })
}

// passOver reports whether the statement skips rows that other sessions have locked.
func (r *round) passOver() bool { return r.key.free && r.target.relation.Lockable }

func (r *round) settings() tablesql.Settings {
	s := tablesql.Settings{LockTimeout: r.cfg.LockTimeout, StatementTimeout: r.limit, ByIndex: true}
	if r.key.free || r.slow {
		s.LockTimeout = min(s.LockTimeout, freeLockTimeout)
	}
	if r.cfg.Once != nil { // exactly-once transactions take several round trips
		s.Guard, s.IdleTimeout = r.cfg.Once.Guard, cmp.Or(r.cfg.Once.Idle, 2*time.Second)
	}
	return s
}

// exec runs a statement in a transaction of its own. The transaction is committed if exec returns no error.
func (r *round) exec(ctx context.Context, step tablesql.Step, w *written) error {
	steps := []tablesql.Step{r.settings().Step(nil), step}
	if r.prepare {
		if err := tablesql.Prepare(ctx, r.conn, r.settings(), steps); err != nil {
			return &unsent{err}
		}
	}
	started := time.Now()
	r.stats.statements.Add(1)
	if err := r.write(ctx, steps); err != nil {
		return err
	}
	r.cfg.OnBatch(Batch{Table: r.key.table, Kind: r.key.kind, Rows: w.rows, Took: time.Since(started)})
	return nil
}

// write commits the steps at once. With exactly-once delivery it commits only after the steps have shown that
// they ran on the same server as the leader's session.
func (r *round) write(ctx context.Context, steps []tablesql.Step) error {
	if r.cfg.Once == nil {
		return writeMarks(ctx, r.conn, steps...)
	}
	err := tablesql.Run(ctx, r.conn, append([]tablesql.Step{beginStep}, steps...)...)
	if err == nil {
		err = writeMarks(ctx, r.conn, tablesql.Step{SQL: "COMMIT"})
	}
	return r.rollback(ctx, err)
}

// writeMarks runs steps that mark rows, and commits them.
func writeMarks(ctx context.Context, conn *pgx.Conn, steps ...tablesql.Step) error {
	if err := failpoint.Here(failpoint.BeforeMark); err != nil {
		return err
	}
	if err := tablesql.Run(ctx, conn, steps...); err != nil {
		return err
	}
	return failpoint.Here(failpoint.AfterMark)
}

// written collects which items a statement reports as written. It is valid only after the commit.
type written struct {
	items []*item
	state []outbox.MarkState // 0: not written
	count []int              // for attempts only
	rows  int
}

func (w *written) sent(row [][]byte) error {
	n, err := tablesql.Ordinal(row[0], len(w.items))
	if err != nil {
		return err
	}
	w.state[n] = outbox.MarkedSent
	w.rows++
	return nil
}

func (w *written) attempt(row [][]byte) error {
	n, err := tablesql.Ordinal(row[0], len(w.items))
	if err != nil {
		return err
	}
	count, err := tablesql.Count(row[1])
	if err != nil {
		return err
	}
	w.count[n] = int(count)
	w.rows++
	switch tablesql.State(row[2][0]) {
	case tablesql.Pending:
		w.state[n] = outbox.MarkedRetry
	case tablesql.Failed:
		w.state[n] = outbox.MarkedFailed
	default: // an application's trigger changed the state
		w.state[n] = outbox.MarkedSettled
	}
	return nil
}

// answerWritten answers the items that have a state, and returns the others.
func (u *Updater) answerWritten(w *written) (left []*item) {
	answers := make([]outbox.Marked, 0, len(w.items))
	for i, it := range w.items {
		if w.state[i] == 0 {
			left = append(left, it)
			continue
		}
		a := answerTo(it, w.state[i])
		if a.State == outbox.MarkedRetry || a.State == outbox.MarkedFailed {
			a.Attempts = w.count[i]
		}
		answers = append(answers, a)
	}
	u.answer(answers)
	return left
}

// look reads the states of the items' rows, answers the items for which judge returns a state, and returns
// the others.
func (r *round) look(ctx context.Context, items []*item, judge func(*item, tablesql.Seen) outbox.MarkState) ([]*item, error) {
	l := &tablesql.Look{Relation: r.target.relation, N: len(items), Row: func(i int) *outbox.Row { return items[i].mark.Row }}
	snapshot, err := tablesql.At(ctx, r.conn, r.settings(), r.prepare, l)
	if err != nil {
		return items, err
	}
	w := &written{items: items, state: make([]outbox.MarkState, len(items)), count: make([]int, len(items))}
	for i, it := range items {
		w.state[i], w.count[i] = outbox.MarkedInvisible, int(l.Seen[i].Attempts)
		if l.Seen[i].State != tablesql.Absent || !tablesql.Invisible(it.mark.Row, &snapshot) {
			w.state[i] = judge(it, l.Seen[i])
		}
	}
	return r.answerWritten(w), nil
}

// judgeSent returns the answer for a row that the statement did not find. 0: the row is pending, so it is
// tried again.
func (r *round) judgeSent(_ *item, seen tablesql.Seen) outbox.MarkState {
	if seen.State == tablesql.Pending {
		return 0
	}
	return outbox.MarkedSettled
}

// judgeAttempt returns the answer for a row before it is charged. 0: charge it.
func (r *round) judgeAttempt(it *item, seen tablesql.Seen) outbox.MarkState {
	counted := r.target.marking.Counted
	// An attempt with an unknown outcome was written if the count has risen. If another session raised the
	// count, the row was charged all the same.
	landed := it.unsure && (!counted || seen.Attempts > it.expected)
	switch {
	case seen.State == tablesql.Failed && landed:
		return outbox.MarkedFailed
	case seen.State != tablesql.Pending:
		return outbox.MarkedSettled
	case it.mark.Uncharged:
		return outbox.MarkedRetry
	case landed && counted, r.target.marking.Attempt == "":
		return outbox.MarkedRetry
	case !it.unsure:
		it.expected = seen.Attempts
	}
	return 0
}
