package replication

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Identity is what a stream remembers of the slot that it last streamed from.
type Identity = outbox.Identity

// Action says whether an object has to be made.
type Action uint8

// The actions.
const (
	Keep   Action = iota // nothing to make
	Make                 // it does not exist: make it
	Remake               // drop it and make it again
)

// Verdict says what a State means for a stream, and what has to be done.
type Verdict struct {
	// Sound: START_REPLICATION resumes where the stream left off, and no row was missed. If Sound is false,
	// the stream is parked for Cause and Reason and its tables are swept. Publication and Slot are then made;
	// the slot only once the park is durable.
	Sound  bool
	Cause  outbox.Cause
	Reason string

	Publication, Slot Action
	// Add are the tables that the publication lacks and that can be added. The stream can run without them:
	// the sweeper publishes their rows.
	Add []*outbox.Table
	// Tables are the tables whose rows the publication lacks or filters wrongly, each with the reason. They
	// are to be parked for CausePublication.
	Tables []TableVerdict
	// Err is a fault that only a person can fix. The tables are swept until then.
	Err *postgres.Error
	// Lost says why rows of a stream without state may be lost. The stream must stop until a person has
	// checked.
	Lost *postgres.Error
	// Warnings are worth a log line, for example needless load or rows that a filter holds back.
	Warnings []string
}

// TableVerdict is a table whose rows do not come through the stream, and the reason.
type TableVerdict struct {
	Table  *outbox.Table
	Reason string
	Hint   string
}

// Judge returns the Verdict on a State, given what the stream remembers. Judge is a pure function.
//
// A readable slot that is new to the stream (init has just made it) is unsound too: the stream is parked, so
// that rows from before the slot are swept. When the park is durable and the Verdict's actions are done, call
// Judge again, with the Identity of the new State as the remembered one. Then only faults of the slot itself
// count.
func Judge(s *State, cfg *Config, remembered Identity) Verdict {
	v := Verdict{}
	v.judgeServer(s)
	if len(s.Lacking) > 0 {
		return v
	}
	v.judgeSlot(s, cfg, remembered)
	if remembered.Publication != "" && remembered.SystemID == s.SystemID {
		// The publication lists relations, the configuration lists names. A replaced table is reported before
		// the publication's loss of the old one, which is only its consequence.
		if damage := Replaced(remembered.Relations, s.relations()); damage != "" {
			v.passedOver(cfg, damage)
		}
	}
	v.judgePublication(s, cfg, remembered)
	v.judgeWarnings(s, cfg)
	for i := range s.Tables {
		v.judgeTable(s, &s.Tables[i], cfg)
	}
	v.Sound = v.Cause == ""
	return v
}

// Identify returns the Identity to remember once the slot is sound.
func Identify(s *State, cfg *Config) Identity {
	return Identity{
		Slot: cfg.Slot, SystemID: s.SystemID, Timeline: s.Timeline,
		SlotPoint: s.Slot.Confirmed, Publication: s.Publication.Mark, Relations: s.relations(),
	}
}

func (s *State) relations() map[string]uint32 {
	relations := map[string]uint32{}
	for i := range s.Tables {
		if t := &s.Tables[i]; t.Unlogged || t.Children != "" {
			relations[t.Table.String()] = 0 // treated as missing: none, or only some, of its rows are in the WAL
		} else {
			relations[t.Table.String()] = t.OID
		}
	}
	return relations
}

// unsound records a cause and a reason. Only the first is kept: later ones are its consequences.
func (v *Verdict) unsound(cause outbox.Cause, reason string, args ...any) {
	if v.Cause == "" {
		v.Cause, v.Reason = cause, fmt.Sprintf(reason, args...)
	}
}

func (v *Verdict) needsPerson(what, hint string, err error) {
	if v.Err == nil {
		v.Err = &postgres.Error{Permanent: true, What: what, Hint: hint, Err: err}
	}
}

