package tablesql

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
)

// Guard keeps the statements of a stream that delivers exactly once to the server on
// which its leader's session lives. After a failover, or a crash with synchronous_commit
// off, the database may have lost marks: what was published, marked and forgotten is pending
// there, and other connections may reach it before the process sees that its leader's has
// ended.
//
// The leader's session holds a lock of a key of its own (replication.Conn.Guard), and
// each transaction asks first whether somebody does. That takes the server a few
// microseconds, whatever else is locked, and poolers do not matter.
//
// The zero value holds to no server: every statement fails.
type Guard struct{ key atomic.Int64 }

// Hold has statements pass where this key is locked.
func (g *Guard) Hold(key int64) { g.key.Store(key) }

// Release has no statement pass.
func (g *Guard) Release() { g.key.Store(0) }

// ErrNotLeading says that nobody holds the leader's lock where a statement was run. It
// passes: the leader's connection has ended, or will in a moment.
var ErrNotLeading = errors.New("the server does not have the leader's session: it may be another one since a failover")

// asked is the expression that says whether nobody has the lock, bound as the first value. Who gets
// it has it until the end of the transaction, and in vain.
const asked = "pg_catalog.pg_try_advisory_xact_lock_shared($1::pg_catalog.int8)::pg_catalog.text"

// guarded completes a Settings' Step, whose last column is asked.
func (g *Guard) guarded(s Step) Step {
	key := g.key.Load()
	for key == 0 {
		key = rand.Int64() // #nosec G404 -- a key that nobody has
	}
	s.Args.Bind(strconv.AppendInt(nil, key, 10), "bigint")
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
	return s
}
