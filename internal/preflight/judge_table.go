package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/shedlock"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

var tableChecks = []check{
	{
		name: "table", judge: eachTable(judgeTable),
		looks:  "each table is there, and permanent",
		levels: "FAIL: it is not there, cannot be read, is a view, unlogged or temporary, or is locked (ACCESS EXCLUSIVE), by whom",
		why:    "only a permanent table that exists can be published",
	},
	{
		name: "columns", judge: eachInspected(judgeColumns),
		looks:  "each mapped column exists, has a type that fits its use, and is in the WAL (a generated column from PostgreSQL 18 on, if it is STORED)",
		levels: "FAIL: a column does not",
		why:    "rows of a table that does not fit its mapping are neither streamed nor swept",
	},
	{
		name: "writes", judge: eachInspected(judgeWrites),
		looks:  "whether the table accepts the writes of the program (a mark, an attempt, the last attempt, a move to the archive, a recovered row) and of operators (`failed requeue`, `failed discard`, `replay`): each statement is planned, and a query evaluates CHECK, NOT NULL, domains and foreign keys over some rows of the table; nothing is written",
		levels: "FAIL: the table would refuse a write of the program. WARN: it may refuse one for some rows, or would refuse one of operators",
		why:    "a row whose mark is refused stays PENDING",
	},
	{
		name: "topic-allow", judge: eachTable(judgeTopicAllow),
		looks:  "which topics rows may name (`topic.allow`)",
		levels: "WARN: the topic comes from a column, and rows may name every topic",
		why:    "a row is published with our rights, not with those of who wrote it",
	},
	{
		name: "identity", judge: eachInspected(judgeIdentity),
		looks:  "the id columns are NOT NULL, and unique together",
		levels: "FAIL: they are not",
		why:    "a mark finds its row by the id: of two rows with one id, both would be marked when one was sent",
	},
	{
		name: "order", judge: eachInspected(judgeOrder),
		looks:  "the `order` columns, which give the order of swept rows",
		levels: "WARN: there are none; one may be NULL; or sampled rows of one key have equal order columns and their id does not count up",
		why:    "what the sweeper publishes is in this order, per key",
	},
	{
		name: "sweep-index", judge: eachInspected(judgeSweepIndex),
		looks:  "the indexes that reads use: for the sweep one that is partial on pending rows or has the status; for scheduled rows one that begins with `available_after`; for a `headers_table` one on its reference",
		levels: "WARN: one is missing (the one for scheduled rows only if 10,000 rows or more wait)",
		why:    "without one each look for missed rows reads the whole table, every `watch_interval`; and for the headers of each row the whole `headers_table`",
	},
	{
		name: "status-index", judge: eachDetailed(judgeStatusIndex),
		looks:  "what indexes with the status cost each mark, and the room that pages leave for it (fillfactor)",
		levels: "WARN: an index that is not partial has the status; or no index has it and pages are filled to the brim",
		why:    "every mark changes the status. A column in an index, its predicate included, keeps that UPDATE from being HOT, so that it writes to every index of the table: measured, 48,000 rows/s and 1,020 bytes of WAL a row with (status, created_at), 81,000 and 930 with a partial index, 85,000 and 880 with none",
	},
	{
		name: "vacuum", judge: eachDetailed(judgeVacuum),
		looks:  "dead rows against all rows",
		levels: "WARN: more than half, and more than 100,000",
		why:    "each mark leaves a dead row, and sweeps read over them",
	},
	{
		name: "row-security", judge: eachCatalogued(judgeRowSecurity),
		looks:  "row level security",
		levels: "FAIL: it applies to our role",
		why:    "`run` refuses the table, whatever its policies are: rows that one hides would never be swept, and their marks would find nothing",
	},
	{
		name: "triggers", judge: eachDetailed(judgeTriggers),
		looks:  "triggers that fire when a row is marked",
		levels: "WARN: there is one",
		why:    "it runs once for every row that is sent, in a session whose search_path is pg_catalog alone; one that fails refuses the mark, and the row stays PENDING",
	},
	{
		name: "changes", judge: eachDetailed(judgeChanges),
		looks:  "triggers that fire after an INSERT and seem to update the table, by their code",
		levels: "WARN: there is one, and `look_first` is off",
		why:    "the WAL brings a row as its INSERT wrote it: what such a trigger changes afterwards is not published, though the row is marked",
	},
	{
		name: "default-partition", judge: eachDetailed(judgeDefaultPartition),
		looks:  "default partitions of tables that keep no state (`published: none`)",
		levels: "WARN: there is one",
		why:    "rows that are moved out of it are inserted once more, and so published once more: with `published: none` nothing tells that they were",
	},
	{
		name: "replica-identity", judge: eachDetailed(judgeReplicaIdentity),
		looks:  "whether some publication publishes updates of the table, and by which identity",
		levels: "FAIL: a publication does, and the table has no identity. WARN: the identity is the whole row",
		why:    "the server refuses every UPDATE of such a table, the application's and our marks alike; a whole row doubles what a mark writes to the WAL",
	},
	{
		name: "status-values", judge: eachInspected(judgeStates),
		looks:  "the values of the status: which ones its type, its CHECK constraints and those of the archive allow, and which ones sampled rows have",
		levels: "FAIL: a value that the program writes is refused. WARN: no row has any value of the mapping",
		why:    "rows in states that the mapping does not name are left alone, and a mark that the table refuses leaves its row to be published again",
	},
	{
		name: "times", judge: eachInspected(judgeTimes),
		looks:  "columns of type `timestamp` without time zone, and of numbers (`epoch`), that `created_at` or `timestamp` name: their newest values (a sample) against the database's clock",
		levels: "WARN: a column's times are off as if its time zone or unit were another",
		why:    "such a time counts as `time_zone`, UTC by default: of another zone's, ages and due times are wrong by its offset, and Kafka refuses records whose time is far ahead",
	},
	{
		name: "rows", judge: eachInspected(judgeRows),
		looks:  "how many rows `rows`, or `topic.otherwise: leave`, leave to others (of up to 100,000)",
		levels: "WARN: there are rows, and all are left to others",
		why:    "rows that are left to others are neither published nor counted anywhere else",
	},
	{
		name: "shedlock", judge: eachTable(judgeLocks),
		looks:  "the application's ShedLock lock that outbox-cdc holds in place of the relay (`shedlock`, `retention_lock`): its table, our privileges, who holds it",
		levels: "FAIL: it could not be taken, or its row is wrong. WARN: its times are with time zone",
		why:    "the stream waits for this lock and publishes only while it has it, so that the application's own relay rests",
	},
	{
		name: "backlog", judge: eachInspected(judgeBacklog),
		looks:  "rows that wait, up to 100,000, and the age of the oldest",
		levels: "WARN: the oldest has waited for more than five minutes",
		why:    "all of them are published when a process starts",
	},
}

