package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mayRunUp are the calls of the core that run up, from file to file. Its doc.go says why.
var mayRunUp = []string{"parking -> handback", "publish -> stall"}

// The files of the core are layers, in the order of its doc.go: calls run down, so that it
// can be read from the top.
func TestTheCoresFilesAreLayers(t *testing.T) {
	files, set := map[string]*ast.File{}, token.NewFileSet()
	paths, err := filepath.Glob("../../checkpoint/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if name := layerOf(path); !strings.HasSuffix(name, "_test") && name != "doc" {
			if files[name], err = parser.ParseFile(set, path, nil, parser.SkipObjectResolution); err != nil {
				t.Fatal(err)
			}
		}
	}
	place := layers(t)
	for name := range files {
		if place[name] == 0 {
			t.Errorf("checkpoint/doc.go does not list %s", name)
		}
	}
	if len(place) != len(files) {
		t.Errorf("checkpoint/doc.go lists %d files, there are %d", len(place), len(files))
	}
	var up []string
	for id, used := range usesIn(files, set) {
		from, to := layerOf(set.Position(id.Pos()).Filename), layerOf(set.Position(used.Pos()).Filename)
		if _, call := used.(*types.Func); call && place[from] < place[to] || !call || from == to {
			continue
		}
		up = append(up, from+" -> "+to)
	}
	slices.Sort(up)
	if up = slices.Compact(up); !slices.Equal(up, mayRunUp) {
		t.Errorf("calls run up the list of files in checkpoint/doc.go: %q. It allows %q", up, mayRunUp)
	}
}

func layerOf(path string) string { return strings.TrimSuffix(filepath.Base(path), ".go") }

// layers are the places of the files in the list of the core's doc.go, from 1.
func layers(t *testing.T) map[string]int {
	t.Helper()
	doc, err := os.ReadFile("../../checkpoint/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(doc), "// # Files\n")
	list, _, _ = strings.Cut(list, "// # ")
	place := map[string]int{}
	for i, line := range regexp.MustCompile(`(?m)^//\t(\w+)`).FindAllStringSubmatch(list, -1) {
		place[line[1]] = i + 1
	}
	return place
}

// usesIn are the uses of what the files declare. Other packages are not needed to find them.
func usesIn(files map[string]*ast.File, set *token.FileSet) map[*ast.Ident]types.Object {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: noPackages{}, Error: func(error) {}}
	var all []*ast.File
	for _, f := range files {
		all = append(all, f)
	}
	pkg, _ := conf.Check("checkpoint", set, all, info)
	for id, used := range info.Uses {
		if used.Pkg() != pkg {
			delete(info.Uses, id)
		}
	}
	return info.Uses
}

type noPackages struct{}

func (noPackages) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, filepath.Base(path))
	p.MarkComplete()
	return p, nil
}
