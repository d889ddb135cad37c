package replication

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/charset"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/secret"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Config describes a stream's replication connection.
type Config struct {
	// DSN is a connection string of libpq's kind. Parameters for pgx and its
	// pool are ignored. Required.
	DSN string
	// Password is asked for the password before each connection; nil: the DSN
	// has it.
	Password secret.Reader
	// Name is shown as application_name, for example "outbox-cdc/orders@host".
	Name string
	// Slot and Publication are the stream's. Required.
	Slot, Publication string
	// Tables are the stream's outbox tables.
	Tables []*outbox.Table
	// Ordinary leads over an ordinary connection, which cannot stream and needs
	// no privilege to: for sweeping without a slot.
	Ordinary bool
	// Failover makes the slot one that standbys carry along (version 17 and
	// later; ignored before).
	Failover bool
	// Binary asks for column values in binary format where the server has one.
	Binary bool

	// SenderTimeout is how long the server waits for a sign of life before it
	// ends the session, and leadership with it: how long a stopped or cut off
	// leader delays its successor. Default 10 s. The owner of a Conn must call
	// SendStatus (streaming) or Beat (otherwise) every quarter of it.
	SenderTimeout time.Duration
	// ConnectTimeout bounds one attempt to connect. Default 10 s.
	ConnectTimeout time.Duration
	// StandbyPoll is how often a standby asks for the lock, ± 25 %. Default 400 ms.
	StandbyPoll time.Duration
	// MaxFrame is the longest message that is kept whole, in bytes. A longer change of a
	// row loses the values that do not fit, see LongText; any other longer message is an
	// ErrFrameTooLarge. Default 8 MiB.
	MaxFrame int
	// ReadBuffer is the usual size of the receive buffer, in bytes. Default 512 KiB.
	ReadBuffer int

	// Standby is told who leads when this process has to wait, and again
	// whenever that changes. It is called by the goroutine of Lead. Optional.
	Standby func(Holder)
	// Dial makes the connections; default: TCP with keepalive. For tests.
	Dial pgconn.DialFunc
}

// Holder is who holds a stream's leadership. Fields that the role may not see
// are empty.
type Holder struct {
	PID     string // of its server process
	Name    string // application_name
	Address string
	Since   string // start of its session
	Role    string
	// Foreign: its session neither streams nor may lead, so that it is nobody's
	// leader. Any role that may connect can take the lock.
	Foreign bool
}

func (h Holder) String() string {
	if h.PID == "" {
		return "nobody any more"
	}
	return strings.TrimRight(fmt.Sprintf("process %s %s %s", h.PID, h.Name, h.Address), " ")
}

// Intruder says which session holds the lock without being a leader, and how to end it. It returns "" where a
// leader holds the lock, or nobody.
func (h Holder) Intruder() string {
	if !h.Foreign {
		return ""
	}
	return fmt.Sprintf("role %s holds the leadership lock and is no leader: %s, since %s; SELECT pg_terminate_backend(%s) ends its session",
		h.Role, h, cmp.Or(h.Since, "a time that this role may not see"), h.PID)
}

func (c Config) withDefaults() Config {
	c.SenderTimeout = cmp.Or(c.SenderTimeout, 10*time.Second)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 10*time.Second)
	c.StandbyPoll = cmp.Or(c.StandbyPoll, 400*time.Millisecond)
	c.MaxFrame = cmp.Or(c.MaxFrame, 8<<20)
	c.ReadBuffer = cmp.Or(c.ReadBuffer, 512<<10)
	c.Name = cmp.Or(c.Name, "outbox-cdc/"+c.Slot)
	if c.Dial == nil {
		c.Dial = defaultDial
	}
	return c
}

// Conn is a stream's replication connection while this process leads.
//
// A Conn is in one of three states: it takes commands (pg is set), it streams (frames is set too), or it is
// closed (neither is set).
type Conn struct {
	cfg    Config
	pid    uint32 // of the server process; kept after the connection is closed
	pg     *pgconn.PgConn
	socket *gatherConn // beneath TLS, if any
	set    *charset.Set

	frames *frames
	spare  []byte // receive buffer of a refused start, used again by the next one

	// confirmed is the highest position sent since Start; it never decreases.
	confirmed outbox.LSN
	// waited is how long reads have waited since the last byte came. longest is how long they may wait before
	// the server counts as gone, where it exceeds SenderTimeout.
	waited, longest time.Duration
	deadline        time.Time // as set on the socket
	stopped         bool      // Stop was called
	woken           atomic.Bool
	insert          atomic.Uint64 // the end of the WAL as last known
}

