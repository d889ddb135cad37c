package sink

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file tests what the simulation does not reach or does not see: sizes, memory, and texts.

func TestErrorClass(t *testing.T) {
	for class, errs := range map[string][]error{
		"timeout":       {sarama.ErrRequestTimedOut},
		"leadership":    {sarama.ErrNotLeaderForPartition, sarama.ErrLeaderNotAvailable, sarama.ErrFencedLeaderEpoch, sarama.ErrUnknownLeaderEpoch},
		"replicas":      {sarama.ErrNotEnoughReplicas, sarama.ErrNotEnoughReplicasAfterAppend},
		"topic":         {sarama.ErrUnknownTopicOrPartition, sarama.ErrInvalidTopic, sarama.ErrUnsupportedForMessageFormat, sarama.ErrPolicyViolation},
		"authorization": {sarama.ErrTopicAuthorizationFailed, sarama.ErrClusterAuthorizationFailed, sarama.ErrTransactionalIDAuthorizationFailed},
		"record":        {sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge, sarama.ErrInvalidRecord},
		"producer":      {sarama.ErrOutOfOrderSequenceNumber, sarama.ErrInvalidProducerIDMapping, sarama.ErrProducerFenced},
		"broker": {
			sarama.ErrKafkaStorageError, sarama.ErrUnsupportedCompressionType, sarama.KError(131), sarama.ErrUnknown, sarama.ErrNetworkException,
			sarama.ErrSASLAuthenticationFailed, sarama.ErrUnsupportedVersion, sarama.ErrInvalidRequiredAcks, sarama.ErrInvalidRequest,
		},
		"cluster":     {&otherCluster{}, fmt.Errorf("broker b: %w", &otherCluster{})},
		"certificate": {&tls.CertificateVerificationError{Err: errors.New("unknown authority")}, tls.AlertError(42)},
		"connection":  {errors.New("connection refused")},
	} {
		for _, err := range errs {
			if got := ErrorClass(fmt.Errorf("topic t: %w", err)); got != class {
				t.Errorf("%v is %q, not %q", err, got, class)
			}
		}
	}
}

// Each error is counted in the class that corresponds to its handling.
func TestClassesAreWhatCodesMean(t *testing.T) {
	classes := map[meaning][]string{
		badRecord: {"record"}, damaged: {"record"}, badTopic: {"topic", "authorization"}, otherState: {"producer"}, otherEpoch: {"producer"},
	}
	for code, c := range codes {
		if want := classes[c.means]; want != nil && !slices.Contains(want, ErrorClass(code)) {
			t.Errorf("%v is counted as %q, not as %q", code, ErrorClass(code), want)
		}
	}
}

// The computed size of a batch is never less than the size that is sent, and not much more.
func TestSizesOfRecords(t *testing.T) {
	varint := func(n int) int { return len(binary.AppendVarint(nil, int64(n))) }
	for _, c := range []struct{ key, value, headers, name, of int }{
		{0, 0, 0, 0, 0}, {10, 100, 0, 0, 0}, {1000, 100_000, 3, 20, 300}, {1, 1, 50, 1, 0}, {1, 1, 1, 0, 5000},
	} {
		r := &outbox.Row{Key: make([]byte, c.key), Value: make([]byte, c.value)}
		size := varint(c.key) + c.key + varint(c.value) + c.value + varint(c.headers)
		for range c.headers {
			r.Headers = append(r.Headers, outbox.Header{Name: strings.Repeat("n", c.name), Value: make([]byte, c.of)})
			size += varint(c.name) + c.name + varint(c.of) + c.of
		}
		const most = 1 + binary.MaxVarintLen64 + binary.MaxVarintLen32 // attributes, time, place
		size += varint(size+most) + most
		if got := recordSize(r); got < size || got > size+recordOverhead+headerOverhead*c.headers {
			t.Errorf("%+v: %d bytes, of %d", c, got, size)
		}
	}
}

