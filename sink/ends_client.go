package sink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
)

// This file asks brokers how transactions ended. A coordinator's answer alone is not enough:
// docs/exactly-once.md says why, under "Ends that Kafka loses".

// repairTimeout is the least transaction timeout of an epoch that repairs the missing end of a commit. The
// milliseconds above it are the commit's epoch. The next leader needs that number if we die.
const repairTimeout = 10 * time.Minute

// errIDNotFound says that a coordinator does not know a transactional id. sarama has no name for the code.
const errIDNotFound sarama.KError = 105

// MostRepairTimeout is the longest transaction timeout that stands for a repair. Brokers have to allow it.
const MostRepairTimeout = repairTimeout + (1<<15-1)*time.Millisecond

// timeoutOf returns the transaction timeout of a new epoch. of is the producer whose commit it repairs, or
// nobody.
func (pc *producerIDClient) timeoutOf(of producer) time.Duration {
	switch {
	case of != nobody:
		return repairTimeout + time.Duration(of.Epoch)*time.Millisecond
	case pc.timeout >= repairTimeout && pc.timeout <= MostRepairTimeout:
		return repairTimeout - time.Second
	}
	return pc.timeout
}

// last asks how the last transaction of our transactional id ended.
func (pc *producerIDClient) last(out *exactlyonce.Answer) error {
	c, err := pc.coordinator()
	if err != nil {
		return err
	}
	res, err := c.DescribeTransactions(&sarama.DescribeTransactionsRequest{TransactionalIDs: []string{pc.sink.cfg.TransactionalID}})
	if err != nil {
		return pc.lost(c, err)
	}
	if len(res.TransactionStates) != 1 {
		return fmt.Errorf("DescribeTransactions for transactional id %s: %w", pc.sink.cfg.TransactionalID, sarama.ErrIncompleteResponse)
	}
	state := &res.TransactionStates[0]
	if state.ErrorCode == errIDNotFound {
		out.Outcome, out.Producer = exactlyonce.Undone, exactlyonce.Nobody
		return nil
	}
	if err := pc.classify("DescribeTransactions", state.ErrorCode); err != nil {
		return err
	}
	return outcomeOf(state, out)
}

// outcomeOf reads the outcome from a coordinator's description of the transaction.
func outcomeOf(state *sarama.TransactionState, out *exactlyonce.Answer) error {
	out.Producer = exactlyonce.Producer{PID: state.ProducerID, Epoch: state.ProducerEpoch}
	out.Of = out.Producer
	repairs := state.TransactionTimeout >= repairTimeout && state.TransactionTimeout <= MostRepairTimeout
	if repairs {
		out.Of.Epoch = int16((state.TransactionTimeout - repairTimeout) / time.Millisecond)
	}
	switch s := state.TransactionState; {
	case s == sarama.TransactionStatePrepareCommit, s == sarama.TransactionStatePrepareAbort, s == sarama.TransactionStatePrepareEpochFence:
		return inWords(sarama.ErrConcurrentTransactions)
	case s == sarama.TransactionStateOngoing && repairs:
		out.Outcome = exactlyonce.Repairing
	case s == sarama.TransactionStateOngoing:
		out.Outcome = exactlyonce.Running
	case s == sarama.TransactionStateCompleteCommit, repairs:
		out.Outcome = exactlyonce.Committed
	default:
		out.Outcome = exactlyonce.Undone
	}
	return nil
}

// end is the state of a transaction's end in one partition.
type end struct {
	topicPartition
	behind int64 // offset of the transaction's last record there, or -1
	ended  bool
	shown  bool  // the state of our producer showed it
	err    error // why the state is not known; nil and not ended: the end is not there
}

// gone is the number of tries without a topic after which the topic counts as deleted, with its records.
const gone = 60

// ends asks whether the end of a transaction is in the logs of the partitions.
func (pc *producerIDClient) ends(ctx context.Context, r *exactlyonce.Request, leaders map[topicPartition]string, out *answered) error {
	all := make([]*end, len(r.Partitions))
	for i, p := range r.Partitions {
		all[i] = &end{topicPartition: topicPartition(p), behind: -1}
		if len(r.Behind) > i {
			all[i].behind = r.Behind[i]
		}
	}
	if len(leaders) == 0 || r.Try >= describeAfter {
		leaders = pc.leadersOf(ctx, all, r.Try)
	}
	byLeader := map[string][]*end{}
	for _, e := range all {
		if leader := leaders[e.topicPartition]; leader != "" && !e.ended {
			byLeader[leader] = append(byLeader[leader], e)
		} else if e.err == nil {
			e.err = sarama.ErrLeaderNotAvailable
		}
	}
	var asking sync.WaitGroup
	for leader, these := range byLeader {
		b, err := pc.leader(leader)
		if err != nil {
			fail(these, err)
			continue
		}
		asking.Go(func() {
			if err := endsAt(b, r, these); err != nil {
				fail(these, pc.net.explain(leader, err))
			}
		})
	}
	asking.Wait()
	return pc.judgeEnds(all, leaders, r, out)
}

