package exactlyonce

import "slices"

// A seal gives us an epoch under which nothing of earlier epochs can take effect any more, and tells what
// they committed. The same procedure serves the start of a leadership, an unknown outcome, partitions not
// seen before, and keeping the transactional id alive. A leadership begins with sealLast
// (machine_repair.go), which also ends a transaction that a former leader left open.
//
//	sealAbort    EndTxn(abort), if a transaction of ours may be open: otherwise InitProducerId
//	             would fence ourselves. The step needs an answer, whichever it is.
//	sealInit     InitProducerId: a new epoch. All requests of the last one are refused from now on.
//	sealAdd      the partitions and the journal are added to a transaction without records
//	sealEnd      EndTxn(abort): its marker raises the epoch in each partition, so that
//	             delayed batches of older epochs are refused there
//	sealConfirm  InitProducerId: an answer other than 51 says that no marker is outstanding.
//	             From then on requests of the seal, repeated or delayed, are refused. A try
//	             without an answer may arrive late. The coordinator may take it for a repeated
//	             one, and forget how a transaction ended. So the step is asked once more after it.
//	sealProve    is the marker in each partition? A coordinator may have given it up
//	             (KAFKA-20734). A partition without it is not sound, and gets no record.
//	sealRead     the journal is read up to our own marker
//
// Until the last step nothing but the epoch has changed, so each step is repeated until it is answered.
//
// In a partition where the coordinator gave up the marker of a commit, the seal's abort would end the
// committed transaction. So machine_repair.go comes first wherever a commit may have come before.
type seal struct {
	step    step
	leads   bool // the seal begins a leadership
	targets []Partition
	marker  Producer // the producer of the abort marker
	more    bool     // the journal was not read to the end
	silent  bool     // some try of sealConfirm was not answered
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
		if m.seal.leads { // otherwise only our last transaction can be there
			r.Most = m.cfg.PageBytes
		}
	default:
		m.askRepair(r)
	}
	m.ask(r)
}

// goTo asks the request of another step.
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
		m.goTo(sealLast, r.Try+1) // the coordinator has a transaction after all
	case m.seal.step == sealAdd && a.Class == Refused:
		// The coordinator refuses all partitions if it refuses one, so those that cannot be added are
		// dropped. They are not sound: before rows go there, another seal tries them again. The journal is
		// never dropped.
		m.drop(a.Refused)
		m.askStep(r.Try + 1)
	case m.seal.step == sealEnd && a.Class == Ended:
		m.goTo(sealInit, r.Try+1) // our transaction is not there: begin again with a new epoch
	case m.seal.step == sealProve && a.Class != OK:
		m.unproven(r, a)
	case a.Class != OK:
		m.seal.silent = m.seal.silent || a.Class == Silence && m.seal.step == sealConfirm
		m.askStep(r.Try + 1)
	default:
		m.stepped(a)
	}
}

// drop leaves partitions out of the seal, except for the journal, and withdraws their records.
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

// unproven takes an answer that some partitions lack the marker. After some tries it drops them, so they
// are not sound. The journal cannot be dropped, since it is read up to its marker.
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

// stepped takes the result of a step and goes on to the next one.
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

// adopt takes over a new epoch. Its sequence numbers begin at 0.
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
