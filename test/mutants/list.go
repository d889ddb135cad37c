package main

import (
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

// unknown are the entries of these packages that name no mutant.
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
