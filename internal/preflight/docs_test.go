package preflight

import (
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the list of docs/check.md again")

const page = "../../docs/check.md"

// The list of docs/check.md is made from the checks; -update writes it again.
func TestPageIsUpToDate(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- checks: made from package preflight by make generated -->\n", "<!-- checks end -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	listed, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("the markers are gone")
	}
	want := pageList()
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if listed != want {
		t.Error("docs/check.md is not what package preflight says; make generated")
	}
}

func pageList() string {
	var out strings.Builder
	out.WriteString("\n| check | looks at | levels |\n|---|---|---|\n")
	for _, c := range checks() {
		out.WriteString("| `" + c.name + "` | " + cell(c.looks) + " | " + cell(c.levels) + " |\n")
	}
	return out.String() + "\n"
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// Every check says all that its page needs, under a name of its own.
func TestChecksAreDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range checks() {
		switch {
		case c.name == "" || seen[c.name]:
			t.Errorf("a check has no name of its own: %q", c.name)
		case c.looks == "" || c.levels == "" || c.judge == nil:
			t.Errorf("%s does not say what it looks at and its levels", c.name)
		case c.why == "" && !strings.HasPrefix(c.levels, "always OK"):
			t.Errorf("%s does not say why it matters", c.name)
		}
		seen[c.name] = true
	}
	if len(seen) < 20 {
		t.Errorf("%d checks", len(seen))
	}
}

// The page names every field of the JSON.
func TestFieldsAreDocumented(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[Report](), reflect.TypeFor[Summary](), reflect.TypeFor[Finding](), reflect.TypeFor[Difference]()} {
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name != "" && !strings.Contains(string(text), "`"+name+"`") && !strings.Contains(string(text), "]."+name+"`") && !strings.Contains(string(text), "`"+name+"[]") {
				t.Errorf("%s.%s: %s is not on the page", typ.Name(), f.Name, name)
			}
		}
	}
}
