package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/shedlock"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Gather gathers all facts about one stream.
func Gather(ctx context.Context, s *Stream, o Options) *Facts {
	return gather(ctx, s, o, false)
}

func gather(ctx context.Context, s *Stream, o Options, brief bool) *Facts {
	g := gathering{o: o, brief: brief, facts: &Facts{Stream: s, Missing: map[string]string{}}}
	if !brief {
		g.database(ctx) // first, because rows name topics
		g.kafka(ctx, g.clusters())
		return g.facts
	}
	clusters := g.clusters()
	var all sync.WaitGroup
	all.Go(func() { g.database(ctx) })
	all.Go(func() { g.kafka(ctx, clusters) })
	all.Wait()
	return g.facts
}

// gathering fills Facts. Probes that run at the same time write to separate fields. mu guards the fields that
// they share.
type gathering struct {
	o     Options
	brief bool // only the facts that Prove and Compare need
	mu    sync.Mutex
	facts *Facts
}

// probe runs one probe within its timeout, and records why it saw nothing.
func (g *gathering) probe(ctx context.Context, name string, f func(ctx context.Context) error) {
	bounded, cancel := context.WithTimeout(ctx, g.o.Timeout)
	defer cancel()
	err := f(bounded)
	if err == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.facts.Missing[name] = g.why(bounded, err)
}

// seen returns the result of a probe over a connection; nil: the probe failed.
func seen[T any](ctx context.Context, g *gathering, pg *pgconn.PgConn, name string, f func(context.Context, *pgconn.PgConn) (T, error)) (found *T) {
	g.probe(ctx, name, func(ctx context.Context) error {
		what, err := f(ctx, pg)
		if err == nil {
			found = &what
		}
		return err
	})
	return found
}

func (g *gathering) why(ctx context.Context, err error) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %v", g.o.Timeout)
	}
	if postgres.HasCode(err, pgerrcode.LockNotAvailable) {
		return "a table of the publication is locked (see the check table)"
	}
	return err.Error()
}

// database asks the server. First it asks how many walsenders are in use, because the streaming session takes
// one while it asks.
func (g *gathering) database(ctx context.Context) {
	f := g.facts
	pool, err := openPool(f.Stream)
	if err != nil {
		f.Table = Session{Err: err, Permanent: true}
		return
	}
	defer pool.Close()
	g.tableSession(ctx, pool)
	streaming := g.streamingSession(ctx)
	if streaming != nil {
		defer postgres.HangUp(streaming)
	}
	var all sync.WaitGroup
	if f.Table.Err == nil {
		all.Go(func() { // one after another: opening one more session takes longer than these queries
			g.onTables(ctx, pool)
			g.pooler(ctx, pool)
			g.rivals(ctx, pool)
		})
	}
	all.Go(func() { g.onServer(ctx, pool, streaming) })
	all.Wait()
}

func openPool(s *Stream) (*pgxpool.Pool, error) {
	access := postgres.Access{DSN: s.DSN, Password: s.Password, Application: "outbox-cdc check/" + s.Name}
	pool, err := access.Pool(func(c *pgxpool.Config) {
		c.MaxConns = 4 // as many as the stream itself has, without those for marks
	})
	if err != nil {
		return nil, errors.New("postgres.dsn is not a connection string: write it like postgres://user:password@host:5432/database")
	}
	return pool, nil
}

// tableSession connects as the role that reads and marks rows.
func (g *gathering) tableSession(ctx context.Context, pool *pgxpool.Pool) {
	t := &g.facts.Table
	t.User, t.Prepares = pool.Config().ConnConfig.User, tablesql.Prepares(pool.Config().ConnConfig)
	bounded, cancel := context.WithTimeout(ctx, g.o.Timeout)
	defer cancel()
	conn, err := pool.Acquire(bounded)
	if err != nil {
		t.refused(pool.Config().ConnConfig, err)
		return
	}
	defer postgres.Release(conn)
	g.facts.Server = seen(ctx, g, conn.Conn().PgConn(), "server", g.server)
	t.Role = seen(ctx, g, conn.Conn().PgConn(), "role", g.role)
}

