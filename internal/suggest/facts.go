package suggest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Facts are what is known of a table: its catalogue entries and some of its rows.
type Facts struct {
	Schema, Name string
	// Kind is pg_class.relkind.
	Kind string `json:"kind"`
	// RowSecurity: policies hide rows from the role that asks.
	RowSecurity bool     `json:"row_security"`
	Columns     []Column `json:"columns"`
	// Unique are the columns of each unique index. Those of the primary key come first.
	Unique [][]string `json:"unique"`
	Checks []Check    `json:"checks"`
	// Partial are the conditions of partial indexes.
	Partial []string `json:"partial"`

	// Rows are sampled values, parallel to Columns. nil is NULL, or a value that was too long to be read.
	Rows [][]*string
	// NoRows is why no rows could be read; empty: they could.
	NoRows string
}

// Column is one column of the table.
type Column struct {
	Name      string   `json:"name"`
	Type      string   `json:"type"` // the base type for a domain, without a length
	OID       uint32   `json:"oid"`
	Enum      bool     `json:"enum"`
	Chars     int      `json:"chars"` // how many characters fit; 0: no limit
	NotNull   bool     `json:"not_null"`
	Generated bool     `json:"generated"`
	Identity  bool     `json:"identity"`
	Default   string   `json:"default"`
	Readable  bool     `json:"readable"`
	Labels    []string `json:"labels"` // the labels of an enum
}

// Check is a constraint on a single column.
type Check struct {
	Column     string `json:"column"`
	Definition string `json:"definition"`
}

// The bounds of a sample. A value with more bytes, as stored, is not read. When the bytes kept exceed their
// limit, later rows are dropped.
const (
	MaxSample    = 10_000
	valueBytes   = 16 << 10
	sampleBytes  = 8 << 20
	readTimeout  = 10 * time.Second
	sampleWithin = 15 * time.Second
)

// ErrNoTable says that the table does not exist.
var ErrNoTable = errors.New("there is no such table in this database")

// Read gathers the facts about a table, with at most the given number of rows, in read-only transactions.
func Read(ctx context.Context, conn *pgx.Conn, schema, name string, rows int) (*Facts, error) {
	f := &Facts{Schema: schema, Name: name}
	found := false
	err := f.read(ctx, conn, tablesql.Step{
		SQL: sql.SuggestTable, Args: tablesql.Texts([]byte(schema), []byte(name)),
		Each: func(row [][]byte) error {
			found = true
			return json.Unmarshal(row[0], f)
		},
	})
	if err == nil && !found {
		err = ErrNoTable
	}
	if err != nil {
		return nil, fmt.Errorf("reading the catalogue about table %s.%s: %w", schema, name, err)
	}
	// Reading a view, or a table with a policy of row security, would run code of the table's owner.
	if rows == 0 || f.RowSecurity || f.Kind != "r" && f.Kind != "p" {
		return f, nil
	}
	if err := f.sample(ctx, conn, rows); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		f.Rows, f.NoRows = nil, err.Error()
	}
	return f, nil
}

// read runs a query in a read-only transaction.
func (f *Facts) read(ctx context.Context, conn *pgx.Conn, query tablesql.Step) error {
	return tablesql.Run(ctx, conn,
		tablesql.Step{SQL: "BEGIN READ ONLY"}, tablesql.Reading(readTimeout).Step(nil), query, tablesql.Step{SQL: "COMMIT"})
}

// sample reads the last rows by the primary key, or any rows. Values are printed by the output functions of
// their types, so no code of the table's owner runs.
func (f *Facts) sample(ctx context.Context, conn *pgx.Conn, rows int) error {
	ctx, cancel := context.WithTimeout(ctx, sampleWithin)
	defer cancel()
	bytes := 0
	return f.read(ctx, conn, tablesql.Step{SQL: f.sampleSQL(rows), Each: func(row [][]byte) error {
		if bytes > sampleBytes {
			return nil
		}
		values := make([]*string, len(row))
		for i, v := range row {
			if v != nil {
				text := string(v)
				values[i], bytes = &text, bytes+len(v)
			}
		}
		f.Rows = append(f.Rows, values)
		return nil
	}})
}

func (f *Facts) sampleSQL(rows int) string {
	columns := make([]string, len(f.Columns))
	for i, c := range f.Columns {
		ref := tablesql.Ref(c.Name)
		columns[i] = "CASE WHEN pg_column_size(" + ref + ") <= " + strconv.Itoa(valueBytes) + " THEN " + ref + " END"
		if !c.Readable {
			columns[i] = "NULL"
		}
	}
	text := "SELECT " + strings.Join(columns, ", ") + " FROM " + sql.Identifier(f.Schema, f.Name) + " AS t"
	if len(f.Unique) > 0 {
		by := make([]string, len(f.Unique[0]))
		for i, name := range f.Unique[0] {
			by[i] = tablesql.Ref(name) + " DESC"
		}
		text += " ORDER BY " + strings.Join(by, ", ")
	}
	return text + " LIMIT " + strconv.Itoa(rows)
}

// find returns the first column that fits; nil: none does.
func (f *Facts) find(fits func(*Column) bool) *Column {
	for i := range f.Columns {
		if fits(&f.Columns[i]) {
			return &f.Columns[i]
		}
	}
	return nil
}

func (f *Facts) column(name string) *Column {
	return f.find(func(c *Column) bool { return c.Name == name })
}

// values returns the sampled values of a column, without NULLs.
func (f *Facts) values(name string) (out []string) {
	at := slices.IndexFunc(f.Columns, func(c Column) bool { return c.Name == name })
	for _, row := range f.Rows {
		if at >= 0 && row[at] != nil {
			out = append(out, *row[at])
		}
	}
	return out
}
