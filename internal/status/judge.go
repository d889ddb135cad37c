package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file judges a stream. It is the only code that does, so that mode, headline, color, page, status, JSON
// and readiness agree. Each finding that somebody should act on names its alert.

// The levels of a finding and of a stream, worst first.
const (
	Bad  = "bad"
	Warn = "warn"
	Note = "note"
	Good = "good"
)

var levels = []string{Bad, Warn, Note, Good}

// Worse compares two levels. The result is negative if a is worse.
func Worse(a, b string) int { return cmp.Compare(slices.Index(levels, a), slices.Index(levels, b)) }

// Finding is something about a stream that somebody should know.
type Finding struct {
	// Level is `bad` (somebody has to act, or rows wait), `warn` or `note`.
	Level string `json:"level"`
	// Short is the finding in a few words, as in `mode_text`. Missing: the mode or another finding says the same.
	Short string `json:"short,omitempty"`
	// Text says what is wrong and why.
	Text string `json:"text"`
	// Hint says what to do.
	Hint string `json:"hint"`
	// Since is when the finding began. Missing: the time is not known, or the text has it.
	Since time.Time `json:"since,omitzero"`
	// Alert is the name of the finding's alert, and of its page in docs/runbooks. Missing: none.
	Alert string `json:"alert,omitempty"`
	// Blocks: rows of a whole cluster, table or stream cannot be published, so the stream is not ready.
	Blocks bool `json:"blocks,omitempty"`
	// Parked: it is about what is parked, which parks.top lists.
	Parked bool `json:"parked,omitempty"`
	// Failed: it is about FAILED rows.
	Failed bool `json:"failed,omitempty"`
}

const (
	// UrgentLoss is the time to a slot's bound, in seconds, that counts as urgent.
	UrgentLoss = 3600
	longWait   = 300 // seconds, as in the alert OutboxRowsWait
	oldCount   = 30 * time.Second
)

// Judge fills in Level, ModeText and Findings (worst first).
func Judge(s *Stream) {
	j := judgment{s: s}
	j.mode()
	j.slot()
	j.kafka()
	j.parks()
	j.tables()
	if s.Unproven != "" && !slices.ContainsFunc(j.found, func(f Finding) bool { return f.Level == Bad && f.Blocks }) { // otherwise that finding is the reason
		j.add(Finding{
			Level: Warn, Short: "not ready", Text: "It has not been seen to be able to do its work: " + s.Unproven,
			Hint: "outbox-cdc check --stream " + s.Name + " says what is wrong, and the command that fixes it.", Blocks: true,
		})
	}
	slices.SortStableFunc(j.found, func(a, b Finding) int { return Worse(a.Level, b.Level) })
	s.Findings, s.Level = j.found, Good
	if s.Mode == ModeStandby || s.Mode == ModeShadow {
		s.Level = Note
	}
	text := []string{Words(s.Mode)}
	switch {
	case s.Unreachable:
		text[0] = "cannot connect; who leads is unknown"
	case s.Error != "" && s.Mode == ModeStarting:
		text[0] = "does not work"
	}
	for i := range j.found {
		f := &j.found[i]
		if Worse(f.Level, s.Level) < 0 {
			s.Level = f.Level
		}
		if f.Short != "" && f.Level != Note {
			text = append(text, f.Short)
		}
	}
	s.ModeText = strings.Join(text, ", ")
}

type judgment struct {
	s        *Stream
	found    []Finding
	slotTold bool // a finding says that the slot is, or was, lost
}

func (j *judgment) add(f Finding) { j.found = append(j.found, f) }