// refused records why there is no session. It leaves out the driver's text, which repeats the connection
// string.
func (s *Session) refused(c *pgx.ConnConfig, err error) {
	var dns *net.DNSError
	login := postgres.LoginRefused(err, c.User)
	s.Err = postgres.WithoutSettings(err)
	switch {
	case login != "":
		s.Permanent, s.Hint = true, login
	case postgres.HasCode(err, pgerrcode.InsufficientPrivilege):
		s.Permanent, s.Hint = true, "GRANT CONNECT ON DATABASE "+sql.Identifier(c.Database)+" TO "+sql.Identifier(c.User)+";"
	case postgres.HasCode(err, pgerrcode.TooManyConnections):
		s.Hint = "raise max_connections (a restart), or end idle connections"
	case postgres.ServerError(err) != nil:
		s.Hint = "see the server's log"
	case errors.As(err, &dns) && dns.IsNotFound:
		s.Permanent, s.Hint = true, "correct the host in postgres.dsn"
	case strings.Contains(err.Error(), "certificate"):
		s.Permanent, s.Hint = true, "correct sslrootcert in postgres.dsn, or the server's certificate"
	case postgres.NoTLS(err):
		s.Permanent, s.Hint = true, "switch ssl on at the server, or set sslmode=disable in postgres.dsn"
	default:
		s.Hint = fmt.Sprintf("make sure that PostgreSQL runs and listens on %s port %d", c.Host, c.Port)
	}
}

// setLockTimeout ends a probe's wait for a table's lock before the probe's own timeout, which would end the
// session. From version 16 on, the server opens a publication's tables to list them.
const setLockTimeout = "SET lock_timeout = '2s'"

// streamingSession connects as a leader would; nil: it could not.
func (g *gathering) streamingSession(ctx context.Context) *pgconn.PgConn {
	s := &g.facts.Streaming
	if c, err := postgres.Parse(g.facts.Stream.Replication.DSN); err == nil {
		s.User = c.User
	}
	bounded, cancel := context.WithTimeout(ctx, g.o.Timeout)
	defer cancel()
	pg, err := replication.Open(bounded, g.facts.Stream.Replication)
	if err == nil {
		_, err = postgres.Exec(bounded, pg, setLockTimeout)
	}
	if err == nil {
		return pg
	}
	if pg != nil {
		postgres.HangUp(pg)
	}
	s.Err = postgres.WithoutSettings(err)
	if told, ok := errors.AsType[*postgres.Error](err); ok {
		s.Err, s.Permanent, s.Hint = postgres.WithoutSettings(told.Err), told.Permanent, told.Hint
	}
	return nil
}

// onServer asks over the streaming session, or over the table session if there is none.
func (g *gathering) onServer(ctx context.Context, pool *pgxpool.Pool, streaming *pgconn.PgConn) {
	f := g.facts
	if streaming != nil {
		g.probe(ctx, "streaming session", func(ctx context.Context) error { return g.holdsLocks(ctx, streaming) })
		f.Streaming.Role = seen(ctx, g, streaming, "streaming role", g.role)
		if f.Server == nil {
			f.Server = seen(ctx, g, streaming, "server", g.server)
		}
		g.inspect(ctx, streaming)
		return
	}
	if f.Table.Err != nil {
		return
	}
	g.probe(ctx, "state", func(ctx context.Context) error {
		return postgres.Acquire(ctx, pool, func(conn *pgx.Conn) error {
			g.inspect(ctx, conn.PgConn())
			return nil
		})
	})
}

// rivals looks for other streams with the same tables, and for pauses. If another role made schema
// outbox_cdc, it reads nothing of it: a view there would run that role's functions.
func (g *gathering) rivals(ctx context.Context, pool *pgxpool.Pool) {
	if g.facts.Stream.Shadow || replication.TrustSchema(ctx, postgres.On(pool)) != nil {
		return
	}
	cfg := &g.facts.Stream.Replication
	claim := statestore.NewClaim(cfg.Slot, replication.LockKey(cfg.Slot), cfg.Tables)
	store := statestore.New(statestore.Config{DB: pool, Stream: g.facts.Stream.Name})
	rivals, err := store.Rivals(ctx, claim)
	if err == nil { // otherwise the checks "schema" and "role" report it
		g.facts.Claimed = statestore.Refusal(g.facts.Stream.Name, claim, rivals)
	}
	if g.brief {
		return
	}
	if paused, err := store.Paused(ctx); err == nil {
		g.facts.Paused = paused
	}
	// These are the leftovers of exactly-once delivery, if there was any.
	g.probe(ctx, "tallies", func(ctx context.Context) error {
		there, err := store.HasTallies(ctx)
		if err != nil || !there {
			return err
		}
		clusters := []string{}
		if once := g.facts.Stream.Once; once != nil {
			clusters = slices.Sorted(maps.Keys(once.Journals))
			if g.facts.Tallies, err = store.TallyStates(ctx, status.MaxLeft); err != nil {
				return err
			}
			if g.facts.Unclean, err = store.Unclean(ctx, claim); err != nil {
				return err
			}
		}
		g.facts.Orphans, err = store.Orphans(ctx, clusters, claim)
		return err
	})
}

