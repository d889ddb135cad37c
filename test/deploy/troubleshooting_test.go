package deploy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
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
// warning and error of the log is on the page, at least by its first words.
func TestTroubleshooting(t *testing.T) {
	said := program(t)
	var quoted []string
	for _, m := range heading.FindAllStringSubmatch(read(t, troubleshooting), -1) {
		quoted = append(quoted, m[1])
		if !said.says(m[1]) {
			t.Errorf("docs/troubleshooting.md: the program does not say %q", m[1])
		}
	}
	for _, message := range said.loud {
		if !slices.ContainsFunc(quoted, func(q string) bool { return begins(message, q) }) {
			t.Errorf("docs/troubleshooting.md lacks ### `%s`", message)
		}
	}
}

// begins: the message is the quoted one, or begins with its parts between ….
func begins(message, quoted string) bool {
	first, _, more := strings.Cut(quoted, "…")
	return message == quoted || more && strings.HasPrefix(message, strings.TrimSpace(first)) && inOrder(message, quoted)
}

// says: the quoted parts, between …, are in one text in this order.
func (s *source) says(quoted string) bool {
	return slices.ContainsFunc(s.texts, func(text string) bool { return inOrder(text, quoted) })
}

func inOrder(text, quoted string) bool {
	for part := range strings.SplitSeq(quoted, "…") {
		_, rest, found := strings.Cut(text, strings.TrimSpace(part))
		if !found {
			return false
		}
		text = rest
	}
	return true
}
