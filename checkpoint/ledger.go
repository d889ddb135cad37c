package checkpoint

import "github.com/outbox-cdc/outbox-cdc/internal/outbox"

// noTx is the transaction number of a row that holds no transaction: the sweeper has read the row, or its
// hold was released early.
const noTx int64 = -1

// ledger holds the received transactions that are not settled yet, in commit order. It determines the
// position that may be confirmed.
type ledger struct {
	// txs[head:] are the unsettled transactions, numbered from first on. The first of them is open or has
	// holds. All earlier transactions are settled.
	txs   []transaction
	head  int
	first int64
	inTx  bool
	// opened is the commit time of the open transaction.
	opened int64
	// confirmed never goes back, and never passes a transaction with holds (I6).
	confirmed outbox.LSN
	// received is the position below which everything was fed in.
	received outbox.LSN
}

type transaction struct {
	commit, end outbox.LSN
	holds       int
	ended       bool
}

// reset forgets the transactions of a connection. The numbers continue, so an old number never means a new
// transaction.
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

// current returns the number of the open transaction.
func (l *ledger) current() int64 { return l.first + int64(l.len()) - 1 }

// hold adds a hold to the open transaction and returns the transaction's number. One release ends the hold.
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

// keepalive confirms walEnd if nothing received is unsettled. Within a transaction it does nothing, because
// rows of that transaction are still to come.
func (l *ledger) keepalive(walEnd outbox.LSN) {
	if l.inTx {
		return
	}
	l.received = max(l.received, walEnd)
	if l.len() == 0 {
		l.confirmed = max(l.confirmed, walEnd)
	}
}

// settled returns the position up to which everything was received and is settled.
func (l *ledger) settled() outbox.LSN {
	next := l.received
	if l.len() > 0 {
		next = l.txs[l.head].commit
	}
	return max(next, 1) - 1
}

// settledTo reports whether everything below upTo was received and is settled.
func (l *ledger) settledTo(upTo outbox.LSN) bool {
	return l.received >= upTo && (l.len() == 0 || l.txs[l.head].commit >= upTo)
}
