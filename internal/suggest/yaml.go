package suggest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

// YAML returns the proposal as an item of streams[].tables, ready to be pasted. Each line has its reason.
// Each question stands in place of the value that it is about, where the configuration refuses it.
func (p *Proposal) YAML() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, indent+format+"\n", args...) }
	if p.Known != "" {
		line("# The table is that of %s.", comment(p.Known))
	}
	if p.Refused != "" {
		line("# Not proposed: %s.", comment(p.Refused))
		return b.String()
	}
	for _, n := range p.Notes {
		line("# Note: %s", comment(n))
	}
	line("- table: %s", Scalar(p.Table))
	for at := 0; at < len(p.Lines); at++ {
		group, _, nested := strings.Cut(p.Lines[at].Key, ".")
		if !nested {
			p.Lines[at].write(&b, indent+"  ", p.Lines[at].Key)
			continue
		}
		line("  %s:", group)
		for ; at < len(p.Lines) && strings.HasPrefix(p.Lines[at].Key, group+"."); at++ {
			p.Lines[at].write(&b, indent+"    ", strings.TrimPrefix(p.Lines[at].Key, group+"."))
		}
		at--
	}
	return b.String()
}

// Asked returns all questions.
func (p *Proposal) Asked() (asked []string) {
	for _, l := range p.Lines {
		if l.Ask != "" {
			asked = append(asked, l.Key+": "+l.text())
			continue
		}
		for _, q := range questionsIn(l.Value) {
			asked = append(asked, l.Key+": "+string(q))
		}
	}
	return asked
}

// text returns the question with its candidate.
func (l *Line) text() string {
	text := comment(l.Ask)
	if l.Value != nil {
		text += " Candidate: " + flow(l.Value)
	}
	return text
}

func questionsIn(value any) (all []question) {
	switch v := value.(type) {
	case question:
		return []question{v}
	case []any:
		for _, item := range v {
			all = append(all, questionsIn(item)...)
		}
	case yaml.MapSlice:
		for _, item := range v {
			all = append(all, questionsIn(item.Value)...)
		}
	}
	return all
}

// indent is the indentation of an item of streams[].tables.
const indent = "      "

func (l *Line) write(b *strings.Builder, indent, key string) {
	value := l.Value
	if l.Ask != "" {
		value = question(l.text())
	}
	fmt.Fprintf(b, "%s%s: %s", indent, key, flow(value))
	if l.Why != "" && l.Ask == "" {
		fmt.Fprintf(b, "  # %s", comment(l.Why))
	}
	b.WriteByte('\n')
}

// flow returns a value in one line of YAML.
func flow(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case string:
		return Scalar(v)
	case question:
		return asked(config.Question + comment(string(v)))
	case []string:
		return between("[", v, "]", Scalar)
	case []any:
		return between("[", v, "]", flow)
	case []yaml.MapSlice:
		return between("[", v, "]", func(m yaml.MapSlice) string { return flow(m) })
	case yaml.MapSlice:
		return between("{", v, "}", item)
	}
	return fmt.Sprint(value) // numbers and booleans
}

// item returns a key with its value. Only in a template is ${ a reference.
func item(i yaml.MapItem) string {
	value := flow(i.Value)
	if i.Key == "template" {
		value = strings.ReplaceAll(value, "$${", "${")
	}
	return flow(i.Key) + ": " + value
}

func between[T any](open string, items []T, end string, text func(T) string) string {
	parts := make([]string, len(items))
	for i := range items {
		parts[i] = text(items[i])
	}
	return open + strings.Join(parts, ", ") + end
}

// plainWord matches a text that YAML can only read as a string.
var plainWord = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

var yamlWords = words("null true false yes no on off y n")

// Scalar returns a text as YAML. Unless it needs no quotes, it is a JSON string, which is valid YAML. The
// configuration reads no reference in it.
func Scalar(text string) string {
	if plainWord.MatchString(text) && !slices.Contains(yamlWords, strings.ToLower(text)) {
		return text
	}
	quoted, _ := json.Marshal(strings.ReplaceAll(text, "${", "$${")) // a string can always be marshalled
	return string(quoted)
}

// asked returns a question as a string, with candidates as they have to be written. Nothing in it is escaped
// for the configuration, because a file with a question is refused anyway.
func asked(text string) string {
	if !strings.ContainsAny(text, `"\`) {
		return `"` + text + `"`
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}

// comment keeps a text within its line.
func comment(text string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.Join(strings.Fields(text), " "))
}