// fencesAgain is how many times in a row a partition is fenced again because its leader shows no marker. A
// marker is lost only while a partition has no leader, so the next fence's is there. Some brokers never
// show one.
const fencesAgain = 2

// refuseUnfenced refuses the partitions that lack a fence's marker, so that they are fenced again: a
// coordinator may have given the marker up. If no broker can tell, as before Kafka 2.8, the fence holds
// from the first batch.
func (pc *producerIDClient) refuseUnfenced(ctx context.Context, marker producer, targets []topicPartition, res *producerIDResult) {
	refused := res.refused
	r := &exactlyonce.Request{Kind: exactlyonce.Ends, Of: exactlyonce.Producer(marker), Marker: true}
	for _, p := range targets {
		if _, is := refused[p]; !is {
			r.Partitions = append(r.Partitions, exactlyonce.Partition(p))
		}
	}
	out := answered{shown: res.shown}
	_ = pc.ends(ctx, r, nil, &out) // out.missing tells what went wrong
	unseen := map[topicPartition]int{}
	for p, err := range out.missing {
		switch {
		case errors.Is(err, sarama.ErrLeaderNotAvailable):
			refused[p] = sarama.ErrLeaderNotAvailable
		case errors.Is(err, errNoEnd) && pc.unseen[p] < fencesAgain:
			refused[p], unseen[p] = sarama.ErrLeaderNotAvailable, pc.unseen[p]+1
		case errors.Is(err, errNoEnd):
			pc.sink.cfg.Log.Info().Str("topic", p.Topic).Int32("partition", p.Number).
				Msg("the broker shows no marker of the fence: former leaders are kept out from the first batch on")
		}
	}
	pc.unseen = unseen
}

// judgeEnds fills in the answer.
func (pc *producerIDClient) judgeEnds(all []*end, leaders map[topicPartition]string, r *exactlyonce.Request, out *answered) (err error) {
	for i, e := range all {
		switch {
		case e.ended:
			if out.shown != nil {
				out.shown[e.topicPartition] = e.shown
			}
			continue
		case e.err != nil:
			out.answer.Unknown = append(out.answer.Unknown, r.Partitions[i])
			if code := sarama.KError(0); !errors.As(e.err, &code) { // no answer came, so the connection is not used again
				pc.closeLeader(leaders[e.topicPartition])
			}
		default:
			out.answer.Open = append(out.answer.Open, r.Partitions[i])
			e.err = errNoEnd
		}
		if errors.Is(e.err, sarama.ErrLeaderNotAvailable) {
			e.err = errNoLeader
		}
		e.err = fmt.Errorf("topic %s, partition %d: no row goes there before the last transaction is known to have its end there: %w", e.Topic, e.Number, e.err)
		if out.missing == nil {
			out.missing = map[topicPartition]error{}
		}
		if out.missing[e.topicPartition] = e.err; err == nil {
			err = e.err
		}
	}
	out.answer.Class = exactlyonce.OK
	if err != nil {
		out.answer.Class = exactlyonce.Again
	}
	return err
}

var (
	errNoEnd    = errors.New("the marker is not there")
	errNoLeader = fmt.Errorf("it has no leader (%w): are enough of its brokers up, and can they write to their disks?", sarama.ErrLeaderNotAvailable)
)

func fail(these []*end, err error) {
	for _, e := range these {
		e.err = err
	}
}

// leadersOf asks for the leaders of the partitions. If a topic has been gone for long, nothing there is
// left to end.
func (pc *producerIDClient) leadersOf(ctx context.Context, all []*end, try int) map[topicPartition]string {
	topics := map[string]bool{}
	var names []string
	for _, e := range all {
		if !topics[e.Topic] {
			topics[e.Topic] = true
			names = append(names, e.Topic)
		}
	}
	infos, err := pc.metadata.ask(ctx, &metadataRequest{topics: names})
	leaders := map[topicPartition]string{}
	for _, e := range all {
		info := infos[e.Topic]
		switch {
		case err != nil:
			e.err = err
		case info.code == sarama.ErrUnknownTopicOrPartition, info.code == sarama.ErrNoError && int(e.Number) >= len(info.leaders):
			e.err, e.ended = sarama.ErrUnknownTopicOrPartition, try >= gone
		case int(e.Number) >= len(info.leaders):
			e.err = info.code
		default:
			leaders[e.topicPartition] = info.leaders[e.Number]
		}
	}
	return leaders
}

// leader returns a connection to a partition's leader.
func (pc *producerIDClient) leader(addr string) (*sarama.Broker, error) {
	if b := pc.leads[addr]; b != nil {
		return b, nil
	}
	b, err := pc.net.open(addr)
	if err == nil {
		pc.leads[addr] = b
	}
	return b, err
}

