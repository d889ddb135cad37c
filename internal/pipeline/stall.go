package pipeline

import (
	"time"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// stall is a series of warnings of the server inside the stream. While it waits for a standby of
// synchronized_standby_slots it sends nothing, and says so once a second.
type stall struct {
	text        string
	since, last time.Time
}

const (
	// stallAfter: a single warning, or a standby that is restarted, is no stall.
	stallAfter = 5 * time.Second
	// stallOver: a series has ended when no more has come for so long.
	stallOver = 10 * time.Second
)

func (s *stall) warned(text string, now time.Time) {
	if now.Sub(s.last) > stallOver {
		s.since = now
	}
	s.text, s.last = text, now
}

// told is what the server has been saying, and since when; nothing: it does not hold the stream back, or has sent all.
func (s *stall) told(r replication.Retained, now time.Time) (string, time.Time) {
	if r.Lag() == 0 || now.Sub(s.last) > stallOver || s.last.Sub(s.since) < stallAfter {
		return "", time.Time{}
	}
	return s.text, s.since.UTC()
}