func (v *Verdict) judgeServer(s *State) {
	if s.InRecovery {
		v.unsound(outbox.CauseSlot, "the server is a standby")
		v.needsPerson("stream from the server", "point the dsn to the primary, for example with target_session_attrs=read-write",
			errors.New("the server is in recovery"))
		v.Err.Permanent = false // a promotion may be under way
		return
	}
	if reason, hints := s.Undecodable(); reason != "" {
		v.unsound(outbox.CauseSlot, "%s", reason)
		v.needsPerson("stream from the server", oneHint(hints), errors.New(reason))
	}
}

// judgeWarnings finds settings that work but are hardly intended.
func (v *Verdict) judgeWarnings(s *State, cfg *Config) {
	if len(s.Untold) > 0 {
		v.Warnings = append(v.Warnings, s.UntoldText()+"; a newer outbox-cdc may know that version, this one streams without")
	}
	if synchronous(s.SyncStandbys, cfg.withDefaults().Name) {
		v.Warnings = append(v.Warnings, fmt.Sprintf("synchronous_standby_names = '%s' counts outbox-cdc itself as a synchronous standby: "+
			"commits wait for it, and its own wait for themselves; name the real standbys there", s.SyncStandbys))
	}
	if cfg.Failover && s.Version >= 170000 && s.Slot.Exists && !s.Slot.Failover {
		v.Warnings = append(v.Warnings, fmt.Sprintf("slot %s is not carried along to standbys; over a replication connection: ALTER_REPLICATION_SLOT %s (FAILOVER true)",
			cfg.Slot, sql.Identifier(cfg.Slot)))
	}
}

// synchronous reports whether synchronous_standby_names matches an application_name. It compares as the
// server does: case is ignored, and * matches every name.
// https://www.postgresql.org/docs/current/runtime-config-replication.html#GUC-SYNCHRONOUS-STANDBY-NAMES
func synchronous(setting, application string) bool {
	names := strings.FieldsFunc(setting, func(r rune) bool { return strings.ContainsRune("(), \"", r) })
	return slices.ContainsFunc(names, func(name string) bool { return name == "*" || strings.EqualFold(name, application) })
}

func (v *Verdict) judgeSlot(s *State, cfg *Config, remembered Identity) {
	slot := &s.Slot
	if !slot.Exists {
		v.Slot = Make
		v.unsound(outbox.CauseSlot, "slot %s does not exist", cfg.Slot)
		return
	}
	if foreign := foreignSlot(s); foreign != "" {
		v.unsound(outbox.CauseSlot, "slot %s is not ours: %s", cfg.Slot, foreign)
		v.needsPerson("use slot "+cfg.Slot,
			fmt.Sprintf("give the stream another slot name, or, if nobody needs that slot: SELECT pg_drop_replication_slot('%s')", cfg.Slot),
			fmt.Errorf("the slot is not ours: %s", foreign))
		return
	}
	if reason := unusable(s, remembered); reason != "" {
		v.Slot = Remake
		v.unsound(outbox.CauseSlot, "slot %s %s", cfg.Slot, reason)
		return
	}
	if reason := unprovenSlot(s, cfg, remembered); reason != "" {
		v.unsound(outbox.CauseSlot, "slot %s %s", cfg.Slot, reason)
	}
}

// foreignSlot returns why a slot of our name cannot be one that init made; "" if it can.
func foreignSlot(s *State) string {
	slot := &s.Slot
	switch {
	case slot.Type != "logical":
		return "it is a " + slot.Type + " slot"
	case slot.Plugin != plugin:
		return "its output plugin is " + slot.Plugin + ", not pgoutput"
	case slot.Database != s.Database:
		return "it belongs to database " + slot.Database
	case slot.Temporary && !slot.Synced:
		return "it is temporary"
	case slot.TwoPhase:
		return "two_phase is on, which delivers prepared transactions before they are committed"
	}
	return ""
}

// unusable returns why resuming from our slot is impossible or would skip rows; "" if neither.
func unusable(s *State, remembered Identity) string {
	slot := &s.Slot
	switch {
	case slot.Lost():
		return "is lost: " + slot.LostBecause()
	case slot.Confirmed == 0:
		return "was never completed"
	case slot.Confirmed > s.Insert:
		return fmt.Sprintf("is at %v, but the WAL ends at %v: the database was put back (from a backup, by a failover), the slot was not", slot.Confirmed, s.Insert)
	case remembered.SystemID != "" && s.SystemID != "" && remembered.SystemID != s.SystemID:
		return fmt.Sprintf("is on another database cluster (system identifier %s, before %s)", s.SystemID, remembered.SystemID)
	}
	return foreignTimeline(s, remembered)
}

