package decoder

import (
	"bytes"
	"encoding/binary"
)

// cursor reads a message. After its end it gives zeros and short is set, which
// whoever reads checks before using what was read.
type cursor struct {
	rest  []byte
	short bool
}

const truncated = "ends too early"

// end is the problem of a message that is not exactly used up.
func (c *cursor) end() problem {
	switch {
	case c.short:
		return problem{what: truncated}
	case len(c.rest) > 0:
		return problem{what: "has more bytes than its type has"}
	}
	return problem{}
}

// take returns the next n bytes, in the frame's memory.
func (c *cursor) take(n uint32) []byte {
	if uint64(n) > uint64(len(c.rest)) {
		c.rest, c.short = nil, true
		return nil
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) byte() byte {
	if len(c.rest) < 1 {
		c.short = true
		return 0
	}
	b := c.rest[0]
	c.rest = c.rest[1:]
	return b
}

func (c *cursor) uint16() uint16 {
	if len(c.rest) < 2 {
		c.rest, c.short = nil, true
		return 0
	}
	n := binary.BigEndian.Uint16(c.rest)
	c.rest = c.rest[2:]
	return n
}

func (c *cursor) uint32() uint32 {
	if len(c.rest) < 4 {
		c.rest, c.short = nil, true
		return 0
	}
	n := binary.BigEndian.Uint32(c.rest)
	c.rest = c.rest[4:]
	return n
}

func (c *cursor) uint64() uint64 {
	if len(c.rest) < 8 {
		c.rest, c.short = nil, true
		return 0
	}
	n := binary.BigEndian.Uint64(c.rest)
	c.rest = c.rest[8:]
	return n
}

// text reads a string that ends with a zero byte.
func (c *cursor) text() string {
	n := bytes.IndexByte(c.rest, 0)
	if n < 0 {
		c.rest, c.short = nil, true
		return ""
	}
	s := string(c.rest[:n])
	c.rest = c.rest[n+1:]
	return s
}
