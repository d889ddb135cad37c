package exactlyonce

import (
	"errors"
	"reflect"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

func example() Unit {
	return Unit{Number: 300, Table: "public.outbox", Names: []Name{
		NameOf(&outbox.Row{ID: "1\x002", Topic: "t", Key: []byte("k")}),
		NameInLog(&outbox.Row{Topic: "t"}),
	}}
}

func TestUnitsComeBack(t *testing.T) {
	for _, u := range []Unit{example(), {Number: 1, Names: []Name{}}, {Number: 1<<64 - 1, Names: []Name{{}}}, {Number: 1, Table: "t", UpTo: 1 << 63, Places: []Partition{{"t", 0}, {"", 1<<31 - 1}}, Names: []Name{{}}}} {
		got, err := ParseUnit(u.Append(nil))
		if err != nil || !reflect.DeepEqual(got, u) {
			t.Errorf("%+v became %+v, %v", u, got, err)
		}
	}
}

func TestRecordsThatAreNoUnits(t *testing.T) {
	u := example()
	whole := u.Append(nil)
	for n := range whole {
		if _, err := ParseUnit(whole[:n]); err == nil {
			t.Errorf("the first %d bytes are a unit", n)
		}
	}
	if _, err := ParseUnit(append(whole, 0)); !errors.Is(err, errLonger) {
		t.Error(err)
	}
	whole[0] = 4
	if _, err := ParseUnit(whole); !errors.Is(err, errVersion) {
		t.Error(err)
	}
	if _, err := ParseUnit([]byte{1, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x7f}); !errors.Is(err, errShort) {
		t.Error("memory for names that are not there:", err)
	}
	if _, err := ParseUnit([]byte{3, 1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x7f}); !errors.Is(err, errShort) {
		t.Error("memory for partitions that are not there:", err)
	}
	if _, err := ParseUnit([]byte{3, 1, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x7f, 0}); !errors.Is(err, errPlace) {
		t.Error("a partition of any number:", err)
	}
	for _, old := range [][]byte{{1, 7, 1, 't', 0}, {2, 7, 1, 't', 9, 0}} { // encodings of earlier versions
		if u, err := ParseUnit(old); err != nil || u.Number != 7 || u.Table != "t" || len(u.Places)+len(u.Names) > 0 {
			t.Errorf("%+v, %v", u, err)
		}
	}
}

func TestNamesTellRecordsApart(t *testing.T) {
	row := outbox.Row{ID: "1", Topic: "t", Key: []byte("k"), Value: []byte("v"), CreatedAt: 5}
	names := map[Name]string{}
	for what, change := range map[string]func(*outbox.Row){
		"the row itself": func(*outbox.Row) {},
		"id":             func(r *outbox.Row) { r.ID = "2" },
		"topic":          func(r *outbox.Row) { r.Topic = "tk"; r.Key = nil },
		"no key":         func(r *outbox.Row) { r.Key = nil },
		"empty key":      func(r *outbox.Row) { r.Key = []byte{} },
		"tombstone":      func(r *outbox.Row) { r.Value = nil },
		"moved border":   func(r *outbox.Row) { r.Key, r.Value = []byte("kv"), []byte{} },
		"created later":  func(r *outbox.Row) { r.CreatedAt = 6 },
	} {
		other := row
		change(&other)
		if was, twice := names[NameOf(&other)]; twice {
			t.Errorf("%s and %s have one name", what, was)
		}
		names[NameOf(&other)] = what
	}
}

// A row is identified by its place in the WAL; rows of one place by their ids and records, too.
func TestNamesInTheLogTellRowsApart(t *testing.T) {
	row := outbox.Row{ID: "1", Topic: "t", Key: []byte("k"), Value: []byte("v"), Commit: 7, XID: 8, CommitTime: 9}
	names := map[Name]string{}
	for what, change := range map[string]func(*outbox.Row){
		"the row itself": func(*outbox.Row) {},
		"commit":         func(r *outbox.Row) { r.Commit++ },
		"transaction":    func(r *outbox.Row) { r.XID++ },
		"time":           func(r *outbox.Row) { r.CommitTime++ },
		"id":             func(r *outbox.Row) { r.ID = "2" },
		"topic":          func(r *outbox.Row) { r.Topic = "tk"; r.Key = nil },
		"no key":         func(r *outbox.Row) { r.Key = nil },
		"tombstone":      func(r *outbox.Row) { r.Value = nil },
		"moved border":   func(r *outbox.Row) { r.ID, r.Topic = "1t", "" },
		"table":          func(r *outbox.Row) { r.Table = &outbox.Table{Name: "other"} },
	} {
		other := row
		change(&other)
		if was, twice := names[NameInLog(&other)]; twice {
			t.Errorf("%s and %s have one name", what, was)
		}
		names[NameInLog(&other)] = what
	}
}

func TestReaderRefusesRecordsOutsideOfTransactions(t *testing.T) {
	r := NewReader(&Request{Until: Producer{1, 1}})
	if _, err := r.Feed(&LogBatch{By: Producer{1, 0}, Records: [][]byte{{1}}}); !errors.Is(err, ErrForeign) {
		t.Error(err)
	}
	if _, err := r.Feed(&LogBatch{Offset: 5, Transactional: true, Records: [][]byte{{9}}}); !errors.Is(err, errVersion) {
		t.Error(err)
	}
}

// TestReaderFollowsEachProducer checks that the Reader follows a new producer id after the old one expired.
func TestReaderFollowsEachProducer(t *testing.T) {
	unit := func(n uint64) [][]byte { return [][]byte{(&Unit{Number: n}).Append(nil)} }
	r := NewReader(&Request{Until: Producer{2, 1}})
	for i, b := range []LogBatch{
		{By: Producer{1, 0}, Records: unit(1)},
		{By: Producer{2, 0}, Control: AbortMarker},
		{By: Producer{1, 0}, Control: CommitMarker},
		{By: Producer{2, 0}, Records: unit(2)},
		{By: Producer{2, 1}, Control: AbortMarker},
	} {
		b.Offset, b.Transactional = int64(i), true
		done, err := r.Feed(&b)
		if err != nil || done != (i == 4) {
			t.Fatal(i, done, err)
		}
	}
	if u := r.Answer().Units; len(u) != 1 || u[0].Number != 1 || u[0].Offset != 0 || r.Next() != 5 {
		t.Error(u, r.Next())
	}
}

func TestClasses(t *testing.T) {
	for _, c := range []struct {
		kind     Kind
		code     int16
		appended bool
		want     Class
	}{
		{Init, codeNone, false, OK},
		{Init, codeConcurrent, false, Busy},
		{Init, codeNotCoordinator, false, Again},
		{Init, codeTransactionIDForbidden, false, Again},
		{Init, codeFenced, false, Superseded},
		{Init, codeInvalidMapping, false, Superseded},
		{Add, codeUnknownTopic, false, Refused},
		{Add, codeTopicAuthorization, false, Refused},
		{Abort, codeInvalidState, false, Ended},
		{Commit, codeNone, false, OK},
		{Commit, codeNotCoordinator, false, Silence},
		{Produce, codeNone, true, OK},
		{Produce, codeDuplicate, false, OK},
		{Produce, codeTooLarge, true, Silence},
		{Produce, codeTooLarge, false, Refused},
		{Produce, codeTopicAuthorization, false, Forbidden},
		{Produce, codeRequestTimedOut, false, Silence},
		{Produce, codeNotEnoughReplicas, false, Again},
		{Produce, codeInvalidState, false, Again},
		{Produce, codeOutOfOrder, false, Superseded},
	} {
		if got := Classify(c.kind, c.code, c.appended); got != c.want {
			t.Errorf("kind %d, code %d, appended %v: class %d, want %d", c.kind, c.code, c.appended, got, c.want)
		}
	}
}

func FuzzUnit(f *testing.F) {
	u := example()
	f.Add(u.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		u, err := ParseUnit(b)
		if err != nil {
			return
		}
		again, err := ParseUnit(u.Append(nil))
		if err != nil || !reflect.DeepEqual(again, u) {
			t.Fatalf("%+v became %+v, %v", u, again, err)
		}
	})
}

