package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
)

// This file has the producerIDClient's part in exactly-once delivery. It sends each request of an
// exactlyonce.Machine once, and decides nothing itself.

func (pc *producerIDClient) transact(ctx context.Context, job *producerIDJob) error {
	r := job.request
	if wait.Sleep(ctx, again(r.Try)) != nil {
		return context.Canceled
	}
	out := answered{request: r, refused: map[topicPartition]sarama.KError{}}
	err := pc.carryOut(ctx, job, &out)
	if out.answer.Class == 0 {
		out.answer.Class = classOf(r.Kind, err)
	}
	switch {
	case err == nil, out.answer.Class == exactlyonce.Ended: // Ended is an answer: there is nothing left to end
	case r.Kind == exactlyonce.Ends:
		if r.Try >= describeAfter { // before that, markers may still be on their way
			pc.events.Put(event{trouble: err})
		}
	default:
		pc.events.Put(event{trouble: err})
		pc.closeCoordinatorOn(err)
	}
	pc.events.Put(event{answered: &out})
	return nil
}

// again returns the wait before a request is repeated. The markers of a transaction take milliseconds.
func again(try int) time.Duration {
	if try == 0 {
		return 0
	}
	return min(time.Millisecond<<min(try-1, 10), backoffMax)
}

// carryOut sends the request. It fills in everything of the answer that its class does not tell.
func (pc *producerIDClient) carryOut(ctx context.Context, job *producerIDJob, out *answered) (err error) {
	r := job.request
	as := producer(r.As)
	if r.Kind != exactlyonce.Init {
		pc.id = as
	}
	switch r.Kind {
	case exactlyonce.Init:
		if err = pc.initFor(as, producer(r.Of)); err == nil {
			out.answer.Producer = exactlyonce.Producer(pc.id)
			pc.sink.fencing.Store(int32(FencingOn))
		}
	case exactlyonce.Add:
		err = pc.addAll(r.Partitions, out)
	case exactlyonce.Abort, exactlyonce.Commit:
		err = pc.endTxn(r.Kind == exactlyonce.Commit)
	case exactlyonce.Last:
		err = pc.last(&out.answer)
	case exactlyonce.Ends:
		err = pc.ends(ctx, r, job.leaders, out)
	case exactlyonce.Read:
		out.answer, err = pc.readJournal(ctx, r)
		if errors.Is(err, exactlyonce.ErrJournal) {
			out.answer.Err = err
		}
	}
	return err
}

// addAll adds all of the partitions, or none.
func (pc *producerIDClient) addAll(partitions []exactlyonce.Partition, out *answered) error {
	topics := map[string][]int32{}
	for _, p := range partitions {
		topics[p.Topic] = append(topics[p.Topic], p.Number)
	}
	refused, err := pc.addOnce(topics, out.refused)
	if err != nil || !refused {
		return err
	}
	out.answer.Class = exactlyonce.Refused
	for p, code := range out.refused {
		err = fmt.Errorf("adding topic %s, partition %d, to a transaction: %w", p.Topic, p.Number, code)
		out.answer.Refused = append(out.answer.Refused, exactlyonce.Partition(p))
	}
	return err
}

// classOf returns the class of the answer, for the error that a request led to.
func classOf(kind exactlyonce.Kind, err error) exactlyonce.Class {
	var code sarama.KError
	switch {
	case err == nil:
		return exactlyonce.OK
	case is[*noAnswer](err):
		return exactlyonce.Silence
	case errors.Is(err, ErrFenced):
		if kind == exactlyonce.Commit {
			return exactlyonce.Silence
		}
		return exactlyonce.Superseded
	case kind != exactlyonce.Read && errors.As(err, &code):
		return exactlyonce.Classify(kind, int16(code), false)
	}
	return exactlyonce.Again // nothing was sent, or the request only reads
}

// readJournal reads the journal up to the marker that the request names. A broker that has just begun to
// lead the journal may not know its end yet, so it gets some time.
func (pc *producerIDClient) readJournal(ctx context.Context, r *exactlyonce.Request) (answer exactlyonce.Answer, err error) {
	at := topicPartition{pc.sink.cfg.Transactions.Journal, 0}
	b, err := pc.reader(ctx, &search{fenceTarget: fenceTarget{topicPartition: at}})
	if err != nil {
		return answer, err
	}
	defer func() { _ = b.Close() }()
	reader, progress, end := exactlyonce.NewReader(r), time.Now(), int64(-1)
	if reader.ToTheEnd() { // a leader that does not know the log's end yet returns an error
		ends := map[topicPartition]int64{}
		if err := listOffsets(b.Broker, []topicPartition{at}, sarama.OffsetNewest, ends); err != nil {
			return answer, fmt.Errorf("finding the end of the journal, topic %s: %w", at.Topic, err)
		}
		end = ends[at]
	}
	waitForEnd := 10 * pc.sink.cfg.OutageAfter
	for ctx.Err() == nil {
		if reader.ToTheEnd() && reader.Next() >= end {
			return reader.Last(), nil
		}
		block, err := b.fetch(at, reader.Next())
		switch {
		case errors.Is(err, sarama.ErrOffsetOutOfRange):
			return answer, fmt.Errorf("%w: topic %s has no offset %d", exactlyonce.ErrJournal, at.Topic, reader.Next())
		case err != nil:
			return answer, fmt.Errorf("reading the journal, topic %s, from offset %d: %w", at.Topic, reader.Next(), err)
		}
		before := reader.Next()
		done, err := feedJournal(reader, block.headers)
		switch {
		case err != nil:
			return answer, fmt.Errorf("%w: topic %s: %w", exactlyonce.ErrJournal, at.Topic, err)
		case done:
			return reader.Answer(), nil
		case reader.Next() > before:
			progress = time.Now()
		case time.Since(progress) > waitForEnd:
			return answer, fmt.Errorf("%w: topic %s ends at offset %d, before what was written last", exactlyonce.ErrJournal, at.Topic, before)
		}
	}
	return answer, context.Canceled
}

// feedJournal passes batches to the reader. It reports whether the marker was reached, or enough was read.
func feedJournal(reader *exactlyonce.Reader, headers []header) (done bool, err error) {
	for i := range headers {
		b, err := logBatch(&headers[i])
		if err != nil {
			return false, err
		}
		if done, err := reader.Feed(b); done || err != nil {
			return done, err
		}
	}
	return false, nil
}
