package sink

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// topicState says whether the topic's rows can go to its partitions.
type topicState uint8

const (
	// topicUnknown: metadata is awaited, and rows wait in the topic.
	topicUnknown topicState = iota
	// topicReady: rows go to partitions.
	topicReady
	// topicDraining: the partitions have changed. Rows wait in the topic until no partition has a batch in
	// flight, so that no key is in two partitions at once.
	topicDraining
	// topicBlocked: rows are given back until the topic is released.
	topicBlocked
)

// topic is what the sink knows about one topic.
type topic struct {
	name  string
	state topicState
	err   error // in topicBlocked: why
	// untold says, in topicBlocked, that no outcome has reported the block yet.
	untold bool
	// gone says, in topicBlocked, that the topic does not exist, so its log is gone, too.
	gone  bool
	uuid  sarama.Uuid // zero with brokers before Kafka 2.8
	fresh *topicInfo  // in topicDraining: the new partitions and settings

	queues  []*partitionQueue
	waiting queue
	blocked map[key]struct{}
	// assigned has the partition of each key whose rows name their partitions. assignedUsed is how many keys
	// were still in use when unused ones were last forgotten.
	assigned     map[namedKey]*partitionQueue
	assignedUsed int

	asked    time.Time // when brokers were last asked about it
	missing  int       // number of answers in a row that say that the topic cannot be used
	since    time.Time // when the first answer came that did not know the topic
	maxBytes int       // maximum size of a record batch, in bytes; 0: unknown
	told     bool      // maxBytes was told by a broker; otherwise we guessed it
	accepted int       // size of the largest acknowledged batch, in bytes

	sticky      int // partition for records without a key; -1: none
	stickyCount int // bytes given to that partition
}

// key is a key of one topic, of rows of one table. Rows of different tables are not ordered against one
// another.
type key struct {
	table string
	key   string
}

func newTopic(name string) *topic { return &topic{name: name, sticky: -1} }

// isBlocked reports whether an earlier row of the same key was refused. It is cheap while no key is blocked.
func (t *topic) isBlocked(r *outbox.Row) bool {
	if len(t.blocked) == 0 || r.Key == nil {
		return false
	}
	_, ok := t.blocked[key{r.Table.String(), string(r.Key)}]
	return ok
}

func (t *topic) block(r *outbox.Row) {
	if t.blocked == nil {
		t.blocked = map[key]struct{}{}
	}
	t.blocked[key{r.Table.String(), string(r.Key)}] = struct{}{}
}

// topicErrorOf returns the kind of a topic's error, and Kafka's name for it; empty: fail_on cannot name such
// an error.
// https://kafka.apache.org/protocol.html#protocol_error_codes
func topicErrorOf(err error) (kind outbox.TopicError, name string) {
	switch {
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed):
		return outbox.TopicUnauthorized, "TOPIC_AUTHORIZATION_FAILED"
	case errors.Is(err, sarama.ErrInvalidTopic):
		return outbox.TopicInvalid, "INVALID_TOPIC_EXCEPTION"
	case errors.Is(err, sarama.ErrUnknownTopicOrPartition):
		return outbox.TopicMissing, "UNKNOWN_TOPIC_OR_PARTITION"
	}
	return "", ""
}

// passes reports whether a row's own error is temporary, so that no attempt is charged. A timestamp that the
// topic refuses is temporary: an outage may have made the row too old. With FailOn, all other errors are
// temporary, too, unless the record is too large.
func passes(r *outbox.Row, err error) bool {
	if errors.Is(err, sarama.ErrInvalidTimestamp) {
		return true
	}
	tooLarge := errors.Is(err, sarama.ErrMessageSizeTooLarge) || errors.Is(err, sarama.ErrMessageSetSizeTooLarge) || encoding(err)
	return len(r.Table.Mapping.FailOn) > 0 && !tooLarge
}

