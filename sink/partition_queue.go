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
	queueIdle      queueState = iota // no batch is in flight
	queueInFlight                    // a broker connection has the batch; one reply will come
	queueWaiting                     // the batch, or the partition without a batch, waits until at
	queueResolving                   // the producerIDClient searches for the batch; one answer will come
)

// partitionQueue is the queue of one partition, and the state of producing to it. At most one batch is in
// flight, and it is resent unchanged until its outcome is known. So the partition log always holds a prefix
// of the rows that were put in.
type partitionQueue struct {
	topic     *topic
	partition int32
	leader    string // its address; empty: not known
	fenced    bool   // batches of older producers are refused from now on
	shown     bool   // the partition's leader has shown that it refuses them

	rows queue
	// rejected are rows that are refused when they come to the front of the queue, after everything before
	// them has its outcome.
	rejected map[*outbox.Row]error

	state    queueState
	inFlight *batch // nil when idle, or when only the partition waits
	at       time.Time

	// For transactions: given are the rows of the present one, until it has ended. offered says that there
	// are rows for the next one.
	given   []*outbox.Row
	offered bool

	as  producer
	seq int32
	// tail is the offset after all records known to be in the partition log before the batch in flight, or
	// -1 if it is not known. A search for that batch starts there.
	tail int64

	// end is the offset after the last record that a broker acknowledged to us, or 0. The partition log never
	// ends before it, unless brokers lost records.
	end int64

	// limit is the maximum number of rows of the next batch while the rejected record is searched for; 0:
	// no limit.
	limit int

	failures int // failures in a row
	trouble
	dirty bool // the queue is in machine.dirty
}

type limits struct {
	rows, bytes int
	since       uint32 // rows that came before this time are old, see tenths
}

// next takes the next batch out of the queue, or returns nil. The batch ends before a row that is rejected,
// old, or names another partition. A row that is larger than the limit goes alone.
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

// elsewhere reports whether a row names another partition.
func (q *partitionQueue) elsewhere(r *outbox.Row) bool {
	return r.Partition >= 0 && r.Partition != q.partition
}

// inFlightRows returns the rows of the batch in flight, or of the transaction.
func (q *partitionQueue) inFlightRows() []*outbox.Row {
	switch {
	case len(q.given) > 0:
		return q.given
	case q.inFlight == nil:
		return nil
	}
	return q.inFlight.rows
}

// busy reports whether rows are in flight.
func (q *partitionQueue) busy() bool { return q.inFlight != nil || len(q.given) > 0 }

// holds reports whether a row of the same key is in flight or waits here.
func (q *partitionQueue) holds(r *outbox.Row) bool {
	return slices.ContainsFunc(q.inFlightRows(), sameKey(r)) || slices.ContainsFunc(q.rows.peek(), sameKey(r))
}

// sameKey matches rows of the same key that name a partition, as r does.
func sameKey(r *outbox.Row) func(*outbox.Row) bool {
	return func(x *outbox.Row) bool {
		return x.Key != nil && x.Partition >= 0 && x.Table == r.Table && bytes.Equal(x.Key, r.Key)
	}
}

// bind gives the batch its sequence number. The batch must not be in the partition log, nor be able to get
// there. A new epoch starts at 0.
func (q *partitionQueue) bind(b *batch, as producer) {
	if q.as != as {
		q.as, q.seq = as, 0
	}
	b.as, b.seq, b.maybe, b.sealed, b.unresolved = q.as, q.seq, false, false, false
}

// acked advances the sequence number and lets batches grow again.
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

// clearInFlight forgets the batch in flight. Its rows have an outcome, or are back in the queue.
func (q *partitionQueue) clearInFlight() { q.inFlight, q.state = nil, queueIdle }

// recall puts the rows in flight back into the queue, if none of them is or can get into the partition log.
// It reports whether nothing is in flight now.
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

// clearRejected forgets the rejections of rows that leave the queue.
func (q *partitionQueue) clearRejected(rows []*outbox.Row) {
	for _, r := range rows {
		delete(q.rejected, r)
	}
}

const (
	backoffMin  = 20 * time.Millisecond
	backoffMax  = 500 * time.Millisecond
	backoffSlow = 5 * time.Second // after actionSlow
)

// backoff returns the wait after this number of failures in a row.
func backoff(failures int, most time.Duration) time.Duration {
	return min(backoffMin<<min(max(0, failures-1), 10), most) // a larger shift would overflow
}

// encoding reports whether sarama could not encode the request, so that no broker saw it.
func encoding(err error) bool { return is[sarama.PacketEncodingError](err) }
