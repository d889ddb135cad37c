package mapping

import (
	"encoding/binary"
	"math"
	"strconv"
)

// Times are microseconds since 1970-01-01 00:00 UTC. PostgreSQL counts from
// 2000 and so reaches 30 years further into the future than an int64 from
// 1970; what is beyond (the years 294247 to 294276) is infinity here.
const (
	infinity         = math.MaxInt64
	minusInfinity    = math.MinInt64
	microsPerSecond  = 1_000_000
	microsPerDay     = 86_400 * microsPerSecond
	microsTo2000     = 10_957 * microsPerDay
	lastMicros       = infinity/microsPerDay*microsPerDay - microsPerDay // what is later is infinity
	digitsOfFraction = 6
	firstYear        = -4713 // 4714 BC, PostgreSQL's first
)

// fromBinary reads a timestamp or timestamptz of 8 bytes: microseconds since
// 2000, with the extreme values for the infinities.
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

// parseTimestamp reads what PostgreSQL prints with DateStyle = ISO:
// 2026-01-02 03:04:05.678901+00, also with BC, infinity and -infinity. Without
// an offset (type timestamp) it is taken as UTC.
func parseTimestamp(text []byte) (micros int64, ok bool) {
	switch string(text) {
	case "infinity":
		return infinity, true
	case "-infinity":
		return minusInfinity, true
	}
	s := scanner{rest: text, ok: true}
	year := s.year()
	s.literal('-')
	month := s.number(2, 1, 12)
	s.literal('-')
	day := s.number(2, 1, 31)
	s.literal(' ')
	second := s.clock()
	fraction := s.fraction()
	offset := s.offset()
	if s.beforeChrist() {
		year = 1 - year
	}
	if !s.ok || len(s.rest) > 0 || year < firstYear || day > daysIn(year, month) {
		return 0, false
	}
	days := daysSince1970(year, month, day)
	if days >= lastMicros/microsPerDay {
		return infinity, true
	}
	micros = days*microsPerDay + (second-offset)*microsPerSecond + fraction
	if micros >= lastMicros {
		return infinity, true
	}
	return micros, true
}

// clockMemory remembers the latest second that was read: rows come in the order
// of time, so the next one often has the same.
type clockMemory struct {
	second [len("2026-01-02 03:04:05")]byte
	micros int64 // of it, in UTC
}

// parse is parseTimestamp, faster for the second of the latest call.
func (m *clockMemory) parse(text []byte) (micros int64, ok bool) {
	fraction, plain := m.fraction(text)
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

// fraction reads what follows the second, plain if that is only a fraction and
// the offset of UTC or none.
func (m *clockMemory) fraction(text []byte) (micros int64, plain bool) {
	if len(text) < len(m.second) {
		return 0, false
	}
	s := scanner{rest: text[len(m.second):], ok: true}
	micros = s.fraction()
	return micros, s.ok && (len(s.rest) == 0 || string(s.rest) == "+00")
}

// scanner reads the parts of a timestamp; ok ends at the first fault.
type scanner struct {
	rest []byte
	ok   bool
}

func (s *scanner) literal(c byte) {
	if len(s.rest) == 0 || s.rest[0] != c {
		s.ok = false
		return
	}
	s.rest = s.rest[1:]
}

// number reads exactly that many digits.
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

// year has four to six digits.
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

// clock reads 03:04:05 as seconds.
func (s *scanner) clock() int64 {
	hour := s.number(2, 0, 23)
	s.literal(':')
	minute := s.number(2, 0, 59)
	s.literal(':')
	return hour*3600 + minute*60 + s.number(2, 0, 59)
}

// fraction reads an optional .6 to .678901 as microseconds.
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

// offset reads an optional +00, -03, +05:30 or +00:19:32 as seconds.
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
		s.rest = s.rest[1:]
		seconds += s.number(2, 0, 59) * unit
	}
	return sign * seconds
}

func (s *scanner) beforeChrist() bool {
	if string(s.rest) != " BC" {
		return false
	}
	s.rest = nil
	return true
}

func isLeap(year int64) bool { return year%4 == 0 && (year%100 != 0 || year%400 == 0) }

func daysIn(year, month int64) int64 {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if isLeap(year) {
			return 29
		}
		return 28
	}
	return 31
}

// daysSince1970 counts days of the proleptic Gregorian calendar; years are
// astronomical (0 is 1 BC). After Howard Hinnant, days_from_civil,
// https://howardhinnant.github.io/date_algorithms.html
func daysSince1970(year, month, day int64) int64 {
	if month <= 2 {
		year--
	}
	era := floorDiv(year, 400)
	yearOfEra := year - era*400
	dayOfYear := (153*((month+9)%12)+2)/5 + day - 1
	dayOfEra := yearOfEra*365 + yearOfEra/4 - yearOfEra/100 + dayOfYear
	return era*146_097 + dayOfEra - 719_468
}

// civil is the reverse of daysSince1970.
func civil(days int64) (year, month, day int64) {
	days += 719_468
	era := floorDiv(days, 146_097)
	dayOfEra := days - era*146_097
	yearOfEra := (dayOfEra - dayOfEra/1460 + dayOfEra/36_524 - dayOfEra/146_096) / 365
	dayOfYear := dayOfEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	shifted := (5*dayOfYear + 2) / 153
	day = dayOfYear - (153*shifted+2)/5 + 1
	month = (shifted+2)%12 + 1
	year = yearOfEra + era*400
	if month <= 2 {
		year++
	}
	return year, month, day
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// appendTimestamp prints microseconds since 2000 as PostgreSQL does with
// DateStyle = ISO, TimeZone = UTC.
func appendTimestamp(out []byte, since2000 int64, offset bool) []byte {
	switch since2000 {
	case infinity:
		return append(out, "infinity"...)
	case minusInfinity:
		return append(out, "-infinity"...)
	}
	days := floorDiv(since2000, microsPerDay)
	year, month, day := civil(days + microsTo2000/microsPerDay)
	shown := year
	if year <= 0 {
		shown = 1 - year
	}
	out = appendPadded(out, shown, 4)
	out = appendPadded(append(out, '-'), month, 2)
	out = appendPadded(append(out, '-'), day, 2)
	out = appendClock(append(out, ' '), since2000-days*microsPerDay)
	if offset {
		out = append(out, "+00"...)
	}
	if year <= 0 {
		out = append(out, " BC"...)
	}
	return out
}

// appendClock prints a time of the day in microseconds.
func appendClock(out []byte, micros int64) []byte {
	seconds, fraction := micros/microsPerSecond, micros%microsPerSecond
	out = appendPadded(out, seconds/3600, 2)
	out = appendPadded(append(out, ':'), seconds/60%60, 2)
	out = appendPadded(append(out, ':'), seconds%60, 2)
	if fraction == 0 {
		return out
	}
	out = appendPadded(append(out, '.'), fraction, digitsOfFraction)
	for out[len(out)-1] == '0' {
		out = out[:len(out)-1]
	}
	return out
}

func appendPadded(out []byte, n int64, width int) []byte {
	for limit := int64(10); width > 1; width-- {
		if n < limit {
			out = append(out, "00000"[:width-1]...)
			break
		}
		limit *= 10
	}
	return strconv.AppendInt(out, n, 10)
}
