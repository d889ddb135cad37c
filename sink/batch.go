package sink

import (
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// producer is a producer id and an epoch, by which brokers know a producer.
type producer struct {
	PID   int64
	Epoch int16
}

// nobody stands for the producer until InitProducerId has answered.
var nobody = producer{-1, -1}

// batch is a run of rows for one partition, with the sequence numbers under which brokers know them. While
// its outcome is unknown, neither the rows nor the sequence may change: a broker compares producer id,
// first sequence and count, but never the content.
type batch struct {
	queue *partitionQueue
	rows  []*outbox.Row
	// bytes is an upper bound of the encoded size before compression.
	bytes   int
	headers int // number of headers of all rows

	as  producer
	seq int32
	// maybe says that some earlier try may have been appended. It is set by the results of tries, and
	// cleared only when a search has found out (resolve).
	maybe bool
	// sealed says that the partition was fenced after the last try. No try of this batch can be appended
	// any more: either it is in the partition log by now, or it never will be.
	sealed bool
	// unresolved says that the batch has to be searched for in the partition log before it is sent again.
	unresolved bool

	tries   int
	corrupt int // tries that were answered with CORRUPT_MESSAGE
	// made is the timestamp of the rows that have none of their own. It is the same for all tries.
	made time.Time
	sent time.Time // when the current try was sent
	// untimed marks rows whose own timestamp the topic has refused, so they get made instead. It is
	// parallel to rows; nil: no such row.
	untimed []bool

	request *exactlyonce.Request // of a transaction: the request that the batch answers
}

const (
	// batchOverhead is the size of a record batch's header (61 bytes), rounded up.
	batchOverhead = 64
	// recordOverhead is the maximum size of a record without key, value and headers: five varint32, a
	// varint64 and the attributes.
	recordOverhead = 5*5 + 10 + 1
	// headerOverhead is the maximum size of the two lengths of a record header.
	headerOverhead = 2 * 5
)

// recordSize returns an upper bound of the encoded size of a row's record, in bytes.
func recordSize(r *outbox.Row) int {
	n := recordOverhead + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += headerOverhead + len(r.Headers[i].Name) + len(r.Headers[i].Value)
	}
	return n
}

// advance returns the sequence number n records later. Sequence numbers wrap around at 2³¹.
func advance(seq int32, n int) int32 {
	return int32((uint32(seq) + uint32(n)) & 0x7fffffff)
}

// reply is the result of one try to produce a batch: err, or a broker's answer.
type reply struct {
	err error // why there is no answer
	// unsent says, together with err, that no part of the request can have reached a broker.
	unsent bool

	code   sarama.KError
	offset int64 // of the first record; with an error, the batch may have been appended, see judge
	// rejected are the indices of the records that the broker refused, if it names them (KIP-467).
	rejected []int
	message  string
	// leader is the address of the partition's new leader, if the broker names it (KIP-951).
	leader string
}

// action says what has to be done about a batch.
type action uint8

const (
	actionAck     action = iota + 1 // delivered
	actionRetry                     // send it again, unchanged
	actionSplit                     // it is not in the partition log: find the rejected record
	actionResolve                   // find out, under a new epoch, whether it is in the partition log
	actionRebind                    // it is not in the partition log: send it under the current epoch
	actionTopic                     // the topic is at fault
	actionSlow                      // retry slowly: authorisation or configuration is at fault, or the broker cannot name its error
)

// corruptTries is how many answers with CORRUPT_MESSAGE blame a record. Fewer of them are blamed on damage
// in transit.
const corruptTries = 3

// judge records what a try says about the batch's outcome, and decides what to do. doc.go has the table. A
// rejection tells only about its own try; maybe tells whether an earlier one may have been appended.
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
			return actionSlow // each try may have left a copy of the batch in the broker's log
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
		return actionResolve // the next InitProducerId tells whether another process took over
	case badTopic:
		return actionTopic
	case badSetup:
		return actionSlow
	}
	// All other errors pass. An example is a broker that refuses plain batches while a fencing transaction
	// of ours is open. An offset in the answer means that the batch was appended before the error. The
	// codes above are answered before anything is appended, even if an offset comes with them.
	b.maybe = b.maybe || r.offset >= 0
	return actionRetry
}

// timeOf returns the timestamp of a row's record, in milliseconds since 1970.
func (b *batch) timeOf(i int) int64 {
	if at := b.rows[i].Timestamp; at != 0 && (b.untimed == nil || !b.untimed[i]) {
		return at
	}
	return b.made.UnixMilli()
}

// retime marks records as untimed if the topic refused their own time and their tables have TimestampNow.
// It reports whether it has marked any.
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

// rejected returns the action for a batch with a faulty record. The fault is believed only if no earlier
// try may have been appended.
func (b *batch) rejected() action {
	if b.maybe {
		return actionResolve
	}
	return actionSplit
}
