package sink

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

func TestMurmur2IsTheJavaClients(t *testing.T) {
	// org.apache.kafka.common.utils.UtilsTest.testMurmur2.
	for key, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", key, got, want)
		}
	}
}

// TestPartitionersAreTheLibraries compares with sarama, which has all three, and with what librdkafka
// 2.16.0 and Java 4.4.0 chose of six partitions.
func TestPartitionersAreTheLibraries(t *testing.T) {
	libraries := map[outbox.Partitioner]sarama.Partitioner{
		outbox.Murmur2: sarama.NewMurmur2Partitioner("t"),
		outbox.CRC32:   sarama.NewConsistentCRCHashPartitioner("t"),
		outbox.FNV1a:   sarama.NewHashPartitioner("t"),
	}
	random := rand.New(rand.NewPCG(1, 2))
	for by, library := range libraries {
		for n := int32(1); n < 100; n++ {
			key := make([]byte, random.IntN(40))
			for i := range key {
				key[i] = byte(random.Uint32())
			}
			want, err := library.Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(key)}, n)
			if err != nil {
				t.Fatal(err)
			}
			if got := PartitionOf(by, key, int(n)); got != want {
				t.Errorf("%s: key %x of %d partitions: %d, not %d", by, key, n, got, want)
			}
		}
	}
	for _, c := range []struct {
		by   outbox.Partitioner
		key  string
		want int32
	}{
		{outbox.Murmur2, "42", 4},
		{outbox.Murmur2, "orders-1", 3},
		{outbox.Murmur2, "", 3},
		{"", "42", 4},
		{outbox.CRC32, "42", 2},
		{outbox.CRC32, "orders-1", 2},
		{outbox.FNV1a, "42", 5},
		{outbox.FNV1a, "orders-1", 4},
		{outbox.FNV1a, "", 3},
	} {
		if got := PartitionOf(c.by, []byte(c.key), 6); got != c.want {
			t.Errorf("%s: key %q: partition %d, not %d", c.by, c.key, got, c.want)
		}
	}
}

func TestATablesPartitionerChooses(t *testing.T) {
	top := newTopic("t")
	for range 6 {
		top.queues = append(top.queues, &partitionQueue{topic: top, partition: int32(len(top.queues))})
	}
	for by, want := range map[outbox.Partitioner]int32{outbox.Murmur2: 4, outbox.CRC32: 2, outbox.FNV1a: 5} {
		table := &outbox.Table{Mapping: outbox.Mapping{Partitioner: by}}
		if q := top.queueFor(&outbox.Row{Table: table, Key: []byte("42"), Partition: -1}, nil); q.partition != want {
			t.Errorf("%s: partition %d, not %d", by, q.partition, want)
		}
	}
}

