package exactlyonce

import (
	"encoding/hex"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

func mappedBy(change func(*outbox.Mapping)) *outbox.Table {
	t := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID: []string{"id"}, CreatedAt: "created_at",
		Topic:   outbox.Template{Literals: []string{"outbox.event.", ""}, Columns: []outbox.Expr{{Column: "aggregatetype", Encoding: outbox.EncodingText}}},
		Key:     &outbox.Expr{Column: "aggregateid", Encoding: outbox.EncodingText},
		Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "payload", Encoding: outbox.EncodingText}},
	}}
	if change != nil {
		change(&t.Mapping)
	}
	return t
}

// TestMappingStaysTheSame fixes the fingerprint: if a later program computed another one, a stream that was
// killed before the upgrade could not start. If that program makes other records of a row, mappingVersion
// has to be raised, and this test changed.
func TestMappingStaysTheSame(t *testing.T) {
	for want, change := range map[string]func(*outbox.Mapping){
		"08656e1e": nil,
		"dc442a0d": func(m *outbox.Mapping) {
			m.Topic = outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{{
				Column: "kind", Pointer: []string{"a", "0"}, Or: []outbox.Expr{{Column: "other"}}, Base64: true,
				Map: &outbox.ValueMap{Exact: map[string]string{"b": "2", "a": "1"}, Beginnings: []outbox.Beginning{{With: "c", Text: "3"}}, Otherwise: "4", Leave: true},
			}}}
			m.Key = &outbox.Expr{Column: "a", Parts: &outbox.Template{Literals: []string{"", "-", ""}, Columns: []outbox.Expr{{Column: "a"}, {Column: "b", Encoding: outbox.EncodingUUID}}}}
			m.Payload = outbox.PayloadMapping{Tombstone: true, EmptyTombstone: true, Object: []outbox.Member{{Name: "n", Column: "c", Form: outbox.MemberJSON, OmitNull: true}, {Name: "v", Value: "x"}}}
		},
	} {
		of := MappingOf(mappedBy(change))
		if got := hex.EncodeToString(of[:]); got != want {
			t.Errorf("%s, was %s", got, want)
		}
	}
}

func TestMappingsAreToldApart(t *testing.T) {
	same, seen := MappingOf(mappedBy(nil)), map[Mapping]string{}
	for what, change := range map[string]func(*outbox.Mapping){
		"headers": func(m *outbox.Mapping) { m.Headers = []outbox.HeaderMapping{{Name: "a", Column: "b"}} },
		"status":  func(m *outbox.Mapping) { m.Published = outbox.PublishedDelete },
		"not set": func(m *outbox.Mapping) {
			m.Key.Pointer, m.Key.Or, m.Payload.Object = []string{}, []outbox.Expr{}, []outbox.Member{}
		},
		"the ids":  func(m *outbox.Mapping) { m.ID = []string{"other"} },
		"ordering": func(m *outbox.Mapping) { m.Order = []string{"id"} },
	} {
		if MappingOf(mappedBy(change)) != same {
			t.Errorf("%s: another name of the same record", what)
		}
	}
	for what, change := range map[string]func(*outbox.Mapping){
		"nothing":         nil,
		"topic's literal": func(m *outbox.Mapping) { m.Topic.Literals = []string{"", "outbox.event."} },
		"topic's column":  func(m *outbox.Mapping) { m.Topic.Columns[0].Column = "kind" },
		"no key":          func(m *outbox.Mapping) { m.Key = nil },
		"key's encoding":  func(m *outbox.Mapping) { m.Key.Encoding = outbox.EncodingUUID },
		"key's pointer":   func(m *outbox.Mapping) { m.Key.Pointer = []string{"a", "b"} },
		"one part":        func(m *outbox.Mapping) { m.Key.Pointer = []string{"a/b"} },
		"payload":         func(m *outbox.Mapping) { m.Payload.Column = "body" },
		"tombstones":      func(m *outbox.Mapping) { m.Payload.Tombstone = true },
		"an object": func(m *outbox.Mapping) {
			m.Payload.Object = []outbox.Member{{Name: "a", Column: "b", Form: outbox.MemberString}}
		},
		"its form": func(m *outbox.Mapping) {
			m.Payload.Object = []outbox.Member{{Name: "a", Column: "b", Form: outbox.MemberJSON}}
		},
		"created_at":      func(m *outbox.Mapping) { m.CreatedAt = "" },
		"no state":        func(m *outbox.Mapping) { m.Published = outbox.PublishedNone },
		"no state, by id": func(m *outbox.Mapping) { m.Published, m.ID = outbox.PublishedNone, []string{"other"} },
	} {
		of := MappingOf(mappedBy(change))
		if other, twice := seen[of]; twice {
			t.Errorf("%s and %s have one fingerprint", what, other)
		}
		seen[of] = what
	}
}

// TestRemappedRowsAreFound checks everything that is still to be marked: units and rows left.
func TestRemappedRowsAreFound(t *testing.T) {
	before := mappedBy(func(m *outbox.Mapping) { m.Key = nil })
	now := mappedBy(nil)
	unit := func(tables ...*outbox.Table) (u Placed) {
		u.Table = now.String()
		for _, t := range tables {
			u.Names = append(u.Names, NameOf(&outbox.Row{Table: t, ID: "1"}))
		}
		return u
	}
	left := func(of *outbox.Table) []Left {
		return []Left{{Table: of.String(), Name: NameOf(&outbox.Row{Table: of, ID: "1"})}}
	}
	other := mappedBy(nil)
	other.Name = "other"
	for what, c := range map[string]struct {
		missing []Placed
		left    []Left
		tables  []*outbox.Table
		want    string
	}{
		"nothing":               {nil, nil, []*outbox.Table{now}, ""},
		"the same":              {[]Placed{unit(now), unit(now, now)}, left(now), []*outbox.Table{now}, ""},
		"published before":      {[]Placed{unit(now), unit(now, before)}, nil, []*outbox.Table{now}, "public.outbox"},
		"left before":           {[]Placed{unit(now)}, left(before), []*outbox.Table{now}, "public.outbox"},
		"nobody's table":        {[]Placed{unit(before)}, left(before), []*outbox.Table{other}, ""},
		"one of several tables": {[]Placed{unit(before)}, nil, []*outbox.Table{other, now}, "public.outbox"},
	} {
		if got := Remapped(c.missing, c.left, c.tables); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
		want := ""
		if what == "nobody's table" {
			want = "public.outbox"
		}
		for _, got := range []string{Unknown(c.missing, c.left, c.tables), Unknown(nil, c.left, c.tables)} {
			if got != want {
				t.Errorf("%s: %q is not the stream's", what, got)
			}
		}
	}
}