// lostText returns why the server has invalidated a slot, with the present value of the limit that caused it.
// Servers before version 17 give no reason.
func lostText(invalidation, keepSize, idleTimeout string) string {
	switch invalidation {
	case "":
		return "its WAL exceeded max_slot_wal_keep_size (" + keepSize + ")"
	case "wal_removed":
		return "wal_removed: its WAL exceeded max_slot_wal_keep_size (" + keepSize + ")"
	case "idle_timeout":
		return "idle_timeout: nobody read from it for idle_replication_slot_timeout (" + idleTimeout + ")"
	}
	return invalidation
}

// foreignTimeline finds a slot whose confirmed position lies on another timeline, beyond the point where this
// server's history left it. The WAL that this server has at those positions would be skipped. A slot that a
// proper failover carried along stands at or before that point.
func foreignTimeline(s *State, remembered Identity) string {
	if remembered.Timeline == 0 || s.Timeline == 0 || remembered.Timeline == s.Timeline {
		return ""
	}
	end, ancestor := s.Ended[remembered.Timeline]
	switch {
	case !ancestor:
		return fmt.Sprintf("is on timeline %d, which does not descend from timeline %d", s.Timeline, remembered.Timeline)
	case s.Slot.Confirmed > end:
		return fmt.Sprintf("is at %v, but timeline %d, on which it got there, was left at %v", s.Slot.Confirmed, remembered.Timeline, end)
	}
	return ""
}

// unprovenSlot returns why a readable slot may have missed earlier rows; "" if it has not.
func unprovenSlot(s *State, cfg *Config, remembered Identity) string {
	switch {
	case remembered.SystemID == "" || remembered.Slot != cfg.Slot:
		return "is new to this stream: rows from before it are swept first"
	case remembered.Stopped != 0 && s.Slot.Confirmed > remembered.Stopped:
		return fmt.Sprintf("was moved on from %v to %v, or re-created, by somebody else", remembered.Stopped, s.Slot.Confirmed)
	}
	return ""
}

func (v *Verdict) judgePublication(s *State, cfg *Config, remembered Identity) {
	p := &s.Publication
	if !p.Exists {
		v.Publication = Make
		// On versions before 18, decoding with this slot would fail at the same point every time.
		if v.Slot == Keep && s.Slot.Exists {
			v.Slot = Remake
		}
		v.unsound(outbox.CausePublication, "publication %s does not exist", cfg.Publication)
		return
	}
	if !p.Insert {
		v.unsound(outbox.CausePublication, "publication %s does not publish inserts", cfg.Publication)
		v.needsPerson("use publication "+cfg.Publication, alterPublication(cfg, "SET (publish = 'insert')"),
			errors.New("it does not publish inserts"))
	}
	if p.Insert && (p.Update || p.Delete || p.Truncate) {
		v.Warnings = append(v.Warnings, fmt.Sprintf("publication %s publishes more than inserts, which doubles the work: %s",
			cfg.Publication, alterPublication(cfg, "SET (publish = 'insert')")))
	}
	if remembered.Publication != "" && remembered.SystemID == s.SystemID {
		if damage := Damage(remembered.Publication, p.Mark); damage != "" {
			v.passedOver(cfg, fmt.Sprintf("publication %s %s: rows may have been passed over", cfg.Publication, damage))
			// On versions before 18, decoding fails for ever at a change made while the publication did not
			// exist.
			if v.Slot == Keep {
				v.Slot = Remake
			}
		}
	}
}

