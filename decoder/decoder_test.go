package decoder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/charset"
	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// lines returns the events as text. Rows are shown by their ids.
func lines(b *Batch) []string {
	var out []string
	for e := range b.All() {
		if e.Kind != Rows {
			out = append(out, e.String())
			continue
		}
		ids := make([]string, 0, len(e.Rows))
		for _, r := range e.Rows {
			ids = append(ids, fmt.Sprintf("%s/%d", r.ID, r.XID))
		}
		out = append(out, "rows "+strings.Join(ids, " "))
	}
	return out
}

// decode decodes frames, which must all be understood.
func decode(t *testing.T, d *Decoder, frames ...[]byte) *Batch {
	t.Helper()
	b := new(Batch)
	for i, f := range frames {
		if err := d.Decode(f, b); err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
	}
	return b
}

func expect(t *testing.T, b *Batch, want ...string) {
	t.Helper()
	if got := lines(b); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	ours := table("outbox")
	d := New([]*outbox.Table{ours})
	b := decode(
		t, d,
		beginMsg(7, 0x100), originMsg("o"), relationMsg(1, "public", "outbox", columns()...),
		insertMsg(1, values("a")...), logicalMsg("p", "c"), insertMsg(1, values("b")...), commitMsg(0x100, 0x130),
		beginMsg(8, 0x200), commitMsg(0x200, 0x230),
		logicalMsg("p", "outside"),
		beginMsg(9, 0x300), insertMsg(1, values("c")...), commitMsg(0x300, 0x330),
	)
	expect(
		t, b,
		"begin 7 committing at 0/100", "table mapped public.outbox", "rows a/7 b/7", "commit 7 up to 0/130",
		"begin 8 committing at 0/200", "commit 8 up to 0/230",
		"begin 9 committing at 0/300", "rows c/9", "commit 9 up to 0/330",
	)
	if b.Rows() != 3 || b.Ignored != (Ignored{Messages: 2}) {
		t.Errorf("%d rows, ignored %+v", b.Rows(), b.Ignored)
	}
	size := 9*eventBytes + 1*noteBytes
	for e := range b.All() {
		for _, r := range e.Rows {
			size += r.Size()
		}
	}
	if b.Bytes() != size {
		t.Errorf("%d bytes, want %d", b.Bytes(), size)
	}
}

func TestRowIsComplete(t *testing.T) {
	t.Parallel()
	ours := table("outbox")
	d := New([]*outbox.Table{ours})
	// A column that is not mapped is passed over.
	frame := insertMsg(1, slices.Insert(values("a"), 2, text("passed over"))...)
	b := decode(t, d, beginMsg(7, 0x100), relationMsg(1, "public", "outbox", slices.Insert(columns(), 2, col("other", oidText))...), frame)
	clear(frame) // the connection's buffer is used again
	var rows []*outbox.Row
	for e := range b.All() {
		rows = append(rows, e.Rows...)
	}
	if b.Empty() {
		t.Error("a batch with a row is empty")
	}
	b.Reset()
	if b.rows[:1][0] != nil {
		t.Error("Reset keeps the row alive")
	}
	want := &outbox.Row{
		Table: ours, ID: "a", Cluster: "main", Topic: "orders", Key: []byte("k"), Value: []byte("hi"),
		Partition: -1, Pending: true, XID: 7, Commit: 0x100, CommitTime: 946_684_800_000_001,
	}
	if len(rows) != 1 || !reflect.DeepEqual(rows[0], want) {
		t.Errorf("got %+v, want %+v", rows, want)
	}
	if !b.Empty() || b.Rows() != 0 || b.Bytes() != 0 {
		t.Error("Reset leaves something")
	}
}

