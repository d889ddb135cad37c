package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/failpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
)

const (
	// coordinatorTimeout is how long the answer of a transaction coordinator, or to a fetch, may take.
	coordinatorTimeout = 5 * time.Second
	// transactionTimeout is the time after which a coordinator ends an empty transaction of ours by itself.
	// It raises the epoch then, so EndTxn must have got through long before.
	transactionTimeout = time.Minute
	// sealTimeout is how long to wait for the end of a fence. A partition without a leader delays it. In
	// the other partitions our first batch fences older producers anyway.
	sealTimeout = 15 * time.Second
	// fetchBytes is how much of a partition's log is read at once, in bytes.
	fetchBytes = 4 << 20
)

// These errors say why former leaders are not fenced.
var (
	// errNoACL says that our user may not use the transactional id.
	errNoACL = errors.New("transactional id not authorised")
	// ErrNoTransactions says that the brokers do not offer transactional ids.
	ErrNoTransactions = errors.New("the brokers have no transactions")
	// errNoCoordinator says that a broker names no coordinator, and does not ask us to wait either. Azure
	// Event Hubs does so, with an error or by closing the connection, if the tier has no transactions.
	// Other brokers do so while they start or stop.
	errNoCoordinator = errors.New("the broker names no transaction coordinator")
)

// refusals is how many times in a row fencing must be refused, within some 2.5 s, before the process goes
// on without it for the rest of its life.
const refusals = 10

// producerIDClient obtains and keeps the producer id and epoch, fences partitions against older producers,
// and finds out whether batches were appended. It does one job at a time.
type producerIDClient struct {
	sink     *Sink
	net      *network
	metadata *metadataClient // used to find any broker
	jobs     *mailbox.Mailbox[*producerIDJob]
	events   *mailbox.Mailbox[event]

	id      producer
	fencing bool
	timeout time.Duration // of transactions
	coord   *sarama.Broker
	leads   map[string]*sarama.Broker // connections to partitions' leaders, for ends
	unseen  map[topicPartition]int    // how many times in a row a fence's marker was missing
}

// run obtains a producer id, and then does jobs until ctx ends or the producer id is lost for good.
func (pc *producerIDClient) run(ctx context.Context) {
	defer pc.closeCoordinator()
	defer pc.closeLeaders()
	defer pc.metadata.close()
	pc.timeout = transactionTimeout
	pc.id, pc.fencing = nobody, pc.sink.cfg.TransactionalID != ""
	pc.leads = map[string]*sarama.Broker{}
	if tx := pc.sink.cfg.Transactions; tx != nil { // the Machine asks for the first id
		pc.timeout = tx.Timeout
	} else {
		if err := pc.insist(ctx, func() error { return pc.start(ctx) }); err != nil {
			pc.end(err)
			return
		}
		state := FencingOn
		switch {
		case pc.sink.cfg.TransactionalID == "":
			state = FencingOff
		case !pc.fencing:
			state = FencingRefused
		}
		pc.sink.fencing.Store(int32(state))
		pc.events.Put(event{started: &started{pc.id, pc.fencing}})
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-pc.jobs.Ready():
		}
		for _, job := range pc.jobs.Take(nil) {
			if err := pc.do(ctx, job); err != nil {
				pc.end(err)
				return
			}
		}
	}
}

// end reports the loss of the producer id. The end of ctx is no loss.
func (pc *producerIDClient) end(err error) {
	if !errors.Is(err, context.Canceled) {
		pc.events.Put(event{fatal: err})
	}
}

// insist repeats a step until it succeeds, ctx ends, or the producer id is lost.
func (pc *producerIDClient) insist(ctx context.Context, step func() error) error {
	for failures := 1; ; failures++ {
		err := step()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Canceled
		case errors.Is(err, ErrFenced):
			return err
		}
		pc.events.Put(event{trouble: err})
		pc.closeCoordinatorOn(err)
		if wait.Sleep(ctx, backoff(failures, backoffMax)) != nil {
			return context.Canceled
		}
	}
}

