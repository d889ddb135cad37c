package tablesql

import (
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgerrcode"

	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// printedBytes is the most bytes that one byte of an uncompressed value prints as: the number
// 1e131071 in jsonb takes a dozen bytes and has 131,072 digits. Compression adds a factor of
// 255 (lz4).
const printedBytes = 1 << 14

// bounded returns two SQL expressions for a column of t. value is the column, or NULL if the value has more than
// most bytes; size is then its length. Such a value would not fit into our memory, and from about 512 MB on the
// server could not even print it. size is empty if no value of the column can be so long.
//
// The server knows the length of text and bytea without reading the value. A value of another type is as long as
// PostgreSQL prints it. The statement prints it only if its stored size does not decide: a large stored value is
// too long in any case, and a small one cannot be.
func (r *Relation) bounded(name string, most int) (value, size string) {
	c := r.Column(name)
	selected, _ := r.stored(c)
	if most <= 0 || c.short(most) {
		return selected, ""
	}
	fits, size := c.within(most)
	return "CASE WHEN " + fits + " THEN " + selected + " END", size
}

// within is the condition that a value has no more than most bytes, and what
// tells its size.
func (c *Column) within(most int) (condition, size string) {
	if c.sized() {
		size = "octet_length(" + Ref(c.Name) + ")"
		return size + " <= " + strconv.Itoa(most), size
	}
	return printsWithin(Ref(c.Name), most, c.brief)
}

// printsWithin is within for a value of any type. What prints as more than a gigabyte
// ends the statement, unless it is brief: then no value is printed to learn its length, and
// those that are compressed, or longer than a few kilobytes, count as longer than most.
func printsWithin(value string, most int, brief bool) (condition, size string) {
	size = "pg_column_size(" + value + ")"
	upTo := func(n int) string {
		return "pg_column_compression(" + value + ") IS NULL AND coalesce(" + size + " <= " + strconv.Itoa(n) + ", true)"
	}
	if brief {
		return "(" + upTo(min(most, briefBytes)) + ")", size
	}
	n := strconv.Itoa(most)
	return "CASE WHEN " + size + " > " + n + " THEN false ELSE " + upTo(most/printedBytes) +
		" OR octet_length(format('%s', " + value + ")) <= " + n + " END", size
}

// briefBytes of any type are printed in a few megabytes.
const briefBytes = 2000

// Brief is the relation for repeating a statement that met a value which cannot be printed. Its statements
// print values of types such as jsonb only if they are short, so none keeps other rows from being read.
func (r *Relation) Brief() *Relation {
	brief := *r
	brief.brief = true
	brief.Columns = slices.Clone(r.Columns)
	for i := range brief.Columns {
		brief.Columns[i].brief = true
	}
	return &brief
}

// Unprintable says that a statement met a value which is longer than the server can print
// (54000, program_limit_exceeded, or XX000, "invalid memory alloc request size").
func Unprintable(err error) bool {
	return postgres.HasCode(err, pgerrcode.ProgramLimitExceeded) ||
		postgres.HasCode(err, pgerrcode.InternalError) && strings.Contains(postgres.ServerError(err).Message, "invalid memory alloc")
}

// tooLong stands for a value whose prefix cannot be had without all of it.
const tooLong = "(too long to be shown)"

// prefix is the column for people, its first characters only.
func (c *Column) prefix(characters int) string {
	n := strconv.Itoa(characters)
	switch {
	case c.short(characters):
		return c.printed()
	case c.OID == oidBytea:
		return "encode(substring(" + Ref(c.Name) + " FROM 1 FOR " + n + "), 'escape')"
	case c.sized():
		return "left(" + c.printed() + ", " + n + ")"
	}
	fits, _ := c.within(1 << 20)
	return "CASE WHEN NOT (" + fits + ") THEN " + sql.Literal(tooLong) + "::text ELSE left(" + c.printed() + ", " + n + ") END"
}

// shownIDs are the prefixes of the id columns, in the form that readID reads.
func (r *Relation) shownIDs(characters int) []string {
	var all []string
	for _, c := range r.ids() {
		shown := c.prefix(characters)
		if c.OID == oidBytea {
			shown = "substring(" + Ref(c.Name) + " FROM 1 FOR " + strconv.Itoa(characters) + ")::text"
		}
		if _, stored := r.stored(c); stored {
			shown = r.asText(shown)
		}
		all = append(all, shown)
	}
	return all
}

// shortIDs is the condition that no id of a row has more than MaxRowBytes; empty:
// none can. A unique index has no room for one, so only a table without such an
// index has such rows. Nothing is written to them: only statements for people read
// their ids, and CountPending counts them.
func (r *Relation) shortIDs() string {
	most := r.Table.Mapping.MaxRowBytes
	var terms []string
	for _, c := range r.ids() {
		if most > 0 && !c.short(most) {
			fits, _ := c.within(most)
			terms = append(terms, fits)
		}
	}
	return allOf(terms...)
}

// sized: octet_length tells the length of a value without reading it.
func (c *Column) sized() bool { return c.is(oidBytea, oidText, oidVarchar, oidBpchar) }

// short: no value has as many bytes.
func (c *Column) short(most int) bool {
	const longestCharacter = 4
	return c.is(oidBool, oidName, oidInt8, oidInt2, oidInt4, oidTimestamp, oidTimestamptz, oidUUID) ||
		c.Enum || c.MaxChars > 0 && c.MaxChars <= most/longestCharacter
}
