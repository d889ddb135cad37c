package exactlyonce

import (
	"cmp"
	"errors"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Config holds the bounds of a Machine. Every field is required.
type Config struct {
	// Journal is the partition that the units are written to.
	Journal Partition
	// MaxRows is the maximum number of rows in one transaction.
	MaxRows int
	// BatchRows is the maximum number of rows in one batch.
	BatchRows int
	// BatchBytes returns the approximate maximum size in bytes of one batch of a topic.
	BatchBytes func(topic string) int
	// UnitRows is the maximum number of names in one unit. UnitBytes is the approximate maximum size in
	// bytes of one unit, and of one batch of units.
	UnitRows, UnitBytes int
	// PageBytes is the approximate maximum size in bytes of the units in one Recovery.
	PageBytes int
}

// Partition is one partition of a topic.
type Partition struct {
	Topic  string
	Number int32
}

// Record is a row to be published, with everything about it that the Machine needs.
type Record struct {
	Row   *outbox.Row
	At    Partition
	Table string
	// Key is shared by the rows that must stay in order. Empty: the row has no such order.
	Key  string
	Name Name
	// Commit is the commit position of the row's transaction if its table has no state; otherwise 0.
	Commit outbox.LSN
	Size   int // in a batch, in bytes
}

// Kind says what a Request asks for.
type Kind uint8

// The kinds of requests. All but Produce, Read and Ends go to the transaction coordinator. Of all kinds but
// Produce, one request at a time is outstanding.
const (
	Init    Kind = iota + 1 // InitProducerId
	Add                     // AddPartitionsToTxn
	Commit                  // EndTxn(commit)
	Abort                   // EndTxn(abort)
	Produce                 // one batch to one partition
	Read                    // the journal, From an offset Until a marker. Until Nobody: to the end of the log, for the last transaction
	Last                    // how the last transaction ended: DescribeTransactions
	Ends                    // whether the transaction's end is in the logs of partitions: ListOffsets, DescribeProducers
)

// Request is one request that the caller sends. It passes the answer to Machine.Answer. Only the Machine
// repeats a request that was not answered.
type Request struct {
	Kind       Kind
	As         Producer    // the producer that asks; of Init: the one held, or Nobody
	Partitions []Partition // of Add and Ends
	Of         Producer    // of Ends and Read: whose transaction is meant; of Init: whose commit the new epoch repairs, or Nobody
	Behind     []int64     // of Ends: the offset of the transaction's last record in each partition, or -1; nil: not known
	Marker     bool        // of Ends: a marker of Of has to be there; it is not enough that no transaction of Of is open
	Batch      *Batch      // of Produce
	From       int64       // of Read
	Until      Producer    // of Read
	Most       int         // of Read: end after about so many bytes of units; 0: no limit
	Try        int         // how many times the same was asked before; the caller waits the longer
}

// Answer is the outcome of a Request.
type Answer struct {
	Class    Class
	Producer Producer    // of Init: the new one; of Last: the one that the transactional id has now
	Outcome  Outcome     // of Last
	Of       Producer    // of Last: the producer whose transaction was committed
	Open     []Partition // of Ends: partitions without the end
	Unknown  []Partition // of Ends: partitions that have no leader, or whose leader did not answer
	Refused  []Partition // of Add: partitions that cannot be added; none of the request was added
	Bad      []int       // of Produce: indices of the refused records, where the broker names them
	Offset   int64       // of Produce: of the batch's first record
	Units    []Placed    // of Read
	More     bool        // of Read: the marker was not reached; more units may come before it
	Err      error       // of Read: why the journal cannot be used
}

// Outcome says how the last transaction of a transactional id ended.
type Outcome uint8

// The outcomes.
const (
	Undone    Outcome = iota + 1 // it was aborted, or there was none
	Running                      // it is open
	Committed                    // it was committed by Answer.Of; some partition may lack its end
	Repairing                    // a transaction that repairs a missing end is open
)

// Ready is what the caller has to do now.
type Ready struct {
	Requests []*Request
	// Delivered are units of a committed transaction. Their rows have to be marked, unit by unit.
	Delivered []Delivery
	// Refused records are not published, by their own fault. Their keys are blocked until Release.
	Refused []*Record
	// Withdrawn records are not published: a row of their key was refused, or their topic or partition
	// takes no records at present.
	Withdrawn []*Record
	// End is set when a transaction has ended.
	End *End
	// Recover is set when the seal of a new leadership is over. Its units were published, and the database
	// may not know them yet. The caller marks them and then calls Recovered.
	Recover *Recovery
	// Err ends the leadership. After it the Machine gives out nothing more.
	Err error
}

// End tells how a transaction ended: committed with Rows rows, or Aborted by a cause.
type End struct {
	Rows    int
	Aborted Cause
}

// Recovery holds the journal's units behind the tally's head, or a part of them. With More, the next part
// follows after the call of Recovered.
type Recovery struct {
	Units []Placed
	More  bool
}

// Delivery is a unit of a committed transaction, with the records that it names, in the same order.
type Delivery struct {
	Unit    Placed
	Records []*Record
}

// ErrSuperseded says that our epoch is not the current one: another process leads, or the coordinator has
// ended a transaction that was open for too long. The caller asks the database which of the two it is. Then
// it stops, or leads again with a new Machine.
var ErrSuperseded = errors.New("another epoch of our transactional id is the current one")

type state uint8

const (
	stopped    state = iota // an error has ended the Machine
	sealing                 // a seal is going on, see machine_seal.go
	recovering              // the caller marks the units that the journal holds
	idle                    // no transaction is open
	adding                  // partitions are being added
	producing               // batches are in flight
	committing              // EndTxn(commit) is in flight
	proving                 // the transaction is committed; the Machine checks that its end is in each partition
)

// Machine decides over the transactions of one stream and cluster. Its methods take inputs; Take returns
// what they led to. A Machine serves one leadership: after an error it does nothing more. It is not safe
// for concurrent use.
type Machine struct {
	cfg   Config
	state state
	id    Producer
	last  Placed             // the last unit known to be committed
	seal  seal               // used while sealing
	sound map[Partition]bool // partitions where no batch of an older epoch can be appended any more, and no older transaction is open
	// lacking are the partitions that the last seal left out: they could not be added, did not show its marker,
	// or had no leader at the start. Consumers may be held up there.
	lacking map[Partition]bool
	seqs    map[Partition]int32
	asked   *Request // the outstanding request that is not a Produce, or nil
	tx      *transaction
	queue   []*Record // records that are in no transaction yet, in order of publishing
	// blocked are the keys of refused rows. Release takes them out.
	blocked map[string]bool
	doubts  int  // number of doubts since the last committed transaction
	careful bool // a doubt since then came from a refused record: the journal is written after the rows
	ready   Ready
}

// New returns a Machine that begins to lead: it seals the known partitions, and reads the journal from the
// tally's head. dark are partitions that exist and have no leader.
func New(cfg Config, head Placed, known []Partition, dark ...Partition) *Machine {
	m := &Machine{cfg: cfg, last: head, id: Nobody, sound: map[Partition]bool{}, lacking: map[Partition]bool{}, blocked: map[string]bool{}}
	m.beginSeal(sealLast, known)
	m.seal.leads = true
	for _, p := range dark {
		m.lacking[p] = true
	}
	return m
}

// Take returns what the caller has to do now. Each thing is returned once.
func (m *Machine) Take() Ready {
	if m.state == idle && len(m.queue) > 0 {
		m.begin()
	}
	out := m.ready
	m.ready = Ready{}
	return out
}

// Publish queues records, in order. Records of blocked keys are withdrawn.
func (m *Machine) Publish(records ...*Record) {
	for _, r := range records {
		if r.Key != "" && m.blocked[r.Key] {
			m.ready.Withdrawn = append(m.ready.Withdrawn, r)
			continue
		}
		m.queue = append(m.queue, r)
	}
}

// Release unblocks a key. Its records may be published again.
func (m *Machine) Release(key string) { delete(m.blocked, key) }

// Recovered says that the database knows all units of the last Recovery. If no part follows, rows may be
// looked at and published from now on.
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

// Idle reports whether no transaction is open and no record waits.
func (m *Machine) Idle() bool { return m.state == idle && len(m.queue) == 0 }

// Awaits reports whether the batch has no final answer yet, and its transaction still needs one.
func (m *Machine) Awaits(b *Batch) bool {
	return m.state == producing && slices.ContainsFunc(m.tx.portions, func(l *portion) bool { return l.inFlight != nil && l.inFlight.Batch == b })
}

// KeepAlive begins a seal to keep the transactional id from expiring at the coordinator.
func (m *Machine) KeepAlive() {
	if m.state == idle {
		m.beginSeal(sealInit, nil)
	}
}

// Lacking reports whether one of these partitions may lack the end of an earlier epoch's transaction.
// Revisit seals such partitions.
func (m *Machine) Lacking(these func(Partition) bool) bool { return len(m.lackingOf(these)) > 0 }

// Revisit seals those of these partitions that earlier seals left out, if no transaction is open.
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

// GiveUp ends a transaction that has been open for too long. Otherwise, one partition without a leader
// would hold up the consumers of all others.
func (m *Machine) GiveUp() {
	if m.state == adding || m.state == producing {
		m.doubt(Stuck)
	}
}

// Answer takes the answer to a request. It ignores answers that are not awaited any more.
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

// again repeats a request.
func (m *Machine) again(r *Request) {
	next := *r
	next.Try++
	m.ask(&next)
}

func (m *Machine) stop(err error) {
	m.state, m.asked, m.tx, m.queue = stopped, nil, nil, nil
	m.ready = Ready{Err: err}
}

// doubt ends a transaction after an unexpected answer or event. The epoch is used for nothing more but to
// abort the transaction, and then the journal tells whether it was committed. The seal is needed because an
// abort alone is not enough: a delayed batch could join the next transaction, and a delayed EndTxn could
// end it.
func (m *Machine) doubt(why Cause) {
	m.doubts++
	m.tx.why = why
	m.beginSeal(sealAbort, m.tx.partitions())
}

// settleDoubt decides by the journal: it holds all units of the transaction, or none.
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

// deliver hands out the units of a committed transaction, with their records.
func (m *Machine) deliver(tx *transaction, units []Placed) {
	m.ready.End = &End{}
	for i, u := range units {
		m.ready.End.Rows += len(tx.named[i])
		m.ready.Delivered = append(m.ready.Delivered, Delivery{Unit: u, Records: tx.named[i]})
		m.last = u
	}
}

// withdraw removes the matching records from the queue and withdraws them.
func (m *Machine) withdraw(which func(*Record) bool) {
	m.queue = slices.DeleteFunc(m.queue, func(r *Record) bool {
		if !which(r) {
			return false
		}
		m.ready.Withdrawn = append(m.ready.Withdrawn, r)
		return true
	})
}