func judgeTopicAllow(j *judgment, name string, t *TableFacts) {
	m := &t.Table.Mapping
	switch {
	case len(m.Topic.Columns) == 0:
		j.ok(name, "every row goes to topic %s", m.Topic.Literals[0])
	case m.Topic.Known() != nil:
		j.ok(name, "rows go to %s", strings.Join(m.Topic.Known(), ", "))
	case len(m.TopicAllow) > 0:
		j.ok(name, "rows may name %s", strings.Join(m.TopicAllow, ", "))
	case m.Topic.Literals[0] != "":
		j.ok(name, "every topic begins with %s", m.Topic.Literals[0])
	default:
		j.warn(name, "anybody who may write to the table chooses the topic, and may name every one that our Kafka user may write to",
			"topic: {column: "+m.Topic.Columns[0].Column+", allow: [orders, shipping.*]}  # in the configuration: what this table's rows are for")
	}
}

func judgeTable(j *judgment, name string, t *TableFacts) {
	switch {
	case t.Gone != "":
		problem, hint, _ := strings.Cut(t.Gone, ": ")
		switch {
		case t.Renamed != "":
			problem, hint = "is called "+t.Renamed+" now", "table: "+t.Renamed+"  # in the configuration; or give the table its name back"
		case t.Table.Native:
			hint = "outbox-cdc init --native-table --stream " + j.Stream.Name
		}
		j.fail(name, "it "+problem, hint)
	case t.Refused != "":
		j.fail(name, t.Refused, "GRANT SELECT ON what it names TO "+sql.Identifier(j.Table.User)+";  -- or correct the mapping")
	case len(t.Lockers) > 0:
		f := j.fail(name, replication.LockedBy(t.Lockers), "wait until that transaction has ended, or end it; then check again")
		f.Unseen, f.Why = true, "rows of a locked table are neither published nor marked, and the application's own statements wait as well"
	case t.Inspection == nil:
		j.unseen(name, t.Missing["table"])
	default:
		kind := "a permanent table"
		if n := len(t.Inspection.Partitions); n > 0 {
			kind = "a partitioned table of " + count(n, "partition", "partitions")
		}
		j.faults(name, t, AboutKind)
		j.otherwise(name, "%s%s", kind, extent(t))
	}
}

