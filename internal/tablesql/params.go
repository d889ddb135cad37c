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

// Texts returns Params with values in text form.
func Texts(values ...[]byte) Params {
	return Params{values: values, formats: make([]int16, len(values))}
}

// Bind adds a value in text form and returns its placeholder with a cast.
func (p *Params) Bind(value []byte, sqlType string) string {
	return p.bind(value, textFormat, sqlType)
}

// BindArray adds an array of a type's values and returns its placeholder with a cast.
func (p *Params) BindArray(a *Array, elementType string) string {
	return p.bindArray(len(a.elements), a.at, elementType)
}

// bindArray sends the array in binary form, if the type has one here and every element is written as the
// server writes it. Otherwise it sends text, and the server reports what is wrong. Reading a thousand uuids
// as text costs the server a sixth of what marking their rows costs.
func (p *Params) bindArray(n int, element func(i int) string, elementType string) string {
	if form, ok := binaryForms[elementType]; ok {
		if value, ok := binaryArray(form, n, element); ok {
			return p.bind(value, binaryFormat, elementType+"[]")
		}
	}
	return p.bind(textArray(n, element), textFormat, elementType+"[]")
}

func (p *Params) bind(value []byte, format int16, sqlType string) string {
	p.values, p.formats = append(p.values, value), append(p.formats, format)
	return fmt.Sprintf("$%d::%s", len(p.values), sqlType)
}

// bindIDs binds row ids, one array for each id column. An id with another number of parts, made under another
// mapping, is an error.
func (r *Relation) bindIDs(p *Params, n int, id func(i int) string) error {
	columns := r.ids()
	for i := range n {
		if strings.Count(id(i), "\x00") != len(columns)-1 {
			return r.unfit(fmt.Sprintf("got a row id %q, which does not have %d columns", outbox.SplitID(id(i)), len(columns)),
				"restart with the mapping that it was read by, or let it be swept")
		}
	}
	for at, c := range columns {
		p.bindArray(n, func(i int) string { return idPart(id(i), at) }, c.Type)
	}
	return nil
}

// idPart returns one part of a row id.
func idPart(id string, at int) string {
	for range at {
		_, id, _ = strings.Cut(id, "\x00")
	}
	part, _, _ := strings.Cut(id, "\x00")
	return part
}

// ids returns the id columns.
func (r *Relation) ids() []*Column {
	columns := make([]*Column, len(r.Table.Mapping.ID))
	for i, name := range r.Table.Mapping.ID {
		columns[i] = r.Column(name)
	}
	return columns
}

// idColumn returns the name of an id column in the list u.
func idColumn(i int) string { return "c" + strconv.Itoa(i) }

// idColumns returns the id columns of the list u (c0, c1, …), each with the prefix.
func (r *Relation) idColumns(prefix string) string {
	names := make([]string, len(r.Table.Mapping.ID))
	for i := range names {
		names[i] = prefix + idColumn(i)
	}
	return strings.Join(names, ", ")
}

// list returns a FROM item u of the bound ids ($1 and on) and of the further arrays after them.
func (r *Relation) list(further ...string) string { return unnested(append(r.idTypes(), further...)) }

// idTypes returns the names of the id columns in the list, each followed by its type.
func (r *Relation) idTypes() []string {
	var columns []string
	for i, c := range r.ids() {
		columns = append(columns, idColumn(i), c.Type)
	}
	return columns
}

// unnested returns a FROM item u of the arrays that are bound first, with their ordinal n. Each array is
// given by its name and its elements' type.
func unnested(arrays []string) string {
	var names, arguments []string
	for i := 0; i < len(arrays); i += 2 {
		names = append(names, arrays[i])
		arguments = append(arguments, fmt.Sprintf("$%d::%s[]", len(names), arrays[i+1]))
	}
	return "unnest(" + strings.Join(arguments, ", ") + ") WITH ORDINALITY AS u(" + strings.Join(names, ", ") + ", n)"
}

// sameID returns the condition that joins t and u.
func (r *Relation) sameID() string {
	terms := make([]string, len(r.Table.Mapping.ID))
	for i, c := range r.ids() {
		terms[i] = Ref(c.Name) + c.equals() + "u." + idColumn(i)
	}
	return strings.Join(terms, " AND ")
}

// created returns the column that tells a row from a later one with the same id. nil: no such column is
// mapped, or the role may not read it.
func (r *Relation) created() *Column {
	if c := r.Column(r.Table.Mapping.CreatedAt); c != nil && c.Readable && (c.is(oidTimestamp, oidTimestamptz) || r.clock(c.Name).unit != 0) {
		return c
	}
	return nil
}

// createdAs returns the type in which creation times are bound: the column's type, or microseconds for a
// column of numbers.
func (r *Relation) createdAs(c *Column) (oid uint32, sqlType string) {
	if r.clock(c.Name).unit != 0 {
		return oidInt8, "bigint"
	}
	return c.OID, c.Type
}

// RowArrays binds what sameRow compares: the rows' creation times, if a column has them, and their ids. The
// smaller array comes first: pgx reallocates its buffer for the second one, which wastes the memory of the
// first.
func (r *Relation) RowArrays(n int, row func(i int) *outbox.Row) (p Params, err error) {
	if c := r.created(); c != nil {
		oid, sqlType := r.createdAs(c)
		p.bind(createdArray(oid, n, row), binaryFormat, sqlType+"[]")
	}
	err = r.bindIDs(&p, n, func(i int) string { return row(i).ID })
	return p, err
}

// rowList returns a FROM item of what RowArrays binds.
func (r *Relation) rowList(further ...string) string {
	arrays := append(r.idTypes(), further...)
	if c := r.created(); c != nil {
		_, sqlType := r.createdAs(c)
		arrays = append([]string{"created", sqlType}, arrays...)
	}
	return unnested(arrays)
}

// sameRow returns the condition that joins t and u (a rowList): the row has the id and the creation time of
// ours. The creation time matters because an application may delete our row and insert another with its id,
// and because a sequence gives out ids again after a failover.
func (r *Relation) sameRow() string {
	c := r.created()
	if c == nil {
		return r.sameID()
	}
	if k := r.clock(c.Name); k.unit != 0 {
		return r.sameID() + " AND (" + k.epoch(Ref(c.Name)) + " = u.created OR u.created < 0)"
	}
	return r.sameID() + " AND (" + Ref(c.Name) + " = u.created OR u.created = '-infinity')"
}

// bindList binds ids to a FROM item u with their ordinal n. on is the condition that joins u with the table
// t.
func (r *Relation) bindList(ids []string) (p Params, from, on string, err error) {
	err = r.bindIDs(&p, len(ids), func(i int) string { return ids[i] })
	return p, r.list(), r.sameID(), err
}

// idList returns the id columns to select, for readID, and the condition that goes with them; see shortIDs.
func (r *Relation) idList() (columns, short string) {
	selected := func(c *Column) string {
		expression, _ := r.stored(c)
		return expression
	}
	return joined(r.ids(), ", ", selected), r.shortIDs()
}

// selectIDs selects the ids, followed by more columns, of the rows that meet a condition and whose ids are
// not too long.
func (r *Relation) selectIDs(where string, more ...string) string {
	columns, short := r.idList()
	return "SELECT " + strings.Join(append([]string{columns}, more...), ", ") + " FROM " + r.Name() + " AS t WHERE " +
		conjunction(where, short)
}
