package tablesql

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Params collects the bound values of a statement.
type Params struct {
	values  [][]byte
	formats []int16
}

// Texts are values in text form.
func Texts(values ...[]byte) Params {
	return Params{values: values, formats: make([]int16, len(values))}
}

// Bind adds a value in text form and returns its placeholder with a cast.
func (p *Params) Bind(value []byte, sqlType string) string {
	return p.bind(value, textFormat, sqlType)
}

// BindArray adds an array of a type's values and returns its placeholder with a
// cast. It is sent in binary form where the elements' type has one here and all of
// them are written as the server writes them, else in text form, of which the server
// says what is wrong. Reading a thousand uuids as text costs the server a sixth of
// what marking their rows does.
func (p *Params) BindArray(a *Array, elementType string) string {
	if form, ok := binaryForms[elementType]; ok {
		if value, ok := a.binary(form); ok {
			return p.bind(value, binaryFormat, elementType+"[]")
		}
	}
	return p.bind(a.text(), textFormat, elementType+"[]")
}

func (p *Params) bind(value []byte, format int16, sqlType string) string {
	p.values, p.formats = append(p.values, value), append(p.formats, format)
	return fmt.Sprintf("$%d::%s", len(p.values), sqlType)
}

// idArrays binds row ids, one array for each id column. An id with another
// number of parts than there are columns is an error: it was made by another
// mapping.
func (r *Relation) idArrays(n int, id func(i int) string) (Params, error) {
	columns := r.Table.Mapping.ID
	arrays := make([]Array, len(columns))
	for c := range arrays {
		arrays[c].elements = make([]string, 0, n)
	}
	for i := range n {
		rest := id(i)
		for c := range arrays {
			part, after, more := strings.Cut(rest, "\x00")
			if more != (c < len(arrays)-1) {
				return Params{}, r.unfit(fmt.Sprintf("got a row id %q, which does not have %d columns", outbox.SplitID(id(i)), len(columns)),
					"restart with the mapping that it was read by, or let it be swept")
			}
			arrays[c].Add(part)
			rest = after
		}
	}
	var p Params
	for i, c := range r.ids() {
		p.BindArray(&arrays[i], c.Type)
	}
	return p, nil
}

// ids are the id columns.
func (r *Relation) ids() []*Column {
	columns := make([]*Column, len(r.Table.Mapping.ID))
	for i, name := range r.Table.Mapping.ID {
		columns[i] = r.Column(name)
	}
	return columns
}

// idColumns names the id columns of the list u: c0, c1, …, each behind the prefix.
func (r *Relation) idColumns(prefix string) string {
	names := make([]string, len(r.Table.Mapping.ID))
	for i := range names {
		names[i] = prefix + "c" + strconv.Itoa(i)
	}
	return strings.Join(names, ", ")
}

// list is a FROM item u: the bound ids, further bound arrays, and their
// ordinal n. The ids are $1 and on, then come the further ones.
func (r *Relation) list(further ...string) string {
	var arguments []string
	add := func(sqlType string) {
		arguments = append(arguments, fmt.Sprintf("$%d::%s[]", len(arguments)+1, sqlType))
	}
	names := r.idColumns("")
	for _, c := range r.ids() {
		add(c.Type)
	}
	for i := 0; i < len(further); i += 2 {
		add(further[i+1])
		names += ", " + further[i]
	}
	return "unnest(" + strings.Join(arguments, ", ") + ") WITH ORDINALITY AS u(" + names + ", n)"
}

// sameID joins t and u.
func (r *Relation) sameID() string {
	terms := make([]string, len(r.Table.Mapping.ID))
	for i, c := range r.ids() {
		terms[i] = Ref(c.Name) + c.equals() + "u.c" + strconv.Itoa(i)
	}
	return strings.Join(terms, " AND ")
}

// created is the column that tells a row from a later one with its id, or nil: none
// is mapped, or we may not read it.
func (r *Relation) created() *Column {
	if c := r.Column(r.Table.Mapping.CreatedAt); c != nil && c.Readable && c.is(oidTimestamp, oidTimestamptz) {
		return c
	}
	return nil
}

// RowArrays binds what sameRow takes of rows: their ids, and when they were created
// where a column says.
func (r *Relation) RowArrays(n int, row func(i int) *outbox.Row) (Params, error) {
	p, err := r.idArrays(n, func(i int) string { return row(i).ID })
	if c := r.created(); c != nil && err == nil {
		p.bind(createdArray(c.OID, n, row), binaryFormat, c.Type+"[]")
	}
	return p, err
}

// rowList is list of what RowArrays binds.
func (r *Relation) rowList(further ...string) string {
	if c := r.created(); c != nil {
		further = append([]string{"created", c.Type}, further...)
	}
	return r.list(further...)
}

// sameRow joins t and u, a rowList: the row with the id that was created when ours
// was. An application may have deleted ours and inserted another with its id, and
// after a failover a sequence gives ids out again.
func (r *Relation) sameRow() string {
	c := r.created()
	if c == nil {
		return r.sameID()
	}
	return r.sameID() + " AND (" + Ref(c.Name) + " = u.created OR u.created = '-infinity')"
}

// bindList binds ids to a FROM item u of them and their ordinal n, and gives the
// condition that joins it with the table t.
func (r *Relation) bindList(ids []string) (p Params, from, on string, err error) {
	p, err = r.idArrays(len(ids), func(i int) string { return ids[i] })
	return p, r.list(), r.sameID(), err
}

// idList is the list of the id columns to select, for readID, and the condition that goes
// with it; see shortIDs.
func (r *Relation) idList() (columns, short string) {
	selected := func(c *Column) string {
		expression, _ := r.stored(c)
		return expression
	}
	return joined(r.ids(), ", ", selected), r.shortIDs()
}

// selectIDs selects the ids, and more columns behind them, of the rows that meet a condition and
// whose ids are not too long.
func (r *Relation) selectIDs(where string, more ...string) string {
	columns, short := r.idList()
	return "SELECT " + strings.Join(append([]string{columns}, more...), ", ") + " FROM " + r.Name() + " AS t WHERE " +
		conjunction(where, short)
}
