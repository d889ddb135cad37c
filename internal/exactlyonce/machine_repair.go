package exactlyonce

import "slices"

// A coordinator of Kafka 4.3 or 4.4 may give up the end of a transaction in a partition that has no leader
// for a moment, and still report success (KAFKA-20734). In that partition the producer id's next marker
// ends both transactions: the one without its end, and the later one. So before that marker may be an
// abort, a repair writes the missing commit markers:
//
//	sealLast    DescribeTransactions: how did the last transaction end? If it is open, it is aborted
//	            first, as its owner would.
//	sealEpoch   InitProducerId, if it was committed: an epoch of the repair's own. Its transaction timeout
//	            names the producer of the commit, so that the next leader knows it too. In this epoch
//	            nothing is asked for but commits.
//	sealPast    at the start of a leadership: the journal names the partitions with rows of that
//	            transaction. Transactions that the tally knows were proved before they were noted.
//	sealLook    which of these partitions lack its end? Each of them has to answer.
//	sealFix     these partitions are added to a transaction without records
//	sealCommit  EndTxn(commit): its marker stands in for the missing one. Then again from sealLast.
//
// A transaction that is open at another epoch than the committed one was left open by an abort.
type repair struct {
	look  []Partition // partitions that may lack the end of the commit
	past  Producer    // the producer of the commit
	as    Producer    // the current producer; at the start of a leadership, a former leader's
	open  []Partition // partitions that lack the end
	owned bool        // sealEpoch is over: the current epoch is the repair's own
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

// repaired takes the answer to a step before sealInit.
func (m *Machine) repaired(r *Request, a Answer) {
	s := &m.seal
	switch {
	case a.Class == Superseded && m.id != Nobody:
		m.stop(ErrSuperseded)
	case a.Err != nil:
		m.stop(a.Err)
	case s.step == sealCommit, a.Class == Superseded, s.step == sealEpoch && a.Class == Busy:
		m.goTo(sealLast, r.Try+1) // whatever the answer is, sealLast tells more
	case s.step == sealAbort && a.Class == Ended, s.step == sealAbort && a.Class == OK && m.id == Nobody:
		m.goTo(sealLast, 0) // it was committed, never began, or is aborted now
	case s.step == sealLook && a.Class != OK:
		m.looked(r, a)
	case s.step == sealFix && a.Class == Refused: // go on with the others
		if s.open = slices.DeleteFunc(slices.Clone(s.open), func(p Partition) bool { return slices.Contains(a.Refused, p) }); len(s.open) == 0 {
			s.step = sealLook
		}
		m.askStep(r.Try + 1)
	case a.Class != OK:
		m.askStep(r.Try + 1)
	case s.step == sealLast:
		m.knowsLast(r, a)
	case s.step == sealPast && a.Outcome == Undone: // a former leader aborted a transaction between sealLast and sealEpoch
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

// knowsLast goes on according to how the last transaction ended.
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

// knowsPlaces has the partitions of the last transaction looked at. Units of earlier versions name no
// partitions: then all known ones are looked at.
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

// looked takes an answer to sealLook that is not OK: some ends are missing, or some are not known.
func (m *Machine) looked(r *Request, a Answer) {
	if without := slices.Concat(a.Open, a.Unknown); len(without) > 0 {
		m.seal.look = without // all others have their end, and keep it
	}
	if m.seal.open = a.Open; len(a.Open) > 0 {
		m.goTo(sealFix, r.Try+1)
		return
	}
	m.askStep(r.Try + 1)
}