// TestRecoveryInPages checks that a leader gets the units behind the head in parts, each unit once and in
// order, however many there are.
func TestRecoveryInPages(t *testing.T) {
	var journal []LogBatch
	put := func(b LogBatch) {
		if last := len(journal) - 1; last >= 0 {
			b.Offset = journal[last].Offset + int64(max(len(journal[last].Records), 1))
		}
		b.Transactional = true
		journal = append(journal, b)
	}
	old, number := Producer{1, 0}, uint64(0)
	for range 10 { // each transaction has two units
		var units [][]byte
		for range 2 {
			number++
			units = append(units, (&Unit{Number: number, Table: "public.outbox", Names: make([]Name, 3)}).Append(nil))
		}
		put(LogBatch{By: old, Records: units})
		put(LogBatch{By: old, Control: CommitMarker})
	}
	for _, c := range []struct {
		head  Placed
		page  int
		pages int
	}{
		{Placed{}, 1, 11}, {Placed{}, 1 << 20, 1}, {Placed{}, 500, 4}, {Placed{Unit{Number: 20}, 28}, 1, 1}, {Placed{Unit{Number: 3}, 3}, 1, 10},
	} {
		m := New(Config{Journal: Partition{"j", 0}, MaxRows: 1, BatchRows: 1, BatchBytes: func(string) int { return 1 << 20 }, UnitRows: 1, UnitBytes: 1, PageBytes: c.page}, c.head, nil)
		epoch, next, pages := int16(1), c.head.Number+1, 0
		for !m.Idle() {
			out := m.Take()
			if out.Err != nil {
				t.Fatal(out.Err)
			}
			if found := out.Recover; found != nil {
				pages++
				for _, u := range found.Units {
					if u.Number != next {
						t.Fatalf("unit %d, want %d", u.Number, next)
					}
					next++
				}
				if c.page == 1 && len(found.Units) > 2 {
					t.Errorf("%d units at a time", len(found.Units))
				}
				m.Recovered()
				continue
			}
			for _, r := range out.Requests {
				a := Answer{Class: OK}
				switch r.Kind {
				case Init:
					epoch++
					a.Producer = Producer{1, epoch}
				case Read:
					log := append(journal[:len(journal):len(journal)], LogBatch{Offset: 30, By: r.Until, Transactional: true, Control: AbortMarker})
					reader := NewReader(r)
					for i := range log {
						if done, err := reader.Feed(&log[i]); err != nil {
							t.Fatal(err)
						} else if done {
							break
						}
					}
					a = reader.Answer()
				}
				m.Answer(r, a)
			}
		}
		if next != 21 || pages != c.pages {
			t.Errorf("from unit %d, pages of %d bytes: %d pages, up to unit %d", c.head.Number, c.page, pages, next-1)
		}
	}
}
