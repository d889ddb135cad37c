package tablesql

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Removal deletes rows whose retention has expired. One statement finds them, and reads the whole table if no
// index helps. They are then deleted by their ids, some at a time.
type Removal struct {
	relation *Relation
	where    string // condition for the wanted rows, with params
	params   Params
	still    string // condition that must still be true of a row once it is locked
}

// Expired selects rows that were sent longer ago than age.
func (r *Relation) Expired(age time.Duration) (*Removal, error) {
	expired, err := r.expired(age)
	if err != nil {
		return nil, err
	}
	where := conjunction(r.ofOurs(r.sent()), expired)
	return &Removal{relation: r, where: where, still: where}, nil
}

// ExpiredUnsent selects rows that were created longer ago than age and are still pending, or failed. It
// leaves out rows with these ids, and rows whose resend column is true.
func (r *Relation) ExpiredUnsent(age time.Duration, ids []string) (*Removal, error) {
	at := r.Table.Mapping.CreatedAt
	if at == "" {
		return nil, r.unfit("has a retention of unsent rows, but no column says when a row was created", "map created_at, or take retention_unsent away")
	}
	m := &Removal{relation: r}
	m.still = conjunction("("+r.ourPending()+" OR "+r.ourFailed()+")", r.butResend(), r.when(at, "<", ago(age)))
	m.where = m.still
	if among := r.amongIDs(&m.params, ids); among != "" {
		m.where += " AND NOT (" + among + ")"
	}
	return m, nil
}

// Find returns the ids of up to n of the rows, in table order.
func (m *Removal) Find(n int, found func(id string)) Step {
	order := ""
	if by := m.relation.Table.Mapping.Order; len(by) > 0 {
		order = " ORDER BY " + joined(by, ", ", Ref)
	}
	return Step{
		SQL:  fmt.Sprintf("%s%s LIMIT %d", m.relation.selectIDs(m.where), order, n),
		Args: m.params,
		Each: m.relation.eachID(found),
	}
}

// Delete deletes those of the found rows that may still be deleted, except rows that other sessions have
// locked. The step needs Settings.ByIndex. It returns one result row for each deleted row.
func (m *Removal) Delete(ids []string, each func(row [][]byte) error) (Step, error) {
	r := m.relation
	args, from, on, err := r.bindList(ids)
	if err != nil {
		return Step{}, err
	}
	return Step{
		SQL: fmt.Sprintf("WITH u AS MATERIALIZED (SELECT %s FROM %s JOIN %s AS t ON %s WHERE %s FOR UPDATE OF t SKIP LOCKED) "+
			"DELETE FROM %[3]s AS t USING u WHERE %[4]s AND %[5]s RETURNING 1",
			r.idColumns("u."), from, r.Name(), on, Opaque(m.still)),
		Args: args, Each: each,
	}, nil
}

func ago(age time.Duration) string {
	return fmt.Sprintf("now() - %d * interval '1 microsecond'", age.Microseconds())
}

// expired compares age with the time of sending, and also with the earlier creation time, which tables
// usually have an index on. Of several times of sending, the last counts.
func (r *Relation) expired(age time.Duration) (string, error) {
	m := &r.Table.Mapping
	var times []string
	switch sent := notEmpty(append([]string{m.Status.SentAt}, m.Status.SentBy...)); len(sent) {
	case 0:
	case 1:
		times = append(times, r.when(sent[0], "<", ago(age)))
	default:
		times = append(times, "greatest("+joined(sent, ", ", r.timestamp)+") < "+ago(age)) // NULLs are ignored
	}
	if m.CreatedAt != "" {
		times = append(times, r.when(m.CreatedAt, "<", ago(age)))
	}
	if len(times) == 0 {
		return "", r.unfit("has a retention, but no column says when a row was sent or created", "map sent_at or created_at, or take retention away")
	}
	return strings.Join(times, " AND "), nil
}

// expiredPartitionsSQL finds the leaves of a table that are partitions by a range of one column, with an
// upper bound longer ago than an age. Bounds are printed and parsed under the same settings. They contain no
// columns, so they can be printed for relation 0. For the leaf itself, pg_get_expr would wait for locks on
// it.
const expiredPartitionsSQL = `
SELECT n.nspname, c.relname
FROM pg_catalog.pg_partitioned_table p
JOIN pg_catalog.pg_inherits i ON i.inhparent = p.partrelid
JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relkind = 'r'
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL regexp_match(pg_get_expr(c.relpartbound, 0), '\) TO \(''([^'']+)''\)$') AS bound
WHERE p.partrelid = $1::oid AND p.partstrat = 'r' AND p.partnatts = 1 AND p.partattrs[0] = $2::smallint
    AND %s
ORDER BY bound[1]::%s`

// Partition is a leaf partition of a Relation.
type Partition struct {
	relation     *Relation
	Schema, Name string
}

// String returns the leaf's qualified name, quoted.
func (p *Partition) String() string { return sql.Identifier(p.Schema, p.Name) }

// ExpiredPartitions finds the leaves, by range of the creation time, that end longer ago than age. The oldest
// comes first.
func (r *Relation) ExpiredPartitions(age time.Duration, found *[]Partition) (Step, error) {
	created := r.Column(r.Table.Mapping.CreatedAt)
	if !r.Partitioned || created == nil {
		return Step{}, r.unfit("has no partitions by a range of its creation time to drop", "partition it by range of created_at, or set retention_by: rows")
	}
	args := Texts(
		strconv.AppendUint(nil, uint64(r.OID), 10), strconv.AppendInt(nil, int64(created.Number), 10),
		strconv.AppendInt(nil, age.Microseconds(), 10),
	)
	k, sqlType := r.clock(created.Name), "timestamptz"
	if !k.same() {
		sqlType = created.Type
	}
	ended := k.when("bound[1]::"+sqlType, "<=", "now() - $3::bigint * interval '1 microsecond'")
	return Step{SQL: fmt.Sprintf(expiredPartitionsSQL, ended, sqlType), Args: args, Each: func(row [][]byte) error {
		*found = append(*found, Partition{relation: r, Schema: string(row[0]), Name: string(row[1])})
		return nil
	}}, nil
}

// Count counts the leaf's rows. kept counts those that were not sent, or were sent more recently than age.
func (p *Partition) Count(age time.Duration, rows, kept *int64) (Step, error) {
	expired, err := p.relation.expired(age)
	if err != nil {
		return Step{}, err
	}
	if ours := p.relation.ours(); ours != "" {
		expired += " AND " + ours // rows that are not ours are not ours to delete
	}
	sql := fmt.Sprintf("SELECT count(*), count(*) FILTER (WHERE (%s AND %s) IS NOT TRUE) FROM %s AS t", p.relation.sent(), expired, p)
	return Step{SQL: sql, Each: func(row [][]byte) (err error) {
		if *rows, err = Count(row[0]); err == nil {
			*kept, err = Count(row[1])
		}
		return err
	}}, nil
}

// Lock locks the leaf against all other access until the transaction ends.
func (p *Partition) Lock() Step {
	return Step{SQL: "LOCK TABLE " + p.String() + " IN ACCESS EXCLUSIVE MODE"}
}

// Drop drops the leaf.
func (p *Partition) Drop() Step { return Step{SQL: "DROP TABLE " + p.String()} }
