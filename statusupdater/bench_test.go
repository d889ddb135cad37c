package statusupdater

import (
	"fmt"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

const benchRows = 100_000

// BenchmarkMarking compares the updater with the bare statement, which is the limit: unnest UPDATEs of 1000
// rows on one connection.
func BenchmarkMarking(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		for range b.N {
			bench := newBench(b, fixture.Im2be())
			rows := bench.im2be(benchRows)
			b.ResetTimer()
			started := time.Now()
			bench.bare(rows)
			b.ReportMetric(benchRows/time.Since(started).Seconds(), "rows/s")
		}
	})
	for connections := 1; connections <= 4; connections++ {
		b.Run(fmt.Sprintf("updater-%d", connections), func(b *testing.B) {
			for range b.N {
				bench := newBenchOn(b, harness.Postgres(b), fixture.Im2be(), Config{Connections: connections})
				rows := bench.im2be(benchRows)
				b.ResetTimer()
				started := time.Now()
				bench.feed(rows)
				b.ReportMetric(benchRows/time.Since(started).Seconds(), "rows/s")
				b.ReportMetric(float64(bench.updater.Stats().Statements), "statements")
			}
		})
	}
}

// BenchmarkMarkingUnits compares two ways of marking in turn: in the transactions that note their units (of
// 1000 rows each), and as with at-least-once delivery.
func BenchmarkMarkingUnits(b *testing.B) {
	for _, exactly := range []bool{false, true, false, true} {
		b.Run(fmt.Sprintf("once=%v", exactly), func(b *testing.B) {
			for range b.N {
				o := newOnce(b, fixture.Im2be(), Config{})
				rows := o.im2be(benchRows)
				b.ResetTimer()
				started := time.Now()
				o.feedUnits(rows, exactly)
				b.ReportMetric(benchRows/time.Since(started).Seconds(), "rows/s")
				b.ReportMetric(float64(o.updater.Stats().Statements), "statements")
			}
		})
	}
}

// feedUnits sends whole units, ten at a time.
func (b *bench) feedUnits(rows []*outbox.Row, exactly bool) {
	given, answered := 0, 0
	for answered < len(rows) {
		if given < len(rows) && given-answered < 10_000 {
			unit := rows[given:min(given+1000, len(rows))]
			given += len(unit)
			if exactly {
				b.updater.Do(unitMarks(uint64(given/1000), unit...)...)
			} else {
				b.do(outbox.MarkSent, "", unit...)
			}
			continue
		}
		<-b.answers.Ready()
		answered += len(b.answers.Take(nil))
	}
}

func (b *bench) bare(rows []*outbox.Row) {
	conn := b.db.Conn(b.t)
	for len(rows) > 0 {
		n := min(1000, len(rows))
		var first, second []string
		for _, r := range rows[:n] {
			parts := outbox.SplitID(r.ID)
			first, second = append(first, parts[0]), append(second, parts[1])
		}
		_, err := conn.Exec(b.t.Context(), `UPDATE outbox o SET status = 'SENT', sent_at = now(), last_error = NULL
			FROM unnest($1::uuid[], $2::uuid[]) u(a, e) WHERE o.aggregate_id = u.a AND o.event_id = u.e AND o.status = 'PENDING'`, first, second)
		if err != nil {
			b.t.Fatal(err)
		}
		rows = rows[n:]
	}
}

// feed sends marks as a stream does: with a bound on the marks in flight.
func (b *bench) feed(rows []*outbox.Row) {
	const inFlight = 10_000
	given, answered := 0, 0
	for answered < len(rows) {
		if n := min(500, len(rows)-given, inFlight-(given-answered)); n > 0 {
			b.do(outbox.MarkSent, "", rows[given:given+n]...)
			given += n
			continue
		}
		<-b.answers.Ready()
		answered += len(b.answers.Take(nil))
	}
}
