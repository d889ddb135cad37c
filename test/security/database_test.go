package security

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// strangers makes a server whose database belongs to app, as is usual, and on
// which cdc marks and repl streams. The administrator is a superuser.
func strangers(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("not in the short form")
	}
	db := harness.PrivatePostgres(t, localpg.Options{})
	db.Exec(t, `CREATE ROLE app LOGIN PASSWORD 'p'; CREATE ROLE cdc LOGIN PASSWORD 'p'; CREATE ROLE repl LOGIN REPLICATION PASSWORD 'p';
		CREATE ROLE reader LOGIN PASSWORD 'p'; ALTER DATABASE app OWNER TO app; GRANT ALL ON SCHEMA public TO app`)
	w := worldOn(t, db)
	w.as("cdc", "repl")
	return w
}

func (w *world) dsn(role string) string {
	return w.db.Server.DSNAs(w.db.Name, role, "p")
}

// as has the stream connect as these roles.
func (w *world) as(marker, streamer string) {
	w.stream["postgres"] = fields{"dsn": w.dsn(marker), "replication_dsn": w.dsn(streamer), "wal_sender_timeout": "3s"}
}

// asSuperuser has the stream connect as the quick start does.
func (w *world) asSuperuser() {
	w.stream["postgres"] = fields{"dsn": w.db.DSN, "wal_sender_timeout": "3s"}
}

// does runs statements as a role.
func (w *world) does(role, statements string) {
	w.t.Helper()
	other := *w.db
	other.DSN = w.dsn(role)
	other.Exec(w.t, statements)
}

