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

// layered are packages whose files are layers, with the calls that run up, from file to file. Their doc.go says why.
var layered = map[string][]string{
	"checkpoint":        {"parking -> handback", "publish -> stall"},
	"internal/pipeline": nil,
}

// The files of a layered package are in the order of the list in its doc.go: calls run down, so that it
// can be read from the top.
func TestFilesAreLayers(t *testing.T) {
	for dir, mayRunUp := range layered {
		files, set := map[string]*ast.File{}, token.NewFileSet()
		paths, err := filepath.Glob("../../" + dir + "/*.go")
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
		place := layers(t, dir)
		for name := range files {
			if place[name] == 0 {
				t.Errorf("%s/doc.go does not list %s", dir, name)
			}
		}
		if len(place) != len(files) {
			t.Errorf("%s/doc.go lists %d files, there are %d", dir, len(place), len(files))
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
			t.Errorf("calls run up the list of files in %s/doc.go: %q. It allows %q", dir, up, mayRunUp)
		}
	}
}

func layerOf(path string) string { return strings.TrimSuffix(filepath.Base(path), ".go") }

// layers are the places of the files in the list of the package's doc.go, from 1.
func layers(t *testing.T, dir string) map[string]int {
	t.Helper()
	doc, err := os.ReadFile("../../" + dir + "/doc.go")
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
	pkg, _ := conf.Check("layered", set, all, info)
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
