package statement

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/outbox"
)

// Params collects the bound values of a statement, all in text form.
type Params struct{ Values [][]byte }

// Bind adds a value and returns its placeholder with a cast.
func (p *Params) Bind(value []byte, sqlType string) string {
	p.Values = append(p.Values, value)
	return fmt.Sprintf("$%d::%s", len(p.Values), sqlType)
}

// Array writes an array's text form, element by element. The zero Array is
// empty. https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO
type Array struct{ text []byte }

// Add appends an element.
func (a *Array) Add(element string) {
	if len(a.text) == 0 {
		a.text = append(a.text, '{')
	} else {
		a.text = append(a.text, ',')
	}
	a.text = append(a.text, '"')
	for {
		plain := strings.IndexAny(element, `"\`)
		if plain < 0 {
			break
		}
		a.text = append(append(a.text, element[:plain]...), '\\', element[plain])
		element = element[plain+1:]
	}
	a.text = append(append(a.text, element...), '"')
}

// AddInt appends a number.
func (a *Array) AddInt(n int64) {
	if len(a.text) == 0 {
		a.text = append(a.text, '{')
	} else {
		a.text = append(a.text, ',')
	}
	a.text = strconv.AppendInt(a.text, n, 10)
}

// Text is the whole array, until the next element is added.
func (a *Array) Text() []byte {
	if len(a.text) == 0 {
		return []byte("{}")
	}
	return append(a.text, '}')
}

// IDArrays turns row ids into one array per id column. An id with another
// number of parts than there are columns is an error: it was made by another
// mapping.
func (r *Relation) IDArrays(n int, id func(i int) string) ([][]byte, error) {
	columns := r.Table.Mapping.ID
	arrays := make([]Array, len(columns))
	for i := range n {
		rest := id(i)
		if len(arrays) > 0 && n > 0 && i == 0 {
			presize(arrays, n, len(rest))
		}
		for c := range arrays {
			part, after, more := strings.Cut(rest, "\x00")
			if more != (c < len(arrays)-1) {
				return nil, &Unusable{
					Table: r.Table, Problem: fmt.Sprintf("got a row id %q, which does not have %d columns", outbox.SplitID(id(i)), len(columns)),
					Mend: "restart with the mapping that it was read by, or let it be swept",
				}
			}
			arrays[c].Add(part)
			rest = after
		}
	}
	texts := make([][]byte, len(arrays))
	for c := range arrays {
		texts[c] = arrays[c].Text()
	}
	return texts, nil
}

// presize makes room for n ids like one of the given length.
func presize(arrays []Array, n, length int) {
	for c := range arrays {
		arrays[c].text = make([]byte, 0, 2+n*(length/len(arrays)+4))
	}
}

// idTypes are the types of the id columns.
func (r *Relation) idTypes() []string {
	types := make([]string, len(r.Table.Mapping.ID))
	for i, name := range r.Table.Mapping.ID {
		types[i] = r.column(name).Type
	}
	return types
}

// idColumns names the id columns of the list u: c0, c1, ….
func (r *Relation) idColumns() string {
	names := make([]string, len(r.Table.Mapping.ID))
	for i := range names {
		names[i] = "c" + strconv.Itoa(i)
	}
	return strings.Join(names, ", ")
}

// list is a FROM item u: the bound ids, further bound arrays, and their
// ordinal n. The ids are $1 and on, then come the further ones.
func (r *Relation) list(further ...string) string {
	types := r.idTypes()
	arguments := make([]string, 0, len(types)+len(further))
	names := r.idColumns()
	for i, t := range types {
		arguments = append(arguments, fmt.Sprintf("$%d::%s[]", i+1, t))
	}
	for i := 0; i < len(further); i += 2 {
		arguments = append(arguments, fmt.Sprintf("$%d::%s[]", len(arguments)+1, further[i+1]))
		names += ", " + further[i]
	}
	return "unnest(" + strings.Join(arguments, ", ") + ") WITH ORDINALITY AS u(" + names + ", n)"
}

// sameID joins t and u.
func (r *Relation) sameID() string {
	terms := make([]string, len(r.Table.Mapping.ID))
	for i, name := range r.Table.Mapping.ID {
		terms[i] = Ref(name) + " = u.c" + strconv.Itoa(i)
	}
	return strings.Join(terms, " AND ")
}

// BindList binds ids to a FROM item u of them and their ordinal n, and gives the
// condition that joins it with the table t.
func (r *Relation) BindList(p *Params, ids []string) (from, on string, err error) {
	arrays, err := r.IDArrays(len(ids), func(i int) string { return ids[i] })
	if err != nil {
		return "", "", err
	}
	types := r.idTypes()
	bound := make([]string, len(arrays))
	for i := range arrays {
		bound[i] = p.Bind(arrays[i], types[i]+"[]")
	}
	return "unnest(" + strings.Join(bound, ", ") + ") WITH ORDINALITY AS u(" + r.idColumns() + ", n)", r.sameID(), nil
}

// IDColumns is the list of the id columns to select.
func (r *Relation) IDColumns() string {
	refs := make([]string, len(r.Table.Mapping.ID))
	for i, name := range r.Table.Mapping.ID {
		refs[i] = Ref(name)
	}
	return strings.Join(refs, ", ")
}
