package tablesql

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
)

// Settings are the settings of a transaction of ours. They are set for the transaction only, since a pooler
// may share the session with others.
type Settings struct {
	LockTimeout      time.Duration // 0: as long as the statement may take
	StatementTimeout time.Duration
	// IdleTimeout is how long the transaction may wait for its next statement before the server ends the
	// session; 0: the server's own setting.
	IdleTimeout time.Duration
	// ByIndex: the statement finds rows by a list of ids, and the planner may not scan the table for them. It
	// would do so while its statistics say that the table is small, though it fills quickly. Plans may be
	// kept.
	ByIndex bool
	// Guard, with exactly-once delivery, makes the statement fail with ErrNotLeading on a server without the
	// leader's session. The rows that were read are then not returned. A statement that writes needs a
	// transaction that is committed later.
	Guard *Guard
}

// lockTimeout is how long a statement that reads waits for a table that is locked against readers. After that
// the table counts as refusing, so that other tables do not wait.
const lockTimeout = 3 * time.Second

// Reading returns the settings of a statement that reads.
func Reading(timeout time.Duration) Settings {
	return Settings{LockTimeout: lockTimeout, StatementTimeout: timeout}
}

// Step returns the statement that applies the settings, and what else every transaction of ours needs. It
// also selects the expressions; their names must be qualified, because the search_path is just being set.
// each gets the row.
func (s Settings) Step(each func(row [][]byte) error, expressions ...string) Step {
	set := [][2]string{
		{"lock_timeout", millis(s.LockTimeout)},
		{"statement_timeout", millis(s.StatementTimeout)},
		// A disabled plan has a high cost, which would start the JIT compiler.
		{"jit", "off"},
		// We read our cursors to the end.
		{"cursor_tuple_fraction", "1"},
	}
	if s.IdleTimeout > 0 {
		set = append(set, [2]string{"idle_in_transaction_session_timeout", millis(s.IdleTimeout)})
	}
	if s.ByIndex {
		set = append(set, [][2]string{
			{"enable_seqscan", "off"},
			{"enable_hashjoin", "off"},
			{"enable_mergejoin", "off"},
			{"plan_cache_mode", "force_generic_plan"},
		}...)
	}
	list := append(expressions, postgres.Calls(set...)...)
	step := Step{Each: each, settles: true}
	if s.Guard != nil {
		list = append(list, s.Guard.ask(&step))
	}
	step.SQL = "SELECT " + strings.Join(list, ", ")
	return step
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Guard lets statements of a stream with exactly-once delivery succeed only on the server of the leader's
// session. After a failover, or a crash with synchronous_commit off, the database may have lost marks: rows
// that were published, marked and forgotten are then pending. Other connections may reach that server before
// the process notices that the leader's session has ended.
//
// The leader's session holds a lock with a key of its own (replication.Conn.Guard). Each transaction first
// checks that this lock is held. The check takes the server a few microseconds, whatever else is locked, and
// works through poolers.
//
// The zero value admits no server: every statement fails.
type Guard struct{ key atomic.Int64 }

// Hold lets statements succeed where this key is locked; 0: nowhere.
func (g *Guard) Hold(key int64) { g.key.Store(key) }

// ErrNotLeading says that nobody holds the leader's lock on the statement's server. The error is temporary: the
// leader's connection has ended, or is about to.
var ErrNotLeading = errors.New("the server does not have the leader's session: it may be another one since a failover")

// ask completes the Step of Settings, and returns the expression to select last: whether nobody has the lock.
// The lock's key is bound as the first value. A transaction that gets the lock itself fails, and holds it
// until it ends.
func (g *Guard) ask(s *Step) string {
	key := g.key.Load()
	for key == 0 {
		key = rand.Int64() // #nosec G404 -- a key that nobody uses
	}
	lock := s.Args.Bind(strconv.AppendInt(nil, key, 10), "pg_catalog.int8")
	each := s.Each
	s.Each = func(row [][]byte) error {
		if string(row[len(row)-1]) != "false" {
			return ErrNotLeading
		}
		if each == nil {
			return nil
		}
		return each(row)
	}
	return "pg_catalog.pg_try_advisory_xact_lock_shared(" + lock + ")::pg_catalog.text"
}
