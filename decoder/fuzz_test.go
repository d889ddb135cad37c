package decoder

import (
	"encoding/binary"
	"errors"
	"path/filepath"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// packed returns a frame for a fuzzer's input, preceded by its length.
func packed(frame []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(frame))), frame...)
}

// unpack splits a fuzzer's input into frames. The remaining bytes are the last frame.
func unpack(data []byte) (frames [][]byte) {
	for len(data) > 2 {
		n := min(int(binary.BigEndian.Uint16(data)), len(data)-2)
		frames = append(frames, data[2:2+n])
		data = data[2+n:]
	}
	return frames
}

// FuzzDecode: no input panics, an error is final and adds no event, and input that is accepted means the same
// to pglogrepl.
func FuzzDecode(f *testing.F) {
	paths, err := filepath.Glob(filepath.Join(recordedDir, "*.frames"))
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		var all []byte
		for _, frame := range readRecording(f, path) {
			all = append(all, packed(frame)...)
		}
		f.Add(all)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tables, leaves := recordedTables(false, true)
		d, b := New(tables), new(Batch)
		d.SetPartitions(leaves)
		var accepted [][]byte
		for _, frame := range unpack(data) {
			before := len(dump(b))
			if err := d.Decode(frame, b); err != nil {
				if again := d.Decode(beginBytes, b); !errors.Is(again, err) || len(dump(b)) != before {
					t.Fatalf("after %v: %v, %q", err, again, dump(b))
				}
				break
			}
			accepted = append(accepted, frame)
		}
		if sameForPglogrepl(accepted) {
			againstModel(t, tables, leaves, accepted)
		}
	})
}

// sameForPglogrepl reports whether pglogrepl accepts all frames. It refuses some valid messages as too short,
// such as those of a table without columns.
func sameForPglogrepl(frames [][]byte) bool {
	for _, frame := range frames {
		if _, err := recovered(pglogrepl.Parse, frame); err != nil {
			return false
		}
	}
	return true
}

// Whatever description of an outbox table arrives, the table is either mapped or broken.
func FuzzRelation(f *testing.F) {
	f.Add(relationMsg(1, "public", "outbox", columns()...))
	f.Fuzz(func(t *testing.T, frame []byte) {
		ours := table("outbox")
		d, b := New([]*outbox.Table{ours}), new(Batch)
		if len(frame) == 0 || frame[0] != msgRelation || d.Decode(frame, b) != nil {
			return
		}
		for e := range b.All() {
			if e.Table != ours || e.Kind != TableMapped && (e.Kind != TableBroken || e.Err.Error() == "") {
				t.Fatal(e)
			}
		}
	})
}
