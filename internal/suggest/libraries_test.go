package suggest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// docs/takeover/README.md says of every library that is known whether its table can be
// taken over, with its profile, and if not why not.
func TestLibrariesAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/takeover/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Libraries\n")
	rows := map[string][]string{}
	for line := range strings.Lines(table) {
		if cells := strings.Split(strings.TrimSpace(line), "|"); len(cells) == 6 {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows[cells[1]] = cells[2:5]
		}
	}
	for i := range layouts() {
		l := &layouts()[i]
		row, ok := rows[l.Name]
		switch {
		case !ok:
			t.Errorf("%s is not in the table", l.Name)
		case (l.Refuse != "") != (row[0] == "no") || !slices.Contains([]string{"yes", "in part", "no"}, row[0]):
			t.Errorf("%s: taken over: %q, and known.yaml refuses it with %q", l.Name, row[0], l.Refuse)
		case l.Refuse != "" && row[2] != l.Refuse, row[0] == "in part" && row[2] == "":
			t.Errorf("%s: the reason is %q, in known.yaml %q", l.Name, row[2], l.Refuse)
		case row[1] != l.Profile:
			t.Errorf("%s: the profile is %q, in known.yaml %q", l.Name, row[1], l.Profile)
		}
	}
	for name := range rows {
		if name != "library" && name != "---" && !slices.ContainsFunc(layouts(), func(l layout) bool { return l.Name == name }) {
			t.Errorf("%s is not known", name)
		}
	}
}
