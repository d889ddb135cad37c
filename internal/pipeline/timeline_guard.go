package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// errMoved: the database is not the one that what is in memory came from.
var errMoved = errors.New("a failover or a restored backup has replaced the database: what is in memory is left to the table")

// TimelineGuard keeps a stream's connections, for the length of a leadership, to one
// way that the database went. A failover may take transactions back, and the
// numbers that sequences had given out come again: a mark that is still
// outstanding would be written to another row of the same id. The zero value
// holds to nothing.
type TimelineGuard struct {
	timeline atomic.Pointer[string] // eight hexadecimal digits; nil: any
}

// Admit refuses a new connection to a server that went another way, or that
// follows and does not know which way yet. It is for pgxpool.Config.AfterConnect.
// https://www.postgresql.org/docs/current/continuous-archiving.html#BACKUP-TIMELINES
func (l *TimelineGuard) Admit(ctx context.Context, conn *pgx.Conn) error {
	want := l.timeline.Load()
	if want == nil {
		return nil
	}
	var now string
	if err := postgres.On(conn).QueryRow(ctx, sql.Timeline).Scan(&now); err != nil {
		return fmt.Errorf("ask for the database's timeline: %w", err)
	}
	switch now {
	case *want:
		return nil
	case "":
		return errors.New("the server is a standby: point the dsn to the primary, for example with target_session_attrs=read-write")
	}
	return fmt.Errorf("%w: timeline %s after %s", errMoved, now, *want)
}

// hold refuses other timelines from now on.
func (l *TimelineGuard) hold(timeline uint32) {
	l.timeline.Store(new(fmt.Sprintf("%08X", timeline)))
}

// release takes any timeline again, and says whether one was held to.
func (l *TimelineGuard) release() bool { return l.timeline.Swap(nil) != nil }
