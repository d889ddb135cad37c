package statusupdater

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// This file keeps rows from another relay while they are published. The rows are locked in a transaction,
// which stays open until the outcome of each row is written in it. See outbox.ClaimRowLock.
//
// A claim never waits for a row lock: it skips rows that other sessions have locked, and later writes only to
// its own. Ordinary marks may wait for a claim, but a claim never waits for them, so it cannot be part of a
// deadlock.

// claims are the open claims by row, and the requests for new ones.
type claims struct {
	requests chan claimRequest

	mu    sync.Mutex
	byRow map[*outbox.Row]*claim // claimed rows without a mark or an Unclaim
}

// claimRequest is a request to a keeper. The keeper answers it even after ctx has ended.
type claimRequest struct {
	ctx    context.Context
	rows   []*outbox.Row
	answer chan claimAnswer
}

type claimAnswer struct {
	checked []outbox.Checked
	err     error
}

// claim is one open transaction. The keeper alone uses its fields, except inbox and open.
type claim struct {
	conn    *pgxpool.Conn
	targets map[*outbox.Table]*target
	counts  map[*outbox.Row]int64 // stored attempts of the locked rows
	since   time.Time
	wake    chan struct{} // holds a value when inbox or open has changed

	// claims.mu guards both. open is the number of rows without a mark or an Unclaim. inbox holds the marks.
	open  int
	inbox []outbox.Mark

	warned bool
}

// Claim locks those of the rows that are pending and that no other session has locked. It returns one answer
// per row, in the rows' order. CheckPending: the row is claimed, and from then on is represented by
// Checked.Now. CheckTaken: another relay has it.
//
// A claimed row stays locked, so that another relay's SKIP LOCKED passes over it. The lock is released once
// the row has an answered mark (see Do) or an Unclaim, and so has every other row of the same Claim. If the
// connection breaks, the locks are lost without notice; the marks are then written like those of other rows.
//
// Claim waits for one of Config.Claims connections, and works only while Run does. A *tablesql.TableError
// names the table that refuses the lock. Any other error is temporary, and nothing is claimed. More than
// Config.ClaimRows rows are an error.
func (u *Updater) Claim(ctx context.Context, rows []*outbox.Row) ([]outbox.Checked, error) {
	if len(rows) > u.cfg.ClaimRows {
		return nil, fmt.Errorf("claiming %d rows at once: at most %d are allowed", len(rows), u.cfg.ClaimRows)
	}
	request := claimRequest{ctx: ctx, rows: rows, answer: make(chan claimAnswer)}
	select {
	case u.claims.requests <- request:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for a connection to claim rows with: %w", ctx.Err())
	}
	a := <-request.answer // comes soon after the end of ctx, too
	return a.checked, a.err
}

// Unclaim releases claimed rows that will get no mark. It never blocks. Rows that are not claimed, or not any
// more, are ignored.
func (u *Updater) Unclaim(rows ...*outbox.Row) {
	u.claims.mu.Lock()
	defer u.claims.mu.Unlock()
	for _, row := range rows {
		if c := u.claims.byRow[row]; c != nil {
			delete(u.claims.byRow, row)
			c.open--
			c.wakeUp()
		}
	}
}

// claimed hands the marks of claimed rows to their claims and returns the other marks.
func (u *Updater) claimed(marks []outbox.Mark) []outbox.Mark {
	u.claims.mu.Lock()
	defer u.claims.mu.Unlock()
	if len(u.claims.byRow) == 0 {
		return marks
	}
	var rest []outbox.Mark
	for _, m := range marks {
		c := u.claims.byRow[m.Row]
		if c == nil {
			rest = append(rest, m)
			continue
		}
		delete(u.claims.byRow, m.Row)
		c.open--
		if m.Uncharged { // there is nothing to write
			rest = append(rest, m)
		} else {
			c.inbox = append(c.inbox, m)
		}
		c.wakeUp()
	}
	return rest
}

func (c *claim) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// keeper is a goroutine that keeps one claim at a time.
type keeper struct{ *Updater }

func (k *keeper) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case request := <-k.claims.requests:
			k.serve(ctx, request)
		}
	}
}

