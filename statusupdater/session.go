package statusupdater

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
)

const (
	// keepSession is how long a worker keeps a connection for one table. Anything that a trigger leaves in
	// the session, above all a lock, stays for this long.
	keepSession = 100 * time.Millisecond
	// keepNone is how long a worker keeps no connection after a kept one failed: a trigger may leave a role
	// or a setting in the session each time.
	keepNone = time.Minute
)

// session is a worker's connection. The pool resets every connection that is returned to it, which costs the
// server as much as marking a row. So the worker keeps the connection for the next batches of the same table.
// Under a trickle of marks it is then reset only ten times a second.
type session struct {
	pool *pgxpool.Pool
	keep time.Duration // 0: the connection is returned after each batch

	mu    sync.Mutex
	idle  *pgxpool.Conn // the kept connection; nil: there is none, or it is in use
	again bool          // the connection in use was kept before
	table *outbox.Table
	until time.Time
	none  time.Time // until when no connection is kept
}

// acquire returns the connection that was kept for the table, or else another from the pool.
func (s *session) acquire(ctx context.Context, table *outbox.Table) (*pgxpool.Conn, error) {
	if conn := s.take(table); conn != nil {
		return conn, nil
	}
	conn, err := s.pool.Acquire(ctx)
	if err == nil && s.keep > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.table, s.until, s.again = table, time.Now().Add(s.keep), false
		time.AfterFunc(s.keep, s.expire)
	}
	return conn, err
}

// take returns the connection that was kept for the table, or nil. A connection kept for another table is
// returned to the pool.
func (s *session) take(table *outbox.Table) *pgxpool.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn := s.idle
	s.idle, s.again = nil, true
	if conn != nil && s.table != table {
		go postgres.Release(conn)
		return nil
	}
	return conn
}

// release takes a connection back. If it works, it is kept for the rest of its time.
func (s *session) release(conn *pgxpool.Conn, works bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch {
	case works && now.Before(s.until) && now.After(s.none):
		s.idle = conn
		return
	case !works && s.again:
		s.none = now.Add(keepNone)
	}
	go postgres.Release(conn)
}

func (s *session) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle != nil && !time.Now().Before(s.until) {
		go postgres.Release(s.idle)
		s.idle = nil
	}
}
