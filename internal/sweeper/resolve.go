package sweeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// Resolution is what the catalogue says of a table.
type Resolution struct {
	Table *outbox.Table
	// Relation is what statements are made of; not where columns that they name
	// are missing, of which Findings tell.
	Relation *tablesql.Relation
	// Columns in the table's order, as mapping.Compile takes them.
	Columns []mapping.Column
	// Partitions are the leaves of a partitioned table.
	Partitions []Partition
	// Findings are what stands, or may stand, in the way; the fatal ones first.
	Findings []Finding
}

// Partition is a leaf of a partitioned table.
type Partition struct {
	Schema, Name string
	OID          uint32
}

// Finding is something about a table that its owner should fix.
type Finding struct {
	// Fatal: rows cannot be streamed, swept or marked as it is.
	Fatal bool
	// About says what the finding is about.
	About   About
	Column  string // of a finding about one column
	Problem string
	Hint    string // what to do, SQL where it can be
}

// About is what a Finding is about.
type About uint8

// What findings are about.
const (
	AboutKind      About = iota + 1 // no permanent table
	AboutColumn                     // a mapped column is missing or cannot be used
	AboutNull                       // an id column may be NULL
	AboutPrivilege                  // something is not granted
	AboutOrder                      // the order of insertion cannot be read
	AboutIdentity                   // the id may not be unique
	AboutIndex                      // no index serves the sweep, or the headers of a side table
)

func (f Finding) String() string { return f.Problem + ": " + f.Hint }

// Resolve looks a table up. A *TableError says that it does not exist or that
// its columns do not fit the mapping at all.
func (s *Sweeper) Resolve(ctx context.Context, t *outbox.Table) (*Resolution, error) {
	var out *Resolution
	err := s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		relation, err := tablesql.Describe(ctx, conn, t)
		if err == nil {
			out, err = s.resolve(ctx, conn, relation)
		}
		return refusal(t, err)
	})
	return out, err
}

// Examine is Resolve for a check: columns that do not fit the mapping are
// Findings like all others, so that everything is told at once. A *TableError
// says that the table does not exist.
func (s *Sweeper) Examine(ctx context.Context, t *outbox.Table) (*Resolution, error) {
	var out *Resolution
	err := s.with(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		out, err = s.examine(ctx, conn, t)
		return refusal(t, err)
	})
	return out, err
}

func (s *Sweeper) examine(ctx context.Context, conn *pgx.Conn, t *outbox.Table) (*Resolution, error) {
	relation, err := tablesql.Describe(ctx, conn, t)
	if err != nil {
		return nil, err
	}
	r := newResolution(relation)
	i := inspection{Resolution: r, sweeper: s, relation: relation}
	unfit := &mapping.Error{}
	if err := mapping.Verify(t, r.Columns); !errors.As(err, &unfit) {
		fit, err := s.resolve(ctx, conn, relation)
		if !foreignWord(err) {
			return fit, err
		}
		// No label of the status's enum, say: the rest can be told.
		if i.plan, err = newPlan(relation); err != nil {
			return nil, err
		}
	}
	for _, f := range unfit.Faults {
		f := Finding{Fatal: true, About: AboutColumn, Column: f.Column, Problem: strings.TrimSuffix(f.String(), ": "+f.Hint), Hint: f.Hint}
		r.Findings = append(r.Findings, f)
	}
	if err := i.catalogue(ctx, conn); err != nil {
		return nil, err
	}
	if err := i.headers(ctx, conn); err != nil {
		return nil, err
	}
	i.kind()
	i.columns()
	i.privileges()
	i.identity()
	return r, nil
}

// foreignWord: the mapping has a word that is no value of its column's type
// (22P02, invalid_text_representation).
func foreignWord(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == "22P02"
}

func newResolution(relation *tablesql.Relation) *Resolution {
	return &Resolution{Table: relation.Table, Relation: relation, Columns: columns(relation)}
}

