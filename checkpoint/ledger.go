package checkpoint

import "github.com/outbox-cdc/outbox-cdc/internal/outbox"

// noTx is the sequence number of a row that no transaction waits for: the sweeper read
// it, or its transaction was released early.
const noTx int64 = -1

// ledger holds the received transactions that are not yet settled, in commit
// order, and with them the position that may be confirmed.
type ledger struct {
	// txs[head:] are the transactions from sequence number first on. The first
	// of them is open or has holds; everything before it is settled.
	txs   []transaction
	head  int
	first int64
	inTx  bool
	// opened is the commit time of the open transaction.
	opened int64
	// confirmed never goes back, and never passes a transaction with holds (I6).
	confirmed outbox.LSN
	// received: everything below it was fed in.
	received outbox.LSN
}

type transaction struct {
	commit, end outbox.LSN
	holds       int
	ended       bool
}

// reset forgets a connection's transactions. Sequence numbers go on, so an old
// one is never taken for a new one.
func (l *ledger) reset() {
	*l = ledger{txs: l.txs[:0], first: l.first + int64(len(l.txs)-l.head)}
}

func (l *ledger) len() int { return len(l.txs) - l.head }

func (l *ledger) begin(tx outbox.Transaction) {
	if l.head*2 > len(l.txs) {
		l.txs = l.txs[:copy(l.txs, l.txs[l.head:])]
		l.head = 0
	}
	l.txs = append(l.txs, transaction{commit: tx.Commit})
	l.inTx, l.opened = true, tx.Time
	l.received = max(l.received, tx.Commit)
}

// current is the sequence number of the open transaction.
func (l *ledger) current() int64 { return l.first + int64(l.len()) - 1 }

// hold makes the open transaction wait for one release.
func (l *ledger) hold() int64 {
	l.txs[len(l.txs)-1].holds++
	return l.current()
}

func (l *ledger) release(seq int64, n int) {
	if seq < l.first {
		return
	}
	l.txs[l.head+int(seq-l.first)].holds -= n
	l.settle()
}

func (l *ledger) commit(end outbox.LSN) {
	tx := &l.txs[len(l.txs)-1]
	tx.ended, tx.end = true, end
	l.inTx = false
	l.received = max(l.received, end)
	l.settle()
}

func (l *ledger) settle() {
	for l.head < len(l.txs) && l.txs[l.head].ended && l.txs[l.head].holds == 0 {
		l.confirmed = max(l.confirmed, l.txs[l.head].end)
		l.head++
		l.first++
	}
}

// keepalive confirms walEnd when nothing received is unsettled. In the middle
// of a transaction it says nothing: rows of it are still to come.
func (l *ledger) keepalive(walEnd outbox.LSN) {
	if l.inTx {
		return
	}
	l.received = max(l.received, walEnd)
	if l.len() == 0 {
		l.confirmed = max(l.confirmed, walEnd)
	}
}

// settled is the last position before what is not settled, or not received.
func (l *ledger) settled() outbox.LSN {
	next := l.received
	if l.len() > 0 {
		next = l.txs[l.head].commit
	}
	return max(next, 1) - 1
}

// settledTo says that everything below upTo was received and is settled.
func (l *ledger) settledTo(upTo outbox.LSN) bool {
	return l.received >= upTo && (l.len() == 0 || l.txs[l.head].commit >= upTo)
}