func TestRowThatCannotBecomeARecordIsARow(t *testing.T) {
	t.Parallel()
	ours := table("outbox")
	ours.Mapping.MaxRowBytes = 100
	d := New([]*outbox.Table{ours})
	bad, long := values("a"), values("b")
	bad[3].Format, bad[3].Data = mapping.Unchanged, nil
	long[3] = mapping.Value{Format: mapping.LongText, Length: 2 * 1000}
	b := decode(t, d, beginMsg(7, 0x100), relationMsg(1, "public", "outbox", columns()...), insertMsg(1, bad...), insertMsg(1, long...))
	for e := range b.All() {
		if e.Kind == Rows && (e.Rows[0].Err == nil || e.Rows[1].Err == nil || !strings.Contains(e.Rows[1].Err.Error(), "999 bytes")) {
			t.Errorf("%v, %v", e.Rows[0].Err, e.Rows[1].Err)
		}
	}
	expect(t, b, "begin 7 committing at 0/100", "table mapped public.outbox", "rows a/7 b/7")
}

// A batch may end within a transaction, and a consumer may stop within a batch.
func TestATransactionGoesOnInTheNextBatch(t *testing.T) {
	t.Parallel()
	d := New([]*outbox.Table{table("outbox"), table("broken")})
	decode(t, d, beginMsg(7, 0x100), relationMsg(1, "public", "outbox", columns()...), relationMsg(2, "public", "broken", columns()[:4]...))
	expect(t, decode(t, d, insertMsg(1, values("a")...)), "rows a/7")
	b := decode(t, d, insertMsg(2, values("b")[:4]...), commitMsg(0x100, 0x130))
	expect(t, b, "passed 1 rows of public.broken", "commit 7 up to 0/130")
	for e := range b.All() {
		if e.Kind == Passed {
			break
		}
		t.Error("the loop went on")
	}
}

// If the server was asked for it, names from the catalogue come in the database's encoding.
func TestNamesAreInTheDatabasesEncoding(t *testing.T) {
	t.Parallel()
	win1252, err := charset.Of("WIN1252")
	if err != nil {
		t.Fatal(err)
	}
	for sent, set := range map[string]*charset.Set{"bestellungen_für": nil, "bestellungen_f\xfcr": win1252} {
		d := New([]*outbox.Table{table("bestellungen_für")})
		d.SetCharset(set)
		expect(t, decode(t, d, relationMsg(1, "public", sent, columns()...)), "table mapped public.bestellungen_für")
	}
}

// A server that sends descriptions without end does not fill the memory.
func TestWhatAConnectionDescribesIsBounded(t *testing.T) {
	t.Parallel()
	d := New(nil)
	for i := range uint32(maxRelations - 1) {
		d.relations[i], d.types[i] = nil, 0
	}
	decode(t, d, relationMsg(maxRelations, "public", "last", columns()...), typeMsg(maxTypes, "", "bytea"))
	for _, frame := range [][]byte{relationMsg(maxRelations+1, "public", "more", columns()...), typeMsg(maxTypes+1, "", "bytea")} {
		if d.err = nil; d.Decode(frame, new(Batch)) == nil {
			t.Errorf("%q: without end", frame[0])
		}
	}
}

func TestRowsThatAreLeftToOthersAreCountedByTable(t *testing.T) {
	t.Parallel()
	one, two := table("one"), table("two")
	for _, of := range []*outbox.Table{one, two} {
		of.Mapping.Rows = []outbox.RowCondition{{Column: "key", Values: []string{"ours"}}}
	}
	ours := values("a")
	ours[2] = text("ours")
	b := decode(
		t, New([]*outbox.Table{one, two}), beginMsg(7, 0x100),
		relationMsg(1, "public", "one", columns()...), relationMsg(2, "public", "two", columns()...),
		insertMsg(1, values("b")...), insertMsg(2, values("c")...), insertMsg(1, ours...), insertMsg(1, values("d")...),
	)
	if want := []NotOurs{{one, 2}, {two, 1}}; !reflect.DeepEqual(b.NotOurs, want) || b.Rows() != 1 {
		t.Errorf("%+v, %d rows", b.NotOurs, b.Rows())
	}
	if b.Reset(); len(b.NotOurs) > 0 {
		t.Error("Reset leaves counts")
	}
}

