package sink

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// topicState says whether a topic's rows can go to partitions.
type topicState uint8

const (
	// topicUnknown: metadata is awaited; rows wait in the topic.
	topicUnknown topicState = iota
	// topicReady: rows go to partitions.
	topicReady
	// topicDraining: the partitions changed; rows wait in the topic until no
	// partition has a batch in flight, so that no key is in two partitions at once.
	topicDraining
	// topicBlocked: rows are given back until the topic is released.
	topicBlocked
)

// topic is what the sink knows of one topic.
type topic struct {
	name  string
	state topicState
	err   error // of topicBlocked
	// untold says of topicBlocked that nobody has heard of it yet.
	untold bool
	// gone says of topicBlocked that the topic, and so its log, does not exist.
	gone  bool
	uuid  sarama.Uuid // zero before Kafka 2.8
	fresh *topicInfo  // of topicDraining: what it becomes

	queues  []*partitionQueue
	waiting queue
	blocked map[key]struct{}
	// assigned are the partitions of keys whose rows name their partitions.
	assigned     map[namedKey]*partitionQueue
	assignedUsed int

	asked    time.Time // when brokers were last asked about it
	missing  int       // answers in a row by which it cannot be used
	since    time.Time // of those that did not know it, the first
	maxBytes int       // of a record batch, or 0: unknown
	told     bool      // maxBytes is the broker's word, not our guess
	accepted int       // largest batch acked, in bytes

	sticky      int // partition for records without a key, or -1
	stickyCount int // bytes given to it
}

// key is a key scope of one topic. Rows of different tables are not ordered
// against one another.
type key struct {
	table string
	key   string
}

func newTopic(name string) *topic { return &topic{name: name, sticky: -1} }

// isBlocked says whether an earlier row of the same key was refused. It costs
// nothing while nothing is blocked.
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

// topicErrorOf is the kind of a topic's error, and Kafka's name for it; empty: no
// mapping can name it.
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

// passes says whether a row's own error is a passing one. A time that the topic refuses is: an outage may have made the
// row so old. With FailOn, every other error is, too, unless the record is too large.
func passes(r *outbox.Row, err error) bool {
	if errors.Is(err, sarama.ErrInvalidTimestamp) {
		return true
	}
	tooLarge := errors.Is(err, sarama.ErrMessageSizeTooLarge) || errors.Is(err, sarama.ErrMessageSetSizeTooLarge) || encoding(err)
	return len(r.Table.Mapping.FailOn) > 0 && !tooLarge
}

// queueFor chooses the row's partition: rows without a key stick to one for a while, as in
// the Java client.
func (t *topic) queueFor(r *outbox.Row, random func(int) int) *partitionQueue {
	switch {
	case r.Partition >= 0:
		return t.namedQueue(r)
	case r.Key != nil:
		return t.queues[PartitionOf(r.Table.Mapping.Partitioner, r.Key, len(t.queues))]
	}
	return t.queues[t.stick(r, random)]
}

// namedQueue is for rows that name their partition: one key's rows may name different
// ones. All rows of a key that wait or are in flight are in one queue. A row that
// belongs elsewhere waits there until it is at the front (see machine.front). Only
// then it moves on or, if its partition does not exist, is refused.
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

// namedKey is a key of rows that name their partitions.
type namedKey struct {
	table *outbox.Table
	key   string
}

// assignedKept is how many keys namedQueue remembers before it forgets those without
// rows that wait or are in flight.
const assignedKept = 10_000

func (t *topic) assign(r *outbox.Row, q *partitionQueue) {
	if t.assigned == nil || len(t.assigned) >= max(assignedKept, 2*t.assignedUsed) {
		t.assigned = t.stillAssigned()
		t.assignedUsed = len(t.assigned)
	}
	t.assigned[namedKey{r.Table, string(r.Key)}] = q
}

// stillAssigned are the assignments of keys whose rows wait or are in flight.
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

// stick spreads records without a key: one partition until a batch is made of
// it or it got stickyBytes, then another with a leader.
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

// batched tells that a batch was made of a partition.
func (t *topic) batched(partition int32) {
	if t.sticky == int(partition) {
		t.stickyCount = stickyBytes
	}
}

// anyInFlight says whether any partition has a batch in flight.
func (t *topic) anyInFlight() bool { return slices.ContainsFunc(t.queues, (*partitionQueue).busy) }

// anyWaiting says whether rows wait, to be placed or in any partition.
func (t *topic) anyWaiting() bool {
	return t.waiting.len() > 0 || slices.ContainsFunc(t.queues, func(q *partitionQueue) bool { return q.rows.len() > 0 })
}

// tooLarge learns the limit from a refused batch of several rows, if the broker
// does not tell: it is between what was accepted and what was refused.
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
