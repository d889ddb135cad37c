package tablesql

import (
	"fmt"
	"strconv"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sql"
)

// The leaves of a table that are partitions by a range of one column, with an
// upper bound that lies longer ago than an age. Bounds are printed, and read
// again, under the same settings. They name no columns, so they are printed for no relation: for
// the leaf, pg_get_expr would wait for who has it locked.
const expiredPartitionsSQL = `
SELECT n.nspname, c.relname
FROM pg_catalog.pg_partitioned_table p
JOIN pg_catalog.pg_inherits i ON i.inhparent = p.partrelid
JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relkind = 'r'
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL regexp_match(pg_get_expr(c.relpartbound, 0), '\) TO \(''([^'']+)''\)$') AS bound
WHERE p.partrelid = $1::oid AND p.partstrat = 'r' AND p.partnatts = 1 AND p.partattrs[0] = $2::smallint
    AND bound[1]::timestamptz <= now() - $3::bigint * interval '1 microsecond'
ORDER BY bound[1]::timestamptz`

// Partition is a leaf of a Relation.
type Partition struct {
	relation     *Relation
	Schema, Name string
}

// String is the leaf's name, quoted.
func (p *Partition) String() string { return sql.Identifier(p.Schema, p.Name) }

// ExpiredPartitions finds the leaves by a range of the creation time that end
// longer ago than the age, oldest first.
func (r *Relation) ExpiredPartitions(age time.Duration, found *[]Partition) (Step, error) {
	created := r.Column(r.Table.Mapping.CreatedAt)
	if !r.Partitioned || created == nil {
		return Step{}, r.unfit("has no partitions by a range of its creation time to drop", "partition it by range of created_at, or set retention_by: rows")
	}
	args := Texts(
		strconv.AppendUint(nil, uint64(r.OID), 10), strconv.AppendInt(nil, int64(created.Number), 10),
		strconv.AppendInt(nil, age.Microseconds(), 10),
	)
	return Step{SQL: expiredPartitionsSQL, Args: args, Each: func(row [][]byte) error {
		*found = append(*found, Partition{relation: r, Schema: string(row[0]), Name: string(row[1])})
		return nil
	}}, nil
}

// Count counts the leaf's rows, and those that are not to be deleted yet: that
// were not sent, or not longer ago than the age.
func (p *Partition) Count(age time.Duration, rows, kept *int64) (Step, error) {
	expired, err := p.relation.expired(age)
	if err != nil {
		return Step{}, err
	}
	if ours := p.relation.ours(); ours != "" {
		expired += " AND " + ours // others' rows are not ours to delete
	}
	sql := fmt.Sprintf("SELECT count(*), count(*) FILTER (WHERE (%s AND %s) IS NOT TRUE) FROM %s AS t", p.relation.sent(), expired, p)
	return Step{SQL: sql, Each: func(row [][]byte) (err error) {
		if *rows, err = Count(row[0]); err == nil {
			*kept, err = Count(row[1])
		}
		return err
	}}, nil
}

// Lock keeps everybody out of the leaf until the transaction ends.
func (p *Partition) Lock() Step {
	return Step{SQL: "LOCK TABLE " + p.String() + " IN ACCESS EXCLUSIVE MODE"}
}

// Drop drops the leaf.
func (p *Partition) Drop() Step { return Step{SQL: "DROP TABLE " + p.String()} }
