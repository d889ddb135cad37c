package tablesql

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/charset"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// SideHeaders are the headers of rows in the mapping's side table.
type SideHeaders struct {
	of      func(i int) *outbox.Row
	headers [][]outbox.Header
	faults  map[int]string
	table   *outbox.Table
	set     *charset.Set
}

// HeadersTable says whether the relation's rows have headers in a side table.
func (r *Relation) HeadersTable() bool { return r.Table.Mapping.HeadersTable.Name != "" }

// HeadersOf is the step that reads the side table's headers of n rows of the
// relation, which must have one, into the SideHeaders returned.
func (r *Relation) HeadersOf(n int, row func(i int) *outbox.Row) (*SideHeaders, Step, error) {
	b := &SideHeaders{of: row, headers: make([][]outbox.Header, n), faults: map[int]string{}, table: r.Table, set: r.Charset}
	args, err := r.IDArrays(n, func(i int) string { return row(i).ID })
	if err != nil {
		return nil, Step{}, err
	}
	h := &r.Table.Mapping.HeadersTable
	column := func(name string) string { return "h." + quote(name) }
	header, value := column(h.HeaderName)+"::text", column(h.HeaderValue)
	shown := value
	if r.Charset != nil {
		header = storedText(r, header)
		shown = storedText(r, "CASE WHEN "+value+" IS DISTINCT FROM NULL THEN format('%s', "+value+") END")
	}
	order := ""
	if h.Order != "" {
		order = " ORDER BY " + column(h.Order)
	}
	// OFFSET has each row's headers looked up by its id: a page's few thousand ids
	// would have the planner read the whole side table, page after page.
	sql := "SELECT u.n, x.* FROM " + r.list() + " CROSS JOIN LATERAL (SELECT " + header + ", " + shown +
		", pg_typeof(" + value + ")::oid FROM " + pgx.Identifier{h.Schema, h.Name}.Sanitize() + " AS h WHERE " + column(h.Parent) + r.column(r.Table.Mapping.ID[0]).equals() + "u.c0" +
		order + " OFFSET 0) AS x"
	return b, Step{SQL: sql, Args: args, Each: b.read}, nil
}

// read takes a header. Its value is a bytea's own bytes, or what PostgreSQL
// prints; NULL is Kafka's null.
func (b *SideHeaders) read(row [][]byte) error {
	n, err := Ordinal(row[0], len(b.headers))
	if err != nil {
		return err
	}
	header, value, ok, err := b.text(row)
	if err != nil {
		return err
	}
	h := outbox.Header{Name: string(header)}
	switch {
	case row[1] == nil:
		b.faults[n] = "a header without a name"
	case !ok:
		b.faults[n] = "a header with bytes that " + b.set.Name() + " cannot turn into UTF-8"
	case row[2] == nil:
	case string(row[3]) == "17": // bytea
		if h.Value, err = hex.DecodeString(strings.TrimPrefix(string(value), `\x`)); err != nil {
			b.faults[n] = "a header that is not in hex form"
		}
	default:
		h.Value = append([]byte{}, value...)
	}
	b.headers[n] = append(b.headers[n], h)
	return nil
}

// text is a header's name and value in UTF-8; not ok: they cannot be.
func (b *SideHeaders) text(row [][]byte) (name, value []byte, ok bool, err error) {
	if b.set == nil {
		return row[1], row[2], true, nil
	}
	out, all := [2][]byte{}, true
	for i, stored := range row[1:3] {
		text, err := StoredText(stored)
		if err != nil {
			return nil, nil, false, err
		}
		out[i], ok = b.set.Append(nil, text)
		all = all && ok
	}
	return out[0], out[1], all, nil
}

// Attach puts the headers that were read behind the row's mapped ones, in place
// of those of an earlier look. A header that cannot be one is the row's fault.
func (b *SideHeaders) Attach(i int) {
	row := b.of(i)
	if problem := b.faults[i]; problem != "" && row.Err == nil {
		h := &b.table.Mapping.HeadersTable
		row.Err = fmt.Errorf("table %s.%s has %s for it", h.Schema, h.Name, problem)
	}
	mapped := row.Headers[: len(row.Headers)-row.SideHeaders : len(row.Headers)-row.SideHeaders]
	row.Headers, row.SideHeaders = append(mapped, b.headers[i]...), len(b.headers[i])
}