// start obtains the first producer id. Only this request supersedes an older producer: every later one
// names the producer id that we hold. So it fails if we were superseded ourselves.
func (pc *producerIDClient) start(ctx context.Context) error {
	if !pc.fencing {
		return pc.initPlain()
	}
	err := pc.initFirst(ctx)
	log := pc.sink.cfg.Log.Error().Str("transactional_id", pc.sink.cfg.TransactionalID)
	switch {
	case !errors.Is(err, errNoACL) && !errors.Is(err, ErrNoTransactions):
		return err
	case pc.sink.cfg.RequireFencing:
		return fmt.Errorf("nothing is published without fencing (fencing: required): %w", err)
	case errors.Is(err, errNoACL):
		log.Msg("NOT FENCED: our user lacks WRITE on the transactional id, so a stopped and continued process can publish duplicates; grant it and restart")
	default:
		log.Err(err).Msg("NOT FENCED: the brokers have no transactions, so a stopped and continued process can publish duplicates; fencing: off accepts that")
	}
	pc.fencing = false
	return pc.initPlain()
}

// initFirst is init, repeated while it is refused, at most refusals times.
func (pc *producerIDClient) initFirst(ctx context.Context) error {
	for tries := 1; ; tries++ {
		err := pc.init(nobody)
		refused := errors.Is(err, errNoCoordinator)
		switch {
		case !refused && !errors.Is(err, errNoACL): // a grant may still be on its way to the brokers, so errNoACL is repeated, too
			return err
		case tries == refusals && refused:
			return fmt.Errorf("%w: %w", ErrNoTransactions, err)
		case tries == refusals:
			return err
		}
		if wait.Sleep(ctx, backoff(tries, backoffMax)) != nil {
			return context.Canceled
		}
	}
}

// do carries out one job and reports the result.
func (pc *producerIDClient) do(ctx context.Context, job *producerIDJob) error {
	switch {
	case job.keepAlive != nil:
		return pc.keepAlive(ctx, *job.keepAlive)
	case job.request != nil:
		return pc.transact(ctx, job)
	}
	res := producerIDResult{shown: map[topicPartition]bool{}, tails: map[topicPartition]int64{}, refused: map[topicPartition]sarama.KError{}}
	if err := pc.seal(ctx, job, &res); err != nil {
		return err
	}
	pc.tails(job.fence, res.tails)
	for _, s := range job.resolve {
		res.found = append(res.found, pc.search(ctx, s, res.refused))
	}
	res.id = pc.id
	pc.events.Put(event{jobDone: &res})
	return nil
}

// seal makes sure that no batch of an older epoch can be appended to the job's partitions any more: neither
// another producer's nor, for batches to be resolved, our own. It ends with a new epoch, or, without
// fencing, with a new producer id.
func (pc *producerIDClient) seal(ctx context.Context, job *producerIDJob, res *producerIDResult) error {
	unsealed := false
	targets := make([]topicPartition, 0, len(job.fence)+len(job.resolve))
	for _, f := range job.fence {
		if res.shown[f.topicPartition] = f.spared; !f.spared {
			targets = append(targets, f.topicPartition)
		}
	}
	for _, s := range job.resolve {
		if !s.sealed {
			unsealed = true
			targets = append(targets, s.topicPartition)
		}
	}
	seal := func() error { return pc.fence(ctx, targets, unsealed, res) }
	switch {
	case len(targets) == 0:
		seal = func() error { return nil }
	case !pc.fencing:
		seal = pc.initPlain
		if unsealed && wait.Sleep(ctx, pc.sink.cfg.RequestTimeout/2) != nil {
			return context.Canceled // without fencing nothing refuses late batches, so they get time to arrive
		}
	}
	err := pc.insist(ctx, seal)
	for _, f := range job.fence {
		if _, refused := res.refused[f.topicPartition]; !refused {
			res.fenced = append(res.fenced, f.topicPartition)
		}
	}
	return err
}

// fence is Init, AddPartitionsToTxn, EndTxn(abort), Init. The abort's marker raises the epoch in each
// partition. The last Init is answered only when no marker is outstanding; it does not show whether one was
// given up. The first Init is needed only against batches of our own epoch.
func (pc *producerIDClient) fence(ctx context.Context, targets []topicPartition, own bool, res *producerIDResult) error {
	if own {
		if err := pc.init(pc.id); err != nil {
			return err
		}
	}
	added, err := pc.add(targets, res.refused)
	if err != nil || !added {
		return err
	}
	if err := pc.abort(); err != nil {
		return err
	}
	deadline, marker := time.Now().Add(sealTimeout), pc.id
	for failures := 1; ; failures++ {
		err := pc.init(pc.id)
		if !errors.Is(err, sarama.ErrConcurrentTransactions) {
			if err == nil {
				pc.refuseUnfenced(ctx, marker, targets, res)
			}
			return err
		}
		if time.Now().After(deadline) {
			pc.sink.cfg.Log.Warn().
				Msg("a partition has no leader, so it is not known whether older producers can still write to it; others are served")
			return nil
		}
		if wait.Sleep(ctx, backoff(failures, 100*time.Millisecond)) != nil {
			return context.Canceled
		}
	}
}

