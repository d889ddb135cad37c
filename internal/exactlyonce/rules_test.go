package exactlyonce

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rule is one rule of the package. Without it, the named tests fail. The simulation fails, too, unless a
// reason says why no random schedule shows the rule.
type rule struct {
	name   string
	file   string // empty: a rule of the code around the Machine, switched off by -sim.off
	old    string // a text that the file has once
	with   string
	tests  []string
	unseen string
}

const (
	atHand = "the simulated names are never alike in this way"
)

var rules = []rule{
	// Unknown outcomes.
	{
		"sealAborts", "machine.go", "m.beginSeal(sealAbort, m.tx.partitions())", "m.beginSeal(sealInit, m.tx.partitions())",
		[]string{"TestC2DoubtDoesNotEndTheLeadership"},
		"the leadership ends, and begins again: only slower",
	},
	{
		"noPlainAbort", "machine_repair.go", "\tcase s.step == sealAbort && a.Class == Ended,",
		"\tcase s.step == sealAbort && (a.Class == Ended || a.Class == OK) && m.id != Nobody:\n\t\tm.state = idle\n\t\tfor _, p := range m.seal.targets {\n\t\t\tm.sound[p] = true\n\t\t}\n\t\tif err := m.settleDoubt(nil); err != nil {\n\t\t\tm.stop(err)\n\t\t}\n\tcase s.step == sealAbort && a.Class == Ended,",
		[]string{"TestA1DelayedAbortEndsNothing", "TestC6CommitThatIsRefusedMayHaveTakenEffect"},
		"",
	},
	{
		"epochBeforeMarker", "machine_repair.go", "\tdefault: // sealAbort, sealLook\n", "\tcase m.id != Nobody:\n\t\ts2 := &m.seal\n\t\ts2.marker = m.id\n\t\tm.goTo(sealAdd, 0)\n\tdefault:\n",
		nil,
		"",
	},
	{
		"sealConfirms", "machine_seal.go", "\tm.seal.step++\n", "\tif m.seal.step == sealEnd {\n\t\tm.seal.step++\n\t}\n\tm.seal.step++\n",
		[]string{"TestA1DelayedAbortOfTheSealEndsNothing"},
		"an Add and an abort of one seal, both late and both asked again, have to come between two batches of one transaction",
	},
	{
		"sealsPartitions", "machine_seal.go", "r.Kind, r.Partitions = Add, m.seal.targets", "r.Kind, r.Partitions = Add, m.seal.targets[:1]",
		[]string{"TestB5ZombieOfTheOldModeIsFenced", "TestB5PartitionsFoundLaterAreSealedFirst", "TestB6DelayedBatchJoinsNothing"},
		"",
	},
	{
		"sealsLatePartitions", "machine_tx.go", "if !m.sound[l.at] {", "if false {",
		[]string{"TestB5PartitionsFoundLaterAreSealedFirst"},
		"",
	},
	{
		"supersededStops", "machine_seal.go", "\tcase a.Class == Superseded:\n\t\tm.stop(ErrSuperseded)", "\tcase a.Class == Superseded:\n\t\tm.id, m.seal.step = Nobody, sealInit\n\t\tm.askStep(1)",
		nil,
		"",
	},
	{
		"commitIsAnswered", "machine_tx.go", "\tif a.Class != OK {\n\t\tm.doubt(causeOf(a.Class))", "\tif a.Class != OK {\n\t\tm.queue = append(m.tx.remaining(), m.queue...)\n\t\tm.tx, m.state = nil, idle",
		[]string{"TestA1DelayedCommitCommitsNothing", "TestC6CommitThatIsRefusedMayHaveTakenEffect"},
		"",
	},
	{
		"silenceIsNoSuccess", "machine_tx.go", "\tif a.Class != OK {\n\t\tm.doubt(causeOf(a.Class))\n\t\treturn\n\t}\n", "",
		[]string{"TestUnansweredCommitIsNoSuccess"},
		"",
	},
	{
		"onlyZeroCommits", "classes.go", "\t\tif code == codeNone {\n\t\t\treturn OK\n\t\t}\n\t\treturn Silence", "\t\tif code == codeNone || code == codeInvalidState {\n\t\t\treturn OK\n\t\t}\n\t\treturn Silence",
		[]string{"TestC6CommitThatIsRefusedMayHaveTakenEffect"},
		"since the simulated coordinator never answers a commit so, on an epoch that is used once",
	},
	{
		"lostAddIsDoubt", "machine_tx.go", "\tdefault: // a lost Add may open a transaction at any time\n\t\tm.doubt(causeOf(a.Class))", "\tdefault:\n\t\tm.again(r)",
		nil, "",
	},
	{
		"openTryIsDoubt", "machine_tx.go", "if r.Batch.open || m.tx.isNamed {", "if m.tx.isNamed {",
		[]string{"TestTryThatIsRefusedAfterOneThatMayHaveLanded"},
		"only a careful transaction is not in doubt anyway, and there are few",
	},
	{
		"awaitsAll", "machine_tx.go", "\tif !m.tx.open() {\n", "\tif true {\n",
		nil, "",
	},
	{"namedIsDoubt", "machine_tx.go", "if r.Batch.open || m.tx.isNamed {", "if r.Batch.open {", nil, ""},
	{"careful", "machine_tx.go", "\t\t\tm.careful = true\n", "", []string{"TestRefusedRowThatIsNamed"}, ""},
	{"namesWhatIsAcknowledged", "machine_tx.go", " || m.careful && m.tx.open() {", " {", []string{"TestRefusedRowThatIsNamed"}, ""},
	{"staleAnswers", "machine.go", "\tcase r != m.asked:\n", "", nil, ""},
	{"sequencesBeginAgain", "machine_seal.go", "{ m.id, m.seqs = id, map[Partition]int32{} }", "{\n\tm.id = id\n\tif m.seqs == nil {\n\t\tm.seqs = map[Partition]int32{}\n\t}\n}", nil, ""},

	// Ends that a coordinator gives up.
	{"provesCommits", "machine_tx.go", "\tcase a.Class == OK:\n\t\ttx := m.tx\n", "\tcase true:\n\t\ttx := m.tx\n", []string{"TestD1LostCommit"}, ""},
	{"provesSeals", "machine_seal.go", "\tcase m.seal.step == sealProve && a.Class != OK:\n\t\tm.unproven(r, a)", "\tcase m.seal.step == sealProve:\n\t\tm.stepped(a)", []string{"TestD2LostAbort"}, ""},
	{"looksBeforeItSeals", "machine_repair.go", "\tcase Committed:\n", "\tcase 99:\n", []string{"TestD1LostCommit", "TestD3LostCommitThenKilled"}, ""},
	{
		"saysWhatItRepairs", "machine_repair.go", "r.Kind, r.Of = Init, s.past", "r.Kind, r.Of = Init, Nobody",
		[]string{"TestD3KilledTwice"},
		"two kills around a partition that has no leader meanwhile are rare",
	},
	{
		"looksWhereTheUnitsAre", "machine_repair.go", "\t\tplaces := u.Places\n", "\t\tvar places []Partition\n",
		[]string{"TestD3LostCommitInAPartitionNotKnown"},
		"rare",
	},
	{
		"openOnesAreEnded", "machine_repair.go", "\tcase Repairing:\n\t\ts.past = a.Of\n\t\tm.goTo(sealCommit, r.Try)", "\tcase Repairing:\n\t\tm.goTo(sealInit, 0)",
		[]string{"TestD3KilledInTheRepair"},
		"the simulation leaves out what it did to a repair that was cut off",
	},

	// Order.
	{"abortedGoFirst", "machine.go", "append(tx.remaining(), m.queue...)", "append(m.queue, tx.remaining()...)", []string{"TestAbortedRowsGoFirst"}, ""},
	{
		"refusalWithdraws", "machine_tx.go", `case r != bad && behind && bad.Key != "" && r.Key == bad.Key:`, "case false:",
		[]string{"TestRefusedRowKeepsItsKeysOrder"},
		"rows of a key with a refused one are late by nature there",
	},

	// The journal.
	{"abortedUnits", "journal.go", "\tcase b.Control == AbortMarker:\n", "\tcase b.Control == AbortMarker:\n\t\tr.units = append(r.units, r.open[b.By.PID]...)\n", []string{"TestA4AbortedUnitsAreNotPublished"}, ""},
	{"ownMarker", "journal.go", " && b.By.Epoch >= r.until.Epoch", "", []string{"TestB13JournalIsReadToOurOwnMarker"}, ""},
	{"fromTheHead", "journal.go", "if offset < from {", "if false {", []string{"TestHeadInTheMiddleOfABatch"}, ""},
	{"gapless", "journal.go", "u.Number != last.Number+uint64(i)+1", "false", []string{"TestB8LostJournalIsRefused"}, "the journal is damaged by a test only"},
	{"sameJournal", "journal.go", "if len(units) == 0 || units[0].Number != last.Number || units[0].Offset != last.Offset {", "if len(units) == 0 {", []string{"TestB8LostJournalIsRefused"}, "the journal is damaged by a test only"},
	{"journalGoesOn", "machine_tx.go", "case m.last.Number > 0 && a.Offset <= m.last.Offset:", "case false:", []string{"TestB8JournalReplacedUnderALeader"}, "the journal is damaged by a test only"},
	{"pagesGoOn", "machine.go", "case m.seal.more:", "case false:", []string{"TestRecoveryInPages"}, ""},
	{"pagesEnd", "journal.go", "r.most > 0 && r.size >= r.most", "false", []string{"TestRecoveryInPages"}, "memory is not looked at there"},
	{"pagesBring", "journal.go", "if u.Offset > r.from {", "if true {", []string{"TestRecoveryInPages"}, ""},
	{"units", "machine_tx.go", "sum > most && i > 0", "false", []string{"TestC4UnitsAreBounded"}, "the simulated broker takes a batch of any size"},

	// The tally.
	{"sameName", "tally.go", "return now == published, false", "return true, false", []string{"TestA3ReissuedIDIsAnotherRow"}, ""},
	{"absentIsLeft", "tally.go", "case Locked, Absent:", "case Locked:", []string{"TestB4InvisibleRowIsRemembered"}, ""},
	{"lockedIsLeft", "tally.go", "case Locked, Absent:", "case Absent:", []string{"TestB12LateMarkOfARowThatWasLeft"}, ""},
	{
		"headHasNoGap", "sim_db_test.go", "offset, noted := t.Marked[head.Number+1]\n", "offset, noted := t.Marked[head.Number+1]\n\t\tif o, later := t.Marked[head.Number+2]; !noted && later {\n\t\t\toffset, noted = o, true\n\t\t\thead.Number++\n\t\t}\n",
		nil, "",
	},
	{"namesSayTheMapping", "unit.go", "\tcopy(out[recordHash:], mapping[:])\n", "\t_ = mapping\n", []string{"TestRemappedRowsAreFound"}, "the configuration is never changed there"},
	{"leftSayTheMapping", "mapping.go", "other(left[i].Table, &left[i].Name)", "false", []string{"TestRemappedRowsAreFound"}, "the configuration is never changed there"},
	{"placeHasATime", "unit.go", ", uint64(r.CommitTime)}", "}", []string{"TestNamesInTheLogTellRowsApart"}, atHand},
	{"placeHasAnID", "unit.go", "\tfield(h, []byte(r.ID))\n", "", []string{"TestNamesInTheLogTellRowsApart"}, atHand},
	{"nameHasNoXID", "unit.go", "number(h, uint64(r.CreatedAt))", "number(h, uint64(r.CreatedAt)+uint64(r.XID))", []string{"TestB7SavepointsChangeNoName"}, atHand},

	// Tables without state.
	{"nameStandsForOneRow", "published.go", "\t\t\tp.taken[i] = true\n", "", []string{"TestEachNameStandsForOneRow"}, "no two simulated rows have one name"},
	{"settledIsPublished", "published.go", "	case r.Commit <= p.Settled:", "	case false:", []string{"TestEachNameStandsForOneRow", "TestB2OldSlotAfterACrash"}, ""},
	{"headWaitsForRows", "published.go", "p.ends[last].upTo >= upTo {", "true {", []string{"TestUnitsArePassedInOrder"}, "rows are published in the order of the WAL there, so it never waits"},
	{"unitsSayUpTo", "machine_tx.go", ", u.UpTo = append(u.Names, r.Name), max(u.UpTo, r.Commit)", " = append(u.Names, r.Name)", []string{"TestUnitsSayUpToWhichCommit"}, ""},
	{"endOfTheLog", "published.go", "min(p.ends[i].upTo, max(insert, 1)-1)", "p.ends[i].upTo", []string{"TestUnitsArePassedInOrder"}, "the head is moved on a little later"},

	// The code around the Machine.
	{name: "tally", tests: []string{"TestA2RequeueAfterACleanStopIsPublished", "TestB12RepeatedMarkDoesNotSwallowARequeue"}},
	{name: "together", tests: []string{"TestB11MarksAreLostTogetherWithTheTally"}},
	{name: "uniqueUnit", tests: []string{"TestB12RepeatedMarkDoesNotSwallowARequeue", "TestB12LateMarkOfAStoppedProcess"}},
	{name: "leftOnce", tests: []string{"TestB12LateMarkOfARowThatWasLeft"}, unseen: "two commits of one mark with a requeue between them, of a row that was locked: rare"},
	{name: "leftUnpublished", tests: []string{"TestB4InvisibleRowIsRemembered"}},
	{name: "absentStays"},
	{name: "hash", tests: []string{"TestA3ReissuedIDIsAnotherRow"}},
	{name: "recover", tests: []string{"TestB13JournalIsReadToOurOwnMarker"}},
	{name: "looksVoid", tests: []string{"TestB3EarlierLooksAreVoid"}},
	{name: "lookAtStart"},
	{name: "position", tests: []string{"TestB2OldSlotAfterACrash"}},
	{name: "marker", tests: []string{"TestB13JournalIsReadToOurOwnMarker"}},
	{name: "closes", tests: []string{"TestA5AtLeastOnceClosesTheTally"}, unseen: "the simulation has no change back to at_least_once"},
	{name: "leadAgain", tests: []string{"TestC3TimeoutLeadsAgain"}, unseen: "another process starts"},

	// The configuration.
}

