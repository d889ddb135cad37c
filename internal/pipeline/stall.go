package pipeline

import (
	"time"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// stall is a series of warnings that the server sends within the stream. While the server waits for a standby
// of synchronized_standby_slots, it sends no rows and one warning per second.
type stall struct {
	text        string
	since, last time.Time
}

const (
	// stallAfter: a single warning, or the restart of a standby, is not a stall.
	stallAfter = 5 * time.Second
	// stallOver: a series has ended when no further warning came for this long.
	stallOver = 10 * time.Second
)

func (s *stall) warned(text string, now time.Time) {
	if now.Sub(s.last) > stallOver {
		s.since = now
	}
	s.text, s.last = text, now
}

// told returns the server's warning and since when it has come. It returns "" if the server does not hold the
// stream back, or has sent everything.
func (s *stall) told(r replication.Retained, now time.Time) (string, time.Time) {
	if r.Lag() == 0 || now.Sub(s.last) > stallOver || s.last.Sub(s.since) < stallAfter {
		return "", time.Time{}
	}
	return s.text, s.since.UTC()
}
