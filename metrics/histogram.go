package metrics

import (
	"math"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// histogram counts how long rows took. The library's own takes one observation
// at a time; this one takes a batch of rows with the same time at once, and has
// one writer's cost of a few nanoseconds per batch.
type histogram struct {
	desc   *prometheus.Desc
	counts []atomic.Uint64 // one per bound, and one for what is above the last
	sum    atomic.Uint64   // bits of a float64
}

// latencyBounds are in seconds: from what a broker beside us takes to an outage.
var latencyBounds = [...]float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800}

func newHistogram(name, help string, labels prometheus.Labels) *histogram {
	return &histogram{
		desc:   prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, nil, labels),
		counts: make([]atomic.Uint64, len(latencyBounds)+1),
	}
}

// tally counts a batch without touching what is shared.
type tally struct {
	counts [len(latencyBounds) + 1]uint64
	sum    float64
}

func bucket(seconds float64) int {
	i := 0
	for i < len(latencyBounds) && seconds > latencyBounds[i] {
		i++
	}
	return i
}

func (t *tally) add(seconds float64) {
	seconds = max(seconds, 0) // clocks of two machines may differ
	t.counts[bucket(seconds)]++
	t.sum += seconds
}

// merge adds a tally.
func (h *histogram) merge(t *tally) {
	for i, n := range t.counts {
		if n > 0 {
			h.counts[i].Add(n)
		}
	}
	h.raise(t.sum)
}

// observe counts n rows that took this many seconds.
func (h *histogram) observe(seconds float64, n int) {
	if n <= 0 || math.IsNaN(seconds) {
		return
	}
	seconds = max(seconds, 0)
	h.counts[bucket(seconds)].Add(uint64(n))
	h.raise(seconds * float64(n))
}

func (h *histogram) raise(seconds float64) {
	for {
		before := h.sum.Load()
		after := math.Float64bits(math.Float64frombits(before) + seconds)
		if h.sum.CompareAndSwap(before, after) {
			return
		}
	}
}

// Describe is part of prometheus.Collector.
func (h *histogram) Describe(to chan<- *prometheus.Desc) { to <- h.desc }

// Collect is part of prometheus.Collector.
func (h *histogram) Collect(to chan<- prometheus.Metric) {
	buckets := make(map[float64]uint64, len(latencyBounds))
	total := uint64(0)
	for i, b := range latencyBounds {
		total += h.counts[i].Load()
		buckets[b] = total
	}
	total += h.counts[len(latencyBounds)].Load()
	to <- prometheus.MustNewConstHistogram(h.desc, total, math.Float64frombits(h.sum.Load()), buckets)
}
