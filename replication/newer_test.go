package replication

import (
	"reflect"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// A newer server is asked whether it has each column that our statements name. The newest known server has
// all of them.
func TestWhatANewerServerLacks(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	conn := db.Conn(t)
	version := harness.One[int](t, db, `SELECT current_setting('server_version_num')::int`) / 10_000
	look := func() State {
		t.Helper()
		in := inspection{ctx: t.Context(), pg: conn.PgConn()}
		in.newer()
		if in.err != nil {
			t.Fatal(in.err)
		}
		return in.state
	}
	whole := look()
	if version >= Newest && (len(whole.Lacking) > 0 || len(whole.Untold) > 0) {
		t.Errorf("PostgreSQL %d lacks %q, and does not tell %q", version, whole.Lacking, whole.Untold)
	}
	for _, older := range []struct {
		name  string
		since int
	}{{"pg_publication_rel.prexcept", 19}, {"pg_publication.pubgencols", 18}, {"pg_replication_slots.synced", 17}} {
		if lacks := strings.Contains(strings.Join(whole.Lacking, " "), older.name); lacks != (version < older.since) {
			t.Errorf("%s is missing: %v", older.name, lacks)
		}
	}
	for _, c := range []struct{ kind, relation, column, untold string }{
		{"VIEW", "pg_replication_slots", "safe_wal_size", "what outbox-cdc slots lists"},
		{"VIEW", "pg_replication_slots", "confirmed_flush_lsn", ""},
		{"TABLE", "pg_publication_rel", "prrelid", ""},
		{"TABLE", "pg_inherits", "inhdetachpending", "who has a table locked"},
		{"VIEW", "pg_stat_replication", "replay_lsn", "for whom limits.back_off should slow down"},
		{"VIEW", "pg_prepared_xacts", "gid", "who holds back WAL"},
	} {
		name := c.relation + "." + c.column
		rename := func(from, to string) {
			db.Exec(t, `SET allow_system_table_mods = on; ALTER `+c.kind+` pg_catalog.`+c.relation+` RENAME COLUMN `+from+` TO `+to)
		}
		rename(c.column, "another")
		now := look()
		rename("another", c.column)
		if told := strings.Contains(strings.Join(now.Lacking, " "), name); told != (c.relation != "pg_stat_replication" && c.relation != "pg_prepared_xacts") {
			t.Errorf("without %s a stream lacks %q", name, now.Lacking)
		}
		if c.untold != "" && !strings.Contains(strings.Join(now.Untold, " "), c.untold+" ("+name+")") {
			t.Errorf("without %s it is not told %q", name, now.Untold)
		}
	}
	if again := look(); !reflect.DeepEqual(again, whole) {
		t.Errorf("%+v, before %+v", again, whole)
	}
}

// If a server lacks something that a stream needs, the program does not stream from it and makes nothing
// there. If it only hides a fact, there is a warning.
func TestANewerServerIsJudged(t *testing.T) {
	t.Parallel()
	cfg := Config{Slot: "s", Publication: "p"}
	s := State{Version: 200_001, WALLevel: "logical", Plugins: plugin, Lacking: []string{"pg_publication_rel.prexcept"}}
	v := Judge(&s, &cfg, Identity{SystemID: "1", Publication: "2 3"})
	const reason = "PostgreSQL 20.1 is newer than 19, the newest that this outbox-cdc knows, and has no pg_publication_rel.prexcept"
	if v.Sound || v.Cause != outbox.CauseSlot || v.Reason != reason || v.Slot != Keep || v.Publication != Keep || v.Lost != nil ||
		v.Err == nil || !v.Err.Permanent || !strings.Contains(v.Err.Error(), "install a newer outbox-cdc") {
		t.Errorf("%+v", v)
	}
	s.Lacking, s.Untold = nil, []string{"who holds back WAL (pg_locks.mode)"}
	v = Judge(&s, &cfg, Identity{})
	if v.Err != nil || len(v.Warnings) != 1 || !strings.Contains(v.Warnings[0], "does not tell who holds back WAL (pg_locks.mode)") {
		t.Errorf("%+v", v)
	}
}
