package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// This file shows that each rule of package checkpoint (see its doc.go) is needed. The package is built without
// the rule. Then an invariant must break in the simulation, and the rule's scenario test must fail.

// rule is one of them.
type rule struct {
	name     string
	without  []removal // what takes the rule out
	scenario string    // the test that plays the schedule it is there for, or ""
	unseen   string    // why no schedule of the simulation shows it, or ""
}

// removal replaces a text that a function of the package has exactly once.
type removal struct{ function, old, with string }

const (
	rulesOf   = "checkpoint"
	ruleSeeds = 8000
	testLimit = "-test.timeout=20m" // of one run of the tests
)

var rules = []rule{
	// Parks.
	{name: "parkDurable", scenario: "TestAParkedKeyHoldsThePosition", without: []removal{
		{"Core.settleUnder", "case p.durable:", "case true:"},
		{"Core.row", "if !p.durable {", "if false {"},
	}},
	{name: "slotAfterPark", scenario: "TestSlotIsMadeUnderADurablePark", without: []removal{{"Core.SlotMayBeMade", "p != nil && p.durable", "(true || p != nil)"}}},
	{name: "narrowing", scenario: "TestNarrowingIsOneTransaction", without: []removal{
		{"Core.writeParks", "case p.dirty() && ", "case !(c.hb != nil && c.hb.step == hbRemoving) && p.dirty() && "},
	}},
	{name: "postponedWritten", scenario: "TestAParkIsWrittenWhenItsRowIsCharged", without: []removal{{"Core.writeParks", "w.hb != nil || ", ""}}},
	{name: "rewriteUnknown", scenario: "TestUnknownRemovalIsWrittenAgain", without: []removal{
		{"Core.ParksWritten", "if r == outbox.ParksUnknown {", "if r == outbox.ParksUnknown { for _, p := range w.removals { p.written, p.durable = p.version, true }; c.abandonHandback()"},
	}},
	{name: "tableHolds", without: []removal{{"Core.TableBroken", "c.settleUnder(c.ledger.hold(), p)", "_ = p"}}},
	{name: "knownParks", without: []removal{
		{"Core.parkKnownTopic", "p := c.parks.of(s)", "if true { c.parks.addKnownTopic(owned(s)); return c.parks.of(outbox.TopicsScope(r.Table)) }; p := c.parks.of(s)"},
	}},
	{name: "pausedWaits", scenario: "TestPausedRowsWaitAndThePositionPassesThem", without: []removal{{"Core.blocksSweep", "p.Cause == outbox.CausePaused, ", ""}}},
	{name: "pausedStays", scenario: "TestAnotherReasonLeavesItPaused", without: []removal{{"Core.park", "if p.Cause == outbox.CausePaused && cause != outbox.CauseResumed {", "if false {"}}},
	{name: "rowsAlone", without: []removal{{"Core.marked", "case !a.Alone:", "case true:"}}},
	{
		name: "sameRow", scenario: "TestRowWithTheIDOfAnotherIsPublished", without: []removal{{"idOf", "r.CreatedAt", "0"}, {"same", "created == other", "true"}},
		unseen: "an id has to be given out again while its row is in flight and the connection ends, which random schedules rarely do",
	},

	// Keys.
	{name: "keyBackoff", scenario: "TestBackoffBelongsToTheKey", without: []removal{
		{"Core.blocksSweep", "case p.Next.After(c.now):\n\t\treturn true", "case p.Next.After(c.now): return p.Scope.Kind < outbox.ScopeKey"},
		onlyFailedWait,
	}},
	{name: "backoffHolds", scenario: "TestHandBackWaitsForTheBackoff", without: []removal{
		{"Core.handbackCandidates", "!p.sweptOut || !p.durable || c.blocksSweep(p) ||", "!p.durable ||"},
		onlyFailedWait,
	}},
	{name: "failureWithdraws", scenario: "TestFailureWithdrawsFromThePage", without: []removal{
		{"Core.letOut", "case p != nil:", "case false:"},
		{"Core.checked", "case p != nil:", "case false:"},
		{"Core.giveBack", "case p == nil:", "case true: c.publish(h); return\n\tcase p == nil:"},
		{"Core.mayPublish", " || p.failedAt > s.askedAt", ""},
	}},
	{name: "spendsBadOnly", scenario: "TestBadRowsOfACrowdedTable", without: []removal{{"Core.spends", " && r.Err != nil", ""}}},
	{name: "chargeRefusedOnly", without: []removal{
		{"Core.giveBack", "c.leave(h, p)", `c.ready.Marks = append(c.ready.Marks, outbox.Mark{Row: r, Kind: outbox.MarkAttempt, Reason: "withdrawn"}); c.rows.fly(h, attempt)`},
	}},
	{
		name: "blockStays", scenario: "TestBlockedKeyStaysBlockedWhenAnotherRowIsRefused", without: []removal{{"Core.marked", `case p.RowID != "":`, "case false:"}},
		unseen: "a row has to become FAILED while a later one of its key is still with another cluster's sink: one schedule in some ten thousand",
	},
	{name: "blockAsks", without: []removal{{"Core.checkedBlocked", "case p.Scope.Kind == outbox.ScopeRow:", "case true:"}}},

	// Hand-back.
	{name: "keepFromStatement", scenario: "TestHandBackKeepsWhatFollowsItsStatement", without: []removal{{"parkSet.discarding", "p.phase == sweeping &&", "(p.phase == sweeping || p.phase == keeping) &&"}}},
	{name: "repeatDiscarded", scenario: "TestHandBackAwaitsWhatWasDiscarded", without: []removal{
		{"Core.handbackPage", "if !page.Snapshot.Ended(", "if false && !page.Snapshot.Ended("},
		{"unended.observe", "case at < generation:", "case false && at < generation:"},
	}},
	{name: "repeatInProgress", scenario: "TestHandBackAwaitsWhatWasInProgressAtTheStart", without: []removal{
		{"Core.handbackPage", " && len(c.txs.started) == 0", ""},
		{"unended.observe", "ended := len(u.started) == 0", "ended := true"},
	}},
	{name: "handBackMarks", without: []removal{{"Core.progressHandback", "h.step == hbRows && h.outstanding == 0", "h.step == hbRows"}}},
	{name: "checkKept", scenario: "TestHandBackLooksAtWhatItsStatementHad", without: []removal{{"Core.letOut", "case r.Commit <= g.check &&", "case false &&"}}},
	{name: "voidHandBack", without: []removal{
		{"Core.Disconnect", "c.connected, c.streaming = false, false", "c.connected, c.streaming = false, false; if c.hb != nil { c.ledger.reset(); return }"},
	}},
	{
		name: "voidDiscarded", scenario: "TestDiscardedXIDsAreVoidAfterAReconnect", without: []removal{{"unended.begin", "u.discarded = map[uint32]uint64{}", "if u.discarded == nil { u.discarded = map[uint32]uint64{} }"}},
		unseen: "a healed world's transaction ids soon pass those that a failover lost",
	},

	// Start and reconnect.
	{name: "checkAtStart", scenario: "TestStartLooksAtWhatWasMarked", without: []removal{{"Core.Connect", "c.gate = &gate{check: conn.Insert}", ""}}},
	{name: "invisibleWaits", without: []removal{{"Core.checked", "case a == outbox.CheckSettled:", "case a == outbox.CheckSettled, a == outbox.CheckInvisible:"}}},
	{name: "skipInFlight", scenario: "TestRowsInFlightOutlastTheirConnection", without: []removal{{"Core.carriedRow", "if !found {", "if !found || true {"}}},
	{name: "inFlightInLedger", scenario: "TestRowsInFlightOutlastTheirConnection", without: []removal{{"Core.carriedRow", "if e.tx == noTx {", "if false {"}}},
	{name: "nextBounded", without: []removal{{"Core.nextOf", "if !read.Next.After(c.now) {", "if true { return read.Next }; if !read.Next.After(c.now) {"}}},
	{name: "dueByCommit", without: []removal{{"Core.scheduled", " && r.AvailableAt > c.ledger.opened", ""}}},

	// Sweep and watch.
	{name: "excludeInFlight", scenario: "TestHandBackWaitsForRowsInFlight", without: []removal{
		{"rowTable.ids", "return ids", "clear(ids); return ids"},
	}},
	{name: "watchSecondRead", without: []removal{{"Core.rewatch", "w.step = watchReadingAgain", "if true { c.Rewatched(w.rows); return }"}}},
	{name: "watchWaits", without: []removal{{"Core.progressWatch", " && c.ledger.settledTo(w.upTo)", ""}}},
	{name: "watchNotParkedFirst", without: []removal{{"Core.requestWatch", "if p.knownTopics == nil {", "if false {"}}},
	{name: "watchNotParkedSecond", scenario: "TestWatcherLeavesParkedKeys", without: []removal{{"Core.notOurs", "parked = true", "parked = false"}}},
	{name: "watchAbandoned", scenario: "TestReconnectAbandonsTheWatchersRound", without: []removal{
		{"Core.Connect", "c.watch = watch{at: c.now.Add(c.cfg.WatchEvery)}", ""},
	}},
	{name: "watchPauses", without: []removal{{"Core.Watched", "!w.due.IsZero() &&", "false &&"}}},

	// Together with an application's own relay.
	{name: "looksFirst", without: []removal{{"Core.looksFirst", "return e.state == kept", "return false"}}},
	{name: "asSeen", scenario: "TestRowGoesOutAsItIs", without: []removal{{"Core.renew", "e.row = a.Latest()", "e.row = a.Row"}}},
	{name: "notDueWaits", scenario: "TestRowGoesOutAsItIs", without: []removal{{"Core.checked", "case a == outbox.CheckWaits:", "case false:"}}},
	{name: "headStart", scenario: "TestHeadStart", without: []removal{{"Core.enqueue", "from.Add(m.HeadStart)", "from"}}},
	{name: "horizonAges", scenario: "TestSweptBacklogWaitsOnce", without: []removal{{"headStart.horizonOf", "if !h.at.Add(t.Mapping.HeadStart).After(now) {", "if true {"}}},
	{name: "headStartAgain", scenario: "TestHeadStartBeginsWhenTheRowIsVisible", without: []removal{
		{"Core.checked", "max(invisibleWait, row.Table.Mapping.HeadStart)", "invisibleWait"},
	}},
	{name: "parkTakesQueued", scenario: "TestParkTakesQueuedRows", without: []removal{{"Core.leaveParked", "for c.looks.overtaken {", "for false {"}}},
	{name: "queuedInFlight", scenario: "TestHandBackWaitsForQueuedRows", without: []removal{
		{"rowTable.ids", "for e := range t.flying() {", "for e := range t.flying() { if e.state == queued { continue }"},
	}},
	{name: "queuedAwaited", scenario: "TestHandBackWaitsForQueuedRows", without: []removal{
		{"Core.startHandback", "if g.keeps(e.row) {", "if g.keeps(e.row) && e.state != queued {"},
	}},
	{name: "unclaims", scenario: "TestClaimForNobodyIsGivenUp|TestLateClaimIsGivenUp", without: []removal{
		{"Core.Claimed", "c.ready.Unclaim = append(c.ready.Unclaim, a.Latest())", ""},
		{"Core.unclaim", "c.ready.Unclaim = append(c.ready.Unclaim, e.row)", ""},
	}},
	{
		name: "askSoon", scenario: "TestWritersRowIsOnTime", without: []removal{{"Core.row", "c.watch.expectAt(c.now.Add(askSoon))", ""}},
		unseen: "only time is lost",
	},
	{
		name: "claimOutage", scenario: "TestNothingStaysLockedInAnOutage", without: []removal{{"Core.parkClusters", " || c.looks.locksRows()", ""}},
		unseen: "locks are held through the outage, which no invariant forbids",
	},

	// After a long wait.
	{name: "lateAsSeen", scenario: "TestLateRowGoesOutAsItIs", without: []removal{{"Core.late", "clock.at.IsZero()", "true"}}},
	{name: "lateInTurn", scenario: "TestLateRowGoesOutAsItIs", without: []removal{
		{"Core.looksFirst", " || e.page == nil && c.rows.queued > 0 && c.looks.busy(e.row.Table)", ""},
	}},
	{name: "heldAsSeen", scenario: "TestHeldRowGoesOutAsItIs", without: []removal{{"Core.looked", "switch a.State {", "a.Now, a.State = nil, outbox.CheckPending; switch a.State {"}}},
	{
		name: "heldInTurn", scenario: "TestHeldRowThatItsKeyWaitsFor", without: []removal{
			{"Core.looked", "case outbox.CheckTaken:", "case 99:"},
			{"Core.looked", "c.block(was)\n\t\t\tc.withdraw(c.parks.of(outbox.KeyScope(was)))\n\t\t\treturn", ""},
		},
		unseen: "another relay, or a person, has to take a row just then",
	},

	// Marks, confirming, memory, stopping.
	{name: "markAfterAck", without: []removal{
		{"Core.delivered", "c.ready.Marks = append(c.ready.Marks, outbox.Mark{Row: e.row, Kind: outbox.MarkSent, Unit: unit})", ""},
		{"Core.publish", "c.rows.fly(h, inSink)", "c.rows.fly(h, inSink); c.ready.Marks = append(c.ready.Marks, outbox.Mark{Row: e.row, Kind: outbox.MarkSent})"},
	}},
	{name: "confirmAfterMark", without: []removal{{"Core.delivered", "e.state = acked", "e.state = acked; c.ledger.release(e.tx, 1); e.tx = noTx"}}},
	{name: "keepaliveIdle", without: []removal{{"Core.Keepalive", "c.ledger.keepalive(walEnd)", "c.ledger.confirmed = max(c.ledger.confirmed, walEnd); c.ledger.keepalive(walEnd)"}}},
	{name: "boundedMemory", scenario: "TestTransactionLargerThanMemory", without: []removal{{"Core.full", "c.rows.count >= c.cfg.MaxRows || c.rows.bytes >= c.cfg.MaxBytes", "false"}}},
	{
		name: "forgetsEnded", scenario: "TestDiscardedTransactionsAreForgotten", without: []removal{{"Core.requestSnapshot", "len(c.txs.discarded) <= c.cfg.MaxRows", "true"}},
		unseen: "no invariant of the simulation bounds what is remembered of transactions",
	},
	{name: "drainAwaits", without: []removal{{"Core.Drained", " && c.rows.inFlight == 0 && (c.writing == nil || !c.connected)", ""}}},
}

