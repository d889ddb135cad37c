package tablesql

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// This file examines a table as a whole, for a check before it is streamed.

// Backlog describes the rows of a table that wait to be published.
type Backlog struct {
	Rows    int64
	More    bool  // there are more rows than were counted
	Oldest  int64 // age in seconds; -1: unknown
	Largest int64 // bytes of the largest payload with its key
}

// Backlog reads at most limit rows that wait to be published.
func (r *Relation) Backlog(limit int, into *Backlog) Step {
	age, created := "NULL", "NULL::timestamptz"
	if at := r.Table.Mapping.CreatedAt; at != "" {
		age, created = r.clock(at).age("min(created)")+" / 1000000", Ref(at)
	}
	read := func(row [][]byte) error {
		*into = Backlog{Oldest: -1}
		return errors.Join(scan(row[0], &into.Rows), scan(row[1], &into.Oldest), scan(row[2], &into.Largest))
	}
	return Step{Each: read, SQL: fmt.Sprintf("SELECT count(*), %s, coalesce(max(bytes), 0) FROM (SELECT %s AS bytes, %s AS created FROM %s t WHERE %s LIMIT %d) waiting",
		age, r.bytes(), created, r.Name(), r.ourPending(), limit)}
}

// scan reads a number. It leaves into as it is where the value is NULL.
func scan(value []byte, into *int64) (err error) {
	if value != nil {
		*into, err = strconv.ParseInt(string(value), 10, 64)
	}
	return err
}

