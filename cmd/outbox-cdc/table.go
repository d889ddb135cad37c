package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// newTable is a table for people: tabs end cells, and Flush prints it.
func newTable(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 0, 2, ' ', 0) }

// row writes a row; values with tabs or line breaks stay in their cells.
func row(w io.Writer, cells ...string) {
	for i := range cells {
		cells[i] = printable(cells[i])
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}

// wrapped breaks a text between words; a longer word stays whole.
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
