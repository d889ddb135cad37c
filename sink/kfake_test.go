package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The harness's own: a broker's process, its admin client's metrics.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
		goleak.IgnoreAnyFunction("github.com/outbox-cdc/outbox-cdc/test/harness.(*Node).start.func1"))
}

var testTable = &outbox.Table{Schema: "public", Name: "outbox"}

// ownTable is a table for which it is a row's own error that its topic is
// forbidden.
var ownTable = &outbox.Table{Schema: "public", Name: "own", Mapping: outbox.Mapping{FailOn: []outbox.TopicError{outbox.TopicUnauthorized}}}

// rig is a running Sink with all that it has reported.
type rig struct {
	t        testing.TB
	sink     *Sink
	outcomes *mailbox.Mailbox[outbox.Outcome]
	states   *mailbox.Mailbox[outbox.ClusterState]
	stop     context.CancelFunc
	done     chan error

	mu       sync.Mutex
	tally    tally // where the test has no observer of its own
	fate     map[*outbox.Row]outbox.Outcome
	order    []outbox.Outcome
	said     []outbox.ClusterState
	changed  chan struct{}
	finished bool
}

// tally counts what an Observer hears.
type tally struct{ rows, batches, retries, throttled, committed, aborted atomic.Int64 }

func (t *tally) Produced(_ string, rows, _ int, _ time.Duration) {
	t.rows.Add(int64(rows))
	t.batches.Add(1)
}

func (t *tally) Retried(string, error) { t.retries.Add(1) }

func (t *tally) Throttled(d time.Duration) { t.throttled.Add(int64(d)) }

func (t *tally) Transacted(aborted string, rows int, _ time.Duration) {
	if aborted == "" {
		t.committed.Add(int64(rows))
		return
	}
	t.aborted.Add(1)
}

func (t *tally) Unended(map[string][]int32) {}

// newRig starts a Sink and stops it at the test's end.
func newRig(t testing.TB, cfg Config) *rig {
	t.Helper()
	r := &rig{
		t: t, outcomes: mailbox.New[outbox.Outcome](), states: mailbox.New[outbox.ClusterState](),
		done: make(chan error, 1), fate: map[*outbox.Row]outbox.Outcome{}, changed: make(chan struct{}, 1),
	}
	cfg.Cluster = cmp.Or(cfg.Cluster, "main")
	if cfg.Observer == nil {
		cfg.Observer = &r.tally
	}
	s, err := New(cfg, r.outcomes, r.states)
	if err != nil {
		t.Fatal(err)
	}
	r.sink = s
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	listen, hush := context.WithCancel(context.Background())
	var listener sync.WaitGroup
	listener.Go(func() { r.listen(listen) })
	go func() { r.done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if !r.finished {
			if err := <-r.done; !errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v", err)
			}
		}
		hush()
		listener.Wait()
	})
	return r
}

func (r *rig) listen(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.outcomes.Ready():
		case <-r.states.Ready():
		}
		r.mu.Lock()
		for _, o := range r.outcomes.Take(nil) {
			for _, row := range o.Rows {
				if _, twice := r.fate[row]; twice {
					r.t.Errorf("row %s has two outcomes", row.ID)
				}
				r.fate[row] = o
			}
			r.order = append(r.order, o)
		}
		r.said = append(r.said, r.states.Take(nil)...)
		r.mu.Unlock()
		select {
		case r.changed <- struct{}{}:
		default:
		}
	}
}

// until waits for a condition on the rig, which it reads under the rig's lock. It waits for at least half a
// minute, because an action that is quick on an idle machine is slow on a busy one.
func (r *rig) until(what string, within time.Duration, cond func() bool) {
	r.t.Helper()
	within = max(within, 30*time.Second)
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		r.mu.Lock()
		ok := cond()
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-r.changed:
		case <-poll.C:
		case <-deadline.C:
			r.mu.Lock()
			defer r.mu.Unlock()
			r.t.Fatalf("not within %v: %s; states %v; %d outcomes", within, what, r.said, len(r.fate))
		}
	}
}

// publish publishes rows and returns them.
func (r *rig) publish(rows ...*outbox.Row) []*outbox.Row {
	r.sink.Do(outbox.Command{Publish: rows})
	return rows
}