// serve answers the request, and keeps what it claimed until the claim ends.
func (k *keeper) serve(ctx context.Context, request claimRequest) {
	asking, cancel := context.WithTimeout(request.ctx, k.cfg.StatementTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	c, checked, err := k.lock(asking, request.rows)
	if c != nil { // the claim is registered before the answer, so that marks find it
		k.claims.mu.Lock()
		for row := range c.counts {
			k.claims.byRow[row] = c
		}
		c.open = len(c.counts)
		k.claims.mu.Unlock()
	}
	request.answer <- claimAnswer{checked, err}
	if c != nil {
		k.keep(ctx, c)
	}
}

// lock locks the rows and returns the claim; nil: no row was locked.
func (k *keeper) lock(ctx context.Context, rows []*outbox.Row) (*claim, []outbox.Checked, error) {
	conn, err := k.cfg.Pool.Acquire(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to claim rows: %w", err)
	}
	c := &claim{
		conn: conn, targets: make(map[*outbox.Table]*target), counts: make(map[*outbox.Row]int64),
		since: time.Now(), wake: make(chan struct{}, 1),
	}
	checked, err := tablesql.Around(rows, func(rows []*outbox.Row, bare bool) ([]outbox.Checked, error) {
		return k.tryLock(ctx, c, rows, bare)
	})
	if err != nil || len(c.counts) == 0 {
		k.release(c)
		return nil, checked, err
	}
	return c, checked, nil
}

// tryLock locks those of the rows that it can, and returns an answer for each row.
func (k *keeper) tryLock(ctx context.Context, c *claim, rows []*outbox.Row, bare bool) ([]outbox.Checked, error) {
	if c.conn.Conn().PgConn().TxStatus() != 'I' { // an earlier try failed
		if err := tablesql.Run(ctx, c.conn.Conn(), tablesql.Step{SQL: "ROLLBACK"}); err != nil {
			return nil, err
		}
	}
	places := make(map[*outbox.Table][]int)
	var looks []*tablesql.Look
	for i, row := range rows {
		if places[row.Table] == nil {
			t, err := k.targets.Get(ctx, c.conn.Conn(), row.Table)
			if err != nil {
				return nil, k.claimRefused(c, row.Table, err)
			}
			contents, err := t.contents()
			if err != nil {
				return nil, k.claimRefused(c, row.Table, err)
			}
			c.targets[row.Table] = t
			looks = append(looks, &tablesql.Look{Relation: t.relation, Contents: contents, Bare: bare, Most: k.cfg.ClaimBytes})
		}
		places[row.Table] = append(places[row.Table], i)
	}
	for _, l := range looks {
		at := places[l.Relation.Table]
		l.N, l.Row = len(at), func(i int) *outbox.Row { return rows[at[i]] }
	}
	snapshot, err := k.lockAll(ctx, c, looks)
	if err != nil {
		return nil, err
	}
	checked := make([]outbox.Checked, len(rows))
	for _, l := range looks {
		for i, at := range places[l.Relation.Table] {
			row, seen := rows[at], l.Seen[i]
			checked[at] = outbox.Checked{Row: row, State: tablesql.Judge(row, seen, &snapshot)}
			switch seen.State {
			case tablesql.Held:
				checked[at].Now = l.Now[i]
				c.counts[l.Now[i]] = seen.Attempts
			case tablesql.Pending: // pending, and not locked by us: another session has it
				checked[at].State = outbox.CheckTaken
			}
		}
	}
	return checked, nil
}

// lockAll locks the rows of all looks. If the server refuses, it tries each look alone, to find the table
// that is refused.
func (k *keeper) lockAll(ctx context.Context, c *claim, looks []*tablesql.Look) (outbox.Snapshot, error) {
	settings := tablesql.Settings{LockTimeout: k.cfg.LockTimeout, StatementTimeout: k.cfg.StatementTimeout * 5 / 6, IdleTimeout: k.cfg.ClaimIdle}
	snapshot, err := tablesql.Lock(ctx, c.conn.Conn(), settings, looks...)
	if err == nil || tablesql.FaultOf(err) == tablesql.Passing {
		return snapshot, err
	}
	for _, l := range looks {
		if rollback := tablesql.Run(ctx, c.conn.Conn(), tablesql.Step{SQL: "ROLLBACK"}); rollback != nil {
			return snapshot, rollback
		}
		if _, alone := tablesql.Lock(ctx, c.conn.Conn(), settings, l); alone != nil {
			return snapshot, k.claimRefused(c, l.Relation.Table, alone)
		}
	}
	return snapshot, err // refused together but not one by one: the cause is over
}

// claimRefused turns an error into a TableError, if the error means that the table refuses. The catalogue may
// have changed, so it is read again next time.
func (k *keeper) claimRefused(c *claim, table *outbox.Table, err error) error {
	k.targets.Forget(table)
	fault := tablesql.FaultOf(err)
	err = fmt.Errorf("claiming rows of table %s: %w", table, tablesql.WithHint(err, table, c.conn.Conn().Config().User))
	if fault == tablesql.TableRefused || fault == tablesql.RowRefused {
		return &tablesql.TableError{Table: table, Err: err}
	}
	return err
}

// unregister removes the claim's rows from the map and returns the marks that the claim was given.
func (k *keeper) unregister(c *claim) []outbox.Mark {
	k.claims.mu.Lock()
	defer k.claims.mu.Unlock()
	maps.DeleteFunc(k.claims.byRow, func(_ *outbox.Row, of *claim) bool { return of == c })
	inbox := c.inbox
	c.inbox, c.open = nil, 0
	return inbox
}

// keep waits until every row has a mark or an Unclaim, and writes the marks.
func (k *keeper) keep(ctx context.Context, c *claim) {
	ping := time.NewTicker(k.cfg.ClaimIdle / 3)
	defer ping.Stop()
	for !k.finished(c) {
		select {
		case <-ctx.Done():
			k.release(c)
			return
		case <-c.wake:
		case <-ping.C:
			if err := k.ping(ctx, c); err != nil {
				k.lost(ctx, c, group(k.unregister(c), c.counts), fmt.Errorf("keeping rows claimed: %w", err))
				return
			}
		}
	}
	k.finish(ctx, c)
}

func (k *keeper) finished(c *claim) bool {
	k.claims.mu.Lock()
	defer k.claims.mu.Unlock()
	return c.open == 0
}

// ping keeps the session from being idle for too long, notices early that it is gone, and logs a claim that
// lasts.
func (k *keeper) ping(ctx context.Context, c *claim) error {
	if age := time.Since(c.since); age > k.cfg.ClaimWarn && !c.warned {
		c.warned = true
		k.warnOld(c, age)
	}
	ctx, cancel := context.WithTimeout(ctx, k.cfg.ClaimIdle/3)
	defer cancel()
	return tablesql.Run(ctx, c.conn.Conn(), tablesql.Step{SQL: "SELECT 1"})
}

func (k *keeper) warnOld(c *claim, age time.Duration) {
	k.claims.mu.Lock()
	open := c.open
	var one *outbox.Row
	for row := range c.counts {
		if k.claims.byRow[row] == c {
			one = row
			break
		}
	}
	k.claims.mu.Unlock()
	event := k.cfg.Log.Warn().Dur("age", age).Int("rows", len(c.counts)).Int("unpublished", open)
	if one != nil {
		event = event.Stringer("table", one.Table).Str("topic", outbox.Shown(one.Topic)).Strs("id", outbox.SplitID(one.ID))
	}
	event.Msg("rows stay locked: Kafka has not taken all of them yet; those that it took are marked with the others")
}

// group groups marks that can share a statement.
func group(marks []outbox.Mark, counts map[*outbox.Row]int64) map[markGroup][]*item {
	groups := make(map[markGroup][]*item)
	for _, m := range marks {
		key := markGroup{table: m.Row.Table, kind: m.Kind}
		groups[key] = append(groups[key], &item{mark: m, expected: counts[m.Row]})
	}
	return groups
}

// finish writes the marks and commits in one round trip, then answers the marks.
func (k *keeper) finish(ctx context.Context, c *claim) {
	groups := group(k.unregister(c), c.counts)
	if len(groups) == 0 {
		k.release(c)
		return
	}
	var steps []tablesql.Step
	all := make(map[markGroup]*written)
	for key, items := range groups {
		w := &written{items: items, state: make([]outbox.MarkState, len(items))}
		step, err := c.targets[key.table].step(key.kind, false, w)
		if err != nil {
			k.lost(ctx, c, groups, err)
			return
		}
		all[key] = w
		if step.SQL != "" {
			steps = append(steps, step)
		}
	}
	running, cancel := context.WithTimeout(ctx, k.cfg.StatementTimeout)
	defer cancel()
	k.stats.statements.Add(int64(len(all)))
	started := time.Now()
	if err := writeMarks(running, c.conn.Conn(), append(steps, tablesql.Step{SQL: "COMMIT"})...); err != nil {
		for _, w := range all {
			markUnsure(w.items, err)
		}
		k.lost(ctx, c, groups, fmt.Errorf("writing the marks of claimed rows: %w", err))
		return
	}
	go postgres.Release(c.conn)
	took := time.Since(started)
	for key, w := range all {
		left := k.answerWritten(w)
		k.cfg.OnBatch(Batch{Table: key.table, Kind: key.kind, Rows: w.rows, Took: took})
		// The statement passed over these rows although they were locked and pending. They take the ordinary
		// way, which reads their states.
		if len(left) > 0 {
			k.queue.putBack(key, left)
		}
	}
}

// lost ends a claim whose transaction failed. Its locks are gone, and its marks take the ordinary way.
func (k *keeper) lost(ctx context.Context, c *claim, groups map[markGroup][]*item, err error) {
	if tablesql.FaultOf(err) != tablesql.Passing {
		for table := range c.targets {
			k.targets.Forget(table)
		}
	}
	if ctx.Err() == nil {
		k.cfg.Log.Warn().Err(err).Int("rows", len(c.counts)).
			Msg("a claim was lost: another relay may publish those of its rows that are not marked yet; they are marked as other rows are")
	}
	k.release(c)
	for key, items := range groups {
		k.queue.putBack(key, items)
	}
}

// release rolls the transaction back and returns the connection to the pool. If the rollback takes longer
// than a second, it closes the connection, which ends the transaction too.
func (k *keeper) release(c *claim) {
	k.unregister(c)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := tablesql.Run(ctx, c.conn.Conn(), tablesql.Step{SQL: "ROLLBACK"}); err != nil {
		_ = c.conn.Conn().Close(ctx) // the connection is given up anyway
	}
	go postgres.Release(c.conn)
}
