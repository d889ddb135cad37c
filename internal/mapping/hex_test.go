package mapping

import (
	"bytes"
	"encoding/hex"
	"testing"

	"pgregory.net/rapid"
)

func TestDecodeHexAgreesWithTheStandardLibrary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		digits := []byte(hex.EncodeToString(want))
		if rapid.Bool().Draw(t, "upper case") {
			digits = bytes.ToUpper(digits)
		}
		got := make([]byte, len(want))
		if !decodeHex(got, digits) || !bytes.Equal(got, want) {
			t.Fatalf("%s became %x", digits, got)
		}
	})
}

// Every byte at every place of a word and of what is left after the words.
func TestDecodeHexRefusesEveryOtherByte(t *testing.T) {
	t.Parallel()
	const bytesOut = 8 + 3
	for at := range 2 * bytesOut {
		for c := range 256 {
			digits := bytes.Repeat([]byte("7"), 2*bytesOut)
			digits[at] = byte(c)
			_, err := hex.DecodeString(string(digits))
			if ok := decodeHex(make([]byte, bytesOut), digits); ok != (err == nil) {
				t.Fatalf("%q: %v", digits, ok)
			}
		}
	}
}

func TestUUIDs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid")
		text := appendUUID(nil, want)
		got := make([]byte, 16)
		if !parseUUID(got, text) || !bytes.Equal(got, want) {
			t.Fatalf("%s became %x", text, got)
		}
		at := rapid.IntRange(0, 35).Draw(t, "at")
		text[at] = 'g'
		if parseUUID(got, text) || parseUUID(got, text[:35]) {
			t.Fatalf("%s is no uuid", text)
		}
	})
}

func BenchmarkDecodeHex(b *testing.B) {
	digits := bytes.Repeat([]byte("5a"), 256)
	out := make([]byte, 256)
	b.SetBytes(256)
	for b.Loop() {
		decodeHex(out, digits)
	}
}
