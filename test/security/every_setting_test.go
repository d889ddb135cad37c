package security

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// untried are the settings of a session that TestEverySettingOfASession leaves alone, each with
// the reason. What is not here and not in settings is tried, so a new version's settings are, too.
var untried = map[string]string{
	"role":                  "TestADatabasesRoleIsNotTakenOn",
	"session_authorization": "TestADatabasesRoleIsNotTakenOn",
	"search_path":           "each of the tests' databases has a hostile one",
	"application_name":      "every connection has one of its own",
	"seed":                  "belongs to a session, is no default",
	"transaction_isolation": "belongs to a transaction; its default is tried", "transaction_read_only": "the same", "transaction_deferrable": "the same",

	// No session can be opened at all, or nothing can be written by anybody: no row is read or marked
	// wrongly, and a role that may set them may also end our sessions.
	"local_preload_libraries": "a missing library refuses the login", "session_preload_libraries": "the same",
	"dynamic_library_path": "pgoutput is not found: only a superuser can set it", "extension_control_path": "the same kind",
	"temp_file_limit": "a statement that needs a temporary file fails: only a superuser can set it",
	"exit_on_error":   "a session ends with its first error, and a new one is made",
	"max_stack_depth": "a statement that is nested deeply fails: only a superuser can set it",

	// How damaged or unlogged data is read: only a superuser can set them.
	"zero_damaged_pages": "damaged pages", "ignore_checksum_failure": "damaged pages", "ignore_system_indexes": "damaged catalogue",

	"debug_discard_caches": "a thousand times slower, for the server's developers; only a superuser can set it",
	"jit_provider":         "a library's name", "default_tablespace": "where a table is made", "temp_tablespaces": "where a temporary table is made",
	"default_table_access_method": "how a table is stored; there is one", "backtrace_functions": "names of functions of the server",
	"wal_consistency_checking": "names of resource managers; only a superuser can set it",
	"lc_messages":              "what errors say: they are told apart by SQLSTATE",
	"output_plugin_libraries":  "pgoutput is refused", "extension_destdir": "where extensions are looked for",
}

// told are beginnings of settings that decide what the server writes to its own log, and no more.
var told = []string{"log_", "debug_print_", "debug_pretty_print", "trace_"}

// tried reports whether TestEverySettingOfASession tries the setting.
func tried(name string) bool {
	begins := func(with string) bool { return strings.HasPrefix(name, with) }
	in := func(s [2]string) bool { return strings.HasPrefix(strings.ToLower(s[0]), strings.ToLower(name)+" ") }
	return untried[name] == "" && !slices.ContainsFunc(told, begins) && !slices.ContainsFunc(settings, in)
}

// given are values for settings whose type and range do not tell one.
var given = map[string]string{
	"vacuum_buffer_usage_limit": "128", "transaction_timeout": "1s", // in less no session can be set up
	"lc_monetary": "POSIX", "lc_numeric": "POSIX", "lc_time": "POSIX", "timezone_abbreviations": "India", "createrole_self_grant": "set, inherit",
	"restrict_nonsystem_relation_kind": "view, foreign-table", "debug_io_direct": "data",
	"timing_clock_source": "system", // it may show words that it does not take
}

// serverSetting is a row of pg_settings.
type serverSetting struct {
	Name, Type, Context, Value, Least, Most string
	Words                                   []string
}

// hostile returns values at the ends of what a setting takes, other than the one that it has.
func (s *serverSetting) hostile() (least, most string) {
	other := func(values []string) string {
		if i := slices.IndexFunc(values, func(v string) bool { return v != s.Value }); i >= 0 {
			return values[i]
		}
		return s.Value
	}
	if value := given[s.Name]; value != "" {
		return value, value
	}
	switch s.Type {
	case "bool":
		return other([]string{"on", "off"}), other([]string{"on", "off"})
	case "enum":
		backwards := slices.Clone(s.Words)
		slices.Reverse(backwards)
		return other(s.Words), other(backwards)
	case "string":
		return "", ""
	}
	least = s.Least
	if least == "0" || least == "-1" { // which turn off, or leave to the server
		least = "1"
	}
	return least, s.Most
}

// sessionSettings returns the settings that a role or a database can give to its sessions.
func sessionSettings(t *testing.T, db *harness.DB) []serverSetting {
	t.Helper()
	rows, err := db.Conn(t).Query(t.Context(), `SELECT name, vartype, context, setting, coalesce(min_val, ''), coalesce(max_val, ''), coalesce(enumvals, '{}')
		FROM pg_settings WHERE context IN ('user', 'superuser') ORDER BY name`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[serverSetting])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Every setting that a session can be given, other than those of settings, at one end of what it takes
// and in the long form at the other: every command does what it is for, and records have the bytes of
// their rows. The versions of PostgreSQL differ in what there is.
func TestEverySettingOfASession(t *testing.T) {
	ends := []bool{false}
	if long {
		ends = append(ends, true)
	}
	for _, most := range ends {
		t.Run(map[bool]string{false: "least", true: "most"}[most], func(t *testing.T) {
			w := strangers(t)
			w.db.Exec(t, `CREATE ROLE boss LOGIN SUPERUSER PASSWORD 'p'`)
			tries := 0
			for _, s := range sessionSettings(t, w.db) {
				if !tried(s.Name) {
					continue
				}
				value, largest := s.hostile()
				if most {
					value = largest
				}
				if value == "" {
					t.Errorf("setting %s has no value to try: give it one, or a reason why not", s.Name)
					continue
				}
				own, _, _ := strings.Cut(s.Value, " (") // timing_clock_source shows "auto (tsc)", and takes "auto"
				w.db.Exec(t, fmt.Sprintf(`ALTER ROLE postgres IN DATABASE app SET %[1]s = '%[2]s';
					ALTER DATABASE app SET %[1]s = '%[3]s'; ALTER ROLE cdc SET %[1]s = '%[3]s'; ALTER ROLE repl SET %[1]s = '%[3]s'; ALTER ROLE boss SET %[1]s = '%[3]s'`, s.Name, own, value))
				tries++
			}
			t.Logf("%d settings", tries)
			w.everything()
		})
	}
}
