package decoder

import (
	"cmp"
	"fmt"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// relation takes a table's description, which comes before its first change on
// a connection and again after DDL, but also again unchanged. The mapping is
// compiled each time, by the columns' names.
func (d *Decoder) relation(m *pglogrepl.RelationMessage, b *Batch) *Error {
	// pg_catalog is sent as an empty name.
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
		oid := cmp.Or(d.types[c.DataType], c.DataType) // of a domain that of its base type
		columns[i] = mapping.Column{Name: d.text(c.Name), OID: oid, Enum: d.enums[oid]}
	}
	return columns
}

// text is a name of the database's.
func (d *Decoder) text(sent string) string {
	if d.set == nil {
		return sent
	}
	name, _ := d.set.AppendExact(nil, []byte(sent))
	return string(name)
}

func (d *Decoder) tableOf(n name) *outbox.Table { return cmp.Or(d.tables[n], d.leaves[n.String()]) }

// replace puts r in the place of what had its id, and of what had its name: a
// table dropped and created again, or renamed, has a new id or a new name.
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

// forget removes a relation that r replaces. If r is not of its table, forget tells when
// that table is mapped again without it.
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

// tell says that the table is mapped or broken, where that is news. err is of
// the relation just described.
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

// typeName takes the name of a type that is not built in; of a domain, the
// name of its base type, which says how its values are read.
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