// inspect inspects slot and publication as the stream does when it starts.
func (g *gathering) inspect(ctx context.Context, pg *pgconn.PgConn) {
	f, cfg := g.facts, g.facts.Stream.Replication
	f.State = seen(ctx, g, pg, "state", func(ctx context.Context, pg *pgconn.PgConn) (replication.State, error) {
		if g.brief {
			return replication.InspectServer(ctx, pg)
		}
		s, err := replication.Inspect(ctx, pg, cfg)
		if len(s.Lacking) > 0 {
			f.Missing["state"] = "the server's catalogue is not known (see the check wal-level)"
			return s, nil
		}
		return s, err
	})
	if g.brief {
		return
	}
	f.Leader = seen(ctx, g, pg, "leader", func(ctx context.Context, pg *pgconn.PgConn) (replication.Holder, error) {
		return replication.LeaderOf(ctx, pg, cfg.Slot)
	})
	f.Retained = seen(ctx, g, pg, "retained", func(ctx context.Context, pg *pgconn.PgConn) (replication.Retained, error) {
		return replication.RetainedBy(ctx, pg, cfg.Slot)
	})
	held := f.Retained != nil && f.Retained.HeldByOthers(g.facts.Stream.WALBudget)
	if f.State != nil && !f.State.Slot.Exists || held {
		g.probe(ctx, "blockers", func(ctx context.Context) (err error) {
			f.Blockers, err = replication.BlockersOf(ctx, pg)
			return err
		})
	}
}

func (g *gathering) holdsLocks(ctx context.Context, pg *pgconn.PgConn) (err error) {
	s := &g.facts.Streaming
	var session struct {
		PID     uint32 `json:"pid"`
		Timeout string `json:"timeout"`
	}
	if err := ask(ctx, pg, &session, `SELECT jsonb_build_object('pid', pg_backend_pid(), 'timeout', current_setting('wal_sender_timeout'))::text`); err != nil {
		return err
	}
	s.Pooled, s.SenderTimeout = session.PID != pg.PID(), session.Timeout
	s.Holds, err = replication.HoldsLocks(ctx, pg, g.facts.Stream.Replication.Slot)
	return err
}

// pooler finds out whether the table session stays with one server process. It opens a second session, which
// takes a process, and then asks the first session again.
func (g *gathering) pooler(ctx context.Context, pool *pgxpool.Pool) {
	t := &g.facts.Table
	g.probe(ctx, "pooler", func(ctx context.Context) error {
		first, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer postgres.Release(first)
		before, err := backend(ctx, first.Conn())
		if err != nil {
			return err
		}
		t.Pooled = before != first.Conn().PgConn().PID()
		if !t.Pooled {
			return nil
		}
		second, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer postgres.Release(second)
		held, err := second.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = held.Rollback(ctx) }()
		if _, err := held.Exec(ctx, "SELECT 1"); err != nil {
			return err
		}
		after, err := backend(ctx, first.Conn())
		t.Wandering = after != before
		return err
	})
}

func backend(ctx context.Context, conn *pgx.Conn) (pid uint32, err error) {
	err = ask(ctx, conn.PgConn(), &pid, "SELECT pg_backend_pid()::text")
	return pid, err
}

// ask runs a statement that returns one JSON document, and decodes it.
func ask(ctx context.Context, pg *pgconn.PgConn, into any, statement string, args ...any) error {
	text, err := sql.Bind(statement, args...)
	if err != nil {
		return err
	}
	results, err := postgres.Exec(ctx, pg, text)
	if err != nil {
		return err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return errors.New("the server answered without the row that it was asked for: is there a proxy before it?")
	}
	return json.Unmarshal(results[0].Rows[0][0], into)
}