// Lead connects and waits until this process holds the stream's leadership. The lock is
// pg_advisory_lock(LockKey(slot)) in the stream's database, a session lock on the replication connection
// itself. So lock and slot are released together. While another process holds the lock, Lead keeps asking for
// it (mode STANDBY). Lead returns a *postgres.Error when the connection cannot be made or is lost; call Lead
// again then.
func Lead(ctx context.Context, cfg Config) (*Conn, error) {
	cfg = cfg.withDefaults()
	if err := checkSlotName(cfg.Slot); err != nil {
		return nil, err
	}
	c, err := connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := c.acquire(ctx); err != nil {
		c.Kill()
		return nil, err
	}
	return c, nil
}

// LockKey is the key of the advisory lock that stands for leadership over a
// slot: the first eight bytes of SHA-256("outbox-cdc leader " + slot).
func LockKey(slot string) int64 {
	sum := sha256.Sum256([]byte("outbox-cdc leader " + slot))
	return int64(binary.BigEndian.Uint64(sum[:8])) // #nosec G115 -- any bit pattern is a key
}

func connect(ctx context.Context, cfg Config) (*Conn, error) {
	what := "stream from slot " + cfg.Slot
	d := &dialer{dial: cfg.Dial}
	access := postgres.Access{ // a session that keeps a lock
		DSN: cfg.DSN, Password: cfg.Password, Application: cfg.Name, Dial: d.dialGathering,
		Replication: !cfg.Ordinary, OwnSession: cfg.Ordinary,
	}
	to, err := access.Target()
	if err != nil {
		return nil, &postgres.Error{Permanent: true, What: what, Hint: "correct the stream's dsn", Err: err}
	}
	attempt, cancel := context.WithTimeout(ctx, cfg.ConnectTimeout)
	defer cancel()
	pg, err := access.ConnectPlain(attempt)
	if err != nil {
		return nil, connectError(what, to.User, err)
	}
	c := &Conn{cfg: cfg, pg: pg, socket: d.last}
	if err := c.prepare(attempt); err != nil {
		c.Kill()
		return nil, err
	}
	// A pooler may drop the server's parameters. In that case the server converts text to UTF-8.
	if c.set, err = charset.Of(cmp.Or(pg.ParameterStatus("server_encoding"), "UTF8")); err != nil {
		c.Kill()
		return nil, &postgres.Error{Permanent: true, What: "read text of the database of slot " + cfg.Slot, Err: err}
	}
	return c, nil
}

// prepare sets the session up, and reads the PID of the server process. The PID from the connection's start
// is not used: a pooler invents one.
//
// idle_session_timeout ends the session of a leader that was stopped (SIGSTOP) while not streaming;
// wal_sender_timeout does so while streaming. The keepalive settings make the server's kernel notice a leader
// that was cut off from the network.
func (c *Conn) prepare(ctx context.Context) error {
	const what = "prepare the session"
	ms := c.cfg.SenderTimeout.Milliseconds()
	rows, err := c.query(ctx, what, fmt.Sprintf(`SET wal_sender_timeout = %d;
SET idle_session_timeout = %d;
SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; SELECT pg_backend_pid()::text`, ms, ms))
	if err != nil {
		return err
	}
	pid := uint64(0)
	if len(rows) == 1 {
		pid, err = strconv.ParseUint(rows[0][0], 10, 32)
	}
	if pid == 0 {
		return &postgres.Error{What: what + " for slot " + c.cfg.Slot, Err: as(ErrProtocol, err)}
	}
	c.pid = uint32(pid)
	return nil
}

// Charset is the encoding of text in the WAL; nil: UTF-8.
func (c *Conn) Charset() *charset.Set { return c.set }

// acquire asks for the leadership lock until it has it.
func (c *Conn) acquire(ctx context.Context) error {
	var last Holder
	for told := false; ; {
		got, err := c.tryLock(ctx, "ask for leadership", LockKey(c.cfg.Slot))
		if err != nil {
			return err
		}
		if got {
			return c.Beat(ctx)
		}
		rows, err := c.query(ctx, "look for the leader", sql.LockHolder, LockKey(c.cfg.Slot))
		if err != nil {
			return err
		}
		holder := parseHolder(rows)
		if c.cfg.Standby != nil && (!told || holder != last) {
			c.cfg.Standby(holder)
			told, last = true, holder
		}
		pause := float64(c.cfg.StandbyPoll) * (0.75 + rand.Float64()/2) // #nosec G404 -- spreads standbys, no secret
		if err := wait.Sleep(ctx, time.Duration(pause)); err != nil {
			return &postgres.Error{What: "wait as standby for slot " + c.cfg.Slot, Err: err}
		}
	}
}

