// Package stable records what every release of 1.x keeps: configuration keys, commands and flags, exit codes,
// JSON fields, metrics, and the program's own database schema. Each kind has a text file here, with one name
// and its type per line. A test of the package that defines the names compares them with the file.
package stable

import (
	"encoding"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const folder = "../../test/stable" // from a package two levels below the root

// Compare fails the test when a recorded line is missing from now: users rely on it. A line of now that is
// not recorded is new: with update, Compare appends it to the file; otherwise the test fails. Compare never
// removes a recorded line. That is done by hand, for a new major version.
func Compare(t *testing.T, name string, now []string, update bool) {
	t.Helper()
	file := filepath.Join(folder, name+".txt")
	text, err := os.ReadFile(file)
	if err != nil && !update {
		t.Fatal(err)
	}
	recorded := strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
	for _, line := range recorded {
		if !slices.Contains(now, line) {
			t.Errorf("%s: %q is gone, which 1.x keeps", file, line)
		}
	}
	added := slices.DeleteFunc(slices.Clone(now), func(line string) bool { return slices.Contains(recorded, line) })
	if len(added) == 0 {
		return
	}
	if !update {
		t.Errorf("%s does not have %q, which are new: make generated", file, added)
		return
	}
	all := append(recorded, added...)
	slices.Sort(all)
	if err := os.WriteFile(file, []byte(strings.Join(slices.Compact(all), "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TypeName describes a type as users of the file see it ("text", "list of integer"), so that renaming a Go
// type changes nothing.
func TypeName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case t.Kind() == reflect.Pointer:
		return TypeName(t.Elem())
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return "text"
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return "list of " + TypeName(t.Elem())
	case reflect.Map:
		return "map of " + TypeName(t.Elem())
	case reflect.Struct:
		return "object"
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "boolean"
	case reflect.Float32, reflect.Float64:
		return "number"
	}
	return "integer"
}