// queueFor chooses the row's partition. Rows without a key go to one partition for a while, as in the Java
// client.
func (t *topic) queueFor(r *outbox.Row, random func(int) int) *partitionQueue {
	switch {
	case r.Partition >= 0:
		return t.namedQueue(r)
	case r.Key != nil:
		return t.queues[PartitionOf(r.Table.Mapping.Partitioner, r.Key, len(t.queues))]
	}
	return t.queues[t.stick(r, random)]
}

// namedQueue returns the queue for a row that names its partition. Rows of one key may name different
// partitions. But all rows of a key that wait or are in flight are in one queue. A row that belongs
// elsewhere waits there until it is at the front (see machine.front). Only then it moves to its partition's
// queue or, if the partition does not exist, is refused.
func (t *topic) namedQueue(r *outbox.Row) *partitionQueue {
	target := t.queues[int(r.Partition)%len(t.queues)]
	if r.Key == nil {
		return target
	}
	if before := t.assigned[namedKey{r.Table, string(r.Key)}]; before != nil && before != target && before.holds(r) {
		return before
	}
	t.assign(r, target)
	return target
}

// namedKey is a key whose rows name their partitions.
type namedKey struct {
	table *outbox.Table
	key   string
}

// assignedKept is how many keys namedQueue remembers before it forgets those without rows that wait or are
// in flight.
const assignedKept = 10_000

func (t *topic) assign(r *outbox.Row, q *partitionQueue) {
	if t.assigned == nil || len(t.assigned) >= max(assignedKept, 2*t.assignedUsed) {
		t.assigned = t.stillAssigned()
		t.assignedUsed = len(t.assigned)
	}
	t.assigned[namedKey{r.Table, string(r.Key)}] = q
}

// stillAssigned returns the assignments of the keys with rows that wait or are in flight.
func (t *topic) stillAssigned() map[namedKey]*partitionQueue {
	assigned := map[namedKey]*partitionQueue{}
	for _, q := range t.queues {
		for _, rows := range [][]*outbox.Row{q.inFlightRows(), q.rows.peek()} {
			for _, r := range rows {
				if r.Partition >= 0 && r.Key != nil {
					assigned[namedKey{r.Table, string(r.Key)}] = q
				}
			}
		}
	}
	return assigned
}

// stick returns the partition for a record without a key. It is the same one until a batch is made of its
// rows, or it got stickyBytes. Then it is another one with a leader.
func (t *topic) stick(r *outbox.Row, random func(int) int) int {
	if t.sticky < 0 || t.sticky >= len(t.queues) || t.stickyCount >= stickyBytes {
		t.sticky, t.stickyCount = t.pick(random(len(t.queues))), 0
	}
	t.stickyCount += recordSize(r)
	return t.sticky
}

func (t *topic) pick(start int) int {
	n := len(t.queues)
	for i := range n {
		if p := (start + i) % n; p != t.sticky && t.queues[p].leader != "" {
			return p
		}
	}
	return start
}

// batched notes that a batch was made of a partition's rows.
func (t *topic) batched(partition int32) {
	if t.sticky == int(partition) {
		t.stickyCount = stickyBytes
	}
}

// anyInFlight reports whether any partition has rows in flight.
func (t *topic) anyInFlight() bool { return slices.ContainsFunc(t.queues, (*partitionQueue).busy) }

// anyWaiting reports whether rows wait, in the topic or in any partition's queue.
func (t *topic) anyWaiting() bool {
	return t.waiting.len() > 0 || slices.ContainsFunc(t.queues, func(q *partitionQueue) bool { return q.rows.len() > 0 })
}

// tooLarge learns the maximum batch size from a refused batch of several rows, if no broker has told it. The
// maximum is between the largest batch that was accepted and the refused one.
func (t *topic) tooLarge(b *batch) {
	if t.told || len(b.rows) == 1 {
		return
	}
	guess := b.bytes / 2
	if t.accepted < b.bytes {
		guess = max(guess, t.accepted)
	}
	t.maxBytes = min(guess, cmp.Or(t.maxBytes, guess))
}
