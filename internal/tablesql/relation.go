package tablesql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-cdc/outbox-cdc/internal/charset"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Relation is an outbox table as the catalogue describes it. It is immutable. When DDL makes it out of date,
// its statements fail, and it has to be loaded again.
type Relation struct {
	Table *outbox.Table
	OID   uint32
	// Partitioned: the table is partitioned. Temporary and Unlogged: by its persistence.
	Partitioned, Temporary, Unlogged bool
	// Columns are in the table's order.
	Columns []Column
	// SystemColumns says that the role may read cmin and ctid, which needs SELECT on the whole table.
	SystemColumns bool
	// Lockable says that the role may lock rows, which needs UPDATE on at least one column.
	Lockable bool
	// Charset is the database's encoding of text; nil: UTF-8.
	Charset *charset.Set

	// Archive is the table that rows are moved to; nil: none is mapped, or it does not exist.
	Archive *Relation
	// side is the table with headers; nil: there is none, or the role may not read it as a whole.
	side *Relation
	// above are the OIDs of all tables that this one inherits from, or is a partition of, directly or not.
	above []string
	// shape changes when it changes what the columns can hold: see columnShape.
	shape string

	brief bool // see Brief
	// look is the text of lookSQL. Connections keep it prepared, so it is built once.
	look string
}

// Column is one column of a Relation.
type Column struct {
	Name   string
	Number int16
	// OID and Type are those of the base type if the column's type is a domain. Type is in SQL form, without
	// a length.
	OID  uint32
	Type string
	Enum bool
	// MaxChars is how many characters fit; 0: no limit.
	MaxChars int
	// NotNull: the column, or its domain, does not accept NULL.
	NotNull bool
	// Generated: the column cannot be written. Stored: it is generated and not VIRTUAL.
	Generated, Stored bool
	// Exact says that two values are equal if and only if their texts are.
	Exact bool
	// Operators is the schema of the type's own operator =, quoted. Empty: pg_catalog, the only schema that
	// our statements search.
	Operators string
	// Identifies says that rows can be found by a list of values of this column: the type has an equality of
	// its own, and its arrays are lists.
	Identifies bool
	// Readable and Writable: the role has SELECT or UPDATE on the column.
	Readable, Writable bool

	brief  bool // see Brief
	typmod int  // the type's modifier; -1: none
	filled bool // an INSERT without the column gives it a value: a default or an identity
	rises  bool // each value is greater than the session's last one: identity, sequence or uuidv7()
}

// The types with a treatment of their own.
const (
	oidBool        = pgtype.BoolOID
	oidBytea       = pgtype.ByteaOID
	oidName        = pgtype.NameOID
	oidInt8        = pgtype.Int8OID
	oidInt2        = pgtype.Int2OID
	oidInt4        = pgtype.Int4OID
	oidText        = pgtype.TextOID
	oidBpchar      = pgtype.BPCharOID
	oidVarchar     = pgtype.VarcharOID
	oidTimestamp   = pgtype.TimestampOID
	oidTimestamptz = pgtype.TimestamptzOID
	oidNumeric     = pgtype.NumericOID
	oidUUID        = pgtype.UUIDOID
)

// columnShape is an expression for the shape of a column a of a table c. attinhcount changes when the table
// gains or loses a parent.
const columnShape = "concat_ws(':', a.attrelid, c.relpersistence, a.attnum, a.atttypid, a.atttypmod, a.attgenerated, a.attinhcount)"

// nextval matches the beginning of a stored default that is the next value of a sequence (function 1574), as
// it is or cast to int2 (714) or int4 (480). The functions have these OIDs on every server, as in
// pg_proc.dat.
const nextval = `^\{FUNCEXPR :funcid (1574 |(480|714) [^{]*\{FUNCEXPR :funcid 1574 )`