func TestOtherChangesAreCounted(t *testing.T) {
	t.Parallel()
	d := New([]*outbox.Table{table("outbox")})
	v := values("a")
	b := decode(
		t, d,
		beginMsg(7, 0x100), relationMsg(1, "public", "outbox", columns()...), relationMsg(2, "public", "other", col("x", oidText)),
		updateMsg(1, 0, nil, v), updateMsg(1, 'K', v, v), updateMsg(1, 'O', v, v), deleteMsg(1, 'K', v...), deleteMsg(2, 'O', text("x")),
		truncateMsg(1, 2), insertMsg(2, text("x")), insertMsg(1, v...), insertMsg(2, null()), commitMsg(0x100, 0x130),
	)
	if want := (Ignored{Inserts: 2, Updates: 3, Deletes: 2, Truncates: 1}); b.Ignored != want {
		t.Errorf("ignored %+v, want %+v", b.Ignored, want)
	}
	expect(t, b, "begin 7 committing at 0/100", "table mapped public.outbox", "unmapped public.other", "rows a/7", "commit 7 up to 0/130")
}

func TestBrokenTable(t *testing.T) {
	t.Parallel()
	ours, other := table("outbox"), table("second")
	d := New([]*outbox.Table{ours, other})
	without := columns()[:4]
	broken := `broken public.outbox: table public.outbox: column "status" does not exist, but is mapped as the status: map an existing column; there are id, topic, key, payload`
	b := decode(
		t, d,
		beginMsg(7, 0x100), relationMsg(1, "public", "outbox", columns()...), relationMsg(2, "public", "second", columns()...), insertMsg(1, values("a")...),
		relationMsg(1, "public", "outbox", without...), insertMsg(1, values("b")[:4]...), insertMsg(1, values("c")[:4]...),
		relationMsg(1, "public", "outbox", without...), insertMsg(1, values("d")[:4]...),
		insertMsg(2, values("e")...),
		insertMsg(1, values("f")[:4]...),
		relationMsg(1, "public", "outbox", columns()...), insertMsg(1, values("g")...),
		relationMsg(1, "public", "outbox", columns()...), insertMsg(1, values("h")...),
		relationMsg(1, "public", "outbox", without...), relationMsg(2, "public", "second", without...),
		insertMsg(1, values("i")[:4]...), insertMsg(2, values("j")[:4]...), relationMsg(1, "public", "outbox", columns()...),
	)
	expect(
		t, b,
		"begin 7 committing at 0/100", "table mapped public.outbox", "table mapped public.second", "rows a/7",
		broken, "passed 3 rows of public.outbox", "rows e/7", "passed 1 rows of public.outbox",
		"table mapped public.outbox", "rows g/7 h/7",
		broken, strings.ReplaceAll(broken, "outbox", "second"), "passed 1 rows of public.outbox", "passed 1 rows of public.second",
		"table mapped public.outbox",
	)
	// A change from a missing column to an unusable one is reported.
	unusable := append(columns()[:4:4], col("status", oidJSONB))
	b = decode(t, d, relationMsg(1, "public", "outbox", without...), relationMsg(1, "public", "outbox", unusable...))
	expect(t, b, broken, `broken public.outbox: table public.outbox: column "status" (jsonb) cannot be the status: map a text, enum, integer or boolean column`)
}

func TestPartitions(t *testing.T) {
	t.Parallel()
	ours := table("outbox")
	d := New([]*outbox.Table{ours})
	d.SetPartitions(map[string]*outbox.Table{"parts.one": ours, "parts.two": ours})
	without := columns()[:4]
	b := decode(
		t, d,
		beginMsg(7, 0x100), relationMsg(1, "parts", "one", columns()...), relationMsg(2, "parts", "two", columns()...), relationMsg(3, "parts", "three", columns()...),
		insertMsg(1, values("a")...), insertMsg(2, values("b")...), insertMsg(3, values("c")...), insertMsg(3, values("d")...),
	)
	expect(t, b, "begin 7 committing at 0/100", "table mapped public.outbox", "rows a/7 b/7", "unmapped parts.three")
	// While one partition is broken, no row of the table is decoded.
	b = decode(t, d, relationMsg(2, "parts", "two", without...), insertMsg(1, values("e")...), insertMsg(2, values("f")[:4]...))
	if got := lines(b); len(got) != 2 || got[1] != "passed 2 rows of public.outbox" {
		t.Errorf("got %q", got)
	}
	b = decode(t, d, relationMsg(1, "parts", "one", columns()...))
	expect(t, b)
	b = decode(t, d, relationMsg(2, "parts", "two", columns()...), insertMsg(1, values("g")...))
	expect(t, b, "table mapped public.outbox", "rows g/7")
}