// mode judges what the whole stream does.
func (j *judgment) mode() {
	s := j.s
	check := "outbox-cdc check --stream " + s.Name + " says what is wrong, and the command that fixes it."
	short, alert := "does not work", "OutboxStreamFails"
	if s.Mode == ModeStarting || s.Mode == ModeUnknown {
		short = "" // the mode says it
	}
	if s.Unreachable {
		alert = "OutboxNoLeader"
	}
	switch {
	case s.Error != "" && s.Mode == ModeSweep: // rows are published, whatever keeps the stream from its slot
		j.add(Finding{Level: Bad, Text: "Its rows are read from the table until this is put right: " + s.Error, Hint: check, Since: s.ErrorSince, Alert: alert})
	case s.Error != "":
		j.add(Finding{Level: Bad, Short: short, Text: "It does not work: " + s.Error, Hint: check, Since: s.ErrorSince, Alert: alert, Blocks: true})
	case s.Mode == ModeStopped:
		j.add(Finding{Level: Bad, Text: strings.TrimSuffix("No process leads: "+s.Reason, ": "), Hint: "Start outbox-cdc run; its log says why it ended.", Alert: "OutboxNoLeader", Blocks: true})
	case s.Mode == ModeUnknown:
		j.add(Finding{Level: Bad, Text: "Nobody could be asked.", Hint: check, Alert: "OutboxAbsent", Blocks: true})
	case s.Mode == ModeStarting:
		j.add(Finding{Level: Warn, Text: cmp.Or(s.Reason, "It is connecting to the database."), Hint: "Nothing to do if this passes within a minute; otherwise " + check, Blocks: true})
	}
	if s.Deaf && s.Mode != ModeSweep && len(j.found) == 0 {
		j.add(Finding{Level: Note, Text: "The replication connection is not streaming yet.", Hint: "Nothing to do if this passes within a minute; otherwise " + check, Blocks: true})
	}
	if s.Silence > 0 {
		quiet := About(s.Silence)
		j.add(Finding{
			Level: Bad, Short: "nothing heard for " + quiet, Text: "Nothing was heard on the replication connection for " + quiet + ".",
			Hint: "It is ended and made again by itself; if it comes again, look at the network and at the server's load.", Alert: "OutboxSilent", Blocks: true,
		})
	}
}

func (j *judgment) slot() {
	slot := j.s.Slot
	if slot == nil || j.s.Unreachable { // otherwise the slot's data is old
		return
	}
	still := "Nothing is lost: the stream then reads its rows from the table." // true whatever happens to the slot
	if slot.Unbounded {
		still = "The tables keep no state: what was not published yet is lost with the slot."
	}
	j.slotTold = slot.Lost != ""
	switch loss := slot.Loss; {
	case slot.WALStatus == "lost":
		j.add(Finding{
			Level: Bad, Short: "slot lost", Text: "The server has dropped what the stream needs: " + slot.lostText(), Since: slot.LostSince, Alert: "OutboxSlotLost",
			Hint: "Raise that limit if it comes again. The process that leads makes the slot again. " + still,
		})
	case slot.Lost != "" && j.s.Mode == ModeSweep:
		j.add(Finding{
			Level: Warn, Short: "slot lost", Text: "The server has dropped what the stream needs: " + slot.lostText(), Since: slot.LostSince, Alert: "OutboxSlotLost",
			Hint: "Nothing is lost: the rows are read from the table, then the stream goes on from a new slot. Raise that limit, or it comes again.",
		})
	case slot.Lost != "":
		still := "Nothing is lost: its rows were read from the table, and the stream goes on from a new slot."
		if slot.Unbounded {
			still = "The tables keep no state: compare them with the topics."
		}
		j.add(Finding{
			Level: Warn, Short: "slot was lost", Text: "The server had dropped what the stream needed: " + slot.lostText(), Since: slot.LostSince, Alert: "OutboxSlotLost",
			Hint: still + " Raise that limit, or it comes again. This is told for an hour.",
		})
	case slot.WALStatus == "unreserved":
		j.add(Finding{
			Level: Bad, Short: "slot about to be lost", Text: "The server may drop what slot " + slot.Name + " needs at its next checkpoint: its WAL exceeds max_slot_wal_keep_size.",
			Alert: "OutboxSlotUnreserved", Hint: "Raise max_slot_wal_keep_size now, or fix what holds the stream up. " + still,
		})
	case loss != nil && loss.By == LossByServer && loss.Seconds < UrgentLoss:
		j.add(Finding{
			Level: Bad, Short: "slot ends soon", Text: "Slot " + slot.Name + " is " + loss.Text() + ".", Alert: "OutboxSlotEndsSoon",
			Hint: "Raise max_slot_wal_keep_size, or fix what holds the stream up. " + still,
		})
	case loss != nil && loss.Seconds < UrgentLoss:
		j.add(Finding{
			Level: Warn, Short: "WAL budget used up soon", Text: "Slot " + slot.Name + " is " + loss.Text() + ".", Alert: "OutboxSlotEndsSoon",
			Hint: "Fix what holds the stream up, or raise wal_budget where the primary's disk has room.",
		})
	}
	if slot.StalledBy != "" {
		then := "; near wal_budget they are read from the table."
		if slot.Unbounded {
			then = ", which wal_budget does not bound."
		}
		j.add(Finding{
			Level: Bad, Short: "held up by the server", Text: "The server sends nothing from slot " + slot.Name + " since " + slot.StalledSince.Format(time.RFC3339) + ": " + slot.StalledBy,
			Alert: "OutboxNoProgress", Blocks: j.s.Mode == ModeStream,
			Hint: "Start the standby, or take it out of synchronized_standby_slots and reload; outbox-cdc check names it. Until then rows wait in the WAL" + then,
		})
	}
	if slot.HeldBy != "" {
		j.add(Finding{
			Level: Warn, Short: "WAL held back", Text: "Slot " + slot.Name + " holds back " + Bytes(slot.Retained) + " of WAL because of " + slot.HeldBy + ".", Alert: "OutboxSlotFillsDisk",
			Hint: "End that transaction. Sweeping frees nothing of it; above wal_budget the slot is given up, unless give_up_slot is false.",
		})
	}
}