// TestJudge has a line for each answer of doc.go's table, for a batch
// whose earlier tries are settled and for one with an open try.
func TestJudge(t *testing.T) {
	mine, older := producer{1, 5}, producer{1, 3}
	network := errors.New("connection reset")
	for _, c := range []struct {
		name         string
		r            reply
		as           producer
		clean, open  action
		maybeIfClean bool
	}{
		{"acknowledged", reply{offset: 7}, mine, actionAck, actionAck, false},
		{"known duplicate", reply{code: 46, offset: -1}, mine, actionAck, actionAck, false},
		{"never sent", reply{err: network, unsent: true}, mine, actionRetry, actionRetry, false},
		{"answer lost", reply{err: network}, mine, actionRetry, actionRetry, true},
		{"cannot be encoded", reply{err: sarama.PacketEncodingError{Info: "too large"}, unsent: true}, mine, actionSplit, actionResolve, false},
		{"timed out", reply{code: 7, offset: -1}, mine, actionRetry, actionRetry, true},
		{"too few replicas after append", reply{code: 20, offset: -1}, mine, actionRetry, actionRetry, true},
		{"unknown server error", reply{code: -1, offset: -1}, mine, actionSlow, actionSlow, true},
		{"appended, then not leader", reply{code: 6, offset: 12}, mine, actionRetry, actionRetry, true},
		{"appended first of all, then not leader", reply{code: 6, offset: 0}, mine, actionRetry, actionRetry, true},
		{"appended, then topic deleted", reply{code: 3, offset: 12}, mine, actionRetry, actionRetry, true},
		{"code of the future, appended", reply{code: 131, offset: 12}, mine, actionRetry, actionRetry, true},
		{"too large, with an offset", reply{code: 10, offset: 0}, mine, actionSplit, actionResolve, false},
		{"epoch, on an older one of ours, with an offset", reply{code: 47, offset: 0}, older, actionRebind, actionResolve, false},
		{"unknown topic", reply{code: 3, offset: -1}, mine, actionRetry, actionRetry, false},
		{"no leader", reply{code: 5, offset: -1}, mine, actionRetry, actionRetry, false},
		{"not leader", reply{code: 6, offset: -1}, mine, actionRetry, actionRetry, false},
		{"broker not available", reply{code: 8, offset: -1}, mine, actionRetry, actionRetry, false},
		{"coordinator loading", reply{code: 14, offset: -1}, mine, actionRetry, actionRetry, false},
		{"too few replicas", reply{code: 19, offset: -1}, mine, actionRetry, actionRetry, false},
		{"storage error", reply{code: 56, offset: -1}, mine, actionRetry, actionRetry, false},
		{"code of the future", reply{code: 131, offset: -1}, mine, actionRetry, actionRetry, false},
		{"corrupt once", reply{code: 2, offset: -1}, mine, actionRetry, actionRetry, false},
		{"too large", reply{code: 10, offset: -1}, mine, actionSplit, actionResolve, false},
		{"larger than a segment", reply{code: 18, offset: -1}, mine, actionSplit, actionResolve, false},
		{"timestamp", reply{code: 32, offset: -1}, mine, actionSplit, actionResolve, false},
		{"invalid record", reply{code: 87, offset: -1}, mine, actionSplit, actionResolve, false},
		{"topic not authorised", reply{code: 29, offset: -1}, mine, actionTopic, actionTopic, false},
		{"invalid topic", reply{code: 17, offset: -1}, mine, actionTopic, actionTopic, false},
		{"cluster not authorised", reply{code: 31, offset: -1}, mine, actionSlow, actionSlow, false},
		{"transactional id not authorised", reply{code: 53, offset: -1}, mine, actionSlow, actionSlow, false},
		{"compression not supported", reply{code: 76, offset: -1}, mine, actionSlow, actionSlow, false},
		{"acks not valid", reply{code: 21, offset: -1}, mine, actionSlow, actionSlow, false},
		{"version not supported", reply{code: 35, offset: -1}, mine, actionSlow, actionSlow, false},
		{"request not valid", reply{code: 42, offset: -1}, mine, actionSlow, actionSlow, false},
		{"out of order", reply{code: 45, offset: -1}, mine, actionResolve, actionResolve, false},
		{"unknown producer", reply{code: 59, offset: -1}, mine, actionResolve, actionResolve, false},
		{"epoch, on the current one", reply{code: 47, offset: -1}, mine, actionResolve, actionResolve, false},
		{"epoch, on an older one of ours", reply{code: 47, offset: -1}, older, actionRebind, actionResolve, false},
		{"fenced", reply{code: 90, offset: -1}, mine, actionResolve, actionResolve, false},
		{"transaction state", reply{code: 48, offset: -1}, mine, actionRetry, actionRetry, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &batch{as: c.as}
			if got := b.judge(c.r, mine); got != c.clean || b.maybe != c.maybeIfClean {
				t.Errorf("settled: action %d maybe %v, want %d %v", got, b.maybe, c.clean, c.maybeIfClean)
			}
			b = &batch{as: c.as, maybe: true}
			if got := b.judge(c.r, mine); got != c.open || !b.maybe {
				t.Errorf("open: action %d maybe %v, want %d", got, b.maybe, c.open)
			}
		})
	}
	b := &batch{as: mine}
	for range corruptTries - 1 {
		b.judge(reply{code: 2, offset: -1}, mine)
	}
	if got := b.judge(reply{code: 2, offset: -1}, mine); got != actionSplit {
		t.Errorf("corrupt again and again: action %d", got)
	}
}

func TestSequencesWrap(t *testing.T) {
	if got := advance(1<<31-1, 1); got != 0 {
		t.Errorf("after the last comes %d", got)
	}
	if got := advance(1<<31-3, 5); got != 2 {
		t.Errorf("five on is %d", got)
	}
}

func TestBatchesAreBounded(t *testing.T) {
	q := &partitionQueue{topic: newTopic("t"), as: nobody}
	big := newRow("t", "k", string(make([]byte, 5000)))
	rows := append(rowsOf("t", "k", "v", 10), big, newRow("t", "k", "after"))
	for _, r := range rows {
		q.rows.push(r)
	}
	sizes := []int{4, 4, 2, 1, 1} // by rows, then what is left before the big one, which goes alone
	for i, want := range sizes {
		b := q.next(limits{rows: 4, bytes: 4000}, producer{1, 0}, time.Time{})
		if b == nil || len(b.rows) != want {
			t.Fatalf("batch %d: %+v, want %d rows", i, b, want)
		}
		q.acked(b, -1)
	}
	if b := q.next(limits{rows: 4, bytes: 4000}, producer{1, 0}, time.Time{}); b != nil {
		t.Errorf("a batch of nothing: %+v", b)
	}
	if q.seq != 12 {
		t.Errorf("sequence %d", q.seq)
	}
}

