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

// The rules of package checkpoint, which docs/internals/design.md explains, are each shown to be
// needed: the package is built without the rule, and then an invariant must break
// in the simulation, and the rule's scenario test must fail.

// rule is one of them.
type rule struct {
	name     string
	says     string
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
	{name: "parkDurable", says: "The confirmed position passes a row of a parked scope only after the park was committed.", scenario: "TestShadowPassesNothingOver", without: []removal{
		{"Core.settleUnder", "case p.durable:", "case true:"},
		{"Core.row", "if !p.durable {", "if false {"},
	}},
	{name: "slotAfterPark", says: "A slot is made only after the stream's park is durable.", scenario: "TestSlotIsMadeUnderADurablePark", without: []removal{{"Core.SlotMayBeMade", "p != nil && p.durable", "(true || p != nil)"}}},
	{name: "narrowing", says: "A park that replaces another (the stream's goes, a key's stays) is committed in the transaction that removes it, or before.", scenario: "TestNarrowingIsOneTransaction", without: []removal{
		{"Core.writeParks", "if p.dirty() && ", "if !(c.hb != nil && c.hb.step == hbRemoving) && p.dirty() && "},
	}},
	{name: "rewriteUnknown", says: "A removal whose outcome is unknown is written again before anything more is confirmed.", scenario: "TestUnknownRemovalIsWrittenAgain", without: []removal{
		{"Core.ParksWritten", "if r == outbox.ParksUnknown {", "if r == outbox.ParksUnknown { for _, p := range w.removals { p.written, p.durable = p.version, true }; c.abandonHandback()"},
	}},
	{name: "tableHolds", says: "Nothing is confirmed past the point from which a table's rows cannot be read before the table's park is durable.", without: []removal{{"Core.TableBroken", "c.settleUnder(c.ledger.hold(), p)", "_ = p"}}},
	{name: "knownParks", says: "A topic that is found to exist while its table's unknown topics are parked has a park of its own until its rows were swept.", without: []removal{
		{"Core.parkKnownTopic", "p := c.parks.of(s)", "if true { c.parks.addKnownTopic(owned(s)); return c.parks.of(outbox.TopicsScope(r.Table)) }; p := c.parks.of(s)"},
	}},
	{name: "pausedWaits", says: "Nothing is published of what an operator has paused.", scenario: "TestPausedRowsWaitAndThePositionPassesThem", without: []removal{{"Core.blocksSweep", "p.Cause == outbox.CausePaused, ", ""}}},
	{name: "pausedStays", says: "Another reason to park it does not end a pause.", scenario: "TestAnotherReasonLeavesItPaused", without: []removal{{"Core.park", "if p.Cause == outbox.CausePaused && cause != outbox.CauseResumed {", "if false {"}}},
	{name: "rowsAlone", says: "A row whose mark is refused by itself is parked by itself, not with its table.", without: []removal{{"Core.marked", "case !a.Alone:", "case true:"}}},
	{
		name: "sameRow", says: "A row with the id of another one, created at another time, is not taken for it.", scenario: "TestRowWithTheIDOfAnotherIsPublished", without: []removal{{"idOf", "r.CreatedAt", "0"}, {"same", "created == other", "true"}},
		unseen: "an id has to be given out again while its row is in flight and the connection ends, which random schedules rarely do",
	},

	// Keys.
	{name: "keyBackoff", says: "While a row of a key waits for its next try, its later rows are not due either.", scenario: "TestBackoffBelongsToTheKey", without: []removal{
		{"Core.blocksSweep", "case p.Next.After(c.now):\n\t\treturn true", "case p.Next.After(c.now): return p.Scope.Kind < outbox.ScopeKey"},
		onlyFailedWait,
	}},
	{name: "backoffHolds", says: "A key is not handed back while it waits for its next try.", scenario: "TestHandBackWaitsForTheBackoff", without: []removal{
		{"Core.handbackCandidates", "!p.ready || !p.durable || c.blocksSweep(p) ||", "!p.durable ||"},
		onlyFailedWait,
	}},
	{name: "failureWithdraws", says: "A failure takes the key's later rows out of what was read and is not published yet; rows that are given back are left to the sweeper.", scenario: "TestFailureWithdrawsFromThePage", without: []removal{
		{"Core.letOut", "case p != nil:", "case false:"},
		{"Core.checked", "case p != nil:", "case false:"},
		{"Core.giveBack", "case p == nil:", "case true: c.publish(h); return\n\tcase p == nil:"},
		{"Core.mayPublish", " || p.failedAt > s.askedAt", ""},
	}},
	{name: "chargeRefusedOnly", says: "Only a row that was refused is charged an attempt, not one that is given back for its topic.", without: []removal{
		{"Core.giveBack", "c.leave(h, p)", `c.ready.Marks = append(c.ready.Marks, outbox.Mark{Row: r, Kind: outbox.MarkAttempt, Reason: "withdrawn"}); c.rows.fly(h, attempt)`},
	}},
	{
		name: "blockStays", says: "A key that waits for the operator goes on waiting when another row of it fails.", scenario: "TestBlockedKeyStaysBlockedWhenAnotherRowIsRefused", without: []removal{{"Core.marked", `case p.RowID != "":`, "case false:"}},
		unseen: "a row has to become FAILED while a later one of its key is still with another cluster's sink: one schedule in some ten thousand",
	},
	{name: "blockAsks", says: "When the FAILED row that a blocked key remembers is FAILED no more, the key is free only if no other row of it is FAILED.", without: []removal{{"Core.checkedBlocked", "case p.Scope.Kind == outbox.ScopeRow:", "case true:"}}},

	// Hand-back.
	{name: "keepFromStatement", says: "From the hand-back's statement on, rows of the scope are kept, not discarded.", scenario: "TestHandBackKeepsWhatFollowsItsStatement", without: []removal{{"parkSet.discarding", "p.phase == sweeping &&", "(p.phase == sweeping || p.phase == keeping) &&"}}},
	{name: "repeatDiscarded", says: "The statement is repeated until every transaction of which rows were discarded is visible in its snapshot, or has ended.", scenario: "TestHandBackAwaitsWhatWasDiscarded", without: []removal{
		{"Core.handbackPage", "if !page.Snapshot.Ended(", "if false && !page.Snapshot.Ended("},
		{"unended.observe", "case at < generation:", "case false && at < generation:"},
	}},
	{name: "repeatInProgress", says: "The statement is also repeated until every transaction in progress in the snapshot at the connection's start is visible in its snapshot, or has ended.", scenario: "TestHandBackAwaitsWhatWasInProgressAtTheStart", without: []removal{
		{"Core.handbackPage", " && len(c.txs.started) == 0", ""},
		{"unended.observe", "ended := len(u.started) == 0", "ended := true"},
	}},
	{name: "handBackMarks", says: "The park is removed only after the rows that the statement found were published and marked.", without: []removal{{"Core.progressHandback", "h.step == hbRows && h.outstanding == 0", "h.step == hbRows"}}},
	{name: "checkKept", says: "After a hand-back, rows up to B are looked at before they are published.", scenario: "TestHandBackLooksAtWhatItsStatementHad", without: []removal{{"Core.letOut", "case r.Commit <= g.check &&", "case false &&"}}},
	{name: "voidHandBack", says: "A hand-back ends with its connection.", without: []removal{
		{"Core.Disconnect", "c.connected, c.streaming = false, false", "c.connected, c.streaming = false, false; if c.hb != nil { c.ledger.reset(); return }"},
	}},
	{
		name: "voidDiscarded", says: "The ids of discarded transactions mean nothing after a reconnect.", scenario: "TestDiscardedXIDsAreVoidAfterAReconnect", without: []removal{{"unended.begin", "u.discarded = map[uint32]uint64{}", "if u.discarded == nil { u.discarded = map[uint32]uint64{} }"}},
		unseen: "a healed world's transaction ids soon pass those that a failover lost",
	},

	// Start and reconnect.
	{name: "checkAtStart", says: "Rows up to the insert position at start are looked at before they are published.", scenario: "TestStartLooksAtWhatWasMarked", without: []removal{{"Core.Connect", "c.gate = &gate{check: conn.Insert}", ""}}},
	{name: "invisibleWaits", says: "A row that is not visible to its look yet is looked at again.", without: []removal{{"Core.checked", "case a == outbox.CheckSettled:", "case a == outbox.CheckSettled, a == outbox.CheckInvisible:"}}},
	{name: "skipInFlight", says: "Rows that this process has in flight from an earlier connection are not published again.", scenario: "TestRowsInFlightOutlastTheirConnection", without: []removal{{"Core.carriedRow", "if !found {", "if !found || true {"}}},
	{name: "inFlightInLedger", says: "Rows in flight from an earlier connection hold the new connection's position.", scenario: "TestRowsInFlightOutlastTheirConnection", without: []removal{{"Core.carriedRow", "if e.tx == noTx {", "if false {"}}},
	{name: "nextBounded", says: "A park's next try, as it was read, is at most the longest backoff away.", without: []removal{{"Core.nextOf", "if !read.Next.After(c.now) {", "if true { return read.Next }; if !read.Next.After(c.now) {"}}},
	{name: "dueByCommit", says: "A row that was available at its commit, by the server's clock, is not a scheduled one.", without: []removal{{"Core.scheduled", " && r.AvailableAt > c.ledger.opened", ""}}},

	// Sweep and watch.
	{name: "excludeInFlight", says: "Sweeps leave out the ids in flight.", scenario: "TestHandBackWaitsForRowsInFlight", without: []removal{
		{"rowTable.ids", "return ids", "clear(ids); return ids"},
	}},
	{name: "watchSecondRead", says: "Rows that the stream may have missed are read a second time.", without: []removal{{"Core.rewatch", "w.step = watchReadingAgain", "if true { c.Rewatched(w.rows); return }"}}},
	{name: "watchWaits", says: "Before the second read, everything up to L is settled.", without: []removal{{"Core.progressWatch", " && c.ledger.settledTo(w.upTo)", ""}}},
	{name: "watchNotParkedFirst", says: "Parked rows are no candidates of the first read.", without: []removal{{"Core.requestWatch", "if p.knownTopics == nil {", "if false {"}}},
	{name: "watchNotParkedSecond", says: "Parked rows are no candidates of the second read either, when they were parked in between.", scenario: "TestWatcherLeavesParkedKeys", without: []removal{{"Core.notOurs", "parked = true", "parked = false"}}},
	{name: "watchAbandoned", says: "A reconnect abandons the round.", scenario: "TestReconnectAbandonsTheWatchersRound", without: []removal{
		{"Core.Connect", "c.watch = watch{at: c.now.Add(c.cfg.WatchEvery)}", ""},
	}},
	{name: "watchPauses", says: "A round that found nothing is not repeated at once because a scheduled row is due by our clock alone.", without: []removal{{"Core.Watched", "!w.due.IsZero() &&", "false &&"}}},

	// Together with an application's own relay.
	{name: "looksFirst", says: "Rows of a table with a head start, claims or a headers table, or whose rows change, are looked at before they are published.", without: []removal{{"Core.looksFirst", "return e.state == kept", "return false"}}},
	{name: "asSeen", says: "A row that was looked at is published as the look saw it.", scenario: "TestRowGoesOutAsItIs", without: []removal{{"Core.renew", "e.row = a.Latest()", "e.row = a.Row"}}},
	{name: "notDueWaits", says: "A row that a look finds not due is left to the watch.", scenario: "TestRowGoesOutAsItIs", without: []removal{{"Core.checked", "case a == outbox.CheckWaits:", "case false:"}}},
	{name: "headStart", says: "Rows of such a table are looked at only after their head start.", scenario: "TestHeadStart", without: []removal{{"Core.enqueue", "from.Add(m.HeadStart)", "from"}}},
	{name: "horizonAges", says: "Of a page, only a row that was there a head start ago needs no head start any more.", scenario: "TestSweptBacklogWaitsOnce", without: []removal{{"headStart.horizonOf", "if !h.at.Add(t.Mapping.HeadStart).After(now) {", "if true {"}}},
	{name: "headStartAgain", says: "The head start of a row that is not visible yet begins again with the look that says so.", scenario: "TestHeadStartBeginsWhenTheRowIsVisible", without: []removal{
		{"Core.checked", "max(invisibleWait, row.Table.Mapping.HeadStart)", "invisibleWait"},
	}},
	{name: "parkTakesQueued", says: "A park takes its rows out of the head-start queue at once.", scenario: "TestParkTakesQueuedRows", without: []removal{{"Core.leaveParked", "for c.headStart.overtaken {", "for false {"}}},
	{name: "queuedInFlight", says: "Rows of the head-start queue are in flight.", scenario: "TestHandBackWaitsForQueuedRows", without: []removal{
		{"rowTable.ids", "for e := range t.flying() {", "for e := range t.flying() { if e.state == queued { continue }"},
	}},
	{name: "queuedAwaited", says: "A hand-back awaits the rows of the head-start queue, too.", scenario: "TestHandBackWaitsForQueuedRows", without: []removal{
		{"Core.startHandback", "if g.keeps(e.row) {", "if g.keeps(e.row) && e.state != queued {"},
	}},
	{name: "unclaims", says: "Rows that were claimed and are left to others have their locks given up.", scenario: "TestClaimForNobodyIsGivenUp|TestLateClaimIsGivenUp", without: []removal{
		{"Core.Claimed", "c.ready.Unclaim = append(c.ready.Unclaim, a.Latest())", ""},
		{"Core.unclaim", "c.ready.Unclaim = append(c.ready.Unclaim, e.row)", ""},
	}},
	{
		name: "askSoon", says: "When a row passes of which the WAL does not show when it is due, the watch asks soon.", scenario: "TestWritersRowIsOnTime", without: []removal{{"Core.row", "c.watch.expectAt(c.now.Add(askSoon))", ""}},
		unseen: "only time is lost",
	},
	{
		name: "claimOutage", says: "Where rows are claimed, an unusable cluster is parked at once.", scenario: "TestNothingStaysLockedInAnOutage", without: []removal{{"Core.parkClusters", " || c.headStart.claims()", ""}},
		unseen: "locks are held through the outage, which no invariant forbids",
	},
	{
		name: "oldOutage", says: "Where rows change, a cluster that stays unusable is parked.", scenario: "TestOutageLeavesNothingOld", without: []removal{{"Core.parkClusters", " || old", ""}, {"Core.parkClusters", "old := ", "_ = "}},
		unseen: "how old a look may be when its row is published is no invariant",
	},

	// Marks, confirming, memory, stopping.
	{name: "markAfterAck", says: "A row is marked SENT only after it was delivered.", without: []removal{
		{"Core.delivered", "c.ready.Marks = append(c.ready.Marks, outbox.Mark{Row: e.row, Kind: outbox.MarkSent, Unit: unit})", ""},
		{"Core.publish", "c.rows.fly(h, inSink)", "c.rows.fly(h, inSink); c.ready.Marks = append(c.ready.Marks, outbox.Mark{Row: e.row, Kind: outbox.MarkSent})"},
	}},
	{name: "confirmAfterMark", says: "A row is settled only after its mark was answered.", without: []removal{{"Core.delivered", "e.state = acked", "e.state = acked; c.ledger.release(e.tx, 1); e.tx = noTx"}}},
	{name: "keepaliveIdle", says: "A keepalive is confirmed only when nothing received is unsettled.", without: []removal{{"Core.Keepalive", "c.ledger.keepalive(walEnd)", "c.ledger.confirmed = max(c.ledger.confirmed, walEnd); c.ledger.keepalive(walEnd)"}}},
	{name: "boundedMemory", says: "With memory full the WAL is not read, and a hand-back gives up.", scenario: "TestTransactionLargerThanMemory", without: []removal{{"Core.full", "c.rows.count >= c.cfg.MaxRows || c.rows.bytes >= c.cfg.MaxBytes", "false"}}},
	{name: "drainAwaits", says: "A clean stop awaits and marks what was sent.", without: []removal{{"Core.Drained", " && c.rows.inFlight == 0 && (c.writing == nil || !c.connected)", ""}}},
}

// onlyFailedWait: only the failed row itself waits for its next try, not its key.
var onlyFailedWait = removal{"Core.parts", "ids := c.rows.ids()", `ids := c.rows.ids()
	for _, p := range c.parks.list {
		if p.failedRow != "" && p.Next.After(c.now) {
			ids[c.tables.byName[p.Scope.Table]] = append(ids[c.tables.byName[p.Scope.Table]], p.failedRow)
		}
	}`}

// changed gives the files without the rule, by path.
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
	done, chosen := 0, choose(named, o)
	err = each(ctx, o, chosen, func(dir string, r rule) {
		shown, err := r.judge(ctx, o.root, dir, whole)
		mu.Lock()
		defer mu.Unlock()
		done++
		fmt.Printf("%-22s %s\n%22s %s\n", r.name, r.says, "", shown)
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

// rulesNamed are the rules of these names, separated by commas; all: every one.
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
