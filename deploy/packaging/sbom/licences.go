package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
)

// licence is a module with its licence's texts.
type licence struct {
	module *debug.Module
	id     string // SPDX
	texts  [][]byte
}

// publicDomain has no SPDX identifier.
const publicDomain = "public domain"

// known are the licences that a dependency may have, told by words that only
// they have. The first that fits counts.
var known = []struct {
	id    string
	words []string
}{
	{"Apache-2.0", []string{"Apache License", "Version 2.0"}},
	{"MPL-2.0", []string{"Mozilla Public License", "2.0"}},
	{"ISC", []string{"Permission to use, copy, modify, and/or distribute this software"}},
	{"ISC", []string{"Permission to use, copy, modify, and distribute this software"}},
	{"MIT", []string{"Permission is hereby granted, free of charge"}},
	{"BSD-3-Clause", []string{"Redistribution and use in source and binary forms", "endorse or promote products"}},
	{"BSD-2-Clause", []string{"Redistribution and use in source and binary forms"}},
	{publicDomain, []string{"been put into the public domain"}},
}

var space = regexp.MustCompile(`\s+`)

func identify(text []byte) (id string, ok bool) {
	flat := space.ReplaceAllString(string(text), " ")
	for _, k := range known {
		fits := true
		for _, words := range k.words {
			fits = fits && strings.Contains(flat, words)
		}
		if fits {
			return k.id, true
		}
	}
	return "", false
}

// licenceFile is what modules call the file; NOTICE belongs to Apache-2.0.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense|notice)([-.].*)?$`)

// licencesOf finds the licence of each module, by path.
func licencesOf(modules []*debug.Module) ([]licence, error) {
	for _, m := range modules {
		if m.Replace != nil {
			return nil, fmt.Errorf("%s is replaced by %s: what is released is what is published", m.Path, m.Replace.Path)
		}
	}
	where, err := folders(modules)
	if err != nil {
		return nil, err
	}
	var all []licence
	for _, m := range sorted(modules) {
		l, err := licenceIn(where[m.Path])
		if err != nil {
			return nil, fmt.Errorf("licence of %s %s: %w", m.Path, m.Version, err)
		}
		l.module = m
		all = append(all, l)
	}
	return all, nil
}

func licenceIn(dir string) (licence, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return licence{}, err
	}
	var l licence
	for _, f := range files {
		if f.IsDir() || !licenceFile.MatchString(f.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return licence{}, err
		}
		l.texts = append(l.texts, bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")))
		if id, ok := identify(text); ok && l.id == "" {
			l.id = id
		}
	}
	if l.id == "" {
		return licence{}, fmt.Errorf("none of the known ones in %s: look at it, and add it to sbom/licences.go if it may be used", dir)
	}
	return l, nil
}
