// Package stable holds what 1.x promises to keep: the keys of the configuration, commands and flags, exit codes, the fields of
// the JSON, metrics, and our schema. There is a file for each, a name with its type on each line. A test of the package
// that defines them compares.
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

// Compare fails where a line of the record is not among those of now: those who rely on it would notice. A line that
// the record lacks is something new; with update it is recorded. Update takes no line out of the record: that takes
// a new major version.
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

// TypeName says what a reader or writer of a file sees of a type: Go's own names may change.
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