func (g *gathering) server(ctx context.Context, pg *pgconn.PgConn) (s Server, err error) {
	if err := ask(ctx, pg, &s.Signs, sql.Platform); err != nil || g.brief {
		return s, err
	}
	if err := ask(ctx, pg, &s, sql.CheckServer, g.facts.Stream.Replication.Slot); err != nil {
		return s, err
	}
	sent := g.o.Now()
	var clock float64
	err = ask(ctx, pg, &clock, "SELECT extract(epoch FROM clock_timestamp())::text")
	s.Doubt = g.o.Now().Sub(sent) / 2
	s.Ahead = time.UnixMicro(int64(clock * 1e6)).Sub(sent.Add(s.Doubt))
	return s, err
}

func (g *gathering) role(ctx context.Context, pg *pgconn.PgConn) (r Role, err error) {
	names := [][2]string{}
	for _, t := range g.facts.Stream.Tables {
		names = append(names, [2]string{t.Schema, t.Name})
	}
	err = ask(ctx, pg, &r, sql.CheckRole, names)
	return r, err
}

// ---- tables ----

// How many rows are read: enough to judge, few enough not to disturb the database.
const (
	countRows     = 100_000 // most waiting rows of a table that are counted
	sampleRows    = 10_000  // rows of a stream that are read for topics and states,
	sampleOfTable = 1000    // and at least this many of each table
)

func (g *gathering) onTables(ctx context.Context, pool *pgxpool.Pool) {
	f := g.facts
	f.Tables = make([]TableFacts, len(f.Stream.Tables))
	for i, t := range f.Stream.Tables {
		f.Tables[i].Table, f.Tables[i].Missing = t, map[string]string{}
	}
	if len(f.Tables) > 1 {
		g.together(ctx, pool)
	}
	var all sync.WaitGroup
	for i := range f.Tables {
		all.Go(func() { g.table(ctx, pool, &f.Tables[i]) })
	}
	all.Wait()
}

// together asks about all tables in one statement, where planning costs the server more than running. If that
// fails, each table is asked for separately, so that one table's fault does not affect the others.
func (g *gathering) together(ctx context.Context, pool *pgxpool.Pool) {
	tables := make([]*TableFacts, len(g.facts.Tables))
	for i := range tables {
		tables[i] = &g.facts.Tables[i]
	}
	bounded, cancel := context.WithTimeout(ctx, g.o.Timeout)
	defer cancel()
	_ = postgres.Acquire(bounded, pool, func(conn *pgx.Conn) error {
		err := lockers(bounded, conn, tables)
		if err != nil {
			return err
		}
		tables = slices.DeleteFunc(tables, func(t *TableFacts) bool { return len(t.Lockers) > 0 })
		if err = describeAll(bounded, conn, tables); err != nil {
			return err
		}
		return g.catalogues(bounded, conn, tables)
	})
}

// lockers finds which sessions have tables locked. It takes no lock itself.
func lockers(ctx context.Context, conn *pgx.Conn, tables []*TableFacts) error {
	names := make([][2]string, len(tables))
	for i, t := range tables {
		names[i] = [2]string{t.Table.Schema, t.Table.Name}
	}
	found, err := replication.LockersOf(ctx, conn.PgConn(), names...)
	for i := range found {
		tables[i].Lockers, tables[i].asked = found[i], true
	}
	return err
}

// describeAll reads the columns of the tables.
func describeAll(ctx context.Context, conn *pgx.Conn, tables []*TableFacts) error {
	of := make([]*outbox.Table, len(tables))
	for i, t := range tables {
		of[i] = t.Table.Table
	}
	found, err := tablesql.Describe(ctx, conn, of)
	for i := range found {
		tables[i].described = &found[i]
	}
	return err
}

