package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// A configuration that is wrong ends the program at once, with exit code 2 and
// a message that names the place and the fix.
func TestABadConfiguration(t *testing.T) {
	w := newWorld(t, surroundings{noInit: true, noTopic: true})
	good, err := os.ReadFile(w.file())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text string
		says []string
	}{
		"missing":     {"", []string{"no such file"}},
		"no YAML":     {"kafka: [", []string{".yaml:1:"}},
		"unknown key": {strings.Replace(string(good), `"watch_interval"`, `"watch_intervall"`, 1), []string{".yaml:", "watch_intervall", "watch_interval"}},
		"no variable": {strings.Replace(string(good), `"main"`, `"${env:OUTBOX_TEST_NOT_SET}"`, 1), []string{"OUTBOX_TEST_NOT_SET"}},
		"profile":     {strings.Replace(string(good), `"native"`, `"nativ"`, 1), []string{"nativ", "native"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bad.yaml")
			if c.text != "" {
				if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := w.command("run", "--config", path)
			if code := exitCode(err); code != 2 {
				t.Errorf("exit code %d, wanted 2", code)
			}
			for _, part := range c.says {
				if !strings.Contains(out, part) {
					t.Errorf("%q is not in:\n%s", part, out)
				}
			}
			if lines := strings.Count(strings.TrimSpace(out), "\n"); lines > 3 {
				t.Errorf("one clear message was wanted:\n%s", out)
			}
		})
	}
}

// fault is something that keeps a stream from working until somebody fixes it.
type fault struct {
	surroundings surroundings
	// before comes before the program starts and, like during, breaks something.
	before func(w *world)
	during func(w *world)
	// says is in one line of the log: the thing and the fix.
	says []string
	fix  func(w *world)
	// lines is how many lines of level error and warn a fault may write in a
	// few seconds; 0: 4.
	lines int
	// swept: the rows are delivered all the same.
	swept bool
}

func TestFaultsAreNamedAndPass(t *testing.T) {
	faults := map[string]fault{
		"wrong password": {
			surroundings: surroundings{noInit: true},
			before: func(w *world) {
				_, streamer := w.roles()
				w.db.Exec(w.t, fmt.Sprintf(`ALTER ROLE %q PASSWORD 'other'`, streamer))
			},
			says: []string{"correct the password in the dsn", "streamer_"},
			fix:  func(w *world) { w.db.Exec(w.t, fmt.Sprintf(`ALTER ROLE "streamer_%s" PASSWORD 'secret'`, w.db.Name)) },
		},
		"wrong password of the role that writes": {
			surroundings: surroundings{noInit: true},
			before: func(w *world) {
				writer, _ := w.roles()
				w.db.Exec(w.t, fmt.Sprintf(`ALTER ROLE %q PASSWORD 'other'`, writer))
			},
			says: []string{"password authentication failed", "writer_"},
			fix:  func(w *world) { w.db.Exec(w.t, fmt.Sprintf(`ALTER ROLE "writer_%s" PASSWORD 'secret'`, w.db.Name)) },
		},
		"no replication": {
			surroundings: surroundings{noInit: true},
			before: func(w *world) {
				_, streamer := w.roles()
				w.db.Exec(w.t, fmt.Sprintf(`ALTER ROLE %q NOREPLICATION`, streamer))
			},
			says: []string{"streamer_", "REPLICATION"},
			fix:  func(w *world) { w.db.Exec(w.t, fmt.Sprintf(`ALTER ROLE "streamer_%s" REPLICATION`, w.db.Name)) },
		},
		"no update": {
			surroundings: surroundings{noInit: true},
			before: func(w *world) {
				writer, _ := w.roles()
				w.db.Exec(w.t, fmt.Sprintf(`REVOKE ALL ON outbox FROM %q`, writer))
			},
			says:  []string{"public.outbox", "permission denied", "GRANT", "writer_"},
			lines: 2,
			fix: func(w *world) {
				w.db.Exec(w.t, fmt.Sprintf(`GRANT SELECT, UPDATE ON outbox TO "writer_%s"`, w.db.Name))
			},
		},
		"publication missing": {
			surroundings: surroundings{noInit: true},
			before:       func(w *world) { w.roles(); w.db.Exec(w.t, `DROP PUBLICATION outbox`) },
			says:         []string{"make publication outbox", "permission denied", "as the owner of the tables", "--show-sql"},
			lines:        1, swept: true,
			fix: func(w *world) { w.db.Exec(w.t, `CREATE PUBLICATION outbox FOR TABLE outbox WITH (publish = 'insert')`) },
		},
		"slot taken": {
			before: func(w *world) { w.taken = w.takeSlot() },
			says:   []string{"slot", "in use", "end the other consumer"},
			lines:  8,
			fix:    func(w *world) { w.taken.Close(context.WithoutCancel(w.t.Context())) },
		},
		"table missing": {
			before: func(w *world) {
				w.db.Exec(w.t, `ALTER TABLE outbox RENAME TO elsewhere`)
				w.inserts("elsewhere", "payload")
			},
			says:  []string{"public.outbox", "does not exist"},
			lines: 4,
			fix:   func(w *world) { w.db.Exec(w.t, `ALTER TABLE elsewhere RENAME TO outbox`) },
		},
		"column missing": {
			before: func(w *world) {
				w.db.Exec(w.t, `ALTER TABLE outbox RENAME payload TO body`)
				w.inserts("outbox", "body")
			},
			says:  []string{"public.outbox", `column "payload"`},
			lines: 3,
			fix:   func(w *world) { w.db.Exec(w.t, `ALTER TABLE outbox RENAME body TO payload`) },
		},
		"database away": {
			before: func(w *world) {
				through, proxy := w.db.Proxied(w.t)
				w.stream["postgres"] = fields{"dsn": through.DSN, "wal_sender_timeout": "3s"}
				proxy.Refuse()
				w.proxy = proxy
			},
			says:  []string{"connect", "127.0.0.1", "refused"},
			lines: 8,
			fix:   func(w *world) { w.proxy.Allow() },
		},
		"broker away": {
			before: func(w *world) {
				w.proxy = harness.NewProxy(w.t, w.kafka.Addrs[0])
				w.cluster["brokers"] = []string{w.proxy.Addr()}
				w.proxy.Refuse()
			},
			says: []string{"the Kafka cluster cannot be used", "127.0.0.1", "refused"},
			fix:  func(w *world) { w.proxy.Allow() },
		},
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of them wait
			f.test(t)
		})
	}
}

