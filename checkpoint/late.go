package checkpoint

import (
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// serverTime is the server's time as it was told last. From then on it goes by our clock.
type serverTime struct {
	time int64     // the server's, in microseconds since 1970,
	at   time.Time // when this was ours; zero: it was never told
}

func (c *serverTime) now(at time.Time) int64 { return c.time + at.Sub(c.at).Microseconds() }

// ServerTime tells the server's time, in microseconds since 1970, before rows of the WAL.
func (c *Core) ServerTime(now int64) { c.looks.clock = serverTime{now, c.now} }

// late says that the row waited long in the WAL, or that its commit is in the future: the
// server's clock was set back, so nobody can tell.
func (c *Core) late(r *outbox.Row) bool {
	clock := &c.looks.clock
	if !r.Table.LooksAgain() || clock.at.IsZero() {
		return false
	}
	age := clock.now(c.now) - r.CommitTime
	return age > c.cfg.HeldFor.Microseconds() || age < -c.cfg.HeldFor.Microseconds()
}
