package bytes

import "fmt"

// column is a column type with values to try, as SQL.
type column struct {
	name    string // of its table
	sqlType string
	values  []string
	// ddl makes the type.
	ddl string
	// text: its form is the same in both of the WAL's formats, or is understood
	// in both, so that the binary log is kept.
	binary bool
	// everywhere says that the type's text depends on the encoding.
	everywhere bool
	// event says that the type can be part of an event id.
	event bool
	// notKey says that the type cannot be a key, because equal values print differently.
	notKey bool
}

// hostile are texts that quoting, arrays, JSON or a terminal may trip over.
var hostile = []string{
	"''", "' blank '", "'NULL'", "'null'", `'{a,b}'`, `'"q"'`, `E'back\\slash'`, `E'it''s'`, `E'tab\t\n\r'`, "'$1 %s'", `'\x41'`, `E'\\x41'`, "repeat('x', 3000)", `E'\u0001\u007f'`,
}

// registered are values as Confluent's serializers (Python, 2.16.1) write them for a schema registry: Avro, JSON Schema and
// Protobuf behind a zero byte and the schema's id.
var registered = []string{
	`'\x0000000001541a4772c3bcc39f6520e298832001'`,
	`'\x00000000027b226964223a34322c226e616d65223a224772c3bcc39f6520e29883205c7530303031227d'`,
	`'\x000000000300082a120d4772c3bcc39f6520e298832001'`,
}

