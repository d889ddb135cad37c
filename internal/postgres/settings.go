package postgres

import (
	"slices"
	"strings"
)

// setting is a server parameter with the value that our statements were written for.
type setting struct{ name, value string }

// local are set for every transaction. They decide which functions a statement calls, what it reads and how
// its values are printed. A function that a user's trigger calls can change them even in a session of ours.
//
// pg_temp is listed explicitly, so that it is searched last. Otherwise a table or type in that schema would
// be found before the server's own.
var local = []setting{
	{"quote_all_identifiers", "off"}, // otherwise it would quote the path
	{"search_path", "pg_catalog, pg_temp"},
	{"client_encoding", "UTF8"},
	{"standard_conforming_strings", "on"},
	{"transform_null_equals", "off"},
	{"array_nulls", "on"},
	// Rows hidden by a policy are an error, and not silently absent.
	{"row_security", "off"},
	// Values are printed in the same way on every connection, the replication connection included.
	{"DateStyle", "ISO, MDY"},
	{"IntervalStyle", "postgres"},
	{"TimeZone", "UTC"},
	{"bytea_output", "hex"},
	{"extra_float_digits", "1"},
	{"lc_monetary", "C"},
	{"xmloption", "content"},
	// Further settings of a transaction come after these.
	{"statement_timeout", "0"},
	{"lock_timeout", "0"},
}

// session are set for a session in addition to local. They are the server's defaults, with two exceptions.
// jit is off: it takes longer than our statements. idle_in_transaction_session_timeout is set: a process that
// is stopped within a transaction must not hold its locks for ever.
var session = []setting{
	{"idle_session_timeout", "0"},
	{"idle_in_transaction_session_timeout", "5min"},
	{"default_transaction_isolation", "read committed"},
	{"default_transaction_read_only", "off"},
	{"default_transaction_deferrable", "off"},
	{"client_min_messages", "notice"},
	{"plan_cache_mode", "auto"},
	{"jit", "off"},
}

// transactionTimeout exists since version 17.
var transactionTimeout = setting{"transaction_timeout", "0"}

// pinned reports whether a parameter of a connection string has a fixed value.
func pinned(name string) bool {
	is := func(s setting) bool { return strings.EqualFold(s.name, name) }
	return slices.ContainsFunc(local, is) || slices.ContainsFunc(session, is) || is(transactionTimeout)
}

// localText applies the local settings before other statements. It uses SET, which looks nothing up in a
// search path.
var localText = texts("SET LOCAL ", local)

// ownRole undoes ALTER DATABASE … SET role. The owner of a database can set their own role there, and a
// superuser takes it on without being a member. Objects of that owner would then pass for ours, and their
// code could go back to the role that logged in.
const ownRole = "SET ROLE NONE;\n"

func sessionText(version string) string {
	text := texts("SET ", local) + texts("SET ", session)
	if Major(version) >= 17 { // comes first: the role's setting would otherwise bound the others
		text = texts("SET ", []setting{transactionTimeout}) + text
	}
	return text
}

func texts(set string, settings []setting) string {
	var text strings.Builder
	for _, s := range settings {
		value := "'" + s.value + "'"
		if s.name == "search_path" {
			value = s.value // a list, not a single name
		}
		text.WriteString(set + s.name + " = " + value + ";\n")
	}
	return text.String()
}

// Calls returns expressions that apply the settings of a transaction, and further ones, given as pairs of
// name and value. They are for the extended protocol, in which SET LOCAL warns that there is no transaction.
func Calls(further ...[2]string) []string {
	calls := make([]string, 0, len(local)+len(further))
	for _, s := range local {
		calls = append(calls, call(s.name, s.value))
	}
	for _, s := range further {
		calls = append(calls, call(s[0], s[1]))
	}
	return calls
}

// call returns one such expression. The function's name is qualified: it is parsed before the path is set.
func call(name, value string) string {
	return "pg_catalog.set_config('" + name + "', '" + value + "', true)"
}
