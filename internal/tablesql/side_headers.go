package tablesql

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/charset"
	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// headersAtOnce is how many bytes of headers one statement reads, except those of the last row: a thousand
// rows may each have max_row_bytes.
const headersAtOnce = 8 << 20

// SideHeaders are the headers of rows in the mapping's side table.
type SideHeaders struct {
	of      func(i int) *outbox.Row
	headers [][]outbox.Header
	faults  map[int]string
	late    map[int]bool // rows whose headers had no room
	table   *outbox.Table
	set     *charset.Set
}

// HeadersOf returns the step that reads the headers of n rows from the side table into the returned
// SideHeaders; nil: there is no side table.
func (r *Relation) HeadersOf(n int, row func(i int) *outbox.Row) (*SideHeaders, Step, error) {
	if r.Table.Mapping.HeadersTable.Name == "" {
		return nil, Step{}, nil
	}
	b := &SideHeaders{
		of: row, headers: make([][]outbox.Header, n), faults: map[int]string{}, late: map[int]bool{}, table: r.Table, set: r.Charset,
	}
	var args Params
	if err := r.bindIDs(&args, n, func(i int) string { return row(i).ID }); err != nil {
		return nil, Step{}, err
	}
	h := &r.Table.Mapping.HeadersTable
	fits, bytes := r.headerSize()
	order := ""
	if h.Order != "" {
		order = "ORDER BY " + Ref(h.Order)
	}
	// LIMIT makes the planner look up each row's headers by the row's id. For the few thousand ids of a page
	// it would otherwise read the whole side table, for each page.
	each := "SELECT u.n, x.* FROM " + r.list() + " CROSS JOIN LATERAL (SELECT row_number() OVER (" + order + ") AS i, " + Ref(h.HeaderName) + " AS name, " + Ref(h.HeaderValue) + " AS value, " +
		fits + " AS fits, " + bytes + " AS bytes FROM " + sql.Identifier(h.Schema, h.Name) + " AS t WHERE " + Ref(h.Parent) + r.Column(r.Table.Mapping.ID[0]).equals() + "u.c0 " +
		order + " LIMIT " + strconv.Itoa(mapping.MaxHeaders+1) + ") AS x"
	most := r.Table.Mapping.MaxRowBytes
	long := "bool_or(NOT fits) OVER own"
	if most > 0 {
		long += " OR sum(bytes) OVER own > " + strconv.Itoa(most)
	}
	judged := "SELECT *, count(*) OVER own > " + strconv.Itoa(mapping.MaxHeaders) + " AS many, " + long + " AS long, sum(bytes + " + strconv.Itoa(outbox.HeaderOverhead) + ") OVER own AS own FROM (" +
		each + ") AS e WINDOW own AS (PARTITION BY n)"
	// A row that is refused, or has to wait, has one header in the result, without the value.
	placed := "SELECT *, many OR long AS refused, sum(CASE WHEN many OR long THEN 0 ELSE bytes + " + strconv.Itoa(outbox.HeaderOverhead) + " END) OVER (ORDER BY n) - CASE WHEN many OR long THEN 0 ELSE own END > " +
		strconv.Itoa(headersAtOnce) + " AS late FROM (" + judged + ") AS j"
	value := "value"
	if r.Charset != nil {
		value = r.asText(formatted(value, ""))
	}
	text := "SELECT n, CASE WHEN NOT (refused OR late) THEN " + r.asText(formatted("name", "")) + " END, CASE WHEN NOT (refused OR late) THEN " + value +
		" END, pg_typeof(value)::oid, many, long, late FROM (" + placed + ") AS p WHERE i = 1 OR NOT (refused OR late) ORDER BY n, i"
	return b, Step{SQL: text, Args: args, Each: b.read}, nil
}

