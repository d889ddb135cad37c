package checkpoint

import (
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// serverTime is the server's time when it was last told. From then on it advances by our clock.
type serverTime struct {
	time int64     // the server's time, in microseconds since 1970
	at   time.Time // our time at that moment; zero: the server's time was never told
}

func (c *serverTime) now(at time.Time) int64 { return c.time + at.Sub(c.at).Microseconds() }

// ServerTime takes the server's time, in microseconds since 1970. It comes before rows of the WAL.
func (c *Core) ServerTime(now int64) { c.looks.clock = serverTime{now, c.now} }

// late reports whether the row has waited in the WAL for longer than HeldFor. A commit as far in the future
// counts as late, too: the server's clock was set back, so the row's age is not known.
func (c *Core) late(r *outbox.Row) bool {
	clock := &c.looks.clock
	if !r.Table.LooksAgain() || clock.at.IsZero() {
		return false
	}
	age := clock.now(c.now) - r.CommitTime
	return age > c.cfg.HeldFor.Microseconds() || age < -c.cfg.HeldFor.Microseconds()
}