func (s *Sweeper) resolve(ctx context.Context, conn *pgx.Conn, relation *tablesql.Relation) (*Resolution, error) {
	if err := relation.Complete(); err != nil {
		return nil, err
	}
	r := newResolution(relation)
	if err := mapping.Verify(relation.Table, r.Columns); err != nil {
		return nil, err
	}
	p, err := newPlan(relation)
	if err != nil {
		return nil, err
	}
	i := inspection{Resolution: r, sweeper: s, plan: p, relation: relation}
	if err := i.catalogue(ctx, conn); err != nil {
		return nil, err
	}
	if err := i.headers(ctx, conn); err != nil {
		return nil, err
	}
	i.kind()
	i.columns()
	i.privileges()
	i.identity()
	if err := i.indexes(ctx, conn); err != nil {
		return nil, err
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return rank(a) - rank(b) })
	return r, nil
}

func rank(f Finding) int {
	if f.Fatal {
		return 0
	}
	return 1
}

// inspection collects findings.
type inspection struct {
	*Resolution
	sweeper  *Sweeper
	plan     *plan
	relation *tablesql.Relation
	role     string
	schema   bool // USAGE on it
	remove   bool // DELETE
	unique   [][]int16
	partial  []string // names of partial indexes, quoted as plans have them
}

func (i *inspection) fatal(about About, problem, hint string) {
	i.Findings = append(i.Findings, Finding{Fatal: true, About: about, Problem: problem, Hint: hint})
}

func (i *inspection) fatalColumn(about About, column, problem, hint string) {
	i.Findings = append(i.Findings, Finding{Fatal: true, About: about, Column: column, Problem: problem, Hint: hint})
}

func (i *inspection) advise(about About, problem, hint string) {
	i.Findings = append(i.Findings, Finding{About: about, Problem: problem, Hint: hint})
}

// headers reads those of no row from the side table, to see whether it can.
func (i *inspection) headers(ctx context.Context, conn *pgx.Conn) error {
	if !i.relation.HeadersTable() {
		return nil
	}
	_, step, err := i.relation.HeadersOf(0, nil)
	if err != nil {
		return err
	}
	if err := i.sweeper.send(ctx, conn, step); err != nil {
		h := &i.Table.Mapping.HeadersTable
		return fmt.Errorf("reading the headers table %s.%s: %w (it must exist with the columns that headers_table names, and GRANT SELECT on it)", h.Schema, h.Name, err)
	}
	return nil
}

func (i *inspection) kind() {
	switch {
	case i.relation.Unlogged:
		i.fatal(AboutKind, "the table is unlogged, so its rows are not in the log", "ALTER TABLE "+i.relation.Name()+" SET LOGGED")
	case i.relation.Temporary:
		i.fatal(AboutKind, "the table is temporary", "use a permanent table")
	}
}

func (i *inspection) columns() {
	for _, name := range i.selected() {
		if i.relation.Column(name).Generated {
			i.fatalColumn(AboutColumn, name, fmt.Sprintf("column %q is generated, and such columns are not in the log", name), "map the columns that it is made of")
		}
	}
	for _, name := range i.existing(i.Table.Mapping.ID) {
		if c := i.relation.Column(name); !c.Identifies && i.Table.Stateful() {
			i.fatalColumn(AboutColumn, name, fmt.Sprintf("column %q (%s) cannot be part of the row's id: no row is found again by its type", name, c.Type),
				"map a column of a type that compares, such as uuid, bigint or text")
		}
		if !i.relation.Column(name).NotNull {
			i.fatalColumn(AboutNull, name, fmt.Sprintf("id column %q may be NULL", name),
				"ALTER TABLE "+i.relation.Name()+" ALTER "+pgx.Identifier{name}.Sanitize()+" SET NOT NULL")
		}
	}
}

// selected names the columns that pages are made of.
func (i *inspection) selected() []string {
	if i.plan == nil {
		return nil // the mapping does not fit
	}
	return i.plan.names
}

