// Package sweeper reads the user's own tables. It reads pages of pending rows in table order, looks for rows
// that the stream may have missed, and looks up the state of rows that may be settled. It also deletes rows
// whose retention has expired. Rows that it returns for publication are equal to what the WAL would have
// given. All other rows have only id, scope and times.
//
// The package does not publish, mark or park rows, and keeps no position: each call reads in a new snapshot
// and selects by state. Between calls it remembers only what is costly to read again, such as an ID order,
// and since when another relay has had a row.
package sweeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// Config configures a Sweeper. Zero fields take their defaults.
type Config struct {
	// Pool provides the connections. Its role needs SELECT on the mapped columns, or better on the whole
	// table: then rows with equal order columns come in the order in which their transaction inserted them.
	Pool *pgxpool.Pool
	// Tables are the stream's tables.
	Tables []*outbox.Table
	// PageBytes limits a page without a MaxBytes of its own, in bytes by outbox.Row.Size. A page has at least
	// one row. Default 16 MiB.
	PageBytes int
	// StatementTimeout bounds one statement. Default 60 s.
	StatementTimeout time.Duration
	// FailedTimeout bounds a count of FAILED rows, which reads the whole table if no index serves it. Default
	// 2 s.
	FailedTimeout time.Duration
	// RetainRows is how many rows one DELETE of Retain removes. Default 500.
	RetainRows int
	// Now is the monotonic clock of Recover. Default time.Now.
	Now func() time.Time
	// Guard, with exactly-once delivery, lets reads succeed only on the server of the leader's session; see
	// tablesql.Guard. nil: on any server.
	Guard *tablesql.Guard
	Log   zerolog.Logger
}

// Sweeper reads a stream's tables. Any number of goroutines may use it at a time.
type Sweeper struct {
	cfg         Config
	maxOrderIDs int
	slowFetch   time.Duration
	prepare     bool // connections may keep prepared statements
	plans       *tablesql.RelationCache[*plan]
	apart       atomic.Bool

	mu sync.Mutex // guards the fields below
	// idOrders are the ID orders of tables whose rows are costly to find in order.
	idOrders map[*outbox.Table]*idOrder
	// taken are the rows that another relay had at the last look.
	taken map[*outbox.Table]taken
	// dueIndexed says which tables have an index that finds due rows; see byTime.
	dueIndexed map[*outbox.Table]dueIndexed
}

// New returns a Sweeper. It makes no connection.
func New(cfg Config) (*Sweeper, error) {
	if cfg.Pool == nil {
		return nil, errors.New("sweeper: Config.Pool is required")
	}
	setDefault(&cfg.PageBytes, 16<<20)
	setDefault(&cfg.StatementTimeout, time.Minute)
	setDefault(&cfg.FailedTimeout, 2*time.Second)
	setDefault(&cfg.RetainRows, 500)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Sweeper{
		cfg:         cfg,
		maxOrderIDs: maxIDOrder,
		slowFetch:   slowFetch,
		prepare:     tablesql.Prepares(cfg.Pool.Config().ConnConfig),
		plans:       tablesql.NewRelationCache(cfg.Tables, newPlan),
		idOrders:    make(map[*outbox.Table]*idOrder),
		taken:       make(map[*outbox.Table]taken),
		dueIndexed:  make(map[*outbox.Table]dueIndexed),
	}, nil
}

// Apart sets whether each row read from now on gets memory of its own; see mapping.Arena.
func (s *Sweeper) Apart(apart bool) { s.apart.Store(apart) }

