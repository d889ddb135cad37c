package suggest

import (
	_ "embed" // the layouts
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"
)

// layout is a table that a library makes.
type layout struct {
	Name    string   `yaml:"name"`
	Columns []string `yaml:"columns"`
	// Tables: the table must also have one of these names.
	Tables []string `yaml:"tables"`
	// Exactly: the columns' names must be written in exactly this way.
	Exactly bool `yaml:"exactly"`
	// Without: the table must have none of these columns.
	Without []string `yaml:"without"`
	// Holds: the column's JSON must have this field in every sampled row, and there must be sampled rows.
	Holds map[string]string `yaml:"holds"`

	Refuse  string `yaml:"refuse"`
	Profile string `yaml:"profile"`
	// Topic is the column with the event's type, if the profile leaves the topic open.
	Topic  string        `yaml:"topic"`
	Set    yaml.MapSlice `yaml:"set"`
	Remove []string      `yaml:"remove"`
	// Ask are questions, by the key that the answer is for.
	Ask  yaml.MapSlice `yaml:"ask"`
	Note []string      `yaml:"note"`
}

//go:embed known.yaml
var knownYAML []byte

// layouts are parsed on first use: parsing takes milliseconds, and only suggestions need them.
var layouts = sync.OnceValue(func() (all []layout) {
	if err := yaml.UnmarshalWithOptions(knownYAML, &all, yaml.UseOrderedMap(), yaml.Strict()); err != nil {
		panic("suggest: known.yaml: " + err.Error())
	}
	return all
})

func (l *layout) fits(f *Facts) bool {
	has := func(name string) bool {
		return slices.ContainsFunc(f.Columns, func(c Column) bool {
			return c.Name == name || !l.Exactly && fold(c.Name) == fold(name)
		})
	}
	return (len(l.Tables) == 0 || slices.Contains(l.Tables, f.Name)) &&
		!slices.ContainsFunc(l.Columns, func(name string) bool { return !has(name) }) &&
		!slices.ContainsFunc(l.Without, has) && l.holds(f)
}

func (l *layout) holds(f *Facts) bool {
	for column, field := range l.Holds {
		values := f.values(column)
		if len(values) == 0 || slices.ContainsFunc(values, func(v string) bool { names, _, _ := fieldsOf(v); return !slices.Contains(names, field) }) {
			return false
		}
	}
	return true
}

// profile proposes the layout's profile, if there is one.
func (p *proposing) profile(l *layout) bool {
	if l.Profile == "" {
		return false
	}
	p.add("profile", l.Profile, "the columns are those of %s", l.Name)
	switch {
	case p.o.Topic != "":
		p.topic()
	case l.Topic != "":
		p.kind = l.Topic
		p.noTopic()
	}
	for _, item := range l.Set {
		key, _ := item.Key.(string)
		p.add(key, item.Value, "")
	}
	p.tell(l)
	return true
}

// adjust replaces the lines that the columns' names suggest by those of the layout.
func (p *proposing) adjust(l *layout) {
	if p.Refused != "" {
		return
	}
	for _, key := range l.Remove {
		p.Lines = slices.DeleteFunc(p.Lines, func(l Line) bool { return l.Key == key || strings.HasPrefix(l.Key, key+".") })
	}
	if len(l.Set) > 0 { // drops questions about the names
		p.Lines = slices.DeleteFunc(p.Lines, func(l Line) bool { return l.Ask != "" && l.Value == nil && l.Key != "topic" })
	}
	for _, item := range l.Set {
		key, _ := item.Key.(string)
		if p.o.Topic != "" && key == "topic" {
			continue
		}
		p.set(key, item.Value, "as "+l.Name+" has it")
	}
	p.tell(l)
}

func (p *proposing) tell(l *layout) {
	for _, item := range l.Ask {
		key, _ := item.Key.(string)
		if p.o.Topic == "" || key != "topic" {
			p.ask(key, "%s", item.Value)
		}
	}
	p.Notes = append(p.Notes, l.Note...)
}
