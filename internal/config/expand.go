package config

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/secret"
)

// A string in the file is literal text with references. ${env:NAME} and ${file:PATH} may stand anywhere,
// ${column} only in a topic template. $${ stands for the text ${. The string is split once, so the content of
// a variable or a file is never searched for references.

type partKind uint8

const (
	partText partKind = iota
	partEnv
	partFile
	partColumn
)

type part struct {
	kind partKind
	text string // the literal text, or the text between the braces without its prefix
}

// splitReferences splits a string into literals and references.
func splitReferences(text string) ([]part, error) {
	var parts []part
	literal := ""
	for text != "" {
		before, after, found := strings.Cut(text, "${")
		if !found {
			literal += text
			break
		}
		if before, escaped := strings.CutSuffix(before, "$"); escaped {
			literal, text = literal+before+"${", after
			continue
		}
		inner, rest, closed := strings.Cut(after, "}")
		if !closed {
			return nil, errors.New("a ${ without its }: close it, or write $${ for the text ${")
		}
		if literal += before; literal != "" {
			parts = append(parts, part{partText, literal})
		}
		parts = append(parts, reference(inner))
		literal, text = "", rest
	}
	if literal != "" || len(parts) == 0 {
		parts = append(parts, part{partText, literal})
	}
	return parts, nil
}

func reference(inner string) part {
	if name, ok := strings.CutPrefix(inner, "env:"); ok {
		return part{partEnv, name}
	}
	if path, ok := strings.CutPrefix(inner, "file:"); ok {
		return part{partFile, path}
	}
	return part{partColumn, inner}
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// isNone reports whether the part looks like a reference, but is none outside of templates.
func (p part) isNone() bool {
	return p.kind == partColumn || p.kind == partEnv && !variableName.MatchString(p.text)
}

// surroundings are the sources that a configuration file may refer to.
type surroundings struct {
	folder string // the configuration file's folder
	env    func(string) (string, bool)
}

// maxReferencedFile is the largest size of a file that ${file:…} names, in bytes.
const maxReferencedFile = 1 << 20

func (s surroundings) resolve(p part) (string, error) {
	switch p.kind {
	case partEnv:
		if !variableName.MatchString(p.text) {
			return "", fmt.Errorf("${env:%s} names no variable: write letters, digits and _, for example ${env:KAFKA_PASSWORD}", p.text)
		}
		value, ok := s.env(p.text)
		if !ok {
			return "", fmt.Errorf("the environment variable %s is not set: set it, or write the value here", p.text)
		}
		return value, nil
	case partFile:
		if p.text == "" {
			return "", errors.New("${file:} names no file: write a path, for example ${file:/run/secrets/kafka}")
		}
		path := s.absolute(p.text)
		data, err := secret.ReadFile(path, maxReferencedFile)
		if err != nil {
			return "", fmt.Errorf("the file %s of ${file:…} cannot be read: %s", path, reason(err))
		}
		// Most editors and secret stores add a newline at the end.
		return strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"), nil
	case partColumn:
		if variableName.MatchString(p.text) {
			return "", fmt.Errorf("${%s} is no reference here: write ${env:%s} for the environment variable, or $${%s} for this very text", p.text, p.text, p.text)
		}
		return "", fmt.Errorf("${%s} is no reference: write ${env:NAME}, ${file:PATH}, or $${ for the text ${", p.text)
	}
	return p.text, nil
}

func (s surroundings) absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(s.folder, path)
}

// reason returns an error of the file system without the path, which the message has already.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// text joins parts into a string. A column is an error.
func (s surroundings) text(parts []part) (string, error) {
	var out strings.Builder
	for _, p := range parts {
		value, err := s.resolve(p)
		if err != nil {
			return "", err
		}
		out.WriteString(value)
	}
	return out.String(), nil
}

// template joins parts into a template, with its columns.
func (s surroundings) template(parts []part) (outbox.Template, error) {
	t := outbox.Template{Literals: []string{""}}
	for _, p := range parts {
		if p.kind == partColumn {
			if !isIdentifier(p.text) {
				return outbox.Template{}, fmt.Errorf("${%s} names no column: write ${column}", p.text)
			}
			t.Columns = append(t.Columns, outbox.Expr{Column: p.text})
			t.Literals = append(t.Literals, "")
			continue
		}
		value, err := s.resolve(p)
		if err != nil {
			return outbox.Template{}, err
		}
		t.Literals[len(t.Literals)-1] += value
	}
	return t, nil
}

// isIdentifier reports whether a name is a possible PostgreSQL identifier: 1 to 63 bytes (NAMEDATALEN-1)
// without NUL.
func isIdentifier(name string) bool {
	return name != "" && len(name) <= 63 && !strings.ContainsRune(name, 0)
}
