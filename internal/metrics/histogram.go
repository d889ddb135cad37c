package metrics

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// histogram counts how long rows took, in classic buckets and in those of a native histogram. The library's
// own histogram takes one observation at a time. This one takes a whole batch of rows with the same time, at
// a cost of a few nanoseconds.
type histogram struct {
	desc    *prometheus.Desc
	labels  []*dto.LabelPair
	counts  [len(latencyBounds) + 1]atomic.Uint64 // one per bound, and one for values above the last bound
	fine    [nativeBuckets]atomic.Uint64          // see fineBucket; the first counts values near zero
	sum     atomic.Uint64                         // the bits of a float64
	created time.Time
}

// latencyBounds are in seconds: from the latency of a broker nearby to the length of an outage.
var latencyBounds = [...]float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800}

// The native histogram has 4 buckets per power of two (schema 2: each bucket is 19 % wider than the one
// before), from 15 µs to 12 days. Shorter times count as zero, longer ones in the last bucket.
// https://prometheus.io/docs/specs/native_histograms/
const (
	nativeSchema   = 2
	nativePerPower = 1 << nativeSchema
	nativeLowest   = -16 // 2^-16 s
	nativeHighest  = 20
	nativeBuckets  = (nativeHighest-nativeLowest)*nativePerPower + 1
)

func newHistogram(name, help string, labels prometheus.Labels) *histogram {
	h := &histogram{
		desc:    prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, nil, labels),
		created: time.Now(),
	}
	h.labels = prometheus.MakeLabelPairs(h.desc, nil)
	return h
}

// observations counts a batch by itself, before it is added to shared counters.
type observations struct {
	counts [len(latencyBounds) + 1]uint64
	fine   [nativeBuckets]uint64
	sum    float64
}

func bucket(seconds float64) int {
	i := 0
	for i < len(latencyBounds) && seconds > latencyBounds[i] {
		i++
	}
	return i
}

// nativeBounds are the upper bounds of the buckets within [0.5, 1).
var nativeBounds = [nativePerPower]float64{0.5, 0.5946035575013605, 0.7071067811865475, 0.8408964152537145}

// fineBucket returns 0 for a value near zero, otherwise the native bucket; the lowest one is 1. Bucket i of
// the format reaches up to 2^(i/4).
func fineBucket(seconds float64) int {
	fraction, exponent := math.Frexp(seconds)
	if seconds <= 0 || exponent <= nativeLowest {
		return 0
	}
	i := 0
	for i < nativePerPower && nativeBounds[i] < fraction {
		i++
	}
	return min(max(0, (exponent-1-nativeLowest)*nativePerPower+i), nativeBuckets-1)
}

// nativeIndex returns the format's index for a fineBucket other than 0.
func nativeIndex(fine int) int32 { return int32(fine + nativeLowest*nativePerPower) }

// add counts one row, and returns its fine bucket.
func (t *observations) add(seconds float64) (fine int) {
	seconds = max(seconds, 0) // the clocks of two machines may differ
	fine = fineBucket(seconds)
	t.counts[bucket(seconds)]++
	t.fine[fine]++
	t.sum += seconds
	return fine
}

// merge adds the counts of a batch.
func (h *histogram) merge(t *observations) {
	for i, n := range t.counts {
		if n > 0 {
			h.counts[i].Add(n)
		}
	}
	for i, n := range t.fine {
		if n > 0 {
			h.fine[i].Add(n)
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
	h.fine[fineBucket(seconds)].Add(uint64(n))
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

// Describe implements prometheus.Collector.
func (h *histogram) Describe(to chan<- *prometheus.Desc) { to <- h.desc }

// Collect implements prometheus.Collector.
func (h *histogram) Collect(to chan<- prometheus.Metric) { to <- h }

// Desc implements prometheus.Metric.
func (h *histogram) Desc() *prometheus.Desc { return h.desc }

// Write implements prometheus.Metric. The scraper chooses which of the two forms is served: native histograms
// exist only in protobuf.
func (h *histogram) Write(to *dto.Metric) error {
	out := &dto.Histogram{
		SampleSum:        proto.Float64(math.Float64frombits(h.sum.Load())),
		Schema:           proto.Int32(nativeSchema),
		ZeroThreshold:    proto.Float64(math.Ldexp(1, nativeLowest)),
		CreatedTimestamp: timestamppb.New(h.created),
	}
	total := h.native(out)
	cumulative := uint64(0)
	for i, bound := range latencyBounds {
		cumulative += h.counts[i].Load()
		out.Bucket = append(out.Bucket, &dto.Bucket{UpperBound: proto.Float64(bound), CumulativeCount: proto.Uint64(min(cumulative, total))})
	}
	out.SampleCount = proto.Uint64(total)
	to.Histogram, to.Label = out, h.labels
	return nil
}

// native fills in the native buckets, in spans of adjacent buckets, each as the difference to the bucket
// before. It returns the sum of all.
func (h *histogram) native(out *dto.Histogram) (total uint64) {
	zero := h.fine[0].Load()
	out.ZeroCount, total = proto.Uint64(zero), zero
	var before int64
	next := int32(0)
	for i := 1; i < len(h.fine); i++ {
		n := h.fine[i].Load()
		if n == 0 {
			continue
		}
		index := nativeIndex(i)
		if len(out.PositiveSpan) == 0 || index != next {
			out.PositiveSpan = append(out.PositiveSpan, &dto.BucketSpan{Offset: proto.Int32(index - next), Length: proto.Uint32(0)})
		}
		span := out.PositiveSpan[len(out.PositiveSpan)-1]
		span.Length = proto.Uint32(span.GetLength() + 1)
		out.PositiveDelta = append(out.PositiveDelta, int64(n)-before)
		before, next = int64(n), index+1
		total += n
	}
	if zero == 0 && len(out.PositiveSpan) == 0 { // otherwise it would be taken for a classic histogram
		out.PositiveSpan = []*dto.BucketSpan{{Offset: proto.Int32(0), Length: proto.Uint32(0)}}
	}
	return total
}

// Latencies counts rows by how long they took, since the process began, in the buckets of the native
// histogram.
type Latencies [nativeBuckets]uint64

// Ages returns the counts of created_to_published_seconds.
func (s *Stream) Ages() *Latencies {
	var l Latencies
	for i := range l {
		l[i] = s.age.fine[i].Load()
	}
	return &l
}

// Since considers the rows that were counted after before was taken. It returns the time in seconds within
// which the given share of them was done. The result is the upper bound of a bucket, so it may be up to 19 %
// too large. 0: no row was counted.
func (l *Latencies) Since(before *Latencies, share float64) float64 {
	var rows, seen uint64
	for i := range l {
		rows += l[i] - before[i]
	}
	if rows == 0 {
		return 0
	}
	wanted := uint64(math.Ceil(share * float64(rows)))
	for i := range l {
		if seen += l[i] - before[i]; seen >= wanted {
			return math.Exp2(float64(nativeIndex(i)) / nativePerPower)
		}
	}
	return 0
}
