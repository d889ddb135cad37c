package statusupdater

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

func sentOf(table *outbox.Table, n int) []outbox.Mark {
	marks := make([]outbox.Mark, n)
	for i := range marks {
		marks[i] = outbox.Mark{Row: &outbox.Row{Table: table}, Kind: outbox.MarkSent}
	}
	return marks
}

func (q *queue) tryTake() (batch, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if mq, _ := q.next(time.Now().Add(time.Second)); mq != nil {
		return q.cut(mq, time.Now()), true
	}
	return batch{}, false
}

// No table gets all workers, and all slow tables together do not either.
func TestAWorkerIsLeftForOthers(t *testing.T) {
	slow, other, good := &outbox.Table{Name: "slow"}, &outbox.Table{Name: "other"}, &outbox.Table{Name: "good"}
	q := newQueue(10, 3, 3)
	q.put(sentOf(slow, 100))
	taken := func(want int) {
		t.Helper()
		n := 0
		for {
			if _, ok := q.tryTake(); !ok {
				break
			}
			n++
		}
		if n != want {
			t.Fatalf("%d batches were taken, want %d", n, want)
		}
	}
	taken(2)
	q.done(batch{key: markGroup{table: slow, kind: outbox.MarkSent}})
	q.tellHung(slow)
	q.tellHung(other)
	q.put(sentOf(other, 100))
	refused := sentOf(other, 10)
	for i := range refused {
		refused[i].Refused = true
	}
	q.put(refused)
	taken(1) // taken before its table was slow
	q.put(sentOf(good, 10))
	taken(1)
}

// A batch is as small as its items require.
func TestBatchesAreAsSmallAsTheirItemsAre(t *testing.T) {
	q := newQueue(10, 9, 1)
	table := &outbox.Table{}
	q.put(sentOf(table, 8))
	items := q.queues[markGroup{table: table, kind: outbox.MarkSent}].items
	for _, it := range items[3:5] {
		it.most = 1
	}
	for _, want := range []int{3, 1, 1, 3} {
		if b, ok := q.tryTake(); !ok || len(b.items) != want {
			t.Fatalf("a batch of %d, want %d", len(b.items), want)
		}
	}
}
