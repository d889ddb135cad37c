package preflight

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/charset"
	"github.com/outbox-cdc/outbox-cdc/internal/platform"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

var serverChecks = []check{
	{
		name: "connection", judge: judgeConnection,
		looks:  "both roles can connect: `postgres.dsn`, and `postgres.replication_dsn` as a replication connection",
		levels: "FAIL: one of them cannot",
		why:    "`dsn` marks and sweeps, `replication_dsn` streams: both must connect",
	},
	{
		name: "server-version", needs: []string{"release"}, judge: judgeVersion,
		looks:  "the server's version",
		levels: "FAIL: older than 14. WARN: newer than 19, which was not tried; the finding names what its catalogue does not tell",
		why:    "older servers lack what streaming needs; newer ones may differ in what was tested",
	},
	{
		name: "platform", needs: []string{"server"}, judge: judgePlatform,
		looks:  "who runs the server (RDS, Aurora, Cloud SQL, AlloyDB, Azure, Supabase, Neon, Crunchy Bridge, CloudNativePG, Patroni), by roles and settings",
		levels: "always OK: the finding says what a failover there does to the slot; hints change settings in the platform's own way ([platforms](platforms.md))",
	},
	{
		name: "encoding", needs: []string{"server"}, judge: judgeEncoding,
		looks:  "the database's encoding",
		levels: "FAIL: its text cannot be converted to UTF-8. WARN: SQL_ASCII, which does not say how text is encoded",
		why:    "text is published as UTF-8; a row with bytes that cannot be fails by itself",
	},
	{
		name: "primary", needs: []string{"release"}, judge: judgePrimary,
		looks:  "the server takes writes",
		levels: "FAIL: it is a standby",
		why:    "on a standby nothing can be marked, and its slots do not survive",
	},
	{
		name: "wal-level", needs: []string{"release"}, judge: judgeWALLevel,
		looks:  "`wal_level` and, from 19 on, `effective_wal_level`; `output_plugin_libraries`, if the role has `pg_read_all_settings`",
		levels: "FAIL: the level is not `logical` (from 19 on `replica` will do, since the first slot raises it), pgoutput is not among the libraries, or the catalogue of a server newer than 19 lacks something that a stream reads",
		why:    "only then does the WAL hold what is needed to read rows from it; until then everything is swept",
	},
	{
		name: "replication-slots", needs: []string{"server", "state"}, judge: judgeSlots,
		looks:  "free slots under `max_replication_slots`",
		levels: "FAIL: the stream has no slot, and none is free. WARN: the stream has its slot, and none is free to re-create it",
		why:    "the stream has a slot of its own; a slot that nobody reads holds back WAL as well",
	},
	{
		name: "wal-senders", needs: []string{"server"}, judge: judgeSenders,
		looks:  "free WAL senders under `max_wal_senders`",
		levels: "FAIL: none for the leader. WARN: only one, so none for a standby",
		why:    "the leader holds one, and every standby holds one too",
	},
	{
		name: "connections", needs: []string{"server"}, judge: judgeConnections,
		looks:  "free connections under `max_connections` and the role's own limit",
		levels: "FAIL: fewer than one for reading and one for streaming. WARN: fewer than a process uses",
		why:    "marks and sweeps wait while there is no connection",
	},
	{
		name: "wal-keep-size", needs: []string{"server"}, judge: judgeKeepSize,
		looks:  "`max_slot_wal_keep_size` against the stream's `wal_budget`",
		levels: "WARN: no limit, or one below the budget. FAIL: no limit, with tables that keep no state (`published: none`)",
		why:    "while we run, our budget keeps the disk from filling; while we do not, only the server's limit does. A slot that it drops costs a sweep and loses nothing",
	},
	{
		name: "wal-sender-timeout", judge: judgeSenderTimeout,
		looks:  "`wal_sender_timeout` of the streaming session",
		levels: "FAIL: the server does not take our value. WARN: longer than a minute",
		why:    "it is how long a leader that hangs keeps a standby from taking over",
	},
	{
		name: "idle-slot-timeout", needs: []string{"server"}, judge: judgeIdleTimeout,
		looks:  "`idle_replication_slot_timeout` (18 and later)",
		levels: "WARN: shorter than a day. FAIL: any, with tables that keep no state (`published: none`)",
		why:    "when no process reads the slot for this long, the server drops it. Then the table is swept and the slot re-created; of tables without state, rows are lost",
	},
	{
		name: "sync-replication", needs: []string{"state"}, judge: judgeSync,
		looks:  "`synchronous_standby_names`",
		levels: "WARN: it counts outbox-cdc as a standby, or names standbys and none is connected",
		why:    "rows are decoded before a commit that waits for a standby is visible; each such row is held until it is",
	},
	{
		name: "failover-slot", needs: []string{"server", "state"}, judge: judgeFailover,
		looks:  "whether standbys keep the slot (17 and later): `failover_slot`, `synchronized_standby_slots`, the slot's flag",
		levels: "FAIL: `synchronized_standby_slots` names a slot that does not exist, or that no standby uses now. WARN: there are standbys and they do not keep the slot, or events can be published before a standby has their rows",
		why:    "without it a failover ends the slot: nothing that the new primary has is lost, but the table is swept and the slot re-created",
	},
	{
		name: "commit-timestamps", needs: []string{"server"}, judge: judgeCommitTimestamps,
		looks:  "`track_commit_timestamp`",
		levels: "always OK: it is not needed",
	},
	{
		name: "clock", needs: []string{"server"}, judge: judgeClock,
		looks:  "the server's clock against this machine's",
		levels: "WARN: more than a second apart",
		why:    "the server's clock decides what is due and past its grace; latencies and ages are measured with both",
	},
	{
		name: "pooler", judge: judgePooler,
		looks:  "whether each session keeps its server process: a session lock must last on the streaming connection, and prepared statements on the other",
		levels: "FAIL: leadership cannot be held, or prepared statements would fail",
		why:    "leadership is a session lock: behind a pooler that passes transactions two processes could lead at once",
	},
}

