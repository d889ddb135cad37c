package mapping

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"time"
)

// Times are microseconds since 1970-01-01 00:00 UTC. PostgreSQL counts from 2000, so it reaches 30 years
// further into the future than an int64 that counts from 1970. Times beyond that (the years 294247 to 294276)
// are infinity here.
const (
	infinity         = math.MaxInt64
	minusInfinity    = math.MinInt64
	microsPerSecond  = 1_000_000
	microsPerDay     = 86_400 * microsPerSecond
	microsTo2000     = 10_957 * microsPerDay
	lastMicros       = infinity/microsPerDay*microsPerDay - microsPerDay // later times are infinity
	digitsOfFraction = 6
	firstYear        = -4713 // 4714 BC, PostgreSQL's first year
)

// fromBinary reads a timestamp or timestamptz of 8 bytes: microseconds since 2000. The extreme values are the
// infinities.
func fromBinary(data []byte) int64 {
	n := int64(binary.BigEndian.Uint64(data))
	switch {
	case n == minusInfinity:
		return minusInfinity
	case n >= lastMicros-microsTo2000:
		return infinity
	}
	return n + microsTo2000
}

// parseTimestamp parses what PostgreSQL prints with DateStyle = ISO: 2026-01-02 03:04:05.678901+00, also with
// BC, infinity and -infinity. A text without an offset (type timestamp) is read as UTC.
func parseTimestamp(text []byte) (micros int64, ok bool) {
	switch string(text) {
	case "infinity":
		return infinity, true
	case "-infinity":
		return minusInfinity, true
	}
	s := scanner{rest: text, ok: true}
	year := s.year()
	month := s.two('-', 1, 12)
	day := s.two('-', 1, 31)
	second := s.two(' ', 0, 23)*3600 + s.two(':', 0, 59)*60 + s.two(':', 0, 59)
	fraction := s.fraction()
	offset := s.offset()
	if string(s.rest) == " BC" {
		year, s.rest = 1-year, nil
	}
	date := time.Date(int(year), time.Month(month), int(day), 0, 0, 0, 0, time.UTC)
	if !s.ok || len(s.rest) > 0 || year < firstYear || date.Day() != int(day) {
		return 0, false
	}
	second += date.Unix()
	if second >= lastMicros/microsPerSecond || second-offset >= lastMicros/microsPerSecond {
		return infinity, true
	}
	return (second-offset)*microsPerSecond + fraction, true
}

// The range of local times that zones apply to: the years 1 to 9999. Other times, including the infinities,
// count as UTC, here and in package tablesql: the server would refuse to go beyond the ends of the calendar.
const (
	firstLocal = -719_162 * microsPerDay
	endLocal   = 2_932_897 * microsPerDay
)

// utc returns the moment when a zone's clocks showed a local time, by the rules of PostgreSQL's AT TIME ZONE.
// For a time that the clocks showed twice, it is the second moment. For a time that they skipped, it is the
// moment as if they had not been changed.
func utc(local int64, zone *time.Location) int64 {
	if zone == nil || local < firstLocal || local >= endLocal {
		return local
	}
	second := local / microsPerSecond
	if local%microsPerSecond < 0 {
		second--
	}
	before := time.Unix(second, 0).Add(-24 * time.Hour).In(zone)
	_, offset := before.Zone()
	if _, change := before.ZoneBounds(); !change.IsZero() {
		if _, after := change.Zone(); second-int64(after) >= change.Unix() {
			offset = after
		}
	}
	return local - int64(offset)*microsPerSecond
}

// inMicros converts a time in another unit to microseconds.
func inMicros(n, unit int64) int64 {
	switch last := lastMicros / unit; {
	case n >= last:
		return infinity
	case n <= -last:
		return minusInfinity
	}
	return n * unit
}

// parseEpoch parses a numeric in a unit, as PostgreSQL prints it. Digits below a microsecond are cut off. NaN
// is greater than every number, as in PostgreSQL's order.
func parseEpoch(text []byte, unit int64) (micros int64, ok bool) {
	switch string(text) {
	case "Infinity", "NaN":
		return infinity, true
	case "-Infinity":
		return minusInfinity, true
	}
	whole, fraction, _ := bytes.Cut(text, []byte("."))
	digits := append(make([]byte, 0, 32), whole...)
	for ; unit > 1; unit /= 10 {
		digit := byte('0')
		if len(fraction) > 0 {
			digit, fraction = fraction[0], fraction[1:]
		}
		digits = append(digits, digit)
	}
	n, err := strconv.ParseInt(string(digits), 10, 64) // out of range: the nearest value
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, false
	}
	return inMicros(n, 1), true
}

// clockMemory remembers the latest second that was read. Rows come in the order of time, so the next row
// often has the same second.
type clockMemory struct {
	second [len("2026-01-02 03:04:05")]byte
	micros int64 // the second, in UTC
}

