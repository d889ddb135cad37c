package statusupdater

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/internal/loglimit"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
)

const (
	// maxRounds is how often rows that a look finds pending are tried at once. After that they are set aside,
	// like locked rows.
	maxRounds = 3
	// maxStrikes is how often a row's statement, run for this row alone, may fail with an error that is
	// usually temporary. After that the row is refused.
	maxStrikes = 5
	// suspectParts is how many parts a suspect batch is divided into.
	suspectParts = 8
	// freeLockTimeout bounds the wait for table locks when locked rows are skipped.
	freeLockTimeout = 200 * time.Millisecond
)

// work is the loop of a worker, which runs one statement at a time.
func (u *Updater) work(ctx context.Context) error {
	s := session{pool: u.cfg.Pool}
	if u.cfg.Once == nil { // with exactly-once delivery the tally is written on this connection too, so no trigger's settings may remain
		s.keep = keepSession
	}
	defer s.take(nil)
	for {
		b, ok := u.queue.take()
		if !ok {
			return ctx.Err()
		}
		started := time.Now()
		p := process{Updater: u, session: &s, key: b.key, slow: b.slow, groups: [][]*item{b.items}, backoff: u.newBackoff()}
		p.run(ctx)
		if len(b.items) < u.cfg.BatchRows/2 {
			_ = wait.Sleep(ctx, u.cfg.Pace-time.Since(started))
		}
		u.queue.done(b)
	}
}

func (u *Updater) newBackoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = u.cfg.BackoffMin, u.cfg.BackoffMax
	return b
}

// process is the work on one batch, until each of its marks is answered or set aside. If some rows are an
// obstacle, the batch is split into groups.
type process struct {
	*Updater
	session  *session
	key      markGroup
	slow     bool      // its statements get only SlowTimeout
	groups   [][]*item // the last group is next
	rounds   int       // tries of the last group without an error
	reloaded bool      // the catalogue was read again for this batch
	failing  time.Time // since when units of the batch could not be marked; zero: they could
	backoff  *backoff.ExponentialBackOff
}

func (p *process) run(ctx context.Context) {
	for len(p.groups) > 0 && ctx.Err() == nil {
		items := p.groups[len(p.groups)-1]
		p.groups = p.groups[:len(p.groups)-1]
		// The table may be locked, or its trigger may fail with an error that is usually temporary. The
		// tally's head must not wait for that: the journal keeps units for a limited time.
		overdue := p.key.way == ofUnit && !p.failing.IsZero() && time.Since(p.failing) > p.cfg.StatementTimeout
		if overdue {
			p.leave(ctx, items)
			continue
		}
		left, err := p.round(ctx, items)
		if err != nil {
			p.fault(ctx, left, err)
			continue
		}
		p.again(left)
	}
}

// again handles rows that a statement passed over although they are pending.
func (p *process) again(items []*item) {
	p.rounds++
	switch {
	case len(items) == 0:
	case p.rounds < maxRounds && !p.key.free:
		p.groups = append(p.groups, items)
		return
	case p.key.free:
		p.setAside(p.key, items)
	default: // no lock was the cause
		p.refuse(items, errSwallowed, true)
	}
	p.rounds = 0
}

var errSwallowed = errors.New("the statement succeeds and the row stays as it was: a trigger or a rule undoes the mark, or keeps it from being written")

func (p *process) setAside(key markGroup, items []*item) {
	p.stats.locked.Add(int64(len(items)))
	for _, it := range items {
		if it.aside++; it.aside == 10 || it.aside%1000 == 0 {
			p.cfg.Log.Warn().Stringer("table", p.key.table).Strs("id", outbox.SplitID(it.mark.Row.ID)).Int("tries", it.aside).
				Msg("the row was published and cannot be marked: somebody has it locked, or a trigger is in the way; it is tried again")
		}
	}
	key.free = items[0].aside%10 != 0 // every tenth try waits for the lock, to learn whether a lock is the cause
	p.later(key, items, p.cfg.LockedRetry)
}

func (p *process) later(key markGroup, items []*item, pause time.Duration) {
	q := p.queue
	time.AfterFunc(pause, func() { q.putBack(key, items) })
}

func (p *process) fault(ctx context.Context, items []*item, err error) {
	if len(items) == 0 || ctx.Err() != nil {
		return
	}
	if timedOut(err) && !p.slow { // with a short limit, a timeout says nothing about the table
		p.queue.tellHung(p.key.table)
	}
	if p.key.way == ofUnit {
		p.unitFault(ctx, items, err)
		return
	}
	f := tablesql.FaultOf(err)
	passes := f == tablesql.Locked || f == tablesql.Passing
	switch {
	case f == tablesql.Locked && !p.key.free:
		p.key.free = true
		p.groups = append(p.groups, items)
	case passes && suspicious(items, err):
		p.suspect(items, err)
	case f == tablesql.Locked && len(items) > 1 && !p.lockable():
		p.split(items)
	case f == tablesql.Locked && (!p.lockable() || p.key.way == ofLeft): // a unit needs its worker
		p.setAside(p.key, items)
	case passes:
		p.repeat(ctx, items, err)
	case !p.reloaded:
		p.reloaded = true
		p.targets.Forget(p.key.table)
		p.groups = append(p.groups, items)
	case f == tablesql.RowRefused && len(items) > 1:
		p.split(items) // even if many rows refuse, the others are marked
	default:
		if f == tablesql.TableRefused && p.cfg.Explain != nil {
			err = p.cfg.Explain(ctx, p.key.table, err)
		}
		p.refuse(items, err, f == tablesql.RowRefused)
	}
}

