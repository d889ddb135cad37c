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
		NameInLog(1, 2, 3, 4, &outbox.Row{Topic: "t"}),
	}}
}

func TestUnitsComeBack(t *testing.T) {
	for _, u := range []Unit{example(), {Number: 1, Names: []Name{}}, {Number: 1<<64 - 1, Names: []Name{{}}}} {
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
	whole[0] = 2
	if _, err := ParseUnit(whole); !errors.Is(err, errVersion) {
		t.Error(err)
	}
	if _, err := ParseUnit([]byte{1, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x7f}); !errors.Is(err, errShort) {
		t.Error("memory for names that are not there:", err)
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

func TestReaderRefusesRecordsOutsideOfTransactions(t *testing.T) {
	r := NewReader(0, Identity{1, 1})
	if _, err := r.Feed(&LogBatch{By: Identity{1, 0}, Records: [][]byte{{1}}}); !errors.Is(err, ErrForeign) {
		t.Error(err)
	}
	if _, err := r.Feed(&LogBatch{Offset: 5, Transactional: true, Records: [][]byte{{9}}}); !errors.Is(err, errVersion) {
		t.Error(err)
	}
}

// TestReaderFollowsEachProducer: after the id expired, the next one is another.
func TestReaderFollowsEachProducer(t *testing.T) {
	unit := func(n uint64) [][]byte { return [][]byte{(&Unit{Number: n}).Append(nil)} }
	r := NewReader(0, Identity{2, 1})
	for i, b := range []LogBatch{
		{By: Identity{1, 0}, Records: unit(1)},
		{By: Identity{2, 0}, Control: AbortMarker},
		{By: Identity{1, 0}, Control: CommitMarker},
		{By: Identity{2, 0}, Records: unit(2)},
		{By: Identity{2, 1}, Control: AbortMarker},
	} {
		b.Offset, b.Transactional = int64(i), true
		done, err := r.Feed(&b)
		if err != nil || done != (i == 4) {
			t.Fatal(i, done, err)
		}
	}
	if u := r.Units(); len(u) != 1 || u[0].Number != 1 || u[0].Offset != 0 || r.Next() != 5 {
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
