package mapping

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseTimestamp(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		want int64
	}{
		{"1970-01-01 00:00:00+00", 0},
		{"1970-01-01 00:00:00", 0},
		{"2026-01-02 03:04:05.678901+00", 1767323045678901},
		{"2026-01-02 03:04:05.6+00", 1767323045600000},
		{"2026-01-02 03:04:05+05:30", 1767303245000000},
		{"2026-01-02 03:04:05-03", 1767333845000000},
		{"1890-01-01 00:00:00+00:19:32", -2524522772000000},
		{"1969-12-31 23:59:59.999999+00", -1},
		{"2024-02-29 00:00:00+00", 1709164800000000},
		{"2000-02-29 00:00:00+00", 951782400000000},
		{"0001-01-01 00:00:00+00", -62135596800000000},
		{"0001-12-31 00:00:00+00 BC", -62135683200000000},
		{"4714-11-24 00:00:00+00 BC", -210866803200000000},
		{"12026-01-02 03:04:05+00", 317336843045000000},
		{"infinity", math.MaxInt64},
		{"-infinity", math.MinInt64},
		{"294276-12-31 23:59:59.999999+00", math.MaxInt64},
		{"999999-12-31 23:59:59.999999+00", math.MaxInt64},
	}
	for _, test := range tests {
		if got, ok := parseTimestamp([]byte(test.text)); !ok || got != test.want {
			t.Errorf("%s: %d, %v, want %d", test.text, got, ok, test.want)
		}
	}
}

func TestParseTimestampRefusesTheRest(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "now", "Infinity", "2026-01-02", "2026-01-02 03:04", "2026-01-02T03:04:05+00", "02.01.2026 03:04:05", "Fri Jan 02 03:04:05 2026 UTC",
		"2026-13-02 03:04:05+00", "2026-00-02 03:04:05+00", "2026-02-29 03:04:05+00", "2100-02-29 00:00:00+00", "2026-04-31 03:04:05+00",
		"2026-01-00 03:04:05+00", "2026-01-02 24:00:00+00", "2026-01-02 03:60:00+00", "2026-01-02 03:04:60+00", "2026-01-02 03:04:05.+00",
		"2026-01-02 03:04:05.1234567+00", "2026-01-02 03:04:05 UTC", "2026-01-02 03:04:05+0", "2026-01-02 03:04:05+00 AD",
		"2026-01-02 03:04:05+00:00:00:00", "2026-01-02 03:04:05+16", "-2026-01-02 03:04:05+00", "226-01-02 03:04:05+00", "1234567-01-02 03:04:05+00",
		"9999-01-01 00:00:00+00 BC", "2026-01-02 03:04:05+00\x00", "2026-01-0: 03:04:05+00", "2026-01-1/ 03:04:05+00", "2026-01-0203:04:05+00",
		"2026-01-02 03:04:05+", "2026-01-02 03:04:05.0000001+00", "0002026-01-02 03:04:05+00",
	} {
		if got, ok := parseTimestamp([]byte(text)); ok {
			t.Errorf("%q was read as %d", text, got)
		}
	}
}

// The text that is printed from the binary form reads as the same time as the binary form, and agrees with
// package time.
func TestTimestampTextAndBinaryAgree(t *testing.T) {
	t.Parallel()
	const first, last = -211813488000000000, 9223371331199999999 // of PostgreSQL: 4714-11-24 BC to 294276
	rapid.Check(t, func(t *rapid.T) {
		since2000 := rapid.Int64Range(first, last).Draw(t, "microseconds since 2000")
		offset := rapid.Bool().Draw(t, "timestamptz")
		text := appendTimestamp(nil, since2000, offset)
		got, ok := parseTimestamp(text)
		if want := fromBinary(binary.BigEndian.AppendUint64(nil, uint64(since2000))); !ok || got != want {
			t.Fatalf("%s: %d, %v, want %d", text, got, ok, want)
		}
		if at := time.UnixMicro(got).UTC(); got != infinity && at.Year() > 999 {
			if want := at.Format("2006-01-02 15:04:05.999999"); string(text[:len(want)]) != want {
				t.Fatalf("%s, want %s", text, want)
			}
		}
	})
}

