package outbox

import (
	"reflect"
	"slices"
	"testing"
)

func TestSnapshotsAreReadAsPostgreSQLPrintsThem(t *testing.T) {
	for text, want := range map[string]Snapshot{
		"10:20:":         {Xmin: 10, Xmax: 20},
		"10:20:10,14,19": {Xmin: 10, Xmax: 20, InProgress: []uint64{10, 14, 19}},
	} {
		if got, err := ParseSnapshot(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v %v", text, got, err)
		}
	}
	for _, text := range []string{"", "10", "10:20", ":20:", "10::", "10:20:,", "10:20:10,", "10:20:1:2", "-1:20:", "+1:20:", " 10:20:", "10:20:x", "10:99999999999999999999:"} {
		if got, err := ParseSnapshot(text); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

func TestWhatHadEndedInASnapshot(t *testing.T) {
	s := Snapshot{Xmin: 10, Xmax: 20, InProgress: []uint64{10, 14}}
	for xid, want := range map[uint64]bool{9: true, 10: false, 11: true, 14: false, 19: true, 20: false, 21: false} {
		if got := s.Ended(xid); got != want {
			t.Errorf("transaction %d had ended: %v", xid, got)
		}
	}
}

func TestPointersAreTakenApart(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil, "/": {""}, "/a/b": {"a", "b"}, "/a~1b/~0": {"a/b", "~"}, "/~01": {"~1"}, "/~00~11": {"~0/1"},
	} {
		if got, err := ParsePointer(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q %v", text, got, err)
		}
	}
	for _, text := range []string{"a", "/~", "/~2", "/a~", "/~~0", "/~0~", "/\x00", "/\xff"} {
		if got, err := ParsePointer(text); err == nil {
			t.Errorf("%q is read as %q", text, got)
		}
	}
}

func TestScopesAreReadBack(t *testing.T) {
	for kind := ScopeStream; kind <= ScopeRow; kind++ {
		if got, err := ParseScopeKind(kind.String()); err != nil || got != kind {
			t.Errorf("%v: %v %v", kind, got, err)
		}
	}
	for _, text := range []string{"", "rows"} {
		if got, err := ParseScopeKind(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}