// loadSQL reads the columns of tables. n is the table's position in the list. The query follows domains down
// to the base type; attcollation is that of the column.
const loadSQL = `
WITH RECURSIVE attribute AS (
    SELECT w.n, c.oid AS relation, c.relkind, c.relpersistence, a.attname, a.attnum, a.attnotnull, a.attgenerated,
        a.attcollation, a.atttypid AS type, a.atttypmod AS typmod,
        a.atthasdef OR a.attidentity <> '' OR (SELECT typdefault IS NOT NULL FROM pg_catalog.pg_type WHERE oid = a.atttypid) AS filled,
        a.attidentity <> '' AND EXISTS (SELECT FROM pg_catalog.pg_depend p JOIN pg_catalog.pg_sequence q ON q.seqrelid = p.objid
            WHERE p.classid = 'pg_class'::regclass AND p.refclassid = 'pg_class'::regclass AND p.refobjid = c.oid AND p.refobjsubid = a.attnum
              AND p.deptype = 'i' AND q.seqincrement > 0 AND NOT q.seqcycle)
        OR a.atthasdef AND EXISTS (SELECT FROM pg_catalog.pg_attrdef d CROSS JOIN CAST(d.adbin AS text) e -- pg_get_expr would lock the table
            WHERE d.adrelid = c.oid AND d.adnum = a.attnum AND (e ~ ('^\{FUNCEXPR :funcid ' || to_regprocedure('pg_catalog.uuidv7()')::oid || ' ')
              OR e ~ '` + nextval + `' AND EXISTS (SELECT FROM pg_catalog.pg_depend p JOIN pg_catalog.pg_sequence q ON q.seqrelid = p.refobjid
                WHERE p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid AND p.refclassid = 'pg_class'::regclass AND q.seqincrement > 0 AND NOT q.seqcycle))) AS rises,
        ` + columnShape + ` AS shape
    FROM unnest($1::name[], $2::name[]) WITH ORDINALITY AS w(schema, name, n)
    JOIN pg_catalog.pg_namespace s ON s.nspname = w.schema
    JOIN pg_catalog.pg_class c ON c.relnamespace = s.oid AND c.relname = w.name
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
    WHERE a.attnum > 0 AND NOT a.attisdropped
), base AS (
    SELECT n, attnum, type, typmod, attnotnull AS refuses_null FROM attribute
  UNION ALL
    SELECT b.n, b.attnum, d.typbasetype, d.typtypmod, b.refuses_null OR d.typnotnull
    FROM base b JOIN pg_catalog.pg_type d ON d.oid = b.type WHERE d.typtype = 'd'
), above AS (
    SELECT a.relation, i.inhparent AS parent FROM attribute a JOIN pg_catalog.pg_inherits i ON i.inhrelid = a.relation
  UNION
    SELECT v.relation, i.inhparent FROM above v JOIN pg_catalog.pg_inherits i ON i.inhrelid = v.parent
), kind AS MATERIALIZED ( -- once for each type, not for each column
    SELECT t.oid, t.typtype,
        (SELECT quote_ident(s.nspname)
            FROM pg_catalog.pg_opclass k
            JOIN pg_catalog.pg_am m ON m.oid = k.opcmethod AND m.amname IN ('btree', 'hash')
            JOIN pg_catalog.pg_amop p ON p.amopfamily = k.opcfamily AND p.amoplefttype = t.oid AND p.amoprighttype = t.oid
            JOIN pg_catalog.pg_operator o ON o.oid = p.amopopr AND o.oprname = '='
            JOIN pg_catalog.pg_namespace s ON s.oid = o.oprnamespace AND s.nspname <> 'pg_catalog'
            WHERE k.opcintype = t.oid AND k.opcdefault LIMIT 1) AS operators,
        t.typtype = 'b' AND t.typcategory <> 'A' AND EXISTS (
            SELECT FROM pg_catalog.pg_opclass o JOIN pg_catalog.pg_am m ON m.oid = o.opcmethod
            WHERE m.amname = 'btree' AND o.opcdefault AND (o.opcintype = t.oid OR EXISTS (
                SELECT FROM pg_catalog.pg_cast x
                WHERE x.castsource = t.oid AND x.casttarget = o.opcintype AND x.castmethod = 'b' AND x.castcontext = 'i'))) AS ordered
    FROM pg_catalog.pg_type t WHERE t.typtype <> 'd' AND t.oid IN (SELECT type FROM base)
)
SELECT a.n, a.relation, a.relkind, a.relpersistence,
    has_table_privilege(a.relation, 'SELECT'), has_any_column_privilege(a.relation, 'UPDATE'),
    a.attname, a.attnum, t.oid, format_type(t.oid, -1), t.typtype = 'e', b.typmod, b.refuses_null,
    a.attgenerated, coalesce(l.collisdeterministic, true),
    has_column_privilege(a.relation, a.attnum, 'SELECT'), has_column_privilege(a.relation, a.attnum, 'UPDATE'),
    t.operators,
    getdatabaseencoding(),
    t.typtype IN ('e', 'r', 'm') AND t.oid = a.type OR t.ordered,
    row_security_active(a.relation), current_user, a.filled, a.rises, a.shape,
    (SELECT string_agg(v.parent::text, ' ') FROM above v WHERE v.relation = a.relation)
FROM attribute a
JOIN base b USING (n, attnum)
JOIN kind t ON t.oid = b.type
LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
ORDER BY a.n, a.attnum`

