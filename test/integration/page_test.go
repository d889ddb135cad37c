package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	root = "../.."
	page = root + "/docs/internals/reliability.md"
)

var (
	named   = regexp.MustCompile("(?:`([a-z/]+)`: )?`((?:Test|Fuzz)[A-Z]\\w*)`")
	defined = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
	promise = regexp.MustCompile(`(?ms)^(?:- )?\*\*.*?(?:^ *<!-- tests: |^(?:- )?\*\*|^#|\z)`)
	proofs  = regexp.MustCompile(`<!-- tests: (.*?) -->`)
)

// docs/internals/reliability.md names every test of this package and none that is not there.
func TestThePageNamesTheTests(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	exist := allTests(t)
	told := map[string]bool{}
	for _, m := range named.FindAllStringSubmatch(string(text), -1) {
		told[m[2]] = true
		if !slices.ContainsFunc(exist[m[2]], func(dir string) bool { return m[1] == "" || dir == m[1] }) {
			t.Errorf("docs/internals/reliability.md names %s, which is no test of %q", m[2], m[1])
		}
	}
	for name, dirs := range exist {
		if slices.Contains(dirs, "test/integration") && !told[name] && name != t.Name() && name != "TestThePromisesNameTheirTests" && name != "TestMain" {
			t.Errorf("docs/internals/reliability.md does not name %s", name)
		}
	}
}

// promising are the pages whose promises name in comments the tests that fail where one is not kept: what begins in bold,
// between two headings.
var promising = []struct{ page, from, to string }{
	{"docs/security.md", "## Writer", ""},
	{"README.md", "## What is promised", "The limits:"},
	{"docs/operations.md", "# Operations", ""},
}

// Each promise names tests that there are, and each test of test/security is named.
func TestThePromisesNameTheirTests(t *testing.T) {
	exist, told := allTests(t), map[string]bool{}
	for _, p := range promising {
		text, err := os.ReadFile(root + "/" + p.page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range proofs.FindAllStringSubmatch(string(text), -1) {
			for name := range strings.SplitSeq(m[1], ", ") {
				if told[name] = true; exist[name] == nil {
					t.Errorf("%s names %s, which is no test", p.page, name)
				}
			}
		}
		_, promised, found := strings.Cut(string(text), p.from+"\n")
		if p.to != "" && found {
			promised, _, found = strings.Cut(promised, "\n"+p.to+"\n")
		}
		if !found {
			t.Fatalf("%s lacks %q or %q", p.page, p.from, p.to)
		}
		for _, m := range promise.FindAllString(promised, -1) {
			if !strings.HasSuffix(m, "<!-- tests: ") {
				t.Errorf("%s names no test of: %.80s", p.page, m)
			}
		}
	}
	for name, dirs := range exist {
		if slices.Contains(dirs, "test/security") && !told[name] {
			t.Errorf("no page names %s", name)
		}
	}
}

// allTests returns the folders in which each test is defined.
func allTests(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, pattern := range []string{root + "/*/*_test.go", root + "/cmd/*/*_test.go", root + "/test/*/*_test.go", root + "/internal/*/*_test.go", root + "/internal/*/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dir := strings.TrimPrefix(strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), root+"/"), "internal/")
			for _, m := range defined.FindAllStringSubmatch(string(text), -1) {
				found[m[1]] = append(found[m[1]], dir)
			}
		}
	}
	return found
}