// catalogues reads the catalogue entries of the tables, and their details unless g is brief. A missing table
// is reported by the inspection.
func (g *gathering) catalogues(ctx context.Context, conn *pgx.Conn, tables []*TableFacts) error {
	err := aboutTables(ctx, conn, tables, sql.CheckTable, func(t *TableFacts, c *Catalogue) { t.Catalogue = c })
	if err != nil || g.brief {
		return err
	}
	details := sql.WithPublished(postgres.Major(conn.PgConn().ParameterStatus("server_version")), sql.CheckTableDetails)
	return aboutTables(ctx, conn, tables, details, func(t *TableFacts, d *Details) { t.Details = d })
}

// aboutTables runs a statement about tables, and passes each table its part of the answer.
func aboutTables[T any](ctx context.Context, conn *pgx.Conn, tables []*TableFacts, statement string, give func(*TableFacts, *T)) error {
	of := make([][]string, len(tables))
	for i, t := range tables {
		m := &t.Table.Mapping
		of[i] = []string{t.Table.Schema, t.Table.Name, m.Status.Column, m.Archive.Schema, m.Archive.Name}
	}
	var found map[int]*T
	err := ask(ctx, conn.PgConn(), &found, statement, of)
	for place, told := range found {
		if place >= 1 && place <= len(tables) {
			give(tables[place-1], told)
		}
	}
	return err
}

func (g *gathering) table(ctx context.Context, pool *pgxpool.Pool, t *TableFacts) {
	look := func(name string, f func(ctx context.Context, conn *pgx.Conn) error) {
		bounded, cancel := context.WithTimeout(ctx, g.o.Timeout)
		defer cancel()
		err := postgres.Acquire(bounded, pool, func(conn *pgx.Conn) error { return f(bounded, conn) })
		if err != nil && !foreignWord(err) {
			t.Missing[name] = g.why(bounded, err)
		}
	}
	alone := []*TableFacts{t}
	if !t.asked {
		look("locks", func(ctx context.Context, conn *pgx.Conn) error { return lockers(ctx, conn, alone) })
	}
	if len(t.Lockers) > 0 {
		t.Missing["table"], t.Missing["catalogue"] = lockedFor, lockedFor
		return
	}
	look("table", func(ctx context.Context, conn *pgx.Conn) (err error) {
		if t.described == nil {
			err = tablesql.Refusal(t.Table.Table, describeAll(ctx, conn, alone))
		}
		if err == nil {
			t.Inspection, err = Inspect(ctx, conn, t.Table.Table, *t.described, g.o.Timeout)
			t.Inspection.rename(func() map[string]string {
				return statestore.RenamedColumns(ctx, postgres.On(conn), g.facts.Stream.Name, t.Table.String())
			})
		}
		var refused *tablesql.TableError
		var unusable *tablesql.MappingError
		switch {
		case errors.As(err, &refused) && errors.As(err, &unusable):
			t.Gone, err = unusable.Problem+": "+unusable.Hint, nil
			t.Renamed = statestore.Renamed(ctx, postgres.On(conn), g.facts.Stream.Name, t.Table.String())
		case errors.As(err, &refused):
			t.Refused = refused.Err.Error()
		}
		return err
	})
	if t.Catalogue == nil || t.Details == nil && !g.brief {
		look("catalogue", func(ctx context.Context, conn *pgx.Conn) error { return g.catalogues(ctx, conn, alone) })
	}
	t.locks(ctx, pool, g.o)
	if t.Inspection == nil || slices.ContainsFunc(t.Inspection.Findings, func(f TableFinding) bool {
		return f.Fatal && (f.About == AboutColumn || f.About == AboutPrivilege)
	}) {
		return // the table's rows cannot be read
	}
	look("rows", func(ctx context.Context, conn *pgx.Conn) error {
		return t.sample(ctx, conn, max(sampleRows/len(g.facts.Tables), sampleOfTable), g.brief)
	})
	if g.brief {
		return
	}
	look("chosen", t.chosen)
	look("backlog", t.backlog)
	look("newest", t.newest)
	look("ties", t.ties)
}

// lockedFor is the reason why a locked table was not read.
const lockedFor = "the table is locked (see the check table)"

// locks finds who has the application's locks. It takes none.
func (t *TableFacts) locks(ctx context.Context, pool *pgxpool.Pool, o Options) {
	m := &t.Table.Mapping
	for _, l := range []LockFacts{{Lock: m.ShedLock, While: "rows are published"}, {Lock: m.RetentionLock, While: "old rows are deleted"}} {
		if l.Lock.Name == "" {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, o.Timeout)
		l.Sight, l.Err = shedlock.See(bounded, pool, l.Lock)
		cancel()
		l.Refused = shedlock.Refused(l.Err)
		t.Locks = append(t.Locks, l)
	}
}

