package preflight

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/platform"
	"github.com/outbox-cdc/outbox-cdc/internal/shedlock"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// sound returns the facts of a sound stream: no check has a finding.
func sound() *Facts {
	table := native()
	yes := true
	columns := []Column{
		{"id", "bigint", true},
		{"event_id", "uuid", true},
		{"topic", "text", true},
		{"key", "text", false},
		{"payload", "bytea", false},
		{"headers", "jsonb", false},
		{"available_after", "timestamp with time zone", false},
		{"created_at", "timestamp with time zone", true},
		{"status", "text", true},
		{"sent_at", "timestamp with time zone", false},
		{"attempts", "integer", true},
		{"last_error", "text", false},
	}
	var mapped []mapping.Column
	for _, c := range columns {
		mapped = append(mapped, mapping.Column{Name: c.Name})
	}
	settings := map[string]Setting{}
	for name, value := range map[string]string{
		"max_replication_slots": "10", "max_wal_senders": "10", "max_connections": "100", "superuser_reserved_connections": "3",
		"max_slot_wal_keep_size": "16384", "synchronous_commit": "on", "track_commit_timestamp": "off", "synchronized_standby_slots": "",
	} {
		settings[name] = Setting{Value: value}
	}
	settings["wal_sender_timeout"] = Setting{"60000", "ms"}
	settings["idle_replication_slot_timeout"] = Setting{"0", "s"}
	ok := sink.NoError
	all := int32(1<<uint(mayWrite) | 1<<uint(mayRead) | 1<<uint(mayDescribeConfigs))
	cfg := replication.Config{
		Name: "outbox-cdc/orders@host", Slot: "outbox_cdc_orders", Publication: "outbox_cdc_orders",
		Tables: []*outbox.Table{table}, SenderTimeout: 4 * time.Second,
	}
	return &Facts{
		Stream: &Stream{Name: "orders", Tables: []Table{{Table: table, Native: true}}, WALBudget: 8 << 30, PoolConnections: 7, Replication: cfg},
		Table: Session{User: "cdc", Prepares: true, Role: &Role{
			User: "cdc", ConnectionLimit: -1, Schema: &yes, Ours: []string{"leader", "park"}, Tables: []string{"public.outbox"},
		}},
		Streaming: Session{User: "stream", Holds: true, SenderTimeout: "4s", Role: &Role{User: "stream", Replication: true, ConnectionLimit: -1}},
		Server:    &Server{Settings: settings, Encoding: "UTF8", Slots: 1, Senders: 1, Connections: 20},
		State: &replication.State{
			SystemID: "7", Timeline: 1, Version: 180_004, WALLevel: "logical", Plugins: "pgoutput", Database: "app", Insert: 0x2000, Schema: true,
			Slot: replication.Slot{
				Exists: true, Plugin: "pgoutput", Type: "logical", Database: "app", WALStatus: "reserved", Confirmed: 0x1000, Restart: 0x1000,
			},
			Publication: replication.Publication{Exists: true, Insert: true, ViaRoot: true, Ours: true, Mark: "1 1"},
			Tables:      []replication.TableState{{Table: table, Exists: true, Kind: "r", Published: true}},
		},
		Retained: &replication.Retained{Insert: 0x2000, Restart: 0x1000, Confirmed: 0x1000, Status: "reserved", Safe: -1},
		Leader:   &replication.Holder{},
		Tables: []TableFacts{{
			Table: Table{Table: table, Native: true}, Inspection: &Inspection{Table: table, Columns: mapped},
			Catalogue: &Catalogue{
				Key: []string{"id"}, Columns: columns,
				StatusRules: []string{"CHECK ((status = ANY (ARRAY['PENDING'::text, 'SENT'::text, 'FAILED'::text])))"},
			},
			Details: &Details{
				Owner: "app", Identity: "d", HasKey: true, Privileges: []string{"SELECT"}, Options: []string{"fillfactor=80"},
				Updatable:     []string{"status", "sent_at", "attempts", "last_error"},
				StatusIndexes: []Index{{Name: "outbox_pending", Partial: true}},
			},
			Backlog: &tablesql.Backlog{Rows: 3, Oldest: 2, Largest: 1000}, Topics: map[string][]string{"main": {"orders"}},
			States: []string{"PENDING", "SENT"}, Missing: map[string]string{},
		}},
		Kafka: []ClusterFacts{{
			Name: "main", TransactionalID: "outbox-cdc-orders-main", Bootstrap: "kafka-1:9092", Principal: "cdc", BatchBytes: 1_000_000,
			Brokers:        []BrokerFacts{{Address: "kafka-1:9092", ID: -1}, {Address: "kafka-2:9092", ID: 2}},
			ProduceVersion: 9, Idempotent: &ok, Transactional: &ok,
			Topics: []TopicFacts{{
				Topic:    sink.Topic{Name: "orders", Partitions: 6, Replicas: 3, InSync: 3, Operations: all, OperationsKnown: true},
				Settings: map[string]string{"max.message.bytes": "1048588", "min.insync.replicas": "2", "cleanup.policy": "delete"},
			}},
		}},
		Missing: map[string]string{},
	}
}

// times are those of records, on a topic with a bound.
func times(before, kind string) func(f *Facts) {
	return func(f *Facts) {
		f.Tables[0].Table.Mapping.Timestamp = "created_at"
		s := f.Kafka[0].Topics[0].Settings
		s["message.timestamp.type"], s["message.timestamp.before.max.ms"], s["message.timestamp.after.max.ms"] = kind, before, "3600000"
	}
}

func TestNothingIsSaidOfWhatIsSound(t *testing.T) {
	for _, f := range Judge(sound()) {
		if f.Level != OK && f.Check != "shedlock" && f.Check != "slot-creation" {
			t.Errorf("%+v", f)
		}
	}
}

func cloudNativePG(f *Facts) {
	f.Server.Signs = platform.Signs{Roles: []string{"streaming_replica"}, CloudNativePG: true}
}

func setting(name, value string) func(*Facts) {
	return func(f *Facts) {
		s := f.Server.Settings[name]
		s.Value = value
		f.Server.Settings[name] = s
	}
}

func topic(change func(*TopicFacts)) func(*Facts) {
	return func(f *Facts) { change(&f.Kafka[0].Topics[0]) }
}

func catalogue(change func(*Catalogue)) func(*Facts) {
	return func(f *Facts) { change(f.Tables[0].Catalogue) }
}

func details(change func(*Details)) func(*Facts) {
	return func(f *Facts) { change(f.Tables[0].Details) }
}

// archiving gives the table an archive, and changes its catalogue entries.
func archiving(change func(*Catalogue)) func(*Facts) {
	return func(f *Facts) {
		m := &f.Tables[0].Table.Mapping
		m.Published, m.Archive = outbox.PublishedArchive, outbox.ArchiveTable{Schema: "old", Name: "archive"}
		change(f.Tables[0].Catalogue)
	}
}