func extent(t *TableFacts) string {
	if t.Details == nil {
		return ""
	}
	if t.Details.Rows < 0 { // never analysed
		return ", " + size(t.Details.Bytes)
	}
	return fmt.Sprintf(", about %d rows, %s", t.Details.Rows, size(t.Details.Bytes))
}

func judgeColumns(j *judgment, name string, t *TableFacts) {
	for _, d := range Differences(t) {
		if d.Fatal && d.about == AboutColumn {
			j.fail(name, d.Problem, append(d.Override.Lines(), d.Hint)...)
		}
	}
	j.otherwise(name, "%s, all that are mapped are there and fit", count(len(t.Inspection.Columns), "column", "columns"))
}

func judgeWrites(j *judgment, name string, t *TableFacts) {
	if !t.Table.Stateful() {
		j.skip(name, "a table without state is never written to")
		return
	}
	for _, d := range Differences(t) {
		switch {
		case d.about != AboutWrite:
		case d.Fatal:
			j.fail(name, d.Problem, d.Hint+";")
		default:
			j.warn(name, d.Problem, d.Hint+";")
		}
	}
	if slices.ContainsFunc(t.Inspection.Findings, func(f TableFinding) bool { return f.Fatal && f.About != AboutWrite }) {
		j.skip(name, "not known until what else is wrong with the table is fixed")
	}
	if why := t.Inspection.Unevaluated; why != "" {
		j.skip(name, "its constraints could not be evaluated: "+why)
	}
	j.otherwise(name, "each statement that changes rows is taken")
}

func judgeIdentity(j *judgment, name string, t *TableFacts) {
	j.faults(name, t, AboutIdentity, AboutNull)
	j.otherwise(name, "%s: not NULL and unique", strings.Join(t.Table.Mapping.ID, ", "))
}

func judgeOrder(j *judgment, name string, t *TableFacts) {
	m := &t.Table.Mapping
	if !t.Table.Stateful() {
		j.skip(name, "a table without state is never swept")
		return
	}
	if len(m.Order) == 0 {
		j.warn(name, "no columns order the sweep: rows of a key that have to be swept may come in any order", "order: [created_at]  # in the mapping: columns that follow the order of commits")
	}
	for _, column := range m.Order {
		if c := t.column(column); c != nil && !c.NotNull {
			j.warn(name, "order column "+column+" may be NULL; such rows are swept last", "ALTER TABLE "+quotedTable(t.Table.Table)+" ALTER "+sql.Identifier(column)+" SET NOT NULL;")
		}
	}
	for _, f := range t.Inspection.Findings {
		if f.About == AboutOrder {
			j.warn(name, f.Problem, f.Hint+";")
		}
	}
	order := strings.Join(m.Order, ", ")
	if t.Tied {
		j.warn(name, "rows of one key tie in "+order+", and the id does not tell which was inserted first: when they are swept, an update or reused space may have changed their order",
			"order: ["+order+", …]  # in the mapping: and a column that rises with each INSERT",
			"ALTER TABLE "+quotedTable(t.Table.Table)+" ADD position bigint GENERATED ALWAYS AS IDENTITY;  -- where there is none; it rewrites the table")
	}
	switch rising := t.Inspection.Rising; {
	case t.Missing["ties"] != "":
		j.unseen(name, t.Missing["ties"])
	case rising == "":
		j.otherwise(name, "%s; no rows of one key are seen to tie there", order)
	case slices.Contains(m.Order, rising):
		j.otherwise(name, "%s", order)
	default:
		j.otherwise(name, "%s, ties by %s", order, rising)
	}
}

