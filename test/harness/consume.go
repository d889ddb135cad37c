package harness

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Record is one record of a partition log.
type Record struct {
	Topic      string
	Partition  int32
	Offset     int64
	Key        []byte // nil is Kafka's null
	Value      []byte
	Headers    []Header
	Timestamp  time.Time
	ProducerID int64
	Epoch      int16
}

// Header is a record header; a nil Value is Kafka's null.
type Header struct {
	Name  string
	Value []byte
}

// Header returns a header's value, or nil.
func (r Record) Header(name string) []byte {
	for _, h := range r.Headers {
		if h.Name == name {
			return h.Value
		}
	}
	return nil
}

// Records reads everything that lies in a topic at this moment, partition by
// partition in offset order. A partition whose leader has just changed is waited for.
func (c *Cluster) Records(t testing.TB, topic string) (records []Record) {
	t.Helper()
	Eventually(t, 60*time.Second, func() (err error) {
		records, err = c.TryRecords(t.Context(), topic)
		return err
	})
	return records
}

// Committed returns what a read_committed consumer reads from a topic. It waits until open transactions have
// ended.
func (c *Cluster) Committed(t testing.TB, topic string) (records []Record) {
	t.Helper()
	Eventually(t, 60*time.Second, func() (err error) {
		records, err = c.TryCommitted(t.Context(), topic, 60*time.Second)
		return err
	})
	return records
}

// TryCommitted is Committed for use in Eventually. It takes at most within, since a request may get lost.
func (c *Cluster) TryCommitted(ctx context.Context, topic string, within time.Duration) ([]Record, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return c.read(ctx, topic, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
}

// TryRecords is Records for use in Eventually, and after the test.
func (c *Cluster) TryRecords(ctx context.Context, topic string) ([]Record, error) {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	records, err := c.read(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("reading topic %s: %w", topic, err)
	}
	return records, nil
}

// AwaitRecords reads a topic until it has at least n records, and returns all its records.
func (c *Cluster) AwaitRecords(t testing.TB, topic string, n int, within time.Duration) (records []Record) {
	t.Helper()
	f := c.Follow(t, topic)
	Eventually(t, within, func() error {
		if got := f.Len(); got < n {
			return fmt.Errorf("topic %s holds %d records, wanted %d", topic, got, n)
		}
		return nil
	})
	return c.Records(t, topic)
}

// Count returns the number of records in a topic, without control records.
func (c *Cluster) Count(t testing.TB, topic string) int {
	t.Helper()
	return len(c.Records(t, topic))
}

func (c *Cluster) read(ctx context.Context, topic string, opts ...kgo.Opt) ([]Record, error) {
	ends, err := c.ends(ctx, topic)
	if err != nil {
		return nil, err
	}
	start := map[int32]kgo.Offset{}
	missing := 0
	for p, end := range ends {
		if end > 0 {
			start[p] = kgo.NewOffset().AtStart()
			missing++
		}
	}
	if missing == 0 {
		return nil, nil
	}
	opts = append(opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: start}), kgo.KeepControlRecords(), kgo.FetchMaxWait(100*time.Millisecond))
	client, err := c.client(opts...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	byPartition := make([][]Record, len(ends))
	for missing > 0 {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("%d partitions not read to their end: %w", missing, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset >= ends[r.Partition] {
				return
			}
			if !r.Attrs.IsControl() {
				byPartition[r.Partition] = append(byPartition[r.Partition], record(r))
			}
			if r.Offset == ends[r.Partition]-1 {
				missing--
			}
		})
	}
	var all []Record
	for _, rs := range byPartition {
		all = append(all, rs...)
	}
	return all, nil
}

func record(r *kgo.Record) Record {
	out := Record{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value,
		Timestamp: r.Timestamp, ProducerID: r.ProducerID, Epoch: r.ProducerEpoch,
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, Header{Name: h.Key, Value: h.Value})
	}
	return out
}

// Follower consumes topics from their start as long as the test runs.
type Follower struct {
	mu      sync.Mutex
	records []Record
	arrived chan struct{} // closed and replaced with every fetch
}

// Follow starts a follower. Per partition its records are in offset order.
func (c *Cluster) Follow(t testing.TB, topics ...string) *Follower {
	t.Helper()
	client, err := c.client(kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatalf("harness: consuming %v: %v", topics, err)
	}
	f := &Follower{arrived: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			f.add(client.PollFetches(ctx))
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		client.Close()
	})
	return f
}

func (f *Follower) add(fetches kgo.Fetches) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fetches.EachRecord(func(r *kgo.Record) { f.records = append(f.records, record(r)) })
	close(f.arrived)
	f.arrived = make(chan struct{})
}

// Records returns the records that have been consumed so far.
func (f *Follower) Records() []Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.records[:len(f.records):len(f.records)]
}

// Len returns the number of records that have been consumed so far.
func (f *Follower) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.records)
}

// Await waits for at least n records.
func (f *Follower) Await(t testing.TB, n int, within time.Duration) []Record {
	t.Helper()
	within = max(within, leastWait)
	deadline := time.After(within)
	for {
		f.mu.Lock()
		got, arrived := len(f.records), f.arrived
		f.mu.Unlock()
		if got >= n {
			return f.Records()
		}
		select {
		case <-arrived:
		case <-deadline:
			t.Fatalf("%d records after %v, wanted %d", got, within, n)
		case <-t.Context().Done():
			t.Fatalf("the test ended with %d records of %d", got, n)
		}
	}
}

// relocated lets kfake listen elsewhere than on the port it was to show.
type relocated struct{ shown, real string }

func (r *relocated) listen(network, _ string) (net.Listener, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	r.shown = fmt.Sprintf("127.0.0.1:%d", ports[0])
	l, err := net.Listen(network, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r.real = l.Addr().String()
	return shownAs{l, r.shown}, nil
}

// shownAs is a listener that gives another address for its own.
type shownAs struct {
	net.Listener
	addr string
}

func (l shownAs) Addr() net.Addr {
	a, err := net.ResolveTCPAddr("tcp", l.addr)
	if err != nil {
		return l.Listener.Addr()
	}
	return a
}