// Load reads a table's catalogue entries. The error is a *MappingError if the table, or a column that stores
// its state, does not exist.
func Load(ctx context.Context, conn *pgx.Conn, t *outbox.Table) (*Relation, error) {
	all, err := loadAll(ctx, conn, []*outbox.Table{t})
	if err != nil {
		return nil, err
	}
	return all[0].Relation, all[0].Err
}

// Described is the result of Describe for one table.
type Described struct {
	Relation *Relation
	Err      error
}

// loadAll is Load for many tables in one statement. The result is parallel to tables.
func loadAll(ctx context.Context, conn *pgx.Conn, tables []*outbox.Table) ([]Described, error) {
	all, err := Describe(ctx, conn, tables)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Err == nil {
			all[i].Err = all[i].Relation.Complete()
		}
		if all[i].Err == nil {
			all[i].Err = all[i].Relation.types()
		}
	}
	return all, nil
}

// Describe is Load for tables whose mappings may not fit: the columns that a mapping names need not exist. No
// statement must be built from a Relation before Complete. The tables, their archives and their header tables
// are read in one statement.
func Describe(ctx context.Context, conn *pgx.Conn, tables []*outbox.Table) ([]Described, error) {
	all := slices.Clone(tables)
	for _, t := range tables {
		if a := t.Mapping.Archive; a.Name != "" {
			all = append(all, &outbox.Table{Schema: a.Schema, Name: a.Name})
		}
	}
	archives := len(all)
	for _, t := range tables {
		if h := t.Mapping.HeadersTable; h.Name != "" {
			all = append(all, &outbox.Table{Schema: h.Schema, Name: h.Name})
		}
	}
	found, err := describeEach(ctx, conn, all)
	if err != nil {
		return nil, err
	}
	archived, sides := found[len(tables):archives], found[archives:]
	for i, t := range tables {
		if t.Mapping.HeadersTable.Name != "" {
			if sides[0].Err == nil {
				found[i].Relation.side = sides[0].Relation
			}
			sides = sides[1:]
		}
		if t.Mapping.Archive.Name == "" {
			continue
		}
		if found[i].Relation.Archive = archived[0].Relation; found[i].Err == nil {
			found[i].Err = archived[0].Err
		}
		archived = archived[1:]
	}
	for i, t := range tables {
		if found[i].Err == nil && t.Mapping.Zone != nil {
			if found[i].Err, err = found[i].Relation.zoneKnown(ctx, conn); err != nil {
				return nil, err
			}
		}
	}
	return found[:len(tables)], nil
}