// Unzoned returns the columns of the row's creation time or the record's time that the mapping may misread:
// local times and numbers.
func (r *Relation) Unzoned() (names []string) {
	m := &r.Table.Mapping
	for _, name := range []string{m.CreatedAt, m.Timestamp} {
		if c := r.Column(name); c != nil && (c.OID == oidTimestamp || r.clock(name).unit != 0) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Newest finds, for each of the columns, the age in seconds of the newest time among a few rows: the last by
// id and the first of the table. A negative age lies in the future. found is not called for a column without
// any time.
func (r *Relation) Newest(columns []string, found func(column string, age int64)) Step {
	var ages, sampled []string
	for _, name := range columns {
		ages, sampled = append(ages, r.clock(name).age("max("+sql.Identifier(name)+")")+" / 1000000"), append(sampled, Ref(name))
	}
	list := "SELECT " + strings.Join(sampled, ", ") + " FROM " + r.Name() + " AS t"
	last := " ORDER BY " + joined(r.Table.Mapping.ID, ", ", func(name string) string { return Ref(name) + " DESC" }) + " LIMIT 100"
	read := func(row [][]byte) error {
		for i, name := range columns {
			var age int64
			if err := scan(row[i], &age); err != nil {
				return err
			}
			if row[i] != nil {
				found(name, age)
			}
		}
		return nil
	}
	return Step{Each: read, SQL: "SELECT " + strings.Join(ages, ", ") + " FROM ((" + list + last + ") UNION ALL (" + list + " LIMIT 1000)) AS sampled"}
}

// Ties finds whether rows of one key have equal values in the order columns, among at most limit rows. The
// table must have a key.
func (r *Relation) Ties(limit int, into *bool) Step {
	key, _, _ := r.key()
	columns := []string{key + " AS c0"}
	for i, name := range r.Table.Mapping.Order {
		columns = append(columns, Ref(name)+" AS c"+strconv.Itoa(i+1))
	}
	read := func(row [][]byte) error {
		*into = string(row[0]) == "t"
		return nil
	}
	return Step{Each: read, SQL: fmt.Sprintf("SELECT count(*) > count(DISTINCT sampled) FROM (SELECT %s FROM %s AS t WHERE %s IS DISTINCT FROM NULL AND %s LIMIT %d) AS sampled",
		strings.Join(columns, ", "), r.Name(), key, r.ofOurs("true"), limit)}
}

// bytes returns an expression for the approximate size of the row's record.
func (r *Relation) bytes() string {
	m := &r.Table.Mapping
	names := m.Payload.Names()
	if m.Key != nil {
		names = append(names, m.Key.Names()...)
	}
	var terms []string
	for _, name := range names {
		if c := r.Column(name); c != nil {
			terms = append(terms, "coalesce("+c.size()+", 0)")
		}
	}
	if len(terms) == 0 {
		return "0"
	}
	return strings.Join(terms, " + ")
}

// Destinations finds where rows go, for at most limit pending rows and as many others: the name of the Kafka
// cluster (empty: none) and the topic.
func (r *Relation) Destinations(limit int, found func(cluster, topic string)) Step {
	cluster := "''::text"
	if c := r.Table.Mapping.Cluster.Column; c != "" {
		cluster = "coalesce(" + sampled(r.Column(c).word()) + ", '')"
	}
	some := fmt.Sprintf("SELECT %s AS cluster, %s AS topic FROM %s t", cluster, sampled(r.topic()), r.Name())
	read := func(row [][]byte) error {
		found(r.readText(row[0]), r.readText(row[1]))
		return nil
	}
	return Step{Each: read, SQL: fmt.Sprintf("SELECT DISTINCT %s, %s FROM ((%s WHERE %s LIMIT %d) UNION ALL (%s WHERE %s LIMIT %d)) sampled WHERE topic <> ''",
		r.asText("cluster"), r.asText("topic"), some, r.ourPending(), limit, some, r.ofOurs("true"), limit)}
}

// sampled returns the beginning of a text that a writer can make long: one character more than a topic's name
// may have.
func sampled(text string) string { return "left(" + text + ", 250)" }

// Chosen counts rows, and those of them that are ours by the mapping's conditions.
type Chosen struct{ Rows, Ours int64 }

// Chosen counts among at most limit rows. The mapping must have conditions.
func (r *Relation) Chosen(limit int, into *Chosen) Step {
	read := func(row [][]byte) error { return errors.Join(scan(row[0], &into.Rows), scan(row[1], &into.Ours)) }
	return Step{Each: read, SQL: fmt.Sprintf("SELECT count(*), count(*) FILTER (WHERE ours) FROM (SELECT %s AS ours FROM %s t LIMIT %d) sampled", r.ours(), r.Name(), limit)}
}

// States finds the values of the status column among at most limit rows. The mapping must have a status
// column.
func (r *Relation) States(limit int, found func(state string)) Step {
	c := r.Column(r.Table.Mapping.Status.Column)
	read := func(row [][]byte) error {
		found(r.readText(row[0]))
		return nil
	}
	return Step{Each: read, SQL: fmt.Sprintf("SELECT DISTINCT %s FROM (SELECT %s AS state FROM %s t WHERE %s LIMIT %d) sampled WHERE state IS NOT NULL ORDER BY 1",
		r.asText("state"), sampled(c.printed()), r.Name(), r.ofOurs("true"), limit)}
}

// SweepIndex returns statements, for people, that make an index for the sweep without blocking writers.
// partitions are the table's leaf partitions.
func (r *Relation) SweepIndex(partitions []string) []string {
	if c := r.waitsFor(); c != nil && !c.NotNull {
		return r.DueIndex(partitions)
	}
	return r.pendingIndex(partitions, r.inTableOrder())
}

// DueIndex returns the same for an index that finds due rows; see DueIndexed.
func (r *Relation) DueIndex(partitions []string) []string {
	c := r.waitsFor()
	if c.NotNull {
		return r.pendingIndex(partitions, []string{c.Name})
	}
	return r.pendingIndex(partitions, append([]string{c.Name}, r.inTableOrder()...))
}

func (r *Relation) inTableOrder() []string {
	if by := r.Table.Mapping.Order; len(by) > 0 {
		return by
	}
	return r.Table.Mapping.ID
}

// pendingIndex returns statements that index the partitions first. The index on the partitioned table, which
// cannot be made CONCURRENTLY, then takes over theirs.
func (r *Relation) pendingIndex(partitions, columns []string) []string {
	names := make([]string, len(columns))
	for i, name := range columns {
		names[i] = sql.Identifier(name)
	}
	by := " (" + strings.Join(names, ", ") + ")"
	if !r.Table.Mapping.Published.Removes() {
		by += " WHERE " + strings.ReplaceAll(r.ourPending(), `t."`, `"`)
	}
	if !r.Partitioned {
		return []string{"CREATE INDEX CONCURRENTLY ON " + r.Name() + by}
	}
	var statements []string
	for _, name := range partitions {
		statements = append(statements, "CREATE INDEX CONCURRENTLY ON "+name+by)
	}
	return append(statements, "CREATE INDEX ON "+r.Name()+by)
}

// Written returns the names of the columns that marks write.
func Written(m *outbox.Mapping) []string {
	if m.Published == outbox.PublishedNone {
		return nil
	}
	s := &m.Status
	names := m.Columns(outbox.UseMark)
	if m.Published.Removes() {
		names = slices.DeleteFunc(names, func(name string) bool { return name == s.SentAt || name == s.ExpiresAt })
	}
	slices.Sort(names)
	return slices.Compact(names)
}
