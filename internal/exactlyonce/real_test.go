package exactlyonce

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// TestReal runs Machines against a real Kafka, with the least that a sink would do. One request in ten is
// lost before or after it took effect, or arrives late on another connection. Processes are abandoned in
// the middle of their work: some stop at once, others go on as zombies until they are fenced. A
// read_committed consumer must see each row once, and the rows of a key in order.
func TestReal(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a broker")
	}
	k := harness.Kafka(t)
	name := fmt.Sprint("once-", time.Now().UnixNano())
	k.CreateTopic(t, name, 3, nil)
	k.CreateTopic(t, name+"-journal", 1, map[string]string{"retention.ms": "-1", "unclean.leader.election.enable": "false"})
	coordinate(t, k.Addrs[0], name)
	table := newRealTable(name, 300)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for round := range 12 {
		s := &shell{table: table, addr: k.Addrs[0], id: name, rng: rand.New(rand.NewPCG(uint64(round), 5)), faults: 10, lost: &table.lost}
		life, die := context.WithCancel(ctx)
		done := make(chan error, 1)
		all.Go(func() { done <- s.run(life) })
		if err := table.progress(done, 1+s.rng.IntN(30)); err != nil {
			t.Logf("round %d ended by itself: %v", round, err)
		}
		if round%2 == 0 {
			die() // this one is killed; the others live on as zombies
		}
		defer die()
		t.Logf("round %d: %d of %d rows are SENT, head %d", round, table.sent(), len(table.rows), table.tally.Head.Number)
	}
	table.insert(name, 3) // the last ones, one for each partition
	last := &shell{table: table, addr: k.Addrs[0], id: name, rng: rand.New(rand.NewPCG(99, 5)), faults: 40, lost: &table.lost}
	for ctx.Err() == nil && table.sent() < len(table.rows) {
		if err := last.run(ctx); err != nil && !strings.Contains(err.Error(), ErrSuperseded.Error()) {
			t.Fatal(err)
		}
	}
	if ctx.Err() != nil {
		t.Fatalf("%d of %d rows are SENT", table.sent(), len(table.rows))
	}
	t.Logf("%d requests lost or late, %d units", table.lost.count, table.tally.Head.Number)
	checkReal(t, k, name, table)
}

// coordinate asks for the transaction coordinator, so that brokers create its topic.
func coordinate(t *testing.T, addr, id string) {
	t.Helper()
	harness.Eventually(t, time.Minute, func() error {
		b := sarama.NewBroker(addr)
		conf := sarama.NewConfig()
		conf.Version = sarama.V2_8_0_0
		if err := b.Open(conf); err != nil {
			return err
		}
		defer func() { _ = b.Close() }()
		res, err := b.FindCoordinator(&sarama.FindCoordinatorRequest{Version: 2, CoordinatorKey: id, CoordinatorType: sarama.CoordinatorTransaction})
		if err != nil {
			return err
		}
		if res.Err != sarama.ErrNoError {
			return res.Err
		}
		return nil
	})
}

// checkReal reads up to the last row of each partition.
func checkReal(t *testing.T, k *harness.Cluster, topic string, table *realTable) {
	client, err := k.Client(kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	count, last, ends := map[int]int{}, map[string]int{}, 0
	for ends < 3 {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d of 3 partitions were read to the end: an open transaction?", ends)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			n, _ := strconv.Atoi(string(r.Value))
			if count[n]++; n <= last[string(r.Key)] {
				t.Errorf("key %s: row %d comes after row %d", r.Key, n, last[string(r.Key)])
			}
			last[string(r.Key)] = n
			if n > len(table.rows)-3 {
				ends++
			}
		})
	}
	for n := 1; n <= len(table.rows); n++ {
		if count[n] != 1 {
			t.Errorf("row %d is there %d times", n, count[n])
		}
	}
}

// realTable stands in for the database. Each method is one transaction.
type realTable struct {
	mu    sync.Mutex
	rows  []*Record
	done  map[string]bool // rows that are SENT, by id
	tally Tally
	lost  tries
}

type tries struct {
	sync.Mutex
	count int
}

