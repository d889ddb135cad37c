package postgres

import (
	"slices"
	"strings"
)

// setting is one of the server's parameters with the value that our statements
// were written for.
type setting struct{ name, value string }

// local are set for every transaction: what decides which functions a statement
// calls, what it reads and how its values are printed. A function that a user's
// trigger calls could change them even in a session of ours.
//
// pg_temp is named so that it comes last: a table or type of that schema would
// come before the server's own otherwise.
var local = []setting{
	{"quote_all_identifiers", "off"}, // which would quote the path
	{"search_path", "pg_catalog, pg_temp"},
	{"client_encoding", "UTF8"},
	{"standard_conforming_strings", "on"},
	{"transform_null_equals", "off"},
	{"array_nulls", "on"},
	// Rows that a policy hides are an error, not absent.
	{"row_security", "off"},
	// Values are printed as the replication connection prints them, and in the
	// same way everything that connects.
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

// session are set for a session in addition to those. They are the server's defaults,
// except jit, which takes longer than our statements do, and
// idle_in_transaction_session_timeout: a process that was stopped in the middle
// of a transaction must not hold its locks for ever.
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

// transactionTimeout came with version 17.
var transactionTimeout = setting{"transaction_timeout", "0"}

// pinned says whether a parameter of a connection string has a fixed value.
func pinned(name string) bool {
	is := func(s setting) bool { return strings.EqualFold(s.name, name) }
	return slices.ContainsFunc(local, is) || slices.ContainsFunc(session, is) || is(transactionTimeout)
}

// localText sets the local settings at the beginning of several statements.
// SET, since it looks nothing up in a path.
var localText = texts("SET LOCAL ", local)

// ownRole undoes ALTER DATABASE … SET role. The owner of the database can set
// their own role there, and a superuser takes it on without being a member. Then
// what they own would pass for ours, and their code could go back to the role
// that logged in.
const ownRole = "SET ROLE NONE;\n"

func sessionText(version string) string {
	text := texts("SET ", local) + texts("SET ", session)
	if Major(version) >= 17 { // before the rest, which it bounds as long as the role's is in force
		text = texts("SET ", []setting{transactionTimeout}) + text
	}
	return text
}

func texts(set string, settings []setting) string {
	var text strings.Builder
	for _, s := range settings {
		value := "'" + s.value + "'"
		if s.name == "search_path" {
			value = s.value // a list, not one name
		}
		text.WriteString(set + s.name + " = " + value + ";\n")
	}
	return text.String()
}

// Calls are expressions that set the settings of a transaction, and further
// ones, pairs of name and value: for the extended protocol, where SET LOCAL
// complains that it sees no transaction.
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

// call is qualified: it is parsed before the path is set.
func call(name, value string) string {
	return "pg_catalog.set_config('" + name + "', '" + value + "', true)"
}