// A queue that is never empty takes at most a few times the memory of the rows that wait in it.
func TestAQueueForgets(t *testing.T) {
	var q queue
	all := rowsOf("t", "k", "v", 100)
	for i := range 3000 {
		q.push(all[i%100])
	}
	for i := range 30_000 {
		q.push(all[i%100])
		q.drop(1)
		if n := len(q.rows); n > 3*q.len() {
			t.Fatalf("%d rows in memory, %d wait", n, q.len())
		}
	}
	held := func() (n int) {
		for _, r := range q.rows[:cap(q.rows)] {
			if r != nil {
				n++
			}
		}
		return n
	}
	q.drop(q.len() - 50)
	q.drop(10)
	if n := held(); n != 40 {
		t.Errorf("%d rows are held, 40 wait", n)
	}
	for range 10 {
		q.push(all[7])
	}
	if n := held(); n != 50 {
		t.Errorf("%d rows are held, 50 wait", n)
	}
	q.extract(func(r *outbox.Row) bool { return r == all[7] })
	if n := held(); n != q.len() {
		t.Errorf("%d rows are held, %d wait", n, q.len())
	}
	q = queue{}
	for range 3000 { // each is gone before the next comes
		q.push(all[0])
		q.drop(1)
	}
	if n := cap(q.rows); n > 100 {
		t.Errorf("memory for %d rows", n)
	}
}

// After a refusal batches grow again, up to their former size.
func TestBatchesGrowAgain(t *testing.T) {
	q := &partitionQueue{topic: newTopic("t"), as: nobody}
	q.limit = 1 // a batch of three rows was rejected
	for i := range 21 {
		if q.limit != 1<<i {
			t.Fatalf("%d rows after %d batches", q.limit, i)
		}
		q.acked(&batch{rows: rowsOf("t", "k", "v", 1)}, -1)
	}
	if q.limit != 0 {
		t.Errorf("still %d rows", q.limit)
	}
	q.acked(&batch{rows: rowsOf("t", "k", "v", 1)}, -1)
	if q.limit != 0 {
		t.Errorf("again %d rows", q.limit)
	}
}

// Keys whose rows name their partitions are remembered while their rows are here, and for some time more.
func TestNamedKeysAreForgotten(t *testing.T) {
	top := newTopic("t")
	for p := range 2 {
		top.queues = append(top.queues, &partitionQueue{topic: top, partition: int32(p), as: nobody})
	}
	put := func(key string) {
		r := newRow("t", key, "v")
		r.Partition = 1
		top.queueFor(r, nil).rows.push(r)
	}
	put("here")
	for i := range 3 * assignedKept {
		r := newRow("t", fmt.Sprint("k", i), "v")
		r.Partition = 0
		top.queueFor(r, nil)
	}
	if n := len(top.assigned); n > assignedKept {
		t.Errorf("%d keys are remembered", n)
	}
	if got := top.assigned[namedKey{testTable, "here"}]; got != top.queues[1] {
		t.Errorf("a key of which a row waits is forgotten: %v", got)
	}
	for i := range assignedKept { // all of which wait
		put(fmt.Sprint("waits", i))
	}
	used := top.assignedUsed
	for i := range assignedKept / 2 {
		r := newRow("t", fmt.Sprint("more", i), "v")
		r.Partition = 0
		top.queueFor(r, nil)
	}
	if top.assignedUsed != used || len(top.assigned) < assignedKept {
		t.Errorf("%d of %d keys were looked at again too soon", top.assignedUsed, len(top.assigned))
	}
}

