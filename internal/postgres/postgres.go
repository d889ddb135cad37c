// Package postgres is the program's only way to PostgreSQL: every connection is made here. ALTER ROLE or
// ALTER DATABASE … SET can change settings for a role or a database, above all the search_path. So before the
// first of our statements runs, these settings are set to the values that our statements were written for.
//
// A session that a pooler shares with others cannot be set up in this way. There, each transaction is set up:
// by package tablesql for statements on rows, and by On and Exec for all others.
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

// Access says where to connect, and as which role.
type Access struct {
	// DSN is a libpq connection string, with the parameters of pgx and its pool. Required.
	DSN string
	// Password returns the password. It is called before each connection; nil: the DSN has the password.
	Password secret.Reader
	// Application is the application_name; empty: as in the DSN.
	Application string
	// Replication makes connections that accept replication commands.
	Replication bool
	// OwnSession refuses a session that a pooler shares with others: a lock or a temporary slot would stay
	// behind for one of them.
	OwnSession bool
	// Longest is the largest message in bytes that the server may send; 0: 64 MiB. A longer message ends its
	// connection before memory is allocated for it.
	Longest int
	// Dial makes the network connections; nil: pgx makes them.
	Dial pgconn.DialFunc
}

// Connect makes a pgx connection.
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

// ConnectPlain makes a pgconn connection.
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

// pingAfter is how long a connection may be idle before it is pinged, which takes a round trip. pgx's own
// limit is one second. But a stream's periodic queries come every few seconds, and are repeated if they fail.
const pingAfter = 10 * time.Second

// pingTimeout bounds that ping. Without it the pool would wait as long as the caller does, or a minute once
// there is no caller any more, and a stop waits for the pool.
const pingTimeout = 3 * time.Second

// Pool makes a pool. It connects when it is first used. adjust may be nil; it must not change the
// connections' own settings.
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

// Target is where a connection string leads.
type Target struct {
	Host     string
	Port     uint16
	User     string
	Database string
}

func (t Target) String() string {
	return fmt.Sprintf("database %s on %s:%d as %s", t.Database, t.Host, t.Port, t.User)
}

// Target reads the target from the connection string.
func (a Access) Target() (Target, error) {
	c, err := a.parse()
	if err != nil {
		return Target{}, err
	}
	return Target{Host: c.ConnConfig.Host, Port: c.ConnConfig.Port, User: c.ConnConfig.User, Database: c.ConnConfig.Database}, nil
}

// Parse parses a connection string for inspection. The result is not used to connect.
func Parse(dsn string) (*pgconn.Config, error) {
	c, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	return &c.ConnConfig.Config, nil
}

// parse parses the connection string. The parser for pools keeps pgx's own parameters from the server.
func (a Access) parse() (*pgxpool.Config, error) {
	c, err := pgxpool.ParseConfig(a.DSN)
	if err != nil {
		return nil, err
	}
	cc := c.ConnConfig
	maps.DeleteFunc(cc.RuntimeParams, func(name, _ string) bool { return pinned(name) })
	// Every pooler keeps these settings separate for each client.
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
	// pgx allocates a connection's caches at their full size. Few statements go through them, since tablesql
	// prepares the frequent ones. So the connection string may not set the sizes: with 0 each statement
	// fails, and a large cache takes its memory at once.
	cc.StatementCacheCapacity, cc.DescriptionCacheCapacity = 64, 0
	if cc.DefaultQueryExecMode == pgx.QueryExecModeCacheDescribe {
		cc.StatementCacheCapacity, cc.DescriptionCacheCapacity = 0, 64
	}
	// A trigger may make the session LISTEN. Notifications are dropped and not kept.
	cc.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
	role := ownRole
	if namesRole(cc.RuntimeParams) {
		role = "" // the connection string's role stays
	}
	// This runs before the check of target_session_attrs, which calls functions by name.
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

// setsRole matches a role among the server's command-line options: -c role=x, --role=x.
var setsRole = regexp.MustCompile(`(?i)(^|\s)(-c\s*|--)role\s*=`)

// namesRole reports whether the connection string sets the session's role. The server ignores the case of
// settings' names.
func namesRole(params map[string]string) bool {
	for name, value := range params {
		if strings.EqualFold(name, "role") && value != "" || name == "options" && setsRole.MatchString(value) {
			return true
		}
	}
	return false
}

// renew gives a pool's next connection the present certificates and password. Other connections parse them
// when they are made.
func (a Access) renew(ctx context.Context, c *pgx.ConnConfig) error {
	now, err := a.parse()
	if err != nil {
		return fmt.Errorf("read the certificates of role %s: %w", c.User, WithoutSettings(err))
	}
	c.Config = now.ConnConfig.Config // copied as a whole: a client certificate is not only in TLSConfig
	return a.unlock(ctx, c)
}

// unlock puts the present password into a configuration.
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

// pin sets up a session, unless a pooler shares it: then a setting would remain for the next user of the
// server process.
func (a Access) pin(ctx context.Context, pg *pgconn.PgConn, role string) error {
	if !a.Replication { // poolers pass replication connections through one to one, or not at all
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

// direct reports whether the session is the server's own: a pooler reports a PID that is not the server's.
// The function's name is qualified, since nothing is set yet.
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

// ErrShared says that a session of its own is needed, but a pooler is in between.
var ErrShared = errors.New("a connection pooler is in between, which may share the session with others: connect to PostgreSQL directly")

const pinnedKey = "outbox-cdc/postgres: pinned" // the value is the statement that sets the role

// Pinned reports whether a connection's session is set up. If it is not, each transaction has to be.
func Pinned(pg *pgconn.PgConn) bool { return pg.CustomData()[pinnedKey] != nil }

// Exec runs statements by the simple protocol and returns their results. If the session is not set up, it
// sets up one transaction for them. No replication command can run in that transaction.
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

// Major returns the major number of a server_version.
func Major(version string) int {
	digits := version[:len(version)-len(strings.TrimLeft(version, "0123456789"))]
	n, _ := strconv.Atoi(digits) // no digits: treated as an old version
	return n
}
