package exactlyonce

import "slices"

// A seal ends with an epoch under which nothing of earlier ones can happen any more, and
// with all that they committed. It is the one procedure for the begin of a leadership, an
// unknown outcome, partitions not seen before, and keeping the id alive. A leadership begins with
// sealLast (machine_repair.go), which also ends what a former leader left open.
//
//	sealAbort    EndTxn(abort), if a transaction of ours may be open: InitProducerId
//	             would fence ourselves. It must be answered, whatever the answer is.
//	sealInit     a new epoch: all requests of the last one are refused from now on
//	sealAdd      the partitions, and the journal, in a transaction without records
//	sealEnd      EndTxn(abort): its marker raises the epoch in each partition, so that
//	             delayed batches of older ones are refused there
//	sealConfirm  InitProducerId: another answer than 51 says that no marker is waited for,
//	             and from now on requests of the seal, repeated or delayed, are refused. A
//	             try without an answer may come late, be taken for a repeated one, and have
//	             the coordinator forget how a transaction ended: so ask once more after it.
//	sealProve    the marker is there: a coordinator may have given it up (KAFKA-20734).
//	             A partition without it is not sound, and gets no record.
//	sealRead     the journal, up to our own marker
//
// Until the last step nothing but the epoch has changed, so each step is repeated until
// it is answered. The abort must not end what was committed, in a partition where a commit's
// marker was given up. So, where a commit may have come before, machine_repair.go comes first.
type seal struct {
	step    step
	leads   bool // the begin of a leadership
	targets []Partition
	marker  Producer // of the abort marker
	more    bool     // the journal was not read to the end
	silent  bool     // a try of sealConfirm had no answer
	repair
}

type step uint8

const (
	sealAbort step = iota
	sealLast
	sealEpoch
	sealPast
	sealLook
	sealFix
	sealCommit
	sealInit
	sealAdd
	sealEnd
	sealConfirm
	sealProve
	sealRead
)

func (m *Machine) beginSeal(from step, targets []Partition) {
	m.state = sealing
	ofRows := slices.DeleteFunc(slices.Clone(targets), func(p Partition) bool { return p == m.cfg.Journal })
	targets = append([]Partition{m.cfg.Journal}, ofRows...)
	m.seal = seal{step: from, targets: targets, repair: repair{look: slices.Clone(targets), as: m.id}}
	for _, p := range targets {
		delete(m.sound, p)
		delete(m.lacking, p)
	}
	m.askStep(m.doubts)
}

func (m *Machine) askStep(try int) {
	r := &Request{Try: try, As: m.id}
	switch m.seal.step {
	case sealAbort:
		r.Kind, r.As = Abort, m.seal.as
	case sealEnd:
		r.Kind = Abort
	case sealInit, sealConfirm:
		r.Kind, r.Of = Init, Nobody
	case sealAdd:
		r.Kind, r.Partitions = Add, m.seal.targets
	case sealProve:
		r.Kind, r.Partitions, r.Of, r.Marker = Ends, m.seal.targets, m.seal.marker, true
	case sealRead:
		r.Kind, r.From, r.Until = Read, m.last.Offset, m.seal.marker
		if m.seal.leads { // else it can only be our last transaction
			r.Most = m.cfg.PageBytes
		}
	default:
		m.askRepair(r)
	}
	m.ask(r)
}

// goTo goes on with another step.
func (m *Machine) goTo(next step, try int) {
	m.seal.step = next
	m.askStep(try)
}

// sealed takes the answer to a step.
func (m *Machine) sealed(r *Request, a Answer) {
	switch {
	case m.seal.step < sealInit:
		m.repaired(r, a)
	case a.Class == Superseded:
		m.stop(ErrSuperseded)
	case a.Err != nil:
		m.stop(a.Err)
	case m.seal.step == sealInit && a.Class == Busy && m.seal.leads:
		m.goTo(sealLast, r.Try+1) // a transaction was there after all
	case m.seal.step == sealAdd && a.Class == Refused:
		// The coordinator refuses all for one, so those that cannot be added are dropped. They are not
		// sound: before rows go there, another seal tries them again. Without the journal nothing can be done.
		m.drop(a.Refused)
		m.askStep(r.Try + 1)
	case m.seal.step == sealEnd && a.Class == Ended:
		m.goTo(sealInit, r.Try+1) // our transaction is not there: from the beginning
	case m.seal.step == sealProve && a.Class != OK:
		m.unproven(r, a)
	case a.Class != OK:
		m.seal.silent = m.seal.silent || a.Class == Silence && m.seal.step == sealConfirm
		m.askStep(r.Try + 1)
	default:
		m.stepped(a)
	}
}

// drop leaves partitions out of the seal, but never the journal.
func (m *Machine) drop(these []Partition) {
	m.seal.targets = slices.DeleteFunc(slices.Clone(m.seal.targets), func(p Partition) bool {
		return p != m.cfg.Journal && slices.Contains(these, p)
	})
	m.withdraw(func(r *Record) bool { return slices.Contains(these, r.At) })
	for _, p := range these {
		if p != m.cfg.Journal {
			m.lacking[p] = true
		}
	}
}

// unproven asks again for markers. Partitions without them are not sound; the journal cannot be
// left out, since it is read up to its marker.
func (m *Machine) unproven(r *Request, a Answer) {
	switch {
	case r.Try < triesForEnds || len(a.Open)+len(a.Unknown) == 0 || slices.Contains(a.Unknown, m.cfg.Journal):
		m.askStep(r.Try + 1)
	case slices.Contains(a.Open, m.cfg.Journal):
		m.goTo(sealInit, r.Try+1)
	default:
		m.drop(slices.Concat(a.Open, a.Unknown))
		m.stepped(a)
	}
}

// stepped goes on to the next step.
func (m *Machine) stepped(a Answer) {
	switch m.seal.step {
	case sealInit:
		m.adopt(a.Producer)
		m.seal.marker = m.id
	case sealConfirm:
		if m.adopt(a.Producer); m.seal.silent {
			m.seal.silent = false
			m.askStep(0)
			return
		}
	case sealProve:
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
func (m *Machine) adopt(id Producer) { m.id, m.seqs = id, map[Partition]int32{} }

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
