package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The first version is told as a whole, and briefly. Each later one says what changed: by kind, in the order of
// https://keepachangelog.com, and for each change the packages. Migration has the steps that an operator takes.
const firstVersion, firstVersionLines = "1.0.0", 100

var (
	versionHeading = regexp.MustCompile(`^## (?:Unreleased|(\d+\.\d+\.\d+) - (?:\d{4}-\d\d-\d\d|not released))$`)
	changeKinds    = []string{"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Migration"}
	change         = regexp.MustCompile(`^- [a-z][\w/-]*(?:, [a-z][\w/-]*)*: \S`)
)

func TestChangelogHasItsForm(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range changelogFaults(string(text)) {
		t.Error("CHANGELOG.md" + wrong)
	}
}

// changelogFaults says, by line, what is not in the form.
func changelogFaults(text string) (wrong []string) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	version, kind, first := "", "", 0
	for i, line := range lines {
		fault := func(what string) { wrong = append(wrong, fmt.Sprintf(":%d: %s: %q", i+1, what, line)) }
		m := versionHeading.FindStringSubmatch(line)
		switch {
		case m != nil:
			version, kind = m[1], ""
			if version == firstVersion {
				first = i
			}
		case strings.HasPrefix(line, "## "):
			fault("not a version with its date")
		case version == firstVersion:
		case strings.HasPrefix(line, "### "):
			kind = strings.TrimPrefix(line, "### ")
			if !slices.Contains(changeKinds, kind) {
				fault("not a kind of change")
			}
		case strings.HasPrefix(line, "- ") && (kind == "" || !change.MatchString(line)):
			fault("not a change of a package, under its kind")
		}
	}
	switch {
	case first == 0:
		wrong = append(wrong, ": "+firstVersion+" is missing")
	case version != firstVersion:
		wrong = append(wrong, ": "+firstVersion+" is not the last section")
	case len(lines)-first > firstVersionLines:
		wrong = append(wrong, fmt.Sprintf(": %s has %d lines, more than %d", firstVersion, len(lines)-first, firstVersionLines))
	}
	return wrong
}

// The chart's image is the newest version's, unless values name another.
func TestTheChartIsOfTheNewestVersion(t *testing.T) {
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	chart, err := os.ReadFile(filepath.Join(root, "deploy/helm/outbox-cdc/Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+) `).FindSubmatch(changelog)
	if newest == nil {
		t.Fatal("CHANGELOG.md has no version")
	}
	for _, line := range []string{"\nversion: ", "\nappVersion: "} {
		if want := line + string(newest[1]) + "\n"; !strings.Contains(string(chart), want) {
			t.Errorf("Chart.yaml lacks %q", want)
		}
	}
}

func TestChangelogFaultsAreFound(t *testing.T) {
	const oldest = "## 1.0.0 - 2026-12-01\n\nThe first version.\n- any line\n"
	for _, c := range []struct{ name, text, wrong string }{
		{"right", "# Changelog\n\n## Unreleased\n\n### Fixed\n\n- sink, cmd/outbox-cdc: a lock\n  goes on\n\n## 1.0.1 - 2027-01-02\n\n### Added\n\n- sql: x\n" + oldest, ""},
		{"no date", "# Changelog\n## 1.1.0\n" + oldest, ":2: not a version"},
		{"another kind", "# Changelog\n## Unreleased\n### Improved\n" + oldest, ":3: not a kind"},
		{"no package", "# Changelog\n## Unreleased\n### Fixed\n- A lock was kept.\n" + oldest, ":4: not a change"},
		{"no kind", "# Changelog\n## Unreleased\n- sink: a lock\n" + oldest, ":3: not a change"},
		{"no first version", "# Changelog\n## Unreleased\n", "1.0.0 is missing"},
		{"first version on top", "# Changelog\n" + oldest + "## Unreleased\n", "not the last section"},
		{"too long", "# Changelog\n" + oldest + strings.Repeat("- more\n", firstVersionLines), "more than 100"},
	} {
		got := strings.Join(changelogFaults(c.text), "\n")
		if (got == "") != (c.wrong == "") || !strings.Contains(got, c.wrong) {
			t.Errorf("%s: %q, want %q", c.name, got, c.wrong)
		}
	}
}
