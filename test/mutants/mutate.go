package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// mutant is one change of one file.
type mutant struct {
	pkg, file string // relative to the module
	function  string
	line      int
	kind      string // what is done
	text      string // to what, on one line
	nth       int    // of those alike in the function, from 1
	from, to  int    // bytes of the file
	with      string // what stands there instead

	fate fate
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
	f := &mutator{files: files, source: string(source), pkg: pkg, file: filepath.ToSlash(filepath.Join(pkg, filepath.Base(path))), alike: map[string]int{}}
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
		f.condition(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			f.condition(n.Cond)
		}
	case *ast.SwitchStmt:
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

func (f *mutator) condition(e ast.Expr) {
	f.add("always", e, "(true || ("+f.text(e)+"))")
	f.add("never", e, "(false && ("+f.text(e)+"))")
}

var edges = map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}

func (f *mutator) binary(e *ast.BinaryExpr) {
	switch other := edges[e.Op]; {
	case e.Op == token.LAND || e.Op == token.LOR:
		f.add("left only", e, "("+f.text(e.X)+")")
		f.add("right only", e, "("+f.text(e.Y)+")")
	case other != "":
		f.add(e.Op.String()+" to "+other, e, f.text(e.X)+" "+other+" "+f.text(e.Y))
	}
}

func (f *mutator) leftOut(n ast.Node) { f.add("left out", n, "") }

func (f *mutator) text(n ast.Node) string {
	return f.source[f.files.Position(n.Pos()).Offset:f.files.Position(n.End()).Offset]
}

func (f *mutator) add(kind string, n ast.Node, with string) {
	from, to := f.files.Position(n.Pos()), f.files.Position(n.End())
	m := &mutant{
		pkg: f.pkg, file: f.file, function: f.function, line: from.Line, kind: kind,
		text: strings.Join(strings.Fields(f.text(n)), " "), from: from.Offset, to: to.Offset, with: with,
	}
	f.alike[m.key()]++
	m.nth = f.alike[m.key()]
	f.found = append(f.found, m)
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