// suspicious reports whether the rows themselves may have caused a failure that is usually temporary. A
// trigger's function can raise any error, run for any time, and end its own session. A restart or the network
// breaks connections too, so a broken connection counts only the second time. A lack of disk or memory is
// never held against a row: a trigger's error says so as well.
func suspicious(items []*item, err error) bool {
	switch {
	case timedOut(err):
		return true
	case errors.As(err, new(*brokenError)):
		return brokeBefore(items)
	}
	return tablesql.Raised(err) && !tablesql.Exhausted(err)
}

func brokeBefore(items []*item) bool {
	return slices.ContainsFunc(items, func(it *item) bool { return it.broke })
}

// suspect queues the items apart from others, in several parts, so that the good rows are marked. There are
// many parts because each level of division costs a timeout. A row that keeps failing alone is refused.
func (p *process) suspect(items []*item, err error) {
	key := p.key
	key.free, key.suspect = false, true
	for _, it := range items {
		it.most = (len(items) + suspectParts - 1) / suspectParts
	}
	if len(items) > 1 {
		p.queue.putBack(key, items)
		return
	}
	it := items[0]
	it.strikes++
	if it.mark.Refused || it.strikes > maxStrikes || it.strikes > 1 && timedOut(err) {
		p.refuse(items, err, true)
		return
	}
	p.later(key, items, p.pause(it.strikes))
}

// pause returns how long a row waits before it is tried alone again, so that a temporary cause has time to
// pass.
func (p *process) pause(strikes int) time.Duration {
	return max(min(p.cfg.LockedRetry<<(strikes-1), p.cfg.BackoffMax), p.cfg.LockedRetry)
}

func timedOut(err error) bool {
	return postgres.HasCode(err, pgerrcode.QueryCanceled) || errors.Is(err, errHung)
}

// errHung: a statement ran on after the server's own timeout.
var errHung = errors.New("the statement did not end at its timeout, and its session was ended; a trigger that catches query_canceled does that")

// brokenError wraps an error that ended the connection while a statement ran.
type brokenError struct{ error }

func (e *brokenError) Unwrap() error { return e.error }

func (p *process) repeat(ctx context.Context, items []*item, err error) {
	broke := errors.As(err, new(*brokenError))
	for _, it := range items {
		it.broke = it.broke || broke
	}
	delay := p.backoff.NextBackOff()
	p.tellRepeat(items, err, delay)
	_ = wait.Sleep(ctx, delay)
	p.groups = append(p.groups, items)
}

func (p *process) tellRepeat(items []*item, err error, delay time.Duration) {
	p.stats.repeated.Add(1)
	p.cfg.Log.Warn().Ctx(loglimit.Because(p.cfg.Stream, postgres.ServerWide(err))).Err(err).Stringer("table", p.key.table).Int("rows", len(items)).Dur("retry_in", delay).
		Msg("could not mark rows: they stay pending until the next try")
}

func (p *process) split(items []*item) {
	half := len(items) / 2
	p.groups = append(p.groups, items[half:], items[:half])
}

func (p *process) refuse(items []*item, err error, alone bool) {
	answers := make([]outbox.Marked, len(items))
	for i, it := range items {
		answers[i] = answerTo(it, outbox.MarkedRefused)
		answers[i].Err, answers[i].Alone = err, alone
	}
	p.answer(answers)
}

func answerTo(it *item, state outbox.MarkState) outbox.Marked {
	return outbox.Marked{Row: it.mark.Row, Kind: it.mark.Kind, State: state}
}

// lockable reports whether the table's statements can skip locked rows. It assumes so for a table that is not
// known yet.
func (p *process) lockable() bool {
	t, known := p.targets.Known(p.key.table)
	return !known || t.relation.Lockable
}