func (c *Conn) tryLock(ctx context.Context, doing string, key int64) (bool, error) {
	rows, err := c.query(ctx, doing, fmt.Sprintf("SELECT pg_try_advisory_lock(%d)::text", key))
	return len(rows) == 1 && rows[0][0] == "true", err
}

// parseHolder reads the rows of sql.LockHolder.
func parseHolder(rows [][]string) Holder {
	if len(rows) == 0 {
		return Holder{}
	}
	return holderOf(rows[0])
}

func holderOf(r []string) Holder {
	return Holder{PID: r[0], Name: r[1], Address: r[2], Since: r[3], Role: r[4], Foreign: r[5] == "true"}
}

// Beat shows the server that the leader is alive while it does not stream, and checks that this session still
// holds the lock. After an ErrLockLost another process may lead: close the connection.
func (c *Conn) Beat(ctx context.Context) error {
	rows, err := c.query(ctx, "check leadership", sql.LockHeld, LockKey(c.cfg.Slot))
	if err != nil {
		return err
	}
	if len(rows) != 1 || rows[0][0] != "1" {
		return &postgres.Error{
			Permanent: true, What: "check leadership over slot " + c.cfg.Slot, Err: ErrLockLost,
			Hint: "connect to PostgreSQL itself, not through a pooler in transaction mode",
		}
	}
	return nil
}

// Guard takes one more advisory lock, under a random key that no other session uses, and returns the key. A
// statement of another session can look for this lock: if it is held, the statement runs on the leader's
// server, and not on one that was promoted or restarted since. Call Guard before Start. The lock ends with
// the connection.
func (c *Conn) Guard(ctx context.Context) (int64, error) {
	for {
		key := rand.Int64() // #nosec G404 -- distinct, no secret
		got, err := c.tryLock(ctx, "take the lock that guards looks", key)
		if err != nil {
			return 0, err
		}
		if got && key != 0 {
			return key, nil
		}
	}
}

// commands returns the connection while it takes commands, otherwise nil.
func (c *Conn) commands() *pgconn.PgConn {
	if c.frames != nil {
		return nil
	}
	return c.pg
}

// PID is the process ID of the server process that serves this connection.
func (c *Conn) PID() uint32 { return c.pid }

// query binds the arguments into the statements, runs them on the replication connection, and returns the
// rows of the last one. The connection must not be streaming. An error that ends the session closes the Conn.
func (c *Conn) query(ctx context.Context, doing, statements string, args ...any) ([][]string, error) {
	what := doing + " for slot " + c.cfg.Slot
	text, err := sql.Bind(statements, args...)
	if err != nil {
		return nil, &postgres.Error{Permanent: true, What: what, Err: err}
	}
	if c.commands() == nil {
		return nil, &postgres.Error{What: what, Err: ErrClosed}
	}
	rows, err := run(ctx, c.pg, text)
	if err != nil {
		return nil, c.commandFailed(what, err)
	}
	return rows, nil
}

// commandFailed makes an Error of a failed command. If the session ended, it closes the Conn.
func (c *Conn) commandFailed(what string, err error) *postgres.Error {
	down := shuttingDown(err)
	if down {
		err = as(ErrShutdown, err)
	}
	if down || c.pg.IsClosed() {
		c.drop()
		err = as(ErrClosed, err)
	}
	return &postgres.Error{What: what, Err: err}
}

// run executes statements by the simple protocol, the only one that a replication connection supports. It
// returns the rows of the last statement. NULL becomes "".
func run(ctx context.Context, pg *pgconn.PgConn, statements string) ([][]string, error) {
	results, err := postgres.Exec(ctx, pg, statements)
	if err != nil {
		return nil, err
	}
	if len(results) == 0 {
		return nil, nil
	}
	var rows [][]string
	for _, values := range results[len(results)-1].Rows {
		row := make([]string, len(values))
		for i, v := range values {
			row[i] = string(v)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// Close ends the session, and the leadership with it. It waits at most one second. To make sure that a last
// confirmed position arrives, call Stop first.
func (c *Conn) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if c.pg != nil {
		_ = c.pg.Close(ctx) // the socket is closed in any case
	}
	c.drop()
}

// Kill closes the socket at once. Any goroutine may call it. A Receive that is waiting returns ErrClosed.
func (c *Conn) Kill() { _ = c.socket.Conn.Close() }
