package tablesql

import "strconv"

// printedBytes is how many bytes one byte of a stored value can be printed as, at
// most: the number 1e131071 in jsonb has 131,072 digits and takes a dozen bytes.
const printedBytes = 1 << 14

// Bounded reads a column of t without values of more than most bytes, which would
// not fit into memory here or, from about 512 MB on, not even be printed by the
// server: value is NULL then, and size is not. An empty size says that the
// type, or the column's length, has no such values.
//
// The length of text and bytea is known without reading the value. That of other
// types is how PostgreSQL prints them, which is tried only where what is stored
// is neither too long by itself nor so short that it cannot matter.
func (r *Relation) Bounded(name string, most int) (value, size string) {
	c := r.column(name)
	selected, _ := r.Stored(c)
	if most <= 0 || c.short(most) {
		return selected, ""
	}
	fits, size := c.within(most)
	return "CASE WHEN " + fits + " THEN " + selected + " END", size
}

// within is the condition that a value has no more than most bytes, and what
// tells its size.
func (c *Column) within(most int) (condition, size string) {
	ref, n := Ref(c.Name), strconv.Itoa(most)
	if c.sized() {
		size = "octet_length(" + ref + ")"
		return size + " <= " + n, size
	}
	size = "pg_column_size(" + ref + ")"
	return "CASE WHEN " + size + " > " + n + " THEN false ELSE " + size + " <= " + strconv.Itoa(most/printedBytes) +
		" OR octet_length(" + ref + "::text) <= " + n + " END", size
}

// tooLong stands for a value of which no prefix can be had without all of it.
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
	return "CASE WHEN NOT (" + fits + ") THEN " + Literal(tooLong) + "::text ELSE left(" + c.printed() + ", " + n + ") END"
}

// shownID is the prefix of an id column, in the form that ReadID reads.
func (r *Relation) shownID(c *Column, characters int) string {
	shown := c.prefix(characters)
	if c.OID == oidBytea {
		shown = "substring(" + Ref(c.Name) + " FROM 1 FOR " + strconv.Itoa(characters) + ")::text"
	}
	if _, stored := r.Stored(c); stored {
		return storedText(r, shown)
	}
	return shown
}

// ShortIDs is the condition that a row has no id of more than most bytes; empty:
// none can have. A unique index has no room for one, so only a table without
// holds such rows: nothing can be written of them.
func (r *Relation) ShortIDs(most int) string {
	var terms []string
	for _, c := range r.idColumnsOf() {
		if most > 0 && c.sized() && !c.short(most) {
			terms = append(terms, "octet_length("+Ref(c.Name)+") <= "+strconv.Itoa(most))
		}
	}
	if len(terms) == 0 {
		return ""
	}
	return conjunction(terms)
}

// sized: octet_length tells the length of a value without reading it.
func (c *Column) sized() bool {
	switch c.OID {
	case oidBytea, oidText, oidVarchar, oidBpchar:
		return true
	}
	return false
}

// short: no value has as many bytes.
func (c *Column) short(most int) bool {
	switch c.OID {
	case oidBool, oidName, oidInt8, oidInt2, oidInt4, oidTimestamp, oidTimestamptz, oidUUID:
		return true
	}
	const longestCharacter = 4
	return c.Enum || c.MaxChars > 0 && c.MaxChars <= most/longestCharacter
}
