package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const sample = "test/mutants/testdata/sample"

func init() { judges[sample] = &judge{} }

func sampled(t *testing.T) (options, []*mutant) {
	t.Helper()
	o := options{root: "../..", packages: []string{sample}, part: 1, parts: 1, workers: 2, seed: 1}
	all, err := o.mutants()
	if err != nil {
		t.Fatal(err)
	}
	return o, all
}

// The sample's test looks at neither the counter, nor the limit itself, nor the
// left side of Both alone. A loop without end is killed by its time.
func TestSurvivors(t *testing.T) {
	o, all := sampled(t)
	if err := judgeAll(t.Context(), o, all, all); err != nil {
		t.Fatal(err)
	}
	const file = sample + "/sample.go "
	right := []string{
		file + "Clamp: left out: *seen++  # nobody reads it",
		file + "Clamp: > to >=: n > limit  # equivalent",
		file + "Both: right only: a && b  # not looked at",
	}
	for name, c := range map[string]struct {
		listed []string
		wrong  string
	}{
		"all listed":       {right, ""},
		"one not listed":   {right[1:], "not listed:\n  " + file + "Clamp: left out: *seen++"},
		"one not there":    {append(right[:3:3], file+"Gone: left out: x()  # was equivalent"), "there is no such mutant"},
		"one that is dead": {append(right[:3:3], file+"Both: left only: a && b  # thought equivalent"), "a test notices it"},
		"no reason":        {append(right[:3:3], file+"Both: left only: a && b"), ":4: no reason"},
		"twice":            {append(right[:3:3], right[0]), ":4: listed twice"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "survivors.txt")
			if err := os.WriteFile(path, []byte(strings.Join(c.listed, "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			list, err := readList(path)
			if err == nil {
				err = report(all, list, list.unknown(all, o.packages))
			}
			if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
				t.Errorf("got %v, want %q", err, c.wrong)
			}
		})
	}
}

// Parts are disjoint and leave nothing out; the same seed draws the same.
func TestParts(t *testing.T) {
	seen := map[string]int{}
	for part := 1; part <= 3; part++ {
		o, all := sampled(t)
		o.part, o.parts = part, 3
		for _, m := range choose(all, o) {
			seen[m.key()]++
		}
	}
	_, all := sampled(t)
	if len(seen) != len(all) || len(all) < 12 {
		t.Errorf("%d of %d", len(seen), len(all))
	}
	for key, n := range seen {
		if n != 1 {
			t.Errorf("%s is in %d parts", key, n)
		}
	}
}

// The package's documentation says each rule and no other, its change finds its place in the source, and its scenario is a test.
func TestRulesHaveTheirPlaces(t *testing.T) {
	scenarios := ""
	files, err := filepath.Glob("../../checkpoint/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		scenarios += string(text)
	}
	says, err := sentences("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if says[r.name] == "" {
			t.Errorf("rule %s: what does it say? checkpoint/doc.go does not", r.name)
		}
		delete(says, r.name)
		if _, err := r.changed("../.."); err != nil {
			t.Error(err)
		}
		for name := range strings.SplitSeq(r.scenario, "|") {
			if name != "" && !strings.Contains(scenarios, "func "+name+"(") {
				t.Errorf("rule %s: there is no scenario %s", r.name, name)
			}
		}
		if r.scenario == "" && r.unseen != "" {
			t.Errorf("rule %s: neither the simulation nor a scenario shows it", r.name)
		}
	}
	for name := range says {
		t.Errorf("checkpoint/doc.go says %s, which nothing shows to be needed", name)
	}
}

// A name that is no rule's is an error: nothing would be shown of it.
func TestRulesAreNamedRightly(t *testing.T) {
	if _, err := rulesNamed("parkDurable,parkDurably"); err == nil || !strings.Contains(err.Error(), `"parkDurably"`) {
		t.Error(err)
	}
	if named, err := rulesNamed("narrowing,sameRow"); err != nil || len(named) != 2 {
		t.Error(named, err)
	}
	if all, err := rulesNamed("all"); err != nil || len(all) != len(rules) {
		t.Error(len(all), err)
	}
}

// A file name that is nowhere is an error: nothing would be judged.
func TestFilesAreNamedRightly(t *testing.T) {
	o, _ := sampled(t)
	o.files = []string{"nowhere.go"}
	o.listed = "test/mutants/survivors.txt"
	if err := run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "nowhere.go") {
		t.Error(err)
	}
	for name, j := range judges {
		for _, file := range j.files {
			if _, err := os.Stat(filepath.Join("../..", name, file)); err != nil {
				t.Error(err)
			}
		}
	}
}

// The list in the tree is one.
func TestTheListCanBeRead(t *testing.T) {
	if _, err := readList("survivors.txt"); err != nil {
		t.Error(err)
	}
}
