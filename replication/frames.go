package replication

import (
	"encoding/binary"
	"fmt"
	"net"
)

// frames splits the bytes of a connection into the server's messages. Each message has a type, a length and a
// body. frames reads as many bytes as are available, and returns bodies without copying them. A read that
// times out loses no bytes.
// https://www.postgresql.org/docs/current/protocol-overview.html#PROTOCOL-MESSAGE-CONCEPTS
type frames struct {
	conn net.Conn
	buf  []byte
	r, w int // 0 ≤ r ≤ w ≤ len(buf); buf[r:w] is received and not yet returned
	base int // usual len(buf), bytes
	max  int // longest body that is kept whole, bytes
	// long is the message that is being read, if it is longer than max; else nil.
	long *longMessage
}

const (
	frameHeader = 5 // the type byte and the length field; the length counts itself
	copyData    = 'd'
)

func newFrames(conn net.Conn, base, longest int) *frames {
	return &frames{conn: conn, base: base, max: longest}
}

// next returns the next message if all of it has been received. The body is valid until the next fill. A
// change of a row that is longer than max comes with its short values only (see longMessage).
func (f *frames) next() (kind byte, body []byte, ok bool, err error) {
	if f.long != nil {
		body, ok, err = f.longBody()
		return copyData, body, ok, err
	}
	if f.w-f.r < frameHeader {
		return 0, nil, false, nil
	}
	length := int64(binary.BigEndian.Uint32(f.buf[f.r+1:]))
	if length < 4 {
		return 0, nil, false, fmt.Errorf("%w: a message says it is %d bytes long", ErrProtocol, length)
	}
	if f.refused(length) {
		return 0, nil, false, fmt.Errorf("%w: %d bytes, at most %d", ErrFrameTooLarge, length-4, f.max)
	}
	if length-4 > int64(f.max) {
		f.r += frameHeader
		f.long = &longMessage{left: int(length - 4), max: f.max}
		return f.next()
	}
	end := f.r + 1 + int(length)
	if end > f.w {
		return 0, nil, false, nil
	}
	kind, body = f.buf[f.r], f.buf[f.r+frameHeader:end:end]
	f.r = end
	return kind, body, true, nil
}

// refused reports whether a message is too long to be read, even in part. length is the value of its length
// field.
func (f *frames) refused(length int64) bool {
	return length-4 > int64(f.max) && (f.buf[f.r] != copyData || length > longestMessage)
}

// complete reports whether next would return a message or an error at once. An error inside a long message is
// the exception: complete may be false before it.
func (f *frames) complete() bool {
	if f.long != nil {
		return f.w-f.r >= f.long.left
	}
	if f.w-f.r < frameHeader {
		return false
	}
	length := int64(binary.BigEndian.Uint32(f.buf[f.r+1:]))
	return length < 4 || f.refused(length) || int64(f.w-f.r) > length
}

// fill reads from the connection once. Bodies that next returned before are invalid afterwards.
func (f *frames) fill() error {
	f.makeRoom()
	n, err := f.conn.Read(f.buf[f.w:])
	f.w += n
	if n > 0 {
		return nil
	}
	return err
}

// makeRoom moves the unread bytes to the front of the buffer when there is little room behind them. For a
// long message the buffer doubles only as bytes arrive, so a false length in a header costs no memory.
func (f *frames) makeRoom() {
	left := f.w - f.r
	switch {
	case f.buf == nil:
		f.buf = make([]byte, f.base)
	case left < f.base/2 && len(f.buf) > 4*f.base: // a long message is over
		usual := make([]byte, f.base)
		f.w = copy(usual, f.buf[f.r:f.w])
		f.buf, f.r = usual, 0
	case left == 0:
		f.r, f.w = 0, 0
	case left == len(f.buf):
		grown := make([]byte, min(2*len(f.buf), f.max+frameHeader+f.base))
		f.w = copy(grown, f.buf[f.r:f.w])
		f.buf, f.r = grown, 0
	case f.r > 0 && len(f.buf)-f.w < len(f.buf)/4:
		f.w, f.r = copy(f.buf, f.buf[f.r:f.w]), 0
	}
}
