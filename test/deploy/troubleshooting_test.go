package deploy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const troubleshooting = root + "/docs/troubleshooting.md"

// source is what the program can say: every text in its code, adjacent parts of
// a text joined, and the messages of its warnings and errors.
type source struct {
	texts []string
	loud  []string // logged as a warning or an error
}

// programs are the packages whose texts people see while the program runs.
func program(t *testing.T) source {
	t.Helper()
	var s source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if name == "test" || name == "demo" || name == "localpg" || name == "bin" || name == "testdata" || name == "fixture" || name != ".." && strings.HasPrefix(name, ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool { s.take(n); return true })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *source) take(n ast.Node) {
	e, ok := n.(ast.Expr)
	if !ok {
		return
	}
	if text := text(e); text != "" {
		s.texts = append(s.texts, text)
	}
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return
	}
	if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Msg" && loud(f.X) {
		if text := text(call.Args[0]); text != "" {
			s.loud = append(s.loud, text)
		}
	}
}

// text is that of a literal or of a sum that has some; what is not literal reads
// as …, and so does a verb of fmt.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			if s, err := strconv.Unquote(e.Value); err == nil {
				return verb.ReplaceAllString(s, "…")
			}
		}
	case *ast.BinaryExpr:
		left, right := text(e.X), text(e.Y)
		if e.Op == token.ADD && left+right != "" {
			return or(left) + or(right)
		}
	}
	return ""
}

var verb = regexp.MustCompile(`%(?:\[\d\])?[a-z]`)

func or(s string) string {
	if s == "" {
		return "…"
	}
	return s
}

// loud says whether a chain of zerolog begins with a warning or an error, or
// with an event that was begun elsewhere.
func loud(e ast.Expr) bool {
	for {
		call, ok := e.(*ast.CallExpr)
		if !ok {
			return true
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		switch f.Sel.Name {
		case "Warn", "Error", "WithLevel":
			return true
		case "Info", "Debug", "Trace":
			return false
		}
		e = f.X
	}
}

var heading = regexp.MustCompile("(?m)^### `(.+)`$")

// Each message that the page quotes is one that the program can say, and each
// warning and error of the log is on the page.
func TestTroubleshooting(t *testing.T) {
	said := program(t)
	quoted := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(read(t, troubleshooting), -1) {
		quoted[m[1]] = true
		if !said.says(m[1]) {
			t.Errorf("docs/troubleshooting.md: the program does not say %q", m[1])
		}
	}
	for _, message := range said.loud {
		if !quoted[message] {
			t.Errorf("docs/troubleshooting.md lacks ### `%s`", message)
		}
	}
}

// says: the quoted parts, between …, stand in one text in this order.
func (s *source) says(quoted string) bool {
	for _, text := range s.texts {
		at, all := 0, true
		for part := range strings.SplitSeq(quoted, "…") {
			i := strings.Index(text[at:], part)
			if all = i >= 0; !all {
				break
			}
			at += i + len(part)
		}
		if all {
			return true
		}
	}
	return false
}
