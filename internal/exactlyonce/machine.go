package exactlyonce

import (
	"cmp"
	"errors"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Config bounds a Machine. Every field is required.
type Config struct {
	// Journal is the partition that units are written to.
	Journal Partition
	// MaxRows is the most rows of one transaction.
	MaxRows int
	// BatchRows is the most rows of one batch.
	BatchRows int
	// BatchBytes is about the most bytes of one batch of a topic.
	BatchBytes func(topic string) int
	// UnitRows is the most names of one unit, UnitBytes about the most bytes of a unit and
	// of a batch of units.
	UnitRows, UnitBytes int
	// PageBytes is about the most bytes of units that a leader recovers at a time.
	PageBytes int
}

// Partition is one partition of a topic.
type Partition struct {
	Topic  string
	Number int32
}

// Record is a row on its way, with what the machine has to know of it.
type Record struct {
	Row   *outbox.Row
	At    Partition
	Table string
	// Key is what the row shares with the rows that must not overtake it; empty: nothing.
	Key  string
	Name Name
	// Commit, of a table without state, is where the row's transaction committed; else 0.
	Commit outbox.LSN
	Size   int // bytes in a batch
}

// Kind is what a Request asks.
type Kind uint8

// The requests. All but Produce, Read and Ends go to the transaction coordinator, one at a time.
const (
	Init    Kind = iota + 1 // InitProducerId
	Add                     // AddPartitionsToTxn
	Commit                  // EndTxn
	Abort                   // EndTxn
	Produce                 // one batch of one partition
	Read                    // the journal, From an offset Until a marker; Until Nobody: for the last transaction
	Last                    // how the last transaction ended: DescribeTransactions
	Ends                    // whether its end is in the logs of partitions: ListOffsets, DescribeProducers
)

// Request is to be sent, and answered by Machine.Answer. Only the machine sends a request
// again that was not answered.
type Request struct {
	Kind       Kind
	As         Producer    // of Init: the producer id held, or Nobody
	Partitions []Partition // of Add and Ends
	Of         Producer    // of Ends: whose transaction; of Init: whose commit is brought about, or Nobody
	Behind     []int64     // of Ends: the last record in each partition, or -1; nil: not known
	Marker     bool        // of Ends: a marker of Of has to be there, not only nothing open of it
	Batch      *Batch      // of Produce
	From       int64       // of Read
	Until      Producer    // of Read
	Most       int         // of Read: about how many bytes of units are enough; 0: all
	Try        int         // how often the same was asked before; the caller waits accordingly
}

// Answer is what became of a Request.
type Answer struct {
	Class    Class
	Producer Producer    // of Init; of Last: the current one
	Outcome  Outcome     // of Last
	Of       Producer    // of Last: whose transaction was committed
	Open     []Partition // of Ends: the end is not there
	Unknown  []Partition // of Ends: nobody leads them, or nobody answers
	Refused  []Partition // of Add: these cannot be added, and none was
	Bad      []int       // of Produce: the refused records, where the broker names them
	Offset   int64       // of Produce: of the first record
	Units    []Placed    // of Read
	More     bool        // of Read: there are more before the marker
	Err      error       // of Read: the journal cannot be used
}

// Outcome is what became of the last transaction of a transactional id.
type Outcome uint8

// The outcomes.
const (
	Undone    Outcome = iota + 1 // aborted, or there was none
	Running                      // it is open
	Committed                    // as Of; a partition may lack the end
	Repairing                    // what brings about a missing end is open
)

// Ready is what is to be done now.
type Ready struct {
	Requests []*Request
	// Delivered: the transaction is committed. Its rows are to be marked with their unit.
	Delivered []Delivery
	// Refused records are not published, by their own fault. Their keys are blocked.
	Refused []*Record
	// Withdrawn records are not published, because a row of their key or their topic was refused.
	Withdrawn []*Record
	// End, if set: a transaction has ended.
	End *End
	// Recover: the seal is over. These units were published; the database may not know it.
	// Answer: Recovered.
	Recover *Recovery
	// Err ends the leadership, see Machine.
	Err error
}

// End is the end of a transaction: committed, with so many rows, or aborted by a cause.
type End struct {
	Rows    int
	Aborted Cause
}

// Recovery is what the journal holds behind the tally's head, or a part of it: More
// says that the next part follows when this one is Recovered.
type Recovery struct {
	Units []Placed
	More  bool
}

// Delivery is a unit of a committed transaction and the records of its names, in order.
type Delivery struct {
	Unit    Placed
	Records []*Record
}

// ErrSuperseded says that our epoch is not the current one: another process leads, or
// the coordinator ended a transaction that was open for too long. The caller asks the
// database which it is, and either stops or leads again with a new Machine.
var ErrSuperseded = errors.New("another epoch of our transactional id is the current one")

type state uint8

const (
	stopped    state = iota // nothing happens any more
	sealing                 // see machine_seal.go
	recovering              // the caller marks what the journal holds
	idle                    // no transaction is open
	adding                  // partitions are being added
	producing               // batches are on their way
	committing              // the commit is on its way
	proving                 // it is decided; its end has to be in each partition
)

// Machine decides for one stream and cluster. Inputs are methods; what they lead to is
// collected until Take. It is made for one leadership: after an error nothing more
// happens. One goroutine owns it.
type Machine struct {
	cfg   Config
	state state
	id    Producer
	last  Placed             // the last unit that is known to be committed
	seal  seal               // while sealing
	sound map[Partition]bool // no batch of an older epoch can land there any more, and nothing is open
	// lacking are those without a seal's marker: consumers may wait there.
	lacking map[Partition]bool
	seqs    map[Partition]int32
	asked   *Request // of the coordinator or the journal, outstanding
	tx      *transaction
	queue   []*Record // in order of publishing, not in a transaction yet
	// blocked are keys of refused rows, until they are released.
	blocked map[string]bool
	doubts  int  // since a transaction was committed
	careful bool // a record was refused since then
	ready   Ready
}

// New returns a Machine that begins to lead: it seals the partitions known, and reads
// the journal from the tally's head. dark are those that exist and have no leader.
func New(cfg Config, head Placed, known []Partition, dark ...Partition) *Machine {
	m := &Machine{cfg: cfg, last: head, id: Nobody, sound: map[Partition]bool{}, lacking: map[Partition]bool{}, blocked: map[string]bool{}}
	m.beginSeal(sealLast, known)
	m.seal.leads = true
	for _, p := range dark {
		m.lacking[p] = true
	}
	return m
}

// Take returns what is to be done now.
func (m *Machine) Take() Ready {
	if m.state == idle && len(m.queue) > 0 {
		m.begin()
	}
	out := m.ready
	m.ready = Ready{}
	return out
}

// Publish queues records, in order. Those of blocked keys are given back.
func (m *Machine) Publish(records ...*Record) {
	for _, r := range records {
		if r.Key != "" && m.blocked[r.Key] {
			m.ready.Withdrawn = append(m.ready.Withdrawn, r)
			continue
		}
		m.queue = append(m.queue, r)
	}
}

// Release unblocks a key.
func (m *Machine) Release(key string) { delete(m.blocked, key) }

// Recovered says that the database knows all units of Recover. If they were the last,
// rows may be looked at and published from now on.
func (m *Machine) Recovered() {
	switch {
	case m.state != recovering:
	case m.seal.more:
		m.state = sealing
		m.askStep(0)
	default:
		m.state = idle
	}
}

// Idle says that no transaction is open and nothing waits.
func (m *Machine) Idle() bool { return m.state == idle && len(m.queue) == 0 }

// Awaits says that a batch still has to be answered: its transaction is not given up.
func (m *Machine) Awaits(b *Batch) bool {
	return m.state == producing && slices.ContainsFunc(m.tx.portions, func(l *portion) bool { return l.inFlight != nil && l.inFlight.Batch == b })
}

// KeepAlive refreshes the transactional id, which brokers forget after a while.
func (m *Machine) KeepAlive() {
	if m.state == idle {
		m.beginSeal(sealInit, nil)
	}
}

// Lacking says that one of these partitions has no end of what an earlier epoch began. Then Revisit seals it.
func (m *Machine) Lacking(these func(Partition) bool) bool { return len(m.lackingOf(these)) > 0 }

// Revisit seals partitions that were left out of seals.
func (m *Machine) Revisit(these func(Partition) bool) {
	if out := m.lackingOf(these); m.state == idle && len(out) > 0 {
		m.beginSeal(sealInit, out)
	}
}

func (m *Machine) lackingOf(these func(Partition) bool) (out []Partition) {
	for p := range m.lacking {
		if these(p) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Partition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Number, b.Number))
	})
	return out
}

