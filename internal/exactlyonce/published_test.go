package exactlyonce

import (
	"fmt"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

func inLog(commit outbox.LSN, id string) *outbox.Row {
	return &outbox.Row{ID: id, Topic: "t", Commit: commit, XID: uint32(commit), CommitTime: int64(commit)}
}

// Rows of one transaction can be alike: as many of them are skipped as were published.
func TestEachNameStandsForOneRow(t *testing.T) {
	var p Published
	twice, once := NameInLog(inLog(7, "a")), NameInLog(inLog(7, "b"))
	p.Add(&Unit{Names: []Name{twice, once}})
	p.Add(&Unit{Names: []Name{twice}})
	p.Settled = 5
	got := ""
	for _, r := range []*outbox.Row{
		inLog(4, "a"), inLog(5, "a"), inLog(6, "a"), inLog(7, "a"), inLog(7, "a"), inLog(7, "a"), inLog(7, "c"), inLog(7, "b"), inLog(7, "b"), inLog(5, "b"),
	} {
		got += fmt.Sprintf("%v:%s ", p.Take(r), r.ID)
	}
	if want := "true:a true:a false:a true:a true:a false:a false:c true:b false:b true:b "; got != want {
		t.Errorf("published: %s, want %s", got, want)
	}
}

// The head passes a unit when all of its rows are settled, and those of every unit before.
func TestUnitsArePassedInOrder(t *testing.T) {
	var p Positions
	want := func(settled outbox.LSN, number uint64, rows int) {
		t.Helper()
		if last := p.Passed(settled); last.Number != number || number > 0 && last.Offset != int64(number)*10 || p.Rows() != rows {
			t.Errorf("settled up to %d: unit %d at %d, %d rows; want %d, %d", settled, last.Number, last.Offset, p.Rows(), number, rows)
		}
	}
	add := func(number uint64, upTo outbox.LSN, rows int) { p.Add(number, int64(number)*10, upTo, rows) }
	want(100, 0, 0)
	add(1, 20, 1)
	add(2, 50, 2)
	add(3, 30, 4) // it has to wait for unit 2
	add(4, 60, 8)
	want(19, 0, 15)
	want(20, 1, 15)
	want(49, 1, 15)
	want(50, 3, 15)
	want(60, 4, 15)
	p.Noted(1)
	want(20, 0, 14)
	want(50, 3, 14)
	add(5, 60, 16)
	p.Noted(4) // unit 5 came while that was written
	want(60, 5, 24)
	p.Noted(5)
	if want(60, 0, 0); !p.Empty() {
		t.Error("a unit is left")
	}

	// A unit of a server that is gone may name rows behind the end of this server's WAL.
	add(6, 30, 0)
	add(7, 900, 0)
	if last := p.Before(100); last != 99 {
		t.Errorf("the last row commits at or before %d", last)
	}
	add(8, 100, 1)
	want(98, 6, 1)
	want(99, 7, 1)
	want(100, 8, 1)
}

// TestUnitsSayUpToWhichCommit checks UpTo, from which the next leader knows when the head may pass a unit.
func TestUnitsSayUpToWhichCommit(t *testing.T) {
	s := newStage(t)
	s.stateless = true
	s.running()
	for range 3 {
		s.insert("a", 0, true)
	}
	s.rest()
	var upTo outbox.LSN
	for _, e := range s.kafka.log(journalAt).entries {
		for i := range e.units {
			u, err := ParseUnit(e.units[i].Append(nil))
			if err != nil || u.UpTo < outbox.LSN(len(u.Names)) || u.UpTo < upTo {
				t.Errorf("%+v, %v", u, err)
			}
			upTo = u.UpTo
		}
	}
	s.expect(upTo == 3, "the last unit does not say up to which commit its rows are")
	s.end()
}
