package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgerrcode"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// Preview returns the records that the selected rows would become, the first ones in the order of sweeping.
// Package mapping makes them, as everywhere. A row that cannot become a record has its error. most bounds the
// bytes that are kept; one row is always kept. Preview publishes and changes nothing.
func (t *Table) Preview(ctx context.Context, filter *tablesql.Filter, limit, most int) ([]*outbox.Row, error) {
	rows, err := t.preview(ctx, t.relation, filter, limit, most)
	if tablesql.Unprintable(err) && t.relation.Table.Stateful() {
		return t.previewEach(ctx, filter, limit, most)
	}
	return rows, err
}

// previewEach makes each record by itself. A row that cannot be printed comes without its long values.
func (t *Table) previewEach(ctx context.Context, filter *tablesql.Filter, limit, most int) ([]*outbox.Row, error) {
	ids, err := t.ids(ctx, filter, limit)
	var all []*outbox.Row
	for _, id := range ids {
		one := *filter
		one.IDs = []string{id}
		rows, err := t.preview(ctx, t.relation, &one, 1, most)
		if tablesql.Unprintable(err) {
			rows, err = t.preview(ctx, t.relation.Brief(), &one, 1, most)
		}
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			if most -= row.Size(); most < 0 && len(all) > 0 {
				return all, nil
			}
			all = append(all, row)
		}
	}
	return all, err
}

func (t *Table) preview(ctx context.Context, relation *tablesql.Relation, filter *tablesql.Filter, limit, most int) ([]*outbox.Row, error) {
	p, err := t.previewing()
	if err != nil {
		return nil, err
	}
	p.most = most
	brief := relation != t.relation
	step, err := relation.Records(filter, tablesql.Select(p.columns, brief, false), limit)
	if err != nil {
		return nil, err
	}
	step.Each = p.each
	if err := t.run(ctx, statementTimeout, step); err != nil {
		return nil, t.failure("read rows", err)
	}
	if len(p.rows) == 0 {
		return nil, nil
	}
	side, headers, err := relation.HeadersOf(len(p.rows), func(i int) *outbox.Row { return p.rows[i] })
	if err != nil || side == nil { // nil: there is no table of headers
		return p.rows, err
	}
	if err := t.run(ctx, statementTimeout, headers); err != nil {
		return p.rows, t.failure("read the headers", err)
	}
	return p.rows[:side.AttachAll()], nil
}

// PreviewOf is Preview for a row that is not in the table: a JSON object with its columns. PostgreSQL
// converts the values to the columns' types.
func (t *Table) PreviewOf(ctx context.Context, object []byte) (*outbox.Row, error) {
	var fields map[string]json.RawMessage
	d := json.NewDecoder(bytes.NewReader(object))
	if err := d.Decode(&fields); err != nil || fields == nil {
		return nil, &InputError{`it is no JSON object with the row's columns, such as {"id": 1, "payload": {}}`}
	}
	if d.More() {
		return nil, &InputError{"there is more behind the first object: give one row"}
	}
	for name := range fields {
		if t.relation.Column(name) == nil {
			return nil, &InputError{fmt.Sprintf("table %s has no column %q (upper and lower case matter)", t.relation.Table, name)}
		}
	}
	p, err := t.previewing()
	if err != nil {
		return nil, err
	}
	step := t.relation.RecordOf(object, tablesql.Select(p.columns, false, false))
	step.Each = p.each
	err = t.run(ctx, statementTimeout, step)
	switch {
	case pgerrcode.IsDataException(postgres.Code(err)):
		return nil, &InputError{postgres.ServerError(err).Message}
	case err != nil:
		return nil, t.failure("read the given row", err)
	}
	return p.rows[0], nil
}

// InputError says what is wrong with a row that was given as JSON.
type InputError struct{ Problem string }

func (e *InputError) Error() string { return "the given row: " + e.Problem }

var errNotOurs = errors.New("the row is not ours by its mapping (rows, or topic.otherwise: leave): it is left alone")

// preview makes rows from a query's result.
type preview struct {
	plan    *mapping.Plan
	columns []tablesql.RowColumn
	values  []mapping.Value
	arena   mapping.Arena
	rows    []*outbox.Row
	bytes   int
	most    int
}

func (t *Table) previewing() (*preview, error) {
	plan, columns, err := t.relation.Plan()
	if err != nil {
		return nil, err
	}
	return &preview{plan: plan, columns: columns, values: make([]mapping.Value, len(columns))}, nil
}

func (p *preview) each(row [][]byte) error {
	if p.bytes > p.most {
		return nil
	}
	at := 0
	for i := range p.columns {
		value, width, err := p.columns[i].Read(row[at:])
		if err != nil {
			return err
		}
		p.values[i], at = value, at+width
	}
	made := p.plan.Row(p.values, &p.arena)
	if !p.plan.Ours(p.values, &p.arena) { // only for a given row: rows of the table that are not ours are not read
		made.Err = errNotOurs
	}
	p.rows, p.bytes = append(p.rows, made), p.bytes+made.Size()
	return nil
}