func answer(code sink.Code) *sink.Code { return &code }

// In each case one thing is wrong with a sound stream. The finding has its level, the numbers and what fixes
// it.
func TestJudgments(t *testing.T) {
	standby := func(f *Facts) { f.Server.PhysicalSlots, f.Server.Standbys = []string{"standby1"}, 1 }
	for name, c := range map[string]struct {
		check  string
		level  Level
		change func(*Facts)
		want   []string
	}{
		"no connection":  {"connection", Fail, func(f *Facts) { f.Table = Session{User: "cdc", Err: errors.New("refused"), Hint: "start it"} }, []string{"cannot connect as the role that reads and marks: refused", "start it"}},
		"no replication": {"connection", Fail, func(f *Facts) { f.Streaming = Session{User: "s", Err: errors.New("no"), Hint: "x"} }, []string{"the role that streams: no"}},
		"old server":     {"server-version", Fail, func(f *Facts) { f.State.Version = 130_005 }, []string{"13.5", "PostgreSQL 14"}},
		"new server":     {"server-version", Warn, func(f *Facts) { f.State.Version = 200_000 }, []string{"20.0"}},
		"lacking":        {"wal-level", Fail, func(f *Facts) { f.State.Version, f.State.Lacking = 200_000, []string{"pg_locks.mode"} }, []string{"has no pg_locks.mode", "newer outbox-cdc"}},
		"untold":         {"server-version", Warn, func(f *Facts) { f.State.Version, f.State.Untold = 200_000, []string{"who waits (pg_locks.mode)"} }, []string{"does not tell who waits (pg_locks.mode)"}},
		"no encoding":    {"encoding", Warn, func(f *Facts) { f.Server.Encoding = "SQL_ASCII" }, []string{"valid UTF-8", "pg_dump"}},
		"mixed encoding": {"encoding", Fail, func(f *Facts) { f.Server.Encoding = "MULE_INTERNAL" }, []string{"MULE_INTERNAL", "pg_dump"}},
		"standby":        {"primary", Fail, func(f *Facts) { f.State.InRecovery = true }, []string{"target_session_attrs=read-write"}},
		"paused":         {"paused", Warn, func(f *Facts) { f.Paused = []outbox.Park{{Scope: outbox.StreamScope(), Reason: "paused by me"}} }, []string{"paused by me", "outbox-cdc resume --stream orders"}},
		"paused table": {"paused", Warn, func(f *Facts) {
			f.Paused = []outbox.Park{{Scope: outbox.Scope{Kind: outbox.ScopeTable, Table: "public.old"}}}
		}, []string{"outbox-cdc resume --stream orders --table public.old"}},
		"first slot": {"wal-level", OK, func(f *Facts) { f.State.WALLevel, f.State.EffectiveLevel = "replica", "replica" }, []string{"the first logical slot raises effective_wal_level", "without a restart"}},
		"forbidden":  {"wal-level", Fail, func(f *Facts) { f.State.WALLevel, f.State.EffectiveLevel = "minimal", "minimal" }, []string{"wal_level is minimal", "ALTER SYSTEM SET wal_level = 'logical'"}},
		"raised":     {"wal-level", OK, func(f *Facts) { f.State.WALLevel, f.State.EffectiveLevel = "replica", "logical" }, []string{"effective_wal_level is logical while there is a logical slot"}},
		"wal_level":  {"wal-level", Fail, func(f *Facts) { f.State.WALLevel = "replica" }, []string{"ALTER SYSTEM SET wal_level = 'logical';", "restart"}},
		"plugin":     {"wal-level", Fail, func(f *Facts) { f.State.Plugins = "test_decoding" }, []string{"output_plugin_libraries is 'test_decoding'", `ALTER SYSTEM SET output_plugin_libraries = pgoutput, "test_decoding"; SELECT pg_reload_conf();`}},
		"slots full": {"replication-slots", Fail, func(f *Facts) {
			f.Server.Slots, f.State.Slot, f.Server.IdleSlots = 10, replication.Slot{}, []string{"o'ld"}
		}, []string{"10 of 10", "pg_drop_replication_slot('o''ld')", "max_replication_slots = 15"}},
		"slots full of us": {"replication-slots", Warn, func(f *Facts) { f.Server.Slots = 10 }, []string{"max_replication_slots = 15"}},
		"senders full":     {"wal-senders", Fail, func(f *Facts) { f.Server.Senders = 10 }, []string{"10 of 10", "max_wal_senders = 15"}},
		"one sender":       {"wal-senders", Warn, func(f *Facts) { f.Server.Senders = 9 }, []string{"none for a standby"}},
		"full with leader": {"wal-senders", Warn, func(f *Facts) { f.Server.Senders, f.Leader = 10, &replication.Holder{PID: "1"} }, []string{"none for a standby"}},
		"connections full": {"connections", Fail, func(f *Facts) { f.Server.Connections = 98 }, []string{"98 of 100", "max_connections = 150"}},
		"connections few":  {"connections", Warn, func(f *Facts) { f.Server.Connections = 94 }, []string{"mark.connections"}},
		"connection limit": {"connections", Warn, func(f *Facts) { f.Table.Role.ConnectionLimit = 2 }, []string{"it may have 2 connections", `ALTER ROLE "cdc" CONNECTION LIMIT 14;`}},
		"keep size unset":  {"wal-keep-size", Warn, setting("max_slot_wal_keep_size", "-1"), []string{"not set", "8 GiB", "max_slot_wal_keep_size = '10241MB'"}},
		"keep size small":  {"wal-keep-size", Warn, setting("max_slot_wal_keep_size", "1024"), []string{"1 GiB", "wal_budget: 768MiB"}},
		"sender timeout":   {"wal-sender-timeout", Fail, func(f *Facts) { f.Streaming.SenderTimeout = "1min" }, []string{"though we set 4s", "postgres.replication_dsn"}},
		"long timeout":     {"wal-sender-timeout", Warn, func(f *Facts) { f.Streaming.SenderTimeout, f.Stream.Replication.SenderTimeout = "5min", 5*time.Minute }, []string{"wal_sender_timeout: 4s"}},
		"idle timeout":     {"idle-slot-timeout", Warn, setting("idle_replication_slot_timeout", "600"), []string{"10m0s", "idle_replication_slot_timeout = 0"}},
		"idle timeout, no state": {"idle-slot-timeout", Fail, func(f *Facts) {
			f.Server.Settings["idle_replication_slot_timeout"] = Setting{"864000", "s"}
			f.Tables[0].Table.Mapping.Published = outbox.PublishedNone
		}, []string{"rows of tables without state are lost", "idle_replication_slot_timeout = 0"}},
		"sync is us": {"sync-replication", Warn, func(f *Facts) { f.State.SyncStandbys = "*" }, []string{"counts outbox-cdc itself"}},
		"sync alone": {"sync-replication", Warn, func(f *Facts) { f.State.SyncStandbys, f.Server.Superuser = "ghost", true }, []string{"no standby is connected"}},
		"sync":       {"sync-replication", OK, func(f *Facts) { f.State.SyncStandbys, f.Server.Standbys = "a", 1 }, []string{"before its row can be read"}},
		"sync is us, CloudNativePG": {"sync-replication", Warn, func(f *Facts) {
			cloudNativePG(f)
			f.State.SyncStandbys = "*"
		}, []string{"in the Cluster: spec.postgresql.synchronous"}},
		"slot not kept": {"failover-slot", Warn, standby, []string{"failover_slot: true", `ALTER_REPLICATION_SLOT "outbox_cdc_orders" (FAILOVER true)`, "sync_replication_slots = on"}},
		"kept by Patroni": {"failover-slot", Skip, func(f *Facts) {
			standby(f)
			f.Server.Signs.CommandLine = []string{"cluster_name", "max_locks_per_transaction"}
		}, []string{"where slots of the dynamic configuration names it"}},
		"kept before 17":    {"failover-slot", Warn, func(f *Facts) { f.State.Version, f.Stream.Replication.Failover = 160_000, true }, []string{"before 17"}},
		"kept, not made so": {"failover-slot", Warn, func(f *Facts) { f.Stream.Replication.Failover = true }, []string{"was made without it"}},
		"kept, overtaking": {"failover-slot", Warn, func(f *Facts) {
			standby(f)
			f.Stream.Replication.Failover, f.State.Slot.Failover = true, true
		}, []string{"synchronized_standby_slots is empty", "= 'standby1'"}},
		"kept, overtaking, CloudNativePG": {"failover-slot", Warn, func(f *Facts) {
			standby(f)
			cloudNativePG(f)
			f.Stream.Replication.Failover, f.State.Slot.Failover = true, true
		}, []string{"CloudNativePG sets synchronized_standby_slots to all other instances"}},
		"kept, overtaking, Patroni": {"failover-slot", Warn, func(f *Facts) {
			standby(f)
			f.Server.Signs.CommandLine = []string{"cluster_name", "max_locks_per_transaction"}
			f.Stream.Replication.Failover, f.State.Slot.Failover = true, true
		}, []string{"in each member's patroni.yml"}},
		"kept, ghost": {"failover-slot", Fail, func(f *Facts) {
			f.Stream.Replication.Failover, f.State.Slot.Failover = true, true
			setting("synchronized_standby_slots", "ghost")(f)
		}, []string{"waits for it for ever", "pg_create_physical_replication_slot('ghost')"}},
		"kept, standby away": {"failover-slot", Fail, func(f *Facts) {
			standby(f)
			f.Server.IdlePhysicalSlots = []string{"standby1"}
			f.Stream.Replication.Failover, f.State.Slot.Failover = true, true
			setting("synchronized_standby_slots", "standby1")(f)
		}, []string{"no standby uses it now", "primary_slot_name = 'standby1'"}},
		"clock":            {"clock", Warn, func(f *Facts) { f.Server.Ahead = -3 * time.Second }, []string{"3s behind", "NTP"}},
		"lock lost":        {"pooler", Fail, func(f *Facts) { f.Streaming.Holds = false }, []string{"a pooler in transaction mode", "PgBouncer 1.23"}},
		"pooled statement": {"pooler", Fail, func(f *Facts) { f.Table.Pooled, f.Table.Wandering = true, true }, []string{"default_query_exec_mode=exec"}},

		"no slot":        {"slot", Warn, func(f *Facts) { f.State.Slot = replication.Slot{} }, []string{"outbox-cdc init --stream orders"}},
		"foreign slot":   {"slot", Fail, func(f *Facts) { f.State.Slot.Plugin = "wal2json" }, []string{"wal2json", "another slot name"}},
		"two_phase":      {"slot", Fail, func(f *Facts) { f.State.Slot.TwoPhase = true }, []string{"two_phase"}},
		"other database": {"slot", Fail, func(f *Facts) { f.State.Slot.Database = "other" }, []string{"database other"}},
		"lost slot":      {"slot", Warn, func(f *Facts) { f.State.Slot.WALStatus = "lost" }, []string{"max_slot_wal_keep_size", "pg_drop_replication_slot('outbox_cdc_orders')"}},
		"other reader": {"slot", Fail, func(f *Facts) {
			f.State.Slot.Active, f.State.Slot.ActivePID, f.Server.Holder = true, "77", "process 77 debezium"
		}, []string{"process 77 debezium", "pg_terminate_backend(77)"}},
		"our leader": {"slot", OK, func(f *Facts) {
			f.State.Slot.Active, f.Leader.PID, f.Server.Holder = true, "77", "process 77 outbox-cdc"
		}, []string{"read by the leader: process 77"}},
		"foreign holder": {"leadership-lock", Fail, func(f *Facts) {
			f.Leader = &replication.Holder{PID: "77", Name: "psql", Role: "reader", Foreign: true}
		}, []string{"role reader holds the leadership lock", "psql", "pg_terminate_backend(77)"}},
		"leader holds":            {"leadership-lock", OK, func(f *Facts) { f.Leader = &replication.Holder{PID: "77", Name: "outbox-cdc/orders@there"} }, []string{"outbox-cdc/orders@there"}},
		"much WAL":                {"slot-wal", Warn, func(f *Facts) { f.Retained.Insert = 7 << 30 }, []string{"7.0 GiB", "budget is 8 GiB"}},
		"near the server's limit": {"slot-wal", Warn, func(f *Facts) { f.Retained.Insert, f.Retained.Safe = 54<<20, 16<<20 }, []string{"budget is 8 GiB", "the server drops it after 16 MiB more"}},
		"held by others": {"slot-wal", Warn, func(f *Facts) {
			f.Retained.Insert, f.Retained.Confirmed, f.Blockers = 7<<30, 7<<30, []replication.Blocker{{PID: "9", User: "app", Database: "other", Seconds: 900}}
		}, []string{"an open transaction holds it", "process 9 app other", "pg_terminate_backend(9)"}},
		"unreserved":           {"slot-wal", Fail, func(f *Facts) { f.Retained.Status, f.Retained.Safe = "unreserved", 0 }, []string{"next checkpoint"}},
		"no slot by wal_level": {"slot", Skip, func(f *Facts) { f.State.Slot, f.State.WALLevel = replication.Slot{}, "replica" }, []string{"see the check wal-level", "swept"}},
		"blocked": {"slot-creation", Warn, func(f *Facts) {
			f.State.Slot = replication.Slot{}
			f.Blockers = []replication.Blocker{{PID: "9", User: "app", Seconds: 90}, {Prepared: "g1", User: "app"}, {PID: "10", Seconds: 1}}
		}, []string{"2 transactions keep", "pg_terminate_backend(9)", "g1"}},
		"no publication": {"publication", Fail, func(f *Facts) { f.State.Publication = replication.Publication{} }, []string{"outbox-cdc init"}},
		"no inserts":     {"publication", Fail, func(f *Facts) { f.State.Publication.Insert = false }, []string{`ALTER PUBLICATION "outbox_cdc_orders" SET (publish = 'insert');`}},
		"updates":        {"publication", Warn, func(f *Facts) { f.State.Publication.Update = true }, []string{"more than inserts"}},
		"all tables":     {"publication", Warn, func(f *Facts) { f.State.Publication.AllTables = true }, []string{"FOR ALL TABLES"}},
		"not published":  {"publication-tables", Fail, func(f *Facts) { f.State.Tables[0].Published = false }, []string{"lacks table", `ADD TABLE "public"."outbox"`}},
		"partitions": {"publication-tables", Fail, func(f *Facts) {
			f.State.Tables[0].Kind, f.State.Tables[0].PublishedPartitions, f.State.Publication.ViaRoot = "p", 3, false
		}, []string{"publish_via_partition_root = true"}},
		"column list":     {"publication-tables", Fail, func(f *Facts) { f.State.Tables[0].Columns = []string{"id", "topic"} }, []string{"lacks columns", "payload", "headers", `SET TABLE "public"."outbox"`}},
		"row filter":      {"row-filter", Warn, func(f *Facts) { f.State.Tables[0].RowFilter = "(id > 5)" }, []string{"WHERE (id > 5); PostgreSQL lets nobody drop a column of it", "SET TABLE"}},
		"filter of rows":  {"row-filter", OK, func(f *Facts) { ofRows(f, "(topic = 'orders'::text)") }, []string{"only our rows", "drop a column of it"}},
		"rows unfiltered": {"row-filter", OK, func(f *Facts) { ofRows(f, "") }, []string{"are dropped here", "WHERE (\"topic\" = 'orders'::text)"}},
		"rows of a type of users": {"row-filter", OK, func(f *Facts) {
			ofRows(f, "")
			f.State.Tables[0].Types = nil
		}, []string{"are dropped here", "no types or collations of users"}},
		"rows and updates": {"row-filter", OK, func(f *Facts) {
			ofRows(f, "")
			f.State.Tables[0].Types, f.State.Publication.Update = nil, true
		}, []string{"more than inserts"}},
		"another filter of rows": {"row-filter", Warn, func(f *Facts) { ofRows(f, "(topic = 'bills'::text)") }, []string{
			"WHERE (topic = 'bills'::text), not WHERE (\"topic\" = 'orders'::text);", `SET TABLE "public"."outbox" WHERE (("topic" = 'orders'::text))`,
		}},
		"filter and no state": {"row-filter", Fail, func(f *Facts) {
			f.State.Tables[0].RowFilter = "x"
			f.Tables[0].Table.Mapping.Published = outbox.PublishedNone
		}, nil},

		"share": {"row-filter", OK, func(f *Facts) { shared(f, 1, 2) }, []string{"part 1 of 2", "drop a column of it"}},
		"column gone": {"publication-tables", Skip, func(f *Facts) {
			f.State.Tables[0].Columns = []string{"id", "topic"}
			f.Tables[0].Inspection.Findings = []TableFinding{{Fatal: true, About: AboutColumn, Problem: "column headers does not exist", Hint: "create it"}}
		}, []string{"see the check columns"}},
		"another's share": {"publication-tables", Fail, func(f *Facts) {
			shared(f, 1, 2)
			f.State.Tables[0].RowFilter = other(f.Tables[0].Table.Table, 2)
		}, []string{"not part 1 of 2", "SET TABLE \"public\".\"outbox\" WHERE ("}},
		"all shares":     {"share", OK, func(f *Facts) { shared(f, 1, 2, 1, 2) }, []string{"each of the others"}},
		"a part is lost": {"share", Warn, func(f *Facts) { shared(f, 1, 3, 1, 2) }, []string{"no publication passes part 3 of 3"}},
		"a part twice":   {"share", Warn, func(f *Facts) { shared(f, 1, 2, 1, 2, 2) }, []string{"part 2 of 2 is published by publication p1", "publication p2"}},
		"split otherwise": {"share", Warn, func(f *Facts) {
			shared(f, 1, 2, 1, 2)
			f.Tables[0].Details.RowFilters = append(f.Tables[0].Details.RowFilters, RowFilter{"old", "(((hash_array(ARRAY[key]) & 2147483647) % 3) = 0)"})
		}, []string{"in another way by publication old"}},
		"whole next to a part": {"share", Warn, func(f *Facts) {
			f.Tables[0].Details.RowFilters = []RowFilter{{"old", "(((hash_array(ARRAY[key]) & 2147483647) % 2) = 0)"}}
		}, []string{"every row", "publication old"}},

		"any topic": {"topic-allow", Warn, func(f *Facts) { f.Tables[0].Table.Mapping.TopicAllow = nil }, []string{"chooses the topic", "topic: {column: topic, allow: ["}},
		"topics that begin alike": {"topic-allow", OK, func(f *Facts) {
			m := &f.Tables[0].Table.Mapping
			m.TopicAllow, m.Topic.Literals = nil, []string{"outbox.event.", ""}
		}, []string{"begins with outbox.event."}},
		"no WAL limit, no state": {"wal-keep-size", Fail, func(f *Facts) {
			f.Server.Settings["max_slot_wal_keep_size"] = Setting{Value: "-1"}
			f.Tables[0].Table.Mapping.Published = outbox.PublishedNone
		}, []string{"one row that cannot become a record", "ALTER SYSTEM SET max_slot_wal_keep_size", "published: status or delete"}},

		"no schema":       {"schema", Fail, func(f *Facts) { f.Table.Role.Schema, f.Table.Role.Ours = nil, nil }, []string{"outbox-cdc init"}},
		"schema refused":  {"schema", Fail, func(f *Facts) { f.Table.Role.Lacking = []string{"park: DELETE"} }, []string{"park: DELETE", `ON outbox_cdc.leader, outbox_cdc.park TO "cdc";`}},
		"no REPLICATION":  {"streaming-role", Fail, func(f *Facts) { f.Streaming.Role.Replication = false }, []string{`ALTER ROLE "stream" REPLICATION;`}},
		"one role":        {"streaming-role", Warn, func(f *Facts) { f.Streaming.Role.User = "cdc" }, []string{"postgres.replication_dsn"}},
		"stream reads":    {"streaming-role", Warn, func(f *Facts) { f.Streaming.Role.Tables = []string{"public.outbox"} }, []string{`REVOKE ALL ON "public"."outbox" FROM "stream";`}},
		"stream superior": {"streaming-role", Warn, func(f *Facts) { f.Streaming.Role.Superuser = true }, []string{"superuser"}},
		"cannot mark": {"table-privileges", Fail, func(f *Facts) {
			f.Tables[0].Inspection.Findings = []TableFinding{{Fatal: true, About: AboutPrivilege, Problem: `UPDATE is missing on "status"`, Hint: "GRANT UPDATE"}}
		}, []string{"GRANT UPDATE;"}},
		"superuser":    {"least-privilege", Warn, func(f *Facts) { f.Table.Role.Superuser = true }, []string{"superuser"}},
		"REPLICATION":  {"least-privilege", Warn, func(f *Facts) { f.Table.Role.Replication = true }, []string{"NOREPLICATION"}},
		"owner":        {"least-privilege", Warn, details(func(d *Details) { d.Owned = true }), []string{"owns it"}},
		"DELETE":       {"least-privilege", Warn, details(func(d *Details) { d.Privileges = []string{"SELECT", "DELETE"} }), []string{`REVOKE DELETE ON "public"."outbox" FROM "cdc";`}},
		"UPDATE":       {"least-privilege", Warn, details(func(d *Details) { d.Updatable = append(d.Updatable, "payload") }), []string{`REVOKE UPDATE ("payload")`}},
		"UPDATE whole": {"least-privilege", Warn, details(func(d *Details) { d.Updatable, d.Privileges = append(d.Updatable, "payload"), []string{"UPDATE"} }), []string{`GRANT UPDATE ("attempts", "last_error", "sent_at", "status")`}},

		"no table":   {"table", Fail, func(f *Facts) { f.Tables[0].Gone, f.Tables[0].Inspection = "does not exist: create it", nil }, []string{"init --native-table"}},
		"renamed":    {"table", Fail, func(f *Facts) { f.Tables[0].Gone, f.Tables[0].Renamed = "does not exist: create it", "app.outbox_old" }, []string{"is called app.outbox_old now", "table: app.outbox_old"}},
		"not looked": {"table", Skip, func(f *Facts) { f.Tables[0].Inspection, f.Tables[0].Missing["table"] = nil, "no answer within 10s" }, []string{"could not look: no answer"}},
		"unlogged": {"table", Fail, func(f *Facts) {
			f.Tables[0].Inspection.Findings = []TableFinding{{Fatal: true, About: AboutKind, Problem: "unlogged", Hint: "SET LOGGED"}}
		}, []string{"SET LOGGED;"}},
		"no index": {"sweep-index", Warn, func(f *Facts) {
			f.Tables[0].Inspection.Findings = []TableFinding{{About: AboutIndex, Problem: "no index serves the sweep", Hint: "CREATE INDEX"}}
			f.Tables[0].Details.BrokenIndexes = []string{"half"}
		}, []string{`DROP INDEX CONCURRENTLY "public"."half"`, "CREATE INDEX;"}},
		"whole index":  {"status-index", Warn, details(func(d *Details) { d.StatusIndexes = []Index{{Name: "by_status"}}; d.Updates = 10 }), []string{"by_status", "0% of 10 updates", "DROP INDEX CONCURRENTLY"}},
		"fillfactor":   {"status-index", Warn, details(func(d *Details) { d.StatusIndexes, d.Options = nil, nil }), []string{"fillfactor is 100", "SET (fillfactor = 80)"}},
		"dead rows":    {"vacuum", Warn, details(func(d *Details) { d.Dead, d.Rows = 300_000, 1000 }), []string{"300000 dead rows", "VACUUM"}},
		"row security": {"row-security", Fail, catalogue(func(c *Catalogue) { c.RowSecurity, c.RowsHidden = true, true }), []string{"BYPASSRLS"}},
		"rows to move": {"default-partition", Warn, func(f *Facts) {
			f.Tables[0].Table.Mapping.Published = outbox.PublishedNone
			f.Tables[0].Details.Defaults = []string{"outbox_rest"}
		}, []string{"rows of outbox_rest", "ahead of their rows"}},
		"rows to move, with a status": {"default-partition", OK, details(func(d *Details) { d.Defaults = []string{"outbox_rest"} }), nil},
		"completed":                   {"changes", Warn, details(func(d *Details) { d.Completing = []Trigger{{"enrich", "enrich_it", false}} }), []string{"enrich (enrich_it)", "look_first: true"}},
		"trigger":                     {"triggers", Warn, details(func(d *Details) { d.Triggers = []Trigger{{"audit", "log_it", false}} }), []string{"audit (log_it)", `DISABLE TRIGGER "audit"`, `ALTER FUNCTION log_it() SET search_path = "public"`}},
		"no identity":                 {"replica-identity", Fail, details(func(d *Details) { d.UpdatePubs, d.HasKey = []string{"dbz"}, false }), []string{`ALTER PUBLICATION "dbz" SET (publish = 'insert');`}},
		"full identity":               {"replica-identity", Warn, details(func(d *Details) { d.UpdatePubs, d.Identity = []string{"dbz"}, "f" }), []string{"REPLICA IDENTITY DEFAULT"}},
		"no order":                    {"order", Warn, func(f *Facts) { f.Tables[0].Table.Mapping.Order = nil }, []string{"order: [created_at]"}},
		"tied order":                  {"order", Warn, func(f *Facts) { f.Tables[0].Tied = true }, []string{"ADD position bigint GENERATED ALWAYS AS IDENTITY"}},
		"ties by the id":              {"order", OK, func(f *Facts) { f.Tables[0].Inspection.Rising = "id" }, nil},
		"null order":                  {"order", Warn, catalogue(func(c *Catalogue) { c.Columns[0].NotNull = false }), []string{`ALTER "id" SET NOT NULL`}},
		"other words": {"status-values", Fail, catalogue(func(c *Catalogue) {
			c.StatusRules = []string{"CHECK ((status = ANY (ARRAY['NEW'::text, 'SENT'::text, 'DEAD'::text])))"}
		}), []string{"can never be PENDING", "status: {pending: [NEW], sent: SENT, failed: DEAD}"}},
		"archive's words": {"status-values", Fail, archiving(func(c *Catalogue) {
			c.StatusRules = []string{"CHECK ((status = ANY (ARRAY['PENDING'::text, 'FAILED'::text])))"}
			c.ArchiveRules = c.StatusRules
		}), []string{"column \"status\" of the archive old.archive cannot be SENT", `ALTER TABLE "old"."archive" DROP CONSTRAINT`}},
		"archive's enum": {"status-values", Fail, archiving(func(c *Catalogue) {
			c.StatusRules, c.StatusLabels = nil, []string{"PENDING", "DONE", "FAILED"}
		}), []string{"cannot be SENT", "sent: DONE"}},
		"archive without words": {"status-values", OK, archiving(func(c *Catalogue) {
			c.StatusRules = []string{"CHECK ((status = ANY (ARRAY['PENDING'::text, 'FAILED'::text])))"}
		}), nil},
		"another relay has rows": {"status-values", OK, func(f *Facts) {
			f.Tables[0].Table.Mapping.Status.Processing, f.Tables[0].States = "PROCESSING", []string{"PENDING", "PROCESSING"}
		}, []string{"rows have"}},
		"strangers":   {"status-values", Warn, func(f *Facts) { f.Tables[0].States = []string{"OPEN", "DONE"}; f.Tables[0].Catalogue.StatusRules = nil }, []string{"OPEN, DONE", "pending: [OPEN], sent: DONE"}},
		"archived":    {"status-values", OK, func(f *Facts) { f.Tables[0].States = []string{"SENT", "ARCHIVED"} }, []string{"ARCHIVED", "left alone"}},
		"old backlog": {"backlog", Warn, func(f *Facts) { f.Tables[0].Backlog = &tablesql.Backlog{Rows: 100_000, More: true, Oldest: 3 * 86400} }, []string{"more than 100000 rows wait", "3 days"}},
		"lock refused": {"shedlock", Fail, func(f *Facts) {
			f.Tables[0].Locks = []LockFacts{{Refused: true, Err: errors.New("role cdc may not use it: GRANT A; GRANT B")}}
		}, []string{"GRANT A\nGRANT B"}},
		"lock strange": {"shedlock", Fail, func(f *Facts) {
			f.Tables[0].Locks = []LockFacts{{Sight: shedlock.Sight{Suspicion: "held for ever: set it"}}}
		}, []string{"held for ever", "set it"}},
		"lock zoned": {"shedlock", Warn, func(f *Facts) { f.Tables[0].Locks = []LockFacts{{Sight: shedlock.Sight{Zoned: true}}} }, []string{"usingDbTime"}},
		"lock held": {"shedlock", OK, func(f *Facts) {
			f.Tables[0].Locks = []LockFacts{{While: "rows are published", Sight: shedlock.Sight{Held: true, Holding: shedlock.Holding{By: "app-1", Until: time.Unix(0, 0)}}}}
		}, []string{"held by app-1 until 00:00:00 UTC"}},

		"broker gone":    {"brokers", Fail, func(f *Facts) { f.Kafka[0].Brokers[1].Err = errors.New("broker kafka-2:9092: refused") }, []string{"refused", "advertised.listeners of broker 2"}},
		"bootstrap gone": {"brokers", Warn, func(f *Facts) { f.Kafka[0].Brokers[0].Err = errors.New("refused") }, []string{"kafka.clusters.main.brokers"}},
		"wrong password": {"brokers", Fail, func(f *Facts) {
			f.Kafka[0].Brokers[1].Err, f.Kafka[0].Brokers[1].Permanent = errors.New("it refused our credentials"), true
		}, []string{"kafka.clusters.main.sasl", "--entity-name cdc"}},
		"brokers of 0.10": {"kafka-version", Fail, func(f *Facts) { f.Kafka[0].ProduceVersion = 2 }, []string{"up to version 2", "0.11"}},
		"old brokers":     {"kafka-version", OK, func(f *Facts) { f.Kafka[0].ProduceVersion = 7 }, []string{"an old protocol", "version 7", "2.8"}},
		"no transactions": {"kafka-version", OK, func(f *Facts) { f.Kafka[0].NoTransactions = "no" }, []string{"without transactions"}},
		"unfenced":        {"transactional-id", Warn, func(f *Facts) { f.Kafka[0].NoTransactions = "broker b knows none" }, []string{"broker b knows none", "fencing: off"}},
		"unfenced, required": {"transactional-id", Fail, func(f *Facts) {
			f.Kafka[0].NoTransactions, f.Kafka[0].RequireFencing = "broker b knows none", true
		}, []string{"nothing is published"}},
		"coordinator refused": {"transactional-id", Warn, func(f *Facts) { f.Kafka[0].Transactional = answer(sink.Code(42)) }, []string{"name no coordinator", "fencing: off"}},
		"forbidden, required": {"transactional-id", Fail, func(f *Facts) {
			f.Kafka[0].Transactional, f.Kafka[0].RequireFencing = answer(sink.TransactionalIDForbidden), true
		}, []string{"--transactional-id outbox-cdc-orders-main"}},
		"fencing off": {"transactional-id", Skip, func(f *Facts) { f.Kafka[0].TransactionalID = "" }, []string{"fencing: off"}},
		"no topic":    {"topics", Fail, topic(func(t *TopicFacts) { t.Err = sink.UnknownTopic }), []string{"kafka-topics.sh --bootstrap-server kafka-1:9092 --create --topic orders", "--partitions 6 --replication-factor 1"}},
		"no topic, brokers for it": {"topics", Fail, func(f *Facts) {
			topic(func(t *TopicFacts) { t.Err = sink.UnknownTopic })(f)
			f.Kafka[0].Brokers = slices.Repeat([]BrokerFacts{{Advertised: true}}, 5)
		}, []string{"--replication-factor 3 --config min.insync.replicas=2"}},
		"topic hidden":  {"topics", Fail, topic(func(t *TopicFacts) { t.Err = sink.TopicForbidden }), []string{"--allow-principal User:cdc --operation Write --topic orders"}},
		"topic illegal": {"topics", Fail, topic(func(t *TopicFacts) { t.Err = sink.InvalidTopic }), []string{"1 to 249"}},
		"no leader":     {"topics", Fail, topic(func(t *TopicFacts) { t.Leaderless = 2 }), []string{"2 of 6 partitions"}},
		"few in sync":   {"topic-replication", Fail, topic(func(t *TopicFacts) { t.InSync = 1 }), []string{"takes no records"}},
		"one replica":   {"topic-replication", Warn, topic(func(t *TopicFacts) { t.Replicas, t.InSync, t.Settings["min.insync.replicas"] = 1, 1, "1" }), []string{"lost with one disk", "min.insync.replicas=2"}},
		"one suffices":  {"topic-replication", Warn, topic(func(t *TopicFacts) { t.Settings["min.insync.replicas"] = "1" }), []string{"one broker's acknowledgement"}},
		"all required":  {"topic-replication", Warn, topic(func(t *TopicFacts) { t.Settings["min.insync.replicas"] = "3" }), []string{"min.insync.replicas=2"}},
		"one behind":    {"topic-replication", Warn, topic(func(t *TopicFacts) { t.InSync = 2 }), []string{"2 in sync"}},
		"large row":     {"message-size", Fail, func(f *Facts) { f.Tables[0].Backlog.Largest = 2 << 20 }, []string{"2 MiB", "max.message.bytes=2621952", "max_request_bytes: 2621952B"}},
		"nearly large":  {"message-size", Warn, func(f *Facts) { f.Tables[0].Backlog.Largest = 1_000_000 }, []string{"max.message.bytes=2097176"}},
		"size unknown":  {"message-size", Warn, topic(func(t *TopicFacts) { t.Settings = nil }), []string{"DescribeConfigs"}},
		"compacted":     {"compaction", Warn, topic(func(t *TopicFacts) { t.Settings["cleanup.policy"] = "compact" }), []string{`"key" SET NOT NULL`}},
		"compacted, none": {"compaction", Fail, func(f *Facts) {
			topic(func(t *TopicFacts) { t.Settings["cleanup.policy"] = "compact" })(f)
			f.Tables[0].Table.Mapping.Key = nil
		}, []string{"have no key"}},
		"older than the topic takes": {"record-times", Fail, func(f *Facts) {
			times("86400000", "CreateTime")(f)
			f.Tables[0].Backlog.Oldest = 90_000
		}, []string{"is 24h00m, and the oldest row that waits is 25h00m old", "message.timestamp.before.max.ms=9223372036854775807"}},
		"further ahead than the topic takes": {"record-times", Fail, func(f *Facts) {
			times("9223372036854775807", "CreateTime")(f)
			f.Tables[0].Newest = map[string]int64{"created_at": -7200}
		}, []string{"is 1h00m, and the newest row is 2h00m ahead"}},
		"older, but with another time": {"record-times", OK, func(f *Facts) {
			times("86400000", "CreateTime")(f)
			f.Tables[0].Backlog.Oldest, f.Tables[0].Table.Mapping.TimestampNow = 90_000, true
		}, nil},
		"older after an outage": {"record-times", Warn, times("86400000", "CreateTime"), []string{"that an outage keeps for longer waits", "timestamp_refused: now"}},
		"older than the topic keeps": {"record-times", Warn, func(f *Facts) {
			times("9223372036854775807", "CreateTime")(f)
			f.Tables[0].Backlog.Oldest = 90_000
			f.Kafka[0].Topics[0].Settings["retention.ms"] = "86400000"
		}, []string{"retention.ms is 24h00m", "is 25h00m old", "retention.ms=180000000", "message.timestamp.before.max.ms=86400000", "timestamp_refused: now"}},
		"older than the topic keeps, with another time": {"record-times", OK, func(f *Facts) {
			times("86400000", "CreateTime")(f)
			f.Tables[0].Backlog.Oldest, f.Tables[0].Table.Mapping.TimestampNow = 90_000, true
			f.Kafka[0].Topics[0].Settings["retention.ms"] = "86400000"
		}, nil},
		"older than a compacted topic": {"record-times", OK, func(f *Facts) {
			times("9223372036854775807", "CreateTime")(f)
			f.Tables[0].Backlog.Oldest = 90_000
			s := f.Kafka[0].Topics[0].Settings
			s["retention.ms"], s["cleanup.policy"] = "86400000", "compact"
		}, nil},
		"times of arrival":     {"record-times", Warn, times("86400000", "LogAppendTime"), []string{"LogAppendTime"}},
		"times that are taken": {"record-times", OK, times("9223372036854775807", "CreateTime"), nil},
		"local times":          {"times", Warn, func(f *Facts) { f.Tables[0].Newest = map[string]int64{"created_at": -7200} }, []string{"counts as UTC", "2h00m ahead", "time_zone: ", "TYPE timestamptz"}},
		"local times, west":    {"times", Warn, func(f *Facts) { f.Tables[0].Newest = map[string]int64{"created_at": 4*3600 + 3} }, []string{"counts as UTC", "4h00m ago", "time_zone: "}},
		"times of another zone": {"times", Warn, func(f *Facts) {
			f.Tables[0].Newest, f.Tables[0].Table.Mapping.Zone = map[string]int64{"created_at": -7200}, time.FixedZone("Europe/London", 0)
		}, []string{"counts as Europe/London", "2h00m ahead", "time_zone: "}},
		"times of the zone": {"times", OK, func(f *Facts) {
			f.Tables[0].Newest, f.Tables[0].Table.Mapping.Zone = map[string]int64{"created_at": 3600}, time.FixedZone("Europe/London", 0)
		}, []string{"count as Europe/London"}},
		"milliseconds as seconds": {"times", Warn, func(f *Facts) {
			f.Tables[0].Newest, f.Tables[0].Table.Mapping.Epoch = map[string]int64{"created_at": -9_223_372_036}, time.Second
			f.Tables[0].column("created_at").Type = "bigint"
		}, []string{"counts in 1s", "ahead", "epoch: s, ms or us"}},
		"seconds as milliseconds": {"times", Warn, func(f *Facts) {
			f.Tables[0].Newest, f.Tables[0].Table.Mapping.Epoch = map[string]int64{"created_at": 1_700_000_000}, time.Millisecond
			f.Tables[0].column("created_at").Type = "bigint"
		}, []string{"counts in 1ms", "ago", "epoch: s, ms or us"}},
		"times without rows":     {"times", OK, func(f *Facts) { f.Tables[0].Newest = map[string]int64{} }, nil},
		"times that are not due": {"times", OK, func(f *Facts) { f.Tables[0].Newest = map[string]int64{"created_at": 7000} }, []string{"created_at: 1h56m"}},
		"no WRITE":               {"topic-acl", Fail, topic(func(t *TopicFacts) { t.Operations = 0 }), []string{"--operation Write --topic orders"}},
		"no READ":                {"topic-acl", Warn, topic(func(t *TopicFacts) { t.Operations = 1 << uint(mayWrite) }), []string{"--operation Read"}},
		"ops unknown":            {"topic-acl", Skip, topic(func(t *TopicFacts) { t.Operations, t.OperationsKnown = math.MinInt32, false }), nil},
		"no idempotence":         {"idempotent-write", Fail, func(f *Facts) { f.Kafka[0].Idempotent = answer(sink.ClusterForbidden) }, []string{"--operation IdempotentWrite --cluster"}},
		"no fencing":             {"transactional-id", Warn, func(f *Facts) { f.Kafka[0].Transactional = answer(sink.TransactionalIDForbidden) }, []string{"--transactional-id outbox-cdc-orders-main"}},
		"no Kafka":               {"topics", Skip, func(f *Facts) { f.Kafka[0].Err = "no broker can be used" }, []string{"could not look"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := sound()
			c.change(f)
			expect(t, worst(t, Judge(f), c.check), c.level, c.want...)
		})
	}
}