// onlyFailedWait: only the failed row itself waits for its next try, not its key.
var onlyFailedWait = removal{"Core.parts", "ids := c.rows.ids()", `ids := c.rows.ids()
	for _, p := range c.parks.list {
		if p.failedRow != "" && p.Next.After(c.now) {
			ids[c.tables.byName[p.Scope.Table]] = append(ids[c.tables.byName[p.Scope.Table]], p.failedRow)
		}
	}`}

var sentence = regexp.MustCompile(`(?m)^//   - (\w+): (.+(?:\n//     .+)*)`)

// sentences returns what the package's documentation says of its rules, by name.
func sentences(root string) (map[string]string, error) {
	doc, err := os.ReadFile(filepath.Join(root, rulesOf, "doc.go"))
	if err != nil {
		return nil, err
	}
	says := map[string]string{}
	for _, s := range sentence.FindAllStringSubmatch(string(doc), -1) {
		says[s[1]] = strings.ReplaceAll(s[2], "\n//    ", "")
	}
	return says, nil
}

// changed returns the files without the rule, by path.
func (r rule) changed(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	paths, err := filepath.Glob(filepath.Join(root, rulesOf, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, e := range r.without {
		if err := e.apply(paths, files); err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.name, err)
		}
	}
	return files, nil
}