// Records without a key go to one partition until a batch is made of its rows, or until it got stickyBytes.
func TestRecordsWithoutKeyMoveOn(t *testing.T) {
	top := newTopic("t")
	for p := range 3 {
		top.queues = append(top.queues, &partitionQueue{topic: top, partition: int32(p), as: nobody, leader: "b"})
	}
	start := 0
	to := func(size int) int32 {
		return top.queueFor(newRow("t", "", strings.Repeat("v", size)), func(n int) int { return min(start, n-1) }).partition
	}
	var got []int32
	for _, size := range []int{1, 1, stickyBytes, 1} { // enough with the third
		got = append(got, to(size))
	}
	top.batched(2) // another's
	got = append(got, to(1))
	top.batched(1)
	got = append(got, to(1))
	if want := []int32{0, 0, 0, 1, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("they go to %v, not %v", got, want)
	}
	top.queues[1].leader = "" // passed over
	top.batched(0)
	if p := to(1); p != 2 {
		t.Errorf("it goes to %d", p)
	}
	top.queues = top.queues[:2] // one less
	if p := to(1); p != 0 {
		t.Errorf("it goes to %d", p)
	}
	top.queues[0].leader, start = "", 1 // nobody leads
	top.batched(0)
	if p := to(1); p != 1 {
		t.Errorf("it goes to %d", p)
	}
}

