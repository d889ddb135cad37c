// Package sweeper reads the user's own tables: pages of pending rows in table
// order, rows that the stream may have missed, the state of rows that may be
// settled already; and it deletes rows whose retention has run out. Rows that it
// returns to be published equal what the WAL would have given. All others have id,
// scope and times only.
//
// It publishes nothing, marks nothing, parks nothing and keeps no position: each
// call reads from a fresh snapshot and selects by state. Between calls it keeps
// only what would be costly to ask again, such as an order of ids, and since when
// another relay has had rows.
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

// Config of a Sweeper. Zero fields take their defaults.
type Config struct {
	// Pool gives the connections. Its role needs SELECT on the mapped columns,
	// or better on the table: then rows that tie in their order columns come in
	// the order in which their transaction inserted them.
	Pool *pgxpool.Pool
	// Tables are the stream's.
	Tables []*outbox.Table
	// PageBytes cuts a page, in bytes as outbox.Row.Size counts them, if the
	// request has no MaxBytes. A page has at least one row. Default 16 MiB.
	PageBytes int
	// StatementTimeout is how long one statement may take. Default 60 s.
	StatementTimeout time.Duration
	// FailedTimeout bounds what counting FAILED rows costs: without an index that
	// serves it, it reads the whole table. Default 2 s.
	FailedTimeout time.Duration
	// RetainRows is how many rows one DELETE of Retain takes. Default 500.
	RetainRows int
	// Now is the clock that Recover measures by, monotonic. Default time.Now.
	Now func() time.Time
	// Guard, of a stream that delivers exactly once, allows reads only where the leader's
	// session is; see tablesql.Guard. nil: anywhere.
	Guard *tablesql.Guard
	Log   zerolog.Logger
}

// Sweeper may be used by any number of goroutines.
type Sweeper struct {
	cfg         Config
	maxOrderIDs int
	slowFetch   time.Duration
	prepare     bool // connections may keep prepared statements
	plans       *tablesql.RelationCache[*plan]
	apart       atomic.Bool

	mu sync.Mutex // guards what follows
	// idOrders of tables whose rows are costly to find in order.
	idOrders map[*outbox.Table]*idOrder
	// taken are rows that another relay had when they were last looked at.
	taken map[*outbox.Table]taken
	// dueIndexed are the tables that have an index to find due rows by; see byTime.
	dueIndexed map[*outbox.Table]dueIndexed
}

// New returns a Sweeper. It connects to nothing.
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

// Apart has each row that is read from now on stand apart in memory: see mapping.Arena.
func (s *Sweeper) Apart(apart bool) { s.apart.Store(apart) }

func setDefault[T int | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

// TableError says that the database, or the mapping, refuses what was asked of
// a table. Every other error of this package is passing.
type TableError = tablesql.TableError

func isRefusal(err error) bool {
	_, refused := errors.AsType[*TableError](err)
	return refused
}

// with runs f on a connection, which is closed rather than kept after an error
// that may be its own.
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

// send is tablesql.Run with a limit for a server that has gone silent.
func (s *Sweeper) send(ctx context.Context, conn *pgx.Conn, steps ...tablesql.Step) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	return tablesql.Run(ctx, conn, steps...)
}

// timeout is longer than the server's own limit, so that it speaks first.
func (s *Sweeper) timeout() time.Duration { return s.cfg.StatementTimeout * 6 / 5 }

// settings are those of a statement that reads.
func (s *Sweeper) settings() tablesql.Settings {
	settings := tablesql.Reading(s.cfg.StatementTimeout)
	settings.Guard = s.cfg.Guard
	return settings
}

// fresh runs f as with does, and once more where a table refuses (see again).
func (s *Sweeper) fresh(ctx context.Context, f func(ctx context.Context, conn *pgx.Conn) error) error {
	return s.again(func() error { return s.with(ctx, f) })
}

// again runs f, and where a table refuses, once more with the catalogue read
// again: DDL makes what is known of a table out of date.
func (s *Sweeper) again(f func() error) error {
	err := f()
	refused, ok := errors.AsType[*TableError](err)
	if !ok || refused.Locked() || !s.forget(refused.Table) {
		return err
	}
	return f()
}

// forget drops what is known of a table, and says whether anything was.
func (s *Sweeper) forget(t *outbox.Table) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.idOrders, t)
	delete(s.dueIndexed, t)
	return s.plans.Forget(t)
}

// plan is a table with what is known of it.
type plan struct {
	relation *tablesql.Relation
	rows     *mapping.Plan
	// columns are those to select, parallel to rows.Wanted.
	columns []tablesql.RowColumn
	// light are substitutes for the values of columns, parallel to them, for when only a
	// row's id, scope and times are wanted; nil: the column is needed.
	light    []*mapping.Value
	contents *tablesql.Contents
}

// plan gives the table's plan, which is made when it is first needed. The connection
// must be outside of a transaction.
func (s *Sweeper) plan(ctx context.Context, conn *pgx.Conn, t *outbox.Table) (*plan, error) {
	if p, ok := s.plans.Known(t); ok {
		return p, nil // without a timer for each look
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	p, err := s.plans.Get(ctx, conn, t)
	return p, tablesql.Refusal(t, err)
}

// dueIndexed is what was found at a time.
type dueIndexed struct {
	found bool
	at    time.Time
}

// dueIndexedFor is how long it counts: indexes are made and dropped while we run.
const dueIndexedFor = time.Minute

// byTime says whether due rows of the table are read by indexes, past those that wait. The
// connection must be outside of a transaction.
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

// Unusable says which of the stream's tables, apart from those known to refuse, cannot be read or
// marked as they are mapped, or are locked. It asks no locked table twice, and all of them
// cost little more than one: see lockWait.
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

// Usable says whether Failed and Unusable have nothing against a table.
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

// usable gives the refusal of a table that cannot be read as it is mapped, or that somebody has
// locked against readers. The table's first page tells, with a hint, what else it refuses.
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

// lockWait bounds how long questions about many tables wait for locks, all together: after
// one wait in vain, the others hardly wait.
type lockWait struct{ vain bool }

// hardly is long enough for a lock that its holder is about to release.
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
			// Not NULL, which could be an error of the row.
			light[i] = &mapping.Value{Data: []byte(`\x`), Format: mapping.Text}
		default:
			light[i] = &mapping.Value{Format: mapping.Null}
		}
	}
	contents, err := relation.Contents()
	return &plan{relation: relation, rows: rows, columns: columns, light: light, contents: contents}, err
}

// needed names the columns that id, scope, state and times are made of.
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
		// The payload's substitute is no JSON.
		if h := m.Headers[i].Expr(); m.Headers[i].JSON != "" || !h.Plain() {
			need(slices.DeleteFunc(h.Names(), func(name string) bool { return name != m.Payload.Column })...)
		}
	}
	if m.EventID.Name != "" {
		need(m.EventID.Columns...) // NULL there would be an error of the row
	}
	return names
}