func newRealTable(topic string, n int) *realTable {
	t := &realTable{done: map[string]bool{}, tally: Tally{Marked: map[uint64]int64{}}}
	t.insert(topic, n)
	return t
}

func (t *realTable) insert(topic string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for range n {
		id := strconv.Itoa(len(t.rows) + 1)
		part := int32(len(t.rows) % 3)
		key := fmt.Sprint("k", len(t.rows)%12)
		row := &outbox.Row{ID: id, Topic: topic, Key: []byte(key), Value: []byte(id)}
		t.rows = append(t.rows, &Record{Row: row, At: Partition{topic, part}, Table: "o", Key: key, Name: NameOf(row)})
	}
}

func (t *realTable) head() Placed {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tally.Head
}

func (t *realTable) sent() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.done)
}

// progress waits until n more rows are SENT, or the process has ended.
func (t *realTable) progress(done chan error, n int) error {
	begin, most := t.sent(), time.After(10*time.Second)
	for t.sent() < begin+n {
		select {
		case err := <-done:
			return err
		case <-most:
			return nil
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}

// mark is the transaction that marks the rows of a unit.
func (t *realTable) mark(u Placed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.tally.Missing([]Placed{u})) == 0 {
		return
	}
	for _, n := range u.Names {
		t.done[n.ID] = true
	}
	t.tally.Marked[u.Number] = u.Offset
	advanceTally(&t.tally)
}

func advanceTally(t *Tally) {
	d := &database{tally: *t}
	advance(d)
	*t = d.tally
}

// pending returns up to n rows that are neither marked nor in flight.
func (t *realTable) pending(n int, inFlight map[string]bool) (out []*Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.rows {
		if !t.done[r.Row.ID] && !inFlight[r.Row.ID] && len(out) < n {
			out = append(out, r)
		}
	}
	return out
}

// shell carries out what a Machine decides, during the life of one process.
type shell struct {
	table  *realTable
	addr   string
	id     string // the transactional id, and the topic
	rng    *rand.Rand
	faults int // one request in this many meets a fault
	lost   *tries

	m        *Machine
	running  bool
	inFlight map[string]bool
	answers  chan answered
}

type answered struct {
	req *Request
	Answer
}

func (s *shell) run(ctx context.Context) error {
	s.inFlight, s.running, s.answers = map[string]bool{}, false, make(chan answered, 100)
	s.m = New(Config{
		Journal: Partition{s.id + "-journal", 0}, MaxRows: 10, BatchRows: 3, BatchBytes: func(string) int { return 1 << 20 }, UnitRows: 4, UnitBytes: 500, PageBytes: 400,
	}, s.table.head(), []Partition{{s.id, 0}, {s.id, 1}, {s.id, 2}})
	for ctx.Err() == nil {
		if s.running {
			s.publish()
		}
		out := s.m.Take()
		if out.Err != nil {
			return out.Err
		}
		for _, r := range out.Requests {
			s.send(ctx, r)
		}
		for _, d := range out.Delivered {
			s.table.mark(d.Unit)
			for _, r := range d.Records {
				delete(s.inFlight, r.Row.ID)
			}
		}
		if out.Recover != nil {
			for _, u := range out.Recover.Units {
				s.table.mark(u)
			}
			s.m.Recovered()
			s.running = !out.Recover.More
			continue
		}
		if len(out.Requests)+len(out.Delivered) == 0 {
			if s.running && s.m.Idle() {
				return nil // everything is SENT
			}
			select {
			case a := <-s.answers:
				s.m.Answer(a.req, a.Answer)
			case <-ctx.Done():
			}
		}
	}
	return nil
}

func (s *shell) publish() {
	for _, r := range s.table.pending(20-len(s.inFlight), s.inFlight) {
		s.inFlight[r.Row.ID] = true
		s.m.Publish(r)
	}
}

// send sends the request and passes on its answer. Sometimes one of these fails.
func (s *shell) send(ctx context.Context, r *Request) {
	fault, wait := s.rng.IntN(3*s.faults), time.Duration(s.rng.IntN(300))*time.Millisecond
	if fault < 3 {
		s.lost.Lock()
		s.lost.count++
		s.lost.Unlock()
	}
	go func() {
		if r.Try > 0 {
			time.Sleep(min(time.Millisecond<<min(r.Try, 6), 50*time.Millisecond))
		}
		a := Answer{Class: Silence}
		switch fault {
		case 0: // the request is never sent
		case 1: // its answer is lost
			_ = s.do(r)
		case 2: // the request is sent late
			time.AfterFunc(wait, func() { _ = s.do(r) })
		default:
			a = s.do(r)
		}
		select {
		case s.answers <- answered{r, a}:
		case <-ctx.Done():
		}
	}()
}

// do sends a request on a connection of its own.
func (s *shell) do(r *Request) Answer {
	conf := sarama.NewConfig()
	conf.Version = sarama.MaxVersion
	b := sarama.NewBroker(s.addr)
	if err := b.Open(conf); err != nil {
		return Answer{Class: Silence}
	}
	defer func() { _ = b.Close() }()
	switch r.Kind {
	case Init:
		return s.init(b, r)
	case Add:
		return s.add(b, r)
	case Commit, Abort:
		res, err := b.EndTxn(&sarama.EndTxnRequest{
			Version: 1, TransactionalID: s.id, ProducerID: r.As.PID, ProducerEpoch: r.As.Epoch, TransactionResult: r.Kind == Commit,
		})
		if err != nil {
			return Answer{Class: Silence}
		}
		return Answer{Class: Classify(r.Kind, int16(res.Err), false)}
	case Produce:
		return s.produce(b, r.Batch)
	case Last:
		return s.last(b)
	case Ends:
		return endsReal(b, r)
	default:
		return readReal(b, s.id+"-journal", r)
	}
}

// last answers Last. It knows nothing of repairs, since these brokers lose no ends.
func (s *shell) last(b *sarama.Broker) Answer {
	res, err := b.DescribeTransactions(&sarama.DescribeTransactionsRequest{TransactionalIDs: []string{s.id}})
	if err != nil || len(res.TransactionStates) != 1 {
		return Answer{Class: Silence}
	}
	state := res.TransactionStates[0]
	a := Answer{Class: OK, Outcome: Undone, Producer: Producer{state.ProducerID, state.ProducerEpoch}}
	a.Of = a.Producer
	switch state.TransactionState {
	case sarama.TransactionStatePrepareAbort, sarama.TransactionStatePrepareCommit:
		a.Class = Busy
	case sarama.TransactionStateOngoing:
		a.Outcome = Running
	case sarama.TransactionStateCompleteCommit:
		a.Outcome = Committed
	}
	return a
}

// endsReal asks for the states of producers.
func endsReal(b *sarama.Broker, r *Request) (a Answer) {
	req := &sarama.DescribeProducersRequest{}
	for _, p := range r.Partitions {
		req.Topics = append(req.Topics, sarama.DescribeProducersRequestTopic{Name: p.Topic, PartitionIndexes: []int32{p.Number}})
	}
	res, err := b.DescribeProducers(req)
	if err != nil {
		return Answer{Class: Silence}
	}
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			ended := !r.Marker
			for _, state := range p.ActiveProducers {
				if state.ProducerID == r.Of.PID {
					ended = state.CurrentTxnStartOffset < 0 && (!r.Marker || state.ProducerEpoch >= int32(r.Of.Epoch))
				}
			}
			if !ended {
				a.Open = append(a.Open, Partition{t.Name, p.PartitionIndex})
			}
		}
	}
	if a.Class = OK; len(a.Open) > 0 {
		a.Class = Again
	}
	return a
}

