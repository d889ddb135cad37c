package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Inspection compares a table's catalogue entries with its mapping.
type Inspection struct {
	Table *outbox.Table
	// Relation is what statements are built from. They cannot be built if columns that they name are missing;
	// Findings list these.
	Relation *tablesql.Relation
	// Columns are in the table's order, as mapping.Compile takes them.
	Columns []mapping.Column
	// Rising is the column that shows which of a transaction's rows was inserted first; empty: there is none.
	Rising string
	// Partitions are the leaves of a partitioned table.
	Partitions []string
	// Findings are faults and possible faults. Fatal ones come first.
	Findings []TableFinding
	// Unevaluated is why it is not known whether rows would meet the table's constraints once they are
	// written; empty: it is known.
	Unevaluated string
}

// TableFinding is something about a table that its owner should fix.
type TableFinding struct {
	// Fatal: rows cannot be streamed, swept or marked until it is fixed.
	Fatal bool
	// About says what the finding is about.
	About   About
	Column  string // the column, if the finding is about one
	Problem string
	Hint    string // what to do, in SQL where possible
}

// About is the subject of a TableFinding.
type About uint8

// The values of About.
const (
	AboutKind      About = iota + 1 // it is not a permanent table
	AboutColumn                     // a mapped column is missing or cannot be used
	AboutNull                       // an id column may be NULL
	AboutPrivilege                  // something is not granted
	AboutOrder                      // the order of insertion cannot be read
	AboutIdentity                   // the id may not be unique
	AboutIndex                      // no index serves the sweep, or the headers in a side table
	AboutDue                        // no index finds due rows without reading those that wait
	AboutWrite                      // the server refuses a statement that changes rows
)

// Inspect compares a table, as Describe described it, with its mapping. Columns that do not fit become
// Findings like all other faults, so that everything is reported at once. A *TableError says that the table
// does not exist.
func Inspect(ctx context.Context, conn *pgx.Conn, t *outbox.Table, described tablesql.Described, timeout time.Duration) (*Inspection, error) {
	if described.Err != nil {
		return nil, tablesql.Refusal(t, described.Err)
	}
	r := &Inspection{Table: t, Relation: described.Relation, Columns: described.Relation.MappingColumns(), Rising: described.Relation.Rising()}
	i := inspector{Inspection: r, conn: conn, timeout: timeout}
	if err := i.inspect(ctx); err != nil {
		return nil, tablesql.WithHint(tablesql.Refusal(t, err), t, conn.Config().User)
	}
	rank := map[bool]int{true: 0, false: 1}
	slices.SortStableFunc(r.Findings, func(a, b TableFinding) int { return rank[a.Fatal] - rank[b.Fatal] })
	return r, nil
}

// rename adds to the missing mapped columns their new names. It calls ask only if there are missing columns.
func (i *Inspection) rename(ask func() map[string]string) {
	if i == nil {
		return
	}
	var renamed map[string]string
	for n := range i.Findings {
		f := &i.Findings[n]
		if f.About != AboutColumn || f.Column == "" || i.Relation.Column(f.Column) != nil {
			continue
		}
		if renamed == nil {
			renamed = ask()
		}
		if now, known := renamed[f.Column]; known {
			f.Hint = tablesql.ColumnCalled(now)
		}
	}
}

func (i *inspector) inspect(ctx context.Context) error {
	if err := i.fit(); err != nil {
		return err
	}
	if err := i.catalogue(ctx); err != nil {
		return err
	}
	if err := i.headers(ctx); err != nil {
		return err
	}
	switch {
	case i.Relation.Unlogged:
		i.fatal(AboutKind, "the table is unlogged, so its rows are not in the WAL", "ALTER TABLE "+i.Relation.Name()+" SET LOGGED")
	case i.Relation.Temporary:
		i.fatal(AboutKind, "the table is temporary", "use a permanent table")
	}
	i.columns()
	i.privileges()
	i.identity()
	if err := i.writes(ctx); err != nil {
		return err
	}
	// If a value is not a label of the status's enum, the other findings are still valid.
	if err := i.indexes(ctx); !foreignWord(err) {
		return err
	}
	return nil
}