// headerSize returns the condition that a header is no longer than a row may be, and an expression for its
// bytes; 0 for a header that is too long.
func (r *Relation) headerSize() (fits, bytes string) {
	h, most := &r.Table.Mapping.HeadersTable, r.Table.Mapping.MaxRowBytes
	conditions, sizes := []string{"true"}, []string{"0"}
	for _, name := range []string{h.HeaderName, h.HeaderValue} {
		c := &Column{Name: name, brief: r.brief} // for a side table that is a view
		if r.side != nil && r.side.Column(name) != nil {
			c = r.side.Column(name)
		}
		if most > 0 {
			condition, _ := c.within(most)
			conditions = append(conditions, "coalesce("+condition+", true)")
		}
		sizes = append(sizes, "coalesce("+c.printedSize()+", 0)")
	}
	fits = strings.Join(conditions, " AND ")
	return fits, "CASE WHEN " + fits + " THEN " + strings.Join(sizes, " + ") + " ELSE 0 END"
}

// printedSize returns how many bytes a value has that is not too long.
func (c *Column) printedSize() string {
	if c.sized() {
		return "octet_length(" + Ref(c.Name) + ")"
	}
	return "octet_length(" + formatted(Ref(c.Name), "") + ")"
}

// read takes one header. Its value is the bytes of a bytea, or the text that PostgreSQL prints. NULL becomes
// Kafka's null.
func (b *SideHeaders) read(row [][]byte) error {
	n, err := Ordinal(row[0], len(b.headers))
	if err != nil {
		return err
	}
	switch {
	case string(row[4]) == "t":
		b.faults[n] = fmt.Sprintf("more than %d headers", mapping.MaxHeaders)
		return nil
	case string(row[5]) == "t":
		b.faults[n] = fmt.Sprintf("headers of more than max_row_bytes, which is %d,", b.table.Mapping.MaxRowBytes)
		return nil
	case string(row[6]) == "t":
		b.late[n] = true
		return nil
	}
	texts, ok := [2][]byte{row[1], row[2]}, true // ok: both are converted to UTF-8
	if b.set != nil {
		for i := range texts {
			stored, err := StoredText(texts[i])
			if err != nil {
				return err
			}
			var can bool
			texts[i], can = b.set.Append(nil, stored)
			ok = ok && can
		}
	}
	h := outbox.Header{Name: string(texts[0])}
	switch {
	case row[1] == nil:
		b.faults[n] = "a header without a name"
	case !ok:
		b.faults[n] = "a header with bytes that " + b.set.Name() + " cannot turn into UTF-8"
	case row[2] == nil:
	case string(row[3]) == "17": // the OID of bytea
		if h.Value, err = hex.DecodeString(strings.TrimPrefix(string(texts[1]), `\x`)); err != nil {
			b.faults[n] = "a header that is not in hex form"
		}
	default:
		h.Value = append([]byte{}, texts[1]...)
	}
	b.headers[n] = append(b.headers[n], h)
	return nil
}

// Late reports whether the row's headers were not read, because they had no room next to those of earlier
// rows.
func (b *SideHeaders) Late(i int) bool { return b.late[i] }

// AttachAll attaches headers to the rows, in order, up to the first row that is Late. It returns the number
// of rows before that one.
func (b *SideHeaders) AttachAll() int {
	for i := range b.headers {
		if b.late[i] {
			return i
		}
		b.Attach(i)
	}
	return len(b.headers)
}

// Attach appends the headers that were read to the row's mapped ones. It replaces those of an earlier lookup.
// An invalid header is an error of the row.
func (b *SideHeaders) Attach(i int) {
	row, h := b.of(i), &b.table.Mapping.HeadersTable
	if problem := b.faults[i]; problem != "" && row.Err == nil {
		row.Err = fmt.Errorf("table %s.%s has %s for it", h.Schema, h.Name, problem)
	}
	if len(row.Headers) > 0 && row.Err == nil && mapping.Impersonates(row.Table, row.Headers[0].Value, b.headers[i]) {
		row.Err = fmt.Errorf("table %s.%s has for it a header of the event id's name with another value", h.Schema, h.Name)
	}
	mapped := len(row.Headers) - int(row.SideHeaders)
	row.Headers, row.SideHeaders = append(row.Headers[:mapped:mapped], b.headers[i]...), int32(len(b.headers[i]))
}
