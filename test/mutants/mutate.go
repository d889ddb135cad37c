package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mutant is one change of one file.
type mutant struct {
	pkg, file string // relative to the module
	number    int    // in its package's binary
	function  string
	line      int
	kind      string // what is done
	text      string // to what, on one line
	nth       int    // of those alike in the function, from 1
	lastLine  int
	edits     []edit // what has the file do this, when it is the mutant's turn

	fate fate
	by   string // what killed it
}

// edit puts a text into a file, in place of what is between two offsets. A text has %d
// where the mutant's number belongs.
type edit struct {
	from, to int
	with     string
	closes   bool // it ends what another edit of the mutant begins
}

type fate int

const (
	waiting fate = iota
	killed
	alive
	unbuilt
)

func (m *mutant) change() string { return m.kind + ": " + m.text }

// key names the mutant in the list of survivors. Lines move, so it has none.
func (m *mutant) key() string {
	key := m.file + " " + m.function + ": " + m.change()
	if m.nth > 1 {
		key += fmt.Sprintf(" #%d", m.nth)
	}
	return key
}

// generate makes every mutant of a package: conditions that always or never hold,
// one side of && and ||, the other edge of a comparison, a statement left out.
func generate(root, pkg string) ([]*mutant, error) {
	paths, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
	if err != nil {
		return nil, err
	}
	wanted := judges[pkg]
	if wanted == nil {
		return nil, fmt.Errorf("package %q is none of %s", pkg, strings.Join(names(), ", "))
	}
	var all []*mutant
	for _, path := range paths {
		base := filepath.Base(path)
		if strings.HasSuffix(base, "_test.go") || !wanted.includes(base) {
			continue
		}
		found, err := ofFile(path, pkg)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func ofFile(path, pkg string) ([]*mutant, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, path, source, 0)
	if err != nil {
		return nil, err
	}
	f := &mutator{files: files, source: string(source), pkg: pkg, file: filepath.ToSlash(filepath.Join(pkg, filepath.Base(path))), simple: map[ast.Node]bool{}, alike: map[string]int{}}
	for _, d := range tree.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			f.function = nameOf(fn)
			f.results(fn.Type)
			ast.Inspect(fn.Body, f.visit)
		}
	}
	return f.found, nil
}

func nameOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	t := fn.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if generic, ok := t.(*ast.IndexExpr); ok {
		t = generic.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "." + fn.Name.Name
	}
	return fn.Name.Name
}

type mutator struct {
	files       *token.FileSet
	source      string
	pkg, file   string
	function    string
	returnsBool bool
	simple      map[ast.Node]bool // statements where no block may stand, such as i++ of a loop's header
	alike       map[string]int
	found       []*mutant
}

func (f *mutator) results(t *ast.FuncType) {
	f.returnsBool = false
	if t.Results != nil && len(t.Results.List) == 1 && len(t.Results.List[0].Names) < 2 {
		id, ok := t.Results.List[0].Type.(*ast.Ident)
		f.returnsBool = ok && id.Name == "bool"
	}
}

func (f *mutator) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncLit:
		outer := f.returnsBool
		f.results(n.Type)
		ast.Inspect(n.Body, f.visit)
		f.returnsBool = outer
		return false
	case *ast.IfStmt:
		if onlyPanics(n.Body) { // an assertion: nothing can make it fail
			return false
		}
		f.simple[n.Init] = true
		f.condition(n.Cond)
	case *ast.ForStmt:
		f.simple[n.Init], f.simple[n.Post] = true, true
		if n.Cond != nil {
			f.condition(n.Cond)
		}
	case *ast.CommClause: // what is received
		return false
	case *ast.SwitchStmt:
		f.simple[n.Init] = true
		if n.Tag == nil {
			for _, c := range n.Body.List {
				for _, e := range c.(*ast.CaseClause).List {
					f.condition(e)
				}
			}
		}
	case *ast.ReturnStmt:
		if f.returnsBool && len(n.Results) == 1 && !isConstant(n.Results[0]) {
			f.condition(n.Results[0])
		}
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); ok && !isPanic(call) {
			f.leftOut(n)
		}
	case *ast.IncDecStmt, *ast.BranchStmt:
		f.leftOut(n)
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			f.leftOut(n)
		}
	}
	return true
}

// What stands around a condition or statement calls what runtime.go.txt has, which also
// notes that a test came to where the mutant makes a difference.