// fit checks that the columns fit the mapping.
func (i *inspector) fit() error {
	unfit := &mapping.Error{}
	if err := mapping.Verify(i.Table, i.Columns); errors.As(err, &unfit) {
		for _, f := range unfit.Faults {
			i.fatalColumn(AboutColumn, f.Column, strings.TrimSuffix(f.String(), ": "+f.Hint), f.Hint)
		}
		return nil
	} else if err != nil {
		return err
	}
	if err := i.Relation.Complete(); err != nil {
		return err
	}
	var err error
	_, i.rows, err = i.Relation.Plan()
	return err
}

// inspector collects findings.
type inspector struct {
	*Inspection
	conn    *pgx.Conn
	timeout time.Duration
	rows    []tablesql.RowColumn // columns of a page; none if the mapping does not fit
	role    string               // quoted
	leaves  []string             // Partitions, quoted
	found   catalogued
}

// catalogued is the result of inspectSQL.
type catalogued struct {
	Version        int         `json:"version"`
	Role           string      `json:"role"`
	Schema         bool        `json:"schema"`  // USAGE on the schema
	Remove         bool        `json:"remove"`  // DELETE on the table
	Moves          bool        `json:"moves"`   // INSERT on the archive
	Unique         [][]int16   `json:"unique"`  // columns of each unique index
	Partial        []string    `json:"partial"` // quoted names of partial indexes, as plans have them
	LeafPartitions [][2]string `json:"leaves"`  // schema and name of each
}

func (i *inspector) fatal(about About, problem, hint string) {
	i.Findings = append(i.Findings, TableFinding{Fatal: true, About: about, Problem: problem, Hint: hint})
}

func (i *inspector) fatalColumn(about About, column, problem, hint string) {
	i.Findings = append(i.Findings, TableFinding{Fatal: true, About: about, Column: column, Problem: problem, Hint: hint})
}

func (i *inspector) advise(about About, problem, hint string) {
	i.Findings = append(i.Findings, TableFinding{About: about, Problem: problem, Hint: hint})
}

// headers reads headers of no row from the side table, to see whether the statement works.
func (i *inspector) headers(ctx context.Context) error {
	side, step, err := i.Relation.HeadersOf(0, nil)
	if err != nil || side == nil {
		return err
	}
	if err := tablesql.Run(ctx, i.conn, step); err != nil {
		h := &i.Table.Mapping.HeadersTable
		return fmt.Errorf("reading the headers table %s.%s: %w (it must exist with the columns that headers_table names, and GRANT SELECT on it)", h.Schema, h.Name, err)
	}
	return nil
}

func (i *inspector) columns() {
	for _, name := range i.selected() {
		if c := i.Relation.Column(name); c.Generated {
			if problem, hint := replication.NotInWAL(i.Table, name, c.Stored, i.found.Version); problem != "" {
				i.fatal(AboutColumn, problem, hint)
			}
		}
	}
	for _, name := range i.existing(i.Table.Mapping.ID) {
		if c := i.Relation.Column(name); !c.Identifies && i.Table.Stateful() {
			i.fatalColumn(AboutColumn, name, fmt.Sprintf("column %q (%s) cannot be part of the row's id: no row is found again by its type", name, c.Type),
				"map a column of a type that compares, such as uuid, bigint or text")
		}
		if !i.Relation.Column(name).NotNull {
			i.fatalColumn(AboutNull, name, fmt.Sprintf("id column %q may be NULL", name),
				"ALTER TABLE "+i.Relation.Name()+" ALTER "+sql.Identifier(name)+" SET NOT NULL")
		}
	}
}

// selected returns the columns of a page.
func (i *inspector) selected() []string {
	names := make([]string, len(i.rows))
	for n := range i.rows {
		names[n] = i.rows[n].Name
	}
	return names
}

// existing returns those of the columns that exist.
func (i *inspector) existing(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return i.Relation.Column(name) == nil })
}

func (i *inspector) grant(privilege string) string {
	return "GRANT " + privilege + " ON " + i.Relation.Name() + " TO " + i.role
}

// read returns the columns that statements read.
func (i *inspector) read() []string {
	m := &i.Table.Mapping
	names := slices.Concat(i.selected(), m.ID, m.Order, []string{m.Status.Attempts, m.Status.MaxAttemptsColumn, m.Status.Version, m.Status.SentAt, m.CreatedAt})
	if i.Relation.Archive != nil {
		for _, c := range i.Relation.Columns {
			names = append(names, c.Name) // all columns are moved to the archive
		}
	}
	slices.Sort(names)
	return i.existing(slices.Compact(names))
}