func setDefault[T int | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

// TableError says that the database or the mapping refuses a request about a table. Every other error of this
// package is temporary.
type TableError = tablesql.TableError

func isRefusal(err error) bool {
	_, refused := errors.AsType[*TableError](err)
	return refused
}

// with runs f on a connection. After an error that the connection itself may have caused, the connection is
// closed and not kept.
func (s *Sweeper) with(ctx context.Context, f func(ctx context.Context, conn *pgx.Conn) error) error {
	acquiring, cancel := context.WithTimeout(ctx, s.timeout())
	conn, err := s.cfg.Pool.Acquire(acquiring)
	cancel()
	if err != nil {
		return fmt.Errorf("connecting to read outbox tables: %w", err)
	}
	defer postgres.Release(conn)
	err = f(ctx, conn.Conn())
	if err != nil && tablesql.FaultOf(err) == tablesql.Passing {
		postgres.HangUp(conn.Conn())
	}
	if refused, ok := errors.AsType[*TableError](err); ok {
		refused.Err = tablesql.WithHint(refused.Err, refused.Table, conn.Conn().Config().User)
	}
	return err
}

// send is tablesql.Run with a timeout, in case the server does not answer at all.
func (s *Sweeper) send(ctx context.Context, conn *pgx.Conn, steps ...tablesql.Step) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	return tablesql.Run(ctx, conn, steps...)
}

// timeout is longer than the server's own limit, so that the server's error comes first.
func (s *Sweeper) timeout() time.Duration { return s.cfg.StatementTimeout * 6 / 5 }

// settings returns the settings of a statement that reads.
func (s *Sweeper) settings() tablesql.Settings {
	settings := tablesql.Reading(s.cfg.StatementTimeout)
	settings.Guard = s.cfg.Guard
	return settings
}

// fresh runs f like with. If a table refuses, it runs f once more (see again).
func (s *Sweeper) fresh(ctx context.Context, f func(ctx context.Context, conn *pgx.Conn) error) error {
	return s.again(func() error { return s.with(ctx, f) })
}

// again runs f. If a table refuses, it reads the catalogue again and runs f once more: DDL may have changed
// the table.
func (s *Sweeper) again(f func() error) error {
	err := f()
	refused, ok := errors.AsType[*TableError](err)
	if !ok || refused.Locked() || !s.forget(refused.Table) {
		return err
	}
	return f()
}

// forget discards what is known of a table, and reports whether there was anything.
func (s *Sweeper) forget(t *outbox.Table) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.idOrders, t)
	delete(s.dueIndexed, t)
	return s.plans.Forget(t)
}

// plan is a table with what is derived from its catalogue entries and its mapping.
type plan struct {
	relation *tablesql.Relation
	rows     *mapping.Plan
	// columns are the columns to select, parallel to rows.Wanted.
	columns []tablesql.RowColumn
	// light are substitutes for values of columns, parallel to columns. They are used when only a row's id,
	// scope and times are wanted. nil: the column itself is needed.
	light    []*mapping.Value
	contents *tablesql.Contents
}

