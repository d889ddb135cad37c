package config

import (
	"slices"
	"strings"
	"testing"
)

// Whatever text a reference or a topic's template is, it is taken apart or
// refused, and what is outside of references comes out as it was.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{
		"", "plain", "outbox.event.${aggregatetype}", "$${not}${a}$", "${env:HOME}", "${env:}", "${file:/etc/x", "${}", "${a}${b}", "$$${x}", "$$${env:0", "${${a}}", "${a\x00}",
	} {
		f.Add(seed, "value ${env:B}")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		around := surroundings{folder: t.TempDir(), env: func(string) (string, bool) { return value, true }}
		parts, err := splitReferences(text)
		if err != nil {
			if parts != nil || !strings.Contains(err.Error(), "${") {
				t.Fatalf("%q: %v, %v", text, parts, err)
			}
			return
		}
		if !strings.Contains(text, "${") && (len(parts) != 1 || parts[0] != part{partText, text}) {
			t.Fatalf("%q, which has no reference, became %v", text, parts)
		}
		made, err := around.template(parts)
		if err != nil {
			return
		}
		if len(made.Literals) != len(made.Columns)+1 {
			t.Fatalf("%q: %+v", text, made)
		}
		for _, column := range made.Columns {
			if !isIdentifier(column.Column) || !strings.Contains(text, "${"+column.Column+"}") {
				t.Fatalf("%q has column %q", text, column.Column)
			}
		}
		// What a variable holds is never read as a reference again. $${ is no reference.
		asked := slices.ContainsFunc(parts, func(p part) bool { return p.kind == partEnv })
		if again := strings.Join(made.Literals, ""); asked && !strings.Contains(again, value) {
			t.Fatalf("%q lost the value %q: %q", text, value, again)
		}
	})
}
