package preflight

import (
	"flag"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/doctable"
)

var update = flag.Bool("update", false, "write the list of docs/check.md again")

// The list of docs/check.md is made from the checks; -update writes it again.
func TestPageIsUpToDate(t *testing.T) {
	doctable.Section(t, "../../docs/check.md", "<!-- checks: made from package preflight by make generated -->", "<!-- checks end -->", pageList(), *update)
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
