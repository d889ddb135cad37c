// Package charset converts text from a database's encoding to UTF-8.
//
// The server can convert too. But it ends a whole statement, or the stream of the WAL, at the first character
// without an equivalent. WIN1252 has five such characters, and a database of SQL_ASCII any number. So the
// columns of rows are read in the database's encoding and converted here, row by row. The tables are
// PostgreSQL's own: golang.org/x/text follows other standards (107 characters of EUC_JP differ, 32 of LATIN9)
// and lacks two encodings.
//
// The package is pure.
package charset

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// Set is the character set of a database. nil is UTF-8: the database's bytes are published as they are.
type Set struct {
	name string
	// chars are the characters by their bytes. nil: SQL_ASCII, where bytes that are valid UTF-8 are taken as
	// UTF-8, and other bytes are no characters.
	chars map[string]char
	// lengths are the characters' lengths by their first byte; 0: no character begins with this byte.
	lengths [256]uint8
	// back are the runes that the server can convert to the encoding.
	back map[rune]bool
}

// char is one character in UTF-8.
type char struct {
	text string
	// oneWay: the server converts the text back to another character, or cannot convert it back.
	oneWay bool
}

// Of returns the character set for the server's name of an encoding (server_encoding). It returns an error
// for an encoding without a table.
func Of(encoding string) (*Set, error) {
	switch encoding {
	case "UTF8":
		return nil, nil //nolint:nilnil // no conversion is needed
	case "SQL_ASCII":
		return &Set{name: encoding}, nil
	}
	mu.Lock()
	defer mu.Unlock()
	if s := loaded[encoding]; s != nil {
		return s, nil
	}
	packed, err := tables.ReadFile("tables/" + encoding + ".gz")
	if err != nil {
		return nil, fmt.Errorf("the database has the encoding %s, whose text cannot be turned into UTF-8 here: "+
			"use a database of UTF8, or of one of the encodings in docs/configuration.md", encoding)
	}
	s, err := parse(encoding, packed)
	if err == nil {
		loaded[encoding] = s
	}
	return s, err
}

// Name returns the server's name of the encoding.
func (s *Set) Name() string {
	if s == nil {
		return "UTF8"
	}
	return s.name
}

// Append appends the text in UTF-8. ok is false if the text has bytes that cannot be converted. These are
// appended as \x with two hexadecimal digits each.
func (s *Set) Append(to, text []byte) (out []byte, ok bool) { return s.append(to, text, false) }

// AppendExact is Append for text that the server has to find again. A character that the server would convert
// back to another one counts as one that cannot be converted.
func (s *Set) AppendExact(to, text []byte) (out []byte, ok bool) { return s.append(to, text, true) }

func (s *Set) append(to, text []byte, exact bool) ([]byte, bool) {
	ok := true
	for at := 0; at < len(text); {
		if text[at] < utf8.RuneSelf {
			to = append(to, text[at])
			at++
			continue
		}
		c, n := s.next(text[at:])
		if c.text == "" || exact && c.oneWay {
			ok = false
			for _, b := range text[at : at+n] {
				to = fmt.Appendf(to, `\x%02x`, b)
			}
		} else {
			to = append(to, c.text...)
		}
		at += n
	}
	return to, ok
}

// next returns the first character and its length in bytes. If the character's text is empty, the bytes are no character.
func (s *Set) next(text []byte) (char, int) {
	if s.chars == nil {
		r, n := utf8.DecodeRune(text)
		if r == utf8.RuneError && n <= 1 {
			return char{}, 1
		}
		return char{text: string(text[:n])}, n
	}
	n := int(s.lengths[text[0]])
	if n == 0 || n > len(text) {
		return char{}, 1
	}
	return s.chars[string(text[:n])], n
}

// Writable returns the text with a question mark in place of each character that the database cannot store.
func (s *Set) Writable(text string) string {
	if s == nil || s.chars == nil {
		return text
	}
	return strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf || s.back[r] {
			return r
		}
		return '?'
	}, text)
}

//go:embed tables
var tables embed.FS

var (
	mu     sync.Mutex
	loaded = map[string]*Set{}
)

// parse parses a table. It has a line for each character beyond ASCII: its bytes and its runes in
// hexadecimal, and < if the character does not convert back.
func parse(encoding string, packed []byte) (*Set, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("the table of %s: %w", encoding, err)
	}
	all, err := io.ReadAll(unpacked)
	if err != nil {
		return nil, fmt.Errorf("the table of %s: %w", encoding, err)
	}
	s := &Set{name: encoding, chars: map[string]char{}, back: map[rune]bool{}}
	for line := range strings.Lines(string(all)) {
		if err := s.add(strings.Fields(line)); err != nil {
			return nil, fmt.Errorf("the table of %s, line %q: %w", encoding, line, err)
		}
	}
	return s, nil
}

func (s *Set) add(fields []string) error {
	if len(fields) < 2 {
		return fmt.Errorf("has %d fields", len(fields))
	}
	code, err := hex.DecodeString(fields[0])
	if err != nil {
		return err
	}
	var c char
	for _, field := range fields[1:] {
		if field == "<" {
			c.oneWay = true
			continue
		}
		r, err := strconv.ParseInt(field, 16, 32)
		if err != nil {
			return err
		}
		c.text += string(rune(r))
	}
	if r, n := utf8.DecodeRuneInString(c.text); !c.oneWay && n == len(c.text) {
		s.back[r] = true
	}
	s.chars[string(code)] = c
	s.lengths[code[0]] = uint8(len(code)) // #nosec G115 -- at most four
	return nil
}