func (f *fault) test(t *testing.T) {
	w := newWorld(t, f.surroundings)
	if f.before != nil {
		f.before(w)
	}
	p := w.run()
	if f.during != nil {
		p.streaming()
		f.during(w)
	}
	rows := w.insertNow(w.topic, "k", 3, 10)
	p.Await(30*time.Second, f.says...)
	waitUntil(t, time.Now().Add(2*time.Second)) // does it spin?
	most := f.lines
	if most == 0 {
		most = 4
	}
	if said := loud(p.Said()); len(said) > most {
		t.Errorf("%d warnings and errors, at most %d were wanted:\n%s", len(said), most, strings.Join(said, "\n"))
	}
	if used, limit := p.cpu(), 2*time.Second; used > limit {
		t.Errorf("the process used %v of CPU", used)
	}
	w.layout.insert = native().insert
	f.fix(w)
	fixed := time.Now()
	if !f.swept {
		if got, err := w.statusOf(rows[0]); err != nil || got == "FAILED" {
			t.Errorf("a row is %s, %v", got, err)
		}
	}
	w.recoveredSince(fixed, w.topic)
	w.settled(60 * time.Second)
	p.stop()
	w.judge(history.Rules{})
	if n := harness.One[int](t, w.db, `SELECT count(*) FROM outbox WHERE attempts > 0`); n > 0 {
		t.Errorf("the fault was charged to %d rows", n)
	}
}

// inserts has applications write into a renamed table or column.
func (w *world) inserts(table, column string) {
	w.layout.insert = fmt.Sprintf(`INSERT INTO %s (topic, key, %s) SELECT topic, key, value FROM rows`, table, column)
}

// takeSlot streams from the world's slot, as another consumer would.
func (w *world) takeSlot() *pgconn.PgConn {
	w.t.Helper()
	conn, err := pgconn.Connect(w.t.Context(), w.db.Own()+"&replication=database")
	if err != nil {
		w.t.Fatal(err)
	}
	sql := fmt.Sprintf(`START_REPLICATION SLOT %q LOGICAL 0/0 (proto_version '1', publication_names '"outbox"')`, w.stream["slot"])
	conn.Frontend().SendQuery(&pgproto3.Query{String: sql})
	if err := conn.Frontend().Flush(); err != nil {
		w.t.Fatal(err)
	}
	harness.Eventually(w.t, 10*time.Second, func() error {
		active, err := harness.TryOne[bool](w.t.Context(), w.db, `SELECT active FROM pg_replication_slots WHERE slot_name = $1`, w.stream["slot"])
		if err == nil && !active {
			err = fmt.Errorf("the slot is not taken yet")
		}
		return err
	})
	return conn
}

