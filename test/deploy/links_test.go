package deploy

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link   = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	title  = regexp.MustCompile(`(?m)^#{1,6} +(.*?) *$`)
	fenced = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	// What GitHub and GitLab leave out of a heading to make its anchor.
	unanchored = regexp.MustCompile(`[^\p{L}\p{N}\p{M} _-]`)
	linked     = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// Every link from one of our pages to another leads to a file, and to a heading of it.
func TestLinks(t *testing.T) {
	links := 0
	for _, file := range files(t) {
		if !strings.HasSuffix(file, ".md") {
			continue
		}
		text := fenced.ReplaceAllString(read(t, filepath.Join(root, file)), "")
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			target, err := url.Parse(m[1])
			if err != nil {
				t.Errorf("%s: %s: %v", file, m[1], err)
				continue
			}
			if target.IsAbs() {
				continue
			}
			links++
			to := filepath.Join(filepath.Dir(file), target.Path)
			if target.Path == "" {
				to = file
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s: the link %s leads nowhere", file, m[1])
			} else if target.Fragment != "" && !anchors(t, to)[target.Fragment] {
				t.Errorf("%s: the link %s leads to no heading of %s", file, m[1], to)
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links were looked at", links)
	}
}

var (
	aTest    = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w+)`")
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
)

// Every test that a page names is one.
func TestNamedTestsExist(t *testing.T) {
	tests, named := map[string]bool{}, 0
	for _, file := range filesIn(t, "*_test.go") {
		for _, m := range testFunc.FindAllStringSubmatch(read(t, filepath.Join(root, file)), -1) {
			tests[m[1]] = true
		}
	}
	for _, file := range files(t) {
		if !strings.HasSuffix(file, ".md") {
			continue
		}
		for _, m := range aTest.FindAllStringSubmatch(read(t, filepath.Join(root, file)), -1) {
			if named++; !tests[m[1]] {
				t.Errorf("%s names %s, which is no test", file, m[1])
			}
		}
	}
	if named < 100 {
		t.Errorf("only %d names were looked at", named)
	}
}

var ours = regexp.MustCompile(`(?i)\b(parks?|parked|sweeps?|swept|sweeper|handed back)\b`)

// Our own words on a page for users are one click from what they mean.
func TestOurWordsAreExplained(t *testing.T) {
	for _, file := range files(t) {
		if !strings.HasSuffix(file, ".md") || !strings.HasPrefix(file, "docs/") || strings.HasPrefix(file, "docs/internals/") || strings.HasPrefix(file, "docs/takeover/") {
			continue
		}
		text := fenced.ReplaceAllString(madeByCode.ReplaceAllString(read(t, filepath.Join(root, file)), ""), "")
		if word := ours.FindString(title.ReplaceAllString(prose(text), "")); word != "" && !strings.Contains(text, "#words)") && file != "docs/faq.md" {
			t.Errorf("%s says %q, and has no link to the words in docs/faq.md", file, word)
		}
	}
}

func anchors(t *testing.T, file string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, m := range title.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, filepath.Join(root, file)), ""), -1) {
		text := linked.ReplaceAllString(m[1], "$1")
		all[strings.ReplaceAll(strings.ToLower(unanchored.ReplaceAllString(text, "")), " ", "-")] = true
	}
	return all
}
