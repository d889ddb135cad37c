package exactlyonce

import "slices"

// A seal ends with an epoch under which nothing of earlier ones can happen any more, and
// with all that they committed. It is the one procedure for the begin of a leadership, an
// unknown outcome, partitions not seen before, and keeping the id alive.
//
//	sealAbort    EndTxn(abort), if a transaction of ours may be open: InitProducerId
//	             would fence ourselves. It must be answered, whatever the answer is.
//	sealInit     a new epoch: all requests of the last one are refused from now on
//	sealAdd      the partitions, and the journal, in a transaction without records
//	sealEnd      EndTxn(abort): its marker raises the epoch in each partition, so that
//	             delayed batches of older ones are refused there
//	sealConfirm  InitProducerId is answered with something else than 51 only when every
//	             marker is written; and requests of the seal, repeated or delayed, are
//	             refused from now on
//	sealRead     the journal, up to our own marker
//
// Until the last step nothing but the epoch has changed, so each step is repeated until
// it is answered.
type seal struct {
	step    step
	leads   bool // the begin of a leadership
	targets []Partition
	marker  Identity // of the abort marker
	more    bool     // the journal was not read to the end
}

type step uint8

const (
	sealAbort step = iota
	sealInit
	sealAdd
	sealEnd
	sealConfirm
	sealRead
)

func (m *Machine) beginSeal(from step, targets []Partition) {
	m.state = sealing
	m.seal = seal{step: from, targets: append([]Partition{m.cfg.Journal}, targets...)}
	m.askStep(m.doubts)
}

func (m *Machine) askStep(try int) {
	r := &Request{Try: try}
	switch m.seal.step {
	case sealAbort, sealEnd:
		r.Kind = Abort
	case sealInit, sealConfirm:
		r.Kind = Init
	case sealAdd:
		r.Kind, r.Partitions = Add, m.seal.targets
	case sealRead:
		r.Kind, r.From, r.Until = Read, m.last.Offset, m.seal.marker
		if m.seal.leads { // else it can only be our last transaction
			r.Most = m.cfg.PageBytes
		}
	}
	m.ask(r)
}

// sealed takes the answer to a step.
func (m *Machine) sealed(r *Request, a Answer) {
	switch {
	case a.Class == Superseded:
		m.stop(ErrSuperseded)
	case a.Err != nil:
		m.stop(a.Err)
	case m.seal.step == sealAdd && a.Class == Refused:
		// The coordinator refuses all for one, so those that cannot be added are dropped. They are not
		// sound: before rows go there, another seal tries them again. Without the journal nothing can be done.
		m.seal.targets = slices.DeleteFunc(m.seal.targets, func(p Partition) bool {
			return p != m.cfg.Journal && slices.Contains(a.Refused, p)
		})
		m.withdraw(func(r *Record) bool { return slices.Contains(a.Refused, r.At) })
		m.askStep(r.Try + 1)
	case m.seal.step == sealEnd && a.Class == Ended:
		m.seal.step = sealInit // our transaction is not there: from the beginning
		m.askStep(r.Try + 1)
	case a.Class == Ended && m.seal.step == sealAbort: // nothing to abort: the transaction was committed, or never began
		m.stepped(a)
	case a.Class != OK:
		m.askStep(r.Try + 1)
	default:
		m.stepped(a)
	}
}

// stepped goes on to the next step.
func (m *Machine) stepped(a Answer) {
	switch m.seal.step {
	case sealInit:
		m.adopt(a.Identity)
		m.seal.marker = m.id
	case sealConfirm:
		m.adopt(a.Identity)
		for _, p := range m.seal.targets {
			m.sound[p] = true
		}
	case sealRead:
		m.journalRead(a.Units, a.More)
		return
	}
	m.seal.step++
	m.askStep(0)
}

// adopt takes a new epoch. Sequences begin at 0 with it.
func (m *Machine) adopt(id Identity) { m.id, m.seqs = id, map[Partition]int32{} }

func (m *Machine) journalRead(units []Placed, more bool) {
	beyond, err := Beyond(m.last, units)
	switch {
	case err != nil:
	case m.seal.leads:
		if len(beyond) > 0 {
			m.last = beyond[len(beyond)-1]
		}
		m.state, m.seal.more = recovering, more
		m.ready.Recover = &Recovery{Units: beyond, More: more}
		return
	default:
		m.state = idle
		err = m.settleDoubt(beyond)
	}
	if err != nil {
		m.stop(err)
	}
}