func judgeConnection(j *judgment) {
	database := ""
	if j.State != nil {
		database = " to database " + j.State.Database
	}
	type doing struct {
		session *Session
		does    string
	}
	sessions := []doing{{&j.Table, "reads and marks"}, {&j.Streaming, "streams"}}
	if j.Table.alike(&j.Streaming) {
		sessions = []doing{{&j.Table, "reads, marks and streams"}}
	}
	for _, s := range sessions {
		subject := "role " + s.session.User
		if s.session.Err == nil {
			if s.session == &j.Streaming || j.Table.Role != nil || j.Server != nil {
				j.ok(subject, "connected%s: it %s", database, s.does)
			}
			continue
		}
		var hint []string
		if s.session.Hint != "" {
			hint = []string{s.session.Hint}
		}
		j.fail(subject, fmt.Sprintf("cannot connect as the role that %s: %v", s.does, s.session.Err), hint...).Unseen = !s.session.Permanent
	}
}

// alike reports whether both sessions failed for the same reason, as when the server is down.
func (s *Session) alike(other *Session) bool {
	return s.Err != nil && other.Err != nil && s.User == other.User && s.Err.Error() == other.Err.Error()
}

func judgeVersion(j *judgment) {
	release := j.State.Named()
	switch {
	case j.State.Version < 140_000:
		j.fail("", "PostgreSQL "+release+" is older than 14", "upgrade the server to PostgreSQL 14 or later")
	case j.State.Newer():
		found := fmt.Sprintf("PostgreSQL %s is newer than %d, the newest that was tried", release, replication.Newest)
		if len(j.State.Untold) > 0 {
			found = j.State.UntoldText()
		}
		j.warn("", found, "look for a newer outbox-cdc")
	default:
		j.ok("", "PostgreSQL %s", release)
	}
}

func judgePlatform(j *judgment) {
	if p := j.Server.platform(); p != nil {
		j.ok("", "%s; %s", p.Name, p.Failover)
		return
	}
	j.ok("", "nothing tells that somebody else runs the server: hints are PostgreSQL's own statements")
}

func judgeEncoding(j *judgment) {
	encoding := j.Server.Encoding
	set, err := charset.Of(encoding)
	const hint = "pg_dump the database, and restore it into one with ENCODING 'UTF8'"
	switch {
	case err != nil:
		j.fail("", err.Error(), hint)
	case set == nil:
		j.ok("", "%s", encoding)
	case encoding == "SQL_ASCII":
		j.warn("", "SQL_ASCII says nothing about its text: what is valid UTF-8 is published as it is, and a row with anything else fails", hint)
	default:
		j.ok("", "%s, published as UTF-8; a row with bytes that have no equivalent fails by itself", encoding)
	}
}

func judgePrimary(j *judgment) {
	if j.State.InRecovery {
		j.fail("", "the server is a standby", "point the dsn to the primary: name all hosts in it and add target_session_attrs=read-write")
	}
	j.otherwise("", "the server takes writes")
}

func judgeWALLevel(j *judgment) {
	if reason, hints := j.State.Undecodable(); reason != "" {
		j.fail("", reason, hints...)
	}
	j.otherwise("", "%s", j.State.Decoding())
}

