package postgres

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"unicode/utf8"
)

// This file bounds what a server sends before memory is taken for it. The statement bounds the
// messages of rows. Nothing of ours bounds an error, a notice or a setting: a trigger raises as
// long a text as it likes.

const (
	// longestMessage is taken where Access says nothing: more than any statement of ours asks for.
	longestMessage = 64 << 20
	// longReport is what an error, a notice or a setting may have to be passed on as it is. Of a
	// longer one each text is shortened to briefText bytes, and the whole to about longReport.
	longReport = 16 << 10
	briefText  = 1 << 10
)

// brief passes on what a server sends, with long reports shortened.
// https://www.postgresql.org/docs/current/protocol-message-formats.html
type brief struct {
	from *bufio.Reader
	left int    // bytes of the present message that are passed on as they come
	out  []byte // what is passed on before anything else
	long *longText
}

// longText is a report; the first bytes of each of its texts are kept.
type longText struct {
	kept []byte // with the message's header
	left int    // bytes that have not come
	text int    // where the present text begins in kept
	cut  bool   // the present text is longer
}

func newBrief(r io.Reader) *brief { return &brief{from: bufio.NewReaderSize(r, 16<<10)} }

// Read waits only while it has nothing to give. An error in the middle of a message, such as a
// timeout, loses nothing.
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
				return n, nil // it comes again with the next call
			}
			return 0, err
		}
	}
	return n, nil
}

const messageHeader = 5 // type and length, which counts itself but not the type

// begin looks at the header of a message.
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
	kept := append(l.kept, 0, 0) // the end of a text that was left out, and of the message
	binary.BigEndian.PutUint32(kept[1:], uint32(len(kept)-1))
	b.out, b.long = kept, nil
	return nil
}

func (l *longText) read(chunk []byte) {
	for _, c := range chunk {
		switch {
		case len(l.kept) > longReport: // not of PostgreSQL's making
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

// whole leaves out the beginning of a character whose end was cut off.
func whole(text []byte) []byte {
	for range utf8.UTFMax - 1 {
		if r, size := utf8.DecodeLastRune(text); r != utf8.RuneError || size != 1 {
			return text
		}
		text = text[:len(text)-1]
	}
	return text
}
