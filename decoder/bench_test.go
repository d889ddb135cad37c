package decoder

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/mapping"
	"github.com/outbox-cdc/outbox-cdc/outbox"
)

// im2be is a table of that layout, described and with a row of 256 bytes.
func im2be(tb testing.TB) (d *Decoder, insert []byte) {
	tb.Helper()
	t := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID:      []string{"aggregate_id", "event_id"},
		Cluster: outbox.ClusterMapping{Default: "main"},
		Topic:   outbox.Template{Literals: []string{"", ""}, Columns: []string{"topic"}},
		Key:     &outbox.KeyMapping{Column: "aggregate_id", Encoding: outbox.EncodingText},
		Payload: outbox.PayloadMapping{Column: "payload"},
		Headers: []outbox.HeaderMapping{
			{Name: "traceparent", Column: "trace_parent", OmitNull: true},
			{Name: "tracestate", Column: "trace_state", OmitNull: true},
		},
		CreatedAt: "created_at",
		Published: outbox.PublishedStatus,
		Status:    outbox.StatusMapping{Column: "status", Pending: []string{"PENDING"}},
	}}
	d = New([]*outbox.Table{t})
	columns := []mapping.Column{
		col("aggregate_id", oidUUID), col("event_id", oidUUID), col("status", oidText), col("topic", oidText), col("payload", oidBytea),
		col("schema_version", 23), col("retries", 23), col("last_error", oidText), col("created_at", 1184), col("sent_at", 1184),
		col("version", oidInt8), col("trace_parent", oidText), col("trace_state", oidText),
	}
	if err := d.Decode(relationMsg(1, "public", "outbox", columns...), new(Batch)); err != nil {
		tb.Fatal(err)
	}
	return d, insertMsg(
		1, text("123e4567-e89b-12d3-a456-426614174000"), text("00112233-4455-6677-8899-aabbccddeeff"), text("PENDING"), text("orders"),
		text(`\x`+strings.Repeat("5a", 256)), text("1"), text("0"), null(), text("2026-01-02 03:04:05.678901+00"), null(), text("0"),
		text("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), null(),
	)
}

// each decodes n transactions of size rows into a batch that is used again
// after 1000 rows.
func each(tb testing.TB, d *Decoder, insert []byte, n, size int, b *Batch) {
	for range n {
		frames := [][]byte{beginBytes}
		for range size {
			frames = append(frames, insert)
		}
		for _, f := range append(frames, commitBytes) {
			if err := d.Decode(f, b); err != nil {
				tb.Fatal(err)
			}
		}
		if b.Rows() >= 1000 {
			b.Reset()
		}
	}
}

var beginBytes, commitBytes = beginMsg(7, 0x100), commitMsg(0x100, 0x130)

func TestDecodeAllocatesNextToNothing(t *testing.T) {
	d, insert := im2be(t)
	b := new(Batch)
	frames := [][]byte{beginBytes, insert, commitBytes}
	const rows = 2000
	perRow := testing.AllocsPerRun(20, func() {
		for range rows {
			for _, f := range frames {
				if err := d.Decode(f, b); err != nil {
					t.Fatal(err)
				}
			}
			if b.Rows() >= 1000 {
				b.Reset()
			}
		}
	}) / rows
	if perRow > 0.1 {
		t.Errorf("%.3f allocations per row in transactions of one row", perRow)
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, size := range []int{1, 1000} {
		b.Run(fmt.Sprintf("%d-row transactions", size), func(b *testing.B) {
			d, insert := im2be(b)
			batch := new(Batch)
			b.ReportAllocs()
			b.SetBytes(int64(len(insert) * size))
			for b.Loop() {
				each(b, d, insert, 1, size, batch)
			}
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