// expect waits until each row has an outcome of the class.
func (r *rig) expect(class outbox.Class, within time.Duration, rows ...*outbox.Row) {
	r.t.Helper()
	r.until(fmt.Sprintf("%d rows of class %d", len(rows), class), within, func() bool {
		for _, row := range rows {
			if _, ok := r.fate[row]; !ok {
				return false
			}
		}
		return true
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, row := range rows {
		if o := r.fate[row]; o.Class != class {
			r.t.Fatalf("row %s: class %d scope %v err %v, want class %d", row.ID, o.Class, o.Scope, o.Err, class)
		}
	}
}

func (r *rig) usable(within time.Duration, want bool) outbox.ClusterState {
	r.t.Helper()
	var last outbox.ClusterState
	r.until(fmt.Sprintf("usable %v", want), within, func() bool {
		if len(r.said) == 0 {
			return false
		}
		last = r.said[len(r.said)-1]
		return last.Usable == want
	})
	return last
}

var rowsMade atomic.Int64

func newRow(topic, key, value string) *outbox.Row {
	row := &outbox.Row{
		Table: testTable, ID: fmt.Sprint(rowsMade.Add(1)), Cluster: "main", Topic: topic,
		Value: []byte(value), Partition: -1, Pending: true,
	}
	if key != "" {
		row.Key = []byte(key)
	}
	return row
}

// rowsOf makes n rows with values prefix0, prefix1, …
func rowsOf(topic, key, prefix string, n int) []*outbox.Row {
	rows := make([]*outbox.Row, n)
	for i := range rows {
		rows[i] = newRow(topic, key, fmt.Sprintf("%s%d", prefix, i))
	}
	return rows
}

// consume reads a topic's first n records per partition order.
func consume(t testing.TB, brokers []string, topic string, n int, opts ...kgo.Opt) []*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50 * time.Millisecond),
		kgo.MetadataMinAge(10 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var all []*kgo.Record
	for len(all) < n {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d of %d records of %s", len(all), n, topic)
		}
		all = append(all, fetches.Records()...)
	}
	return all
}

// keysInOrder fails unless the numbers in each key's records rise by step.
func keysInOrder(t testing.TB, records []*kgo.Record, step int) {
	t.Helper()
	last := map[string]int{}
	for _, rec := range records {
		n, err := strconv.Atoi(string(rec.Value))
		if err != nil {
			t.Fatal(err)
		}
		if before, ok := last[string(rec.Key)]; ok && n != before+step {
			t.Fatalf("topic %s, key %s: %d after %d", rec.Topic, rec.Key, n, before)
		}
		last[string(rec.Key)] = n
	}
}

func fake(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestPublishesInOrder(t *testing.T) {
	t.Parallel()
	c := fake(t, kfake.NumBrokers(3), kfake.SeedTopics(6, "orders"))
	r := newRig(t, Config{Brokers: c.ListenAddrs(), TransactionalID: "tx"})
	r.usable(5*time.Second, true)
	if r.sink.Fencing() != FencingOn {
		t.Error("not fencing")
	}
	var all []*outbox.Row
	for i := range 2000 {
		all = append(all, newRow("orders", fmt.Sprint("k", i%7), fmt.Sprint(i)))
	}
	for i := 0; i < len(all); i += 100 {
		r.publish(all[i : i+100]...)
	}
	r.expect(outbox.Delivered, 5*time.Second, all...)
	records := consume(t, c.ListenAddrs(), "orders", len(all))
	keysInOrder(t, records, 7)
	for _, rec := range records {
		if p := PartitionOf(outbox.Murmur2, rec.Key, 6); p != rec.Partition {
			t.Fatalf("key %s in partition %d, want %d", rec.Key, rec.Partition, p)
		}
	}
}

// Topics that appear one after the other under load: fencing each raises the epoch
// while batches for the others are under way, and a broker that keeps one epoch per
// producer, not per partition, refuses those. kfake is such a one, and its refusals
// name offset 0, which a broker's own do not.
func TestNewTopicsUnderLoad(t *testing.T) {
	t.Parallel()
	const topics = 30
	names := make([]string, topics)
	for i := range names {
		names[i] = fmt.Sprint("t", i)
	}
	c := fake(t, kfake.NumBrokers(3), kfake.SeedTopics(4, names...))
	r := newRig(t, Config{Brokers: c.ListenAddrs(), TransactionalID: "tx"})
	r.usable(5*time.Second, true)
	all := map[string][]*outbox.Row{}
	published := 0
	for n, open := 0, 1; open <= topics; n++ {
		for _, name := range names[:open] {
			all[name] = append(all[name], r.publish(newRow(name, fmt.Sprint("k", n%7), fmt.Sprint(n)))...)
			published++
		}
		newest := all[names[open-1]]
		known := false
		r.until("outcomes", 30*time.Second, func() bool {
			_, known = r.fate[newest[0]]
			return published-len(r.fate) < 500
		})
		if known {
			open++
		}
	}
	for name, rows := range all {
		r.expect(outbox.Delivered, 30*time.Second, rows...)
		keysInOrder(t, consume(t, c.ListenAddrs(), name, len(rows)), 7)
	}
}
