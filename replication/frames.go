package replication

import (
	"encoding/binary"
	"fmt"
	"net"
)

// frames cuts the bytes of a connection into the server's messages: a type, a
// length, a body. It reads as much at a time as there is and hands out bodies
// without copying them. A read that times out loses nothing.
// https://www.postgresql.org/docs/current/protocol-overview.html#PROTOCOL-MESSAGE-CONCEPTS
type frames struct {
	conn net.Conn
	buf  []byte
	r, w int // 0 ≤ r ≤ w ≤ len(buf); buf[r:w] is received and not handed out
	base int // the usual len(buf), bytes
	max  int // the longest body that is kept whole, bytes
	// long is the message being read that is longer than max.
	long *longMessage
}

const (
	frameHeader = 5 // type byte and length, which counts itself
	copyData    = 'd'
)

func newFrames(conn net.Conn, base, longest int) *frames {
	return &frames{conn: conn, base: base, max: longest}
}

// next returns the next complete message that is here already; its body is valid until
// fill. A change of a row that is longer than max has its short values only, see
// longMessage.
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

// refused says that the message that follows cannot be read, even in part: it is too long.
func (f *frames) refused(length int64) bool {
	return length-4 > int64(f.max) && (f.buf[f.r] != copyData || length > longestMessage)
}

// complete says whether next would return a message. Where it says no, next may
// still return an error.
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

// fill reads once. Bodies handed out before are void.
func (f *frames) fill() error {
	f.makeRoom()
	n, err := f.conn.Read(f.buf[f.w:])
	f.w += n
	if n > 0 {
		return nil
	}
	return err
}

// makeRoom moves what is left to the front when little space is behind it. A
// message longer than the buffer doubles it only as its bytes arrive, so a
// length that was made up costs nothing.
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
