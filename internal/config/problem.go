package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one fault of a configuration file: where it is, what was found
// and what to write instead. It never contains a secret.
type Problem struct {
	File         string
	Line, Column int    // from 1; 0 where the fault is the file itself
	Path         string // for example streams[0].tables[1].topic
	Found        string // what was found
	Hint         string // what to write instead
}

// Error prints file:line:column: path: found: fix.
func (p Problem) Error() string {
	text := p.File
	if p.Line > 0 {
		text += fmt.Sprintf(":%d:%d", p.Line, p.Column)
	}
	for _, part := range []string{p.Path, p.Found, p.Hint} {
		if part != "" {
			text += ": " + part
		}
	}
	return text
}

// Problems are the faults of a configuration file, in the file's order.
type Problems []Problem

// Error prints one problem per line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}

func (p Problems) inOrder() Problems {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return p
}

// editDistance counts insertions, deletions, replacements and swaps of
// neighbours (Damerau's optimal string alignment).
func editDistance(a, b string) int {
	if len(a) > 100 || len(b) > 100 {
		return 100
	}
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// meant says what to write instead of an unknown word.
func meant(text string, known []string) string {
	nearest, least := "", max(2, len(text)/3)+1
	for _, word := range known {
		if d := editDistance(strings.ToLower(text), strings.ToLower(word)); d < least {
			nearest, least = word, d
		}
	}
	if nearest == "" || least >= len(text) {
		return "write one of " + strings.Join(known, ", ")
	}
	return "did you mean " + nearest + "?"
}