// column returns a column of the catalogue; nil: there is none of that name, or the catalogue was not read.
func (t *TableFacts) column(name string) *Column {
	if t.Catalogue == nil {
		return nil
	}
	i := slices.IndexFunc(t.Catalogue.Columns, func(c Column) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &t.Catalogue.Columns[i]
}

// manyWait is the number of waiting rows from which reading them at each look is costly.
const manyWait = 10_000

func judgeSweepIndex(j *judgment, name string, t *TableFacts) {
	switch {
	case !t.Table.Stateful():
		j.skip(name, "a table without state is never swept")
		return
	case slices.ContainsFunc(t.Inspection.Findings, func(f TableFinding) bool { return f.Fatal }):
		j.skip(name, "not known until what else is wrong with the table is fixed")
		return
	}
	var problems, hint []string
	small := ""
	for _, f := range t.Inspection.Findings {
		switch {
		case f.About == AboutDue && !t.Table.Native && (t.Backlog == nil || t.Backlog.Rows < manyWait):
			small = "; should many rows wait for their time: " + strings.ReplaceAll(f.Hint, "\n", " ")
		case f.About == AboutIndex || f.About == AboutDue:
			problems, hint = append(problems, f.Problem), append(hint, strings.Split(f.Hint+";", "\n")...)
		}
	}
	if len(problems) == 0 {
		j.ok(name, "an index serves the sweep%s", small)
		return
	}
	if t.Details != nil {
		for _, broken := range t.Details.BrokenIndexes {
			hint = append([]string{"DROP INDEX CONCURRENTLY " + sql.Identifier(t.Table.Schema, broken) + ";  -- invalid: it was never finished"}, hint...)
		}
	}
	if w := j.warn(name, strings.Join(problems, "; ")+extent(t), hint...); t.Table.Native {
		w.Fix = FixIndex
	}
}

func judgeStatusIndex(j *judgment, name string, t *TableFacts, d *Details) {
	m := &t.Table.Mapping
	if m.Published != outbox.PublishedStatus || m.Status.Column == "" {
		j.skip(name, "no status column is written")
		return
	}
	var whole, partial []string
	for _, i := range d.StatusIndexes {
		if i.Partial {
			partial = append(partial, i.Name)
		} else {
			whole = append(whole, i.Name)
		}
	}
	hot := ""
	if d.Updates > 0 {
		hot = fmt.Sprintf("; %d%% of %d updates so far were HOT", d.HOTUpdates*100/d.Updates, d.Updates)
	}
	switch {
	case len(whole) > 0:
		hint := []string{}
		for _, i := range whole {
			hint = append(hint, "DROP INDEX CONCURRENTLY "+sql.Identifier(t.Table.Schema, i)+";  -- if no query of the application needs it; first make a partial one (see the check sweep-index)")
		}
		j.warn(name, "the status is in "+count(len(whole), "whole index: ", "whole indexes: ")+some(whole)+hot, hint...)
	case len(partial) > 0:
		j.ok(name, "the status is only in partial indexes (%s)%s", some(partial), hot)
	case fillfactor(d) > 90:
		j.warn(name, fmt.Sprintf("no index has the status, so marks could be HOT, but fillfactor is %d%s", fillfactor(d), hot),
			"ALTER TABLE "+quotedTable(t.Table.Table)+" SET (fillfactor = 80);  -- for pages filled from now on")
	default:
		j.ok(name, "no index has the status, and fillfactor is %d%s", fillfactor(d), hot)
	}
}

// fillfactor returns a table's fillfactor; 100 if none is set.
func fillfactor(d *Details) int {
	n := 100
	for _, option := range d.Options {
		if value, is := strings.CutPrefix(option, "fillfactor="); is {
			if _, err := fmt.Sscan(value, &n); err != nil {
				return 100
			}
		}
	}
	return n
}

func judgeVacuum(j *judgment, name string, t *TableFacts, d *Details) {
	const many = 100_000
	found := fmt.Sprintf("%d dead rows and about %d live ones", d.Dead, max(d.Rows, 0))
	if d.Dead > many && d.Dead > d.Rows {
		table := quotedTable(t.Table.Table)
		j.warn(name, found, "VACUUM (VERBOSE) "+table+";  -- it says what keeps dead rows: an old transaction, a slot, a prepared one",
			"ALTER TABLE "+table+" SET (autovacuum_vacuum_scale_factor = 0.02);")
	}
	j.otherwise(name, "%s", found)
}

func judgeRowSecurity(j *judgment, name string, _ *TableFacts, c *Catalogue) {
	switch role := sql.Identifier(j.Table.User); {
	case c.RowsHidden:
		j.fail(name, fmt.Sprintf("row level security applies to role %s (policies: %s)", j.Table.User, cmp.Or(some(c.Policies), "none, so it sees nothing")),
			"ALTER ROLE "+role+" BYPASSRLS;  -- as a superuser")
	case c.RowSecurity:
		j.ok(name, "row level security is on, and does not apply to role %s", j.Table.User)
	default:
		j.ok(name, "no row level security")
	}
}

func judgeTriggers(j *judgment, name string, t *TableFacts, d *Details) {
	if len(d.Triggers) == 0 || t.Table.Mapping.Published != outbox.PublishedStatus {
		j.ok(name, "no trigger fires on a mark")
		return
	}
	var names, hint []string
	for _, trigger := range d.Triggers {
		names = append(names, trigger.Name+" ("+trigger.Function+")")
		hint = append(hint, "ALTER TABLE "+quotedTable(t.Table.Table)+" DISABLE TRIGGER "+sql.Identifier(trigger.Name)+";  -- if marks need not fire it")
		if !trigger.Path {
			hint = append(hint, "ALTER FUNCTION "+trigger.Function+"() SET search_path = "+sql.Identifier(t.Table.Schema)+";  -- if it names tables or functions without their schema")
		}
	}
	j.warn(name, count(len(names), "trigger fires", "triggers fire")+" on every mark: "+some(names), hint...)
}

func judgeChanges(j *judgment, name string, t *TableFacts, d *Details) {
	m := &t.Table.Mapping
	if len(d.Completing) == 0 || m.NeedsLook() {
		j.ok(name, "no trigger is seen to change rows that are published as they were inserted")
		return
	}
	var names []string
	for _, trigger := range d.Completing {
		names = append(names, trigger.Name+" ("+trigger.Function+")")
	}
	hint := "make it a BEFORE INSERT trigger that sets the columns of NEW"
	if t.Table.Stateful() {
		hint = "look_first: true, or " + hint
	}
	j.warn(name, count(len(names), "trigger seems", "triggers seem")+" to update rows after their INSERT, which is not published: "+some(names), hint)
}

func judgeDefaultPartition(j *judgment, name string, t *TableFacts, d *Details) {
	switch {
	case t.Table.Stateful():
		j.ok(name, "the status tells what was published, wherever a row is moved")
	case len(d.Defaults) > 0:
		j.warn(name, "rows of "+some(d.Defaults)+" will be published again when they are moved to a partition of their own", "make partitions ahead of their rows, or published: status or delete")
	default:
		j.ok(name, "it has no default partition")
	}
}

func judgeReplicaIdentity(j *judgment, name string, t *TableFacts, d *Details) {
	table := quotedTable(t.Table.Table)
	whole := d.Identity == "f"
	switch {
	case len(d.UpdatePubs) == 0 || len(tablesql.Written(&t.Table.Mapping)) == 0:
		j.ok(name, "no publication publishes its updates, so it needs none")
	case !d.HasKey && !whole:
		j.fail(name, "it has no replica identity, and its updates are published by "+some(d.UpdatePubs),
			"ALTER PUBLICATION "+sql.Identifier(d.UpdatePubs[0])+" SET (publish = 'insert');  -- where nobody needs its updates",
			"or ALTER TABLE "+table+" REPLICA IDENTITY USING INDEX …;  -- a unique index of columns that are NOT NULL")
	case whole:
		j.warn(name, "its identity is the whole row, and its updates are published by "+some(d.UpdatePubs), "ALTER TABLE "+table+" REPLICA IDENTITY DEFAULT;")
	default:
		j.ok(name, "its updates are published by %s, by its key", some(d.UpdatePubs))
	}
}

func judgeStates(j *judgment, name string, t *TableFacts) {
	if t.Table.Mapping.Status.Column == "" {
		j.skip(name, "the state is not kept in words")
		return
	}
	if t.Missing["rows"] != "" {
		j.unseen(name, t.Missing["rows"])
		return
	}
	for _, d := range Differences(t) {
		switch {
		case !d.words:
		case d.Fatal:
			j.fail(name, d.Problem, slices.DeleteFunc(append(d.Override.Lines(), d.Hint), func(hint string) bool { return hint == "" })...)
		case strangers(t):
			j.warn(name, d.Problem, d.Override.Lines()...)
		default:
			j.ok(name, "%s", d.Problem)
		}
	}
	j.otherwise(name, "%s", wordsOf(t))
}

// How the age of a column's newest time is judged, in seconds.
const (
	ahead     = 120                  // how far the time may be ahead of the clock
	halfHour  = 1800                 // time zones differ from UTC by multiples of this
	halfADay  = 12 * 3600            // and by at most this
	justNow   = 5                    // the newest time of a table in use is no older than this
	wrongUnit = 10 * 365 * 24 * 3600 // a larger difference means that a number has another unit
)

func judgeTimes(j *judgment, name string, t *TableFacts) {
	if t.Missing["newest"] != "" {
		j.unseen(name, t.Missing["newest"])
		return
	}
	m := &t.Table.Mapping
	zone := "UTC"
	if m.Zone != nil {
		zone = m.Zone.String()
	}
	var ages []string
	for _, column := range slices.Sorted(maps.Keys(t.Newest)) {
		age, c := t.Newest[column], t.column(column)
		number := c != nil && !strings.HasPrefix(c.Type, "timestamp")
		hints := []string{"time_zone: Europe/Berlin  # the writers' zone, in the table's mapping"}
		if m.Zone == nil {
			hints = append(hints, fmt.Sprintf("ALTER TABLE %s ALTER %s TYPE timestamptz USING %[2]s AT TIME ZONE '…';  -- or so; or have them write UTC", quotedTable(t.Table.Table), sql.Identifier(column)))
		}
		switch {
		case number && (age > wrongUnit || age < -wrongUnit):
			j.warn(name, fmt.Sprintf("column %q counts in %s by the mapping's epoch, and its newest time would be %s %s: its unit seems to be another one", column, m.Epoch, span(max(age, -age)), agoOrAhead(age)), "epoch: s, ms or us, as its writers count")
		case number && age < -ahead:
			j.warn(name, fmt.Sprintf("column %q has a time that is %s ahead: its writers seem not to count from 1970 in UTC", column, span(-age)), "have them write what now() is since 1970 in UTC")
		case age < -ahead:
			j.warn(name, fmt.Sprintf("column %q has no time zone and counts as %s, but its newest time is %s ahead: its writers seem to use local time", column, zone, span(-age)), hints...)
		case !number && m.Zone == nil && age >= halfHour && age <= halfADay+justNow && age%halfHour <= justNow:
			j.warn(name, fmt.Sprintf("column %q has no time zone and counts as UTC, but its newest time is %s ago: its writers may use local time", column, span(age)), hints...)
		default:
			ages = append(ages, column+": "+span(max(age, 0)))
		}
	}
	if len(ages) > 0 {
		j.otherwise(name, "times without time zone count as %s; the newest are that old: %s", zone, strings.Join(ages, ", "))
	}
	j.otherwise(name, "no time is without time zone, or no row has one")
}

func agoOrAhead(age int64) string {
	if age < 0 {
		return "ahead"
	}
	return "ago"
}

func judgeLocks(j *judgment, name string, t *TableFacts) {
	if len(t.Locks) == 0 {
		j.skip(name, "no lock is configured")
	}
	for i := range t.Locks {
		judgeLock(j, &t.Locks[i])
	}
}

func judgeLock(j *judgment, l *LockFacts) {
	subject := fmt.Sprintf("lock %s of %s.%s", l.Lock.Name, l.Lock.Schema, l.Lock.Table)
	switch s := &l.Sight; {
	case l.Refused:
		problem, hint, _ := strings.Cut(l.Err.Error(), ": ")
		j.fail(subject, problem, strings.Split(cmp.Or(hint, "see the server's log"), "; ")...)
	case l.Err != nil:
		j.unseen(subject, l.Err.Error())
	case s.Suspicion != "":
		problem, hint, _ := strings.Cut(s.Suspicion, ": ")
		j.fail(subject, problem+holder(s.Holding), hint)
	case s.Zoned:
		j.warn(subject, "its times are with time zone: that works with the application only if its database sessions run in UTC",
			"use timestamp columns as ShedLock's documentation has them, or usingDbTime() and sessions in UTC in the application")
	case s.Held:
		j.ok(subject, "held%s; while %s the stream holds it, and waits for its holder", holder(s.Holding), l.While)
	default:
		j.ok(subject, "free; the stream takes it while %s", l.While)
	}
}

func holder(h shedlock.Holding) string {
	switch {
	case h.By == "":
		return ""
	case h.Until.IsZero():
		return " by " + h.By
	}
	return " by " + h.By + " until " + h.Until.UTC().Format("15:04:05") + " UTC"
}

func judgeRows(j *judgment, name string, t *TableFacts) {
	c := t.Chosen
	m := &t.Table.Mapping
	switch {
	case len(m.Rows) == 0 && m.LeavesToOthers() == nil:
		j.ok(name, "every row is ours")
	case c == nil && t.Missing["chosen"] == "":
		j.skip(name, "its rows cannot be read (see the checks columns, table-privileges and status-values)")
	case c == nil:
		j.unseen(name, t.Missing["chosen"])
	case c.Rows > 0 && c.Ours == 0:
		j.warn(name, fmt.Sprintf("none of %s is ours", count(int(c.Rows), "row", "rows")),
			"SELECT DISTINCT … FROM "+quotedTable(t.Table.Table)+";  -- the columns that rows and topic.map name, and then what they should say")
	default:
		j.ok(name, "%d of %s left to others", c.Rows-c.Ours, count(int(c.Rows), "row is", "rows are"))
	}
}

func judgeBacklog(j *judgment, name string, t *TableFacts) {
	const long = 300 // seconds
	b := t.Backlog
	switch {
	case !t.Table.Stateful():
		j.skip(name, "a table without state does not tell what waits")
		return
	case b == nil && t.Missing["backlog"] == "":
		j.skip(name, "its rows cannot be read (see the checks columns, table-privileges and status-values)")
		return
	case b == nil:
		j.unseen(name, t.Missing["backlog"]+"; an index for the sweep would make it quick")
		return
	}
	found := count(int(b.Rows), "row waits", "rows wait")
	if b.More {
		found = "more than " + found
	}
	if b.Rows > 0 && b.Oldest >= 0 {
		found += ", the oldest for " + span(b.Oldest)
	}
	if b.Rows > 0 && b.Oldest > long {
		j.warn(name, found, "outbox-cdc run  # publishes them", "or, for rows that another relay has sent already, first: UPDATE "+quotedTable(t.Table.Table)+" SET … WHERE …;")
	}
	j.otherwise(name, "%s", found)
}