// try runs a command to its end, with the administrator's connection or without.
func (w *world) try(admin bool, args ...string) (string, int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	cmd := w.command(ctx, args...)
	cmd.Env = os.Environ()
	if admin {
		cmd.Env = append(cmd.Env, "OUTBOX_CDC_ADMIN_DSN="+w.db.DSN)
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return string(out), 0
}

// nobodyRose says that no attacker became superuser.
func (w *world) nobodyRose(after string) {
	w.t.Helper()
	if rose := harness.One[int](w.t, w.db, `SELECT count(*)::int FROM pg_roles WHERE rolsuper AND rolname <> 'postgres'`); rose > 0 {
		w.t.Errorf("%s made the attacker a superuser", after)
		w.db.Exec(w.t, `ALTER ROLE app NOSUPERUSER`)
	}
}

// rise makes app a superuser wherever a superuser runs it.
const rise = `IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) current_user AND rolname OPERATOR(pg_catalog.<>) 'app') THEN
	EXECUTE 'ALTER ROLE app SUPERUSER'; END IF;`

// administrator is every command that somebody with rights runs.
var administrator = [][]string{
	{"init", "--show-sql", "--native-table"},
	{"init", "--native-table"},
	{"check"},
	{"check", "--fix", "--yes"},
	{"slots"},
	{"status", "--database"},
	{"failed", "list"},
	{"pending", "list"},
	{"destroy", "--yes"},
}

// refusesTheSchema runs all of it, as somebody with rights and as the quick start's
// superuser: init says whose the schema is, and nobody becomes superuser.
func (w *world) refusesTheSchema() {
	w.t.Helper()
	for _, args := range administrator {
		out, code := w.try(true, args...)
		w.nobodyRose(strings.Join(args, " "))
		if args[0] == "init" && (code != 3 || !strings.Contains(out, "schema outbox_cdc belongs to role app")) {
			w.t.Errorf("%v ends with %d and does not say whose the schema is:\n%s", args, code, out)
		}
	}
	w.asSuperuser()
	for _, args := range append(administrator, []string{"sweep", "--once"}) {
		w.try(false, args...)
		w.nobodyRose(strings.Join(args, " ") + ", with a superuser's dsn")
	}
}

// premadeTrigger makes schema outbox_cdc as init does, with a trigger that runs a
// statement of PL/pgSQL.
func premadeTrigger(rise string) string {
	return `CREATE SCHEMA outbox_cdc;
		CREATE TABLE outbox_cdc.leader (stream text PRIMARY KEY, epoch bigint NOT NULL DEFAULT 0, holder text NOT NULL DEFAULT '',
			since timestamptz NOT NULL DEFAULT now(), slot text NOT NULL DEFAULT '', system_id text NOT NULL DEFAULT '', timeline bigint NOT NULL DEFAULT 0,
			slot_point pg_lsn NOT NULL DEFAULT '0/0', stopped pg_lsn NOT NULL DEFAULT '0/0', publication text NOT NULL DEFAULT '');
		CREATE TABLE outbox_cdc.park (stream text, scope bytea);
		INSERT INTO outbox_cdc.leader (stream) VALUES ('s'); INSERT INTO outbox_cdc.park VALUES ('s', '');
		CREATE FUNCTION outbox_cdc.fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ` + rise + ` RETURN coalesce(NEW, OLD); END $$;
		CREATE TRIGGER a BEFORE INSERT OR UPDATE OR DELETE ON outbox_cdc.leader FOR EACH ROW EXECUTE FUNCTION outbox_cdc.fire();
		CREATE TRIGGER a BEFORE DELETE ON outbox_cdc.park FOR EACH ROW EXECUTE FUNCTION outbox_cdc.fire()`
}

// Who may create in the database makes schema outbox_cdc before init does.
func TestAPremadeSchemaMakesNobodySuperuser(t *testing.T) {
	for name, premade := range map[string]string{
		"trigger": premadeTrigger(rise),
		"view": `CREATE SCHEMA outbox_cdc;
			CREATE FUNCTION outbox_cdc.fire() RETURNS text LANGUAGE plpgsql AS $$ BEGIN ` + rise + ` RETURN 's'; END $$;
			CREATE VIEW outbox_cdc.leader AS SELECT outbox_cdc.fire() AS stream, 1::bigint AS epoch, ''::text AS holder, now() AS since, ''::text AS slot, '{}'::jsonb AS claim, '{}'::jsonb AS paused;
			CREATE VIEW outbox_cdc.park AS SELECT outbox_cdc.fire() AS stream, ''::bytea AS scope`,
		"default of a column": `CREATE SCHEMA outbox_cdc;
			CREATE FUNCTION outbox_cdc.fire() RETURNS text LANGUAGE plpgsql AS $$ BEGIN ` + rise + ` RETURN ''; END $$;
			CREATE TABLE outbox_cdc.leader (stream text PRIMARY KEY, slot text, system_id text, timeline bigint, slot_point pg_lsn, stopped pg_lsn, holder text DEFAULT outbox_cdc.fire());
			CREATE TABLE outbox_cdc.park (stream text, scope bytea)`,
	} {
		t.Run(name, func(t *testing.T) {
			w := strangers(t)
			w.does("app", premade)
			w.db.Exec(t, `GRANT pg_read_all_data TO reader`) // somebody else's rights are their own
			w.refusesTheSchema()
			if !harness.One[bool](t, w.db, `SELECT to_regclass('outbox_cdc.leader') IS NOT NULL`) {
				t.Error("what somebody else made is gone")
			}
		})
	}
}

// The owner of the database has every session begin as their own role. What they
// made would be held for the administrator's, and their trigger takes the role of
// the login back.
func TestADatabasesRoleIsNotTakenOn(t *testing.T) {
	w := strangers(t)
	back := strings.Replace(rise, "EXECUTE", "EXECUTE 'SET ROLE postgres'; EXECUTE", 1)
	back = strings.Replace(back, "rolname OPERATOR(pg_catalog.=) current_user", "rolname OPERATOR(pg_catalog.=) session_user", 1)
	back = strings.Replace(back, "rolname OPERATOR(pg_catalog.<>) 'app'", "true", 1)
	w.does("app", premadeTrigger(back)+`; ALTER DATABASE app SET role = app`)
	w.does("app", `ALTER DATABASE app SET session_authorization = app`)
	w.refusesTheSchema()
	w.db.Exec(t, `SET ROLE NONE; DROP SCHEMA outbox_cdc CASCADE`)
	if out, code := w.try(true, "init", "--native-table"); code != 0 {
		t.Error(out)
	}
	if owner := harness.One[string](t, w.db, `SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'outbox_cdc'`); owner != "postgres" {
		t.Errorf("init made the schema as role %s", owner)
	}
	w.db.Exec(t, `SET ROLE NONE; ALTER DATABASE app RESET role; ALTER DATABASE app RESET session_authorization`)
}

// A schema handed over with its trigger is as bad as before, and what others put
// into our schema is not removed with it.
func TestDestroyRemovesWhatInitMadeAlone(t *testing.T) {
	w := strangers(t)
	w.does("app", `CREATE TABLE keep (id int)`)
	if out, code := w.try(true, "init", "--native-table"); code != 0 {
		t.Fatal(out)
	}
	w.db.Exec(t, `CREATE FUNCTION public.fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'fired'; END $$;
		CREATE TRIGGER a BEFORE DELETE ON outbox_cdc.leader FOR EACH ROW EXECUTE FUNCTION public.fire()`)
	if out, code := w.try(true, "destroy", "--yes"); code != 3 || !strings.Contains(out, "outbox_cdc.leader has the trigger a") {
		t.Errorf("%d\n%s", code, out)
	}
	w.db.Exec(t, `DROP TRIGGER a ON outbox_cdc.leader; CREATE TABLE outbox_cdc.of_others (id int)`)
	if out, code := w.try(true, "destroy", "--yes"); code == 0 || !strings.Contains(out, "outbox-cdc did not make what depends on it") {
		t.Errorf("%d\n%s", code, out)
	}
	w.db.Exec(t, `DROP TABLE outbox_cdc.of_others`)
	if out, code := w.try(true, "destroy", "--yes"); code != 0 {
		t.Errorf("%d\n%s", code, out)
	}
	if harness.One[bool](t, w.db, `SELECT to_regnamespace('outbox_cdc') IS NOT NULL`) {
		t.Error("the schema is left")
	}
}

// The owner of the database has the path begin with a schema of theirs, where
// functions make them superuser as soon as a superuser calls them.
func TestTheDatabasesOwnerBecomesNoSuperuser(t *testing.T) {
	w := strangers(t)
	w.does("app", `CREATE SCHEMA trap; GRANT USAGE ON SCHEMA trap TO PUBLIC;
		CREATE FUNCTION trap.rise() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$ BEGIN `+rise+` END $$;
		CREATE FUNCTION trap.pg_partition_tree(oid) RETURNS TABLE (relid regclass, isleaf boolean) LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.rise(); END $$;
		CREATE FUNCTION trap.pg_partition_ancestors(oid) RETURNS SETOF regclass LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.rise(); END $$;
		CREATE FUNCTION trap.to_jsonb(pg_replication_slots) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.rise(); RETURN '{}'; END $$;
		CREATE FUNCTION trap.set_config(text, text, boolean) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.rise(); RETURN pg_catalog.set_config($1, $2, $3); END $$;
		CREATE FUNCTION trap.current_setting(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.rise(); RETURN pg_catalog.current_setting($1); END $$;
		CREATE FUNCTION trap.pg_is_in_recovery() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.rise(); RETURN false; END $$;
		CREATE FUNCTION trap.eq(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.rise(); RETURN $1 OPERATOR(pg_catalog.=) $2; END $$;
		CREATE OPERATOR trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.eq);
		CREATE DOMAIN trap.text AS pg_catalog.text;
		ALTER DATABASE app SET search_path = trap, pg_catalog, public`)
	for _, args := range administrator[:len(administrator)-1] {
		w.try(true, args...)
		w.nobodyRose(strings.Join(args, " "))
	}
	w.asSuperuser()
	w.config["http"] = fields{"listen": "off"}
	w.stream["postgres"] = fields{"dsn": w.db.DSN + "&target_session_attrs=primary", "wal_sender_timeout": "3s"}
	for _, args := range administrator[:len(administrator)-1] {
		if out, code := w.try(false, args...); code != 0 && args[0] != "check" {
			t.Errorf("%v: %s", args, out)
		}
		w.nobodyRose(strings.Join(args, " ") + ", with a superuser's dsn")
	}
	p := w.run()
	w.db.Exec(t, fmt.Sprintf(`INSERT INTO outbox (topic, key, payload) VALUES ('%s', 'k', 'v')`, w.topic))
	w.marked(1)
	w.stopped(p)
	w.nobodyRose("run")
	w.try(true, "destroy", "--yes")
	w.nobodyRose("destroy")
}

// marked waits until that many rows are SENT.
func (w *world) marked(n int) {
	w.t.Helper()
	harness.Eventually(w.t, 40*time.Second, func() error {
		sent, err := harness.TryOne[int](w.t.Context(), w.db, `SELECT count(*)::int FROM outbox WHERE status = 'SENT'`)
		if err == nil && sent != n {
			err = fmt.Errorf("%d of %d rows are SENT", sent, n)
		}
		return err
	})
}

// A role that may only log in has the marker run its code, where everybody may
// create in public as on version 14: waiting events become SENT unpublished.
func TestAReadersFunctionMarksNoRow(t *testing.T) {
	w := strangers(t)
	w.db.Exec(t, `GRANT CREATE ON SCHEMA public TO PUBLIC; ALTER DATABASE app RESET search_path`)
	if out, code := w.try(true, "init", "--native-table"); code != 0 {
		t.Fatal(out)
	}
	w.db.Exec(t, `ALTER ROLE cdc PASSWORD 'p'; CREATE TABLE stolen (payload bytea); GRANT INSERT ON stolen TO PUBLIC`)
	for _, of := range []string{"bigint", "bytea", "text"} {
		w.does("reader", fmt.Sprintf(`CREATE FUNCTION public.unnest(%[1]s[]) RETURNS SETOF %[1]s LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO public.stolen SELECT payload FROM public.outbox;
			UPDATE public.outbox SET status = 'SENT' WHERE status = 'PENDING';
			RETURN QUERY SELECT pg_catalog.unnest($1); END $$`, of))
	}
	insert := fmt.Sprintf(`INSERT INTO outbox (topic, key, payload, available_after) SELECT '%s', n::text, 'secret', %%s FROM generate_series(1, 20) n`, w.topic)
	w.db.Exec(t, fmt.Sprintf(insert, "now() + interval '1 hour'")) // these wait
	p := w.run()
	w.db.Exec(t, fmt.Sprintf(insert, "NULL"))
	w.marked(20)
	w.stopped(p)
	if n := harness.One[int](t, w.db, `SELECT count(*)::int FROM stolen`); n > 0 {
		t.Errorf("%d payloads were copied out", n)
	}
	if n := len(w.kafka.Records(t, w.topic)); n != 20 {
		t.Errorf("%d records, want 20", n)
	}
}

// run needs no administrator, and what it serves must not act as one.
func TestRunRefusesTheAdministratorsConnection(t *testing.T) {
	w := newWorld(t)
	if out, code := w.try(true, "run"); code != 2 || !strings.Contains(out, "take it out of the environment") {
		t.Errorf("%d\n%s", code, out)
	}
}

// unprivileged makes the table and what init makes, for the strangers' roles.
func unprivileged(t *testing.T) *world {
	t.Helper()
	w := strangers(t)
	if out, code := w.try(true, "init", "--native-table"); code != 0 {
		t.Fatal(out)
	}
	return w
}

func (w *world) insert(key string, n int) {
	w.t.Helper()
	w.db.Exec(w.t, fmt.Sprintf(`INSERT INTO outbox (topic, key, payload) SELECT '%s', '%s', 'v' FROM generate_series(1, %d)`, w.topic, key, n))
}

// Rows that row security hides from the marker are not passed over: the table is
// refused, with the statement that ends it, and afterwards every row is marked.
func TestRowSecurityHidesNothing(t *testing.T) {
	w := unprivileged(t)
	w.db.Exec(t, `ALTER TABLE outbox ENABLE ROW LEVEL SECURITY; CREATE POLICY seen ON outbox TO cdc USING (key = 'seen')`)
	w.insert("hidden", 3)
	w.insert("seen", 3)
	cmd := w.command(t.Context(), "run", "--log-format", "json")
	p := harness.Start(t, cmd)
	p.Await(30*time.Second, "has row security, which hides rows from role cdc", `ALTER ROLE \"cdc\" BYPASSRLS`)
	if n := harness.One[int](t, w.db, `SELECT count(*)::int FROM outbox WHERE status = 'SENT'`); n != 0 {
		t.Errorf("%d rows are SENT", n)
	}
	w.db.Exec(t, `ALTER ROLE cdc BYPASSRLS`)
	w.marked(6)
	w.stopped(p)
}

// A role that is read-only by default streams and marks.
func TestAReadOnlyDefaultIsOverruled(t *testing.T) {
	w := unprivileged(t)
	w.db.Exec(t, `ALTER ROLE cdc SET default_transaction_read_only = on; ALTER DATABASE app SET default_transaction_read_only = on`)
	p := w.run()
	w.db.Exec(t, `SET TRANSACTION READ WRITE; `+fmt.Sprintf(`INSERT INTO outbox (topic, key, payload) VALUES ('%s', 'k', 'v')`, w.topic))
	w.marked(1)
	w.stopped(p)
	if n := len(p.Said("more rights than it needs")); n != 0 {
		t.Errorf("the least role is warned of %d times", n)
	}
}

// A superuser streams, and is warned of once.
func TestASuperuserIsWarnedOf(t *testing.T) {
	w := newWorld(t)
	p := w.run()
	w.insert("k", 1)
	w.marked(1)
	w.stopped(p)
	if said := p.Said(`"level":"warn"`, "role postgres is a superuser"); len(said) != 1 {
		t.Errorf("warned %d times: %v", len(said), said)
	}
}

// A role that may only connect takes the leadership lock: that is said, with who
// it is and what ends it, and with its end the stream leads.
func TestAForeignHolderOfTheLockIsTold(t *testing.T) {
	w := unprivileged(t)
	reader := *w.db
	reader.DSN = w.dsn("reader")
	holder := reader.Conn(t)
	if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_lock($1)`, replication.LockKey(fmt.Sprint(w.stream["slot"]))); err != nil {
		t.Fatal(err)
	}
	p := harness.Start(t, w.command(t.Context(), "run", "--log-format", "json"))
	p.Await(30*time.Second, "role reader holds the leadership lock and is no leader", fmt.Sprintf("SELECT pg_terminate_backend(%d)", holder.PgConn().PID()))
	if out, code := w.try(false, "check"); code != 3 || !strings.Contains(out, "role reader holds the leadership lock") {
		t.Errorf("check ends with %d:\n%s", code, out)
	}
	for _, command := range [][]string{{"status"}, {"destroy", "--yes"}} {
		if out, _ := w.try(true, command...); !strings.Contains(out, "role reader holds the leadership lock and is no leader") || strings.Contains(out, "leads the stream") {
			t.Errorf("%v says\n%s", command, out)
		}
	}
	if err := holder.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.insert("k", 1)
	w.marked(1)
	w.stopped(p)
}
