package replication

import (
	"encoding/binary"
	"fmt"
)

// LongText and LongBinary are the formats of a column's value that was too long
// to be kept: the tuple has the four bytes of its length, and no more.
// PostgreSQL has no formats of these letters.
const (
	LongText   = 'l'
	LongBinary = 'L' // in the binary format
)

const (
	// longestMessage is what PostgreSQL can send at most.
	longestMessage = 1 << 30
	// Values of smallValue bytes or less are kept up to twice max: the columns that name
	// a row must not give way to others before them.
	smallValue = 4 << 10
)

// longMessage is a change of a row that is longer than frames.max. It is read
// as its bytes come: values that do not fit are skipped on the socket, and what
// is left is a change that package decoder reads like any other.
// https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
type longMessage struct {
	kept    []byte
	max     int // of kept, but for small values
	left    int // bytes of the message that have not been read
	copying int // bytes of the present value that are to be kept
	passing int // and those that are to be skipped
	columns int // of the present tuple that have not begun
	tuples  int // that have begun
	begun   bool
}

// read takes as much as it can of b, a part of the message, and says how much; 0: it
// needs more.
func (l *longMessage) read(b []byte) (int, error) {
	switch {
	case l.copying > 0:
		n := min(l.copying, len(b))
		l.copying -= n
		return l.keep(b[:n]), nil
	case l.passing > 0:
		n := min(l.passing, len(b))
		l.passing -= n
		return n, nil
	case !l.begun:
		return l.begin(b)
	case l.columns == 0:
		return l.tuple(b)
	}
	return l.column(b)
}

// begin reads up to the relation's id.
func (l *longMessage) begin(b []byte) (int, error) {
	const head = xlogHeader + 1 + 4
	if len(b) < head {
		return 0, nil
	}
	if b[0] != 'w' || b[xlogHeader] != 'I' && b[xlogHeader] != 'U' && b[xlogHeader] != 'D' {
		return 0, fmt.Errorf("%w: %d bytes that are no change of a row, at most %d", ErrFrameTooLarge, l.left, l.max)
	}
	l.begun = true
	return l.keep(b[:head]), nil
}

// tuple reads which tuple follows and how many columns it has.
func (l *longMessage) tuple(b []byte) (int, error) {
	const head = 1 + 2
	if len(b) < head {
		return 0, nil
	}
	// At least a byte of each column is kept, so the number of tuples needs a bound.
	if l.tuples++; l.tuples > 2 {
		return 0, fmt.Errorf("%w: a change of a row with more than its old and its new values", ErrProtocol)
	}
	l.columns = int(binary.BigEndian.Uint16(b[1:]))
	return l.keep(b[:head]), nil
}

func (l *longMessage) column(b []byte) (int, error) {
	const head = 1 + 4
	switch {
	case len(b) > 0 && b[0] != 't' && b[0] != 'b': // it has no bytes
		l.columns--
		return l.keep(b[:1]), nil
	case len(b) < head:
		return 0, nil
	}
	length := int64(binary.BigEndian.Uint32(b[1:]))
	if length > int64(l.left-head) {
		return 0, fmt.Errorf("%w: a value of %d bytes in the last %d bytes of a message", ErrProtocol, length, l.left)
	}
	l.columns--
	fits := int64(len(l.kept))+length <= int64(l.max) || length <= smallValue && len(l.kept) <= 2*l.max
	if fits {
		l.copying = int(length)
		return l.keep(b[:head]), nil
	}
	l.passing = int(length)
	l.keep(b[:head])
	l.kept[len(l.kept)-head] = map[byte]byte{'t': LongText, 'b': LongBinary}[b[0]]
	return head, nil
}

func (l *longMessage) keep(b []byte) int {
	l.kept = append(l.kept, b...)
	return len(b)
}

// longBody goes on with a long message, and returns what was kept of it when all of
// it has come.
func (f *frames) longBody() (body []byte, ok bool, err error) {
	l := f.long
	for l.left > 0 {
		n, err := l.read(f.buf[f.r:min(f.w, f.r+l.left)])
		if err != nil {
			return nil, false, err
		}
		f.r += n
		l.left -= n
		switch {
		case n > 0:
		case f.w-f.r >= l.left:
			return nil, false, fmt.Errorf("%w: a change of a row ends too early", ErrProtocol)
		default:
			return nil, false, nil
		}
	}
	f.long = nil
	return l.kept, true, nil
}

// Change is a message of pgoutput that comes in pieces. If it is a change of a row longer
// than max, it keeps what a Conn would keep.
type Change struct{ frames frames }

// NewChange begins a message of so many bytes.
func NewChange(length, max int) *Change {
	c := &Change{frames{max: max, long: &longMessage{left: xlogHeader + length, max: max}}}
	c.frames.buf = append(c.frames.buf, make([]byte, xlogHeader)...)
	c.frames.buf[0] = 'w'
	return c
}

// Add takes the next piece and returns the message with the last one.
func (c *Change) Add(piece []byte) (message []byte, ok bool, err error) {
	f := &c.frames
	f.buf = append(f.buf[:copy(f.buf, f.buf[f.r:])], piece...)
	f.r, f.w = 0, len(f.buf)
	body, ok, err := f.longBody()
	if err != nil || !ok {
		return nil, false, err
	}
	return body[xlogHeader:], true, nil
}