// columns returns the types; words are texts in the database's own characters, as SQL.
func columns(words []string) []column {
	first := words[0]
	texts := append(append([]string{}, hostile...), words...)
	all := []column{
		{name: "text", sqlType: "text", values: append([]string{"repeat('x', 200000)"}, texts...), binary: true, everywhere: true, event: true},
		{name: "varchar", sqlType: "varchar(4000)", values: texts, binary: true, everywhere: true, event: true},
		{name: "bpchar", sqlType: "character(20)", values: []string{"''", "' a'", "'a'", "left(" + first + ", 5)"}, binary: true, everywhere: true, event: true},
		{name: "name", sqlType: "name", values: []string{"''", "'a b'", "left(" + first + ", 5)::name"}, binary: true, everywhere: true, event: true},
		{name: "citext", sqlType: "public.citext", ddl: "CREATE EXTENSION citext SCHEMA public", values: append([]string{"'Aa'"}, words...), everywhere: true, event: true},
		{name: "domain", sqlType: "public.note", ddl: "CREATE DOMAIN public.note AS text", values: texts, binary: true, everywhere: true, event: true},
		{name: "enum", sqlType: `public."Mood Enum"`, ddl: `DO $$ BEGIN EXECUTE format('CREATE TYPE public."Mood Enum" AS ENUM (%L, %L, %L)', 'ok', 'not "ok"', left(` + first + `, 5)); END $$`, values: []string{"'ok'", `'not "ok"'`, "left(" + first + `, 5)::text::public."Mood Enum"`}, binary: true, everywhere: true, event: true},
		{name: "d_enum", sqlType: "public.d_enum", ddl: `CREATE DOMAIN public.d_enum AS public."Mood Enum"`, values: []string{"'ok'", "left(" + first + `, 5)::text::public."Mood Enum"`}, binary: true, everywhere: true, event: true},
		{name: "texts", sqlType: "text[]", values: []string{"'{}'", `ARRAY['a', NULL, 'NULL', '"', ` + first + `]`, "ARRAY[['a'],['b']]"}, everywhere: true, event: true},
		{name: "composite", sqlType: "public.pair", ddl: "CREATE TYPE public.pair AS (a text, b int)", values: []string{"ROW(" + first + ", 1)", "ROW('a', NULL)", "ROW(NULL, NULL)"}, everywhere: true, event: true},
		{name: "jsonb", sqlType: "jsonb", values: []string{`'{"b": 1.10, "a": [true, null]}'`, "jsonb_build_object('k', " + first + ")", `'"\u0041"'`, "'[]'", "'null'"}, binary: true, everywhere: true, notKey: true},
		{name: "json", sqlType: "json", values: []string{`'{"b": 1.10,   "b": 2}'`, "json_build_object('k', " + first + ")", `'"\u00fc\ud834\udd1e"'`}, binary: true, everywhere: true, notKey: true},
		{name: "bytea", sqlType: "bytea", values: append([]string{`'\x'`, `'\x00ff5c27'`, `convert_to('\x41', 'UTF8')`, `'\xfffe81'`}, registered...), binary: true, everywhere: true, event: true},

		{name: "bool", sqlType: "boolean", values: []string{"true", "false"}, binary: true, event: true},
		{name: "int2", sqlType: "smallint", values: []string{"-32768", "0", "32767"}, binary: true, event: true},
		{name: "int4", sqlType: "integer", values: []string{"-2147483648", "2147483647"}, binary: true, event: true},
		{name: "int8", sqlType: "bigint", values: []string{"-9223372036854775808", "9223372036854775807"}, binary: true, event: true},
		{name: "uuid", sqlType: "uuid", values: []string{"'00000000-0000-0000-0000-000000000000'", "'FFFFFFFF-ffff-ffff-ffff-ffffffffffff'"}, binary: true, event: true},
		{name: "timestamp", sqlType: "timestamp", values: []string{"'2026-03-04 05:06:07.000001'", "'infinity'", "'-infinity'", "'4713-01-01 00:00:00 BC'", "'294276-12-31 23:59:59.999999'", "'1969-12-31 23:59:59.9'"}, binary: true, event: true},
		{name: "timestamptz", sqlType: "timestamptz", values: []string{"'2026-03-04 05:06:07.1+05:45'", "'infinity'", "'0044-03-15 12:00:00+00 BC'", "'1883-11-18 12:00:00+00'"}, binary: true, event: true},
		{name: "numeric", sqlType: "numeric", values: []string{"1.500", "'NaN'", "'Infinity'", "-0.00000000000000000001", "repeat('9', 500)::numeric"}, event: true},
		{name: "real", sqlType: "real", values: []string{"0.1", "'-0'", "'NaN'", "1e-37", "3.4028235e38"}, event: true},
		{name: "double", sqlType: "double precision", values: []string{"0.1::float8 + 0.2::float8", "'-Infinity'", "5e-324", "1e15", "1e16"}, event: true},
		{name: "money", sqlType: "money", values: []string{"1234567.89::numeric::money", "(-0.5)::numeric::money"}, event: true},
		{name: "date", sqlType: "date", values: []string{"'2026-03-04'", "'infinity'", "'0044-03-15 BC'", "'5874897-12-31'"}, event: true},
		{name: "time", sqlType: "time", values: []string{"'24:00:00'", "'01:02:03.000004'"}, event: true},
		{name: "timetz", sqlType: "timetz", values: []string{"'01:02:03+05:45'", "'23:59:60-12'"}, event: true},
		{name: "interval", sqlType: "interval", values: []string{"'1 year 2 mons -3 days 04:05:06.7'", "'-00:00:00.000001'", "'0'"}, event: true},
		{name: "bit", sqlType: "bit varying", values: []string{"B''", "B'0101'"}, event: true},
		{name: "inet", sqlType: "inet", values: []string{"'10.0.0.1'", "'10.0.0.1/8'", "'::1/128'"}, event: true},
		{name: "cidr", sqlType: "cidr", values: []string{"'10.0.0.0/8'", "'::/0'"}, event: true},
		{name: "macaddr", sqlType: "macaddr8", values: []string{"'08:00:2b:01:02:03:04:05'"}, event: true},
		{name: "char1", sqlType: `"char"`, values: []string{"'a'", "''", `'\377'`, `'\'`}, event: true},
		{name: "ranges", sqlType: "int4range", values: []string{"'empty'", "'[1,5]'", "'(,)'"}, event: true},
		{name: "tsranges", sqlType: "tstzrange", values: []string{"'[2026-01-01 00:00+05, infinity)'"}, event: true},
		{name: "multirange", sqlType: "nummultirange", values: []string{"'{[1.10,2.0),(5,)}'"}, event: true},
		{name: "point", sqlType: "point", values: []string{"'(0.1,-0)'"}, event: true},
		{name: "box", sqlType: "box", values: []string{"'(0.1,1e300),(2,3)'"}, event: true},
		{name: "circle", sqlType: "circle", values: []string{"'<(1,2),0.3>'"}, event: true},
		{name: "tsvector", sqlType: "tsvector", values: []string{"'a:1A fat ''it''''s'':3'"}, event: true},
		{name: "tsquery", sqlType: "tsquery", values: []string{"'!a & (b | ''c d'':*)'"}, event: true},
		{name: "jsonpath", sqlType: "jsonpath", values: []string{`'$.a[*] ? (@ > 1.10)'`}, event: true},
		{name: "snapshot", sqlType: "pg_snapshot", values: []string{"'10:20:10,14'"}, event: true},
		{name: "lsn", sqlType: "pg_lsn", values: []string{"'16/B374D848'"}, event: true},
		{name: "xid8", sqlType: "xid8", values: []string{"'18446744073709551615'"}, event: true},
		{name: "tid", sqlType: "tid", values: []string{"'(0,1)'"}, event: true},
		{name: "regclass", sqlType: "regclass", ddl: "CREATE TABLE public.zz_reg ()", values: []string{"'public.zz_reg'", "'pg_catalog.pg_class'", "0"}, event: true},
		{name: "regtype", sqlType: "regtype", ddl: "CREATE DOMAIN public.zz_type AS int", values: []string{"'public.zz_type'", "'integer'"}, event: true},
		{name: "regproc", sqlType: "regprocedure", ddl: "CREATE FUNCTION public.zz_f(regclass) RETURNS int LANGUAGE sql AS 'SELECT 1'", values: []string{"'public.zz_f(regclass)'", "'lower(text)'"}, event: true},
		{name: "regclasses", sqlType: "regclass[]", values: []string{"ARRAY['public.zz_reg', 'pg_class']::regclass[]"}, event: true},
		{name: "ints", sqlType: "int[]", values: []string{"'{}'", "'{1,NULL}'", "'[0:1]={1,2}'"}, event: true},
		{name: "times", sqlType: "timestamptz[]", values: []string{"ARRAY['2026-03-04 05:06:07+05:45', 'infinity']::timestamptz[]"}, event: true},
		{name: "byteas", sqlType: "bytea[]", values: []string{`ARRAY['\x00ff', '\x5c']::bytea[]`}, event: true},
		{name: "intervals", sqlType: "interval[]", values: []string{"ARRAY['1 mon -1 day']::interval[]"}, event: true},
		{name: "refcursor", sqlType: "refcursor", values: []string{"'c'"}, event: true},
	}
	return all
}