// parse is parseTimestamp, but faster if the second is that of the latest call.
func (m *clockMemory) parse(text []byte) (micros int64, ok bool) {
	// plain: after the second come at most a fraction and the offset of UTC.
	fraction, plain := int64(0), false
	if len(text) >= len(m.second) {
		s := scanner{rest: text[len(m.second):], ok: true}
		fraction = s.fraction()
		plain = s.ok && (len(s.rest) == 0 || string(s.rest) == "+00")
	}
	if plain && text[0] != 0 && string(text[:len(m.second)]) == string(m.second[:]) {
		return m.micros + fraction, true
	}
	micros, ok = parseTimestamp(text)
	if ok && plain {
		copy(m.second[:], text)
		m.micros = micros - fraction
	}
	return micros, ok
}

// scanner reads the parts of a timestamp. ok becomes false at the first fault.
type scanner struct {
	rest []byte
	ok   bool
}

// two reads a separator and two digits.
func (s *scanner) two(before byte, low, high int64) int64 {
	if len(s.rest) == 0 || s.rest[0] != before {
		s.ok = false
		return low
	}
	s.rest = s.rest[1:]
	return s.number(2, low, high)
}

// number reads exactly this many digits.
func (s *scanner) number(digits int, low, high int64) int64 {
	if len(s.rest) < digits {
		s.ok = false
		return low
	}
	var n int64
	for _, c := range s.rest[:digits] {
		if c < '0' || c > '9' {
			s.ok = false
			return low
		}
		n = n*10 + int64(c-'0')
	}
	s.rest = s.rest[digits:]
	if n < low || n > high {
		s.ok = false
		return low
	}
	return n
}

// year reads four to six digits.
func (s *scanner) year() int64 {
	digits := 0
	for digits < len(s.rest) && s.rest[digits] >= '0' && s.rest[digits] <= '9' {
		digits++
	}
	if digits < 4 || digits > 6 {
		s.ok = false
		return 1
	}
	return s.number(digits, 1, 999_999)
}

// fraction reads an optional fraction, .6 to .678901, as microseconds.
func (s *scanner) fraction() int64 {
	if len(s.rest) == 0 || s.rest[0] != '.' {
		return 0
	}
	digits := 1
	for digits < len(s.rest) && s.rest[digits] >= '0' && s.rest[digits] <= '9' {
		digits++
	}
	s.rest = s.rest[1:]
	digits--
	if digits == 0 || digits > digitsOfFraction {
		s.ok = false
		return 0
	}
	n := s.number(digits, 0, microsPerSecond)
	for ; digits < digitsOfFraction; digits++ {
		n *= 10
	}
	return n
}

// offset reads an optional offset (+00, -03, +05:30, +00:19:32) as seconds.
func (s *scanner) offset() int64 {
	if len(s.rest) == 0 || s.rest[0] != '+' && s.rest[0] != '-' {
		return 0
	}
	sign := int64(1)
	if s.rest[0] == '-' {
		sign = -1
	}
	s.rest = s.rest[1:]
	seconds := s.number(2, 0, 15) * 3600
	for unit := int64(60); unit >= 1 && len(s.rest) > 0 && s.rest[0] == ':'; unit /= 60 {
		seconds += s.two(':', 0, 59) * unit
	}
	return sign * seconds
}

// appendTimestamp appends microseconds since 2000 in the form that PostgreSQL prints with DateStyle = ISO and
// TimeZone = UTC.
func appendTimestamp(out []byte, since2000 int64, offset bool) []byte {
	switch since2000 {
	case infinity:
		return append(out, "infinity"...)
	case minusInfinity:
		return append(out, "-infinity"...)
	}
	t := time.Unix(since2000/microsPerSecond+microsTo2000/microsPerSecond, since2000%microsPerSecond*1000).UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	era := ""
	if year <= 0 { // year 0 is 1 BC
		year, era = 1-year, " BC"
	}
	out = appendPadded(out, year, 4)
	out = appendPadded(append(out, '-'), int(month), 2)
	out = appendPadded(append(out, '-'), day, 2)
	out = appendPadded(append(out, ' '), hour, 2)
	out = appendPadded(append(out, ':'), minute, 2)
	out = appendPadded(append(out, ':'), second, 2)
	if fraction := t.Nanosecond() / 1000; fraction > 0 {
		out = appendPadded(append(out, '.'), fraction, digitsOfFraction)
		out = bytes.TrimRight(out, "0")
	}
	if offset {
		out = append(out, "+00"...)
	}
	return append(out, era...)
}

func appendPadded(out []byte, n int, width int) []byte {
	for limit := 10; width > 1; width-- {
		if n < limit {
			out = append(out, "00000"[:width-1]...)
			break
		}
		limit *= 10
	}
	return strconv.AppendInt(out, int64(n), 10)
}