// apply makes the change in the file that has the function.
func (e removal) apply(paths []string, files map[string][]byte) error {
	for _, path := range paths {
		source := files[path]
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		if source == nil {
			var err error
			if source, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		from, to, err := bodyOf(path, source, e.function)
		if err != nil {
			return err
		}
		if to == 0 {
			continue
		}
		body := string(source[from:to])
		if n := strings.Count(body, e.old); n != 1 {
			return fmt.Errorf("%s has %d times %q", e.function, n, e.old)
		}
		files[path] = slices.Concat(source[:from], []byte(strings.Replace(body, e.old, e.with, 1)), source[to:])
		return nil
	}
	return fmt.Errorf("there is no function %s", e.function)
}

// bodyOf is where the function's body stands in the file; 0, 0: it is not there.
func bodyOf(path string, source []byte, function string) (from, to int, err error) {
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, path, source, 0)
	if err != nil {
		return 0, 0, err
	}
	for _, d := range tree.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil && nameOf(fn) == function {
			return files.Position(fn.Body.Pos()).Offset, files.Position(fn.Body.End()).Offset, nil
		}
	}
	return 0, 0, nil
}

// judgeRules builds the package without each of the rules and prints what shows
// that it is needed. Those that nothing shows are the error.
func judgeRules(ctx context.Context, o options) error {
	named, err := rulesNamed(o.rules)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "rules")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	whole := filepath.Join(dir, "whole.test")
	if out, err := compile(ctx, o.root, rulesOf, whole, ""); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	var mu sync.Mutex
	var bad []string
	says, err := sentences(o.root)
	if err != nil {
		return err
	}
	done, chosen := 0, choose(named, o)
	err = each(ctx, o, chosen, func(dir string, r rule) {
		shown, err := r.judge(ctx, o.root, dir, whole)
		mu.Lock()
		defer mu.Unlock()
		done++
		fmt.Printf("%-22s %s\n%22s %s\n", r.name, says[r.name], "", shown)
		if err != nil {
			bad = append(bad, fmt.Sprintf("%s: %v", r.name, err))
		}
	})
	fmt.Printf("%d rules, %d not run\n", done, len(chosen)-done)
	if len(bad) > 0 {
		return fmt.Errorf("rules that nothing shows:\n%s", strings.Join(bad, "\n"))
	}
	return err
}