// worst returns the worst finding of a check.
func worst(t *testing.T, all []Finding, check string) Finding {
	t.Helper()
	rank := map[Level]int{OK: 1, Skip: 2, Warn: 3, Fail: 4}
	var found Finding
	for _, f := range all {
		if f.Check == check && rank[f.Level] > rank[found.Level] {
			found = f
		}
	}
	if found.Check == "" {
		t.Fatalf("no finding of %s", check)
	}
	return found
}

// If nothing was seen, every check says so, and none fails because of it.
func TestNothingSeen(t *testing.T) {
	f := soundOnce()
	nothing := &Facts{
		Stream: f.Stream, Missing: map[string]string{}, Kafka: []ClusterFacts{{Name: "main", Bootstrap: "k:1", Err: "no broker can be used"}},
		Table: Session{User: "cdc", Err: errors.New("refused")}, Streaming: Session{User: "s", Err: errors.New("refused")},
	}
	for _, f := range Judge(nothing) {
		if f.Check == "transport" {
			continue // by the configuration alone
		}
		if f.Level != Skip && f.Check != "connection" || !f.Unseen {
			t.Errorf("%+v", f)
		}
	}
	for _, c := range checks() {
		if c.name != "brokers" && c.name != "transport" {
			worst(t, Judge(nothing), c.name)
		}
	}
}