// With publish_via_partition_root a partition is described, but its rows come as the root's rows.
func TestPartitionDescribedBesideItsRoot(t *testing.T) {
	t.Parallel()
	d := New([]*outbox.Table{table("outbox")})
	b := decode(t, d, beginMsg(7, 0x100), relationMsg(2, "public", "leaf", columns()...), relationMsg(1, "public", "outbox", columns()...), insertMsg(1, values("a")...))
	expect(t, b, "begin 7 committing at 0/100", "table mapped public.outbox", "rows a/7")
}

func TestRelationsReplaceOneAnother(t *testing.T) {
	t.Parallel()
	without := columns()[:4]
	tests := []struct {
		name  string
		frame []byte
		want  []string
	}{
		{"dropped and created again", relationMsg(2, "public", "outbox", columns()...), []string{"table mapped public.outbox"}},
		{"renamed away", relationMsg(1, "public", "old", without...), []string{"table mapped public.outbox"}},
		{"another table", relationMsg(2, "public", "other", columns()...), nil},
		{"mended", relationMsg(1, "public", "outbox", columns()...), []string{"table mapped public.outbox"}},
		{"dropped and created no better", relationMsg(2, "public", "outbox", without...), nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := New([]*outbox.Table{table("outbox")})
			decode(t, d, relationMsg(1, "public", "outbox", without...))
			expect(t, decode(t, d, test.frame), test.want...)
		})
	}
}

// A relation that another one replaced is forgotten. Other relations stay.
func TestWhatIsLeftOfReplacedRelations(t *testing.T) {
	t.Parallel()
	described := func(id uint32, name string) []byte { return relationMsg(id, "public", name, columns()...) }
	d := New([]*outbox.Table{table("outbox")})
	b := decode(
		t, d, beginMsg(7, 0x100), described(1, "outbox"), described(1, "old"), described(2, "outbox"),
		insertMsg(1, values("a")...), insertMsg(2, values("b")...), described(3, "outbox"),
	)
	expect(t, b, "begin 7 committing at 0/100", "table mapped public.outbox", "unmapped public.old", "rows b/7")
	if err := d.Decode(insertMsg(2, values("c")...), b); err == nil {
		t.Error("a table that was dropped and created again has a row by its former id")
	}
}

func TestDomainsAreReadAsTheirBaseType(t *testing.T) {
	t.Parallel()
	d := New([]*outbox.Table{table("outbox")})
	cols := columns()
	cols[3].OID, cols[1].OID = 16500, 16501
	b := decode(
		t, d, beginMsg(7, 0x100), typeMsg(16500, "", "bytea"), typeMsg(16501, "public", "bytea"),
		relationMsg(1, "public", "outbox", cols...), insertMsg(1, values("a")...),
	)
	for e := range b.All() {
		if e.Kind == Rows && string(e.Rows[0].Value) != "hi" {
			t.Errorf("value %q", e.Rows[0].Value)
		}
	}
	expect(t, b, "begin 7 committing at 0/100", "table mapped public.outbox", "rows a/7")
}

// The binary form of an enum value is its label, even if the type's id belonged to a domain before.
func TestEnumsInBinary(t *testing.T) {
	t.Parallel()
	d := New([]*outbox.Table{table("outbox")})
	d.SetEnums(map[uint32]bool{16500: true})
	cols := columns()
	cols[4].OID = 16500
	binary := values("a")
	binary[4].Format = mapping.Binary
	b := decode(
		t, d, beginMsg(7, 0x100), typeMsg(16500, "", "int4"), typeMsg(16500, "public", "status"),
		relationMsg(1, "public", "outbox", cols...), insertMsg(1, binary...),
	)
	for e := range b.All() {
		if e.Kind == Rows && (e.Rows[0].Err != nil || !e.Rows[0].Pending) {
			t.Errorf("%+v", e.Rows[0])
		}
	}
	expect(t, b, "begin 7 committing at 0/100", "table mapped public.outbox", "rows a/7")
}