// existing leaves out columns that do not exist.
func (i *inspection) existing(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return i.relation.Column(name) == nil })
}

func (i *inspection) onColumns() {
	var unread, unwritten []string
	for _, name := range i.read() {
		if !i.relation.Column(name).Readable {
			unread = append(unread, pgx.Identifier{name}.Sanitize())
		}
	}
	for _, name := range i.written() {
		if !i.relation.Column(name).Writable {
			unwritten = append(unwritten, pgx.Identifier{name}.Sanitize())
		}
	}
	if len(unread) > 0 {
		i.fatal(AboutPrivilege, "SELECT is missing on "+strings.Join(unread, ", "), i.grant("SELECT"))
	} else if !i.relation.SystemColumns {
		i.advise(AboutOrder, "SELECT is granted on columns only, so rows with equal order columns cannot be swept in their order of insertion", i.grant("SELECT"))
	}
	if len(unwritten) > 0 {
		i.fatal(AboutPrivilege, "UPDATE is missing on "+strings.Join(unwritten, ", "), i.grant("UPDATE ("+strings.Join(unwritten, ", ")+")"))
	}
}

func (i *inspection) grant(privilege string) string {
	return "GRANT " + privilege + " ON " + i.relation.Name() + " TO " + i.role
}

// read names the columns that statements read, without repeats.
func (i *inspection) read() []string {
	m := &i.Table.Mapping
	names := slices.Concat(i.selected(), m.ID, m.Order, []string{m.Status.Attempts, m.Status.Version, m.Status.SentAt, m.CreatedAt})
	return i.existing(distinct(names))
}

// written names the columns that marks write.
func (i *inspection) written() []string { return i.existing(tablesql.Written(&i.Table.Mapping)) }

