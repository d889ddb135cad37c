package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Only this file uses the YAML library's tree directly.

// parseTree parses a file that has one YAML document.
func parseTree(data []byte, file string) (ast.Node, *Problem) {
	tree, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, syntaxProblem(err, file)
	}
	var body ast.Node
	for _, doc := range tree.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			at := where(doc.Body)
			return nil, &Problem{File: file, Line: at.line, Column: at.column, Found: "a second document begins here", Hint: "put everything into one, without ---"}
		}
		body = doc.Body
	}
	if body == nil {
		return nil, &Problem{File: file, Line: 1, Column: 1, Found: "the file is empty", Hint: "write kafka: and streams:"}
	}
	return body, nil
}

// syntaxProblem takes the message and the position from a syntax error. It leaves out the excerpt that the
// library prints, because that line may hold a password.
func syntaxProblem(err error, file string) *Problem {
	p := &Problem{File: file, Line: 1, Column: 1, Found: "this is not YAML", Hint: "check the indentation, the quotes and the brackets around here"}
	var syntax yaml.Error
	if errors.As(err, &syntax) {
		message, _, _ := strings.Cut(syntax.GetMessage(), "\n")
		p.Found += ": " + message
		if at := syntax.GetToken(); at != nil && at.Position != nil {
			p.Line, p.Column = at.Position.Line, at.Position.Column
		}
	}
	return p
}

// anchors are the nodes that aliases refer to, by name.
type anchors map[string]ast.Node

// Visit implements ast.Visitor: it collects anchors.
func (f anchors) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok {
		f[a.Name.String()] = a.Value
	}
	return f
}

// plain follows anchors, aliases and tags to the node that they stand for.
func (b *binder) plain(n ast.Node) ast.Node {
	for range 100 { // an alias may stand for another one, but not for itself without end
		switch node := n.(type) {
		case *ast.AnchorNode:
			n = node.Value
		case *ast.AliasNode:
			n = b.anchors[node.Value.String()]
		case *ast.TagNode:
			n = node.Value
		default:
			return n
		}
	}
	return nil
}

type pair struct {
	key   string
	at    position
	value ast.Node
}

// pairs returns the keys and values of a mapping, with merge keys (<<) applied. Keys of the mapping itself
// take precedence over merged ones.
func (b *binder) pairs(n ast.Node) ([]pair, bool) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		return nil, false
	}
	var own, merged []pair
	for _, v := range m.Values {
		if v.Key.IsMergeKey() {
			merged = append(merged, b.mergedPairs(v.Value)...)
			continue
		}
		key, ok := scalarText(b.plain(v.Key))
		if !ok {
			key = v.Key.String()
		}
		own = append(own, pair{key: key, at: where(v.Key), value: v.Value})
	}
	seen := map[string]bool{}
	for _, p := range own {
		seen[p.key] = true
	}
	for _, p := range merged {
		if !seen[p.key] {
			seen[p.key] = true
			own = append(own, p)
		}
	}
	return own, true
}

// mergedPairs returns the pairs of a merge key's value, which is an alias or a list of aliases. A merge key
// inside them is not applied, which bounds the work.
func (b *binder) mergedPairs(n ast.Node) []pair {
	sources := []ast.Node{n}
	if seq, ok := b.plain(n).(*ast.SequenceNode); ok {
		sources = seq.Values
	}
	var all []pair
	for _, s := range sources {
		m, ok := b.plain(s).(*ast.MappingNode)
		if !ok {
			continue
		}
		for _, v := range m.Values {
			if key, ok := scalarText(b.plain(v.Key)); ok && !v.Key.IsMergeKey() {
				all = append(all, pair{key: key, at: where(v.Key), value: v.Value})
			}
		}
	}
	return all
}

func isNull(n ast.Node) bool {
	_, null := n.(*ast.NullNode)
	return n == nil || null
}

// scalarText returns a scalar exactly as written. So a number that is meant as text, such as a password 0123,
// is not changed.
func scalarText(n ast.Node) (string, bool) {
	switch node := n.(type) {
	case *ast.StringNode:
		return node.Value, true
	case *ast.LiteralNode:
		return node.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return node.GetToken().Value, true
	}
	return "", false
}

func kind(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode:
		return "keys and values"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "a text"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	}
	return fmt.Sprintf("a %T", n)
}

// where returns the position of a node's first character.
func where(n ast.Node) position {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return where(m.Values[0].Key)
	}
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return position{1, 1}
	}
	at := n.GetToken().Position
	return position{at.Line, at.Column}
}
