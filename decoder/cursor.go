package decoder

import "encoding/binary"

// cursor reads a message. After its end it gives zeros, and end says so, which
// the caller asks before using what was read. It moves an index and no
// slice, which would cost a write barrier each time.
type cursor struct {
	data  []byte
	at    int
	short bool
}

const (
	truncated = "ends too early"
	tooLong   = "has more bytes than its type has"
)

// end is what is wrong with a message that is not exactly used up.
func (c *cursor) end() *Error {
	switch {
	case c.short:
		return &Error{What: truncated}
	case c.at < len(c.data):
		return &Error{What: tooLong}
	}
	return nil
}

// left is how many bytes are not read yet.
func (c *cursor) left() int { return len(c.data) - c.at }

// ended makes the message one that ended too early.
func (c *cursor) ended() {
	c.at, c.short = len(c.data), true
}

// take returns the next n bytes, in the frame's memory.
func (c *cursor) take(n uint32) []byte {
	if uint64(n) > uint64(c.left()) {
		c.ended()
		return nil
	}
	from := c.at
	c.at += int(n)
	return c.data[from:c.at:c.at]
}

// byte is a kind or a format, and no such byte is 0.
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
