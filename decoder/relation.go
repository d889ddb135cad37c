package decoder

import (
	"cmp"
	"fmt"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// relation reads a table's description. A description comes before the table's first change on a connection,
// after DDL, and sometimes again unchanged. The mapping is compiled each time, by the columns' names.
func (d *Decoder) relation(m *pglogrepl.RelationMessage, b *Batch) *Error {
	// The server sends pg_catalog as an empty name.
	r := &relation{id: m.RelationID, name: name{schema: cmp.Or(d.text(m.Namespace), "pg_catalog"), table: d.text(m.RelationName)}, columns: len(m.Columns)}
	if len(d.relations) >= maxRelations {
		return &Error{What: fmt.Sprintf("describes more than %d relations", maxRelations)}
	}
	table := d.tableOf(r.name)
	d.replace(r, b)
	if table == nil {
		return nil
	}
	if r.state = d.states[table]; r.state == nil {
		r.state = &tableState{table: table, broken: make(map[uint32]error)}
		d.states[table] = r.state
	}
	var err error
	if r.plan, err = mapping.Compile(d.set, table, d.columns(m)); err != nil {
		r.state.broken[r.id] = err
	}
	r.state.tell(err, b)
	return nil
}

func (d *Decoder) columns(m *pglogrepl.RelationMessage) []mapping.Column {
	columns := make([]mapping.Column, len(m.Columns))
	for i, c := range m.Columns {
		oid := cmp.Or(d.types[c.DataType], c.DataType) // for a domain, the OID of its base type
		columns[i] = mapping.Column{Name: d.text(c.Name), OID: oid, Enum: d.enums[oid]}
	}
	return columns
}

// text decodes a name from the database's encoding.
func (d *Decoder) text(sent string) string {
	if d.set == nil {
		return sent
	}
	name, _ := d.set.AppendExact(nil, []byte(sent))
	return string(name)
}

func (d *Decoder) tableOf(n name) *outbox.Table { return cmp.Or(d.tables[n], d.leaves[n.String()]) }

// replace puts r in place of the relations that had its id or its name. A table that was dropped and created
// again has a new id; a renamed table has a new name.
func (d *Decoder) replace(r *relation, b *Batch) {
	if old := d.relations[r.id]; old != nil {
		d.forget(old, r, b)
	}
	if id, ok := d.byName[r.name]; ok {
		d.forget(d.relations[id], r, b)
	}
	d.relations[r.id] = r
	d.byName[r.name] = r.id
}

// forget removes a relation that r replaces. If r belongs to another table, and the old one's table is fit
// again without it, forget reports the table as mapped.
func (d *Decoder) forget(old, r *relation, b *Batch) {
	delete(d.relations, old.id)
	delete(d.byName, old.name)
	s := old.state
	if s == nil {
		return
	}
	delete(s.broken, old.id)
	if s.table != d.tableOf(r.name) {
		s.tell(nil, b)
	}
}

// tell reports the table as mapped or broken if that has changed. err is the error of the relation just
// described.
func (s *tableState) tell(err error, b *Batch) {
	if len(s.broken) == 0 {
		if s.told != toldMapped {
			s.told = toldMapped
			b.note(Event{Kind: TableMapped, Table: s.table})
		}
		return
	}
	if err == nil || s.told == toldBroken && s.reason == err.Error() {
		return
	}
	s.told, s.reason = toldBroken, err.Error()
	b.note(Event{Kind: TableBroken, Table: s.table, Err: err})
}

// typeName records a type that is not built in. For a domain it records the base type, which determines how
// the values are read.
func (d *Decoder) typeName(m *pglogrepl.TypeMessage) *Error {
	base := uint32(0)
	if cmp.Or(m.Namespace, "pg_catalog") == "pg_catalog" {
		base = mapping.BuiltinOID(m.Name)
	}
	if base == 0 {
		delete(d.types, m.DataType)
		return nil
	}
	if len(d.types) >= maxTypes {
		return &Error{What: fmt.Sprintf("names more than %d types", maxTypes)}
	}
	d.types[m.DataType] = base
	return nil
}
