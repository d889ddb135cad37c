package pipeline

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file detects applications that change waiting rows. Once a second it compares one row that is about to
// be marked with the row in its table.

// samples is the state of these comparisons in one leadership.
type samples struct {
	next time.Time // when the next comparison may begin
	busy bool      // a comparison is in progress
	told map[*outbox.Table]bool
}

const sampleRowEvery = time.Second

// compareOne compares one of the rows, if a comparison is due. If the row is marked before it is read, the
// comparison has no result.
func (d *driver) compareOne(marks []outbox.Mark, now time.Time) {
	if d.samples.busy || now.Before(d.samples.next) {
		return
	}
	m := &marks[rand.IntN(len(marks))]
	row := m.Row
	if m.Kind != outbox.MarkSent || m.Refused /* the record is not kept */ || !row.Table.Stateful() || row.Table.Mapping.NeedsLook() {
		return
	}
	d.samples.next, d.samples.busy = now.Add(sampleRowEvery), true
	ctx := d.asking
	d.running.Go(func() {
		bounded, cancel := context.WithTimeout(ctx, sampleRowEvery)
		defer cancel()
		found, err := d.sweeper.Now(bounded, row)
		d.answers.Put(answer{0, func() {
			d.samples.busy = false
			if err == nil && found != nil { // otherwise a later sample will show it
				d.compared(row, found)
			}
		}})
	})
}

// compared reports a row that differs. The log has one line per table.
func (d *driver) compared(row, found *outbox.Row) {
	differs := difference(row, found)
	if len(differs) == 0 {
		return
	}
	d.metrics.Changed(row.Table)
	if d.samples.told[row.Table] {
		return
	}
	if d.samples.told == nil {
		d.samples.told = map[*outbox.Table]bool{}
	}
	d.samples.told[row.Table] = true
	d.log.Warn().Stringer("table", row.Table).Strs("id", outbox.SplitID(row.ID)).Str("differs", strings.Join(differs, ", ")).
		Msg("a row was changed while it waited, and was published as it was before: write look_first: true for its table")
}

// difference returns the names of the parts that differ between two records of a row.
func difference(a, b *outbox.Row) []string {
	if a.Err != nil || b.Err != nil {
		return nil
	}
	headers := slices.EqualFunc(a.Headers, b.Headers, func(x, y outbox.Header) bool { return x.Name == y.Name && sameBytes(x.Value, y.Value) })
	var names []string
	for _, part := range []struct {
		name string
		same bool
	}{
		{"cluster", a.Cluster == b.Cluster},
		{"topic", a.Topic == b.Topic},
		{"key", sameBytes(a.Key, b.Key)},
		{"payload", sameBytes(a.Value, b.Value)},
		{"headers", headers},
		{"partition", a.Partition == b.Partition},
		{"timestamp", a.Timestamp == b.Timestamp},
	} {
		if !part.same {
			names = append(names, part.name)
		}
	}
	return names
}

// sameBytes compares two values. NULL differs from an empty value.
func sameBytes(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
