package decoder

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"pgregory.net/rapid"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// session draws the messages of one connection. All of them are valid.
type session struct {
	t         *rapid.T
	frames    [][]byte
	relations map[uint32]described
	commit    uint64
}

type described struct {
	name    string
	columns int
}

func (s *session) add(frame []byte) { s.frames = append(s.frames, frame) }

var (
	names  = []string{"outbox", "second", "leaf", "other"}
	oids   = []uint32{oidText, oidBytea, oidInt8, oidJSONB, oidUUID, 1184, 16500, 1700}
	states = []string{"PENDING", "SENT", ""}
)

func (s *session) value(label string) mapping.Value {
	switch rapid.IntRange(0, 5).Draw(s.t, label) {
	case 0:
		return null()
	case 1:
		return mapping.Value{Format: mapping.Unchanged}
	case 2:
		return mapping.Value{Format: mapping.Binary, Data: rapid.SliceOf(rapid.Byte()).Draw(s.t, "binary")}
	case 3:
		return text(`\x` + strings.Repeat("0f", rapid.IntRange(0, 9).Draw(s.t, "bytes")))
	case 4:
		return text(rapid.SampledFrom(states).Draw(s.t, "state"))
	}
	return text(rapid.String().Draw(s.t, "text"))
}

func (s *session) tuple(columns int) []mapping.Value {
	tuple := make([]mapping.Value, columns)
	for i := range tuple {
		tuple[i] = s.value("value")
	}
	return tuple
}

func (s *session) relation() {
	cols := columns()
	if rapid.IntRange(0, 2).Draw(s.t, "another type") == 0 {
		cols[rapid.IntRange(0, len(cols)-1).Draw(s.t, "which")].OID = rapid.SampledFrom(oids).Draw(s.t, "oid")
	}
	if rapid.IntRange(0, 3).Draw(s.t, "missing") == 0 {
		cols = cols[:rapid.IntRange(1, len(cols)).Draw(s.t, "columns")]
	}
	cols = rapid.Permutation(cols).Draw(s.t, "order")
	id := rapid.Uint32Range(1, 4).Draw(s.t, "id")
	name := rapid.SampledFrom(names).Draw(s.t, "name")
	s.add(relationMsg(id, "public", name, cols...))
	// PostgreSQL describes what had the name before it uses it again.
	maps.DeleteFunc(s.relations, func(_ uint32, r described) bool { return r.name == name })
	s.relations[id] = described{name, len(cols)}
}

func (s *session) change() {
	if len(s.relations) == 0 {
		return
	}
	ids := slices.Sorted(maps.Keys(s.relations))
	id := rapid.SampledFrom(ids).Draw(s.t, "relation")
	n := s.relations[id].columns
	switch rapid.IntRange(0, 9).Draw(s.t, "change") {
	case 0:
		s.add(updateMsg(id, rapid.SampledFrom([]byte{0, 'K', 'O'}).Draw(s.t, "old"), s.tuple(n), s.tuple(n)))
	case 1:
		s.add(deleteMsg(id, rapid.SampledFrom([]byte{'K', 'O'}).Draw(s.t, "old"), s.tuple(n)...))
	case 2:
		s.add(truncateMsg(ids...))
	default:
		s.add(insertMsg(id, s.tuple(n)...))
	}
}

func (s *session) transaction() {
	s.commit += 0x100
	s.add(beginMsg(rapid.Uint32().Draw(s.t, "xid"), s.commit))
	for range rapid.IntRange(0, 6).Draw(s.t, "messages") {
		switch rapid.IntRange(0, 7).Draw(s.t, "message") {
		case 0:
			s.relation()
		case 1:
			s.add(originMsg("origin"))
		case 2:
			s.add(logicalMsg("prefix", "content"))
		case 3:
			s.add(typeMsg(16500, rapid.SampledFrom([]string{"", "public"}).Draw(s.t, "schema"), rapid.SampledFrom([]string{"bytea", "text", "state"}).Draw(s.t, "type")))
		default:
			s.change()
		}
	}
	s.add(commitMsg(s.commit, s.commit+0x30))
}

// againstModel decodes frames in both ways and compares.
func againstModel(t interface {
	Helper()
	Fatalf(string, ...any)
}, tables []*outbox.Table, leaves map[string]*outbox.Table, frames [][]byte,
) (b *Batch, read [][]byte) {
	t.Helper()
	all := map[string]*outbox.Table{}
	for _, table := range tables {
		all[table.String()] = table
	}
	for leaf, table := range leaves {
		all[leaf] = table
	}
	d, m := New(tables), newModel(all)
	b = new(Batch)
	d.SetPartitions(leaves)
	for i, f := range frames {
		v1, err := recovered(pglogrepl.Parse, f)
		if err != nil {
			t.Fatalf("frame %d: pglogrepl: %v", i, err)
		}
		v2, err := recovered(func(f []byte) (pglogrepl.Message, error) { return pglogrepl.ParseV2(f, false) }, f)
		if err != nil || fmt.Sprintf("%T", v2) != fmt.Sprintf("%TV2", v1) && fmt.Sprintf("%T", v2) != fmt.Sprintf("%T", v1) {
			t.Fatalf("frame %d: pglogrepl, protocol 2: %T, %v", i, v2, err)
		}
		err = d.Decode(f, b)
		m.take(v1)
		var unreadable *Error
		if errors.As(err, &unreadable) && unreadable.NeedsText && m.needsText {
			frames = frames[:i]
			break
		}
		if err != nil || m.needsText {
			t.Fatalf("frame %d: needs text %v, %v", i, m.needsText, err)
		}
	}
	if got := dump(b); !reflect.DeepEqual(got, m.out) {
		t.Fatalf("got  %s\nwant %s", strings.Join(got, "\n     "), strings.Join(m.out, "\n     "))
	}
	return b, frames
}

// recovered calls pglogrepl, which panics on some bad input.
func recovered(with func([]byte) (pglogrepl.Message, error), f []byte) (m pglogrepl.Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return with(f)
}

func TestAgreesWithPglogrepl(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := session{t: t, relations: map[uint32]described{}}
		for range rapid.IntRange(1, 6).Draw(t, "transactions") {
			s.transaction()
		}
		ours, second := table("outbox"), table("second")
		b, read := againstModel(t, []*outbox.Table{ours, second}, map[string]*outbox.Table{"public.leaf": ours}, s.frames)
		accounted(t, b, read)
	})
}

// accounted: every change is a row, passed or ignored.
func accounted(t *rapid.T, b *Batch, frames [][]byte) {
	changes := 0
	for _, f := range frames {
		switch f[0] {
		case msgInsert, msgUpdate, msgDelete, msgTruncate, msgMessage:
			changes++
		}
	}
	n := b.Ignored.Inserts + b.Ignored.Updates + b.Ignored.Deletes + b.Ignored.Truncates + b.Ignored.Messages
	for e := range b.All() {
		n += len(e.Rows) + e.Count
	}
	if n != changes {
		t.Fatalf("%d of %d changes accounted for", n, changes)
	}
}