// kindsFor has, for some rules, the kinds of faults that show the rule in a simulation.
var kindsFor = map[string]int{"sealsLatePartitions": 3}

// TestRules builds the package without each rule (OUTBOX_TEST_RULES=all, or names), and runs the tests.
func TestRules(t *testing.T) {
	which := os.Getenv("OUTBOX_TEST_RULES")
	if which == "" {
		t.Skip("OUTBOX_TEST_RULES=all, or names of rules: takes minutes")
	}
	for _, r := range rules {
		if which != "all" && !slices.Contains(strings.Split(which, ","), r.name) {
			continue
		}
		t.Run(r.name, func(t *testing.T) { r.check(t) })
	}
}

// TestRulesFit checks that each text to be replaced is in its file once.
func TestRulesFit(t *testing.T) {
	for _, r := range rules {
		if r.file == "" {
			continue
		}
		source, err := os.ReadFile(r.file)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), r.old); n != 1 {
			t.Errorf("%s: %s has it %d times", r.name, r.file, n)
		}
	}
}

func (r *rule) check(t *testing.T) {
	args := []string{"test", ".", "-count=1", "-v", "-timeout=20m"}
	if r.file == "" {
		args = append(args, "-sim.off="+r.name)
	} else {
		args = append(args, "-overlay="+r.overlay(t))
	}
	if len(r.tests) > 0 {
		out, err := exec.CommandContext(t.Context(), "go", append(args, "-run=^("+strings.Join(r.tests, "|")+")$")...).CombinedOutput()
		if err == nil || strings.Contains(string(out), "[build failed]") {
			t.Errorf("no scenario fails: %v\n%s", err, tail(out))
		}
		for _, name := range r.tests {
			if !strings.Contains(string(out), "--- FAIL: "+name) {
				t.Errorf("%s does not fail", name)
			}
		}
	}
	if r.unseen != "" {
		return
	}
	seeds := 8000
	out, err := exec.CommandContext(t.Context(), "go", append(args, "-run=^TestSimulation$", "-sim.seeds="+strconv.Itoa(seeds), "-sim.kinds="+strconv.Itoa(kindsFor[r.name]))...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--- FAIL") {
		t.Errorf("the simulation does not see it in %d schedules: %v\n%s", seeds, err, tail(out))
	}
	t.Log(seen(out))
}

func seen(out []byte) string {
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "seed") {
			return strings.TrimSpace(line)
		}
	}
	return "no seed"
}

func tail(out []byte) string { return string(out[max(0, len(out)-600):]) }

// overlay returns a build overlay in which the rule's file is changed.
func (r *rule) overlay(t *testing.T) string {
	source, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(r.file)
	if err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(t.TempDir(), r.file)
	if err := os.WriteFile(changed, []byte(strings.Replace(string(source), r.old, r.with, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}