// wal_level is replica on a server that raises the level with the first slot: it streams without a
// restart, also where others make and drop slots, and whatever wal_level is at the next start.
func TestTheFirstSlotRaisesTheLevel(t *testing.T) {
	t.Parallel() // it mostly waits
	atLeast(t, 19)
	db := harness.PrivatePostgres(t, localpg.Options{Settings: map[string]string{"wal_level": "replica"}})
	db.Exec(t, `SELECT pg_create_logical_replication_slot('other', 'pgoutput')`) // the first
	w := newWorld(t, surroundings{db: db})
	if out, err := w.command("check", "--config", w.file()); !strings.Contains(out, "effective_wal_level is logical while there is a logical slot") {
		t.Errorf("check: %v\n%s", err, out)
	}
	p := w.run().streaming()
	load := w.write(patient())
	load.wrote(50, 30*time.Second)
	db.Exec(t, `SELECT pg_drop_replication_slot('other')`) // the last but ours
	load.wrote(50, 30*time.Second)
	w.becomes(w.insertNow(w.topic, "streamed", 1, 10)[0], history.Sent, 20*time.Second)
	if n := p.logged("made the slot"); n != 0 {
		t.Errorf("the slot was made %d times", n)
	}
	w.dropSlot() // the last, under the stream
	p.Await(60*time.Second, "made the slot")
	p.Await(60*time.Second, "handed back to the stream", "stream")
	load.wrote(50, 30*time.Second)
	p.stop()
	w.dropSlot()
	w.level("replica")
	p = w.run() // which makes the first
	p.Await(60*time.Second, "handed back to the stream", "stream")
	w.level("logical")
	for _, level := range []string{"logical", "replica"} {
		db.Exec(t, `ALTER SYSTEM SET wal_level = `+level)
		if err := db.Server.Restart(t.Context(), localpg.Fast); err != nil {
			t.Fatal(err)
		}
		w.recovered()
		w.level("logical")
		load.wrote(50, 30*time.Second)
	}
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	if n := p.logged("made the slot"); n != 1 {
		t.Errorf("the slot was made %d times", n)
	}
	w.judge(history.Rules{})
}

// level waits for an effective_wal_level.
func (w *world) level(want string) {
	w.t.Helper()
	harness.Eventually(w.t, 30*time.Second, func() error {
		level, err := harness.TryOne[string](w.t.Context(), w.db, `SHOW effective_wal_level`)
		if err == nil && level != want {
			err = fmt.Errorf("effective_wal_level is %s", level)
		}
		return err
	})
}