// inspectSQL returns one JSON document. $1 is the table's OID, $2 that of its archive, or 0.
const inspectSQL = `
SELECT jsonb_build_object('role', current_user, 'version', current_setting('server_version_num')::int,
    'schema', has_schema_privilege(c.relnamespace, 'USAGE'), 'remove', has_table_privilege(c.oid, 'DELETE'),
    'moves', (SELECT has_schema_privilege(a.relnamespace, 'USAGE') AND has_table_privilege(a.oid, 'INSERT')
        FROM pg_catalog.pg_class a WHERE a.oid = $2::oid),
    'unique', (SELECT jsonb_agg((i.indkey::int2[])[0:i.indnkeyatts - 1])
        FROM pg_catalog.pg_index i
        WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL),
    'partial', (SELECT jsonb_agg(quote_ident(x.relname))
        FROM pg_catalog.pg_index i
        JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
        WHERE i.indpred IS NOT NULL AND i.indisvalid AND i.indrelid IN
            (SELECT c.oid UNION ALL SELECT relid FROM pg_catalog.pg_partition_tree(c.oid))),
    'leaves', (SELECT jsonb_agg(jsonb_build_array(n.nspname, l.relname) ORDER BY n.nspname, l.relname)
        FROM pg_catalog.pg_partition_tree(c.oid) p
        JOIN pg_catalog.pg_class l ON l.oid = p.relid
        JOIN pg_catalog.pg_namespace n ON n.oid = l.relnamespace
        WHERE p.isleaf AND p.relid <> c.oid))
FROM pg_catalog.pg_class c WHERE c.oid = $1::oid`

func (i *inspector) catalogue(ctx context.Context) error {
	var archive uint32
	if i.Relation.Archive != nil {
		archive = i.Relation.Archive.OID
	}
	oids := tablesql.Texts([]byte(fmt.Sprint(i.Relation.OID)), []byte(fmt.Sprint(archive)))
	err := tablesql.Run(ctx, i.conn, tablesql.Step{SQL: inspectSQL, Args: oids, Each: func(row [][]byte) error {
		return json.Unmarshal(row[0], &i.found)
	}})
	if err != nil {
		return fmt.Errorf("inspecting table %s: %w", i.Table, err)
	}
	i.role = sql.Identifier(i.found.Role)
	for _, leaf := range i.found.LeafPartitions {
		i.Partitions = append(i.Partitions, leaf[0]+"."+leaf[1])
		i.leaves = append(i.leaves, sql.Identifier(leaf[0], leaf[1]))
	}
	return nil
}