// A type that can only be read as text is no fault of the rows. The connection has to restart with text.
func TestBinaryFormThatIsNotUnderstood(t *testing.T) {
	t.Parallel()
	d := New([]*outbox.Table{table("outbox")})
	cols := columns()
	cols[1].OID = 16500
	binary := values("b")
	binary[1].Format = mapping.Binary
	b := decode(t, d, beginMsg(7, 0x100), relationMsg(1, "public", "outbox", cols...), insertMsg(1, values("a")...))
	err := d.Decode(insertMsg(1, binary...), b)
	var unreadable *Error
	if !errors.As(err, &unreadable) || !unreadable.NeedsText ||
		!strings.Contains(err.Error(), `column "topic" (type with OID 16500) cannot be read in binary form: let the server send text`) {
		t.Errorf("%v", err)
	}
	if again := d.Decode(insertMsg(1, values("c")...), b); !errors.Is(again, err) {
		t.Errorf("went on: %v", again)
	}
	expect(t, b, "begin 7 committing at 0/100", "table mapped public.outbox", "rows a/7")
}

func TestErrors(t *testing.T) {
	t.Parallel()
	relation := relationMsg(1, "public", "outbox", columns()...)
	insert := insertMsg(1, values("a")...)
	begin := beginMsg(7, 0x100)
	badColumn := insertMsg(1, values("a")...)
	badColumn[8] = 'x'
	flagged := commitMsg(0x100, 0x130)
	flagged[1] = 1
	with := func(b []byte, c ...byte) []byte { return append(b[:len(b):len(b)], c...) }
	const in = ` in transaction 7, which commits at 0/100, `
	tests := []struct {
		name   string
		frames [][]byte
		want   string
	}{
		{"empty", [][]byte{{}}, `message '\x00' the message is empty`},
		{"unknown type", [][]byte{{'Z'}}, `message 'Z' is of an unknown type: this version of outbox-cdc speaks pgoutput protocols 1 and 2`},
		{"stream start", [][]byte{{'S', 0, 0, 0, 1, 1}}, `message 'S' streams a transaction in progress, which may still roll back: START_REPLICATION must not ask for streaming`},
		{"stream stop", [][]byte{{'E'}}, `message 'E' streams a transaction`},
		{"stream commit", [][]byte{{'c'}}, `message 'c' streams a transaction`},
		{"stream abort", [][]byte{{'A'}}, `message 'A' streams a transaction`},
		{"prepare", [][]byte{{'P'}}, `message 'P' is of a prepared transaction, which may still roll back: the slot and START_REPLICATION must have two_phase off`},
		{"nested begin", [][]byte{begin, begin}, `message 'B'` + in + `begins a transaction inside another`},
		{"commit outside", [][]byte{commitMsg(1, 2)}, `message 'C' commits outside of a transaction`},
		{"commit twice", [][]byte{begin, commitMsg(0x100, 0x130), commitMsg(0x100, 0x130)}, `message 'C' commits outside of a transaction`},
		{"commit of another", [][]byte{begin, commitMsg(0x101, 0x130)}, `message 'C'` + in + `commits at 0/101, but the transaction began as committing at 0/100`},
		{"commit with flags", [][]byte{begin, flagged}, `message 'C'` + in + `has the unknown flags 0x1`},
		{"insert outside", [][]byte{relation, insert}, `message 'I' is a change outside of a transaction`},
		{"update outside", [][]byte{relation, updateMsg(1, 0, nil, values("a"))}, `message 'U' is a change outside of a transaction`},
		{"delete outside", [][]byte{relation, deleteMsg(1, 'K', values("a")...)}, `message 'D' is a change outside of a transaction`},
		{"truncate outside", [][]byte{truncateMsg(1)}, `message 'T' is a change outside of a transaction`},
		{"unknown relation", [][]byte{begin, insert}, `message 'I'` + in + `is a change of relation 1, which was never described`},
		{"column missing", [][]byte{begin, relation, insertMsg(1, values("a")[:4]...)}, `message 'I'` + in + `has 4 columns, but relation public.outbox has 5`},
		{"column missing in an update", [][]byte{begin, relation, updateMsg(1, 0, nil, values("a")[:4])}, `message 'U'` + in + `has 4 columns, but relation public.outbox has 5`},
		{"column missing in the old row", [][]byte{begin, relation, updateMsg(1, 'K', values("a")[:4], values("a"))}, `message 'U'` + in + `has 4 columns, but relation public.outbox has 5`},
		{"column missing in a delete", [][]byte{begin, relation, deleteMsg(1, 'K', values("a")[:4]...)}, `message 'D'` + in + `has 4 columns, but relation public.outbox has 5`},
		{"unknown column format", [][]byte{begin, relation, badColumn}, `message 'I'` + in + `has a column of unknown format 'x'`},
		{"insert of an old tuple", [][]byte{begin, relation, deleteMsg(1, 'K', values("a")...), with([]byte{'I', 0, 0, 0, 1}, 'K')}, `message 'I'` + in + `has no new tuple`},
		{"update without new tuple", [][]byte{begin, relation, {'U', 0, 0, 0, 1, 'D'}}, `message 'U'` + in + `has no new tuple`},
		{"delete without old tuple", [][]byte{begin, relation, {'D', 0, 0, 0, 1, 'N'}}, `message 'D'` + in + `has no old tuple`},
		{"garbage after insert", [][]byte{begin, relation, with(insert, 0)}, `message 'I'` + in + `has more bytes than its type has`},
		{"garbage after begin", [][]byte{with(begin, 0)}, `message 'B' has more bytes than its type has`},
		{"garbage after relation", [][]byte{with(relation, 0)}, `message 'R' has more bytes than its type has`},
		{"garbage after commit", [][]byte{begin, with(commitMsg(0x100, 0x130), 0)}, `message 'C'` + in + `has more bytes than its type has`},
		{"garbage after type", [][]byte{with(typeMsg(9, "s", "n"), 0)}, `message 'Y' has more bytes than its type has`},
		{"garbage after origin", [][]byte{with(originMsg("o"), 0)}, `message 'O' has more bytes than its type has`},
		{"garbage after truncate", [][]byte{begin, with(truncateMsg(1), 0)}, `message 'T'` + in + `has more bytes than its type has`},
		{"garbage after message", [][]byte{with(logicalMsg("p", "c"), 0)}, `message 'M' has more bytes than its type has`},
		{"truncate of more than there are", [][]byte{begin, {'T', 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1}}, `message 'T'` + in + `ends too early`},
		{"relation of more columns than there are", [][]byte{with(relationMsg(1, "public", "outbox")[:len(relationMsg(1, "public", "outbox"))-2], 0xff, 0xff)}, `message 'R' ends too early`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := New([]*outbox.Table{table("outbox")})
			last := len(test.frames) - 1
			decode(t, d, test.frames[:last]...)
			b := new(Batch)
			err := d.Decode(test.frames[last], b)
			var typed *Error
			if !errors.As(err, &typed) || !strings.HasPrefix(err.Error(), "decoding pgoutput: "+test.want) {
				t.Errorf("error %v\nwant  %s", err, test.want)
			}
			if !b.Empty() {
				t.Errorf("events of a message that was not understood: %q", lines(b))
			}
			// After an error nothing may be taken as read.
			if again := d.Decode(commitMsg(0x100, 0x130), b); !errors.Is(again, err) || !b.Empty() {
				t.Errorf("after the error: %v, %q", again, lines(b))
			}
			d.Reset()
			expect(t, decode(t, d, begin, relation, insert), "begin 7 committing at 0/100", "table mapped public.outbox", "rows a/7")
		})
	}
}