// foreignWord reports whether the error means that a status value of the mapping is no value of its column's
// type (22P02, invalid_text_representation). No row can be selected by such a value. The catalogue shows
// which value it is.
func foreignWord(err error) bool {
	return postgres.HasCode(err, pgerrcode.InvalidTextRepresentation)
}

// sample reads topics and states of some rows; if brief, only states.
func (t *TableFacts) sample(ctx context.Context, conn *pgx.Conn, most int, brief bool) error {
	m, r := &t.Table.Mapping, t.Inspection.Relation
	var steps []tablesql.Step
	if !brief {
		t.Topics = map[string][]string{}
		steps = append(steps, r.Destinations(most, func(cluster, topic string) {
			if !slices.Contains(m.Cluster.Known, cluster) {
				cluster = m.Cluster.Default
			}
			t.Topics[cluster] = append(t.Topics[cluster], topic)
		}))
	}
	if r.Column(m.Status.Column) != nil {
		steps = append(steps, r.States(most, func(state string) { t.States = append(t.States, state) }))
	}
	return reading(ctx, conn, steps...)
}

// chosen counts the rows that the mapping's conditions leave to others.
func (t *TableFacts) chosen(ctx context.Context, conn *pgx.Conn) error {
	if m := &t.Table.Mapping; len(m.Rows) == 0 && m.LeavesToOthers() == nil {
		return nil
	}
	var found tablesql.Chosen
	err := reading(ctx, conn, t.Inspection.Relation.Chosen(countRows, &found))
	if err == nil {
		t.Chosen = &found
	}
	return err
}

func (t *TableFacts) backlog(ctx context.Context, conn *pgx.Conn) error {
	if !t.Table.Stateful() {
		return nil
	}
	var found tablesql.Backlog
	r := t.Inspection.Relation
	err := reading(ctx, conn, r.Backlog(countRows, &found))
	if tablesql.Unprintable(err) { // use the sizes as stored
		err = reading(ctx, conn, r.Brief().Backlog(countRows, &found))
	}
	if err == nil {
		found.More = found.Rows >= countRows
		t.Backlog = &found
	}
	return err
}

func (t *TableFacts) newest(ctx context.Context, conn *pgx.Conn) error {
	columns := t.Inspection.Relation.Unzoned()
	if len(columns) == 0 {
		return nil
	}
	found := map[string]int64{}
	err := reading(ctx, conn, t.Inspection.Relation.Newest(columns, func(column string, age int64) { found[column] = age }))
	if err == nil {
		t.Newest = found
	}
	return err
}

func (t *TableFacts) ties(ctx context.Context, conn *pgx.Conn) error {
	if m := &t.Table.Mapping; m.Key == nil || len(m.Order) == 0 || !t.Table.Stateful() || t.Inspection.Rising != "" {
		return nil
	}
	return reading(ctx, conn, t.Inspection.Relation.Ties(sampleRows, &t.Tied))
}

// reading runs steps with a timeout that makes the server give up when we do.
func reading(ctx context.Context, conn *pgx.Conn, steps ...tablesql.Step) error {
	deadline, _ := ctx.Deadline()
	limit := tablesql.Settings{StatementTimeout: max(time.Until(deadline), time.Millisecond)}
	return tablesql.Run(ctx, conn, append([]tablesql.Step{limit.Step(nil)}, steps...)...)
}

// Compare reads only the stream's tables, and returns every difference between them and their mappings. The
// error says that a table could not be read.
func Compare(ctx context.Context, s *Stream, o Options) ([]Difference, error) {
	o = o.withDefaults()
	g := gathering{o: o, brief: true, facts: &Facts{Stream: s, Missing: map[string]string{}}}
	pool, err := openPool(s)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	g.tableSession(ctx, pool)
	if t := &g.facts.Table; t.Err != nil {
		return nil, fmt.Errorf("connect as role %s: %w (%s)", t.User, t.Err, t.Hint)
	}
	g.onTables(ctx, pool)
	return g.facts.differences()
}
