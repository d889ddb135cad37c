// Package postgres is the program's one way to PostgreSQL: everything that connects
// connects here. What a role or a database may carry by ALTER ROLE or ALTER
// DATABASE … SET, a search_path above all, is set to what our statements were
// written for before the first of them runs.
//
// A session that a pooler shares with others cannot be set up. There each
// transaction is: package tablesql does it for statements about rows, and On
// and Exec do it for all others.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/internal/secret"
)

// Access is where to connect, and as whom.
type Access struct {
	// DSN is a connection string of libpq's kind, with the parameters of pgx and
	// its pool. Required.
	DSN string
	// Password is asked for the password before each connection; nil: the DSN
	// has it.
	Password secret.Reader
	// Application is shown as application_name; empty: as the DSN says.
	Application string
	// Replication makes connections that know replication commands.
	Replication bool
	// OwnSession refuses a session that a pooler shares with others: a lock or a
	// temporary slot would stay behind for one of them.
	OwnSession bool
	// Longest is how many bytes a message of the server may have; 0: 64 MiB. A longer one ends
	// its connection before memory is taken for it.
	Longest int
	// Dial makes the connections; nil: as pgx does.
	Dial pgconn.DialFunc
}

// Connect makes a connection.
func (a Access) Connect(ctx context.Context) (*pgx.Conn, error) {
	c, err := a.parse()
	if err != nil {
		return nil, err
	}
	if err := a.unlock(ctx, c.ConnConfig); err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, c.ConnConfig)
}

// ConnectPlain makes a connection of pgconn's kind.
func (a Access) ConnectPlain(ctx context.Context) (*pgconn.PgConn, error) {
	c, err := a.parse()
	if err != nil {
		return nil, err
	}
	if err := a.unlock(ctx, c.ConnConfig); err != nil {
		return nil, err
	}
	return pgconn.ConnectConfig(ctx, &c.ConnConfig.Config)
}

// A connection that was idle for longer than pingAfter is pinged before use, which takes a round
// trip. pgx pings after a second; but what a stream asks regularly comes every few seconds, and
// is asked again when it fails.
const pingAfter = 10 * time.Second

// pingTimeout bounds that ping. Without it the pool waits for as long as the caller does, or for a
// minute once nobody does any more, and a stop waits for the pool.
const pingTimeout = 3 * time.Second

// Pool makes a pool, which connects when it is used. adjust may be nil; it must
// leave the connections' own settings alone.
func (a Access) Pool(adjust func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	c, err := a.parse()
	if err != nil {
		return nil, err
	}
	if adjust != nil {
		adjust(c)
	}
	c.BeforeConnect = a.renew
	c.ShouldPing = func(_ context.Context, of pgxpool.ShouldPingParams) bool { return of.IdleDuration > pingAfter }
	c.PingTimeout = cmp.Or(c.PingTimeout, pingTimeout)
	return pgxpool.NewWithConfig(context.Background(), c)
}

// Target is what a connection string leads to.
type Target struct {
	Host     string
	Port     uint16
	User     string
	Database string
}

func (t Target) String() string {
	return fmt.Sprintf("database %s on %s:%d as %s", t.Database, t.Host, t.Port, t.User)
}

// Target reads the connection string.
func (a Access) Target() (Target, error) {
	c, err := a.parse()
	if err != nil {
		return Target{}, err
	}
	return Target{Host: c.ConnConfig.Host, Port: c.ConnConfig.Port, User: c.ConnConfig.User, Database: c.ConnConfig.Database}, nil
}

// Parse reads a connection string to look at; nothing connects by what it
// returns.
func Parse(dsn string) (*pgconn.Config, error) {
	c, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	return &c.ConnConfig.Config, nil
}

// parse reads the connection string. The parser for pools leaves nothing of
// pgx's own parameters for the server.
func (a Access) parse() (*pgxpool.Config, error) {
	c, err := pgxpool.ParseConfig(a.DSN)
	if err != nil {
		return nil, err
	}
	cc := c.ConnConfig
	maps.DeleteFunc(cc.RuntimeParams, func(name, _ string) bool { return pinned(name) })
	// Every pooler keeps these apart for each of its clients.
	cc.RuntimeParams["client_encoding"] = "UTF8"
	if a.Application != "" {
		cc.RuntimeParams["application_name"] = a.Application
	}
	if a.Replication {
		cc.RuntimeParams["replication"] = "database"
	}
	cc.MaxProtocolMessageBodyLen = cmp.Or(a.Longest, longestMessage)
	cc.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend { return pgproto3.NewFrontend(newBrief(r), w) }
	if a.Dial != nil {
		cc.DialFunc = a.Dial
	}
	if closes := cc.OnPgError; a.Password != nil {
		cc.OnPgError = func(pg *pgconn.PgConn, err *pgconn.PgError) bool {
			if err.Code == pgerrcode.InvalidPassword || err.Code == pgerrcode.InvalidAuthorizationSpecification {
				a.Password.Refused()
			}
			return closes(pg, err)
		}
	}
	// pgx makes the caches of a connection at their full size. Few statements go through
	// them, since tablesql prepares what runs all the time. So the connection string may not
	// set the size: with 0 each statement fails, and a large one takes the memory at once.
	cc.StatementCacheCapacity, cc.DescriptionCacheCapacity = 64, 0
	if cc.DefaultQueryExecMode == pgx.QueryExecModeCacheDescribe {
		cc.StatementCacheCapacity, cc.DescriptionCacheCapacity = 0, 64
	}
	// A trigger may have the session LISTEN: what comes is dropped, not kept.
	cc.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
	role := ownRole
	if namesRole(cc.RuntimeParams) {
		role = "" // the connection string's stays
	}
	// Before the check of target_session_attrs, which asks by functions' names.
	check := cc.ValidateConnect
	cc.ValidateConnect = func(ctx context.Context, pg *pgconn.PgConn) error {
		if err := a.pin(ctx, pg, role); err != nil {
			return fmt.Errorf("prepare the session: %w", err)
		}
		if check != nil {
			return check(ctx, pg)
		}
		return nil
	}
	return c, nil
}