// round writes the items once, answers those that it can, and returns the others. With an error, none of the
// others is known to be written.
func (p *process) round(ctx context.Context, items []*item) ([]*item, error) {
	conn, t, err := p.connect(ctx, brokeBefore(items))
	if err != nil {
		return items, err
	}
	worked := false
	defer func() { p.session.release(conn, worked) }()
	r := round{process: p, conn: conn.Conn(), target: t, limit: p.cfg.StatementTimeout * 5 / 6}
	// A try that may refuse a row gets the whole timeout, since the server itself may be slow.
	decides := len(items) == 1 && items[0].strikes > 0
	if p.slow && !decides {
		r.limit = min(p.cfg.SlowTimeout, r.limit)
	}
	limited, cancel := context.WithTimeout(ctx, r.limit+p.cfg.StatementTimeout/6)
	defer cancel()
	left, err := r.run(limited, items)
	if err != nil {
		err = p.brokenBy(ctx, conn.Conn(), err)
		discard(conn, err)
		err = tablesql.WithHint(err, p.key.table, conn.Conn().Config().User)
		return left, fmt.Errorf("marking rows of table %s: %w", p.key.table, err)
	}
	worked = true
	return left, nil
}

// connect returns a connection and the table's statements. It has a timeout of its own, so that no row is
// blamed for a server that is slow to accept connections. proven: the connection is tested first, because the
// row will be blamed if it breaks.
func (p *process) connect(ctx context.Context, proven bool) (*pgxpool.Conn, *target, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.StatementTimeout)
	defer cancel()
	conn, err := p.session.acquire(ctx, p.key.table)
	if err == nil && proven {
		if err = conn.Ping(ctx); err != nil {
			postgres.Release(conn)
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to mark rows of table %s: %w", p.key.table, err)
	}
	t, err := p.targets.Get(ctx, conn.Conn(), p.key.table)
	if err != nil {
		discard(conn, err)
		postgres.Release(conn)
	}
	return conn, t, err
}

// brokenBy returns the cause of a broken connection: errHung for a statement that did not end, a brokenError
// where the statement may have ended the session. It returns any other error unchanged.
func (p *process) brokenBy(ctx context.Context, conn *pgx.Conn, err error) error {
	switch {
	case errors.As(err, new(*unsent)) || !conn.IsClosed():
		return err
	case errors.Is(err, context.DeadlineExceeded):
		if ctx.Err() == nil && p.endHung(ctx, conn.PgConn().PID()) {
			return fmt.Errorf("%w: %w", errHung, err)
		}
		return err
	}
	return &brokenError{err}
}

// terminateHung ends our own session that still runs a statement and keeps its row locked. A session that
// waits for a synchronous standby has committed, so it is left alone. Behind a pooler the pid may belong to
// another session.
const terminateHung = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
	WHERE backend_type = 'client backend' AND datname = current_database() AND usename = session_user
	AND state = 'active' AND wait_event IS DISTINCT FROM 'SyncRep' AND pid = `

// endHung reports whether a session that was given up still ran a statement; if so, it ends that session.
// Behind a pooler it cannot tell.
func (p *process) endHung(ctx context.Context, pid uint32) bool {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.StatementTimeout/2)
	defer cancel()
	var args tablesql.Params
	sql := terminateHung + args.Bind(strconv.AppendUint(nil, uint64(pid), 10), "integer")
	ended := false
	err := postgres.Acquire(ctx, p.cfg.Pool, func(conn *pgx.Conn) error {
		return tablesql.Run(ctx, conn, tablesql.Step{SQL: sql, Args: args, Each: func([][]byte) error { ended = true; return nil }})
	})
	return err == nil && ended
}

// discard closes a connection that may itself be the cause of the error: the server became a standby, a
// pooler lost a prepared statement, or the socket is half-open.
func discard(conn *pgxpool.Conn, err error) {
	if tablesql.FaultOf(err) == tablesql.Passing {
		postgres.HangUp(conn.Conn())
	}
}

func newTarget(relation *tablesql.Relation) (*target, error) {
	marking, err := relation.Marking()
	if err != nil {
		return nil, err
	}
	return &target{relation: relation, marking: marking, contents: sync.OnceValues(relation.Contents)}, nil
}

// newNamedTarget is newTarget for tables whose rows are also marked by name.
func newNamedTarget(relation *tablesql.Relation) (*target, error) {
	t, err := newTarget(relation)
	if err != nil {
		return nil, err
	}
	plan, columns, err := relation.Plan()
	if err != nil {
		return nil, err
	}
	t.naming = &naming{plan, columns}
	return t, nil
}

// step returns the statement that marks rows. free: it skips rows that other sessions have locked. The step
// has no SQL if the table keeps nothing of such a mark.
func (t *target) step(kind outbox.MarkKind, free bool, w *written) (step tablesql.Step, err error) {
	if kind == outbox.MarkAttempt {
		w.count = make([]int, len(w.items))
		step.SQL, step.Each = t.marking.Attempt, w.attempt
		if free {
			step.SQL = t.marking.AttemptFree
		}
		step.Args, err = t.attemptArgs(w.items)
		return step, err
	}
	step.SQL, step.Each = t.marking.Sent, w.sent
	if free {
		step.SQL = t.marking.SentFree
	}
	step.Args, err = t.ids(w.items)
	return step, err
}