// If brokers do not tell max.message.bytes, the limit is learnt from the batches that they refuse.
func TestTooLargeBatches(t *testing.T) {
	for name, c := range map[string]struct {
		topic topic
		rows  int
		want  int
	}{
		"nothing known":           {topic{}, 2, 500},
		"more was accepted":       {topic{accepted: 700}, 2, 700},
		"less was accepted":       {topic{accepted: 400}, 2, 500},
		"as much was accepted":    {topic{accepted: 1000}, 2, 500},
		"much more was accepted":  {topic{accepted: 1200}, 2, 500},
		"a lower guess is known":  {topic{maxBytes: 300}, 2, 300},
		"a higher guess is known": {topic{maxBytes: 900}, 2, 500},
		"it is told":              {topic{maxBytes: 900, told: true}, 2, 900},
		"a row alone":             {topic{}, 1, 0},
	} {
		c.topic.tooLarge(&batch{rows: make([]*outbox.Row, c.rows), bytes: 1000})
		if got := c.topic.maxBytes; got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// If there are very many topics, metadata is requested first for those with rows, then for those that were asked
// about longest ago.
func TestManyTopicsHaveTheirTurns(t *testing.T) {
	m := newMachine("main", machineConfig{refresh: time.Minute, topicGrace: time.Hour}, nil)
	now := time.Unix(1_000_000, 0)
	for i := range maxAsked + 100 {
		top := newTopic(fmt.Sprintf("t%04d", i))
		top.asked = now.Add(time.Duration(-i/2) * time.Second) // two at a time
		if i < 50 {
			top.waiting.push(newRow(top.name, "k", "v"))
		}
		if i >= 50 && i < 60 { // its rows wait, but not for this
			top.state = topicDraining
			top.waiting.push(newRow(top.name, "k", "v"))
		}
		m.topics[top.name] = top
	}
	m.topics["t0001"].state = topicBlocked
	names := m.askable()
	if len(names) != maxAsked {
		t.Fatalf("%d topics", len(names))
	}
	for i, want := range map[int]string{0: "t0048", 1: "t0049", 2: "t0046", 48: "t0000", 49: "t1098", 50: "t1099", maxAsked - 1: "t0148"} {
		if names[i] != want {
			t.Errorf("topic %d is %s, not %s", i, names[i], want)
		}
	}
	// Each has its turn within the refresh time.
	m.tick(now)
	if m.take().ask == nil {
		t.Fatal("nothing is asked")
	}
	infos := map[string]topicInfo{}
	for _, name := range names {
		infos[name] = topicInfo{leaders: []string{"b"}}
	}
	m.metadata(names, infos, nil)
	m.tick(now)
	if got, want := m.next().Sub(now), time.Minute*maxAsked/(maxAsked+99); got != want {
		t.Errorf("next after %v, not %v", got, want)
	}
	if got := m.topics[names[0]].asked; !got.Equal(now) {
		t.Errorf("asked at %v", got)
	}
}

// journalled returns a machine with transactions that has metadata of its journal.
func journalled(t *testing.T, known string, info topicInfo) (*machine, work) {
	t.Helper()
	m := newMachine("main", machineConfig{
		refresh: time.Minute, outageAfter: time.Second,
		transactions: &Transactions{Journal: "journal", MaxRows: 5, Timeout: time.Minute, Tally: exactlyonce.Tally{Journal: known}},
	}, nil)
	m.tick(time.Unix(1_000_000, 0))
	if ask := m.take().ask; ask == nil || !slices.Contains(ask.topics, "journal") {
		t.Fatalf("asked: %+v", ask)
	}
	m.metadata([]string{"journal"}, map[string]topicInfo{"journal": info}, nil)
	m.tick(m.now)
	return m, m.take()
}

func TestTheJournalMustBeTheOneThatIsKnown(t *testing.T) {
	good := topicInfo{uuid: sarama.Uuid{1}, leaders: []string{"b"}}
	two, none, named, replica := good, good, good, good
	two.leaders = []string{"b", "b"}
	none.code = sarama.ErrUnknownTopicOrPartition
	named.code = sarama.ErrTopicAuthorizationFailed
	replica.code = sarama.ErrReplicaNotAvailable
	for name, c := range map[string]struct {
		known   string
		info    topicInfo
		begins  bool
		fatal   bool
		trouble string
	}{
		"the first":            {"", good, true, false, ""},
		"the same":             {sarama.Uuid{1}.String(), good, true, false, ""},
		"another":              {sarama.Uuid{2}.String(), good, false, true, ""},
		"a replica is away":    {"", replica, true, false, ""},
		"two partitions":       {"", two, false, false, "has 2 partitions, must have 1"},
		"none":                 {"", none, false, false, "init --kafka makes it"},
		"it may not be looked": {"", named, false, false, "not authorized"},
	} {
		m, out := journalled(t, c.known, c.info)
		_, err := m.trouble()
		if (len(out.requests) == 1) != c.begins || (out.fatal != nil) != c.fatal || (err != nil) != (c.trouble != "") {
			t.Errorf("%s: requests %v, fatal %v, trouble %v", name, out.requests, out.fatal, err)
		}
		if c.trouble != "" && !strings.Contains(strings.ToLower(err.Error()), c.trouble) {
			t.Errorf("%s: %v", name, err)
		}
		if c.fatal && !errors.Is(out.fatal, exactlyonce.ErrJournal) {
			t.Errorf("%s: %v", name, out.fatal)
		}
		if want := m.now.Add(backoffMax); c.trouble != "" && m.next().After(want) {
			t.Errorf("%s: asked again at %v only", name, m.next())
		}
		if c.begins { // and it must stay so
			other := good
			other.uuid = sarama.Uuid{3}
			m.metadata([]string{"journal"}, map[string]topicInfo{"journal": other}, nil)
			if m.tick(m.now); m.take().fatal == nil {
				t.Errorf("%s: another journal is taken for it", name)
			}
		}
	}
}

// The journal's trouble ends when the journal is there again, even if no row is published.
func TestTroubleOfTheJournalPasses(t *testing.T) {
	good := topicInfo{uuid: sarama.Uuid{1}, leaders: []string{"b"}}
	m, _ := journalled(t, "", good)
	hear := func(info topicInfo) (time.Time, error) {
		m.now = m.now.Add(time.Second)
		m.metadata([]string{"journal"}, map[string]topicInfo{"journal": info}, nil)
		m.tick(m.now)
		m.take()
		return m.trouble()
	}
	missing := topicInfo{code: sarama.ErrUnknownTopicOrPartition}
	first, err := hear(missing)
	if err == nil || !first.Equal(m.now) {
		t.Errorf("trouble since %v: %v", first, err)
	}
	if since, err := hear(missing); err == nil || !since.Equal(first) {
		t.Errorf("trouble since %v: %v", since, err)
	}
	if _, err := hear(good); err != nil {
		t.Errorf("still: %v", err)
	}
}