// Every message that ends too early is an error, wherever it ends.
func TestTruncatedMessages(t *testing.T) {
	t.Parallel()
	setup := [][]byte{beginMsg(7, 0x100), relationMsg(1, "public", "outbox", columns()...), relationMsg(2, "public", "no_columns")}
	v := values("a")
	v[4] = text("") // ends with its length
	for _, message := range [][]byte{
		beginMsg(8, 0x200), insertMsg(2), logicalMsg("", ""), commitMsg(0x100, 0x130), originMsg("o"), relationMsg(3, "public", "x", columns()...), typeMsg(9, "s", "n"), insertMsg(1, v...),
		updateMsg(1, 'K', v, v), deleteMsg(1, 'O', v...), truncateMsg(1, 2), logicalMsg("p", "content"),
	} {
		for n := range message {
			d := New([]*outbox.Table{table("outbox")})
			decode(t, d, setup...)
			b := new(Batch)
			err := d.Decode(message[:n:n], b)
			read := strings.ContainsRune("BCOYTR", rune(message[0])) && n > 0 // by pglogrepl
			if err == nil || !b.Empty() || read && !strings.Contains(err.Error(), truncated) {
				t.Errorf("%q cut to %d bytes: %v, %q", message[0], n, err, lines(b))
			}
		}
		if d := New([]*outbox.Table{table("outbox")}); message[0] != msgBegin {
			decode(t, d, append(setup, message)...)
		}
	}
}