func (pc *producerIDClient) closeLeader(addr string) {
	if b := pc.leads[addr]; b != nil {
		_ = b.Close()
		delete(pc.leads, addr)
	}
}

func (pc *producerIDClient) closeLeaders() {
	for addr := range pc.leads {
		pc.closeLeader(addr)
	}
}

// describeAfter is the number of tries that ask only for last stable offsets. Markers take some
// milliseconds.
const describeAfter = 3

// endsAt asks one leader. If the last stable offset is after the transaction's last record, the transaction
// has ended, and its end is replicated. Transactions of other producers can hold that offset up. Then
// endsAt asks for the state of our producer.
func endsAt(b *sarama.Broker, r *exactlyonce.Request, these []*end) error {
	if len(r.Behind) > 0 {
		stable, err := offsets(b, these, sarama.ReadCommitted)
		if err != nil {
			return err
		}
		for _, e := range these {
			at, is := stable[e.topicPartition]
			e.ended = is && e.behind >= 0 && at > e.behind
		}
		if r.Try < describeAfter {
			return nil
		}
	}
	return describeEnds(b, r, these)
}

// offsets returns the ends of the partitions' logs, as readers of this isolation level see them.
func offsets(b *sarama.Broker, these []*end, level sarama.IsolationLevel) (map[topicPartition]int64, error) {
	req := sarama.NewOffsetRequest(sarama.MaxVersion)
	req.IsolationLevel = level
	for _, e := range these {
		req.AddBlock(e.Topic, e.Number, sarama.OffsetNewest, 1)
	}
	res, err := b.GetAvailableOffsets(req)
	if err != nil {
		return nil, err
	}
	at := map[topicPartition]int64{}
	for _, e := range these {
		switch block := res.GetBlock(e.Topic, e.Number); {
		case block == nil:
			e.err = sarama.ErrIncompleteResponse
		case block.Err != sarama.ErrNoError:
			e.err = block.Err
		default:
			at[e.topicPartition] = block.Offset
		}
	}
	return at, nil
}

// describeEnds asks for the state of our producer in the partitions.
func describeEnds(b *sarama.Broker, r *exactlyonce.Request, these []*end) error {
	req, at := &sarama.DescribeProducersRequest{}, map[topicPartition]*end{}
	topics := map[string]int{}
	for _, e := range these {
		if e.ended || e.err != nil {
			continue
		}
		at[e.topicPartition] = e
		i, is := topics[e.Topic]
		if !is {
			i = len(req.Topics)
			topics[e.Topic] = i
			req.Topics = append(req.Topics, sarama.DescribeProducersRequestTopic{Name: e.Topic})
		}
		req.Topics[i].PartitionIndexes = append(req.Topics[i].PartitionIndexes, e.Number)
		e.err = sarama.ErrIncompleteResponse
	}
	if len(at) == 0 {
		return nil
	}
	res, err := b.DescribeProducers(req)
	if err != nil {
		return err
	}
	var unread []*end
	for _, t := range res.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			e := at[topicPartition{t.Name, p.PartitionIndex}]
			switch {
			case e == nil:
			case p.ErrorCode == sarama.ErrTopicAuthorizationFailed:
				e.err = nil
				unread = append(unread, e)
			case p.ErrorCode != sarama.ErrNoError:
				e.err = p.ErrorCode
			default:
				e.ended, e.err = hasEnd(r, p.ActiveProducers), nil
				e.shown = e.ended
			}
		}
	}
	return stableEnds(b, unread)
}

// hasEnd reports whether the producer's state shows the end that the request asks for.
func hasEnd(r *exactlyonce.Request, producers []sarama.ProducerState) bool {
	for i := range producers {
		p := &producers[i]
		if p.ProducerID != r.Of.PID {
			continue
		}
		open := p.CurrentTxnStartOffset >= 0
		if r.Marker {
			return !open && p.ProducerEpoch >= int32(r.Of.Epoch)
		}
		return !open || p.ProducerEpoch != int32(r.Of.Epoch)
	}
	return !r.Marker
}

// stableEnds judges partitions that we may not read: the end is there if no transaction at all is open.
func stableEnds(b *sarama.Broker, these []*end) error {
	if len(these) == 0 {
		return nil
	}
	stable, err := offsets(b, these, sarama.ReadCommitted)
	if err != nil {
		return err
	}
	all, err := offsets(b, these, sarama.ReadUncommitted)
	if err != nil {
		return err
	}
	for _, e := range these {
		at, is := stable[e.topicPartition]
		high, both := all[e.topicPartition]
		if e.ended = is && both && at >= high; !e.ended && e.err == nil {
			e.err = fmt.Errorf("%w: our user may not see whose transaction is open there: grant it READ on the topic", sarama.ErrTopicAuthorizationFailed)
		}
	}
	return nil
}