// keepAlive refreshes the id by an empty transaction. Once partitions are added, its end is repeated until
// it succeeds, see transactionTimeout.
func (pc *producerIDClient) keepAlive(ctx context.Context, p topicPartition) error {
	refused, added := map[topicPartition]sarama.KError{}, false
	err := pc.insist(ctx, func() (err error) {
		added, err = pc.add([]topicPartition{p}, refused)
		return err
	})
	if err == nil && added {
		err = pc.insist(ctx, pc.abort)
	}
	if err != nil {
		return err
	}
	pc.events.Put(event{jobDone: &producerIDResult{id: pc.id}})
	return nil
}

// ---- requests to the coordinator ----

// init asks for a new epoch. It supersedes held only; if held is nobody, it supersedes the present holder of
// the transactional id.
func (pc *producerIDClient) init(held producer) error { return pc.initFor(held, nobody) }

// initFor asks for a new epoch like init. Unless of is nobody, the epoch serves to repair the end of of's
// commit.
func (pc *producerIDClient) initFor(held, of producer) error {
	c, err := pc.coordinator()
	if err != nil {
		return err
	}
	res, err := c.InitProducerID(&sarama.InitProducerIDRequest{
		Version: 4, TransactionalID: &pc.sink.cfg.TransactionalID, TransactionTimeout: pc.timeoutOf(of),
		ProducerID: held.PID, ProducerEpoch: held.Epoch,
	})
	if err != nil {
		return pc.lost(c, err)
	}
	if of != nobody && res.Err == sarama.ErrInvalidTransactionTimeout {
		return fmt.Errorf("InitProducerId for transactional id %s, to bring about the missing end of a transaction: brokers need a transaction.max.timeout.ms of at least %d (%w)",
			pc.sink.cfg.TransactionalID, MostRepairTimeout.Milliseconds(), res.Err)
	}
	if err := pc.classify("InitProducerId", res.Err); err != nil {
		return err
	}
	pc.id = producer{res.ProducerID, res.ProducerEpoch}
	return nil
}

// initPlain asks for a new producer id, without a transactional id.
func (pc *producerIDClient) initPlain() error {
	b, err := pc.anyBroker()
	if err != nil {
		return err
	}
	res, err := b.InitProducerID(&sarama.InitProducerIDRequest{Version: 4, ProducerID: -1, ProducerEpoch: -1})
	if err != nil {
		pc.metadata.close()
		return pc.net.explain(b.Addr(), err)
	}
	switch res.Err {
	case sarama.ErrNoError:
	case sarama.ErrClusterAuthorizationFailed:
		return fmt.Errorf("InitProducerId: grant IDEMPOTENT_WRITE on the cluster, or WRITE on a topic, to our user: %w", res.Err)
	default:
		return fmt.Errorf("InitProducerId: %w", res.Err)
	}
	pc.id = producer{res.ProducerID, res.ProducerEpoch}
	return nil
}

// add adds the partitions to a transaction, except for those that are refused, and reports whether any were
// added. It puts the refused ones into refused. It repeats the request at once only without a partition
// that was refused, so at most once for each of them.
func (pc *producerIDClient) add(targets []topicPartition, refused map[topicPartition]sarama.KError) (bool, error) {
	for left := len(targets) + 1; ; {
		topics, n := map[string][]int32{}, 0
		for _, p := range targets {
			if _, is := refused[p]; !is {
				topics[p.Topic] = append(topics[p.Topic], p.Number)
				n++
			}
		}
		switch {
		case n == 0:
			return false, nil
		case n >= left:
			return false, fmt.Errorf("AddPartitionsToTxn for transactional id %s: %w", pc.sink.cfg.TransactionalID, sarama.ErrOperationNotAttempted)
		}
		left = n
		again, err := pc.addOnce(topics, refused)
		if !again {
			return err == nil, err
		}
	}
}