// rulesNamed returns the rules of these names, separated by commas; all: every one.
func rulesNamed(names string) ([]rule, error) {
	if names == "all" {
		return slices.Clone(rules), nil
	}
	var named []rule
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(rules, func(r rule) bool { return r.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no rule %q: test/mutants/rules.go lists them", name)
		}
		named = append(named, rules[i])
	}
	return named, nil
}

var brokenSeed = regexp.MustCompile(`seed (\d+): (.*)`)

// judge says by what the rule is shown.
func (r rule) judge(ctx context.Context, root, dir, whole string) (shown string, err error) {
	files, err := r.changed(root)
	if err != nil {
		return "", err
	}
	overlay, err := overlayOf(dir, files)
	if err != nil {
		return "", err
	}
	binary, in := filepath.Join(dir, "rule.test"), filepath.Join(root, rulesOf)
	if out, err := compile(ctx, root, rulesOf, binary, overlay); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	if r.scenario != "" {
		for name := range strings.SplitSeq(r.scenario, "|") {
			out, err := execute(ctx, in, binary, []string{"-test.short", testLimit, "-test.run=^" + name + "$"})
			if err == nil || !strings.Contains(out, "--- FAIL: "+name) {
				return shown, fmt.Errorf("%s does not fail without it\n%s", name, out)
			}
			shown += name + "  "
		}
	}
	if r.unseen != "" {
		return shown, nil
	}
	world := []string{testLimit, "-test.run=^TestSimulation$", "-sim.rule=" + r.name}
	out, err := execute(ctx, in, binary, append(world, fmt.Sprintf("-sim.seeds=%d", ruleSeeds)))
	seed := brokenSeed.FindStringSubmatch(out)
	if err == nil || seed == nil {
		return shown, fmt.Errorf("%d seeds without it broke nothing\n%s", ruleSeeds, out)
	}
	if out, err := execute(ctx, in, whole, append(world, "-sim.seed="+seed[1])); err != nil {
		return shown, fmt.Errorf("seed %s breaks with the rule, too\n%s", seed[1], out)
	}
	return shown + "seed " + seed[1] + ": " + seed[2], nil
}