func distinct(names []string) []string {
	slices.Sort(names)
	names = slices.Compact(names)
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

const inspectSQL = `
SELECT current_user, has_schema_privilege(c.relnamespace, 'USAGE'), has_table_privilege(c.oid, 'DELETE'),
    coalesce((SELECT string_agg(array_to_string((i.indkey::int2[])[0:i.indnkeyatts - 1], ' '), ',')
              FROM pg_catalog.pg_index i
              WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL), ''),
    coalesce((SELECT string_agg(quote_ident(x.relname), E'\n')
              FROM pg_catalog.pg_index i
              JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
              WHERE i.indpred IS NOT NULL AND i.indisvalid AND i.indrelid IN
                  (SELECT c.oid UNION ALL SELECT relid FROM pg_catalog.pg_partition_tree(c.oid))), '')
FROM pg_catalog.pg_class c WHERE c.oid = $1::oid`

const leavesSQL = `
SELECT n.nspname, c.relname, c.oid
FROM pg_catalog.pg_partition_tree($1::oid::regclass) p
JOIN pg_catalog.pg_class c ON c.oid = p.relid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE p.isleaf AND p.relid <> $1::oid ORDER BY 1, 2`

func (i *inspection) catalogue(ctx context.Context, conn *pgx.Conn) error {
	oid := tablesql.Texts(strconv.AppendUint(nil, uint64(i.relation.OID), 10))
	err := i.sweeper.send(ctx, conn,
		tablesql.Step{SQL: inspectSQL, Args: oid, Each: i.readTable},
		tablesql.Step{SQL: leavesSQL, Args: oid, Each: i.readLeaf},
	)
	if err != nil {
		return fmt.Errorf("inspecting table %s: %w", i.Table, err)
	}
	return nil
}

// privileges of the role, on the schema, the table and its columns.
func (i *inspection) privileges() {
	if !i.schema {
		i.fatal(AboutPrivilege, "USAGE is missing on the schema", "GRANT USAGE ON SCHEMA "+pgx.Identifier{i.Table.Schema}.Sanitize()+" TO "+i.role)
	}
	if i.Table.Mapping.Published == outbox.PublishedDelete && !i.remove {
		i.fatal(AboutPrivilege, "DELETE is missing", i.grant("DELETE"))
	}
	if Retains(i.Table) && !i.Table.Mapping.DropPartitions && !i.remove {
		i.fatal(AboutPrivilege, "DELETE is missing, which retention needs", i.grant("DELETE"))
	}
	i.onColumns()
}

func (i *inspection) readTable(row [][]byte) error {
	i.role = pgx.Identifier{string(row[0])}.Sanitize()
	i.schema, i.remove = string(row[1]) == "t", string(row[2]) == "t"
	i.partial = lines(string(row[4]))
	for _, index := range strings.Split(string(row[3]), ",") {
		var numbers []int16
		for _, text := range strings.Fields(index) {
			n, err := strconv.ParseInt(text, 10, 16)
			if err != nil {
				return fmt.Errorf("reading the columns of an index: %w", err)
			}
			numbers = append(numbers, int16(n))
		}
		if len(numbers) > 0 {
			i.unique = append(i.unique, numbers)
		}
	}
	return nil
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func (i *inspection) readLeaf(row [][]byte) error {
	oid, err := strconv.ParseUint(string(row[2]), 10, 32)
	if err != nil {
		return fmt.Errorf("reading the OID of a partition: %w", err)
	}
	i.Partitions = append(i.Partitions, Partition{Schema: string(row[0]), Name: string(row[1]), OID: uint32(oid)})
	return nil
}

// identity: some unique index must lie within the id columns.
func (i *inspection) identity() {
	var id []int16
	if len(i.existing(i.Table.Mapping.ID)) < len(i.Table.Mapping.ID) {
		return // said already
	}
	for _, name := range i.Table.Mapping.ID {
		id = append(id, i.relation.Column(name).Number)
	}
	for _, index := range i.unique {
		if !slices.ContainsFunc(index, func(n int16) bool { return !slices.Contains(id, n) }) {
			return
		}
	}
	names := make([]string, len(i.Table.Mapping.ID))
	for n, name := range i.Table.Mapping.ID {
		names[n] = pgx.Identifier{name}.Sanitize()
	}
	i.fatal(AboutIdentity, "no unique index makes sure that the id columns "+strings.Join(names, ", ")+" identify one row",
		"map the primary key's columns as id, or CREATE UNIQUE INDEX CONCURRENTLY ON "+i.relation.Name()+" ("+strings.Join(names, ", ")+")")
}

// indexes asks the planner for the sweep of a table with nothing to do, and for
// the headers of no row.
func (i *inspection) indexes(ctx context.Context, conn *pgx.Conn) error {
	if !i.Table.Stateful() || slices.ContainsFunc(i.Findings, func(f Finding) bool { return f.Fatal }) {
		return nil
	}
	q := newSelection(newReader(i.plan, false, nil), 1000)
	plan, err := i.explain(ctx, conn, tablesql.Step{SQL: q.sql()})
	if err != nil {
		return fmt.Errorf("planning the sweep of table %s: %w", i.Table, err)
	}
	if !i.served(plan) {
		i.advise(AboutIndex, "no index serves the sweep, so each one reads the whole table", i.indexFor())
	}
	if !i.relation.HeadersTable() {
		return nil
	}
	_, headers, err := i.relation.HeadersOf(0, nil)
	if err == nil {
		plan, err = i.explain(ctx, conn, headers)
	}
	h := &i.Table.Mapping.HeadersTable
	name := pgx.Identifier{h.Schema, h.Name}.Sanitize()
	if err != nil {
		return fmt.Errorf("planning to read the headers table %s: %w", name, err)
	}
	if strings.Contains(plan, "Seq Scan") {
		i.advise(AboutIndex, "no index of "+name+" finds the headers of a row, so each row reads that whole table",
			"CREATE INDEX CONCURRENTLY ON "+name+" ("+pgx.Identifier{h.Parent}.Sanitize()+")")
	}
	return nil
}

// explain gives the plan of a query where scans are avoided at all price, which
// shows whether there is another way.
func (i *inspection) explain(ctx context.Context, conn *pgx.Conn, query tablesql.Step) (string, error) {
	var plan strings.Builder
	settings := i.sweeper.settings()
	settings.ByIndex = true
	err := i.sweeper.send(ctx, conn, settings.Step(nil), tablesql.Step{
		SQL: "EXPLAIN (COSTS off) " + query.SQL, Args: query.Args,
		Each: func(row [][]byte) error {
			plan.WriteString(string(row[0]) + " ")
			return nil
		},
	})
	return plan.String(), err
}

// served says that the plan reads by a condition on an index, or a partial
// index as a whole; where every row there is is pending, any index.
func (i *inspection) served(plan string) bool {
	if strings.Contains(plan, "Seq Scan") {
		return false
	}
	return strings.Contains(plan, "Index Cond") || i.Table.Mapping.Published == outbox.PublishedDelete ||
		slices.ContainsFunc(i.partial, func(name string) bool { return strings.Contains(plan, " "+name+" ") })
}

func (i *inspection) indexFor() string {
	m := &i.Table.Mapping
	by := slices.Clone(m.Order)
	if len(by) == 0 {
		by = m.ID
	}
	names := make([]string, len(by))
	for n, name := range by {
		names[n] = pgx.Identifier{name}.Sanitize()
	}
	index := "CREATE INDEX CONCURRENTLY ON " + i.relation.Name() + " (" + strings.Join(names, ", ") + ")"
	if i.Table.Mapping.Published == outbox.PublishedDelete {
		return index
	}
	return index + " WHERE " + strings.ReplaceAll(i.relation.Pending(), `t."`, `"`)
}

// Partitions says which leaves, by schema.name, are of which of the
// configured tables.
func (s *Sweeper) Partitions(ctx context.Context) (map[string]*outbox.Table, error) {
	leaves := make(map[string]*outbox.Table)
	err := s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		for _, t := range s.cfg.Tables {
			err := s.send(ctx, conn, tablesql.Step{
				SQL:  leavesByNameSQL,
				Args: tablesql.Texts([]byte(t.Schema), []byte(t.Name)),
				Each: func(row [][]byte) error {
					leaves[string(row[0])+"."+string(row[1])] = t
					return nil
				},
			})
			if err != nil {
				return fmt.Errorf("reading the partitions of table %s: %w", t, err)
			}
		}
		return nil
	})
	return leaves, err
}