// encoding is a database's, with texts in its characters and rows that cannot be
// turned into UTF-8, as SQL.
type encoding struct {
	name   string
	words  []string
	broken []string
	// settings of the database that the other databases cannot have.
	settings []string
}

func stored(bytes, encoding string) string {
	return fmt.Sprintf(`convert_from('\x%s', '%s')`, bytes, encoding)
}

var encodings = []encoding{
	{name: "UTF8", words: []string{"'für €𝄞'", `E'\u202eevil\u0300'`, `E'\ufeff\ufffd\uffff'`}, settings: []string{"client_encoding = 'LATIN1'"}},
	{name: "LATIN1", words: []string{stored("66fc7220a3ff", "LATIN1"), stored("80a0ad", "LATIN1")}, settings: []string{"client_encoding = 'LATIN1'"}},
	{name: "WIN1252", words: []string{stored("66fc722080", "WIN1252"), stored("8b93ff", "WIN1252")}, broken: []string{stored("6181", "WIN1252"), stored("8d8f909d", "WIN1252")}},
	{name: "EUC_JP", words: []string{stored("c6fccbdcb8ec", "EUC_JP"), stored("8eb18fb0a1", "EUC_JP"), stored("a1c1a1dd", "EUC_JP")}, broken: []string{stored("a9a1", "EUC_JP")}, settings: []string{"client_encoding = 'SJIS'"}},
	{name: "SQL_ASCII", words: []string{stored("66c3bc72", "SQL_ASCII"), stored("f09d849e", "SQL_ASCII")}, broken: []string{stored("66fc72", "SQL_ASCII"), stored("eda080", "SQL_ASCII")}},
}