func TestReportCountsClustersOnce(t *testing.T) {
	f := Judge(sound())
	r := report(time.Unix(0, 0), append(f, f...))
	brokers := 0
	for _, g := range r.Findings {
		if g.Check == "brokers" {
			brokers++
		}
	}
	if brokers != 2 || r.MustAct() || r.Incomplete() || r.Summary.OK == 0 {
		t.Errorf("%d %+v", brokers, r.Summary)
	}
}

func TestOverridesAreOneBlock(t *testing.T) {
	got := Overrides{
		{"topic.column", "a"},
		{"status.version", nil},
		{"status.pending", []string{"NEW", "it's: so"}},
		{"topic.column", "b"},
		{"order", nil},
		{"status.pending", "no"},
		{"writer.column", "w"},
		{"writer", nil},
		{"writer.until", "u"},
		{"payload.tombstone", true},
	}.Lines()
	want := []string{"topic: {column: a}", `status: {version: null, pending: [NEW, "it's: so"]}`, "order: null", "writer: null", "payload: {tombstone: true}"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestOverridesNameAllOfAPlace(t *testing.T) {
	m := outbox.Mapping{Writer: outbox.WriterMapping{Column: "w", Until: "until"}, Headers: []outbox.HeaderMapping{{Name: "a", Column: "heading", OmitNull: true}, {Name: "b", Value: "1"}, {JSON: "j"}}}
	d := differing{t: &TableFacts{Table: Table{Table: &outbox.Table{Mapping: m}}, Inspection: &Inspection{
		Columns: []mapping.Column{{Name: "untils"}, {Name: "headings"}},
	}}}
	for _, column := range []string{"w", "until", "heading", "j"} {
		d.t.Inspection.Findings = append(d.t.Inspection.Findings, TableFinding{About: AboutColumn, Column: column})
	}
	for column, want := range map[string]string{
		"w": "writer: null", "until": "writer: {until: untils}", "heading": `headers: [{name: a, column: headings, omit_null: true}, {name: b, value: "1"}]`,
	} {
		if got := d.overrides(column).Lines(); !slices.Equal(got, []string{want}) {
			t.Errorf("%q", got)
		}
	}
}

// A word may have a quote or what is an operator elsewhere.
func TestWordsOfAConstraint(t *testing.T) {
	for rule, want := range map[string][]string{
		"CHECK ((status = ANY (ARRAY['NEW'::text, 'it''s ~ NOT '::text, '" + "'" + "'" + "'::text])))": {"'", "NEW", "it's ~ NOT "},
		"CHECK ((status = 'A'::text))":                           {"A"},
		"CHECK (((status = 'A'::text) OR (status = 'B'::text)))": {"A", "B"},
		"CHECK ((status <> 'A'::text))":                          nil,
		"CHECK ((length(status) = 1))":                           nil,
		"CHECK ((status ~ '^A'::text))":                          nil,
	} {
		if got := allowedWords(&Catalogue{StatusRules: []string{rule}}); !slices.Equal(got, want) {
			t.Errorf("%s: %q", rule, got)
		}
	}
}

func TestWordsForPeople(t *testing.T) {
	for got, want := range map[string]string{
		size(0): "0 B", size(1 << 20): "1 MiB", size(3<<29 + 1): "1.5 GiB", span(59): "59s", span(7260): "2h01m", span(200_000): "2 days",
		count(1, "row", "rows"): "1 row", some([]string{"a", "b", "c", "d", "e", "f"}): "a, b, c, d, e and 1 more",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// shared gives the stream a part of its table. Its publication passes that part. The publications p0, p1 and
// so on pass the listed parts.
func shared(f *Facts, part, of int, listed ...int) {
	table := f.Tables[0].Table.Table
	table.Share = outbox.Share{Part: part, Of: of}
	f.State.Tables[0].Table = table
	f.State.Tables[0].RowFilter = other(table, part)
	for i, p := range listed {
		f.Tables[0].Details.RowFilters = append(f.Tables[0].Details.RowFilters, RowFilter{fmt.Sprintf("p%d", i), other(table, p)})
	}
}

// other is the row filter of a part, about as the server prints it.
func other(table *outbox.Table, part int) string {
	copied := *table
	copied.Share.Part = part
	return "((" + strings.ReplaceAll(copied.Filter(""), `"`, "") + "))"
}

// ofRows makes the mapping take only rows of one topic, and the publication pass some rows.
func ofRows(f *Facts, filter string) {
	f.Tables[0].Table.Mapping.Rows = []outbox.RowCondition{{Column: "topic", Values: []string{"orders"}}}
	f.State.Tables[0].Types, f.State.Tables[0].RowFilter = map[string]uint32{"topic": 25}, filter
}

// init needs the tables' owner or a superuser. A role that is neither is told how to name one.
func TestInitIsHintedAsWhoMay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Facts)
		admin  bool
	}{
		"a plain role": {func(*Facts) {}, true},
		"the owner":    {details(func(d *Details) { d.Owned = true }), false},
		"a superuser":  {func(f *Facts) { f.Table.Role.Superuser = true }, false},
		"not known":    {func(f *Facts) { f.Tables[0].Details = nil }, false},
	} {
		f := sound()
		f.State.Publication = replication.Publication{}
		c.change(f)
		i := slices.IndexFunc(Judge(f), func(f Finding) bool { return f.Check == "publication" && f.Level == Fail })
		hint := Judge(f)[i].Hints[0]
		if !strings.Contains(hint, "outbox-cdc init --stream orders") || strings.HasPrefix(hint, replication.AdminVariable+"=") != c.admin {
			t.Errorf("%s: %s", name, hint)
		}
	}
}

// A boolean is written in the mapping as people write it, and the server prints it in its own form.
func TestStatesThatAreBooleans(t *testing.T) {
	t.Parallel()
	table := native()
	table.Mapping.Status.Column, table.Mapping.Status.Pending, table.Mapping.Status.Sent, table.Mapping.Status.Failed = "published", []string{"false"}, "true", ""
	facts := TableFacts{
		Table: Table{Table: table}, States: []string{"f", "t"},
		Inspection: &Inspection{Columns: []mapping.Column{{Name: "published", OID: pgtype.BoolOID}}},
	}
	if unknown := unmapped(&facts); len(unknown) > 0 {
		t.Errorf("%q are not named", unknown)
	}
	facts.Inspection.Columns[0].OID = pgtype.TextOID
	if unknown := unmapped(&facts); len(unknown) != 2 {
		t.Errorf("of texts %q are not named", unknown)
	}
}