// passedOver records that rows may not have come through the WAL. Rows of tables with state are swept. For a
// table without state nobody can know which rows are missing, so a person has to check.
func (v *Verdict) passedOver(cfg *Config, reason string) {
	v.unsound(outbox.CausePublication, "%s", reason)
	stateless := slices.ContainsFunc(cfg.Tables, func(t *outbox.Table) bool { return !t.Stateful() })
	if !stateless || v.Lost != nil {
		return
	}
	v.Lost = &postgres.Error{
		Permanent: true, What: "go on from slot " + cfg.Slot, Err: errors.New(reason + "; rows that were written meanwhile may be in no slot, " +
			"and with published: none nothing tells which: the stream stops"),
		Hint: "compare the table with the topic and publish what is missing; put the publication right (outbox-cdc init); then have the stream go on: " +
			"UPDATE outbox_cdc.leader SET publication = '' WHERE slot = '" + cfg.Slot + "';",
	}
}

func alterPublication(cfg *Config, what string) string {
	return "ALTER PUBLICATION " + sql.Identifier(cfg.Publication) + " " + what + ";"
}

func (v *Verdict) judgeTable(s *State, t *TableState, cfg *Config) {
	addable := t.Kind == "r" && !t.Unlogged || t.Kind == "p" && t.PublishedPartitions == 0
	if t.Exists && addable && t.PartitionOf == "" && !t.Published && s.Publication.Exists && !s.Publication.AllTables {
		v.Add = append(v.Add, t.Table)
	}
	if reason, hint := uncovered(s, t, cfg); reason != "" {
		v.Tables = append(v.Tables, TableVerdict{Table: t.Table, Reason: reason, Hint: hint})
	}
	if t.FilterFit() == FilterDiffers && (t.Table.Share.Of == 0 || outbox.HasFilter(t.RowFilter, t.Table.Filter(""))) {
		others := "the sweeper publishes the others"
		if !t.Table.Stateful() {
			others = "the others are never published, since the table keeps no state: " + alterPublication(cfg, "SET TABLE "+t.Listed()) + "  -- with every other table that it is to keep"
		}
		instead := ""
		if filter := t.Filter(); filter != "" {
			instead = ", not WHERE " + filter
		}
		v.Warnings = append(v.Warnings, fmt.Sprintf("publication %s passes only rows of %s WHERE %s%s; %s", cfg.Publication, t.Table, t.RowFilter, instead, others))
	}
}

// inherited returns why tables that inherit from this one are an obstacle, and what to do. An empty reason:
// there are no such tables.
func (t *TableState) inherited() (reason, hint string) {
	if t.Children == "" {
		return "", ""
	}
	return "rows of tables that inherit from " + t.Table.String() + " (" + t.Children + ") do not come through the WAL as its rows",
		"make them partitions of it, or take them out of it (ALTER TABLE … NO INHERIT " + quoteTable(t.Table) + ") and map each as a table of its own"
}

// uncovered returns why the publication does not bring a table's rows under the table's own name, with all
// mapped columns. An empty reason: it does.
func uncovered(s *State, t *TableState, cfg *Config) (reason, hint string) {
	name := t.Table.String()
	switch {
	case !t.Exists:
		return "table " + name + " does not exist", "correct its name, or create it"
	case t.Kind != "r" && t.Kind != "p":
		return name + " is not a table", "name a table"
	case t.Children != "":
		return t.inherited()
	case t.Unlogged:
		return "table " + name + " is unlogged: nothing of it is in the WAL", "ALTER TABLE " + quoteTable(t.Table) + " SET LOGGED;"
	case !s.Publication.Exists:
		return "publication " + cfg.Publication + " does not exist", "run outbox-cdc init"
	case t.PartitionOf != "" && s.Publication.ViaRoot && !t.Published:
		return "table " + name + " is a partition and published as " + t.PartitionOf, "configure " + t.PartitionOf + " instead"
	case t.Kind == "p" && t.PublishedPartitions > 0 && !s.Publication.ViaRoot:
		return "partitions of " + name + " are published by their own names", alterPublication(cfg, "SET (publish_via_partition_root = true)")
	case !t.Published && s.Publication.AllTables:
		return "publication " + cfg.Publication + " is FOR ALL TABLES and excludes table " + name,
			alterPublication(cfg, "SET ALL TABLES") + "  -- with EXCEPT (TABLE …) for every other table that it is to leave out"
	case !t.Published:
		return "publication " + cfg.Publication + " lacks table " + name, alterPublication(cfg, "ADD TABLE "+t.Listed())
	case t.Table.Share.Of > 0 && !outbox.HasFilter(t.RowFilter, t.Table.Filter("")):
		return wrongShare(s, t, cfg)
	}
	if reason, hint := leftOut(s, t, cfg); reason != "" {
		return reason, hint
	}
	if lacking := lackingColumns(t); len(lacking) > 0 {
		return fmt.Sprintf("publication %s lacks columns %s of table %s", cfg.Publication, strings.Join(lacking, ", "), name),
			SetTables(s, cfg)
	}
	return "", ""
}

