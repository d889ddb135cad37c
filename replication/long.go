package replication

import (
	"encoding/binary"
	"fmt"
)

// LongText and LongBinary are format bytes of our own, which PostgreSQL does not use. They mark a column's
// value that was too long to be kept: the tuple holds the four bytes of its length, and none of the value.
const (
	LongText   = 'l'
	LongBinary = 'L' // the value was in binary format
)

const (
	// longestMessage is the length of the longest message that PostgreSQL can send, in bytes.
	longestMessage = 1 << 30
	// Values of up to smallValue bytes are kept until 2×max bytes are kept. So earlier long columns cannot
	// push out the columns that identify a row.
	smallValue = 4 << 10
)

// longMessage is a change of a row that is longer than frames.max. It is read as its bytes arrive. Values
// that do not fit are skipped on the socket. The rest is a change that package decoder reads like any other.
// https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
type longMessage struct {
	kept    []byte
	max     int // bytes of kept, apart from small values
	left    int // bytes of the message still to be read
	copying int // bytes of the present value still to be kept
	passing int // bytes of the present value still to be skipped
	columns int // columns of the present tuple that have not begun
	tuples  int // tuples that have begun
	begun   bool
}

// read consumes a prefix of b, the next part of the message, and returns its length. 0: b is too short.
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

// begin reads the head of the message, up to the relation's id.
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

// tuple reads the head of a tuple: its kind and its number of columns.
func (l *longMessage) tuple(b []byte) (int, error) {
	const head = 1 + 2
	if len(b) < head {
		return 0, nil
	}
	// Each column keeps at least one byte, so the number of tuples is bounded.
	if l.tuples++; l.tuples > 2 {
		return 0, fmt.Errorf("%w: a change of a row with more than its old and its new values", ErrProtocol)
	}
	l.columns = int(binary.BigEndian.Uint16(b[1:]))
	return l.keep(b[:head]), nil
}

func (l *longMessage) column(b []byte) (int, error) {
	const head = 1 + 4
	switch {
	case len(b) > 0 && b[0] != 't' && b[0] != 'b': // NULL or unchanged TOAST: no value follows
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

// longBody reads on in a long message. When the whole message has arrived, it returns the kept part.
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

// Change is a message of pgoutput that comes in pieces and not over a Conn. A change of a row longer than max
// is shortened as a Conn would shorten it.
type Change struct{ frames frames }

// NewChange begins a message of length bytes.
func NewChange(length, max int) *Change {
	c := &Change{frames{max: max, long: &longMessage{left: xlogHeader + length, max: max}}}
	c.frames.buf = append(c.frames.buf, make([]byte, xlogHeader)...)
	c.frames.buf[0] = 'w'
	return c
}

// Add takes the next piece of the message. With the last piece it returns the message and true.
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