func (pc *producerIDClient) addOnce(topics map[string][]int32, refused map[topicPartition]sarama.KError) (again bool, err error) {
	c, err := pc.coordinator()
	if err != nil {
		return false, err
	}
	r, err := c.AddPartitionsToTxn(&sarama.AddPartitionsToTxnRequest{
		Version: 3, TransactionalID: pc.sink.cfg.TransactionalID,
		ProducerID: pc.id.PID, ProducerEpoch: pc.id.Epoch, TopicPartitions: topics,
	})
	if err != nil {
		return false, pc.lost(c, err)
	}
	for topic, parts := range r.Errors {
		for _, p := range parts {
			switch p.Err {
			case sarama.ErrNoError:
			case sarama.ErrOperationNotAttempted: // only because another one was refused
				again = true
			case sarama.ErrTopicAuthorizationFailed, sarama.ErrUnknownTopicOrPartition, sarama.ErrInvalidTopic:
				again = true
				if slices.Contains(topics[topic], p.Partition) {
					refused[topicPartition{topic, p.Partition}] = p.Err
				}
			default:
				if err := pc.classify("AddPartitionsToTxn", p.Err); err != nil {
					return false, err
				}
			}
		}
	}
	return again, nil
}

func (pc *producerIDClient) abort() error {
	err := pc.endTxn(false)
	if errors.Is(err, sarama.ErrInvalidTxnState) {
		return nil // it has ended already, and the answer to that was lost
	}
	return err
}

func (pc *producerIDClient) endTxn(commit bool) error {
	c, err := pc.coordinator()
	if err != nil {
		return err
	}
	if commit {
		if err := failpoint.Here(failpoint.BeforeCommit); err != nil {
			return pc.lost(c, err)
		}
	}
	res, err := c.EndTxn(&sarama.EndTxnRequest{
		Version: 3, TransactionalID: pc.sink.cfg.TransactionalID,
		ProducerID: pc.id.PID, ProducerEpoch: pc.id.Epoch, TransactionResult: commit,
	})
	if err != nil {
		return pc.lost(c, err)
	}
	return pc.classify("EndTxn", res.Err)
}

// classify returns the error for a code in a coordinator's answer.
func (pc *producerIDClient) classify(what string, code sarama.KError) error {
	switch code {
	case sarama.ErrNoError:
		return nil
	case sarama.ErrProducerFenced, sarama.ErrInvalidProducerEpoch, sarama.ErrInvalidProducerIDMapping:
		// ErrInvalidProducerIDMapping: the id has expired, so it is not known who came after us.
		return fmt.Errorf("%s for transactional id %s on Kafka cluster %s: %w (%w)", what, pc.sink.cfg.TransactionalID, pc.sink.cfg.Cluster, ErrFenced, inWords(code))
	case sarama.ErrTransactionalIDAuthorizationFailed:
		return fmt.Errorf("%s for transactional id %s: grant WRITE on it to our user: %w (%w)", what, pc.sink.cfg.TransactionalID, errNoACL, code)
	case sarama.ErrInvalidTransactionTimeout: // transaction.max.timeout.ms is lower
		pc.timeout = max(pc.timeout/2, time.Second)
	case sarama.ErrNotCoordinatorForConsumer, sarama.ErrConsumerCoordinatorNotAvailable:
		pc.closeCoordinator() // the coordinator has moved
	}
	return fmt.Errorf("%s for transactional id %s: %w", what, pc.sink.cfg.TransactionalID, inWords(code))
}

// unknownHint is the hint for sarama.ErrUnknown.
const unknownHint = " (the broker's log has the reason; if it lasts, restart that broker)"

// inWords returns an error for the code. It adds a text where sarama's does not say what to look at.
func inWords(code sarama.KError) error {
	switch code {
	case sarama.ErrUnknown:
		return fmt.Errorf("%w%s", code, unknownHint)
	case sarama.ErrProducerFenced:
		return fmt.Errorf("there is a newer producer with the same transactional id, code %d", int16(code))
	case sarama.ErrConcurrentTransactions:
		return fmt.Errorf("the last transaction is not ended yet: while this lasts, a partition of it has no leader, or there are fewer in-sync replicas than required (%w)", code)
	}
	return code
}

// lost closes the connection to the coordinator.
func (pc *producerIDClient) lost(c *sarama.Broker, err error) error {
	pc.closeCoordinator()
	return &noAnswer{pc.net.explain(c.Addr(), err)}
}

