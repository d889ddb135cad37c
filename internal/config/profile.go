package config

import (
	"embed"
	"fmt"
	"path"
	"strings"
)

// Profile is a ready-made mapping, written in the same language as a table's mapping.
type Profile struct {
	Name string `yaml:"-"`
	// Summary says in one line which software the table belongs to.
	Summary string `yaml:"summary" required:"true"`

	MappingSpec `yaml:",inline"`

	// Source is the profile's YAML text.
	Source string `yaml:"-"`
}

//go:embed profiles/*.yaml
var profileFiles embed.FS

// ProfileNames returns the names of the embedded profiles, sorted.
func ProfileNames() []string {
	entries, err := profileFiles.ReadDir("profiles")
	if err != nil {
		panic("config: embedded profiles: " + err.Error())
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), ".yaml")
	}
	return names
}

// LoadProfile reads an embedded profile. Each call returns a new copy, which the caller may change.
func LoadProfile(name string) (*Profile, error) {
	file := path.Join("profiles", name+".yaml")
	data, err := profileFiles.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("unknown profile %q: %s", name, meant(name, ProfileNames()))
	}
	p := &Profile{Name: name, Source: string(data)}
	b, problem := bindFile(p, data, file, surroundings{env: func(string) (string, bool) { return "", false }})
	if problem != nil {
		return nil, problem
	}
	if len(b.problems) > 0 {
		return nil, b.problems.inOrder()
	}
	return p, nil
}

// startFromProfile fills a table with its profile's mapping, before the table's own keys are bound over it.
func (b *binder) startFromProfile(t *Table, pairs []pair, at string) {
	for _, p := range pairs {
		name, ok := scalarText(b.plain(p.value))
		if p.key != "profile" || !ok {
			continue
		}
		profile, err := LoadProfile(name)
		if err != nil {
			b.at[join(at, "profile")] = p.at
			b.complain(join(at, "profile"), fmt.Sprintf("unknown profile %q", name), meant(name, ProfileNames()))
			return
		}
		t.MappingSpec = profile.MappingSpec
	}
}