// Enums are the types that are enums, or domains over one, by their OIDs.
func (s *Sweeper) Enums(ctx context.Context) (map[uint32]bool, error) {
	enums := make(map[uint32]bool)
	err := s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return s.send(ctx, conn, tablesql.Step{SQL: enumsSQL, Each: func(row [][]byte) error {
			oid, err := strconv.ParseUint(string(row[0]), 10, 32)
			enums[uint32(oid)] = true
			return err
		}})
	})
	if err != nil {
		return nil, fmt.Errorf("reading which types are enums: %w", err)
	}
	return enums, nil
}

const enumsSQL = `
WITH RECURSIVE enum AS (
    SELECT oid FROM pg_catalog.pg_type WHERE typtype = 'e'
  UNION ALL
    SELECT d.oid FROM pg_catalog.pg_type d JOIN enum e ON d.typbasetype = e.oid WHERE d.typtype = 'd'
)
SELECT oid FROM enum`

const leavesByNameSQL = `
SELECT n.nspname, c.relname
FROM pg_catalog.pg_class root
JOIN pg_catalog.pg_namespace ns ON ns.oid = root.relnamespace
CROSS JOIN LATERAL pg_catalog.pg_partition_tree(root.oid) p
JOIN pg_catalog.pg_class c ON c.oid = p.relid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE ns.nspname = $1 AND root.relname = $2 AND root.relkind = 'p' AND p.isleaf AND p.relid <> root.oid`