func describeEach(ctx context.Context, conn *pgx.Conn, tables []*outbox.Table) ([]Described, error) {
	var schemas, names Array
	all := make([]Described, len(tables))
	for i, t := range tables {
		schemas.Add(t.Schema)
		names.Add(t.Name)
		r := &Relation{Table: t}
		// This error stands until a row of loadSQL for the table is read.
		all[i] = Described{r, r.unfit("does not exist in this database", "create it, or correct its name in the configuration")}
	}
	var args Params
	args.BindArray(&schemas, "name")
	args.BindArray(&names, "name")
	err := Run(ctx, conn, Step{SQL: loadSQL, Args: args, Each: func(row [][]byte) error {
		i, err := Ordinal(row[0], len(tables))
		if err != nil {
			return err
		}
		r, hiddenFrom := all[i].Relation, string(row[21])
		switch kind := string(row[2]); {
		case kind != "r" && kind != "p":
			all[i].Err = r.unfit("is no table (a view, perhaps)", "name the table behind it in the configuration")
		case string(row[20]) == "t":
			all[i].Err = r.unfit("has row security, which hides rows from role "+hiddenFrom, "ALTER ROLE "+sql.Identifier(hiddenFrom)+" BYPASSRLS")
		default:
			all[i].Err = nil
		}
		return r.add(row[1:])
	}})
	if err != nil {
		others := ""
		if len(tables) > 1 {
			others = fmt.Sprintf(" and %d others", len(tables)-1)
		}
		return nil, fmt.Errorf("reading the columns of table %s%s: %w", tables[0], others, err)
	}
	return all, nil
}

// add reads one row of loadSQL, without n.
func (r *Relation) add(row [][]byte) error {
	yes := func(i int) bool { return string(row[i]) == "t" }
	oid, err1 := strconv.ParseUint(string(row[0]), 10, 32)
	number, err2 := strconv.ParseInt(string(row[6]), 10, 16)
	typeOID, err3 := strconv.ParseUint(string(row[7]), 10, 32)
	typmod, err4 := strconv.Atoi(string(row[10]))
	err := errors.Join(err1, err2, err3, err4)
	if err != nil {
		return fmt.Errorf("reading a number of the catalogue: %w", err)
	}
	if r.Charset, err = charset.Of(string(row[17])); err != nil {
		return err
	}
	r.OID = uint32(oid)
	r.Partitioned, r.Temporary, r.Unlogged = string(row[1]) == "p", string(row[2]) == "t", string(row[2]) == "u"
	r.SystemColumns, r.Lockable = yes(3), yes(4)
	if r.shape != "" {
		r.shape += ","
	}
	r.shape += string(row[23])
	r.above = strings.Fields(string(row[24]))
	c := Column{
		Name: string(row[5]), Number: int16(number), OID: uint32(typeOID), Type: string(row[8]), Enum: yes(9),
		NotNull: yes(11), Generated: len(row[12]) > 0, Stored: string(row[12]) == "s", Readable: yes(14), Writable: yes(15), Operators: string(row[16]),
		Identifies: yes(18), typmod: typmod, filled: yes(21), rises: yes(22),
	}
	c.rises = c.rises && c.is(oidInt2, oidInt4, oidInt8, oidUUID)
	c.Exact = yes(13) && c.is(oidText, oidVarchar, oidBpchar, oidUUID, oidInt2, oidInt4, oidInt8, oidBytea)
	// The modifier of these types is the length plus four (VARHDRSZ).
	if c.is(oidVarchar, oidBpchar) && typmod > 4 {
		c.MaxChars = typmod - 4
	}
	r.Columns = append(r.Columns, c)
	return nil
}

// Complete returns a *MappingError unless every column exists that the statements of this package name.
func (r *Relation) Complete() error {
	m := &r.Table.Mapping
	for _, name := range m.Columns(outbox.UseAny &^ (outbox.UseRecord | outbox.UseCluster)) {
		if r.Column(name) == nil {
			there := joined(r.Columns, ", ", func(c Column) string { return c.Name })
			return &MappingError{r.Table, name, fmt.Sprintf("has no column %q", name), "map an existing column, or add it; there are " + there}
		}
	}
	if len(m.ID) == 0 {
		return r.unfit("has no id columns", "name the columns of its primary key in the mapping")
	}
	for _, word := range words(m) {
		if r.Charset.Writable(word) != word {
			return r.unfit(fmt.Sprintf("has the word %q in its mapping, which its database's encoding %s cannot hold", word, r.Charset.Name()),
				"no row can have it: correct the word, or take it out of the mapping")
		}
	}
	if err := r.archived(); err != nil {
		return err
	}
	r.look = r.lookSQL(r.state())
	return nil
}

