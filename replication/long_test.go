package replication

import (
	"bytes"
	"encoding/binary"
	"net"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// In whatever pieces a long change of a row arrives, the same parts are kept: its short values, and the
// lengths of the others. The message after it is read correctly.
func TestLongMessage(t *testing.T) {
	t.Parallel()
	const most = 16 << 10
	rapid.Check(t, func(t *rapid.T) {
		head := "I\x00\x00\x00\x01N"
		if rapid.Bool().Draw(t, "update") {
			head = "U\x00\x00\x00\x01N"
		}
		lengths := rapid.SliceOfN(rapid.SampledFrom([]int{-1, 0, 1, smallValue, smallValue + 1, most - 40, most + 1}), 1, 8).Draw(t, "lengths")
		lengths[rapid.IntRange(0, len(lengths)-1).Draw(t, "long")] = 2 * most
		sent := binary.BigEndian.AppendUint16([]byte(head), uint16(len(lengths)))
		kept := bytes.Clone(sent)
		for _, n := range lengths {
			if n < 0 {
				sent, kept = append(sent, 'n'), append(kept, 'n')
				continue
			}
			value := binary.BigEndian.AppendUint32([]byte{'t'}, uint32(n))
			value = append(value, strings.Repeat("x", n)...)
			sent = append(sent, value...)
			if n <= smallValue || xlogHeader+len(kept)+n <= most {
				kept = append(kept, value...)
			} else {
				kept = binary.BigEndian.AppendUint32(append(kept, LongText), uint32(n))
			}
		}
		change := NewChange(len(sent), most)
		for rest := sent; len(rest) > 0; {
			n := min(rapid.IntRange(1, most).Draw(t, "part"), len(rest))
			got, ok, err := change.Add(rest[:n])
			if rest = rest[n:]; err != nil || ok != (len(rest) == 0) || ok && string(got) != string(kept) {
				t.Fatalf("in pieces: %d bytes, not %d, %v, %d bytes before its end, %v", len(got), len(kept), ok, len(rest), err)
			}
		}
		stream := append(walData(7, sent), walData(8, []byte("next"))...)
		ours, theirs := net.Pipe()
		defer ours.Close()
		piece := rapid.SampledFrom([]int{1 << 20, 4096, 1021}).Draw(t, "piece")
		go func() {
			defer theirs.Close()
			for len(stream) > 0 {
				n := min(piece, len(stream))
				if _, err := theirs.Write(stream[:n]); err != nil {
					return
				}
				stream = stream[n:]
			}
		}()
		f := newFrames(ours, rapid.SampledFrom([]int{64, 4096}).Draw(t, "buffer"), most)
		for _, want := range []string{string(kept), "next"} {
			if got := nextBody(t, f); string(got) != want {
				t.Fatalf("got %d bytes, not %d", len(got), len(want))
			}
		}
	})
}

func nextBody(t *rapid.T, f *frames) []byte {
	for {
		_, body, ok, err := f.next()
		switch {
		case err != nil:
			t.Fatal(err)
		case ok:
			return body[xlogHeader:]
		}
		if err := f.fill(); err != nil {
			t.Fatal(err)
		}
	}
}
