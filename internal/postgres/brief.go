package postgres

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"unicode/utf8"
)

// This file bounds what a server sends, before memory is allocated for it. Our statements bound the messages
// that carry rows. Errors, notices and settings have no such bound: a trigger can raise a text of any length.

const (
	// longestMessage is the bound if Access sets none. It is more than any of our statements asks for.
	longestMessage = 64 << 20
	// longReport is the longest error, notice or setting (in bytes) that is passed on unchanged. In a longer
	// one each text is shortened to briefText bytes, and the whole to about longReport.
	longReport = 16 << 10
	briefText  = 1 << 10
)

// brief passes on what a server sends, with long reports shortened.
// https://www.postgresql.org/docs/current/protocol-message-formats.html
type brief struct {
	from *bufio.Reader
	left int    // bytes of the present message still to be passed on unchanged
	out  []byte // bytes to pass on before anything else
	long *longText
}

// longText is a report that is too long. The first bytes of each of its texts are kept.
type longText struct {
	kept []byte // includes the message's header
	left int    // bytes still to come
	text int    // index in kept where the present text begins
	cut  bool   // the present text is too long
}

func newBrief(r io.Reader) *brief { return &brief{from: bufio.NewReaderSize(r, 16<<10)} }

// Read waits only while it has no bytes to return. An error in the middle of a message, such as a timeout,
// loses no bytes.
func (b *brief) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if n > 0 && len(b.out) == 0 && b.from.Buffered() < messageHeader {
			return n, nil
		}
		switch {
		case len(b.out) > 0:
			step := copy(p[n:], b.out)
			b.out, n = b.out[step:], n+step
			continue
		case b.left > 0:
			var step int
			step, err = b.from.Read(p[n:min(len(p), n+b.left)])
			b.left, n = b.left-step, n+step
		case b.long != nil:
			err = b.shorten()
		default:
			err = b.begin()
		}
		if err != nil {
			if n > 0 {
				return n, nil // the error comes again with the next call
			}
			return 0, err
		}
	}
	return n, nil
}

const messageHeader = 5 // type and length; the length counts itself but not the type

// begin examines the header of a message.
func (b *brief) begin() error {
	header, err := b.from.Peek(messageHeader)
	if err != nil {
		return err
	}
	length := int(int32(binary.BigEndian.Uint32(header[1:])))
	b.left = max(length-4, 0)
	if report := header[0] == 'E' || header[0] == 'N' || header[0] == 'S'; report && b.left > longReport {
		b.long, b.left = &longText{kept: bytes.Clone(header), left: b.left, text: messageHeader}, 0
	} else {
		b.out = append(b.out[:0], header...)
	}
	_, err = b.from.Discard(messageHeader)
	return err
}

// shorten reads on in a long report.
func (b *brief) shorten() error {
	l := b.long
	if l.left > 0 {
		if b.from.Buffered() == 0 {
			if _, err := b.from.Peek(1); err != nil {
				return err
			}
		}
		chunk, _ := b.from.Peek(min(l.left, b.from.Buffered()))
		l.read(chunk)
		l.left -= len(chunk)
		_, err := b.from.Discard(len(chunk))
		return err
	}
	kept := append(l.kept, 0, 0) // the terminator of a text that was left out, and that of the message
	binary.BigEndian.PutUint32(kept[1:], uint32(len(kept)-1))
	b.out, b.long = kept, nil
	return nil
}

func (l *longText) read(chunk []byte) {
	for _, c := range chunk {
		switch {
		case len(l.kept) > longReport: // PostgreSQL does not send such a message
		case c == 0:
			if l.cut {
				l.kept = append(l.kept, "…"...)
			}
			l.kept, l.cut = append(l.kept, 0), false
			l.text = len(l.kept)
		case l.cut:
		case len(l.kept)-l.text < briefText:
			l.kept = append(l.kept, c)
		default:
			l.cut = true
			l.kept = l.kept[:l.text+len(whole(l.kept[l.text:]))]
		}
	}
}

// whole removes an incomplete character from the end of a text that was cut.
func whole(text []byte) []byte {
	for range utf8.UTFMax - 1 {
		if r, size := utf8.DecodeLastRune(text); r != utf8.RuneError || size != 1 {
			return text
		}
		text = text[:len(text)-1]
	}
	return text
}
