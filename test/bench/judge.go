package bench

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// judge holds a topic against what was inserted: rows 0 to n-1, row i with key
// i mod keys, committed in the order of their numbers.
type judge struct {
	seen []bool
	last []int // by key; -1: none yet
	err  error // the first trouble
}

func newJudge(rows, keys int) *judge {
	j := &judge{seen: make([]bool, rows), last: make([]int, keys)}
	for k := range j.last {
		j.last[k] = -1
	}
	return j
}

// see takes the next record of its partition.
func (j *judge) see(i int) {
	switch {
	case j.err != nil:
	case i < 0 || i >= len(j.seen):
		j.err = fmt.Errorf("row %d is in the topic, and nobody inserted it", i)
	case j.seen[i]:
		j.err = fmt.Errorf("row %d is in the topic twice", i)
	case j.last[i%len(j.last)] > i:
		j.err = fmt.Errorf("row %d is in the topic after row %d of its key", i, j.last[i%len(j.last)])
	default:
		j.seen[i], j.last[i%len(j.last)] = true, i
	}
}

func (j *judge) fault() error {
	if j.err != nil {
		return j.err
	}
	missing := 0
	for _, seen := range j.seen {
		if !seen {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("%d rows of %d are missing in the topic", missing, len(j.seen))
	}
	return nil
}

// number of a row, which its payload begins with.
func rowNumber(payload []byte) int {
	text, _, _ := bytes.Cut(payload, []byte{'|'})
	i, err := strconv.Atoi(string(text))
	if err != nil {
		return -1
	}
	return i
}

// judgeTopic reads a topic to its end, as a read_committed consumer does, and fails the bar where
// it does not hold every row once, in order per key.
func judgeTopic(t testing.TB, k *harness.Cluster, topic string, j *judge) {
	t.Helper()
	client, err := k.Client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	end, err := k.End(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	upTo, read := map[int32]int64{}, int64(0)
	for read < end { // past what was aborted, too
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("reading topic %s: %d of %d records: %v", topic, read, end, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				j.see(rowNumber(r.Value))
			}
			read += r.Offset + 1 - upTo[r.Partition]
			upTo[r.Partition] = r.Offset + 1
		})
	}
	if err := j.fault(); err != nil {
		t.Fatalf("the run does not count: %v", err)
	}
}
