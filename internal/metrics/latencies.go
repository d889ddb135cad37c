package metrics

import "math"

// Latencies are rows counted by how long they took, since the process began, in
// the buckets of the native histogram.
type Latencies [nativeBuckets]uint64

// Ages are those of created_to_published_seconds.
func (s *Stream) Ages() *Latencies {
	var l Latencies
	for i := range l {
		l[i] = s.age.fine[i].Load()
	}
	return &l
}

// Since returns how long, in seconds, that share of the rows took at most that were
// counted after before was taken: the upper bound of a bucket, so up to 19 % too
// much. 0: no row was counted.
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
