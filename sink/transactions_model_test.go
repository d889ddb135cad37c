package sink

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"pgregory.net/rapid"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// txWorld is a world whose brokers have transactions. Requests and answers get lost, and
// never come late: what that does is package exactlyonce's to show. Here it is about the rows
// between queues and transactions.
type txWorld struct {
	*world
	id      identity
	ongoing bool
	added   map[exactlyonce.Partition]bool
	next    map[exactlyonce.Partition]int32
	seen    map[*exactlyonce.Batch]int64 // offsets
	pending []*outbox.Row
	journal []exactlyonce.LogBatch
	offset  int64 // of the journal's end
	units   map[uint64]int
}

func newTxWorld(t *rapid.T) *txWorld {
	w := &txWorld{id: identity{1, 0}, units: map[uint64]int{}}
	w.world = newWorld(t, &Transactions{
		Journal: worldJournal, MaxRows: rapid.IntRange(1, 12).Draw(t, "rows of a transaction"), Timeout: time.Minute,
		Recover: func(context.Context, string, *exactlyonce.Recovery) error { return nil },
	})
	w.begin()
	return w
}

func (w *txWorld) begin() {
	w.ongoing, w.pending = false, nil
	w.added, w.next, w.seen = map[exactlyonce.Partition]bool{}, map[exactlyonce.Partition]int32{}, map[*exactlyonce.Batch]int64{}
}

// request has the oldest request of the coordinator or the journal answered.
func (w *txWorld) request(how string) {
	if len(w.requests) == 0 {
		return
	}
	r := w.requests[0]
	w.requests = w.requests[1:]
	a := answered{request: r, refused: map[place]sarama.KError{}}
	switch how {
	case "never sent":
		a.answer.Class = exactlyonce.Again
	case "lost answer":
		w.coordinate(r, &a)
		a.answer = exactlyonce.Answer{Class: exactlyonce.Silence}
	case "lost":
		a.answer.Class = exactlyonce.Silence
	default:
		w.coordinate(r, &a)
	}
	w.t.Logf("request %d as %v: %s, %+v", r.Kind, r.As, how, a.answer)
	w.m.wasAnswered(a)
}

func (w *txWorld) coordinate(r *exactlyonce.Request, a *answered) {
	as := identity{r.As.PID, r.As.Epoch}
	a.answer.Class = exactlyonce.OK
	switch {
	case r.Kind == exactlyonce.Read:
		w.read(r, a)
	case r.Kind == exactlyonce.Init && as != nobody && w.ongoing:
		w.t.Fatal("it fences itself")
	case r.Kind == exactlyonce.Init && (as == nobody || as == w.id || as.epoch == w.id.epoch-1):
		if as.epoch != w.id.epoch-1 || as == nobody { // else an answer got lost
			w.begin()
			w.id.epoch++
		}
		a.answer.Identity = exactlyonce.Identity{PID: w.id.pid, Epoch: w.id.epoch}
	case as != w.id:
		a.answer.Class = exactlyonce.Superseded
	case r.Kind == exactlyonce.Add:
		w.add(r, a)
	case !w.ongoing:
		a.answer.Class = exactlyonce.Ended
	default:
		w.end(r.Kind == exactlyonce.Commit)
	}
}

func (w *txWorld) add(r *exactlyonce.Request, a *answered) {
	if code := or(w.state, w.write); code != 0 {
		for _, p := range r.Partitions {
			if p.Topic == worldName {
				a.refused[place{p.Topic, p.Number}] = code
				a.answer.Refused = append(a.answer.Refused, p)
			}
		}
		if len(a.refused) > 0 {
			a.answer.Class = exactlyonce.Refused
			return
		}
	}
	w.ongoing = true
	for _, p := range r.Partitions {
		w.added[p] = true
	}
}

func (w *txWorld) end(commit bool) {
	marker := exactlyonce.LogBatch{Offset: w.offset, By: exactlyonce.Identity{PID: w.id.pid, Epoch: w.id.epoch}, Transactional: true, Control: exactlyonce.AbortMarker}
	w.offset++
	if commit {
		marker.Control = exactlyonce.CommitMarker
		for _, r := range w.pending {
			if _, twice := w.where[r]; twice {
				w.t.Fatalf("row %s is there twice", r.ID)
			}
			w.where[r] = w.appended
			w.appended++
		}
	}
	w.journal = append(w.journal, marker)
	w.ongoing, w.added, w.pending = false, map[exactlyonce.Partition]bool{}, nil
}

func (w *txWorld) read(r *exactlyonce.Request, a *answered) {
	reader := exactlyonce.NewReader(r)
	for i := range w.journal {
		done, err := reader.Feed(&w.journal[i])
		if err != nil {
			w.t.Fatal(err)
		}
		if done {
			a.answer = reader.Answer()
			return
		}
	}
	w.t.Fatal("no marker")
}

// produce has a batch answered.
func (w *txWorld) produce(i int, how string) {
	m := w.network[i]
	w.network = slices.Delete(w.network, i, i+1)
	var r reply
	switch how {
	case "never sent":
		r = reply{err: errors.New("refused"), unsent: true}
	case "lost":
		r = reply{err: errors.New("reset")}
	case "lost answer":
		w.append(m)
		r = reply{err: errors.New("reset")}
	case "not leader":
		r = reply{code: sarama.ErrNotLeaderForPartition, offset: -1}
	default:
		r = w.append(m)
	}
	w.t.Logf("partition %s/%d as %v, %d rows: %s, %+v", m.b.queue.topic.name, m.b.queue.partition, m.as, len(m.rows), how, r)
	w.m.produced(m.b, r)
}

