package sink

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// between is an Observer that runs a function when the first rows of a topic are acknowledged. The
// transaction does not go on before the function has returned.
type between struct {
	tally
	topic string
	once  sync.Once
	do    func()
}

func (b *between) Produced(topic string, rows, bytes int, took time.Duration) {
	b.tally.Produced(topic, rows, bytes, took)
	if topic == b.topic {
		b.once.Do(b.do)
	}
}

// TestRealEndsThatAreLost: a partition loses its leader after a transaction's rows were acknowledged, and
// before the transaction's end. Kafka 4.3 and 4.4 then forget the end in that partition (KAFKA-20734).
// Still, each row is there once.
func TestRealEndsThatAreLost(t *testing.T) {
	t.Parallel()
	k := privateKafka(t, harness.KafkaOptions{Brokers: 2, Settings: map[string]string{
		"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500", "transaction.state.log.replication.factor": "1",
	}})
	t.Run("commit", func(t *testing.T) { endIsLost(t, k, 100, false) })
	t.Run("commit, and we are killed", func(t *testing.T) { endIsLost(t, k, 100, true) })
	t.Run("abort", func(t *testing.T) { endIsLost(t, k, 10, false) })
	t.Run("abort, and we are killed", func(t *testing.T) { endIsLost(t, k, 10, true) })
	t.Run("the journal's", func(t *testing.T) { journalIsLost(t, k) })
	t.Run("the next transaction", func(t *testing.T) { nextTransactionWaits(t, k) })
}

