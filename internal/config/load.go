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

// maxFile is the largest size of a configuration file, in bytes.
const maxFile = 1 << 20

// FileVariable is the environment variable that names the configuration file.
const FileVariable = "OUTBOX_CDC_CONFIG"

// DefaultFiles are tried in this order if neither --config nor FileVariable names a file. Packages and the
// container image install the second.
var DefaultFiles = []string{"outbox-cdc.yaml", "/etc/outbox-cdc/outbox-cdc.yaml"}

// Load reads and checks a configuration file; an empty path means the first of DefaultFiles that exists. If
// the content is at fault, the error is a Problems: every fault that could be found at once, with its
// position.
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
	return DefaultFiles[max(0, slices.IndexFunc(DefaultFiles, exists))] // the first if none exists
}

// exists also returns true for a file that cannot be inspected. Reading it then gives the reason.
func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}

// Parse checks the text of a configuration. file is its name in errors. Relative paths start at folder.
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

// bindFile copies a file's text into the struct that to points to. It returns a Problem if the text is not
// YAML. Faults of values are in the binder.
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