// setsRole finds a role among the server's command-line options: -c role=x, --role=x.
var setsRole = regexp.MustCompile(`(?i)(^|\s)(-c\s*|--)role\s*=`)

// namesRole says whether the connection string gives the session a role. The server
// takes the names of settings in any case.
func namesRole(params map[string]string) bool {
	for name, value := range params {
		if strings.EqualFold(name, "role") && value != "" || name == "options" && setsRole.MatchString(value) {
			return true
		}
	}
	return false
}

// renew gives a pool's next connection the certificates and the password as they are
// now; others are parsed when they are made.
func (a Access) renew(ctx context.Context, c *pgx.ConnConfig) error {
	now, err := a.parse()
	if err != nil {
		return fmt.Errorf("read the certificates of role %s: %w", c.User, WithoutSettings(err))
	}
	c.Config = now.ConnConfig.Config // whole: what shows a client certificate is not in its TLSConfig
	return a.unlock(ctx, c)
}

// unlock puts the password of now into a configuration.
func (a Access) unlock(ctx context.Context, c *pgx.ConnConfig) error {
	if a.Password == nil {
		return nil
	}
	password, err := a.Password.Read(ctx)
	if err != nil {
		return &passwordError{c.User, err}
	}
	c.Password = password
	return nil
}

// pin sets up a session, unless a pooler shares it: a setting would stay behind
// for the next user of the server's process.
func (a Access) pin(ctx context.Context, pg *pgconn.PgConn, role string) error {
	if !a.Replication { // which poolers pass on one to one, or not at all
		direct, err := direct(ctx, pg)
		switch {
		case err != nil:
			return err
		case !direct && a.OwnSession:
			return ErrShared
		case !direct:
			return nil
		}
	}
	if _, err := pg.Exec(ctx, role+sessionText(pg.ParameterStatus("server_version"))).ReadAll(); err != nil {
		return err
	}
	pg.CustomData()[pinnedKey] = role
	return nil
}

// direct says whether the session is the server's own: a pooler reports a process
// id that is not the server's. The name is qualified, since nothing is set yet.
func direct(ctx context.Context, pg *pgconn.PgConn) (bool, error) {
	results, err := pg.Exec(ctx, "SELECT pg_catalog.pg_backend_pid()").ReadAll()
	if err != nil {
		return false, err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return false, errors.New("the server gave no process id")
	}
	return string(results[0].Rows[0][0]) == strconv.FormatUint(uint64(pg.PID()), 10), nil
}

// ErrShared refuses what needs a session of its own.
var ErrShared = errors.New("a connection pooler is in between, which may share the session with others: connect to PostgreSQL directly")

const pinnedKey = "outbox-cdc/postgres: pinned" // with the statement that sets the role

// Pinned says whether a connection's session is set up. Where it is not, each
// transaction has to be.
func Pinned(pg *pgconn.PgConn) bool { return pg.CustomData()[pinnedKey] != nil }

// Exec runs statements by the simple protocol and returns their results. If the
// session is not set up, it sets up one transaction for them, in which no
// replication command can run.
func Exec(ctx context.Context, pg *pgconn.PgConn, statements string) ([]*pgconn.Result, error) {
	if Pinned(pg) || pg.TxStatus() != 'I' {
		return pg.Exec(ctx, statements).ReadAll()
	}
	results, err := pg.Exec(ctx, localText+statements).ReadAll()
	if server := ServerError(err); server != nil && int(server.Position) > len(localText) {
		server.Position -= int32(len(localText)) // #nosec G115 -- where it is in what the caller sent
	}
	return results[min(len(local), len(results)):], err
}

// HangUp closes a connection of pgx or pgconn that is given up.
func HangUp(conn interface{ Close(context.Context) error }) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// Major is the number that a server's version (server_version) begins with.
func Major(version string) int {
	digits := version[:len(version)-len(strings.TrimLeft(version, "0123456789"))]
	n, _ := strconv.Atoi(digits) // no digits: taken for an old version
	return n
}