// GiveUp ends a transaction that has been open for too long: a partition without leader
// would otherwise hold up consumers of the others.
func (m *Machine) GiveUp() {
	if m.state == adding || m.state == producing {
		m.doubt(Stuck)
	}
}

// Answer takes an answer. One that is not waited for any more means nothing.
func (m *Machine) Answer(r *Request, a Answer) {
	switch {
	case m.state == stopped:
	case r.Kind == Produce:
		m.produced(r, a)
	case r != m.asked:
	case m.state == sealing:
		m.asked = nil
		m.sealed(r, a)
	case m.state == adding:
		m.asked = nil
		m.added(r, a)
	case m.state == committing:
		m.asked = nil
		m.committed(a)
	case m.state == proving:
		m.asked = nil
		m.proved(r, a)
	}
}

func (m *Machine) ask(r *Request) {
	m.asked = r
	m.ready.Requests = append(m.ready.Requests, r)
}

// again asks the same once more.
func (m *Machine) again(r *Request) {
	next := *r
	next.Try++
	m.ask(&next)
}

func (m *Machine) stop(err error) {
	m.state, m.asked, m.tx, m.queue = stopped, nil, nil, nil
	m.ready = Ready{Err: err}
}

// doubt is the answer to everything unexpected: the epoch is used for nothing but
// ending its transaction, and the journal tells whether that was committed. A client's
// abort by itself would leave delayed batches free to join the next transaction, and a
// delayed EndTxn free to end it.
func (m *Machine) doubt(why Cause) {
	m.doubts++
	m.tx.why = why
	m.beginSeal(sealAbort, m.tx.partitions())
}

// settleDoubt takes the journal's word: all units of the transaction are there, or none.
func (m *Machine) settleDoubt(units []Placed) error {
	tx := m.tx
	m.tx = nil
	switch {
	case len(units) == 0 && tx != nil:
		m.ready.End = &End{Aborted: tx.why}
		m.queue = append(tx.remaining(), m.queue...)
	case len(units) == 0:
	case tx == nil || len(units) != len(tx.units):
		return ErrJournal
	default:
		m.deliver(tx, units)
	}
	return nil
}

// deliver tells the rows of a committed transaction.
func (m *Machine) deliver(tx *transaction, units []Placed) {
	m.ready.End = &End{}
	for i, u := range units {
		m.ready.End.Rows += len(tx.named[i])
		m.ready.Delivered = append(m.ready.Delivered, Delivery{Unit: u, Records: tx.named[i]})
		m.last = u
	}
}

// withdraw takes records out of the queue.
func (m *Machine) withdraw(which func(*Record) bool) {
	m.queue = slices.DeleteFunc(m.queue, func(r *Record) bool {
		if !which(r) {
			return false
		}
		m.ready.Withdrawn = append(m.ready.Withdrawn, r)
		return true
	})
}