func judgeSlots(j *judgment) {
	s := j.Server
	limit, _ := s.number("max_replication_slots")
	free := int(limit) - s.Slots
	found := fmt.Sprintf("%d of %d slots are in use", s.Slots, limit)
	var hint []string
	for _, name := range s.IdleSlots[:min(3, len(s.IdleSlots))] {
		hint = append(hint, "SELECT pg_drop_replication_slot("+sql.Literal(name)+");  -- only if nobody needs it; it is idle now")
	}
	hint = append(hint, fmt.Sprintf("ALTER SYSTEM SET max_replication_slots = %d;"+platform.RestartToo, limit+5))
	switch {
	case free > 0:
		j.ok("", "%s", found)
	case j.State.Slot.Exists:
		j.warn("", found+": the stream has its own, and none is free", hint...)
	default:
		j.fail("", found+", and the stream has none yet", hint...)
	}
}

func judgeSenders(j *judgment) {
	s := j.Server
	limit, _ := s.number("max_wal_senders")
	free := int(limit) - s.Senders
	found := fmt.Sprintf("%d of %d WAL senders are in use", s.Senders, limit)
	hint := fmt.Sprintf("ALTER SYSTEM SET max_wal_senders = %d;"+platform.RestartToo, limit+5)
	led := j.Leader != nil && j.Leader.PID != ""
	switch {
	case free >= 2, free == 1 && led:
		j.ok("", "%s", found)
	case free == 1 || led:
		j.warn("", found+": there is none for a standby", hint)
	default:
		j.fail("", found+": there is none for the leader", hint)
	}
}

