package tablesql

// order lists what rows are swept by: the profile's order columns; among rows
// that tie there, one that was tried before, since a key's rows behind it are
// not tried before it is through (and its new version lost its place); then the
// order of insertion within a transaction, cmin and ctid, where they may be
// read, else the id.
func (r *Relation) order() []string {
	m := &r.Table.Mapping
	var by []string
	for _, name := range m.Order {
		by = append(by, Ref(name))
	}
	switch {
	case m.Status.Attempts != "":
		by = append(by, r.attempts()+" DESC")
	case m.Status.LastError != "":
		by = append(by, Ref(m.Status.LastError)+" IS NULL")
	}
	if r.SystemColumns {
		// cid is a number without an order of its own.
		return append(by, "t.cmin::text::bigint", "t.ctid")
	}
	for _, name := range m.ID {
		by = append(by, Ref(name))
	}
	return by
}

// TieColumn is the order column that many rows may share a value of, such as a
// transaction's time; nil: there is no single one, or its values have no exact
// text.
func (r *Relation) TieColumn() *Column {
	if len(r.Table.Mapping.Order) != 1 {
		return nil
	}
	c := r.Column(r.Table.Mapping.Order[0])
	switch c.OID {
	case oidInt2, oidInt4, oidInt8, oidTimestamp, oidTimestamptz:
		return c
	}
	return nil
}