func (j *judgment) kafka() {
	for _, c := range j.s.Kafka {
		if !c.Usable {
			j.add(Finding{
				Level: Bad, Short: "Kafka cluster " + c.Name + " cannot be used", Text: "Kafka cluster " + c.Name + " cannot be used: " + c.Error, Since: c.Since, Alert: "OutboxKafkaUnusable", Blocks: true,
				Hint: "Nothing is lost: its rows wait and go on by themselves once a broker answers. Look at the brokers, the network and the credentials.",
			})
		}
	}
	if j.s.Mode == ModeHold && len(j.found) == 0 {
		j.add(Finding{
			Level: Bad, Text: cmp.Or(j.s.Reason, "A row was refused, and its table keeps no state by which it could be passed over."), Alert: "OutboxNoProgress", Blocks: true,
			Hint: "The log and the last errors name the row and the reason.",
		})
	}
}

// parks judges the groups of parks. The text about a group follows its widest effect.
func (j *judgment) parks() {
	whole := false             // the stream itself is parked
	alike := map[string]*int{} // number of scopes that are counted together, by kind and text
	first := map[string]int{}  // index of the finding for them
	say := func(g *ParkGroup, what string) {
		which := g.Kind + " " + what
		if alike[which] == nil {
			alike[which], first[which] = new(int), len(j.found)
		}
		*alike[which] += g.Count
	}
	for i := range j.s.Parks.Top {
		g := &j.s.Parks.Top[i]
		whole = whole || g.Kind == outbox.ScopeStream.String()
		f := Finding{Level: Warn, Text: g.Text(), Hint: hintOf(outbox.Cause(g.Cause)), Since: g.Since, Alert: "OutboxParked", Parked: true}
		cause, unmarked := outbox.Cause(g.Cause), g.Cause == string(outbox.CauseWriteBack)
		switch kind := g.Kind; {
		case kind == outbox.ScopeStream.String() && j.slotTold && g.Reason == j.s.Slot.lostText():
			continue
		case kind == outbox.ScopeStream.String(): // the mode says it
		case cause == outbox.CausePaused:
			say(g, "paused")
		case kind == outbox.ScopeTable.String() && (cause == outbox.CauseMapping || unmarked):
			f.Level, f.Blocks = Bad, true
			say(g, "stuck")
		case kind == outbox.ScopeTable.String():
			say(g, "swept")
		case kind == outbox.ScopeKey.String() && cause == outbox.CauseBlocked:
			f.Alert = "OutboxRowsGivenUp"
			say(g, "blocked")
		case kind == outbox.ScopeRow.String() && unmarked:
			f.Alert = "OutboxWriteBackRefused"
			say(g, "published and not marked")
		case kind == outbox.ScopeKey.String(), kind == outbox.ScopeRow.String():
			f.Level, f.Alert = Note, ""
		default:
			say(g, "waiting")
		}
		if cause == outbox.CausePaused {
			f.Alert = "OutboxPaused"
		}
		j.add(f)
	}
	for which, n := range alike {
		kind, what, _ := strings.Cut(which, " ")
		j.found[first[which]].Short = kinds(*n, kind) + " " + what
	}
	if !whole && (j.s.Mode == ModeSweep || j.s.Mode == ModePaused) {
		j.add(Finding{Level: Warn, Text: cmp.Or(j.s.Reason, Words(j.s.Mode)), Hint: hintOf(""), Alert: "OutboxParked"})
	}
}