// A standby has a slot of the stream's name. When the primary drops its last slot, its level falls, and the standby loses
// its slot (wal_level_insufficient). Once promoted, the standby streams from a new slot.
func TestAStandbysSlotLosesTheLevel(t *testing.T) {
	t.Parallel() // it mostly waits
	atLeast(t, 19)
	pair := harness.PrivatePair(t, map[string]string{"wal_level": "replica"})
	w := newWorld(t, surroundings{db: pair.Either, partitions: 2})
	p := w.run().streaming()
	load := w.write(patient())
	load.wrote(50, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	made := make(chan error, 1)
	go func() { // it waits for the primary's word of what is in progress
		_, err := harness.TryOne[string](t.Context(), pair.Standby, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')::text`, w.stream["slot"])
		made <- err
	}()
	harness.Eventually(t, 30*time.Second, func() error {
		pair.Primary.Exec(t, `SELECT pg_log_standby_snapshot()`)
		select {
		case err := <-made:
			if err != nil {
				t.Fatal(err)
			}
			return nil
		default:
			return errors.New("the standby's slot is not made yet")
		}
	})
	pair.Primary.Exec(t, `SELECT pg_drop_replication_slot($1)`, w.stream["slot"])
	harness.Eventually(t, 30*time.Second, func() error {
		why, err := harness.TryOne[string](t.Context(), pair.Standby, `SELECT coalesce(max(invalidation_reason), 'none') FROM pg_replication_slots`)
		if err == nil && why != "wal_level_insufficient" {
			err = fmt.Errorf("the reason of invalidation is %s", why)
		}
		return err
	})
	load = w.write(patient())
	load.wrote(50, 30*time.Second)
	load.stop()
	pair.CaughtUp(t)
	pair.FailOver(t)
	p = w.run()
	p.Await(30*time.Second, "parked", "is lost: wal_level_insufficient")
	p.Await(60*time.Second, "made the slot")
	p.Await(60*time.Second, "handed back to the stream", "stream")
	w.becomes(w.insertNow(w.topic, "streamed", 1, 10)[0], history.Sent, 20*time.Second)
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// wal_level is not logical, under load: rows are swept meanwhile, the log says which
// setting and that it needs a restart, and after that the stream takes over by
// itself, in order and each row once.
func TestTheWALIsNotLogical(t *testing.T) {
	t.Parallel() // it mostly waits
	if harness.Postgres(t).Major(t) >= 19 {
		t.Skip("the first slot raises the level: TestTheFirstSlotRaisesTheLevel")
	}
	db := harness.PrivatePostgres(t, localpg.Options{Settings: map[string]string{"wal_level": "replica"}})
	w := newWorld(t, surroundings{db: db, noInit: true})
	w.serve()
	out, err := w.command("init", "--config", w.file(), "--native-table")
	if code := exitCode(err); code != 3 || !strings.Contains(out, "wal_level") || !strings.Contains(out, "ALTER SYSTEM SET wal_level = 'logical'") {
		t.Errorf("init: exit code %d, wanted 3 and the setting:\n%s", code, out)
	}
	w.audit()
	p := w.run()
	p.Await(20*time.Second, "wal_level is replica", "ALTER SYSTEM SET wal_level = 'logical'", "restart")
	load := w.write(patient())
	load.wrote(100, 30*time.Second)
	w.becomes(w.insertNow(w.topic, "swept", 1, 10)[0], history.Sent, 20*time.Second)
	p.readyz(http.StatusOK, `"mode": "sweep"`) // rows go out; the reason is told all the same
	if _, body, err := p.page("/api/v1/status"); err != nil || !strings.Contains(body, "Its rows are read from the table until this is put right") || !strings.Contains(body, "wal_level is replica") {
		t.Errorf("%v %s", err, body)
	}
	db.Exec(t, `ALTER SYSTEM SET wal_level = 'logical'`)
	if err := db.Server.Restart(t.Context(), localpg.Fast); err != nil {
		t.Fatal(err)
	}
	w.recovered()
	p.Await(60*time.Second, "handed back to the stream", "stream")
	load.wrote(100, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// The server says that it is newer than any that is known. One that has all that is asked for is streamed from. Where
// something is missing, rows are swept, log and check name it, and once it is there the stream takes over by itself. A server
// that only tells less is streamed from as well.
func TestANewerServer(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.serve()
	major := w.db.Major(t)
	claims := func(version string) { // a function of the system is called by name only where the planner can put its text in its place
		w.db.Exec(t, `CREATE OR REPLACE FUNCTION pg_catalog.current_setting(text) RETURNS text LANGUAGE sql STABLE
			AS $$ SELECT CASE $1 WHEN 'server_version_num' THEN `+version+` ELSE pg_catalog.current_setting($1, false) END $$`)
	}
	rename := func(kind, relation, from, to string) {
		w.db.Exec(t, `SET allow_system_table_mods = on; ALTER `+kind+` pg_catalog.`+relation+` RENAME COLUMN `+from+` TO `+to)
	}
	reconnect := func() {
		w.db.Exec(t, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active`, w.stream["slot"])
	}
	p := w.run().streaming()
	load := w.write(patient())
	load.wrote(50, 30*time.Second)
	missing := "pg_publication_rel.prexcept"
	claims(`'200001'`)
	if major >= 19 { // else this one lacks what came later
		missing = "pg_publication_rel.prrelid"
		rename("VIEW", "pg_stat_replication", "replay_lsn", "another")
		reconnect()
		p.Await(30*time.Second, "PostgreSQL 20.1 is newer than 19", "limits.back_off", "pg_stat_replication.replay_lsn")
		p.Await(30*time.Second, `"message":"streaming"`)
		if out, _ := w.command("check", "--config", w.file()); !strings.Contains(out, "pg_stat_replication.replay_lsn") {
			t.Errorf("check:\n%s", out)
		}
		load.wrote(50, 30*time.Second)
		rename("VIEW", "pg_stat_replication", "another", "replay_lsn")
		rename("TABLE", "pg_publication_rel", "prrelid", "another")
	}
	reconnect()
	p.Await(30*time.Second, "PostgreSQL 20.1 is newer than 19", missing, "install a newer outbox-cdc")
	p.readyz(http.StatusOK, `"mode": "sweep"`) // rows go out
	w.becomes(w.insertNow(w.topic, "swept", 1, 10)[0], history.Sent, 20*time.Second)
	if out, err := w.command("check", "--config", w.file()); exitCode(err) != 3 || !strings.Contains(out, missing) {
		t.Errorf("check: %v, wanted 3 and %s:\n%s", err, missing, out)
	}
	if major >= 19 {
		rename("TABLE", "pg_publication_rel", "another", "prrelid")
	} else {
		claims(`pg_catalog.current_setting('server_version_num', false)`)
	}
	p.Await(60*time.Second, "handed back to the stream", "stream")
	load.wrote(50, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	if n := p.logged("made the slot"); n != 0 {
		t.Errorf("the slot was made %d times", n)
	}
	p.stop()
	w.judge(history.Rules{})
}

// Version 19 warns at each login of a password that is kept as MD5 and of one that is about to expire. These are no
// warnings about the slot.
func TestALoginIsWarnedOf(t *testing.T) {
	t.Parallel() // it mostly waits
	db := harness.PrivatePostgres(t, localpg.Options{})
	if err := errors.Join(db.Server.SetHBA(strings.ReplaceAll(localpg.HBA, "scram-sha-256", "md5")), db.Server.Restart(t.Context(), localpg.Fast)); err != nil {
		t.Fatal(err)
	}
	kept := "md5" + harness.One[string](t, db, `SELECT md5('secret' || 'warned')`)
	db.Exec(t, `CREATE ROLE warned SUPERUSER LOGIN PASSWORD '`+kept+`' VALID UNTIL '`+time.Now().Add(48*time.Hour).Format(time.RFC3339)+`'`)
	w := newWorld(t, surroundings{db: db, noInit: true})
	w.serve()
	w.stream["postgres"] = fields{"dsn": db.Server.DSNAs("app", "warned", "secret"), "wal_sender_timeout": "3s"}
	w.init()
	p := w.run().streaming()
	w.becomes(w.insertNow(w.topic, "k", 3, 10)[2], history.Sent, 20*time.Second)
	p.readyz(http.StatusOK, `"mode": "stream"`)
	p.stop()
	if said := p.Said("the server warns about the slot"); said != nil {
		t.Error(said)
	}
	w.judge(history.Rules{})
}

// The server forbids pgoutput under a running stream (output_plugin_libraries), to a role that sees the setting and to one that
// does not. The table is swept; the stream comes back by itself.
func TestTheServerForbidsDecoding(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, role := range []string{"SUPERUSER", "REPLICATION"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			db := harness.PrivatePostgres(t, localpg.Options{})
			if !harness.One[bool](t, db, `SELECT EXISTS (SELECT FROM pg_settings WHERE name = 'output_plugin_libraries')`) {
				t.Skip("the server has no output_plugin_libraries: it came with 19 and the minors of August 2026")
			}
			db.Exec(t, `CREATE ROLE streamer LOGIN PASSWORD 'secret' `+role)
			w := newWorld(t, surroundings{db: db, noInit: true})
			w.serve()
			w.stream["postgres"] = fields{"dsn": db.DSN, "replication_dsn": db.Server.DSNAs("app", "streamer", "secret"), "wal_sender_timeout": "3s"}
			allow := func(libraries string) {
				db.Exec(t, `ALTER SYSTEM SET output_plugin_libraries = `+libraries)
				db.Exec(t, `SELECT pg_reload_conf()`)
				harness.Eventually(t, 10*time.Second, func() error {
					got, err := harness.TryOne[string](t.Context(), db, `SHOW output_plugin_libraries`)
					if err == nil && got != libraries {
						err = fmt.Errorf("output_plugin_libraries is %s", got)
					}
					return err
				})
			}
			const how = `ALTER SYSTEM SET output_plugin_libraries = pgoutput`
			allow("test_decoding")
			if out, err := w.command("init", "--config", w.file(), "--native-table"); exitCode(err) != 3 || !strings.Contains(out, how) {
				t.Errorf("init: %v, wanted 3 and the setting:\n%s", err, out)
			}
			allow("pgoutput")
			if out, err := w.command("init", "--config", w.file(), "--native-table"); err != nil {
				t.Fatalf("init: %v\n%s", err, out)
			}
			w.audit()
			p := w.run().streaming()
			load := w.write(patient())
			load.wrote(50, 30*time.Second)

			allow("test_decoding")
			db.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_replication`)
			p.Await(30*time.Second, "output_plugin_libraries", "ALTER SYSTEM SET")
			p.readyz(http.StatusOK, "sweep") // rows go out
			w.becomes(w.insertNow(w.topic, "swept", 1, 10)[0], history.Sent, 20*time.Second)
			out, err := w.command("check", "--config", w.file())
			if role == "SUPERUSER" && (exitCode(err) != 3 || !strings.Contains(out, how)) {
				t.Errorf("check: %v, wanted 3 and the setting:\n%s", err, out)
			}

			allow("pgoutput")
			w.recovered()
			p.Await(60*time.Second, "handed back to the stream", "stream")
			load.wrote(50, 30*time.Second)
			load.stop()
			w.settled(30 * time.Second)
			p.stop()
			w.judge(history.Rules{})
		})
	}
}

// A wrong password for the brokers.
func TestAWrongSASLPassword(t *testing.T) {
	t.Parallel() // it mostly waits
	k := harness.Kfake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "cdc", "right"), kfake.SeedTopics(1, "events"))
	w := newWorld(t, surroundings{kafka: k, noTopic: true})
	w.cluster["sasl"] = fields{"mechanism": "PLAIN", "username": "cdc", "password": "wrong"}
	p := w.run()
	line := p.Await(20*time.Second, "the Kafka cluster cannot be used", "password", "cdc")
	if strings.Contains(line, "wrong") {
		t.Errorf("the password is in the log: %s", line)
	}
	row := w.insertNow("events", "k", 3, 10)[0]
	p.stop()
	if got, err := w.statusOf(row); err != nil || got != "PENDING" {
		t.Errorf("a row is %s, %v", got, err)
	}
	w.cluster["sasl"].(fields)["password"] = "right"
	p = w.run().streaming()
	w.settled(20 * time.Second)
	p.stop()
}

// The brokers do not let us write to a topic, under load to others: its rows
// wait, without an attempt charged, the others go on, and when they let us it is
// delivered in order.
func TestATopicThatIsNotAuthorised(t *testing.T) {
	t.Parallel() // it mostly waits
	k := harness.Kfake(t)
	w := newWorld(t, surroundings{kafka: k})
	closed := k.Topic(t, 1)
	var denied atomic.Bool
	denied.Store(true)
	k.Fake.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.Fake.KeepControl()
		produce, ok := req.(*kmsg.ProduceRequest)
		if !ok || !denied.Load() {
			return nil, nil, false
		}
		return deny(produce, closed)
	})
	p := w.run().streaming()
	load := w.write(steady())
	load.wrote(100, 30*time.Second)
	w.insertNow(closed, "k", 3, 10)
	p.Await(20*time.Second, "parked", closed, "not authorized", "grant WRITE")
	w.becomes(w.insertNow(w.topic, "k", 1, 10)[0], history.Sent, 10*time.Second)
	denied.Store(false)
	w.recoveredSince(time.Now(), closed)
	load.stop()
	w.settled(20 * time.Second)
	p.stop()
	w.judge(history.Rules{}, w.topic, closed)
	if n := harness.One[int](t, w.db, `SELECT count(*) FROM outbox WHERE attempts > 0`); n > 0 {
		t.Errorf("the ACL was charged to %d rows", n)
	}
}

// deny answers a request in which the topic is. What is for other topics in it is
// to be tried again: kfake takes a request as a whole.
func deny(req *kmsg.ProduceRequest, topic string) (kmsg.Response, error, bool) { //nolint:revive // the order is kfake's
	if !slices.ContainsFunc(req.Topics, func(rt kmsg.ProduceRequestTopic) bool { return rt.Topic == topic }) {
		return nil, nil, false
	}
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, rt := range req.Topics {
		code := sarama.ErrNotEnoughReplicas
		if rt.Topic == topic {
			code = sarama.ErrTopicAuthorizationFailed
		}
		t := kmsg.NewProduceResponseTopic()
		t.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.ErrorCode, p.BaseOffset = rp.Partition, int16(code), -1
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp, nil, true
}
