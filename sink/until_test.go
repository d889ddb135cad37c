package sink

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// permit is an Until that a test sets; asked counts how often it was asked.
type permit struct {
	until atomic.Int64 // Unix nanoseconds; 0: nothing may be published
	asked atomic.Int64
}

func (p *permit) Until() time.Time {
	p.asked.Add(1)
	if at := p.until.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

func (p *permit) set(d time.Duration) { p.until.Store(time.Now().Add(d).UnixNano()) }

func TestNothingLeavesPastItsTime(t *testing.T) {
	c := fake(t, kfake.SeedTopics(3, "orders"))
	p := &permit{}
	r := newRig(t, Config{Brokers: c.ListenAddrs(), TransactionalID: "tx", Topics: []string{"orders"}, Until: p.Until})
	if r.sink.cfg.RequestTimeout != boundedTimeout {
		t.Fatal(r.sink.cfg.RequestTimeout)
	}
	r.usable(5*time.Second, true)

	// waits says that nothing of the rows was sent though it was looked often.
	waits := func(rows []*outbox.Row) {
		t.Helper()
		asked, batches := p.asked.Load(), r.tally.batches.Load()
		r.publish(rows...)
		r.until("looked often", 10*time.Second, func() bool { return p.asked.Load() > asked+10 })
		if got := r.tally.batches.Load(); got != batches || r.tally.retries.Load() != 0 {
			t.Fatalf("%d batches, before %d; %d retries", got, batches, r.tally.retries.Load())
		}
	}
	first, second := rowsOf("orders", "a", "first", 20), rowsOf("orders", "b", "second", 20)
	waits(first)
	p.set(time.Hour)
	r.expect(outbox.Delivered, 10*time.Second, first...)
	p.set(boundedTimeout) // too near: a broker may take that long
	waits(second)
	r.mu.Lock()
	for _, s := range r.said {
		if !s.Usable {
			t.Error("to wait is no trouble of the cluster")
		}
	}
	r.mu.Unlock()
	p.set(boundedTimeout + time.Minute)
	r.expect(outbox.Delivered, 10*time.Second, second...)

	p.until.Store(0)
	third := rowsOf("orders", "a", "third", 20)
	waits(third)
	scope := outbox.StreamScope()
	r.sink.Do(outbox.Command{Withdraw: &scope})
	r.expect(outbox.Withdrawn, 10*time.Second, third...)
	consume(t, c.ListenAddrs(), "orders", 40)
}

// The last look is right before a request leaves, since a batch may wait for
// its broker meanwhile.
func TestABrokerConnLooksOnceMoreBeforeItSends(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "orders"))
	s, err := New(Config{Cluster: "main", Brokers: c.ListenAddrs(), Until: func() time.Time { return time.Time{} }}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	events := mailbox.New[event]()
	bc := s.newBrokerConn(c.ListenAddrs()[0], newNetwork(t.Context(), s.conf, s.cfg, s.conf.Net.ReadTimeout), events)
	defer bc.drop()
	queue := &partitionQueue{topic: newTopic("orders"), leader: bc.addr}
	b := &batch{queue: queue, rows: []*outbox.Row{newRow("orders", "a", "v")}, made: time.Now()}
	bc.send(t.Context(), []*batch{b})
	got := events.Take(nil)
	if len(got) != 1 || !errors.Is(got[0].reply.err, errLate) || !got[0].reply.unsent {
		t.Fatalf("%+v", got)
	}
	if b.judge(got[0].reply, nobody); b.maybe {
		t.Fatal("it may be in the log")
	}
}
