package tablesql

import (
	"errors"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
)

// RowColumn is a column that rows are made of. A value that is longer than the
// mapping's MaxRowBytes is left out; its size comes behind it.
type RowColumn struct {
	Name        string
	Sized       bool // a size comes behind the value
	Stored      bool // it comes as StoredText reads it
	value, bare string
	size        string
}

// Read takes the column's value from the beginning of a row of the result, and
// says how many of the result's columns it took.
func (c *RowColumn) Read(row [][]byte) (v mapping.Value, width int, err error) {
	width = 1
	if c.Sized {
		width = 2
	}
	switch {
	case len(row) < width:
		return v, width, errors.New("the server answered with fewer columns than were selected")
	case row[0] == nil && c.Sized && row[1] != nil:
		// It was left out. Its size is of PostgreSQL's own making.
		n, _ := strconv.ParseUint(string(row[1]), 10, 32)
		return mapping.Value{Length: uint32(n), Format: mapping.LongBinary}, width, nil
	case row[0] == nil:
		return mapping.Value{Format: mapping.Null}, width, nil
	}
	v = mapping.Value{Data: row[0], Format: mapping.Text}
	if c.Stored {
		v.Data, err = StoredText(row[0])
	}
	return v, width, err
}

// Plan is how rows of the relation become records, and the columns that this takes, to be selected.
func (r *Relation) Plan() (*mapping.Plan, []RowColumn, error) {
	plan, err := mapping.Compile(r.Charset, r.Table, r.MappingColumns())
	if err != nil {
		return nil, nil, err
	}
	var columns []RowColumn
	brief := r.Brief()
	for _, place := range plan.Wanted() {
		c := &r.Columns[place]
		value, size := r.bounded(c.Name, r.Table.Mapping.MaxRowBytes)
		bare := value
		if size != "" {
			bare, _ = brief.bounded(c.Name, briefBytes)
		}
		_, stored := r.stored(c)
		columns = append(columns, RowColumn{Name: c.Name, Sized: size != "", Stored: stored, value: value, bare: bare, size: size})
	}
	return plan, columns, nil
}

// MappingColumns are the columns as package mapping takes them.
func (r *Relation) MappingColumns() []mapping.Column {
	out := make([]mapping.Column, len(r.Columns))
	for i := range r.Columns {
		c := &r.Columns[i]
		out[i] = mapping.Column{Name: c.Name, OID: c.OID, Enum: c.Enum}
	}
	return out
}

// Selected is what a query selects of a row.
type Selected struct {
	list string
	// refs are the columns that list is computed from. Sized: that is costly, so it
	// is done for the rows that were selected only, not for each that is sorted.
	refs  []string
	sized bool
}

// Select selects columns; bare: without values of more than a few kilobytes;
// writer: and behind them the transaction that wrote the row.
func Select(columns []RowColumn, bare, writer bool) Selected {
	var list, refs []string
	sized := false
	for i := range columns {
		c := &columns[i]
		value := c.value
		if bare {
			value = c.bare
		}
		list, refs = append(list, value), append(refs, Ref(c.Name))
		if c.Sized {
			list, sized = append(list, c.size), true
		}
	}
	if writer {
		list, refs = append(list, "t.xmin"), append(refs, "t.xmin")
	}
	return Selected{list: strings.Join(list, ", "), refs: refs, sized: sized}
}
