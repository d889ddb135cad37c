package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// private are words that only the program's authors would understand, or that stood for several
// things at once. Use PostgreSQL's, Kafka's or Go's word. Those of our own are in the glossary.
var private = strings.Fields("agenda anew beside besides crowd desk heed lane leash mend nudge patience scout")

var parts = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`) // of a name in camel case

func TestNamesAreTheFieldsWords(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if strings.HasPrefix(name, "test/") {
			continue
		}
		for _, file := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					for _, part := range parts.FindAllString(id.Name, -1) {
						if slices.Contains(private, strings.TrimSuffix(strings.ToLower(part), "s")) {
							t.Errorf("%s/%s: the name %s", name, file, id.Name)
						}
					}
				}
				return true
			})
		}
	}
}

// The glossary stays short enough to be read.
func TestTheGlossaryIsShort(t *testing.T) {
	text, err := os.ReadFile("../../docs/internals/design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, words, _ := strings.Cut(string(text), "\n### Words\n")
	words, _, _ = strings.Cut(words, "\n## ")
	entries := regexp.MustCompile(`(?m)^\| \*\*([^*]+)\*\* \|`).FindAllStringSubmatch(words, -1)
	if len(entries) < 10 || len(entries) > 20 {
		t.Errorf("%d words of our own, of at most 20", len(entries))
	}
}

// A newcomer finds each package in the design.
func TestTheDesignNamesEveryPackage(t *testing.T) {
	text, err := os.ReadFile("../../docs/internals/design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, packages, _ := strings.Cut(string(text), "\n## The packages\n")
	packages, _, _ = strings.Cut(packages, "\nArrows point down")
	for name := range arrows {
		last := name[strings.LastIndex(name, "/")+1:]
		if !regexp.MustCompile(`(?m)^[a-z /,-]*\b` + last + `\b`).MatchString(packages) {
			t.Errorf("package %s is not among the packages", name)
		}
	}
}