// plan returns the table's plan, which is made on first use. The connection must not be in a transaction.
func (s *Sweeper) plan(ctx context.Context, conn *pgx.Conn, t *outbox.Table) (*plan, error) {
	if p, ok := s.plans.Known(t); ok {
		return p, nil // saves the timer
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	p, err := s.plans.Get(ctx, conn, t)
	return p, tablesql.Refusal(t, err)
}

// dueIndexed is the result of a search for indexes, and when it was made.
type dueIndexed struct {
	found bool
	at    time.Time
}

// dueIndexedFor is how long such a result is used: indexes are made and dropped while the program runs.
const dueIndexedFor = time.Minute

// byTime reports whether the table's due rows are read by indexes, without stepping over those that wait. The
// connection must not be in a transaction.
func (s *Sweeper) byTime(ctx context.Context, conn *pgx.Conn, p *plan) (bool, error) {
	t := p.relation.Table
	if !p.relation.Waits() {
		return false, nil
	}
	s.mu.Lock()
	known := s.dueIndexed[t]
	s.mu.Unlock()
	now := s.cfg.Now()
	if !known.at.IsZero() && now.Sub(known.at) < dueIndexedFor {
		return known.found, nil
	}
	known.at = now
	steps := append([]tablesql.Step{tablesql.Reading(s.cfg.StatementTimeout).Step(nil)}, p.relation.DueIndexed(&known.found)...)
	if err := s.send(ctx, conn, steps...); err != nil {
		return false, tablesql.Refusal(t, fmt.Errorf("looking for an index of due rows of table %s: %w", t, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dueIndexed[t] = known
	return known.found, nil
}

// Unusable returns a TableError for each of the stream's tables that cannot be read or marked as mapped, or
// that is locked. Tables in known are skipped. A locked table is asked once, and many locked tables take
// little longer than one: see lockWait.
func (s *Sweeper) Unusable(ctx context.Context, known []*TableError) ([]*TableError, error) {
	var unusable []*TableError
	var wait lockWait
	err := s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		for _, t := range s.cfg.Tables {
			if slices.ContainsFunc(known, func(e *TableError) bool { return e.Table == t }) {
				continue
			}
			err := s.usable(ctx, conn, t, &wait)
			if refused, ok := errors.AsType[*TableError](err); ok {
				unusable = append(unusable, refused)
			} else if err != nil {
				return err
			}
		}
		return nil
	})
	return unusable, err
}

// Usable reports whether neither Failed nor Unusable finds a fault with the table.
func (s *Sweeper) Usable(ctx context.Context, t *outbox.Table) (bool, error) {
	var arena mapping.Arena
	var wait lockWait
	_, err := s.failedOf(ctx, t, &arena, &wait)
	if err == nil {
		err = s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error { return s.usable(ctx, conn, t, &wait) })
	}
	if isRefusal(err) {
		return false, nil
	}
	return err == nil, err
}

// usable returns the refusal of a table that does not fit its mapping or that is locked against readers.
// Other refusals are left to the table's first page, which reports them with a hint.
func (s *Sweeper) usable(ctx context.Context, conn *pgx.Conn, t *outbox.Table, wait *lockWait) error {
	p, err := s.plan(ctx, conn, t)
	if err != nil || !t.Stateful() {
		return err
	}
	err = tablesql.Refusal(t, wait.send(ctx, s, conn, p.relation.Open()))
	if refused, ok := errors.AsType[*TableError](err); ok && !refused.Locked() {
		return nil
	}
	return err
}

// lockWait bounds the wait for locks by questions about many tables. After one wait in vain, later questions
// wait only briefly.
type lockWait struct{ vain bool }

// hardly is long enough for a lock that is about to be released.
const hardly = 50 * time.Millisecond

func (w *lockWait) send(ctx context.Context, s *Sweeper, conn *pgx.Conn, question tablesql.Step) error {
	settings := s.settings()
	if w.vain {
		settings.LockTimeout = hardly
	}
	err := s.send(ctx, conn, settings.Step(nil), question)
	w.vain = w.vain || tablesql.FaultOf(err) == tablesql.Locked
	return err
}

func newPlan(relation *tablesql.Relation) (*plan, error) {
	rows, columns, err := relation.Plan()
	if err != nil {
		return nil, err
	}
	m := &relation.Table.Mapping
	light := make([]*mapping.Value, len(columns))
	needed := needed(m)
	for i, c := range columns {
		switch {
		case needed[c.Name]:
		case c.Name == m.Payload.Column:
			// NULL could be an error of the row, so the substitute is an empty value.
			light[i] = &mapping.Value{Data: []byte(`\x`), Format: mapping.Text}
		default:
			light[i] = &mapping.Value{Format: mapping.Null}
		}
	}
	contents, err := relation.Contents()
	return &plan{relation: relation, rows: rows, columns: columns, light: light, contents: contents}, err
}

// needed returns the names of the columns from which id, scope, state and times are computed.
func needed(m *outbox.Mapping) map[string]bool {
	names := make(map[string]bool)
	need := func(columns ...string) {
		for _, name := range columns {
			names[name] = true
		}
	}
	need(m.Columns(outbox.UseID | outbox.UseCluster | outbox.UseTopic | outbox.UseKey | outbox.UseTime | outbox.UseState | outbox.UseBudget)...)
	if !m.Payload.Plain() {
		need(m.Payload.Names()...)
	}
	for i := range m.Headers {
		// The payload's substitute is not JSON.
		if h := m.Headers[i].Expr(); m.Headers[i].JSON != "" || !h.Plain() {
			need(slices.DeleteFunc(h.Names(), func(name string) bool { return name != m.Payload.Column })...)
		}
	}
	if m.EventID.Name != "" {
		need(m.EventID.Columns...) // a NULL there would be an error of the row
	}
	return names
}