func (s *shell) init(b *sarama.Broker, r *Request) Answer {
	res, err := b.InitProducerID(&sarama.InitProducerIDRequest{
		Version: 4, TransactionalID: &s.id, TransactionTimeout: 30 * time.Second, ProducerID: r.As.PID, ProducerEpoch: r.As.Epoch,
	})
	if err != nil {
		return Answer{Class: Silence}
	}
	return Answer{Class: Classify(Init, int16(res.Err), false), Producer: Producer{res.ProducerID, res.ProducerEpoch}}
}

func (s *shell) add(b *sarama.Broker, r *Request) Answer {
	topics := map[string][]int32{}
	for _, p := range r.Partitions {
		topics[p.Topic] = append(topics[p.Topic], p.Number)
	}
	res, err := b.AddPartitionsToTxn(&sarama.AddPartitionsToTxnRequest{
		Version: 2, TransactionalID: s.id, ProducerID: r.As.PID, ProducerEpoch: r.As.Epoch, TopicPartitions: topics,
	})
	if err != nil {
		return Answer{Class: Silence}
	}
	for _, parts := range res.Errors {
		for _, p := range parts {
			if p.Err != sarama.ErrNoError {
				return Answer{Class: Classify(Add, int16(p.Err), false)}
			}
		}
	}
	return Answer{Class: OK}
}