func (w *txWorld) append(m *message) reply {
	b := m.b.request.Batch
	offset, again := w.seen[b]
	switch {
	case m.as != w.id:
		return reply{code: sarama.ErrInvalidProducerEpoch, offset: -1}
	case b.At.Topic == worldName && w.state != 0:
		return reply{code: sarama.ErrUnknownTopicOrPartition, offset: -1}
	case b.At.Topic == worldName && w.write != 0:
		return reply{code: w.write, offset: -1}
	case again:
		return reply{offset: offset}
	case !w.added[b.At] && w.m.tx.once.Awaits(b):
		w.t.Fatal("the partition is not in the transaction")
	case !w.added[b.At]:
		return reply{code: sarama.ErrInvalidTxnState, offset: -1} // of one that was given up
	case m.seq != w.next[b.At]:
		w.t.Fatalf("sequence %d, not %d", m.seq, w.next[b.At])
	}
	if r := refusedRows(m.rows); r.code != 0 {
		return r
	}
	w.next[b.At] += int32(len(m.rows))
	if len(b.Units) == 0 {
		w.pending = append(w.pending, m.rows...)
		w.seen[b] = 0
		return reply{}
	}
	w.seen[b] = w.offset
	batch := exactlyonce.LogBatch{Offset: w.offset, By: exactlyonce.Identity{PID: m.as.pid, Epoch: m.as.epoch}, Transactional: true}
	for _, row := range m.rows {
		batch.Records = append(batch.Records, row.Value)
	}
	w.journal = append(w.journal, batch)
	w.offset += int64(len(m.rows))
	return reply{offset: w.seen[b]}
}

func refusedRows(rows []*outbox.Row) reply {
	r := reply{offset: -1}
	for i, row := range rows {
		switch string(row.Value) {
		case oversized:
			return reply{code: sarama.ErrMessageSizeTooLarge, offset: -1}
		case invalid:
			r.code = sarama.ErrInvalidRecord
			r.rejected = append(r.rejected, i)
		}
	}
	return r
}

// act gives the world's machine time, and the recovery its end.
func (w *txWorld) act(d time.Duration) {
	w.step(d)
	if w.recovery != nil {
		found := w.recovery
		w.recovery = nil
		w.m.wasRecovered(found)
		w.step(0)
	}
	for _, o := range w.fate {
		if o.Class == outbox.Delivered && o.Unit == nil {
			w.t.Fatal("delivered without a unit")
		}
	}
}

// drop deletes the topic with what is in it.
func (w *txWorld) drop() {
	for _, r := range w.pending {
		w.gone[r] = true
	}
	w.remove()
}

func (w *txWorld) healed() {
	w.state, w.write = 0, 0
	for range 3000 {
		w.release()
		w.act(time.Second)
		w.answerMetadata(false)
		for len(w.requests) > 0 || len(w.network) > 0 {
			w.request("ok")
			if len(w.network) > 0 {
				w.produce(0, "ok")
			}
			w.act(0)
		}
		if len(w.fate) == len(w.published) && w.asked == nil {
			return
		}
	}
	w.t.Fatalf("%d of %d rows have an outcome: %s", len(w.fate), len(w.published), w.describe())
}

var txFates = []string{"ok", "ok", "ok", "ok", "ok", "lost answer", "lost", "never sent", "not leader"}

// TestTransactionsInOrder: whatever fails, each row that is said to be delivered is
// committed once, no other is, the rows of a key are there in order, and no outcome of a
// row comes before those of its key's earlier ones.
func TestTransactionsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTxWorld(t)
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{
				"publish", "publish", "network", "network", "network", "network", "request", "request", "request", "request", "tick", "metadata", "rare",
			}).Draw(t, "step") {
			case "publish":
				w.publish()
			case "network":
				if len(w.network) > 0 {
					w.produce(rapid.IntRange(0, len(w.network)-1).Draw(t, "message"), rapid.SampledFrom(txFates).Draw(t, "fate"))
				}
			case "request":
				w.request(rapid.SampledFrom(txFates).Draw(t, "fate of a request"))
			case "tick":
				w.act(time.Duration(rapid.IntRange(1, 2000).Draw(t, "ms")) * time.Millisecond)
			case "metadata":
				w.answerMetadata(rapid.IntRange(0, 4).Draw(t, "metadata fails") == 0)
			case "rare":
				switch rapid.SampledFrom([]string{"withdraw", "release", "grow", "missing", "there again", "forbidden", "allowed"}).Draw(t, "rare") {
				case "withdraw":
					w.withdraw()
				case "release":
					w.release()
				case "grow":
					w.count = min(w.count+1, 5)
				case "missing":
					w.drop()
				case "there again":
					w.state = 0
				case "forbidden":
					w.write = sarama.ErrTopicAuthorizationFailed
				case "allowed":
					w.write = 0
				}
			}
			w.act(0)
		}
		w.healed()
		w.check()
	})
}
