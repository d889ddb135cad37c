package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// list holds the survivors that are right: a line each, the mutant's key, two
// spaces, # and the reason in one line.
type list struct{ reasons map[string]string }

func readList(path string) (*list, error) {
	text, err := os.ReadFile(path) // #nosec G304 -- given by the person who runs it
	if err != nil {
		return nil, err
	}
	l, n := &list{reasons: map[string]string{}}, 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, reason, ok := strings.Cut(line, "  # ")
		if !ok || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("%s:%d: no reason; write the mutant's key, two spaces, # and why no test notices it", path, n)
		}
		if _, double := l.reasons[strings.TrimSpace(key)]; double {
			return nil, fmt.Errorf("%s:%d: listed twice", path, n)
		}
		l.reasons[strings.TrimSpace(key)] = reason
	}
	return l, nil
}

// unknown returns the entries of these packages that name no mutant.
func (l *list) unknown(all []*mutant, packages []string) []string {
	known := map[string]bool{}
	for _, m := range all {
		known[m.key()] = true
	}
	var out []string
	for key := range l.reasons {
		file, _, _ := strings.Cut(key, " ")
		if i := strings.LastIndex(file, "/"); i >= 0 && slices.Contains(packages, file[:i]) && !known[key] {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// known returns the fates that an earlier run has remembered.
func (o *options) known() (map[string]fate, error) {
	known := map[string]fate{}
	text, err := os.ReadFile(o.results)
	if o.results == "" || os.IsNotExist(err) {
		return known, nil
	}
	for line := range strings.Lines(string(text)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), "\t")
		key, _, _ := strings.Cut(rest, "\t")
		known[key] = map[string]fate{"killed": killed, "alive": alive}[word]
	}
	return known, err
}

// remember notes what was judged, and what killed it.
func (o *options) remember(m *mutant) {
	if o.results == "" || m.fate != killed && m.fate != alive {
		return
	}
	file, err := os.OpenFile(o.results, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) // #nosec G304 -- given by the person who runs it
	if err == nil {
		_, err = fmt.Fprintf(file, "%s\t%s\t%s\n", map[fate]string{killed: "killed", alive: "alive"}[m.fate], m.key(), m.by)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
	}
}
