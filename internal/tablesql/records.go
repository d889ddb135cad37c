package tablesql

// Records selects what the records of picked rows are made of, in the order of
// sweeping. Of a table without state it picks whatever their state is.
func (r *Relation) Records(filter *Filter, columns Selected, limit int) (Step, error) {
	var p Params
	condition := r.ofOurs("true")
	if r.Table.Stateful() {
		var err error
		if condition, err = r.inState(filter.State); err != nil {
			return Step{}, err
		}
	}
	where, err := r.pickedOf(&p, condition, filter)
	q := PageQuery{relation: r, columns: columns, params: p, where: []string{where}, limit: limit}
	step, _ := q.Step(nil)
	return step, err
}

// RecordOf selects the same of a row that is not in the table: an object with its
// columns, of which those that are left out are NULL.
func (r *Relation) RecordOf(object []byte, columns Selected) Step {
	var p Params
	row := "json_populate_record(NULL::" + r.Name() + ", " + p.Bind(object, "json") + ")"
	return Step{SQL: "SELECT " + columns.list + " FROM (SELECT (" + row + ").*) AS t", Args: p}
}