func (f *mutator) condition(e ast.Expr) {
	f.add("always", e, f.around(e, "(mutantNow == %d || mutantFalse(%d, (", ")))"))
	f.add("never", e, f.around(e, "(mutantNow != %d && mutantTrue(%d, (", ")))"))
}

// edges are the comparisons, what they become, and the function that compares so.
var edges = map[token.Token]struct{ other, compare string }{
	token.LSS: {"<=", "mutantLess"}, token.LEQ: {"<", "mutantLessOrEqual"}, token.GTR: {">=", "mutantGreater"}, token.GEQ: {">", "mutantGreaterOrEqual"},
}

func (f *mutator) binary(e *ast.BinaryExpr) {
	switch edge := edges[e.Op]; {
	case e.Op == token.LAND:
		f.add("left only", e, f.around(e.Y, "(mutantNow == %d || mutantFalse(%d, (", ")))"))
		f.add("right only", e, f.around(e.X, "(mutantNow == %d || mutantFalse(%d, (", ")))"))
	case e.Op == token.LOR:
		f.add("left only", e, f.around(e.Y, "(mutantNow != %d && mutantTrue(%d, (", ")))"))
		f.add("right only", e, f.around(e.X, "(mutantNow != %d && mutantTrue(%d, (", ")))"))
	case edge.other != "":
		at := f.files.Position(e.OpPos).Offset
		edits := f.around(e, edge.compare+"(%d, ", ")")
		f.add(e.Op.String()+" to "+edge.other, e, append(edits, edit{from: at, to: at + len(e.Op.String()), with: ","}))
	}
}

func (f *mutator) leftOut(n ast.Node) {
	if f.simple[n] {
		f.add("left out", n, f.around(n, "mutantDo(%d, func() { ", " })"))
		return
	}
	f.add("left out", n, f.around(n, "if mutantLets(%d) { ", " }"))
}

func (f *mutator) around(n ast.Node, begin, end string) []edit {
	from, to := f.files.Position(n.Pos()).Offset, f.files.Position(n.End()).Offset
	return []edit{{from: from, to: from, with: begin}, {from: to, to: to, with: end, closes: true}}
}

func (f *mutator) text(n ast.Node) string {
	return f.source[f.files.Position(n.Pos()).Offset:f.files.Position(n.End()).Offset]
}

func (f *mutator) add(kind string, n ast.Node, edits []edit) {
	m := &mutant{
		pkg: f.pkg, file: f.file, function: f.function, line: f.files.Position(n.Pos()).Line, lastLine: f.files.Position(n.End()).Line,
		kind: kind, text: strings.Join(strings.Fields(f.text(n)), " "), edits: edits,
	}
	f.alike[m.key()]++
	m.nth = f.alike[m.key()]
	f.found = append(f.found, m)
}

// withMutants returns the file with all its mutants in it; a variable picks one. Lines
// stay where they are. What was found first is outside.
func withMutants(source string, mutants []*mutant, number func(*mutant) int) string {
	type numbered struct {
		edit
		order, number int
	}
	var edits []numbered
	for i, m := range mutants {
		for _, e := range m.edits {
			edits = append(edits, numbered{e, i, number(m)})
		}
	}
	slices.SortStableFunc(edits, func(a, b numbered) int {
		switch {
		case a.from != b.from:
			return cmp.Compare(a.from, b.from)
		case a.closes != b.closes && a.closes:
			return -1
		case a.closes != b.closes:
			return 1
		case a.closes:
			return cmp.Compare(b.order, a.order)
		}
		return cmp.Compare(a.order, b.order)
	})
	var out strings.Builder
	at := 0
	for _, e := range edits {
		out.WriteString(source[at:e.from])
		out.WriteString(strings.ReplaceAll(e.with, "%d", strconv.Itoa(e.number)))
		at = e.to
	}
	return out.String() + source[at:]
}

func isPanic(call *ast.CallExpr) bool {
	id, ok := call.Fun.(*ast.Ident)
	return ok && id.Name == "panic"
}

func onlyPanics(b *ast.BlockStmt) bool {
	if len(b.List) != 1 {
		return false
	}
	s, ok := b.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := s.X.(*ast.CallExpr)
	return ok && isPanic(call)
}

func isConstant(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && (id.Name == "true" || id.Name == "false")
}
