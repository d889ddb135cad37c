package decoder

import "encoding/binary"

// cursor reads a message from its beginning to its end. Beyond the end it returns zeros, and end reports an
// error. The caller checks end before it uses what was read. The cursor moves an index and not a slice: each
// move of a slice would cost a write barrier.
type cursor struct {
	data  []byte
	at    int
	short bool
}

const (
	truncated = "ends too early"
	tooLong   = "has more bytes than its type has"
)

// end returns an error if the message is too short, or if bytes are left over; otherwise nil.
func (c *cursor) end() *Error {
	switch {
	case c.short:
		return &Error{What: truncated}
	case c.at < len(c.data):
		return &Error{What: tooLong}
	}
	return nil
}

// left is the number of bytes not read yet.
func (c *cursor) left() int { return len(c.data) - c.at }

// ended marks the message as too short.
func (c *cursor) ended() {
	c.at, c.short = len(c.data), true
}

// take returns the next n bytes. They lie in the frame's memory.
func (c *cursor) take(n uint32) []byte {
	if uint64(n) > uint64(c.left()) {
		c.ended()
		return nil
	}
	from := c.at
	c.at += int(n)
	return c.data[from:c.at:c.at]
}

// byte reads a kind or a format. No valid one is 0, so 0 beyond the end is an error for the caller.
func (c *cursor) byte() byte {
	if c.left() < 1 {
		return 0
	}
	b := c.data[c.at]
	c.at++
	return b
}

func (c *cursor) uint16() uint16 {
	if c.left() < 2 {
		c.ended()
		return 0
	}
	n := binary.BigEndian.Uint16(c.data[c.at:])
	c.at += 2
	return n
}

func (c *cursor) uint32() uint32 {
	if c.left() < 4 {
		c.ended()
		return 0
	}
	n := binary.BigEndian.Uint32(c.data[c.at:])
	c.at += 4
	return n
}
