package preflight

import (
	"fmt"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

var slotChecks = []check{
	{
		name: "slot", needs: []string{"state"}, judge: judgeSlot,
		looks:  "the slot: it exists, `pgoutput`, this database, not two_phase, `wal_status`, who reads it",
		levels: "FAIL: it is somebody else's, or somebody else reads it. WARN: it does not exist, or is lost (a process re-creates it, and sweeps)",
		why:    "the slot is what makes rows arrive within milliseconds and in commit order; without it they are swept",
	},
	{
		name: "slot-wal", needs: []string{"state"}, judge: judgeSlotWAL,
		looks:  "how much WAL the slot holds back, against `wal_budget` and what the server still allows",
		levels: "FAIL: the server may drop the slot at its next checkpoint. WARN: more than three quarters of the budget, or of what the server allows",
		why:    "held back WAL fills the primary's disk",
	},
	{
		name: "slot-creation", needs: []string{"state"}, judge: judgeBlockers,
		looks:  "where there is no slot yet: the open and prepared transactions, of all databases of the server, that slot creation waits for",
		levels: "WARN: one older than a minute, or a prepared one",
		why:    "a new slot waits until all of them have ended",
	},
	{
		name: "leadership-lock", judge: judgeLeadershipLock,
		looks:  "who holds the stream's leadership lock, which every role that may connect can take",
		levels: "FAIL: a session that neither streams nor may write `outbox_cdc.leader`",
		why:    "while somebody else holds it no process leads, and nothing is published",
	},
	{
		name: "paused", needs: []string{"server"}, judge: judgePaused,
		looks:  "what operators have paused: the stream, or tables of it",
		levels: "WARN: the stream or a table is paused",
		why:    "its rows stay pending until somebody resumes it",
	},
	{
		name: "publication", needs: []string{"state"}, judge: judgePublication,
		looks:  "the publication: it exists and publishes inserts and nothing else",
		levels: "FAIL: it is missing, or publishes no inserts. WARN: it publishes more, or every table of the database",
		why:    "without it the WAL gives nothing; with updates in it our own marks come back, and are decoded for nothing",
	},
	{
		name: "publication-tables", needs: []string{"state"}, judge: judgeCovered,
		looks:  "each table is in the publication, under its own name (partitions through their root), with all mapped columns, and no table inherits from it",
		levels: "FAIL: a table or column is missing there, or a table inherits",
		why:    "rows that do not come through the publication are left to the sweeper, or, where the table keeps no state, lost",
	},
	{
		name: "row-filter", needs: []string{"state"}, judge: judgeRowFilter,
		looks:  "row filters of the publication (15 and later)",
		levels: "WARN: a filter is not made from the configuration's `rows` and `share`. FAIL: the table of such a filter keeps no state",
		why:    "rows that it hides are found late, by the sweeper, or, where the table keeps no state, never",
	},
	{
		name: "share", judge: judgeShare,
		looks:  "whether another stream leads on the same rows; where streams share a table (`share`): whether each part is published by exactly one publication of this database",
		levels: "FAIL: another stream has the rows, and leads. WARN: a part has no publication, or several; another publication splits the table, or splits it another way",
		why:    "rows of a part that no stream takes stay PENDING; where two splits overlap, rows are published twice, and out of order",
	},
}

func judgeSlot(j *judgment) {
	alone := *j.State // as if everything but the slot were in order
	alone.InRecovery, alone.WALLevel, alone.Plugins, alone.Tables = false, "logical", "pgoutput", nil
	alone.Publication = replication.Publication{Exists: true, Insert: true}
	name, slot, v := j.Stream.Replication.Slot, &j.State.Slot, j.verdict(&alone)
	undecodable, _ := j.State.Undecodable()
	holder := "somebody"
	if j.Server != nil && j.Server.Holder != "" {
		holder = j.Server.Holder
	}
	switch {
	case v.Err != nil:
		j.fail("slot "+name, v.Reason, v.Err.Hint)
	case !slot.Exists && undecodable != "":
		j.skip("slot "+name, "it does not exist, and cannot be made while "+undecodable+" (see the check wal-level); the table is swept until then")
	case !slot.Exists:
		j.warn("slot "+name, "it does not exist; a process makes it when it starts, or init does now", "outbox-cdc init --stream "+j.Stream.Name).Fix = FixSlot
	case !v.Sound:
		j.warn("slot "+name, v.Reason+"; a process that starts drops it, re-creates it and sweeps what it missed",
			"outbox-cdc run  # nothing else is to be done", "or drop it now: SELECT pg_drop_replication_slot("+sql.Literal(name)+");")
	case slot.Active && j.Leader != nil && j.Leader.PID == "":
		j.fail("slot "+name, "it is read by "+holder+", which does not hold this stream's leadership: another program",
			fmt.Sprintf("stop that program, or end its session: SELECT pg_terminate_backend(%s);", slot.ActivePID), "or give this stream a slot of its own: slot: …")
	case slot.Active:
		j.ok("slot "+name, "pgoutput, wal_status %s, read by the leader: %s", slot.WALStatus, holder)
	default:
		j.ok("slot "+name, "pgoutput, wal_status %s, read by nobody", slot.WALStatus)
	}
}

func judgePaused(j *judgment) {
	for _, p := range j.Paused {
		hint := "outbox-cdc resume --stream " + j.Stream.Name
		if p.Scope.Table != "" {
			hint += " --table " + p.Scope.Table
		}
		j.warn("", fmt.Sprintf("%s is %s since %s", p.Scope, p.Reason, p.Since.UTC().Format(time.RFC3339)), hint)
	}
	j.otherwise("", "nothing is paused")
}

func judgeLeadershipLock(j *judgment) {
	lock := "slot " + j.Stream.Replication.Slot
	switch h := j.Leader; {
	case h == nil:
		j.unseen(lock, j.missing("leader"))
	case h.Foreign:
		j.fail(lock, h.Intruder(), fmt.Sprintf("SELECT pg_terminate_backend(%s);", h.PID))
	case h.PID == "":
		j.ok(lock, "nobody holds it")
	default:
		j.ok(lock, "the leader holds it: %s", h)
	}
}

func judgeSlotWAL(j *judgment) {
	name, r := "slot "+j.Stream.Replication.Slot, j.Retained
	switch {
	case !j.State.Slot.Exists || j.State.Slot.Lost():
		j.skip(name, "there is no slot that holds WAL back")
		return
	case r == nil:
		j.unseen(name, j.missing("retained"))
		return
	}
	budget := j.Stream.WALBudget
	found := fmt.Sprintf("it holds back %s of WAL; the budget is %s", size(int64(r.Bytes())), size(int64(budget))) // #nosec G115 -- far below 2^63
	if r.Safe >= 0 {
		found += ", and the server drops it after " + size(r.Safe) + " more"
	}
	if r.HeldByOthers(budget) && len(j.Blockers) > 0 {
		j.warn(name, found+"; an open transaction holds it, which no stream can end", j.Blockers[0].String())
		return
	}
	hint := []string{"outbox-cdc run  # while it runs, the budget is kept", "or, if the stream is given up: outbox-cdc destroy --stream " + j.Stream.Name}
	switch {
	case r.Status == "unreserved":
		j.fail(name, found+" (wal_status is unreserved: at the next checkpoint)", hint...)
	case r.Bytes() > budget/4*3, r.Safe >= 0 && r.Bytes()/3 > uint64(r.Safe): // #nosec G115 -- not negative
		j.warn(name, found, hint...)
	default:
		j.ok(name, "%s", found)
	}
}

func judgeBlockers(j *judgment) {
	switch {
	case j.State.Slot.Exists:
		j.skip("", "the slot is there already")
		return
	case j.Missing["blockers"] != "":
		j.unseen("", j.Missing["blockers"])
		return
	}
	var old []string
	for _, b := range j.Blockers {
		if b.Seconds >= 60 || b.Prepared != "" {
			old = append(old, b.String())
		}
	}
	if len(old) == 0 {
		j.ok("", "%s to wait for, none older than a minute", count(len(j.Blockers), "open transaction", "open transactions"))
		return
	}
	j.warn("", count(len(old), "transaction keeps", "transactions keep")+" the slot from being made", old...)
}

func judgePublication(j *judgment) {
	name := j.Stream.Replication.Publication
	subject, insertOnly := "publication "+name, "ALTER PUBLICATION "+sql.Identifier(name)+" SET (publish = 'insert');"
	switch p := &j.State.Publication; {
	case !p.Exists:
		j.fail(subject, "it does not exist", "outbox-cdc init --stream "+j.Stream.Name).Fix = FixPublication
	case !p.Insert:
		j.fail(subject, "it does not publish inserts", insertOnly)
	case p.Update || p.Delete || p.Truncate:
		j.warn(subject, "it publishes more than inserts", insertOnly)
	case p.AllTables:
		j.warn(subject, "it is FOR ALL TABLES: every insert of the database is decoded and sent to us, and thrown away",
			"make one of the outbox tables alone under another name, and name it in the configuration (publication: …): outbox-cdc init")
	default:
		j.ok(subject, "it publishes inserts of %s", count(len(j.State.Tables), "configured table", "configured tables"))
	}
}

func judgeCovered(j *judgment) {
	if !j.State.Publication.Exists {
		j.skip("", "there is no publication (see the check publication)")
		return
	}
	v := j.verdict(j.State)
	for _, t := range j.State.Tables {
		name := t.Table.String()
		bad := slices.IndexFunc(v.Tables, func(b replication.TableVerdict) bool { return b.Table == t.Table })
		switch {
		case !t.Exists:
			j.skip(name, "the table is not there (see the check table)")
		case bad < 0 && t.PublishedPartitions > 0:
			j.ok(name, "published, with %s through it", count(t.PublishedPartitions, "partition", "partitions"))
		case bad < 0:
			j.ok(name, "published")
		case t.Published && j.unfit(t.Table):
			j.skip(name, "columns of the table are missing, or cannot be used (see the check columns)")
		default:
			f := j.fail(name, v.Tables[bad].Reason, v.Tables[bad].Hint)
			if j.State.Publication.Ours && slices.Contains(v.Add, t.Table) {
				f.Fix = FixPublication
			}
		}
	}
}

// unfit reports whether the table's own columns do not fit its mapping. Faults of the publication's columns
// then follow from that.
func (j *judgment) unfit(table *outbox.Table) bool {
	return slices.ContainsFunc(j.Tables, func(t TableFacts) bool {
		return t.Table.Table == table && t.Inspection != nil && slices.ContainsFunc(t.Inspection.Findings, func(f TableFinding) bool {
			return f.Fatal && f.About == AboutColumn
		})
	})
}

// heldColumns is added to a report of a row filter, so that its effect on migrations is known in time.
const heldColumns = "; PostgreSQL lets nobody drop a column of it, or give it another type, while it is there (ALTER PUBLICATION … SET TABLE … takes it away)"

func judgeRowFilter(j *judgment) {
	for i := range j.State.Tables {
		t := &j.State.Tables[i]
		name := t.Table.String()
		switch {
		case !j.State.Publication.Exists:
			j.skip(name, "there is no publication (see the check publication)")
		case t.Table.Share.Of > 0 && !outbox.HasFilter(t.RowFilter, t.Table.Filter("")):
			j.skip(name, "the publication does not pass the share (see the check publication-tables)")
		case t.FilterFit() == replication.FilterDiffers:
			j.filterDiffers(t)
		case t.FilterFit() == replication.FilterMissing:
			j.ok(name, "rows of others come through the WAL and are dropped here; outbox-cdc init has the publication hold them back, WHERE %s", t.Filter())
		case t.Filter() == "" && (len(t.Table.Mapping.Rows) > 0 || t.Table.Mapping.LeavesToOthers() != nil):
			j.ok(name, "no row filter: rows of others come through the WAL and are dropped here; %s", unfilterable(j.State))
		case t.Filter() == "":
			j.ok(name, "no row filter")
		case t.Table.Share.Of > 0:
			j.ok(name, "the publication passes %s, WHERE %s"+heldColumns, t.Table.Share, t.RowFilter)
		default:
			j.ok(name, "the publication passes only our rows, WHERE %s"+heldColumns, t.RowFilter)
		}
	}
}

// unfilterable returns why no row filter can have the mapping's conditions.
func unfilterable(s *replication.State) string {
	switch {
	case s.Version < 150000:
		return "row filters came with PostgreSQL 15"
	case s.Publication.Update || s.Publication.Delete:
		return "the publication publishes more than inserts, so a filter would have the server refuse the application's changes"
	}
	return "a row filter can have no types or collations of users, no paths into JSON, and here no words beyond ASCII"
}

// filterDiffers reports that the publication's filter may hold back rows of this stream. Conditions are
// compared as text, so any other filter than the wanted one counts.
func (j *judgment) filterDiffers(t *replication.TableState) {
	found := "the publication passes only rows WHERE " + t.RowFilter
	if want := t.Filter(); want != "" {
		found += ", not WHERE " + want
	}
	found += heldColumns
	if !t.Table.Stateful() {
		j.fail(t.Table.String(), found, replication.SetTables(j.State, &j.Stream.Replication))
		return
	}
	if f := j.warn(t.Table.String(), found, replication.SetTables(j.State, &j.Stream.Replication)); t.Refilters(j.State) {
		f.Fix = FixPublication
	}
}