// noAnswer is the error of a request without an answer: it may have taken effect, or may still do so.
type noAnswer struct{ error }

func (e *noAnswer) Unwrap() error { return e.error }

// coordinator returns a connection to the coordinator of our transactional id.
func (pc *producerIDClient) coordinator() (*sarama.Broker, error) {
	if pc.coord != nil {
		return pc.coord, nil
	}
	b, err := pc.anyBroker()
	if err != nil {
		return nil, err
	}
	if err := canFence(b); err != nil {
		pc.metadata.close()
		return nil, pc.net.explain(b.Addr(), err)
	}
	res, err := b.FindCoordinator(&sarama.FindCoordinatorRequest{
		Version: 2, CoordinatorKey: pc.sink.cfg.TransactionalID, CoordinatorType: sarama.CoordinatorTransaction,
	})
	if err != nil {
		pc.metadata.close()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%w: %w", errNoCoordinator, pc.net.explain(b.Addr(), err))
		}
		return nil, pc.net.explain(b.Addr(), err)
	}
	switch {
	case res.Err == sarama.ErrTransactionalIDAuthorizationFailed:
		return nil, fmt.Errorf("finding the transaction coordinator: %w (%w)", errNoACL, res.Err)
	case res.Err == sarama.ErrConsumerCoordinatorNotAvailable:
		return nil, fmt.Errorf("finding the transaction coordinator: %w (if it lasts: a partition of __transaction_state may have no leader, or transaction.state.log.replication.factor may be larger than the number of brokers)", res.Err)
	case res.Err == sarama.ErrOffsetsLoadInProgress, res.Err == sarama.ErrRequestTimedOut, res.Err == sarama.ErrNotCoordinatorForConsumer:
		return nil, refusal(res)
	case res.Err != sarama.ErrNoError:
		return nil, fmt.Errorf("%w: %w", errNoCoordinator, refusal(res))
	case res.Coordinator == nil:
		return nil, fmt.Errorf("finding the transaction coordinator: %w", sarama.ErrConsumerCoordinatorNotAvailable)
	}
	pc.coord, err = pc.net.open(res.Coordinator.Addr())
	return pc.coord, err
}

func refusal(res *sarama.FindCoordinatorResponse) error {
	err := fmt.Errorf("finding the transaction coordinator: %w", res.Err)
	if res.ErrMsg != nil && *res.ErrMsg != "" {
		err = fmt.Errorf("%w: %.200s", err, *res.ErrMsg)
	}
	return err
}

func (pc *producerIDClient) closeCoordinator() {
	if pc.coord != nil {
		_ = pc.coord.Close()
		pc.coord = nil
	}
}

// closeCoordinatorOn closes the connection, unless the coordinator has only asked us to wait.
func (pc *producerIDClient) closeCoordinatorOn(err error) {
	if !errors.Is(err, sarama.ErrConcurrentTransactions) && !errors.Is(err, sarama.ErrOffsetsLoadInProgress) {
		pc.closeCoordinator()
	}
}

// anyBroker returns a connection to some broker.
func (pc *producerIDClient) anyBroker() (*sarama.Broker, error) {
	if pc.metadata.conn != nil {
		return pc.metadata.conn, nil
	}
	_, err := pc.metadata.ask(pc.net.ctx, &metadataRequest{})
	return pc.metadata.conn, err
}

// ---- the log ----

// tails finds the log ends of newly fenced partitions. Searches start from there. If one is not found, the
// search reads more, and nothing else happens.
func (pc *producerIDClient) tails(targets []fenceTarget, into map[topicPartition]int64) {
	byLeader := map[string][]topicPartition{}
	for _, t := range targets {
		byLeader[t.leader] = append(byLeader[t.leader], t.topicPartition)
	}
	for leader, places := range byLeader {
		if b, err := pc.net.open(leader); err == nil {
			_ = listOffsets(b, places, sarama.OffsetNewest, into)
			_ = b.Close()
		}
	}
}

func listOffsets(b *sarama.Broker, places []topicPartition, at int64, into map[topicPartition]int64) error {
	req := sarama.NewOffsetRequest(sarama.MaxVersion)
	for _, p := range places {
		req.AddBlock(p.Topic, p.Number, at, 1)
	}
	res, err := b.GetAvailableOffsets(req)
	if err != nil {
		return err
	}
	for _, p := range places {
		if block := res.GetBlock(p.Topic, p.Number); block != nil && block.Err == sarama.ErrNoError {
			into[p] = block.Offset
		} else if block != nil {
			err = block.Err
		}
	}
	return err
}

