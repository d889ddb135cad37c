package takeover

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// quiet: the writer sends nothing by itself, so that the order is one relay's.
var quiet = fields{"hot": 0, "immediate": 0}

// The same rows through the old relay and through outbox-cdc come out as the
// same records: key, value, headers, partition, and the order of each key.
func TestParity(t *testing.T) {
	t.Parallel()
	for _, app := range []outboxOf{im2be, advertMarket, jeap} {
		t.Run(app.profile, func(t *testing.T) {
			t.Parallel()
			kafka := broker(t)
			topic := kafka.Topic(t, 6)

			before := newWorld(t, app, kafka, topic)
			old := before.application()
			old.wrote(0, 60, quiet)
			old.polls()
			old.wrote(60, 60, quiet)
			before.settled(time.Minute)
			theirs := kafka.Records(t, topic)

			after := newWorld(t, app, kafka, topic)
			writer := after.application()
			writer.wrote(0, 60, quiet)
			p := after.run()
			p.Await(time.Minute, `"message":"streaming"`)
			writer.wrote(60, 60, quiet)
			after.settled(time.Minute)
			p.Stop(30 * time.Second)
			same(t, theirs, beyond(kafka.Records(t, topic), theirs))
		})
	}
}

// beyond returns the records that came after the others, by partition.
func beyond(all, others []harness.Record) (rest []harness.Record) {
	end := map[int32]int64{}
	for _, r := range others {
		end[r.Partition] = max(end[r.Partition], r.Offset+1)
	}
	for _, r := range all {
		if r.Offset >= end[r.Partition] {
			rest = append(rest, r)
		}
	}
	return rest
}

// same compares two ways' records as consumers see them: per key in order, and
// records without a key in any.
func same(t *testing.T, theirs, ours []harness.Record) {
	t.Helper()
	if len(theirs) == 0 || len(theirs) != len(ours) {
		t.Fatalf("the relay sent %d records, outbox-cdc %d", len(theirs), len(ours))
	}
	a, b := perKey(theirs), perKey(ours)
	for key, want := range a {
		if got := b[key]; !slices.Equal(got, want) {
			t.Fatalf("key %s: the relay sent\n%q\noutbox-cdc\n%q", key, want, got)
		}
	}
}

func perKey(records []harness.Record) map[string][]string {
	sequences := map[string][]string{}
	for _, r := range records {
		partition := fmt.Sprint(r.Partition)
		if r.Key == nil {
			partition = "any" // without a key each producer spreads as it likes
		}
		var headers bytes.Buffer
		for _, h := range r.Headers {
			if strings.HasPrefix(h.Name, "__debezium.context.") {
				continue // of the connector that read the row, not of the row
			}
			fmt.Fprintf(&headers, "%s=%q(%v) ", h.Name, h.Value, h.Value == nil)
		}
		key := fmt.Sprintf("%q(%v)", r.Key, r.Key == nil)
		sequences[key] = append(sequences[key], fmt.Sprintf("%s/%s %q(%v) %s", r.Topic, partition, r.Value, r.Value == nil, headers.String()))
	}
	slices.Sort(sequences["\"\"(true)"])
	return sequences
}
