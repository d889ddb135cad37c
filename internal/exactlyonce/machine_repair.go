package exactlyonce

import "slices"

// A coordinator of Kafka 4.3 or 4.4 gives up the end of a transaction in a partition that nobody
// leads for a moment, and says that all is well (KAFKA-20734). The next marker of the producer id in
// that partition ends both transactions, so before it can be an abort:
//
//	sealLast    how did the last transaction end? What is open is ended first, as its owner would.
//	sealEpoch   if it was committed: an epoch for what follows. Its timeout says whose commit is brought
//	            about, so that the next leader knows it too. In this epoch there is nothing but commits.
//	sealPast    where a leadership begins: the journal says which partitions the transaction has rows in.
//	            What the tally knows was proved before it was noted.
//	sealLook    where is its end missing? Each of them has to answer.
//	sealFix     the partitions, in a transaction without records
//	sealCommit  EndTxn(commit): its marker is the one that was missing. Then from sealLast.
//
// What is open at another epoch than the committed one is what an abort has left.
type repair struct {
	look  []Partition // may lack the end of a commit
	past  Producer    // whose commit that is
	as    Producer    // the current producer; when a leadership begins, another's
	open  []Partition // lack it
	owned bool        // sealEpoch is over
}

func (m *Machine) askRepair(r *Request) {
	s := &m.seal
	switch s.step {
	case sealLast:
		r.Kind = Last
	case sealPast:
		r.Kind, r.From, r.Until, r.Of = Read, m.last.Offset, Nobody, s.past
	case sealLook:
		r.Kind, r.Partitions, r.Of = Ends, s.look, s.past
	case sealEpoch:
		r.Kind, r.Of = Init, s.past
	case sealFix:
		r.Kind, r.Partitions = Add, s.open
	case sealCommit:
		r.Kind, r.As = Commit, s.as
	}
}

// repaired takes the answer to a step up to sealCommit.
func (m *Machine) repaired(r *Request, a Answer) {
	s := &m.seal
	switch {
	case a.Class == Superseded && m.id != Nobody:
		m.stop(ErrSuperseded)
	case a.Err != nil:
		m.stop(a.Err)
	case s.step == sealCommit, a.Class == Superseded, s.step == sealEpoch && a.Class == Busy:
		m.goTo(sealLast, r.Try+1) // whatever the answer is
	case s.step == sealAbort && a.Class == Ended, s.step == sealAbort && a.Class == OK && m.id == Nobody:
		m.goTo(sealLast, 0) // it was committed, or never began
	case s.step == sealLook && a.Class != OK:
		m.looked(r, a)
	case s.step == sealFix && a.Class == Refused: // the others first
		if s.open = slices.DeleteFunc(slices.Clone(s.open), func(p Partition) bool { return slices.Contains(a.Refused, p) }); len(s.open) == 0 {
			s.step = sealLook
		}
		m.askStep(r.Try + 1)
	case a.Class != OK:
		m.askStep(r.Try + 1)
	case s.step == sealLast:
		m.knowsLast(r, a)
	case s.step == sealPast && a.Outcome == Undone: // by who led before, between the first two steps
		m.goTo(sealInit, 0)
	case s.step == sealPast:
		m.knowsPlaces(a.Units)
	case s.step == sealEpoch:
		m.adopt(a.Producer)
		s.owned, s.as = true, m.id
		if s.leads {
			m.goTo(sealPast, 0)
			return
		}
		m.goTo(sealLook, 0)
	case s.step == sealFix:
		m.goTo(sealCommit, 0)
	default: // sealAbort, sealLook
		m.goTo(sealInit, 0)
	}
}

// knowsLast goes on with what became of the last transaction.
func (m *Machine) knowsLast(r *Request, a Answer) {
	s := &m.seal
	if m.id != Nobody && a.Producer != m.id {
		m.stop(ErrSuperseded)
		return
	}
	switch s.as = a.Producer; a.Outcome {
	case Running:
		m.goTo(sealAbort, r.Try)
	case Repairing:
		s.past = a.Of
		m.goTo(sealCommit, r.Try)
	case Committed:
		s.past = a.Of
		if s.owned {
			m.goTo(sealLook, r.Try)
			return
		}
		m.goTo(sealEpoch, 0)
	default:
		m.goTo(sealInit, 0)
	}
}

// knowsPlaces has the partitions of the last transaction looked at. Units of earlier versions name none:
// then it may be any.
func (m *Machine) knowsPlaces(units []Placed) {
	known := m.seal.targets
	m.seal.look = []Partition{m.cfg.Journal}
	for _, u := range units {
		if u.Number <= m.last.Number {
			continue
		}
		places := u.Places
		if len(places) == 0 {
			places = known
		}
		for _, p := range places {
			if !slices.Contains(m.seal.look, p) {
				m.seal.look = append(m.seal.look, p)
			}
		}
	}
	m.goTo(sealLook, 0)
}

// looked: ends are missing, or it is not known whether they are.
func (m *Machine) looked(r *Request, a Answer) {
	if without := slices.Concat(a.Open, a.Unknown); len(without) > 0 {
		m.seal.look = without // the others have theirs for good
	}
	if m.seal.open = a.Open; len(a.Open) > 0 {
		m.goTo(sealFix, r.Try+1)
		return
	}
	m.askStep(r.Try + 1)
}
