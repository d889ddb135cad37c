// Package doctable makes the tables of the documentation that come from structs and the
// comments on their fields: the keys of the configuration, and the fields of the JSON that
// commands print. Tests call it, so that the program links no parser.
package doctable

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// Row is a line of a table in Markdown.
func Row(cells ...string) string {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(c, "|", `\|`)
	}
	return strings.Join(cells, " | ") + "\n"
}

// Section compares what a page has between two lines with what it should have; with update
// it writes that.
func Section(t *testing.T, page, begin, end, want string, update bool) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin+"\n")
	made, after, ok2 := strings.Cut(rest, end+"\n")
	switch {
	case !ok || !ok2:
		t.Errorf("%s has no %s … %s", page, begin, end)
	case made == want:
	case !update:
		t.Errorf("%s is not what the code says below %s: make generated", page, begin)
	default:
		if err := os.WriteFile(page, []byte(before+begin+"\n"+want+end+"\n"+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Keys gives each key that the fields of a struct have in a tag (yaml, json): the path to it after
// prefix, what the field's comment says, and the field. Below it are those of the struct that the
// field holds, where into says so.
func Keys(t reflect.Type, tag, prefix string, into func(reflect.Type) bool, each func(path, meaning string, f reflect.StructField)) {
	for f := range t.Fields() {
		key, _, _ := strings.Cut(f.Tag.Get(tag), ",")
		if key == "" || key == "-" {
			continue
		}
		each(prefix+key, Comment(t, f.Name), f)
		if held, suffix := holds(f.Type); held.Kind() == reflect.Struct && into(held) {
			Keys(held, tag, prefix+key+suffix+".", into, each)
		}
	}
}

// holds is what a pointer, list or map has in it, and what stands for that in a path.
func holds(t reflect.Type) (held reflect.Type, suffix string) {
	for {
		switch t.Kind() {
		case reflect.Pointer:
		case reflect.Slice:
			suffix += "[]"
		case reflect.Map:
			suffix += ".NAME"
		default:
			return t, suffix
		}
		t = t.Elem()
	}
}

// Comment is the comment on a struct or, with its name, on a field, in one line and for readers
// who know the field by its key.
func Comment(t reflect.Type, field string) string {
	return comments(t.PkgPath())[strings.TrimSuffix(t.Name()+"."+field, ".")]
}

var packages = map[string]map[string]string{} // what comments gave

// comments are those on the structs of a package ("Stream") and on their fields ("Stream.Name").
// Its folder is found from that of a test two levels below the root.
func comments(path string) map[string]string {
	if found := packages[path]; found != nil {
		return found
	}
	found := map[string]string{}
	files, _ := filepath.Glob("../../" + strings.TrimPrefix(path, "github.com/outbox-cdc/outbox-cdc/") + "/*.go")
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			panic(err)
		}
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE {
				describe(found, g)
			}
		}
	}
	packages[path] = found
	return found
}

func describe(found map[string]string, g *ast.GenDecl) {
	spec, ok := g.Specs[0].(*ast.TypeSpec)
	if !ok {
		return
	}
	t, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	found[spec.Name.Name] = sentence(g.Doc.Text(), spec.Name.Name)
	for _, f := range t.Fields.List {
		for _, name := range f.Names {
			found[spec.Name.Name+"."+name.Name] = sentence(f.Doc.Text(), name.Name)
		}
	}
}

// sentence turns a Go comment, which begins with the field's name, into one for
// readers of the file, who know it by its key: "X is the", "X makes" become
// "The", "Makes"; "Rows in memory" stays.
func sentence(doc, field string) string {
	text := strings.Join(strings.Fields(doc), " ")
	rest, ok := strings.CutPrefix(text, field+" ")
	verb, _, _ := strings.Cut(rest, " ")
	switch {
	case !ok, verb == "columns", verb == "values", verb != "are" && !strings.HasSuffix(verb, "s"):
		return text
	case verb == "is", verb == "are":
		_, rest, _ = strings.Cut(rest, " ")
	}
	return strings.ToUpper(rest[:1]) + rest[1:]
}
