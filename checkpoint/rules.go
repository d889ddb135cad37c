package checkpoint

// rules switches single rules of docs/design.md off. The zero value, all rules
// in force, is what a Core runs with; only the simulation sets a field, to show
// that the rule is needed: with it off, an invariant must break.
//
// Each field is named after its rule; true means that the Core does without it.
type rules struct {
	// Parks.

	// parkDurable: the confirmed position passes a row of a parked scope only
	// after the park was committed. Off: as soon as it is decided.
	parkDurable bool
	// slotAfterPark: a slot may be made only after the stream's park is durable.
	// Off: SlotMayBeMade is always true.
	slotAfterPark bool
	// narrowing: a park that replaces another (the stream's goes, a key's stays)
	// is committed in the transaction that removes it, or before. Off: the
	// removal does not wait for it, and it is written by the next change.
	narrowing bool
	// rewriteUnknown: a removal whose outcome is unknown is written again before
	// anything more is confirmed. Off: unknown counts as not removed, nothing is
	// written, and confirming goes on.
	rewriteUnknown bool
	// tableHolds: nothing is confirmed past TableBroken before the table's park
	// is durable. Off: it is.
	tableHolds bool

	// knownParks: a topic that is found to exist where a table's unknown topics are
	// parked has a park of its own until its rows were swept. Off: its rows are
	// published as they come at once.
	knownParks bool
	// rowsAlone: a row whose mark is refused by itself is parked by itself. Off: its
	// table is.
	rowsAlone bool
	// sameRow: a row with the id of another, created at another time, is not taken for
	// it. Off: it is.
	sameRow bool

	// Keys.

	// keyBackoff: while a row of a key waits for its next try, its later rows are
	// not due either. Off: only the failed row itself waits.
	keyBackoff bool
	// backoffHolds: a key (row) is not handed back while it waits for its next
	// try. Off: it is.
	backoffHolds bool
	// failureWithdraws: a failure takes the key's later rows from what was read
	// but not yet published (page, kept, being checked), and given-back rows are
	// left to the sweeper. Off: they are published (again) as if nothing had
	// happened, after a Release.
	failureWithdraws bool
	// chargeRefusedOnly: only a Refused row is charged an attempt. Off: rows
	// withdrawn by a topic's error are charged too.
	chargeRefusedOnly bool
	// blockStays: a key that waits for the operator goes on doing so when another
	// row of it fails. Off: until that one is out of the way, or FAILED, it does not.
	blockStays bool
	// blockAsks: when the FAILED row that a blocked key remembers is FAILED no more,
	// the key is free only if no other row of it is. Off: at once.
	blockAsks bool

	// Hand-back.

	// keepFromStatement: from the hand-back's statement on, rows of the scope are
	// kept, not discarded. Off: they are discarded until the park is removed.
	keepFromStatement bool
	// repeatDiscarded: the statement is repeated until every transaction of which
	// rows were discarded is visible in its snapshot or has ended. Off: not so.
	repeatDiscarded bool
	// repeatInProgress: … and every one in progress in the snapshot taken after
	// the connection's start. Off: not so.
	repeatInProgress bool
	// remembersParked: a stream's hand-back leaves its discarded transactions to
	// the keys that stay parked. Off: they start without.
	remembersParked bool
	// handBackQuiet: the statement runs only while nothing of the scope is in
	// flight (queued, sent, or acked and unmarked). Off: at once.
	handBackQuiet bool
	// handBackMarks: the park is removed only after the rows that the statement
	// found were published and marked. Off: at once.
	handBackMarks bool
	// checkKept: after a hand-back rows up to B are checked before they are
	// published. Off: they are published.
	checkKept bool
	// voidHandBack: a hand-back ends with its connection. Off: after a reconnect
	// it goes on where it was.
	voidHandBack bool
	// voidDiscarded: discarded transaction ids are void after a reconnect. Off:
	// they are remembered.
	voidDiscarded bool

	// Start and reconnect.

	// checkAtStart: rows up to the insert position at start are checked before
	// they are published. Off: they are published.
	checkAtStart bool
	// invisibleWaits: a checked row that is not visible yet is asked for again.
	// Off: it counts as settled.
	invisibleWaits bool
	// skipInFlight: rows that this process still has in flight from an earlier
	// connection are not published again. Off: they are.
	skipInFlight bool
	// inFlightInLedger: … but stand in the new connection's ledger. Off: they
	// count as settled.
	inFlightInLedger bool
	// nextBounded: a park's next try, as read, is no further away than the longest
	// backoff. Off: as far as another clock may have been wrong.
	nextBounded bool
	// dueByCommit: a row that was available at its commit, by the server's clock, is
	// no scheduled one. Off: our clock alone says so.
	dueByCommit bool

	// Sweep and watch.

	// excludeInFlight: sweeps leave out the ids in flight. Off: the list of the
	// request is empty and what a page brings is published whatever is in flight.
	excludeInFlight bool
	// watchSecondRead: candidates are read a second time. Off: they are parked
	// after the wait.
	watchSecondRead bool
	// watchWaits: before the second read everything up to L is settled. Off: it
	// is read at once.
	watchWaits bool
	// watchExcludes: ids in flight are no candidates, at either read. Off: they are.
	watchExcludes bool
	// watchNotParkedFirst: parked rows are no candidates of the first read.
	watchNotParkedFirst bool
	// watchNotParkedSecond: what was parked between the two reads is no candidate
	// any more.
	watchNotParkedSecond bool
	// watchAbandoned: a reconnect abandons the round. Off: it goes on.
	watchAbandoned bool
	// watchPauses: a round that found nothing is not repeated at once, though a
	// scheduled row is due by our clock. Off: until it is due by the server's, too.
	watchPauses bool

	// Beside another relay.

	// stands: rows of tables with a head start or claims are looked at before they
	// are published, and not at once. Off: they are published like others.
	stands bool
	// headStart: … after their head start. Off: at once.
	headStart bool
	// horizonAges: a page's row that was there a head start ago waits no more.
	// Only what was written before a snapshot of then was. Off: before any page's.
	horizonAges bool
	// headStartAnew: a row that is found not to be visible yet has its head start
	// from then on. Off: it does not.
	headStartAnew bool
	// standLeaves: a park takes its rows from the stand at once. Off: when they
	// were looked at.
	standLeaves bool
	// standInFlight: rows that stand are in flight. Off: pages bring them again, and
	// hand-backs do not wait for them.
	standInFlight bool
	// unclaims: rows that were claimed and are left have their locks given up. Off:
	// not so.
	unclaims bool
	// askSoon: when a row passes of which the log does not show when it is due, the
	// watch asks soon. Off: at its next round.
	askSoon bool
	// claimOutage: where rows are claimed, an unusable cluster is parked at once.
	// Off: only where others wait behind it.
	claimOutage bool

	// Marks, confirming, memory, stopping.

	// markAfterAck: a row is marked SENT only after it was delivered. Off: when
	// it is handed to the sink.
	markAfterAck bool
	// confirmAfterMark: a row is settled only after its mark was answered. Off:
	// when it was delivered.
	confirmAfterMark bool
	// keepaliveIdle: a keepalive is confirmed only when nothing received is
	// unsettled. Off: always.
	keepaliveIdle bool
	// boundedMemory: at MaxRows the log is not read, and a hand-back gives up.
	// Off: Reading ignores the bound.
	boundedMemory bool
	// drainAwaits: a clean stop awaits and marks what was sent. Off: Drained says
	// yes at once.
	drainAwaits bool
}
