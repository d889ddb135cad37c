package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/goccy/go-yaml/ast"

	"github.com/outbox-cdc/outbox-cdc/internal/secret"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// Load reads and checks a configuration file. Where the content is at fault the
// error is a Problems, each with its position, all that could be found at once.
func Load(path string) (*Config, error) {
	data, err := secret.ReadFile(path, maxFile)
	if err != nil {
		return nil, Problems{{File: path, Found: "cannot be read: " + reason(err), Hint: "name a configuration file with --config"}}
	}
	folder, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("find the folder of %s: %w", path, err)
	}
	return parse(data, path, surroundings{folder: folder, env: os.LookupEnv})
}

// Parse checks a configuration's text; file is its name in errors, folder is
// what relative paths are taken from.
func Parse(data []byte, file, folder string) (*Config, error) {
	return parse(data, file, surroundings{folder: folder, env: os.LookupEnv})
}

func parse(data []byte, file string, around surroundings) (*Config, error) {
	root, problem := parseTree(data, file)
	if problem != nil {
		return nil, Problems{*problem}
	}
	b := newBinder(file, around)
	b.anchors = collectAnchors(root)
	cfg := &Config{File: file}
	bindRoot(b, cfg, root)
	check(b, cfg)
	if len(b.problems) > 0 {
		return nil, b.problems.inOrder()
	}
	cfg.Warnings = b.exposedSecrets(cfg)
	return cfg, nil
}

func newBinder(file string, around surroundings) *binder {
	return &binder{file: file, around: around, at: map[string]position{}, written: map[string]string{}, literal: map[string]bool{}}
}

func bindRoot[T any](b *binder, to *T, root ast.Node) {
	setDefault(reflect.ValueOf(to).Elem(), "")
	b.bind(reflect.ValueOf(to).Elem(), root, "", "")
}
