package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Problem is one fault of a configuration file: its position, what was found, and what to write instead. It
// never contains a secret.
type Problem struct {
	File         string
	Line, Column int    // count from 1; 0 for a fault of the file itself
	Path         string // for example streams[0].tables[1].topic
	Found        string // what was found
	Hint         string // what to write instead
}

// Error returns "file:line:column: path: found: fix".
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

// Problems are the faults of a configuration file, in the order of the file.
type Problems []Problem

// Error returns one problem per line.
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

// keyMeant returns what to write instead of a key that is unknown at its place.
func keyMeant(key string, known []string) string {
	if homes := homesOf(key); len(homes) == 1 || len(homes) == 2 { // a key with more places is too common for a suggestion
		return "it belongs elsewhere: write " + strings.Join(homes, " or ")
	}
	return meant(key, known)
}

// homesOf returns the paths at which a file may have the key.
func homesOf(key string) (homes []string) {
	var walk func(t reflect.Type, path string, within []reflect.Type)
	walk = func(t reflect.Type, path string, within []reflect.Type) {
		for k, f := range keyed(t) {
			at := join(path, k)
			if k == key {
				homes = append(homes, at)
			}
			held := f.Type
			for held.Kind() == reflect.Pointer || held.Kind() == reflect.Slice || held.Kind() == reflect.Map {
				at += map[reflect.Kind]string{reflect.Slice: "[]", reflect.Map: ".NAME"}[held.Kind()]
				held = held.Elem()
			}
			if held.Kind() == reflect.Struct && !slices.Contains(within, held) {
				walk(held, at, append(within, held))
			}
		}
	}
	walk(reflect.TypeFor[Config](), "", nil)
	return homes
}

// meant returns what to write instead of an unknown word.
func meant(text string, known []string) string {
	if word := nearest(text, known); word != "" {
		return "did you mean " + word + "?"
	}
	return "write one of " + strings.Join(known, ", ")
}

// nearest returns the known word that was probably meant, or "".
func nearest(text string, known []string) string {
	return outbox.Nearest(text, known, min(max(2, len(text)/3), len(text)-1))
}