func TestTimestampsArePrintedAsPostgreSQLDoes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"1970-01-01 00:00:00", "2026-01-02 03:04:05.678901", "2026-01-02 03:04:05.6", "2026-01-02 03:04:05.00007", "12026-12-31 23:59:59",
		"0999-01-02 00:00:00", "0001-01-01 00:00:00", "0001-12-31 00:00:00 BC", "0044-03-15 12:00:00.5 BC", "4714-11-24 00:00:00 BC",
	} {
		micros, ok := parseTimestamp([]byte(text))
		clock, _, _ := strings.Cut(text, " BC")
		zoned := clock + "+00" + text[len(clock):]
		if got, gotZoned := appendTimestamp(nil, micros-microsTo2000, false), appendTimestamp(nil, micros-microsTo2000, true); !ok || string(got) != text || string(gotZoned) != zoned {
			t.Errorf("%s: %s, %s", text, got, gotZoned)
		}
	}
}

// Both forms become infinity from the same microsecond on.
func TestTimesBeyondTheLast(t *testing.T) {
	t.Parallel()
	date := time.UnixMicro(lastMicros - 1).UTC().Format("2006-01-02 ")
	for clock, want := range map[string]int64{"23:59:59.999999": lastMicros - 1, "23:59:00-00:01": infinity, "23:59:00-01:00": infinity} {
		if got, ok := parseTimestamp([]byte(date + clock)); !ok || got != want {
			t.Errorf("%s%s: %d, want %d", date, clock, got, want)
		}
	}
	for since, want := range map[int64]int64{-1: lastMicros - 1, 0: infinity} {
		if got := fromBinary(binary.BigEndian.AppendUint64(nil, uint64(lastMicros-microsTo2000+since))); got != want {
			t.Errorf("%d: %d, want %d", since, got, want)
		}
	}
}

// Earlier calls make no difference to the result.
func TestClockMemoryAgreesWithParseTimestamp(t *testing.T) {
	t.Parallel()
	parts := func(t *rapid.T) []byte {
		return []byte(rapid.SampledFrom([]string{"2026-01-02 03:04:05", "2026-01-02 03:04:06", "2026-13-02 03:04:05", "12026-01-02 03:04:05", "infinity", ""}).Draw(t, "second") +
			rapid.SampledFrom([]string{"", ".5", ".678901", ".1234567", ".", "6"}).Draw(t, "fraction") +
			rapid.SampledFrom([]string{"", "+00", "+01", "-00:30", "+00 BC", " BC", "+0"}).Draw(t, "offset"))
	}
	rapid.Check(t, func(t *rapid.T) {
		var m clockMemory
		if _, ok := m.parse(make([]byte, len(m.second))); ok {
			t.Fatal("what was never read is not remembered")
		}
		for range 6 {
			text := parts(t)
			got, gotOK := m.parse(text)
			want, wantOK := parseTimestamp(text)
			if got != want || gotOK != wantOK {
				t.Fatalf("%s: %d, %v, want %d, %v", text, got, gotOK, want, wantOK)
			}
		}
	})
}

func TestInfinitiesInBinary(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{math.MaxInt64: "infinity", math.MinInt64: "-infinity"} {
		if text := appendTimestamp(nil, n, true); string(text) != want {
			t.Errorf("%s, want %s", text, want)
		}
		if got := fromBinary(binary.BigEndian.AppendUint64(nil, uint64(n))); got != n {
			t.Errorf("%d, want %d", got, n)
		}
	}
}

func FuzzParseTimestamp(f *testing.F) {
	for _, seed := range []string{"2026-01-02 03:04:05.678901+00", "0044-03-15 12:00:00+00 BC", "infinity", "294276-12-31 23:59:59.999999-15:59:59"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		micros, ok := parseTimestamp(text)
		if !ok || micros == infinity || micros == minusInfinity {
			return
		}
		printed := appendTimestamp(nil, micros-microsTo2000, true)
		if again, ok := parseTimestamp(printed); !ok || again != micros {
			t.Errorf("%q is %d, printed %q, which is %d", text, micros, printed, again)
		}
	})
}
