package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"github.com/outbox-cdc/outbox-cdc/internal/secret"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// FileVariable is the environment variable that names the configuration file.
const FileVariable = "OUTBOX_CDC_CONFIG"

// DefaultFiles are looked for, in this order, where neither --config nor
// FileVariable names a file. Packages and the image have the second.
var DefaultFiles = []string{"outbox-cdc.yaml", "/etc/outbox-cdc/outbox-cdc.yaml"}

// Load reads and checks a configuration file, by default the first of DefaultFiles.
// Where the content is at fault the error is a Problems, each with its position, all
// that could be found at once.
func Load(path string) (*Config, error) {
	if path == "" {
		path = defaultFile(os.LookupEnv, exists)
	}
	data, err := secret.ReadFile(path, maxFile)
	if err != nil {
		return nil, Problems{{File: path, Found: "cannot be read: " + reason(err), Hint: "name a configuration file with --config or in " + FileVariable}}
	}
	folder, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("find the folder of %s: %w", path, err)
	}
	return parse(data, path, surroundings{folder: folder, env: os.LookupEnv})
}

func defaultFile(env func(string) (string, bool), exists func(string) bool) string {
	if file, _ := env(FileVariable); file != "" {
		return file
	}
	return DefaultFiles[max(0, slices.IndexFunc(DefaultFiles, exists))] // the first, where none exists
}

// exists is also true for what cannot be looked at: reading it then says why.
func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}

// Parse checks a configuration's text; file is its name in errors, folder is
// what relative paths are taken from.
func Parse(data []byte, file, folder string) (*Config, error) {
	return parse(data, file, surroundings{folder: folder, env: os.LookupEnv})
}

func parse(data []byte, file string, around surroundings) (*Config, error) {
	cfg := &Config{File: file}
	b, problem := bindFile(cfg, data, file, around)
	if problem != nil {
		return nil, Problems{*problem}
	}
	if !b.asked {
		check(b, cfg)
	}
	if len(b.problems) > 0 {
		return nil, b.problems.inOrder()
	}
	cfg.Warnings, cfg.credentials = b.exposedSecrets(cfg), b.credentials
	return cfg, nil
}

// bindFile copies a file's text into the struct that to points at. Its problem is that of
// a text without a tree; those of values are in the binder.
func bindFile(to any, data []byte, file string, around surroundings) (*binder, *Problem) {
	root, problem := parseTree(data, file)
	if problem != nil {
		return nil, problem
	}
	b := &binder{file: file, around: around, anchors: anchors{}, at: map[string]position{}, written: map[string]string{}, literal: map[string]bool{}}
	ast.Walk(b.anchors, root)
	value := reflect.ValueOf(to).Elem()
	setDefault(value, "")
	b.bind(value, root, "", "")
	return b, nil
}