func (s *shell) produce(b *sarama.Broker, batch *Batch) Answer {
	rb := &sarama.RecordBatch{
		Version: 2, IsTransactional: true, ProducerID: batch.By.PID, ProducerEpoch: batch.By.Epoch, FirstSequence: batch.Seq,
		FirstTimestamp: time.Now(), MaxTimestamp: time.Now(), LastOffsetDelta: batch.count() - 1,
	}
	for i, r := range batch.Records {
		rb.Records = append(rb.Records, &sarama.Record{OffsetDelta: int64(i), Key: r.Row.Key, Value: r.Row.Value})
	}
	for i := range batch.Units {
		rb.Records = append(rb.Records, &sarama.Record{OffsetDelta: int64(i), Value: batch.Units[i].Append(nil)})
	}
	req := &sarama.ProduceRequest{Version: 7, TransactionalID: &s.id, RequiredAcks: sarama.WaitForAll, Timeout: 10_000}
	req.AddBatch(batch.At.Topic, batch.At.Number, rb)
	res, err := b.Produce(req)
	if err != nil {
		return Answer{Class: Silence}
	}
	block := res.GetBlock(batch.At.Topic, batch.At.Number)
	return Answer{Class: Classify(Produce, int16(block.Err), block.Err != 0 && block.Offset >= 0), Offset: block.Offset}
}

// readReal feeds the Reader with what Fetch returns, including aborted batches and markers.
func readReal(b *sarama.Broker, topic string, r *Request) Answer {
	reader, end := NewReader(r), int64(0)
	if reader.ToTheEnd() {
		req := sarama.NewOffsetRequest(sarama.MaxVersion)
		req.AddBlock(topic, 0, sarama.OffsetNewest, 1)
		res, err := b.GetAvailableOffsets(req)
		if err != nil || res.GetBlock(topic, 0) == nil || res.GetBlock(topic, 0).Err != sarama.ErrNoError {
			return Answer{Class: Again}
		}
		end = res.GetBlock(topic, 0).Offset
	}
	for range 200 {
		if reader.ToTheEnd() && reader.Next() >= end {
			return reader.Last()
		}
		req := &sarama.FetchRequest{Version: 11, MaxWaitTime: 100, MinBytes: 1, MaxBytes: 1 << 20, Isolation: sarama.ReadUncommitted}
		req.AddBlock(topic, 0, reader.Next(), 1<<20, -1)
		res, err := b.Fetch(req)
		if err != nil {
			return Answer{Class: Silence}
		}
		block := res.GetBlock(topic, 0)
		switch {
		case block == nil:
			continue
		case block.Err == sarama.ErrOffsetOutOfRange:
			return Answer{Err: ErrJournal}
		case block.Err != sarama.ErrNoError:
			return Answer{Class: Again}
		}
		for _, set := range block.RecordsSet {
			done, err := reader.Feed(logBatch(set.RecordBatch))
			if err != nil {
				return Answer{Err: err}
			}
			if done {
				return reader.Answer()
			}
		}
	}
	return Answer{Class: Again}
}

func logBatch(rb *sarama.RecordBatch) *LogBatch {
	out := &LogBatch{Offset: rb.FirstOffset, By: Producer{rb.ProducerID, rb.ProducerEpoch}, Transactional: rb.IsTransactional}
	for _, r := range rb.Records {
		switch {
		case !rb.Control:
			out.Records = append(out.Records, r.Value)
		case binary.BigEndian.Uint16(r.Key[2:]) == 1:
			out.Control = CommitMarker
		default:
			out.Control = AbortMarker
		}
	}
	return out
}
