package sink

import (
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// producer is what brokers know a producer by.
type producer struct {
	PID   int64
	Epoch int16
}

// nobody is the producer id before InitProducerID answered.
var nobody = producer{-1, -1}

// batch is a run of rows for one partition with the sequence that a broker
// knows them by. While its outcome is unknown neither may change: a broker
// compares producer id, first sequence and count, never content.
type batch struct {
	queue *partitionQueue
	rows  []*outbox.Row
	// bytes is the encoded size before compression, never too small.
	bytes   int
	headers int // of all rows

	as  producer
	seq int32
	// maybe: some earlier try may have been appended. Set by what a try led to
	// and cleared only by finding out (resolve).
	maybe bool
	// sealed: the partition was fenced after the last try, so no try of this
	// batch can land any more; what is in the partition log is all there will be.
	sealed bool
	// unresolved: to be looked for in the partition log before it is sent again.
	unresolved bool

	tries   int
	corrupt int // tries that were answered with CORRUPT_MESSAGE
	// made is the timestamp of rows that have none of their own; it stays the
	// same over all tries.
	made time.Time
	sent time.Time // the current try
	// untimed rows have made as their timestamp, since the topic refused theirs; parallel to rows, nil: none.
	untimed []bool

	request *exactlyonce.Request // of a transaction: what the batch is sent for
}

const (
	// batchOverhead is a record batch's header (61 bytes), rounded up.
	batchOverhead = 64
	// recordOverhead bounds a record's own bytes: five varint32, a varint64
	// and the attributes.
	recordOverhead = 5*5 + 10 + 1
	// headerOverhead bounds the two lengths of a record header.
	headerOverhead = 2 * 5
)

// recordSize bounds the encoded size of a row's record, in bytes.
func recordSize(r *outbox.Row) int {
	n := recordOverhead + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += headerOverhead + len(r.Headers[i].Name) + len(r.Headers[i].Value)
	}
	return n
}

// advance is the sequence n records later; sequences wrap at 2³¹.
func advance(seq int32, n int) int32 {
	return int32((uint32(seq) + uint32(n)) & 0x7fffffff)
}

// reply is what one try to produce a batch led to: err, or a broker's answer.
type reply struct {
	err error // no answer
	// unsent says of err that nothing of the try can have reached a broker.
	unsent bool

	code   sarama.KError
	offset int64 // of the first record; an error with one may mean appended, see judge
	// rejected are indices of records that the broker named (KIP-467).
	rejected []int
	message  string
	// endpoint of the current leader, or empty (KIP-951).
	leader string
}

// action is what has to be done about a batch.
type action uint8

const (
	actionAck     action = iota + 1 // delivered
	actionRetry                     // send it again, unchanged
	actionSplit                     // nothing of it is in the partition log: find the rejected record
	actionResolve                   // find out what is in the partition log, under a new epoch
	actionRebind                    // nothing of it is in the partition log: send it under the current epoch
	actionTopic                     // the topic is at fault
	actionSlow                      // authorisation or configuration: retry slowly
)

// corruptTries is how often CORRUPT_MESSAGE is taken for damage on the wire
// before it is taken for a record's fault.
const corruptTries = 3

// judge notes what a try says about the batch's fate and decides what to do.
// doc.go has the table. A rejection only speaks of its own try:
// whatever an earlier one may have done stands in maybe.
func (b *batch) judge(r reply, current producer) action {
	if r.err != nil {
		if encoding(r.err) {
			return b.rejected()
		}
		b.maybe = b.maybe || !r.unsent
		return actionRetry
	}
	switch codes[r.code].means {
	case appended:
		return actionAck
	case inDoubt:
		b.maybe = true
		if r.code == sarama.ErrUnknown {
			return actionSlow // what the broker failed at may have left a copy of the batch in its log, at each try
		}
		return actionRetry
	case badRecord:
		return b.rejected()
	case damaged:
		b.corrupt++
		if b.corrupt < corruptTries {
			return actionRetry
		}
		return b.rejected()
	case otherState:
		return actionResolve
	case otherEpoch:
		if !b.maybe && b.as != current {
			return actionRebind // our own fence refused it
		}
		return actionResolve // the next InitProducerId tells whether we were superseded
	case badTopic:
		return actionTopic
	case badSetup:
		return actionSlow
	}
	// A passing error, such as a fencing transaction of ours that is open (brokers that refuse plain batches
	// then). With an offset, the batch was appended first. The codes above come before anything is appended,
	// whatever offset comes with them.
	b.maybe = b.maybe || r.offset >= 0
	return actionRetry
}

// timeOf is the timestamp of a row's record, in milliseconds.
func (b *batch) timeOf(i int) int64 {
	if at := b.rows[i].Timestamp; at != 0 && (b.untimed == nil || !b.untimed[i]) {
		return at
	}
	return b.made.UnixMilli()
}

// retime gives the time of producing to records whose own time the topic refused, if their tables have TimestampNow.
// false: there are none, or none any more.
func (b *batch) retime(r reply) bool {
	if r.err != nil || r.code != sarama.ErrInvalidTimestamp {
		return false
	}
	another := false
	for i, row := range b.rows {
		if row.Timestamp == 0 || !row.Table.Mapping.TimestampNow || b.untimed != nil && b.untimed[i] || len(r.rejected) > 0 && !slices.Contains(r.rejected, i) {
			continue
		}
		if b.untimed == nil {
			b.untimed = make([]bool, len(b.rows))
		}
		b.untimed[i], another = true, true
	}
	return another
}

// rejected: a record is at fault. That counts only when no earlier try is open.
func (b *batch) rejected() action {
	if b.maybe {
		return actionResolve
	}
	return actionSplit
}
