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

// Settings are what a transaction of ours runs under. They are set for the
// transaction only, since a session may be shared through a pooler.
type Settings struct {
	LockTimeout      time.Duration // 0: wait as long as the statement may
	StatementTimeout time.Duration
	// IdleTimeout is how long a transaction may wait for its next statement before the
	// server ends the session; 0: the server's own setting.
	IdleTimeout time.Duration
	// ByIndex: the statement finds rows by a list of ids. The planner may not scan the
	// table for them, as it would while its statistics say that a table which fills
	// quickly is small. The plan may be kept.
	ByIndex bool
	// Guard, if delivery is exactly once, fails the statement with ErrNotLeading on a server
	// without the leader's session. Then nothing that was read is given. A statement that
	// writes needs a transaction that is committed later.
	Guard *Guard
}

// lockTimeout is how long a statement that reads waits for a table that somebody
// has locked against readers. Then it refuses, and others do not wait.
const lockTimeout = 3 * time.Second

// Reading are the settings of a statement that reads.
func Reading(timeout time.Duration) Settings {
	return Settings{LockTimeout: lockTimeout, StatementTimeout: timeout}
}

// Step sets the settings, and with them what every transaction of ours needs.
// Further expressions are selected with them, whose names must be qualified:
// the search_path is being set. each gets the row.
func (s Settings) Step(each func(row [][]byte) error, expressions ...string) Step {
	set := [][2]string{
		{"lock_timeout", millis(s.LockTimeout)},
		{"statement_timeout", millis(s.StatementTimeout)},
		// The cost of a disabled plan would start the compiler.
		{"jit", "off"},
		// A cursor of ours is read to its end.
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

// Guard holds the statements of a stream that delivers exactly once to the server of its
// leader's session. After a failover, or a crash with synchronous_commit off, the database may
// have lost marks: rows that were published, marked and forgotten are pending there. Other
// connections may reach it before the process sees that the leader's session has ended.
//
// The leader's session holds a lock with a key of its own (replication.Conn.Guard), and
// each transaction first asks whether it is held. That takes the server a few
// microseconds, whatever else is locked, and works through poolers.
//
// The zero value holds to no server: every statement fails.
type Guard struct{ key atomic.Int64 }

// Hold lets statements pass where this key is locked; 0: nowhere.
func (g *Guard) Hold(key int64) { g.key.Store(key) }

// ErrNotLeading says that nobody holds the leader's lock on the server of a statement. It
// is passing: the leader's connection has ended, or will in a moment.
var ErrNotLeading = errors.New("the server does not have the leader's session: it may be another one since a failover")

// ask completes a Settings' Step, and gives the expression to select last: whether nobody has the lock, whose key is
// bound as the first value. A transaction that gets the lock fails, and holds it to its end.
func (g *Guard) ask(s *Step) string {
	key := g.key.Load()
	for key == 0 {
		key = rand.Int64() // #nosec G404 -- a key that nobody has
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