// search looks for a batch in the partition log. The partition is sealed, so a batch that is not there
// below the high watermark will never be there.
func (pc *producerIDClient) search(ctx context.Context, s search, refused map[topicPartition]sarama.KError) searched {
	out := searched{batch: s.batch, sealed: true}
	if code, ok := refused[s.topicPartition]; ok {
		out.sealed = s.sealed
		out.err = fmt.Errorf("fencing partition %d of topic %s: %w", s.Number, s.Topic, code)
		return out
	}
	if !s.look {
		return out
	}
	b, err := pc.reader(ctx, &s)
	if err != nil {
		out.err = err
		return out
	}
	defer func() { _ = b.Close() }()
	out.offset, out.found, out.err = scan(ctx, b, s)
	if errors.Is(out.err, sarama.ErrTopicAuthorizationFailed) {
		pc.sink.cfg.Log.Error().Str("topic", s.Topic).Int32("partition", s.Number).Int("rows", s.n).
			Msg("cannot look whether a batch with lost answer landed, so it is sent again and its rows may be in the topic twice: grant READ on the topic to our user")
		out.err = nil
	}
	return out
}

// reader connects to the partition's present leader. If the topic was deleted and made again since, the
// offsets that we know mean nothing.
func (pc *producerIDClient) reader(ctx context.Context, s *search) (*reader, error) {
	infos, err := pc.metadata.ask(ctx, &metadataRequest{topics: []string{s.Topic}})
	if err != nil {
		return nil, err
	}
	info := infos[s.Topic]
	switch {
	case info.code != sarama.ErrNoError:
		return nil, fmt.Errorf("finding the leader of topic %s, partition %d: %w", s.Topic, s.Number, info.code)
	case int(s.Number) >= len(info.leaders):
		return nil, fmt.Errorf("finding the leader of topic %s, partition %d: it has %d partitions: %w", s.Topic, s.Number, len(info.leaders), sarama.ErrUnknownTopicOrPartition)
	case info.leaders[s.Number] == "":
		return nil, fmt.Errorf("topic %s, partition %d has no leader", s.Topic, s.Number)
	}
	if info.uuid != s.uuid {
		s.from = -1
	}
	return pc.net.openReader(info.leaders[s.Number])
}

// scan reads the partition's log from the offset where the batch must be, if it is there, up to the high
// watermark of the first answer. It goes back to the start of the log at most once.
func scan(ctx context.Context, b *reader, s search) (offset int64, found bool, err error) {
	from, end, back := s.from, int64(-1), false
	for ctx.Err() == nil {
		if from < 0 {
			start := map[topicPartition]int64{}
			if err := listOffsets(b.Broker, []topicPartition{s.topicPartition}, sarama.OffsetOldest, start); err != nil {
				return 0, false, fmt.Errorf("finding the start of topic %s, partition %d: %w", s.Topic, s.Number, err)
			}
			from = start[s.topicPartition]
		}
		block, err := b.fetch(s.topicPartition, from)
		switch {
		case errors.Is(err, sarama.ErrOffsetOutOfRange) && !back:
			from, back = -1, true // the log was truncated, or the topic was made again
			continue
		case err != nil:
			return 0, false, fmt.Errorf("reading topic %s, partition %d from offset %d: %w", s.Topic, s.Number, from, err)
		}
		if end < 0 {
			end = block.high
		}
		next, offset, found := s.in(block, from)
		if found || next >= end {
			return offset, found, nil
		}
		if next == from {
			return 0, false, fmt.Errorf("reading topic %s, partition %d: nothing at offset %d below the high watermark %d", s.Topic, s.Number, from, end)
		}
		from = next
	}
	return 0, false, context.Canceled
}

// in looks for the batch among the fetched ones, and returns where to go on.
func (s search) in(block *fetched, from int64) (next, offset int64, found bool) {
	next = from
	for _, h := range block.headers {
		if !h.control && h.pid == s.as.PID && h.epoch == s.as.Epoch && h.sequence == s.seq && int(h.last-h.first)+1 == s.n {
			return next, h.first, true
		}
		next = max(next, h.last+1)
	}
	return next, 0, false
}
