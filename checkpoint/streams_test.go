package checkpoint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// One process runs many streams, each with a Core of its own. They cannot mix, since
// the package has no variables: everything that a Core knows is in it. So the
// simulation has one stream.
func TestStreamsShareNothing(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if g, is := d.(*ast.GenDecl); is && g.Tok == token.VAR {
				t.Errorf("%s has a variable outside of functions", name)
			}
		}
	}
}
