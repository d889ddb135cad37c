package harness

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// hostile is a schema that comes first in the search_path of all sessions of a test's database, except the
// test's own sessions. Its functions and operators have the names of the server's functions, and fit our calls
// as well or better. They do what the server's functions do, so that applications work, and they count the
// program's calls.
//
// The owner of a database can make such a schema. On version 14 every role can.
const hostile = `
CREATE SCHEMA evil;
CREATE SEQUENCE evil.calls;
CREATE TABLE evil.called (what text);
GRANT USAGE ON SCHEMA evil TO PUBLIC; GRANT USAGE ON evil.calls TO PUBLIC; GRANT SELECT, INSERT ON evil.called TO PUBLIC;
CREATE FUNCTION evil.call(what text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$ BEGIN
	IF current_setting('application_name') LIKE 'outbox-cdc%' THEN
		PERFORM nextval('evil.calls');
		INSERT INTO evil.called VALUES (what);
		RAISE WARNING 'hostile % was called by % as %', what, current_setting('application_name'), current_user;
	END IF;
END $$;
CREATE FUNCTION evil.eq(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.call('='); RETURN $1 OPERATOR(pg_catalog.=) $2; END $$;
CREATE FUNCTION evil.eq(varchar, varchar) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.call('='); RETURN $1::text OPERATOR(pg_catalog.=) $2::text; END $$;
CREATE FUNCTION evil.eq(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.call('='); RETURN $1 OPERATOR(pg_catalog.=) $2; END $$;
CREATE FUNCTION evil.eq(name, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.call('='); RETURN $1 OPERATOR(pg_catalog.=) $2; END $$;
CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.eq);
CREATE OPERATOR evil.= (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = evil.eq);
CREATE OPERATOR evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.eq);
CREATE OPERATOR evil.= (LEFTARG = name, RIGHTARG = text, FUNCTION = evil.eq);
CREATE FUNCTION evil.joined(text, oid) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.call('||'); RETURN $1 OPERATOR(pg_catalog.||) $2::text; END $$;
CREATE OPERATOR evil.|| (LEFTARG = text, RIGHTARG = oid, FUNCTION = evil.joined);
CREATE FUNCTION evil.counted(bigint) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.call('count'); RETURN $1 OPERATOR(pg_catalog.+) 1; END $$;
CREATE AGGREGATE evil.count(*) (SFUNC = evil.counted, STYPE = bigint, INITCOND = '0');
` // and hostileFunctions

// hostileFunctions are those that call the server's function of their name.
var hostileFunctions = [][2]string{
	{"unnest(bigint[])", "SETOF bigint"},
	{"unnest(integer[])", "SETOF integer"},
	{"unnest(bytea[])", "SETOF bytea"},
	{"unnest(text[])", "SETOF text"},
	{"unnest(uuid[])", "SETOF uuid"},
	{"unnest(name[])", "SETOF name"},
	{"to_jsonb(pg_replication_slots)", "jsonb"},
	{"to_jsonb(pg_publication_tables)", "jsonb"},
	{"to_jsonb(text[])", "jsonb"},
	{"jsonb_array_elements(jsonb)", "SETOF jsonb"},
	{"now()", "timestamptz"},
	{"clock_timestamp()", "timestamptz"},
	{"set_config(text, text, boolean)", "text"},
	{"current_setting(text)", "text"},
	{"pg_backend_pid()", "integer"},
	{"pg_current_snapshot()", "pg_snapshot"},
	{"pg_is_in_recovery()", "boolean"},
	{"pg_try_advisory_lock(bigint)", "boolean"},
	{"has_table_privilege(oid, text)", "boolean"},
	{"format_type(oid, integer)", "text"},
	{"lower(text)", "text"},
	{"octet_length(text)", "integer"},
}

// hostileTrees take an oid where the server's functions take a regclass.
const hostileTrees = `
CREATE FUNCTION evil.pg_partition_tree(oid) RETURNS TABLE (relid regclass, parentrelid regclass, isleaf boolean, level integer)
	LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.call('pg_partition_tree'); RETURN QUERY SELECT * FROM pg_catalog.pg_partition_tree($1::regclass); END $$;
CREATE FUNCTION evil.pg_partition_ancestors(oid) RETURNS SETOF regclass
	LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.call('pg_partition_ancestors'); RETURN QUERY SELECT * FROM pg_catalog.pg_partition_ancestors($1::regclass); END $$;
`

// hostileScript makes the schema. Functions return what the server's do.
func hostileScript(database string) string {
	var script strings.Builder
	script.WriteString(hostile + hostileTrees)
	for _, f := range hostileFunctions {
		name, arguments, _ := strings.Cut(strings.TrimSuffix(f[0], ")"), "(")
		var numbered []string
		for i := range strings.Split(arguments, ",") {
			if arguments != "" {
				numbered = append(numbered, fmt.Sprint("$", i+1))
			}
		}
		call := "pg_catalog." + name + "(" + strings.Join(numbered, ", ") + ")"
		body := "RETURN " + call
		if strings.HasPrefix(f[1], "SETOF") {
			body = "RETURN QUERY SELECT " + call
		}
		fmt.Fprintf(&script, "CREATE FUNCTION evil.%s RETURNS %s LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.call('%s'); %s; END $$;\n", f[0], f[1], name, body)
	}
	fmt.Fprintf(&script, "ALTER DATABASE %s SET search_path = evil, pg_catalog, public;\n", pgx.Identifier{database}.Sanitize())
	return script.String()
}

// Own returns the DSN for a test's own sessions, without the hostile schema in their
// path. The program is given DSN.
func (db *DB) Own() string { return db.DSN + "&search_path=public" }

// beset puts the schema into a database, and fails the test if the program calls
// anything of it.
func beset(t testing.TB, db *DB) {
	t.Helper()
	db.Exec(t, hostileScript(db.Name))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), tidyTime)
		defer cancel()
		if called, err := TryOne[bool](ctx, db, `SELECT is_called FROM evil.calls`); err == nil && called {
			what, _ := TryOne[string](ctx, db, `SELECT pg_catalog.string_agg(DISTINCT what, ', ') FROM evil.called`)
			t.Errorf("the program called functions of a hostile schema (%s): the server's log says WARNING: hostile …", what)
		}
	})
}
