package demo

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// checker is the consumer that judges the result. It expects each customer's events with the numbers 1, 2, 3
// and so on, in the order of the topic.
type checker struct {
	mu         sync.Mutex
	next       [customers + 1]int // the number expected next of each customer
	missing    map[event]struct{} // skipped numbers: lost, unless they come late
	records    int
	duplicates int
	outOfOrder int
	foreign    int // records that the writer did not write

	latencies []time.Duration // of all events
	recent    int             // index of the first latency not shown yet

	positions []int64 // by partition: the offset after the last record read
	advanced  chan struct{}
}

// event identifies an order event: a customer and a number.
type event struct{ customer, no int }

func newChecker(partitions int) *checker {
	c := &checker{missing: map[event]struct{}{}, positions: make([]int64, partitions), advanced: make(chan struct{}, 1)}
	for i := range c.next {
		c.next[i] = 1
	}
	return c
}

// consume reads the topic until ctx ends.
func (c *checker) consume(ctx context.Context, w *world) error {
	client, err := w.kafkaClient(
		kgo.ConsumeTopics(w.target.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(w.readOnly), kgo.KeepControlRecords(), kgo.FetchMaxWait(250*time.Millisecond))
	if err != nil {
		return fmt.Errorf("the checking consumer: %w", err)
	}
	defer client.Close()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		now := time.Now()
		c.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) { c.take(r, w.commits, now) })
		c.mu.Unlock()
		select {
		case c.advanced <- struct{}{}:
		default:
		}
	}
	return nil
}

// take judges one record. The caller holds mu.
func (c *checker) take(r *kgo.Record, sent *commits, now time.Time) {
	if int(r.Partition) < len(c.positions) {
		c.positions[r.Partition] = r.Offset + 1
	}
	if r.Attrs.IsControl() {
		return
	}
	c.records++
	e, ok := parse(r.Key, r.Value)
	if !ok {
		c.foreign++
		return
	}
	if at, ok := sent.when(e.customer, e.no); ok {
		c.latencies = append(c.latencies, now.Sub(at))
	}
	next := c.next[e.customer]
	_, late := c.missing[e]
	switch {
	case e.no >= next:
		for no := next; no < e.no; no++ {
			c.missing[event{e.customer, no}] = struct{}{}
		}
		c.next[e.customer] = e.no + 1
	case late:
		delete(c.missing, e)
		c.outOfOrder++
	default:
		c.duplicates++
	}
}

// parse parses what the writer wrote: a key such as customer-7, and a payload that begins with {"no":12, .
func parse(key, value []byte) (e event, ok bool) {
	customer, ok1 := bytes.CutPrefix(key, []byte("customer-"))
	rest, ok2 := bytes.CutPrefix(value, []byte(`{"no":`))
	no, _, ok3 := bytes.Cut(rest, []byte(","))
	var err1, err2 error
	e.customer, err1 = strconv.Atoi(string(customer))
	e.no, err2 = strconv.Atoi(string(no))
	ok = ok1 && ok2 && ok3 && err1 == nil && err2 == nil
	return e, ok && e.customer >= 1 && e.customer <= customers && e.no >= 1
}

// finish waits until everything in the topic has been read.
func (c *checker) finish(ctx context.Context, w *world) error {
	ends, err := w.ends(ctx)
	if err != nil {
		return err
	}
	for !c.reached(ends) {
		select {
		case <-c.advanced:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (c *checker) reached(ends []int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, end := range ends {
		if c.positions[p] < end {
			return false
		}
	}
	return true
}

// distinct returns how many different events were read.
func (c *checker) distinct() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.records - c.duplicates - c.foreign
}

// show fills in how many records were read, and the latencies since the last call.
func (c *checker) show(f *frame) {
	c.mu.Lock()
	f.published = c.records
	recent := slices.Clone(c.latencies[c.recent:])
	c.recent = len(c.latencies)
	c.mu.Unlock()
	f.p50, f.p99 = quantiles(recent)
}

// judge compares the result with the number of events that each customer has committed. A record without a
// commit counts as a duplicate: it is one too many.
func (c *checker) judge(committed map[int]int, s *Summary) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Published, s.Lost, s.Duplicates, s.OutOfOrder = c.records, len(c.missing), c.duplicates+c.foreign, c.outOfOrder
	for customer, count := range committed {
		seen := c.next[customer] - 1
		s.Lost += max(0, count-seen)
		s.Duplicates += max(0, seen-count)
	}
	p50, p99 := quantiles(slices.Clone(c.latencies))
	s.Latency = Latency{P50: millis(p50), P99: millis(p99)}
}

// quantiles returns the median and the 99th percentile. It sorts its argument.
func quantiles(d []time.Duration) (p50, p99 time.Duration) {
	if len(d) == 0 {
		return 0, 0
	}
	slices.Sort(d)
	return d[len(d)/2], d[len(d)*99/100]
}
