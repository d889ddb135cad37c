package sink

import (
	"bytes"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// queueState says where a partition's batch in flight is.
type queueState uint8

const (
	queueIdle      queueState = iota // nothing in flight
	queueInFlight                    // with a broker connection; one reply will come
	queueWaiting                     // the batch, or the partition without one, waits until at
	queueResolving                   // searched for by the producerIDClient; one answer will come
)

// partitionQueue is the queue of one partition, and the state of producing to it.
// At most one batch is in flight, and it is resent unchanged until its outcome is
// known, so the partition log always has a prefix of what was put in.
type partitionQueue struct {
	topic     *topic
	partition int32
	leader    string // address, empty when unknown
	fenced    bool   // an older producer's batches are refused by now
	shown     bool   // its leader has shown that it refuses them

	rows queue
	// rejected rows are refused when they come to the front of the queue, after
	// the outcome of everything before them.
	rejected map[*outbox.Row]error

	state    queueState
	inFlight *batch // nil when idle, or when waiting for a leader
	at       time.Time

	// Of transactions: rows that are in one, until it has ended; offered: there are rows for the next.
	given   []*outbox.Row
	offered bool

	as  producer
	seq int32
	// tail is the offset behind everything known to be in the partition log before the
	// batch in flight, or -1. A search for that batch starts there.
	tail int64

	// end is the offset behind the last record that a broker acknowledged to us, or 0. The partition log never ends
	// before it, unless brokers lost records.
	end int64

	// limit is the most rows of the next batch while the record that is rejected is
	// searched for, or 0.
	limit int

	failures int // in a row
	trouble
	dirty bool // is in machine.dirty
}

type limits struct {
	rows, bytes int
	since       uint32 // rows that came before are old
}

// next takes the next batch out of the queue, or returns nil. It stops before
// a row that is rejected, old, or belongs elsewhere. A row that is larger than the limit goes alone.
func (q *partitionQueue) next(most limits, as producer, now time.Time) *batch {
	rows := q.rows.peek()
	if q.limit > 0 {
		most.rows = min(most.rows, q.limit)
	}
	n, bytes, headers := 0, batchOverhead, 0
	for n < len(rows) && n < most.rows {
		r := rows[n]
		size := recordSize(r)
		if n > 0 && bytes+size > most.bytes || q.rejected[r] != nil || q.elsewhere(r) || most.old(r) {
			break
		}
		n, bytes, headers = n+1, bytes+size, headers+len(r.Headers)
	}
	if n == 0 {
		return nil
	}
	b := &batch{queue: q, rows: make([]*outbox.Row, n), bytes: bytes, headers: headers, made: now}
	copy(b.rows, rows)
	q.rows.drop(n)
	q.bind(b, as)
	return b
}

// elsewhere says that a row names another partition.
func (q *partitionQueue) elsewhere(r *outbox.Row) bool {
	return r.Partition >= 0 && r.Partition != q.partition
}

// inFlightRows are the rows of the batch in flight, or of the transaction.
func (q *partitionQueue) inFlightRows() []*outbox.Row {
	switch {
	case len(q.given) > 0:
		return q.given
	case q.inFlight == nil:
		return nil
	}
	return q.inFlight.rows
}

// busy says that rows are on their way.
func (q *partitionQueue) busy() bool { return q.inFlight != nil || len(q.given) > 0 }

// holds says whether a row of the same key is under way here.
func (q *partitionQueue) holds(r *outbox.Row) bool {
	return slices.ContainsFunc(q.inFlightRows(), sameKey(r)) || slices.ContainsFunc(q.rows.peek(), sameKey(r))
}

// sameKey finds rows of the same key that name their partitions too.
func sameKey(r *outbox.Row) func(*outbox.Row) bool {
	return func(x *outbox.Row) bool {
		return x.Key != nil && x.Partition >= 0 && x.Table == r.Table && bytes.Equal(x.Key, r.Key)
	}
}

// bind gives the batch its sequence. Only a batch that is not in the partition log may
// be bound. A new epoch starts at 0.
func (q *partitionQueue) bind(b *batch, as producer) {
	if q.as != as {
		q.as, q.seq = as, 0
	}
	b.as, b.seq, b.maybe, b.sealed, b.unresolved = q.as, q.seq, false, false, false
}

// acked moves the sequence on and lets batches grow again.
func (q *partitionQueue) acked(b *batch, offset int64) {
	if q.as == b.as {
		q.seq = advance(b.seq, len(b.rows))
	}
	if offset >= 0 {
		q.tail = offset + int64(len(b.rows))
	}
	if q.limit *= 2; q.limit > 1<<20 {
		q.limit = 0
	}
	q.clearInFlight()
}

// clearInFlight forgets the batch in flight, whose rows have an outcome or are back
// in the queue.
func (q *partitionQueue) clearInFlight() { q.inFlight, q.state = nil, queueIdle }

// recall puts the rows in flight back in the queue when nothing of it is or
// will be in the partition log. It says whether nothing is in flight now.
func (q *partitionQueue) recall() bool {
	if !q.busy() {
		return true
	}
	if len(q.given) > 0 || q.state != queueWaiting || q.inFlight.maybe || q.inFlight.unresolved {
		return false
	}
	q.rows.unshift(q.inFlight.rows)
	q.clearInFlight()
	return true
}

func (q *partitionQueue) reject(r *outbox.Row, err error) {
	if q.rejected == nil {
		q.rejected = map[*outbox.Row]error{}
	}
	q.rejected[r] = err
}

// clearRejected forgets it for rows that leave the queue.
func (q *partitionQueue) clearRejected(rows []*outbox.Row) {
	for _, r := range rows {
		delete(q.rejected, r)
	}
}

const (
	backoffMin  = 20 * time.Millisecond
	backoffMax  = 500 * time.Millisecond
	backoffSlow = 5 * time.Second // authorisation
)

// backoff is the wait after the given number of failures in a row.
func backoff(failures int, most time.Duration) time.Duration {
	return min(backoffMin<<min(max(0, failures-1), 10), most) // a later shift would be too far
}

// encoding says that sarama refused to write the request, so no broker saw it.
func encoding(err error) bool { return is[sarama.PacketEncodingError](err) }