// leftOut returns why a mapped generated column is missing from the WAL, and what to do. An empty reason:
// none is missing.
func leftOut(s *State, t *TableState, cfg *Config) (reason, hint string) {
	for _, column := range t.unseen() {
		if reason, hint := NotInWAL(t.Table, column, t.Generated[column], s.Version); reason != "" {
			return reason, hint
		}
		if !s.Publication.Stored {
			return fmt.Sprintf("publication %s leaves out the generated column %q of table %s", cfg.Publication, column, t.Table), publishStored(cfg)
		}
	}
	return "", ""
}

// unseen returns the mapped generated columns that the publication does not publish.
func (t *TableState) unseen() []string {
	return slices.DeleteFunc(mapped(&t.Table.Mapping), func(column string) bool {
		_, generated := t.Generated[column]
		return !generated || slices.Contains(t.Columns, column)
	})
}

// publishStored returns the statement that makes the publication publish STORED generated columns.
func publishStored(cfg *Config) string {
	return alterPublication(cfg, "SET (publish_generated_columns = stored)")
}

// NotInWAL returns why no publication on this server version can publish a generated column, and the ways
// out. An empty problem: a publication can publish it.
// https://www.postgresql.org/docs/current/logical-replication-gencols.html
func NotInWAL(t *outbox.Table, column string, stored bool, version int) (problem, hint string) {
	alter, name := "ALTER TABLE "+quoteTable(t), sql.Identifier(column)
	instead := "; or map the columns that it is made of (key: {template: …})"
	switch {
	case !stored:
		return fmt.Sprintf("column %q is generated and VIRTUAL, so it is not in the WAL", column),
			"make it STORED, which rewrites the table: " + alter + " DROP " + name + ", ADD " + name + " … GENERATED ALWAYS AS (…) STORED, then outbox-cdc init" + instead
	case version < generatedSince:
		return fmt.Sprintf("column %q is generated, and before PostgreSQL 18 such columns are not in the WAL", column),
			"make it an ordinary column (" + alter + " ALTER " + name + " DROP EXPRESSION) that a BEFORE INSERT trigger sets" + instead
	}
	return "", ""
}

const generatedSince = 180000

// wrongShare returns why the publication's filter does not fit the table's share. Rows of another share must
// stay out of this stream: the other share's own stream publishes them.
func wrongShare(s *State, t *TableState, cfg *Config) (reason, hint string) {
	passes := "every row"
	if t.RowFilter != "" {
		passes = "rows WHERE " + t.RowFilter
	}
	reason = fmt.Sprintf("publication %s passes %s of table %s, not %s", cfg.Publication, passes, t.Table, t.Table.Share)
	if s.Version < rowFiltersSince {
		return reason, "row filters came with PostgreSQL 15: upgrade the server, or take share away and stream the table once"
	}
	return reason, SetTables(s, cfg)
}

// SetTables returns the statement that lists every table of the stream in the publication again, without
// column lists and with the configured row filters.
func SetTables(s *State, cfg *Config) string {
	names := make([]string, len(s.Tables))
	for i := range s.Tables {
		names[i] = s.Tables[i].Listed()
	}
	return alterPublication(cfg, "SET TABLE "+strings.Join(names, ", ")) + "  -- with every other table that it is to keep"
}

// lackingColumns returns the mapped columns that the publication's column list leaves out. Column lists exist
// from version 15 on.
func lackingColumns(t *TableState) []string {
	if len(t.Columns) == 0 {
		return nil
	}
	return slices.DeleteFunc(mapped(&t.Table.Mapping), func(column string) bool { return slices.Contains(t.Columns, column) })
}
