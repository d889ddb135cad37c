// Package checkpoint decides, for one stream, what may be published, marked,
// parked, swept and confirmed. It is pure: no I/O, no clock, no goroutine, no
// randomness. docs/internals/design.md explains why; the simulation in this package
// checks it. Core is not safe for concurrent use.
//
// # The loop
//
// One goroutine, the pipeline's driver, passes the inputs to a Core and carries out
// what Take returns. It has no other duty to the Core:
//
//	for {
//		core.Tick(now)
//		carryOut(core.Take())         // see Ready: each request gets one answer
//		confirm(core.Confirm())       // the position that the slot may be told
//		allowSlot(core.SlotMayBeMade())
//		if core.Drained() {
//			return                    // after Drain: all rows that were sent are marked
//		}
//		if core.Reading() {
//			wal = batches             // otherwise the WAL is not read
//		}
//		select {
//		case <-stop:                  // Drain
//		case e := <-connection:       // Connect, Disconnect
//		case b := <-wal:              // ServerTime, Begin, Rows, Commit, Keepalive, TableBroken ...
//		case o := <-outcomes:         // Outcome
//		case s := <-clusters:         // Cluster, Topics
//		case m := <-marked:           // Marked
//		case a := <-answers:          // Checked, Claimed, Swept, Watched, ParksWritten ...
//		case <-at(core.NextTick()):
//		}
//	}
//
// The driver also calls Tick before each input, because an input happens at the time of the
// last Tick. After Disconnect, outstanding requests must not be answered any more (Ready.Claim
// is the exception).
//
// # Inputs, and what may come out
//
// Take returns the results of the inputs, and what has become due as time passed.
//
//	input                          may lead to
//	Connect                        Check of rows up to the insert position, Parks, Sweep
//	Disconnect                     Unclaim; outstanding requests are void
//	ServerTime                     Check of the rows that are late by it
//	Inserted                       Check, Claim: it tells when head starts began
//	Begin, Rows, Commit            Publish; Check or Claim first where rows are looked at
//	Keepalive                      Confirm goes on
//	TableBroken, Passed            Parks
//	TableMapped                    a hand-back of the table, after Sweep
//	Outcome, delivered             Marks (MarkSent); without state in the table Confirm goes on
//	Outcome, refused               Marks (MarkAttempt), Parks, Release
//	Outcome, withdrawn             Parks, Release
//	Outcome, stale                 Check, then Looked
//	Outcome, taken out             Publish under another key; Confirm goes on
//	Cluster                        Parks and Withdraw, once others wait for its rows
//	Topics                         Sweep of topics that exist now
//	Marked                         Confirm goes on; Marks once more, Parks
//	Checked, Claimed               Publish; Unclaim
//	Swept                          Publish; the next Sweep, or a hand-back's Parks
//	Watched                        Rewatch
//	Rewatched                      Parks of the keys that the stream missed
//	FailedRows                     Parks of blocked keys: another row, or none
//	CheckRefused, ClaimRefused,
//	SweepRefused, WatchRefused,
//	FailedRefused                  Parks: the table's
//	ParksWritten                   Confirm goes on; what a hand-back kept: Check, Publish
//	Pause, Retained                Parks and Withdraw
//	Unmarked                       Marks of what was published before
//	Pace                           less Publish
//	Drain                          Withdraw; Drained once nothing is in flight
//
// # Files
//
// A file calls only files below it in this list (a test in test/arch checks it). There are two
// exceptions: a refused row of a table without state goes to its stall, which publishes it again;
// and parking a scope ends the scope's hand-back.
//
//	core         the loop's side: time, Take, reading, stopping
//	connect      a connection begins and ends
//	wal          the WAL's transactions and rows
//	outcome      the sink's answers
//	checked      answers of looks and claims
//	marked       answers to marks
//	once         exactly once: what was published before
//	clusters     a cluster that is unusable
//	pause        scopes that an operator has paused
//	watch        the search for rows that the stream missed
//	sweep        which scope is swept next, and what follows from a page
//	handback     a parked scope returns to the stream
//	page         one page: its request, and which of its rows are published
//	gate         rows kept back during a hand-back and at a start
//	stall        rows of tables without state that wait in memory
//	nextlooks    which rows are looked at next
//	publish      a row goes to the sink, or is charged
//	looks        rows that wait for a look before they are published
//	held         rows that wait in the sink for long
//	keyqueue     rows that wait, in order per key
//	unmarked     published rows whose marks are refused
//	key_retries  when a key is tried again
//	blocked      keys that wait for the operator
//	topics       topics that cannot be used
//	durable      parks are written and removed
//	parking      a scope is parked
//	memory       a row leaves memory (core and rows count the rows in it)
//	pace         how fast rows come
//	tables       the stream's tables and clusters
//	parkset      all parks
//	sleep        parks that only wait for a time
//	park         one park
//	headstart    when a head start began
//	claims       rows that are locked until they are marked
//	late         which rows of the WAL are late, by the server's clock
//	rows         rows in memory
//	unended      transactions that a hand-back waits for
//	ledger       transactions that are not settled
//	ready        what Take returns
//	config       bounds
//
// # Rules
//
// Each rule is shown to be needed. test/mutants/rules.go says how to take the rule out of the
// code. Then an invariant breaks in the simulation, or the rule's scenario test fails.
//
// Parks:
//   - parkDurable: The confirmed position passes a row of a parked scope only after the park was
//     committed.
//   - slotAfterPark: A slot is made only after the stream's park is durable.
//   - narrowing: A park that replaces another (the stream's goes, a key's stays) is committed in
//     the transaction that removes it, or before.
//   - postponedWritten: A park that awaits an answer, and so was not written yet, is committed with
//     the next removal of a hand-back's parks.
//   - rewriteUnknown: A removal whose outcome is unknown is written again before anything more
//     is confirmed.
//   - tableHolds: From the point where a table's rows cannot be read, nothing is confirmed before
//     the table's park is durable.
//   - knownParks: A topic that is found to exist while its table's unknown topics are parked has
//     its own park until its rows are swept.
//   - pausedWaits: Rows that an operator has paused are not published.
//   - pausedStays: A pause does not end when its scope is parked for another cause.
//   - rowsAlone: A row whose mark is refused by itself is parked by itself, not with its table.
//   - sameRow: Rows with one id that were created at different times are told apart.
//
// Keys:
//   - keyBackoff: While a row of a key waits for its next try, its later rows are not due
//     either.
//   - backoffHolds: A key is not handed back while it waits for its next try.
//   - failureWithdraws: A failure takes back the key's later rows that were read and are not
//     published yet; rows that are given back are left to the sweeper.
//   - spendsBadOnly: While a table hurries, only a row that cannot become a record uses up its
//     budget with one attempt.
//   - chargeRefusedOnly: Only a row that was refused is charged an attempt, not one that is
//     given back for its topic.
//   - blockStays: A key that waits for the operator goes on waiting when another row of it
//     fails.
//   - blockAsks: When the FAILED row that a blocked key remembers is no longer FAILED, the key is
//     free only if none of its other rows is FAILED.
//
// Hand-back:
//   - keepFromStatement: From the hand-back's statement on, rows of the scope are kept, not
//     discarded.
//   - repeatDiscarded: The statement is repeated until every transaction whose rows were
//     discarded is visible in its snapshot, or has ended.
//   - repeatInProgress: The statement is also repeated until every transaction in progress in
//     the snapshot at the connection's start is visible in its snapshot, or has ended.
//   - handBackMarks: The park is removed only after the rows that the statement found were
//     published and marked.
//   - checkKept: After a hand-back, rows up to B are looked at before they are published.
//   - voidHandBack: A hand-back ends with its connection.
//   - voidDiscarded: The ids of discarded transactions mean nothing after a reconnect.
//
// Start and reconnect:
//   - checkAtStart: Rows up to the insert position at start are looked at before they are
//     published.
//   - invisibleWaits: A row that is not visible to its look yet is looked at again.
//   - skipInFlight: Rows that this process has in flight from an earlier connection are not
//     published again.
//   - inFlightInLedger: Rows in flight from an earlier connection hold the new connection's
//     position.
//   - nextBounded: A park's next try, as it was read, is at most the longest backoff away.
//   - dueByCommit: A row that was available at its commit, by the server's clock, is not scheduled.
//
// Sweep and watch:
//   - excludeInFlight: Sweeps leave out the ids in flight.
//   - watchSecondRead: Rows that the stream may have missed are read a second time.
//   - watchWaits: Before the second read, everything up to L is settled.
//   - watchNotParkedFirst: Parked rows are no candidates of the first read.
//   - watchNotParkedSecond: Rows that were parked since are no candidates of the second read.
//   - watchAbandoned: A reconnect abandons the round.
//   - watchPauses: A round that found nothing is not repeated at once because a scheduled row is
//     due by our clock alone.
//
// Together with an application's own relay:
//   - looksFirst: Rows of a table with a head start, claims or a headers table, or whose rows
//     change, are looked at before they are published.
//   - asSeen: A row that was looked at is published as the look saw it.
//   - notDueWaits: A row that a look finds not due is left to the watch.
//   - headStart: Rows of such a table are looked at only after their head start.
//   - horizonAges: A page's row needs no head start only if it was there a head start ago.
//   - headStartAgain: When a look does not see a row yet, the row's head start begins again.
//   - parkTakesQueued: A park takes its rows out of the look queue at once.
//   - queuedInFlight: Rows of the look queue are in flight.
//   - queuedAwaited: A hand-back awaits the rows of the look queue, too.
//   - unclaims: Claimed rows that are left to others are unlocked.
//   - askSoon: When the WAL does not show when a row is due, the watch asks soon.
//   - claimOutage: Where rows are claimed, an unusable cluster is parked at once.
//
// After a long wait:
//   - lateAsSeen: A row that the WAL brings long after its commit goes out as a look sees it, or not at all.
//   - lateInTurn: While rows of a table wait for such a look, its later rows wait behind them.
//   - heldAsSeen: A row that the sink asks about goes out from its place as a look sees it, or not at all.
//   - heldInTurn: A key's later rows do not pass a row that another relay has or that blocks the key.
//
// Marks, confirming, memory, stopping:
//   - markAfterAck: A row is marked SENT only after it was delivered.
//   - confirmAfterMark: A row is settled only after its mark was answered.
//   - keepaliveIdle: A keepalive is confirmed only when nothing received is unsettled.
//   - boundedMemory: With memory full the WAL is not read, and a hand-back gives up, but not
//     the whole stream's between transactions.
//   - forgetsEnded: When more transactions were discarded than rows may be in memory, a snapshot is
//     asked for, to forget those that have ended.
//   - drainAwaits: A clean stop awaits and marks what was sent.
package checkpoint