func TestResetForgetsTheConnection(t *testing.T) {
	t.Parallel()
	d := New([]*outbox.Table{table("outbox")})
	decode(t, d, beginMsg(7, 0x100), relationMsg(1, "public", "outbox", columns()...))
	d.Reset()
	b := decode(t, d, beginMsg(8, 0x200))
	if err := d.Decode(insertMsg(1, values("a")...), b); err == nil {
		t.Error("a relation outlived its connection")
	}
}

// If the server's clock is far ahead, the time of a commit is still the server's time, even beyond the range
// of nanoseconds since 1970. Rows carry this time.
func TestTimeOfACommitFarAhead(t *testing.T) {
	year3000 := time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	frame := beginMsg(7, 0x100)
	binary.BigEndian.PutUint64(frame[9:], uint64(year3000-time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()))
	b := decode(t, New([]*outbox.Table{table("outbox")}), frame, relationMsg(1, "public", "outbox", columns()...), insertMsg(1, values("a")...), commitMsg(0x100, 0x130))
	for e := range b.All() {
		if e.Kind == Begin && e.Transaction.Time != year3000 || e.Kind == Rows && e.Rows[0].CommitTime != year3000 {
			t.Errorf("%+v, want %d", e, year3000)
		}
	}
}

// A transaction that commits below the position of Sent comes too late. The position only rises, so a lower
// Sent has no effect.
func TestATransactionBelowWhatWasSentIsRefused(t *testing.T) {
	t.Parallel()
	d := New([]*outbox.Table{table("outbox")})
	refuses := func(frame []byte, what string) {
		t.Helper()
		err := d.Decode(frame, new(Batch))
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want an error with %q", err, what)
		}
		d.Reset()
	}
	decode(t, d, beginMsg(7, 0x100), commitMsg(0x100, 0x130), beginMsg(8, 0x130), commitMsg(0x130, 0x160))
	d.Sent(0x200)
	d.Sent(0x150)
	decode(t, d, beginMsg(9, 0x200), commitMsg(0x200, 0x230))
	refuses(beginMsg(10, 0x200), "commits at 0/200, but the server said before that it had sent everything up to 0/230")
	d.Sent(0x300)
	refuses(beginMsg(10, 0x2f8), "commits at 0/2F8, but the server said before that it had sent everything up to 0/300")
	decode(t, d, beginMsg(7, 0x100), commitMsg(0x100, 0x130)) // another connection
	decode(t, d, beginMsg(7, 0x200))
	refuses(commitMsg(0x200, 0x1f0), "commits at 0/200, but ends at 0/1F0")
	decode(t, d, beginMsg(7, 0x200))
	refuses(commitMsg(0x200, 1<<40), "commits at 0/200, but ends at 100/0")
}
