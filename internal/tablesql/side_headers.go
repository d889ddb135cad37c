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

// SideHeaders are the headers of rows in the mapping's side table.
type SideHeaders struct {
	of      func(i int) *outbox.Row
	headers [][]outbox.Header
	sizes   []int // of the headers of each row, as they were read
	faults  map[int]string
	table   *outbox.Table
	set     *charset.Set
}

// HeadersOf is the step that reads the side table's headers of n rows of the
// relation into the SideHeaders returned; nil: it has no such table.
func (r *Relation) HeadersOf(n int, row func(i int) *outbox.Row) (*SideHeaders, Step, error) {
	if r.Table.Mapping.HeadersTable.Name == "" {
		return nil, Step{}, nil
	}
	b := &SideHeaders{
		of: row, headers: make([][]outbox.Header, n), sizes: make([]int, n), faults: map[int]string{}, table: r.Table, set: r.Charset,
	}
	var args Params
	if err := r.bindIDs(&args, n, func(i int) string { return row(i).ID }); err != nil {
		return nil, Step{}, err
	}
	h := &r.Table.Mapping.HeadersTable
	column := func(name string) string { return "h." + sql.Identifier(name) }
	header, value, long := r.asText(formatted(column(h.HeaderName), "")), column(h.HeaderValue), "false"
	if most := r.Table.Mapping.MaxRowBytes; most > 0 { // a longer one makes the row too long
		most *= 2 // bytes are printed as hexadecimal digits
		shortName, _ := printsWithin(column(h.HeaderName), most, r.brief)
		shortValue, _ := printsWithin(value, most, r.brief)
		long = "NOT (" + shortName + " AND " + shortValue + ")"
	}
	short := func(text string) string { return "CASE WHEN NOT " + long + " THEN " + text + " END" }
	shown := short(value)
	if r.Charset != nil {
		shown = short(r.asText(formatted(value, "")))
	}
	order := ""
	if h.Order != "" {
		order = " ORDER BY " + column(h.Order)
	}
	// LIMIT has each row's headers looked up by its id: a page's few thousand ids
	// would have the planner read the whole side table, page after page.
	sql := "SELECT u.n, x.* FROM " + r.list() + " CROSS JOIN LATERAL (SELECT " + short(header) + ", " + shown +
		", pg_typeof(" + value + ")::oid, " + long + " FROM " + sql.Identifier(h.Schema, h.Name) + " AS h WHERE " + column(h.Parent) + r.Column(r.Table.Mapping.ID[0]).equals() + "u.c0" +
		order + " LIMIT " + strconv.Itoa(mapping.MaxHeaders+1) + ") AS x"
	return b, Step{SQL: sql, Args: args, Each: b.read}, nil
}

// read takes a header. Its value is a bytea's own bytes, or what PostgreSQL
// prints; NULL is Kafka's null.
func (b *SideHeaders) read(row [][]byte) error {
	n, err := Ordinal(row[0], len(b.headers))
	if err != nil {
		return err
	}
	most := b.table.Mapping.MaxRowBytes
	b.sizes[n] += len(row[1]) + len(row[2])
	switch {
	case len(b.headers[n]) == mapping.MaxHeaders:
		b.faults[n] = fmt.Sprintf("more than %d headers", mapping.MaxHeaders)
		return nil
	case string(row[4]) == "t", most > 0 && b.sizes[n] > 2*most: // as hexadecimal digits
		b.faults[n] = fmt.Sprintf("headers of more than max_row_bytes, which is %d,", most)
		return nil
	}
	texts, ok := [2][]byte{row[1], row[2]}, true // in UTF-8; not ok: they cannot be
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
	case string(row[3]) == "17": // bytea
		if h.Value, err = hex.DecodeString(strings.TrimPrefix(string(texts[1]), `\x`)); err != nil {
			b.faults[n] = "a header that is not in hex form"
		}
	default:
		h.Value = append([]byte{}, texts[1]...)
	}
	b.headers[n] = append(b.headers[n], h)
	return nil
}

// Attach puts the headers that were read behind the row's mapped ones, in place
// of those of an earlier look. A header that cannot be one is the row's fault.
func (b *SideHeaders) Attach(i int) {
	row, h := b.of(i), &b.table.Mapping.HeadersTable
	if problem := b.faults[i]; problem != "" && row.Err == nil {
		row.Err = fmt.Errorf("table %s.%s has %s for it", h.Schema, h.Name, problem)
	}
	if len(row.Headers) > 0 && row.Err == nil && mapping.Impersonates(row.Table, row.Headers[0].Value, b.headers[i]) {
		row.Err = fmt.Errorf("table %s.%s has for it a header of the event id's name with another value", h.Schema, h.Name)
	}
	mapped := row.Headers[: len(row.Headers)-row.SideHeaders : len(row.Headers)-row.SideHeaders]
	row.Headers, row.SideHeaders = append(mapped, b.headers[i]...), len(b.headers[i])
}