// words returns the mapping's texts that become part of statements. If the database's encoding lacks a
// character of one, every statement with that text fails.
func words(m *outbox.Mapping) []string {
	s := &m.Status
	all := slices.Concat(s.Pending, []string{s.Sent, s.Failed, s.Processing, m.Cluster.Default}, m.Cluster.Known, m.Topic.Literals)
	for i := range m.Rows {
		all = append(all, m.Rows[i].Values...)
	}
	for i := range m.Topic.Columns {
		all = append(all, wordsOf(&m.Topic.Columns[i])...)
	}
	if m.Key != nil {
		all = append(all, wordsOf(m.Key)...)
	}
	return all
}

func wordsOf(e *outbox.Expr) []string {
	all := slices.Clone(e.Pointer)
	for i := range e.Or {
		all = append(all, wordsOf(&e.Or[i])...)
	}
	if e.Parts != nil {
		all = append(all, e.Parts.Literals...)
	}
	if e.Map == nil {
		return all
	}
	for from, to := range e.Map.Exact {
		all = append(all, from, to)
	}
	for _, b := range e.Map.Beginnings {
		all = append(all, b.With, b.Text)
	}
	return append(all, e.Map.Otherwise)
}

// types checks that rows can be found again by their ids, and that counters are integers. A numeric counter
// may be NaN, which equals no count that was read, so a mark that expects a count would be repeated for ever.
func (r *Relation) types() error {
	for _, c := range r.ids() {
		if c.Identifies || !r.Table.Stateful() {
			continue
		}
		domain := ""
		if c.Enum { // the enum's type does the comparing
			domain = ", behind a domain"
		}
		return r.unfit(fmt.Sprintf("has the id column %q, whose type (%s%s) has no equality to find rows by", c.Name, c.Type, domain),
			"map a column of a type that compares, such as uuid, bigint or text")
	}
	s := &r.Table.Mapping.Status
	for _, name := range []string{s.Attempts, s.Version, s.MaxAttemptsColumn} {
		if c := r.Column(name); c != nil && !c.is(oidInt2, oidInt4, oidInt8) {
			return r.unfit(fmt.Sprintf("has the counter %q, of type %s", name, c.Type), "map a column of type smallint, integer or bigint")
		}
	}
	return nil
}

// is reports whether the column's type is one of these.
func (c *Column) is(oids ...uint32) bool { return slices.Contains(oids, c.OID) }

// Column returns the column with the name; nil: there is none.
func (r *Relation) Column(name string) *Column {
	for i := range r.Columns {
		if r.Columns[i].Name == name {
			return &r.Columns[i]
		}
	}
	return nil
}

// Open returns a statement that opens the table for reading, and reads no row.
func (r *Relation) Open() Step { return Step{SQL: "SELECT FROM " + r.Name() + " LIMIT 0"} }

// Name returns the table's qualified name, quoted.
func (r *Relation) Name() string { return sql.Identifier(r.Table.Schema, r.Table.Name) }

// Ref returns a column of the table t in a statement.
func Ref(column string) string { return "t." + sql.Identifier(column) }

// equals returns the operator that compares two values of the column's type for equality.
func (c *Column) equals() string {
	if c.Operators == "" {
		return " = "
	}
	return " OPERATOR(" + c.Operators + ".=) "
}

// MappingError says why a table does not fit its mapping. It is a refusal.
type MappingError struct {
	Table   *outbox.Table
	Column  string // the column that the table lacks; empty: the fault is another one
	Problem string
	Hint    string
}

func (e *MappingError) Error() string {
	return "table " + e.Table.String() + " " + e.Problem + ": " + e.Hint
}

// unfit returns a MappingError for the table.
func (r *Relation) unfit(problem, hint string) error {
	return &MappingError{Table: r.Table, Problem: problem, Hint: hint}
}