func TestNewEpochStartsAtZero(t *testing.T) {
	q := &partitionQueue{topic: newTopic("t"), as: nobody}
	for _, r := range rowsOf("t", "k", "v", 4) {
		q.rows.push(r)
	}
	two := limits{rows: 2, bytes: 1 << 20}
	b := q.next(two, producer{1, 0}, time.Time{})
	q.acked(b, 10)
	if q.seq != 2 || q.tail != 12 {
		t.Fatalf("seq %d tail %d", q.seq, q.tail)
	}
	if b = q.next(two, producer{1, 2}, time.Time{}); b.seq != 0 || b.as.Epoch != 2 {
		t.Errorf("batch %+v", b)
	}
}

func TestQueue(t *testing.T) {
	var q queue
	rows := rowsOf("t", "k", "v", 3000)
	for _, r := range rows {
		q.push(r)
	}
	q.drop(1600)
	q.unshift(rows[1590:1600])
	odd := q.extract(func(r *outbox.Row) bool { return (r.Value[len(r.Value)-1]-'0')%2 == 1 })
	if len(odd) != 705 || q.len() != 705 {
		t.Fatalf("%d odd, %d left", len(odd), q.len())
	}
	for i, r := range q.takeAll() {
		if r != rows[1590+2*i] {
			t.Fatalf("row %d is %s", i, r.Value)
		}
	}
	q.unshift(rows[:5])
	q.unshift(rows[5:7])
	if got := q.peek(); len(got) != 7 || got[0] != rows[5] || got[2] != rows[0] {
		t.Errorf("after two unshifts: %d rows", len(got))
	}
}

func TestBackoff(t *testing.T) {
	if got := backoff(1, backoffMax); got != 20*time.Millisecond {
		t.Errorf("first %v", got)
	}
	if got := backoff(3, backoffMax); got != 80*time.Millisecond {
		t.Errorf("third %v", got)
	}
	for _, n := range []int{6, 50, 1 << 40} {
		if got := backoff(n, backoffMax); got != backoffMax {
			t.Errorf("%d: %v", n, got)
		}
	}
}

// A record whose own time its topic refuses goes out once more with the time of producing, if its table has
// that: those that the broker names, or all, and each once.
func TestRetime(t *testing.T) {
	refused := func(rejected ...int) reply {
		return reply{code: sarama.ErrInvalidTimestamp, offset: -1, rejected: rejected}
	}
	for name, c := range map[string]struct {
		replies []reply
		with    func(rows []*outbox.Row)
		again   bool // by the last reply
		untimed []bool
	}{
		"all":                   {replies: []reply{refused()}, again: true, untimed: []bool{true, true, true}},
		"one":                   {replies: []reply{refused(1)}, again: true, untimed: []bool{false, true, false}},
		"one, then another":     {replies: []reply{refused(1), refused(0)}, again: true, untimed: []bool{true, true, false}},
		"one twice":             {replies: []reply{refused(1), refused(1)}, untimed: []bool{false, true, false}},
		"one, then all":         {replies: []reply{refused(1), refused()}, again: true, untimed: []bool{true, true, true}},
		"another refusal":       {replies: []reply{{code: sarama.ErrInvalidRecord, offset: -1}}},
		"no answer":             {replies: []reply{{err: errors.New("connection reset"), code: sarama.ErrInvalidTimestamp}}},
		"no times of their own": {replies: []reply{refused()}, with: func(rows []*outbox.Row) { rows[0].Timestamp, rows[1].Timestamp, rows[2].Timestamp = 0, 0, 0 }},
		"its table waits":       {replies: []reply{refused()}, with: func(rows []*outbox.Row) { rows[0].Table.Mapping.TimestampNow = false }},
	} {
		table := &outbox.Table{Mapping: outbox.Mapping{TimestampNow: true}}
		b := &batch{}
		for range 3 {
			b.rows = append(b.rows, &outbox.Row{Table: table, Timestamp: 1})
		}
		if c.with != nil {
			c.with(b.rows)
		}
		again := false
		for _, r := range c.replies {
			again = b.retime(r)
		}
		if again != c.again || !slices.Equal(b.untimed, c.untimed) {
			t.Errorf("%s: again %v, with the time of producing %v", name, again, b.untimed)
		}
	}
}