func judgeConnections(j *judgment) {
	s := j.Server
	limit, _ := s.number("max_connections")
	reserved, _ := s.number("superuser_reserved_connections")
	more, _ := s.number("reserved_connections")
	free := int(limit-reserved-more) - s.Connections
	found := fmt.Sprintf("%d of %d connections are in use, %d are reserved; a process keeps up to %d", s.Connections, limit, reserved+more, j.Stream.PoolConnections+1)
	hint := []string{fmt.Sprintf("ALTER SYSTEM SET max_connections = %d;"+platform.RestartToo, limit+50), "or lower mark.connections in the configuration"}
	led := j.Leader != nil && j.Leader.PID != "" // the leader's sessions are then among those in use
	switch role := j.Table.Role; {
	case role != nil && role.ConnectionLimit >= 0 && role.ConnectionLimit < j.Stream.PoolConnections:
		j.warn("role "+role.User, fmt.Sprintf("it may have %s, and a process keeps up to %d", count(role.ConnectionLimit, "connection", "connections"), j.Stream.PoolConnections),
			fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT %d;", sql.Identifier(role.User), 2*j.Stream.PoolConnections))
	case free < 1 && !led:
		j.fail("", found, hint...)
	case free < j.Stream.PoolConnections && !led:
		j.warn("", found, hint...)
	default:
		j.ok("", "%s", found)
	}
}

func judgeKeepSize(j *judgment) {
	s := j.Server
	megabytes, _ := s.number("max_slot_wal_keep_size")
	budget := int64(j.Stream.WALBudget) // #nosec G115 -- far below 2^63
	wanted := (budget>>20)*5/4 + 1
	hint := []string{fmt.Sprintf("ALTER SYSTEM SET max_slot_wal_keep_size = '%dMB';", wanted), "SELECT pg_reload_conf();"}
	switch limit := megabytes << 20; {
	case megabytes < 0 && slices.ContainsFunc(j.Stream.Tables, func(t Table) bool { return !t.Table.Stateful() }):
		j.fail("", "max_slot_wal_keep_size is not set, and wal_budget does not bound a stream of tables with published: none: one row that cannot become a record holds back WAL until somebody deletes it and moves the slot on, or the disk is full",
			append(hint, "or keep a state in the table: published: status or delete")...)
	case megabytes < 0:
		j.warn("", fmt.Sprintf("max_slot_wal_keep_size is not set: while no process runs, the slot may fill the disk (wal_budget is %s)", size(budget)), hint...)
	case limit < budget:
		j.warn("", fmt.Sprintf("max_slot_wal_keep_size is %s, below the wal_budget of %s: the server drops the slot before the budget moves it on", size(limit), size(budget)),
			append(hint, fmt.Sprintf("or in the configuration, wal_budget: %dMiB", max(64, megabytes*3/4)))...)
	default:
		j.ok("", "max_slot_wal_keep_size is %s, the wal_budget %s", size(limit), size(budget))
	}
}

func judgeSenderTimeout(j *judgment) {
	if j.Streaming.Err != nil || j.Streaming.SenderTimeout == "" {
		j.unseen("", j.missing("streaming session"))
		return
	}
	wanted := j.Stream.Replication.SenderTimeout
	got, err := time.ParseDuration(strings.NewReplacer("min", "m", "d", "h").Replace(j.Streaming.SenderTimeout))
	found := "wal_sender_timeout is " + j.Streaming.SenderTimeout + " in our session"
	if s := j.Server; s != nil {
		found += fmt.Sprintf(" (%v elsewhere)", s.duration("wal_sender_timeout"))
	}
	switch {
	case err != nil || got != wanted:
		j.fail("", fmt.Sprintf("%s, though we set %v: the session is not ours alone", found, wanted),
			"let postgres.replication_dsn reach PostgreSQL itself, not a pooler")
	case wanted > time.Minute:
		j.warn("", found+": a leader that hangs is replaced only after that", "postgres: {wal_sender_timeout: 4s}  # in the configuration")
	default:
		j.ok("", "%s", found)
	}
}

func judgeIdleTimeout(j *judgment) {
	s := j.Server
	if _, known := s.number("idle_replication_slot_timeout"); !known {
		j.skip("", "before version 18 there is no such setting")
		return
	}
	off := []string{"ALTER SYSTEM SET idle_replication_slot_timeout = 0;", "SELECT pg_reload_conf();"}
	switch limit := s.duration("idle_replication_slot_timeout"); {
	case limit == 0:
		j.ok("", "idle_replication_slot_timeout is off")
	case slices.ContainsFunc(j.Stream.Tables, func(t Table) bool { return !t.Table.Stateful() }):
		j.fail("", fmt.Sprintf("idle_replication_slot_timeout is %v, after which rows of tables without state are lost", limit), off...)
	case limit < 24*time.Hour:
		j.warn("", fmt.Sprintf("idle_replication_slot_timeout is %v", limit), off...)
	default:
		j.ok("", "idle_replication_slot_timeout is %v", limit)
	}
}

// verdict returns the Verdict that a start would reach for a state.
func (j *judgment) verdict(s *replication.State) replication.Verdict {
	cfg := &j.Stream.Replication
	return replication.Judge(s, cfg, replication.Identify(s, cfg))
}

func judgeSync(j *judgment) {
	names, s := j.State.SyncStandbys, j.Server
	countsUs := func(warning string) bool { return strings.HasPrefix(warning, "synchronous_standby_names") }
	hint := []string{"ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (standby1, standby2)';  -- the application_name of each real standby", "SELECT pg_reload_conf();"}
	switch {
	case names == "":
		j.ok("", "no commit waits for a standby")
	case slices.ContainsFunc(j.verdict(j.State).Warnings, countsUs):
		j.warn("", "synchronous_standby_names = "+sql.Literal(names)+" counts outbox-cdc itself as a standby: commits wait for it, and its own wait for themselves", hint...)
	case s != nil && s.Standbys == 0 && s.Settings["synchronous_commit"].Value != "off" && s.Superuser:
		// The server hides other roles' sessions from an ordinary role, so no standby seen does not mean that
		// there is none.
		j.warn("", "synchronous_standby_names = "+sql.Literal(names)+", and no standby is connected: commits, our own too, wait until one is", hint...)
	default:
		j.ok("", "commits wait for %s; an event can be in Kafka before its row can be read", names)
	}
}

func judgeFailover(j *judgment) {
	s := j.Server
	configured, old := j.Stream.Replication.Failover, j.State.Version < 170_000
	standbys := s.Standbys > 0 || len(s.PhysicalSlots) > 0
	p := s.platform()
	switch {
	case !configured && standbys && p != nil && p.Lists != "":
		j.skip("", p.Name+" keeps the slot on standbys where "+p.Lists+" names it, which the server does not show")
	case old && configured:
		j.warn("", "failover_slot is set, which servers before 17 do not know", "failover_slot: false  # or upgrade to PostgreSQL 17 or later")
	case old:
		j.ok("", "before version 17 no slot survives a failover: the rows are then swept from the new primary")
	case !configured && standbys:
		j.warn("", fmt.Sprintf("there are standbys (%s), and the slot is not kept on them", count(max(s.Standbys, len(s.PhysicalSlots)), "seen", "seen")),
			"failover_slot: true  # in the configuration; then, over a replication connection: "+alterFailover(j),
			"on each standby: sync_replication_slots = on, hot_standby_feedback = on, primary_slot_name, and a dbname in primary_conninfo")
	case !configured:
		j.ok("", "there is no standby to keep the slot on")
	default:
		judgeKeptSlot(j, s)
	}
}

func alterFailover(j *judgment) string {
	return "ALTER_REPLICATION_SLOT " + sql.Identifier(j.Stream.Replication.Slot) + " (FAILOVER true);"
}

func judgeKeptSlot(j *judgment, s *Server) {
	if j.State.Slot.Exists && !j.State.Slot.Failover {
		j.warn("", "failover_slot is set, but slot "+j.Stream.Replication.Slot+" was made without it", "over a replication connection, while no process runs: "+alterFailover(j))
		return
	}
	named := strings.FieldsFunc(s.Settings["synchronized_standby_slots"].Value, func(r rune) bool { return strings.ContainsRune(`, "`, r) })
	for _, name := range named {
		if !slices.Contains(s.PhysicalSlots, name) {
			j.fail("", "synchronized_standby_slots names "+name+", and there is no such physical slot: the stream waits for it for ever",
				"SELECT pg_create_physical_replication_slot("+sql.Literal(name)+");  -- and use it on the standby as primary_slot_name",
				"or take it out: ALTER SYSTEM SET synchronized_standby_slots = '…'; SELECT pg_reload_conf();")
			return
		}
		if slices.Contains(s.IdlePhysicalSlots, name) {
			j.fail("", "synchronized_standby_slots names "+name+", and no standby uses it now: the stream waits until one does",
				"start the standby, or have it use the slot: primary_slot_name = "+sql.Literal(name),
				"or take it out: ALTER SYSTEM SET synchronized_standby_slots = '…'; SELECT pg_reload_conf();")
			return
		}
	}
	if len(named) == 0 {
		wanted := "standby1"
		if len(s.PhysicalSlots) > 0 {
			wanted = strings.Join(s.PhysicalSlots, ", ")
		}
		j.warn("", "synchronized_standby_slots is empty: an event may be in Kafka before any standby has its row, and a failover then takes the row back",
			"ALTER SYSTEM SET synchronized_standby_slots = "+sql.Literal(wanted)+";  -- the standbys' physical slots", "SELECT pg_reload_conf();")
		return
	}
	j.ok("", "the slot is kept on standbys, and waits for %s; each needs sync_replication_slots = on, hot_standby_feedback = on, primary_slot_name and a dbname in primary_conninfo", some(named))
}

func judgeCommitTimestamps(j *judgment) {
	j.ok("", "track_commit_timestamp is %s; it is not needed, and would only let you measure from the commit itself (pg_xact_commit_timestamp)", j.Server.Settings["track_commit_timestamp"].Value)
}

func judgeClock(j *judgment) {
	s := j.Server
	side := "ahead of"
	if s.Ahead < 0 {
		side = "behind"
	}
	found := fmt.Sprintf("the server's clock is %v %s this machine's (± %v)", s.Ahead.Abs().Round(time.Millisecond), side, s.Doubt.Round(time.Millisecond))
	if s.Ahead.Abs()-s.Doubt > time.Second {
		j.warn("", found, "synchronise the clocks of both machines by NTP (chronyc tracking shows how far one is off)")
	}
	j.otherwise("", "%s", found)
}

func judgePooler(j *judgment) {
	switch s := &j.Streaming; {
	case s.Err != nil:
		j.unseen("role "+s.User, j.missing("streaming session"))
	case j.Missing["streaming session"] != "":
		j.unseen("role "+s.User, j.Missing["streaming session"])
	case !s.Holds:
		j.fail("role "+s.User, "a session lock is gone at the next statement: a pooler in transaction mode stands in between",
			"let postgres.replication_dsn reach PostgreSQL itself, or PgBouncer 1.23 or later, which passes replication connections one to one")
	case s.Pooled:
		j.ok("role "+s.User, "a pooler stands in between and passes the streaming session one to one")
	default:
		j.ok("role "+s.User, "the streaming session is the server's own, and keeps its lock")
	}
	switch t := &j.Table; {
	case t.Err != nil || j.Missing["pooler"] != "":
		j.unseen("role "+t.User, j.missing("pooler"))
	case t.Wandering && t.Prepares:
		j.fail("role "+t.User, "a pooler in transaction mode stands in between, and prepared statements do not survive there",
			"add default_query_exec_mode=exec to postgres.dsn")
	case t.Pooled:
		j.ok("role "+t.User, "a pooler stands in between, and what is used works through it")
	default:
		j.ok("role "+t.User, "the session is the server's own")
	}
}