// privileges checks the role's privileges on the schema, the table and its columns.
func (i *inspector) privileges() {
	if !i.found.Schema {
		i.fatal(AboutPrivilege, "USAGE is missing on the schema", "GRANT USAGE ON SCHEMA "+sql.Identifier(i.Table.Schema)+" TO "+i.role)
	}
	if i.Table.Mapping.Published.Removes() && !i.found.Remove {
		i.fatal(AboutPrivilege, "DELETE is missing", i.grant("DELETE"))
	}
	if archive := i.Table.Mapping.Archive; i.Relation.Archive != nil && !i.found.Moves {
		name := sql.Identifier(archive.Schema, archive.Name)
		i.fatal(AboutPrivilege, "INSERT is missing on the archive "+archive.String(), fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %[3]s; GRANT INSERT ON %[2]s TO %[3]s", sql.Identifier(archive.Schema), name, i.role))
	}
	if i.Table.Retains() && !i.Table.Mapping.DropPartitions && !i.found.Remove {
		i.fatal(AboutPrivilege, "DELETE is missing, which retention needs", i.grant("DELETE"))
	}
	unread := slices.DeleteFunc(i.read(), func(name string) bool { return i.Relation.Column(name).Readable })
	unwritten := slices.DeleteFunc(i.existing(tablesql.Written(&i.Table.Mapping)), func(name string) bool { return i.Relation.Column(name).Writable })
	if len(unread) > 0 {
		i.fatal(AboutPrivilege, "SELECT is missing on "+quotedNames(unread), i.grant("SELECT"))
	} else if !i.Relation.SystemColumns && i.Rising == "" {
		i.advise(AboutOrder, "SELECT is granted on columns only, so rows with equal order columns cannot be swept in their order of insertion", i.grant("SELECT"))
	}
	if len(unwritten) > 0 {
		i.fatal(AboutPrivilege, "UPDATE is missing on "+quotedNames(unwritten), i.grant("UPDATE ("+quotedNames(unwritten)+")"))
	}
}

// identity checks that some unique index has only id columns.
func (i *inspector) identity() {
	var id []int16
	if len(i.existing(i.Table.Mapping.ID)) < len(i.Table.Mapping.ID) {
		return // reported already
	}
	for _, name := range i.Table.Mapping.ID {
		id = append(id, i.Relation.Column(name).Number)
	}
	for _, index := range i.found.Unique {
		if !slices.ContainsFunc(index, func(n int16) bool { return !slices.Contains(id, n) }) {
			return
		}
	}
	names := quotedNames(i.Table.Mapping.ID)
	i.fatal(AboutIdentity, "no unique index makes sure that the id columns "+names+" identify one row",
		"map the primary key's columns as id, or CREATE UNIQUE INDEX CONCURRENTLY ON "+i.Relation.Name()+" ("+names+")")
}

// indexes asks the planner for the plan of a sweep with nothing to do, and of a query for the headers of no
// row.
func (i *inspector) indexes(ctx context.Context) error {
	if !i.Table.Stateful() || slices.ContainsFunc(i.Findings, func(f TableFinding) bool { return f.Fatal }) {
		return nil
	}
	page, _ := i.Relation.Page(tablesql.Select(i.rows, false, false), 1000).Step(nil)
	plan, err := i.explain(ctx, page)
	if err != nil {
		return fmt.Errorf("planning the sweep of table %s: %w", i.Table, err)
	}
	if !i.served(plan) {
		i.advise(AboutIndex, "no index serves the sweep, so each one reads the whole table", strings.Join(i.Relation.SweepIndex(i.leaves), ";\n"))
	}
	if err := i.dueIndex(ctx); err != nil {
		return err
	}
	side, headers, err := i.Relation.HeadersOf(0, nil)
	if side == nil && err == nil {
		return nil
	}
	if err == nil {
		plan, err = i.explain(ctx, headers)
	}
	h := &i.Table.Mapping.HeadersTable
	name := sql.Identifier(h.Schema, h.Name)
	if err != nil {
		return fmt.Errorf("planning to read the headers table %s: %w", name, err)
	}
	if strings.Contains(plan, "Seq Scan") {
		i.advise(AboutIndex, "no index of "+name+" finds the headers of a row, so each row reads that whole table",
			"CREATE INDEX CONCURRENTLY ON "+name+" ("+sql.Identifier(h.Parent)+")")
	}
	return nil
}

func (i *inspector) dueIndex(ctx context.Context) error {
	if !i.Relation.Waits() {
		return nil
	}
	indexed := false
	if err := tablesql.Run(ctx, i.conn, append([]tablesql.Step{tablesql.Reading(i.timeout).Step(nil)}, i.Relation.DueIndexed(&indexed)...)...); err != nil {
		return fmt.Errorf("planning to read the due rows of table %s: %w", i.Table, err)
	}
	if hint := strings.Join(i.Relation.DueIndex(i.leaves), ";\n"); !indexed && !slices.ContainsFunc(i.Findings, func(f TableFinding) bool { return f.Hint == hint }) {
		i.advise(AboutDue, "no index finds the rows whose time has come, so each look reads all rows that wait for theirs", hint)
	}
	return nil
}

// explain returns the plan of a query with sequential scans disabled. The plan shows whether there is another
// way.
func (i *inspector) explain(ctx context.Context, query tablesql.Step) (string, error) {
	var plan strings.Builder
	settings := tablesql.Reading(i.timeout)
	settings.ByIndex = true
	err := tablesql.Run(ctx, i.conn, settings.Step(nil), tablesql.Step{
		SQL: "EXPLAIN (COSTS off) " + query.SQL, Args: query.Args,
		Each: func(row [][]byte) error {
			plan.WriteString(string(row[0]) + " ")
			return nil
		},
	})
	return plan.String(), err
}

// served reports whether the plan reads by a condition on an index, or reads a whole partial index. If every
// row is pending, any index will do.
func (i *inspector) served(plan string) bool {
	if strings.Contains(plan, "Seq Scan") {
		return false
	}
	return strings.Contains(plan, "Index Cond") || i.Table.Mapping.Published.Removes() ||
		slices.ContainsFunc(i.found.Partial, func(name string) bool { return strings.Contains(plan, " "+name+" ") })
}
