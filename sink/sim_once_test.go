package sink

import (
	"errors"
	"slices"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file has the transaction coordinator of the simulation. Requests and answers get lost, but never come
// late: package exactlyonce tests that. These tests are about the rows between queues and transactions.

type simOnce struct {
	ongoing  bool
	added    map[exactlyonce.Partition]bool
	next     map[exactlyonce.Partition]int32
	seen     map[*exactlyonce.Batch]int64 // offsets
	pending  []simPending
	journal  []exactlyonce.LogBatch
	tail     int64 // of the journal
	requests []*exactlyonce.Request
	seals    int // producer ids given out
	unit     uint64
}

// simPending are rows of the transaction that is open.
type simPending struct {
	log  *simLog
	rows []*outbox.Row
}

func (w *sim) beginOnce() {
	w.id = producer{1, 0}
	w.begun()
}

// begun forgets the last epoch's transaction.
func (w *sim) begun() {
	o := &w.simOnce
	o.ongoing, o.pending = false, nil
	o.added, o.next, o.seen = map[exactlyonce.Partition]bool{}, map[exactlyonce.Partition]int32{}, map[*exactlyonce.Batch]int64{}
}

// request has the coordinator, or the journal's reader, answer.
func (w *sim) request(r *exactlyonce.Request) {
	if w.requests = append(w.requests, r); len(w.requests) == 1 {
		w.serve()
	}
}

// serve answers requests one after the other.
func (w *sim) serve() {
	r := w.requests[0]
	w.after(w.lat()+again(r.Try), func() {
		if w.requests = w.requests[1:]; len(w.requests) > 0 {
			w.serve()
		}
		a := answered{request: r, refused: map[topicPartition]sarama.KError{}}
		how := 0
		switch {
		case w.dark+w.stuck > 0:
			how = 1
		case !w.calm && w.IntN(1000) < w.plan.losses:
			how = 1 + w.IntN(3)
		}
		if how > 0 {
			w.hurt = w.now
			w.m.idTrouble(errors.New("no coordinator"))
		}
		switch how {
		case 0:
			w.coordinate(r, &a)
		case 1:
			a.answer.Class = exactlyonce.Again
		case 2:
			a.answer.Class = exactlyonce.Silence
		case 3:
			w.coordinate(r, &a)
			a.answer = exactlyonce.Answer{Class: exactlyonce.Silence}
		}
		w.tell("request %s as %v: fate %d, class %d", requestKinds[r.Kind], r.As, how, a.answer.Class)
		w.m.wasAnswered(a)
	})
}

func (w *sim) coordinate(r *exactlyonce.Request, a *answered) {
	as := producer(r.As)
	a.answer.Class = exactlyonce.OK
	switch {
	case r.Kind == exactlyonce.Read && r.Until == exactlyonce.Nobody, r.Kind == exactlyonce.Ends: // markers are package exactlyonce's to lose
	case r.Kind == exactlyonce.Read:
		w.read(r, a)
	case r.Kind == exactlyonce.Last:
		a.answer.Producer, a.answer.Of = exactlyonce.Producer(w.id), exactlyonce.Producer(w.id)
		if a.answer.Outcome = exactlyonce.Committed; w.ongoing {
			a.answer.Outcome = exactlyonce.Running
		}
	case r.Kind == exactlyonce.Init && as != nobody && w.ongoing:
		w.fail("it fences itself")
	case r.Kind == exactlyonce.Init && (as == nobody || as == w.id || as.Epoch == w.id.Epoch-1):
		if as.Epoch != w.id.Epoch-1 || as == nobody { // else an answer got lost
			w.begun()
			w.id.Epoch++
			w.seals++
		}
		a.answer.Producer = exactlyonce.Producer(w.id)
	case as != w.id:
		a.answer.Class = exactlyonce.Superseded
	case r.Kind == exactlyonce.Add:
		w.add(r, a)
	case !w.ongoing:
		a.answer.Class = exactlyonce.Ended
	default:
		w.endOnce(r.Kind == exactlyonce.Commit)
	}
}

func (w *sim) add(r *exactlyonce.Request, a *answered) {
	for _, p := range r.Partitions {
		t, at := w.topic(p.Topic), topicPartition(p)
		switch {
		case w.logs[at] == nil:
			a.refused[at] = sarama.ErrUnknownTopicOrPartition
		case t.write == sarama.ErrTopicAuthorizationFailed:
			a.refused[at] = t.write
			t.excuses[t.write] = true
		default:
			continue
		}
		a.answer.Refused = append(a.answer.Refused, p)
	}
	if len(a.refused) > 0 {
		w.hurt = w.now
		a.answer.Class = exactlyonce.Refused
		return
	}
	w.ongoing = true
	for _, p := range r.Partitions {
		w.added[p] = true
	}
}

func (w *sim) endOnce(commit bool) {
	marker := exactlyonce.LogBatch{Offset: w.tail, By: exactlyonce.Producer(w.id), Transactional: true, Control: exactlyonce.AbortMarker}
	w.tail++
	if commit {
		marker.Control = exactlyonce.CommitMarker
		for _, p := range w.pending {
			w.land(p.log, p.rows)
		}
	}
	w.journal = append(w.journal, marker)
	w.ongoing, w.added, w.pending = false, map[exactlyonce.Partition]bool{}, nil
}

// forgetPending drops what a transaction has in a topic that is deleted.
func (w *sim) forgetPending(topic string) {
	w.pending = slices.DeleteFunc(w.pending, func(p simPending) bool {
		if p.log.topic.name != topic {
			return false
		}
		w.lose(p.rows)
		return true
	})
}

func (w *sim) read(r *exactlyonce.Request, a *answered) {
	reader := exactlyonce.NewReader(r)
	for i := range w.journal {
		done, err := reader.Feed(&w.journal[i])
		if err != nil {
			w.fail("%v", err)
		}
		if done {
			a.answer = reader.Answer()
			return
		}
	}
	w.fail("no marker in the journal")
}

// appendOnce appends a batch to the transaction that is open.
func (w *sim) appendOnce(l *simLog, try *simTry) reply {
	b := try.b.request.Batch
	offset, again := w.seen[b]
	switch {
	case try.as != w.id:
		return reply{code: sarama.ErrInvalidProducerEpoch, offset: -1}
	case again:
		return reply{offset: offset}
	case !w.added[b.At] && w.m.tx.once.Awaits(b):
		w.fail("%v is not in the transaction", b.At)
	case !w.added[b.At]:
		return reply{code: sarama.ErrInvalidTxnState, offset: -1} // of one that was given up
	case try.seq != w.next[b.At]:
		w.fail("%v: sequence %d, not %d", b.At, try.seq, w.next[b.At])
	}
	w.next[b.At] += int32(len(try.rows))
	if len(b.Units) == 0 {
		w.pending = append(w.pending, simPending{l, try.rows})
		w.seen[b] = 0
		return reply{}
	}
	w.seen[b] = w.tail
	batch := exactlyonce.LogBatch{Offset: w.tail, By: exactlyonce.Producer(try.as), Transactional: true}
	for _, row := range try.rows {
		batch.Records = append(batch.Records, row.Value)
	}
	w.journal = append(w.journal, batch)
	w.tail += int64(len(try.rows))
	return reply{offset: w.seen[b]}
}

// delivering checks that rows which are delivered exactly once have a unit, and no others, and
// that the ends of transactions tell of as many.
func (w *sim) delivering(out work) {
	delivered, told, units := 0, 0, 0
	for _, o := range out.outcomes {
		if o.Class != outbox.Delivered {
			continue
		}
		if (o.Unit != nil) != w.plan.once {
			w.fail("delivered with unit %+v", o.Unit)
		}
		if o.Unit != nil {
			if w.unit++; o.Unit.Number != w.unit || o.Unit.Rows != len(o.Rows) || o.Unit.Cluster != "main" {
				w.fail("unit %+v of %d rows follows %d", o.Unit, len(o.Rows), w.unit-1)
			}
			delivered += len(o.Rows)
			units++
		}
	}
	for _, e := range out.ends {
		w.tell("a transaction has ended: %d rows, %q, after %v", e.Rows, e.Aborted, e.took)
		told += e.Rows
		if e.took < 0 || min(e.took, w.now.Sub(w.hurt)) > w.plan.patience && w.wrong == 0 {
			w.fail("a transaction of %v", e.took)
		}
		if e.Aborted == exactlyonce.Stuck && (w.wrong == 0 && w.now.Sub(w.hurt) > stuckAfter) {
			w.fail("a transaction was given up for nothing")
		}
	}
	if delivered != told && w.plan.once || units > len(simTables)*len(out.ends) && w.m.tx.journal.maxBytes == 0 {
		w.fail("%d rows delivered in %d units, the ends tell of %d", delivered, units, told)
	}
}
