package decoder

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/creep"
)

// im2be returns a decoder that knows a table of that layout, and a row of 256 bytes as messages.
func im2be(tb testing.TB) (d *Decoder, insert, binary []byte) {
	tb.Helper()
	t := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID:      []string{"aggregate_id", "event_id"},
		Cluster: outbox.ClusterMapping{Default: "main"},
		Topic:   outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{{Column: "topic"}}},
		Key:     &outbox.Expr{Column: "aggregate_id", Encoding: outbox.EncodingText},
		Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "payload"}},
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
	bin := func(b ...byte) mapping.Value { return mapping.Value{Data: b, Format: mapping.Binary} }
	uuid := bin([]byte("0123456789abcdef")...)
	binary = insertMsg(
		1, uuid, uuid, bin([]byte("PENDING")...), bin([]byte("orders")...), bin(make([]byte, 256)...), bin(0, 0, 0, 1), bin(0, 0, 0, 0), null(),
		bin(0, 2, 0xea, 0, 0, 0, 0, 0), null(), bin(0, 0, 0, 0, 0, 0, 0, 0), bin([]byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")...), null(),
	)
	return d, insertMsg(
		1, text("123e4567-e89b-12d3-a456-426614174000"), text("00112233-4455-6677-8899-aabbccddeeff"), text("PENDING"), text("orders"),
		text(`\x`+strings.Repeat("5a", 256)), text("1"), text("0"), null(), text("2026-01-02 03:04:05.678901+00"), null(), text("0"),
		text("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), null(),
	), binary
}

var beginBytes, commitBytes = beginMsg(7, 0x100), commitMsg(0x100, 0x130)

func TestDecodeAllocatesNextToNothing(t *testing.T) {
	d, insert, _ := im2be(t)
	b := new(Batch)
	frames := [][]byte{beginBytes, insert, commitBytes}
	const rows = 2000
	creep.Hold(t, "decoder: transactions of one row", rows, func() {
		for range rows {
			d.sent = 0 // the same transaction again
			for _, f := range frames {
				if err := d.Decode(f, b); err != nil {
					t.Fatal(err)
				}
			}
			if b.Rows() >= 1000 {
				b.Reset()
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	d, insert, binary := im2be(b)
	run := func(name string, insert []byte, size int) {
		b.Run(name, func(b *testing.B) {
			batch := new(Batch)
			transaction := append([][]byte{beginBytes}, slices.Repeat([][]byte{insert}, size)...)
			transaction = append(transaction, commitBytes)
			b.ReportAllocs()
			b.SetBytes(int64(len(insert) * size))
			for b.Loop() {
				d.sent = 0 // the same transaction again
				for _, f := range transaction {
					if err := d.Decode(f, batch); err != nil {
						b.Fatal(err)
					}
				}
				if batch.Rows() >= 1000 {
					batch.Reset()
				}
			}
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "rows/s")
		})
	}
	run("transactions of 1 row", insert, 1)
	run("transactions of 1000 rows", insert, 1000)
	run("transactions of 1000 rows in binary form", binary, 1000)
}

// BenchmarkTuple compares our reading of an Insert with pglogrepl's. It reads the message only and makes no
// row.
func BenchmarkTuple(b *testing.B) {
	d, insert, _ := im2be(b)
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		d.inside = true
		for b.Loop() {
			c := cursor{data: insert, at: 1}
			r, err := d.changed(&c)
			c.byte()
			if err != nil || d.tuple(&c, r) != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("pglogrepl", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var m pglogrepl.InsertMessage
			if err := m.Decode(insert[1:]); err != nil {
				b.Fatal(err)
			}
		}
	})
}