// nextTransactionWaits: while a partition lacks the end of a committed transaction, the coordinator refuses
// the next transaction, also for other partitions. Only versions that forget the end accept it. So a stream
// cannot go on with other partitions meanwhile, as docs/exactly-once.md says.
func nextTransactionWaits(t *testing.T, k *harness.Cluster) {
	topic := apart(t, k, k.Nodes[0])
	b, err := opened(k.Addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	id := topic
	var got *sarama.InitProducerIDResponse
	harness.Eventually(t, 30*time.Second, func() error {
		got, err = b.InitProducerID(&sarama.InitProducerIDRequest{Version: 3, TransactionalID: &id, TransactionTimeout: time.Minute, ProducerID: -1, ProducerEpoch: -1})
		return cmp.Or(err, noError(got.Err))
	})
	add := func(partition int32) sarama.KError {
		res, err := b.AddPartitionsToTxn(&sarama.AddPartitionsToTxnRequest{
			Version: 2, TransactionalID: id, ProducerID: got.ProducerID, ProducerEpoch: got.ProducerEpoch,
			TopicPartitions: map[string][]int32{topic: {partition}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return res.Errors[topic][0].Err
	}
	harness.Eventually(t, 30*time.Second, func() error { return noError(add(0)) })
	k.Nodes[1].Kill()
	leaderless(t, k, topic)
	over, err := b.EndTxn(&sarama.EndTxnRequest{Version: 2, TransactionalID: id, ProducerID: got.ProducerID, ProducerEpoch: got.ProducerEpoch, TransactionResult: true})
	if err != nil || over.Err != sarama.ErrNoError {
		t.Fatal(err, over)
	}
	harness.Eventually(t, 30*time.Second, func() error { return isOver(k.Addrs[0], id) })
	next := add(1)
	k.Nodes[1].Start(t)
	switch v := harness.KafkaVersion(); {
	case next == sarama.ErrNoError && (strings.HasPrefix(v, "4.3.") || strings.HasPrefix(v, "4.4.")): // this version forgets the end
	case next != sarama.ErrConcurrentTransactions:
		t.Errorf("the next transaction, while partition 0 has no leader: %v", next)
	}
	harness.Eventually(t, time.Minute, func() error { return noError(add(1)) })
}

func noError(e sarama.KError) error {
	if e != sarama.ErrNoError {
		return e
	}
	return nil
}

// journalIsLost: while the journal has no leader no row is delivered, and an error names the partition.
func journalIsLost(t *testing.T, k *harness.Cluster) {
	topic, db := apart(t, k, k.Nodes[1]), newOnceDB()
	var rows []*outbox.Row
	for _, r := range numbered(topic, 0, 40) {
		r.Partition = 1 // on the first node
		rows = append(rows, r)
	}
	db.insert(rows...)
	observer := &between{topic: topic, do: func() {
		k.Nodes[1].Kill()
		leaderless(t, k, topic+"-journal")
	}}
	cfg := db.config(k.Addrs[:1], topic)
	cfg.BatchRows, cfg.Observer = 10, observer
	r := newRig(t, cfg)
	r.usable(60*time.Second, true)
	r.publish(rows...)
	if err := r.usable(60*time.Second, false).Err; !strings.Contains(err.Error(), topic+"-journal") {
		t.Error(err)
	}
	r.mu.Lock()
	if len(r.order) > 0 {
		t.Errorf("%d outcomes while the journal has no leader", len(r.order))
	}
	r.mu.Unlock()
	k.Nodes[1].Start(t)
	r.expect(outbox.Delivered, 60*time.Second, rows...)
	ends := endRows(topic, 2)
	r.publish(ends...)
	r.expect(outbox.Delivered, 60*time.Second, ends...)
	eachOnce(t, readCommitted(t, k, topic, 2), rows)
}

// endIsLost makes a transaction of 40 rows, in batches of this number of rows, lose its end in partition 0.
// With several batches, the second one finds no leader, so the transaction is aborted.
func endIsLost(t *testing.T, k *harness.Cluster, batch int, killed bool) {
	topic, db := apart(t, k, k.Nodes[0]), newOnceDB()
	victim := k.Nodes[1]
	var rows []*outbox.Row
	for _, r := range numbered(topic, 0, 40) {
		r.Partition = 0
		rows = append(rows, r)
	}
	db.insert(rows...)
	observer := &between{topic: topic, do: func() {
		victim.Kill()
		leaderless(t, k, topic)
	}}
	cfg := db.config(k.Addrs[:1], topic)
	cfg.BatchRows, cfg.Observer = batch, observer
	r := newRig(t, cfg)
	r.usable(60*time.Second, true)
	r.publish(rows...)
	t.Log(r.usable(60*time.Second, false).Err)
	harness.Eventually(t, 60*time.Second, func() error { return isOver(k.Addrs[0], topic) })
	if killed {
		r.stop()
		<-r.done
		r.finished = true
	}
	victim.Start(t)
	if killed {
		cfg = db.config(k.Addrs[:1], topic)
		r = newRig(t, cfg)
		r.usable(60*time.Second, true)
		left, _ := db.pending(0)
		if (len(left) == 0) != (batch >= len(rows)) {
			t.Errorf("%d rows are left after the takeover", len(left))
		}
		r.publish(left...)
		r.expect(outbox.Delivered, 60*time.Second, left...)
	} else {
		r.expect(outbox.Delivered, 60*time.Second, rows...)
		if aborts := observer.aborted.Load(); (aborts > 0) != (batch < len(rows)) {
			t.Errorf("%d transactions were aborted", aborts)
		}
	}
	ends := endRows(topic, 2)
	r.publish(ends...)
	r.expect(outbox.Delivered, 60*time.Second, ends...)
	eachOnce(t, readCommitted(t, k, topic, 2), rows)
}

// apart makes a topic with one partition on the second node, and one on the first, where the coordinator of
// its name is; its journal is on the given node.
func apart(t *testing.T, k *harness.Cluster, journal *harness.Node) (topic string) {
	t.Helper()
	first, second := int32(k.Nodes[0].ID()), int32(k.Nodes[1].ID())
	harness.Eventually(t, time.Minute, func() error {
		topic = fmt.Sprint("apart-", time.Now().UnixNano())
		return k.Coordinates(topic, k.Nodes[0])
	})
	make := func(name string, on map[int32][]int32) {
		k.Admin(t, func(a sarama.ClusterAdmin) error {
			return a.CreateTopic(name, &sarama.TopicDetail{NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: on}, false)
		})
	}
	make(topic, map[int32][]int32{0: {second}, 1: {first}})
	make(topic+"-journal", map[int32][]int32{0: {int32(journal.ID())}})
	harness.Eventually(t, 30*time.Second, func() error {
		_, err := k.End(t.Context(), topic)
		return err
	})
	return topic
}

func opened(addr string) (*sarama.Broker, error) {
	conf := sarama.NewConfig()
	conf.Version = sarama.MaxVersion
	b := sarama.NewBroker(addr)
	return b, b.Open(conf)
}

func isOver(addr, id string) error {
	b, err := opened(addr)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	res, err := b.DescribeTransactions(&sarama.DescribeTransactionsRequest{TransactionalIDs: []string{id}})
	switch {
	case err != nil:
		return err
	case res.TransactionStates[0].TransactionState == sarama.TransactionStateOngoing:
		return errors.New("the transaction is open")
	}
	return nil
}

// leaderless waits until partition 0 has no leader.
func leaderless(t *testing.T, k *harness.Cluster, topic string) {
	t.Helper()
	b, err := opened(k.Addrs[0])
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = b.Close() }()
	for deadline := time.Now().Add(time.Minute); ; {
		res, err := b.GetMetadata(sarama.NewMetadataRequest(sarama.V2_8_0_0, []string{topic}))
		if err == nil && slices.ContainsFunc(res.Topics[0].Partitions, func(p *sarama.PartitionMetadata) bool { return p.ID == 0 && p.Leader < 0 }) {
			return
		}
		<-time.After(50 * time.Millisecond)
		if time.Now().After(deadline) {
			t.Errorf("partition 0 still has a leader: %v", err)
			return
		}
	}
}

func TestOutcomesThatACoordinatorTells(t *testing.T) {
	const ordinary, repair = 30 * time.Second, repairTimeout + 7*time.Millisecond
	now, seventh := exactlyonce.Producer{PID: 5, Epoch: 9}, exactlyonce.Producer{PID: 5, Epoch: 7}
	for _, c := range []struct {
		state   string
		timeout time.Duration
		outcome exactlyonce.Outcome
		of      exactlyonce.Producer
	}{
		{sarama.TransactionStateEmpty, ordinary, exactlyonce.Undone, now},
		{sarama.TransactionStateOngoing, ordinary, exactlyonce.Running, now},
		{sarama.TransactionStateCompleteCommit, ordinary, exactlyonce.Committed, now},
		{sarama.TransactionStateCompleteAbort, ordinary, exactlyonce.Undone, now},
		{sarama.TransactionStateDead, ordinary, exactlyonce.Undone, now},
		{sarama.TransactionStateEmpty, repair, exactlyonce.Committed, seventh},
		{sarama.TransactionStateOngoing, repair, exactlyonce.Repairing, seventh},
		{sarama.TransactionStateCompleteCommit, repair, exactlyonce.Committed, seventh},
	} {
		var a exactlyonce.Answer
		err := outcomeOf(&sarama.TransactionState{TransactionState: c.state, TransactionTimeout: c.timeout, ProducerID: 5, ProducerEpoch: 9}, &a)
		if err != nil || a.Outcome != c.outcome || a.Of != c.of || a.Producer != now {
			t.Errorf("%s, %v: %+v, %v", c.state, c.timeout, a, err)
		}
	}
	for _, state := range []string{sarama.TransactionStatePrepareAbort, sarama.TransactionStatePrepareCommit} {
		err := outcomeOf(&sarama.TransactionState{TransactionState: state}, &exactlyonce.Answer{})
		if class := classOf(exactlyonce.Last, err); class != exactlyonce.Busy {
			t.Errorf("%s: class %d", state, class)
		}
	}
	pc := &producerIDClient{timeout: repairTimeout + time.Second}
	if got := pc.timeoutOf(nobody); got >= repairTimeout {
		t.Errorf("an ordinary timeout of %v", got)
	}
	if got := pc.timeoutOf(producer{5, 7}); got != repair {
		t.Errorf("a repair's timeout of %v", got)
	}
}

func TestEndsOfAProducer(t *testing.T) {
	of := exactlyonce.Producer{PID: 5, Epoch: 7}
	state := func(pid int64, epoch int32, start int64) []sarama.ProducerState {
		return []sarama.ProducerState{{ProducerID: 4, ProducerEpoch: 7, CurrentTxnStartOffset: 3}, {ProducerID: pid, ProducerEpoch: epoch, CurrentTxnStartOffset: start}}
	}
	for name, c := range map[string]struct {
		producers      []sarama.ProducerState
		commit, marker bool
	}{
		"nothing of ours":       {state(6, 7, 10), true, false},
		"open":                  {state(5, 7, 10), false, false},
		"ended":                 {state(5, 7, -1), true, true},
		"ended by a later one":  {state(5, 8, -1), true, true},
		"an older one is open":  {state(5, 6, 10), true, false},
		"an older one is ended": {state(5, 6, -1), true, false},
	} {
		if hasEnd(&exactlyonce.Request{Of: of}, c.producers) != c.commit || hasEnd(&exactlyonce.Request{Of: of, Marker: true}, c.producers) != c.marker {
			t.Error(name)
		}
	}
}
