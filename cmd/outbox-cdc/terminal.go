package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
	"golang.org/x/term"
)

// Names of rows, tables, hosts and servers are other people's text. On a terminal, control sequences in them
// could hide lines or write to the clipboard, and direction marks could make a text look different. So
// everything that commands print goes through a safeWriter.

// safeWriter prints unprintable characters as escapes, such as \u001b, except line ends and tabs. In a JSON
// string an escape is the same character, so the meaning of JSON does not change.
type safeWriter struct {
	to io.Writer

	mu   sync.Mutex // guards the fields below: loggers write from any goroutine
	rest []byte     // the first bytes of an incomplete character
}

func (w *safeWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := append(w.rest, b...)
	out := make([]byte, 0, len(text))
	for len(text) > 0 && utf8.FullRune(text) {
		r, size := utf8.DecodeRune(text)
		if r == '\n' || r == '\t' {
			out = append(out, byte(r))
		} else {
			out = appendPrintable(out, r, text[:size])
		}
		text = text[size:]
	}
	w.rest = append([]byte(nil), text...)
	if _, err := w.to.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// appendPrintable appends a character (its bytes are raw), or its escape.
func appendPrintable(out []byte, r rune, raw []byte) []byte {
	switch {
	case r == utf8.RuneError && len(raw) == 1:
		return fmt.Appendf(out, `\x%02x`, raw[0])
	case strconv.IsPrint(r):
		return append(out, raw...)
	case r > 0xffff:
		high, low := utf16.EncodeRune(r)
		return fmt.Appendf(out, `\u%04x\u%04x`, high, low)
	}
	return fmt.Appendf(out, `\u%04x`, r)
}

// printable returns a text in one line, in the form of a safeWriter. So a name with a line end in it cannot
// be taken for two names.
func printable(text string) string {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		out = appendPrintable(out, r, []byte(text[i:i+size]))
		i += size
	}
	return string(out)
}

// raw returns the writer behind a safeWriter, for text of our own.
func raw(w io.Writer) io.Writer {
	if safe, ok := w.(*safeWriter); ok {
		return safe.to
	}
	return w
}

func isTerminal(w io.Writer) bool {
	f, ok := raw(w).(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// columns returns the width of a terminal; 0: not a terminal.
func columns(w io.Writer) int {
	f, ok := raw(w).(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd())) // #nosec G115 -- a file descriptor
	if err != nil {
		return 0
	}
	return width
}

// newTable returns a table for people: tabs end cells, and Flush prints it.
func newTable(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 0, 2, ' ', 0) }

// row writes a row. Values with tabs or line breaks stay in their cells.
func row(w io.Writer, cells ...string) {
	for i := range cells {
		cells[i] = printable(cells[i])
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}

// wrapped breaks a text into lines between words. A longer word stays whole.
func wrapped(text string, width int) []string {
	lines := []string{""}
	for _, word := range strings.Fields(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(word) > width:
			lines = append(lines, word)
		default:
			*last += " " + word
		}
	}
	return lines
}
