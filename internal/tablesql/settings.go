package tablesql

import (
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
)

// Settings are what a transaction of ours runs under. They are set for the
// transaction only, since a session may be shared through a pooler.
type Settings struct {
	LockTimeout      time.Duration // 0: wait as long as the statement may
	StatementTimeout time.Duration
	// IdleTimeout is after how long without a statement the server ends the
	// session, in a transaction that stays open between statements; 0: the
	// server's own setting.
	IdleTimeout time.Duration
	// ByIndex: the statement finds rows by a list of ids. The planner is kept
	// from scanning the table for them, which it is tempted to do while the
	// statistics say that a table which fills quickly is small; and the plan
	// may be kept.
	ByIndex bool
	// Guard, where delivery is exactly once, has the statement fail by ErrNotLeading
	// where the leader's session is not. What is read is not given then; what is written
	// takes a transaction that is committed later than that is known.
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
	list := append(expressions, s.calls()...)
	if s.Guard == nil {
		return Step{SQL: "SELECT " + strings.Join(list, ", "), Each: each, settles: true}
	}
	list = append(list, asked)
	return s.Guard.guarded(Step{SQL: "SELECT " + strings.Join(list, ", "), Each: each, settles: true})
}

func (s Settings) calls() []string {
	set := [][2]string{
		{"lock_timeout", millis(s.LockTimeout)},
		{"statement_timeout", millis(s.StatementTimeout)},
		// Costs of plans that are avoided at all price would start the compiler.
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
	return postgres.Calls(set...)
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
