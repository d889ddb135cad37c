package sink

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// laneState says where a lane's flight is.
type laneState uint8

const (
	laneIdle      laneState = iota // no flight
	laneFlying                     // with a link; one reply will come
	laneWaiting                    // flight, or the lane itself, waits until at
	laneResolving                  // with the owner; one answer will come
)

// lane is one partition's way into Kafka. At most one batch is under way, and
// it is resent unchanged until its outcome is known, so what is in the log is
// always a prefix of what was put in.
type lane struct {
	topic     *topic
	partition int32
	leader    string // address, empty when unknown
	fenced    bool   // an older producer's batches are refused by now

	queue queue
	// guilty rows are refused when they come to the front of the queue, after
	// the outcome of everything before them.
	guilty map[*outbox.Row]error

	state  laneState
	flight *batch // nil when idle, or when waiting for a leader
	at     time.Time

	as  identity
	seq int32
	// tail is the offset behind everything known to be in the log before the
	// flight, or -1. A search for the flight starts there.
	tail int64

	// limit is the most rows of the next batch while a guilty one is searched
	// for, or 0.
	limit int

	failures int       // in a row
	since    time.Time // the first of them, or zero
	err      error     // the last of them, or nil
	dirty    bool      // is in machine.dirty
}

// limits bound a batch.
type limits struct {
	rows, bytes int
}

// next takes the next batch out of the queue, or returns nil. It stops before
// a row that is guilty or belongs elsewhere. A row that is larger than the limit goes alone.
func (l *lane) next(most limits, as identity, now time.Time) *batch {
	rows := l.queue.peek()
	if l.limit > 0 {
		most.rows = min(most.rows, l.limit)
	}
	n, bytes, headers := 0, batchOverhead, 0
	for n < len(rows) && n < most.rows {
		r := rows[n]
		size := recordSize(r)
		if n > 0 && bytes+size > most.bytes || l.guilty[r] != nil || l.strange(r) {
			break
		}
		n, bytes, headers = n+1, bytes+size, headers+len(r.Headers)
	}
	if n == 0 {
		return nil
	}
	b := &batch{lane: l, rows: make([]*outbox.Row, n), bytes: bytes, headers: headers, made: now}
	copy(b.rows, rows)
	l.queue.drop(n)
	l.bind(b, as)
	return b
}

// strange says that a row names another partition than the lane's.
func (l *lane) strange(r *outbox.Row) bool { return r.Partition >= 0 && r.Partition != l.partition }

// flown are the rows of the flight.
func (l *lane) flown() []*outbox.Row {
	if l.flight == nil {
		return nil
	}
	return l.flight.rows
}

// holds says whether a row of the same key is under way here.
func (l *lane) holds(r *outbox.Row) bool {
	return slices.ContainsFunc(l.flown(), sameKey(r)) || slices.ContainsFunc(l.queue.peek(), sameKey(r))
}

// sameKey finds rows of the same key that name their partitions too.
func sameKey(r *outbox.Row) func(*outbox.Row) bool {
	return func(x *outbox.Row) bool {
		return x.Key != nil && x.Partition >= 0 && x.Table == r.Table && bytes.Equal(x.Key, r.Key)
	}
}

// bind gives the batch its sequence. Only a batch that is not in the log may
// be bound. A new epoch starts at 0.
func (l *lane) bind(b *batch, as identity) {
	if l.as != as {
		l.as, l.seq = as, 0
	}
	b.as, b.seq, b.maybe, b.sealed, b.unresolved = l.as, l.seq, false, false, false
}

// acked moves the sequence on and lets batches grow again.
func (l *lane) acked(b *batch, offset int64) {
	if l.as == b.as {
		l.seq = advance(b.seq, len(b.rows))
	}
	if offset >= 0 {
		l.tail = offset + int64(len(b.rows))
	}
	if l.limit *= 2; l.limit > 1<<20 {
		l.limit = 0
	}
	l.land()
}

// halve makes the next batches smaller, to find the guilty row.
func (l *lane) halve(n int) { l.limit = max(1, n/2) }

// land takes the flight off; its rows have an outcome or are back in the queue.
func (l *lane) land() { l.flight, l.state = nil, laneIdle }

// recall puts the flight's rows back in the queue when nothing of it is or
// will be in the log. It says whether the lane has no flight now.
func (l *lane) recall() bool {
	if l.flight == nil {
		return true
	}
	if l.state != laneWaiting || l.flight.maybe || l.flight.unresolved {
		return false
	}
	l.queue.unshift(l.flight.rows)
	l.land()
	return true
}

// blame remembers that a row is to be refused.
func (l *lane) blame(r *outbox.Row, err error) {
	if l.guilty == nil {
		l.guilty = map[*outbox.Row]error{}
	}
	l.guilty[r] = err
}

// pardon forgets the blame of rows that leave the lane.
func (l *lane) pardon(rows []*outbox.Row) {
	if len(l.guilty) == 0 {
		return
	}
	for _, r := range rows {
		delete(l.guilty, r)
	}
}

func (l *lane) fail(now time.Time, err error) {
	l.failures++
	l.err = err
	if l.since.IsZero() {
		l.since = now
	}
}

const (
	backoffMin  = 20 * time.Millisecond
	backoffMax  = 500 * time.Millisecond
	backoffSlow = 5 * time.Second // authorisation
)

// backoff is the wait after the given number of failures in a row.
func backoff(failures int, most time.Duration) time.Duration {
	if failures > 10 {
		return most
	}
	return min(backoffMin<<max(0, failures-1), most)
}

// encoding says that sarama refused to write the request, so no broker saw it.
func encoding(err error) bool {
	var e sarama.PacketEncodingError
	return errors.As(err, &e)
}
