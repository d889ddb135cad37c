package sink

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// This file tests transactions while topics are deleted and made again, and while records are deleted.

// insist publishes rows until they are delivered, also where their topic is blocked meanwhile.
func (r *rig) insist(rows []*outbox.Row) {
	r.t.Helper()
	given := func(row *outbox.Row) bool { return r.fate[row].Class != outbox.Withdrawn }
	for left := rows; len(left) > 0; {
		scope := outbox.TopicScope("main", left[0].Topic)
		r.sink.Do(outbox.Command{Release: &scope})
		r.publish(left...)
		r.until("each row has an outcome", time.Minute, func() bool {
			return !slices.ContainsFunc(left, func(row *outbox.Row) bool { return r.fate[row].Rows == nil })
		})
		r.mu.Lock()
		left = slices.DeleteFunc(slices.Clone(left), given)
		for _, row := range left {
			delete(r.fate, row)
		}
		r.mu.Unlock()
	}
	r.expect(outbox.Delivered, time.Second, rows...)
}

// targetMadeAgain: rows that are published after a topic was made again are in it once, whatever the
// producer sent to the old topic.
func targetMadeAgain(t *testing.T, k *harness.Cluster) {
	topic, db := onceTopic(t, k, 2), newOnceDB()
	r := newRig(t, db.config(k.Addrs, topic))
	rows := numbered(topic, 0, 400)
	r.publish(rows[:200]...)
	r.expect(outbox.Delivered, 30*time.Second, rows[:200]...)
	k.DeleteTopic(t, topic)
	k.CreateTopic(t, topic, 2, nil)
	r.insist(rows[200:])
	r.insist(endRows(topic, 2))
	eachOnce(t, readCommitted(t, k, topic, 2), rows[200:])
}

// recordsDeleted: deleted records of a target topic are not needed any more. Deleted records of the journal
// are missed by the next leader, which needs them.
func recordsDeleted(t *testing.T, k *harness.Cluster) {
	topic, db := onceTopic(t, k, 1), newOnceDB()
	wipe := func(topic string) {
		t.Helper()
		k.Admin(t, func(a sarama.ClusterAdmin) error { return a.DeleteRecords(topic, map[int32]int64{0: -1}) }) // up to the high watermark
	}
	r := newRig(t, db.config(k.Addrs, topic))
	rows := numbered(topic, 0, 400)
	deliver := func(from, to int) {
		t.Helper()
		r.publish(rows[from:to]...)
		r.expect(outbox.Delivered, 30*time.Second, rows[from:to]...)
	}
	deliver(0, 100)
	for _, o := range r.order {
		db.outcome(o)
	}
	wipe(topic)
	deliver(100, 200)
	wipe(topic + "-journal")
	deliver(200, 300) // a leader needs no records of its own
	r.expect(outbox.Delivered, 30*time.Second, r.publish(endRows(topic, 1)...)...)
	eachOnce(t, readCommitted(t, k, topic, 1), rows[100:300])
	r.stop()
	if err := <-r.done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	r.finished = true
	second := newRig(t, db.config(k.Addrs, topic)) // it cannot know that rows 100 to 199 are published
	if err := <-second.done; !errors.Is(err, exactlyonce.ErrJournal) {
		t.Error(err)
	}
	second.finished = true
}