// lostText returns what package replication says of a slot that the server has invalidated.
func (s *Slot) lostText() string { return "slot " + s.Name + " is lost: " + s.Lost }

func (j *judgment) tables() {
	var failed []string
	var sum int64
	var counted string // when failed rows were counted, if that was long before the pending rows
	more := false
	for i := range j.s.Tables {
		t := &j.s.Tables[i]
		if t.Failed != nil && *t.Failed > 0 {
			failed, sum, more = append(failed, t.Name), sum+*t.Failed, more || t.FailedCapped
			if !t.FailedAt.IsZero() && t.CountedAt.Sub(t.FailedAt) > oldCount {
				counted = ", counted at " + t.FailedAt.Format(time.RFC3339)
			}
		}
		if t.Error != "" {
			j.add(Finding{Level: Warn, Short: "rows not counted", Text: "The rows of table " + t.Name + " could not be counted: " + t.Error, Hint: "outbox-cdc check says which right or index is missing."})
		}
		if t.Oldest > longWait && j.s.Mode != ModePaused {
			wait := About(time.Duration(t.Oldest * float64(time.Second)))
			j.add(Finding{
				Level: Warn, Short: "rows wait for " + wait, Text: "A row of table " + t.Name + " was due and waits for " + wait + ".", Alert: "OutboxRowsWait",
				Hint: "What is parked says why; otherwise outbox-cdc pending list shows the rows.",
			})
		}
	}
	if len(failed) == 0 {
		return
	}
	rows := number64(sum, more, "row")
	where := "table " + failed[0]
	if len(failed) > 1 {
		where = fmt.Sprintf("%d tables: %s", len(failed), strings.Join(failed, ", "))
	}
	j.add(Finding{
		Level: Warn, Short: rows + " FAILED", Text: strings.ToUpper(rows[:1]) + rows[1:] + map[bool]string{true: " is", false: " are"}[sum == 1 && !more] + " FAILED in " + where + counted + ".", Alert: "OutboxRowsGivenUp", Failed: true,
		Hint: "They will not be published until somebody requeues them. Look at their errors, fix the cause, then requeue or discard them.",
	})
}

func number(n int, what string) string { return number64(int64(n), false, what) }

func number64(n int64, more bool, what string) string {
	if n != 1 || more {
		noun, rest, _ := strings.Cut(what, " ")
		what = strings.TrimSpace(noun + "s " + rest)
	}
	text := fmt.Sprintf("%d %s", n, what)
	if more {
		text = "more than " + text
	}
	return text
}

// hintOf returns what ends a park with this cause.
func hintOf(cause outbox.Cause) string {
	switch cause {
	case outbox.CauseTopic:
		return "Create the topic, or allow the writing to it; it is tried again by itself."
	case outbox.CauseMapping, outbox.CauseUnreadable:
		return "outbox-cdc config validate --against-database lists every difference between the table and its mapping."
	case outbox.CauseWriteBack:
		return "The database refuses: the reason names a right, a constraint, a trigger or what is missing. It is tried again by itself; a single row holds up no other."
	case outbox.CausePublication:
		return "outbox-cdc init puts the publication right; the table is swept meanwhile, and nothing is lost."
	case outbox.CausePaused:
		return "Nothing of it is published until outbox-cdc resume."
	case outbox.CauseResumed:
		return "Nothing to do: what came while it was paused is published first, then the stream goes on by itself."
	case outbox.CauseRowError, outbox.CauseBlocked:
		return "Other keys go on. A row that uses up its tries is FAILED: look at its error then, and requeue or discard it."
	}
	return "Nothing to do: the rows are read from the table, and the stream goes on by itself."
}
