package preflight

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Difference is one way in which a table does not fit its mapping.
type Difference struct {
	Table   string `json:"table"`
	Problem string `json:"problem"`
	// Override are the lines of YAML beside the table's profile, or in its
	// mapping, that would fix it.
	Override []string `json:"override,omitempty"`
	// Hint is what else would.
	Hint string `json:"mend,omitempty"`
	// Fatal: rows cannot be streamed, swept or marked as it is. Otherwise it is
	// only worth knowing.
	Fatal bool `json:"fatal"`

	about About
	words bool // of the status
}

// Differences lists everything in which a table differs from its mapping. It
// is pure.
func Differences(t *TableFacts) []Difference {
	d := differing{t: t}
	if t.Gone != "" {
		problem, hint, _ := strings.Cut(t.Gone, ": ")
		d.add(Difference{Problem: "it " + problem, Hint: hint, Fatal: true, about: AboutKind})
		return d.found
	}
	if t.Inspection == nil {
		return nil
	}
	for _, f := range t.Inspection.Findings {
		switch f.About {
		case AboutColumn:
			d.add(Difference{Problem: f.Problem, Hint: f.Hint, Fatal: true, Override: d.overrides(f.Column), about: f.About})
		case AboutKind, AboutNull, AboutIdentity:
			d.add(Difference{Problem: f.Problem, Hint: f.Hint, Fatal: true, Override: d.identities(f.About), about: f.About})
		default: // privileges and indexes are no difference
		}
	}
	d.nulls()
	d.status()
	return d.found
}

type differing struct {
	t     *TableFacts
	found []Difference
}

func (d *differing) add(f Difference) {
	f.Table = d.t.Table.String()
	d.found = append(d.found, f)
}

// place is one place of a mapping that names columns.
type place struct {
	columns []string
	kind    string // of columns that fit there
	// write is the line of YAML with other columns in place of those; an empty
	// name is a column that there is none for.
	write func(names []string) string
}

// The kinds of columns, by their types' names.
const (
	anyColumn   = ""
	timeColumn  = "time"
	countColumn = "number"
	textColumn  = "text"
)

// unknown stands for a column that has to be named, and only people know.
const unknown = "…"

// one is a place for one column: with has %s for it; without is the line that
// does without, empty: it has to be named.
func one(column, with, without, kind string) place {
	return place{[]string{column}, kind, func(names []string) string {
		if names[0] == "" && without != "" {
			return without
		}
		return fmt.Sprintf(with, or(names[0], unknown))
	}}
}

// places lists every place of a mapping that names columns.
func places(m *outbox.Mapping) []place {
	s := &m.Status
	sentAt := "status: {sent_at: null}"
	if s.Column == "" {
		sentAt = "" // the time is the state
	}
	all := []place{
		one(m.Payload.Column, "payload: {column: %s}", "", anyColumn),
		one(m.Cluster.Column, "cluster: {column: %s}", "cluster: null", textColumn),
		one(m.Partition, "partition: %s", "partition: null", countColumn),
		one(m.Timestamp, "timestamp: %s", "timestamp: null", timeColumn),
		one(m.CreatedAt, "created_at: %s", "created_at: null", timeColumn),
		one(m.AvailableAfter, "available_after: %s", "available_after: null", timeColumn),
		one(s.Column, "status: {column: %s}", "", textColumn),
		one(s.SentAt, "status: {sent_at: %s}", sentAt, timeColumn),
		one(s.FailedAt, "status: {failed_at: %s}", "status: {failed_at: null}", timeColumn),
		one(s.Attempts, "status: {attempts: %s}", "status: {attempts: null, max_attempts: null}", countColumn),
		one(s.LastError, "status: {last_error: %s}", "status: {last_error: null}", textColumn),
		one(s.Version, "status: {version: %s}", "status: {version: null}", countColumn),
		one(s.Resend, "status: {resend: %s}", "status: {resend: null}", anyColumn),
		one(m.Writer.Column, "writer: {column: %s, until: "+m.Writer.Until+"}", "writer: null", anyColumn),
		one(m.Writer.Until, "writer: {column: "+m.Writer.Column+", until: %s}", "writer: null", timeColumn),
		list(m.ID, "id: [", "]", unknown),
		list(m.Order, "order: [", "]", "order: null"),
		list(s.SentBy, "status: {sent_by: [", "]}", "status: {sent_by: null}"),
		topicPlace(&m.Topic),
	}
	if m.Key != nil {
		all = append(all, one(m.Key.Column, "key: {column: %s}", "key: null", anyColumn))
	}
	if m.EventID.Name != "" {
		all = append(all, list(m.EventID.Columns, "event_id: {header: "+m.EventID.Name+", columns: [", "]}", "event_id: null"))
	}
	return append(all, headersPlace(m.Headers))
}

// list is a place for several columns; empty is the line, or the name, for when
// none is left.
func list(columns []string, begin, end, empty string) place {
	return place{columns, anyColumn, func(names []string) string {
		left := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "" })
		switch {
		case len(left) > 0:
			return begin + strings.Join(left, ", ") + end
		case empty == unknown:
			return begin + unknown + end
		}
		return empty
	}}
}

func topicPlace(topic *outbox.Template) place {
	return place{topic.Columns, textColumn, func(names []string) string {
		if len(names) == 1 && topic.Literals[0] == "" && topic.Literals[1] == "" {
			return "topic: {column: " + or(names[0], unknown) + "}"
		}
		text := topic.Literals[0]
		for i, name := range names {
			text += "${" + or(name, unknown) + "}" + topic.Literals[i+1]
		}
		return "topic: {template: \"" + text + "\"}"
	}}
}

// headersPlace is all headers, since a configuration replaces the list whole.
func headersPlace(all []outbox.HeaderMapping) place {
	var columns []string
	for i := range all {
		columns = append(columns, or(all[i].Column, all[i].JSON))
	}
	return place{columns, anyColumn, func(names []string) string {
		var lines []string
		for i := range all {
			switch h := &all[i]; {
			case columns[i] != "" && names[i] == "":
			case h.JSON != "":
				lines = append(lines, "{json: "+names[i]+"}")
			case h.Column != "" && h.OmitNull:
				lines = append(lines, "{name: "+h.Name+", column: "+names[i]+", omit_null: true}")
			case h.Column != "":
				lines = append(lines, "{name: "+h.Name+", column: "+names[i]+"}")
			case h.Trace != nil:
				lines = append(lines, unknown) // written out in the profile
			default:
				lines = append(lines, "{name: "+h.Name+", value: "+h.Value+"}")
			}
		}
		if len(lines) == 0 {
			return "headers: null"
		}
		return "headers: [" + strings.Join(lines, ", ") + "]"
	}}
}

// overrides are the lines that use other columns in place of one that does not
// fit, and of those that do not fit either in the same places.
func (d *differing) overrides(column string) []string {
	if column == "" {
		return nil
	}
	unfit := map[string]bool{}
	for _, f := range d.t.Inspection.Findings {
		if f.About == AboutColumn {
			unfit[f.Column] = true
		}
	}
	var lines []string
	for _, p := range places(&d.t.Table.Mapping) {
		if !slices.Contains(p.columns, column) {
			continue
		}
		names := slices.Clone(p.columns)
		for i, name := range names {
			if unfit[name] {
				names[i] = d.meant(name, p.kind)
			}
		}
		lines = append(lines, p.write(names))
	}
	return Merge(lines)
}

// meant is the column that may be meant instead of one: of the right kind, not
// mapped yet, and with a name like it.
func (d *differing) meant(column, kind string) string {
	used := map[string]bool{}
	for _, p := range places(&d.t.Table.Mapping) {
		for _, name := range p.columns {
			used[name] = true
		}
	}
	var fitting []mapping.Column
	for _, c := range d.t.Inspection.Columns {
		if c.Name != column && !used[c.Name] && fits(d.t.column(c.Name), kind) {
			fitting = append(fitting, c)
		}
	}
	return mapping.Nearest(column, fitting)
}

func fits(c *Column, kind string) bool {
	if c == nil || kind == anyColumn {
		return true
	}
	is := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(c.Type, name) })
	}
	switch kind {
	case timeColumn:
		return is("timestamp")
	case countColumn:
		return is("smallint", "integer", "bigint")
	}
	return !is("timestamp", "bytea", "json", "double", "real", "numeric", "date", "time")
}

// Merge makes one block of YAML of overrides: a key twice is an error there.
func Merge(lines []string) []string {
	var keys []string
	values := map[string][]string{}
	for _, line := range lines {
		key, value, _ := strings.Cut(line, ": ")
		if values[key] == nil {
			keys = append(keys, key)
		}
		if !slices.Contains(values[key], value) {
			values[key] = append(values[key], value)
		}
	}
	merged := make([]string, len(keys))
	for i, key := range keys {
		merged[i] = key + ": " + join(values[key])
	}
	return merged
}

// join puts the keys of several maps into one; of other values the first stands.
func join(values []string) string {
	var inner []string
	for _, value := range values {
		text, isMap := strings.CutPrefix(value, "{")
		if !isMap || len(values) == 1 {
			return value
		}
		inner = append(inner, strings.TrimSuffix(text, "}"))
	}
	return "{" + strings.Join(inner, ", ") + "}"
}

// identities is the override for an id that is not unique: what is.
func (d *differing) identities(about About) []string {
	if about != AboutIdentity || d.t.Catalogue == nil {
		return nil
	}
	if key := d.t.Catalogue.Key; len(key) > 0 {
		return []string{"id: [" + strings.Join(key, ", ") + "]"}
	}
	return nil
}

// nulls tells what NULLs the columns allow that make a row fail.
func (d *differing) nulls() {
	m := &d.t.Table.Mapping
	nullable := func(column string) bool {
		c := d.t.column(column)
		return c != nil && !c.NotNull
	}
	for _, column := range m.Topic.Columns {
		if nullable(column) {
			d.add(Difference{Problem: fmt.Sprintf("column %q may be NULL; a row without a topic fails", column), Hint: "ALTER TABLE " + quotedTable(d.t.Table.Table) + " ALTER " + quotedNames([]string{column}) + " SET NOT NULL"})
		}
	}
	if nullable(m.Payload.Column) && !m.Payload.Tombstone {
		d.add(Difference{
			Problem:  fmt.Sprintf("column %q may be NULL; a row without a payload fails", m.Payload.Column),
			Override: []string{"payload: {column: " + m.Payload.Column + ", tombstone: true}"}, Hint: "which publishes NULL as a tombstone",
		})
	}
	if m.Key != nil && nullable(m.Key.Column) {
		d.add(Difference{Problem: fmt.Sprintf("column %q may be NULL; such records have no key, and no order", m.Key.Column)})
	}
	if m.Cluster.Column != "" && m.Cluster.Default == "" && nullable(m.Cluster.Column) {
		d.add(Difference{
			Problem:  fmt.Sprintf("column %q may be NULL, and there is no default; a row without a cluster fails", m.Cluster.Column),
			Override: []string{"cluster: {column: " + m.Cluster.Column + ", default: …}"},
		})
	}
}

// ---- the words of the status ----

// status compares the words of the mapping with those that the column allows
// and those that rows have.
func (d *differing) status() {
	s, c := &d.t.Table.Mapping.Status, d.t.Catalogue
	if s.Column == "" || c == nil || d.t.column(s.Column) == nil {
		return
	}
	allowed := allowedWords(c)
	refused := func(word string) bool { return word != "" && len(allowed) > 0 && !slices.Contains(allowed, word) }
	words := allowed
	if len(words) == 0 {
		words = d.t.States
	}
	suggestion := d.suggest(words)
	if !slices.ContainsFunc(s.Pending, func(word string) bool { return !refused(word) }) {
		d.add(Difference{
			Problem: fmt.Sprintf("column %q can never be %s, so no row is ever pending; it may be %s", s.Column, strings.Join(s.Pending, " or "), some(allowed)),
			Fatal:   true, words: true, Override: suggestion,
		})
	}
	for _, w := range []struct{ word, when string }{{s.Sent, "a row was sent"}, {s.Failed, "a row has failed"}} {
		if refused(w.word) {
			d.add(Difference{
				Problem: fmt.Sprintf("column %q cannot be %s, which is written when %s; it may be %s", s.Column, w.word, w.when, some(allowed)),
				Fatal:   true, words: true, Override: suggestion,
			})
		}
	}
	mapped := append(slices.Clone(s.Pending), s.Sent, s.Failed)
	var unknown []string
	for _, state := range d.t.States {
		if !slices.Contains(mapped, state) {
			unknown = append(unknown, state)
		}
	}
	if len(unknown) > 0 {
		f := Difference{Problem: fmt.Sprintf("rows have %q %s, which the mapping does not name: they are left alone", s.Column, some(unknown)), words: true}
		if strangers(d.t) {
			f.Override = suggestion
		}
		d.add(f)
	}
}

// strangers says that rows have states, and none of the mapping's.
func strangers(t *TableFacts) bool {
	s := &t.Table.Mapping.Status
	mapped := append(slices.Clone(s.Pending), s.Sent, s.Failed)
	return len(t.States) > 0 && !slices.ContainsFunc(t.States, func(state string) bool { return slices.Contains(mapped, state) })
}

// wordsOf says that all is well with the words.
func wordsOf(t *TableFacts) string {
	s := &t.Table.Mapping.Status
	words := strings.Join(s.Pending, ", ") + " → " + s.Sent
	if s.Failed != "" {
		words += " or " + s.Failed
	}
	if len(t.States) == 0 {
		return words + "; no rows to compare with"
	}
	return words + "; rows have " + some(t.States)
}

// quotedWord is a literal in a constraint as PostgreSQL prints it.
var quotedWord = regexp.MustCompile(`'((?:[^']|'')*)'`)

// allowedWords are the labels of the enum, or the words of the CHECK
// constraints on the column alone; none: anything.
func allowedWords(c *Catalogue) []string {
	if len(c.StatusLabels) > 0 {
		return c.StatusLabels
	}
	var words []string
	for _, rule := range c.StatusRules {
		if !simpleRule(rule) {
			return nil // what it means cannot be read off it
		}
		for _, word := range quotedWord.FindAllStringSubmatch(rule, -1) {
			words = append(words, strings.ReplaceAll(word[1], "''", "'"))
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// simpleRule: a list of words that are allowed, as IN and = are printed.
func simpleRule(rule string) bool {
	return (strings.Contains(rule, "= ANY (") || strings.Contains(rule, " = '")) &&
		!strings.Contains(rule, "<>") && !strings.Contains(rule, "~") && !strings.Contains(rule, " NOT ") && !strings.Contains(rule, "length(")
}

// The words that outboxes use.
var usual = []struct {
	key   string
	words []string
}{
	{"pending", []string{"pending", "new", "ready", "created", "unsent", "open", "waiting", "queued", "unprocessed", "todo"}},
	{"sent", []string{"sent", "delivered", "published", "processed", "done", "completed", "success", "succeeded", "finished"}},
	{"failed", []string{"failed", "error", "dead", "failure", "rejected"}},
}

// suggest gives the statuses of a table their places.
func (d *differing) suggest(words []string) []string {
	if len(words) == 0 {
		return nil
	}
	var parts []string
	for _, place := range usual {
		word := "…"
		for _, known := range place.words {
			if i := slices.IndexFunc(words, func(w string) bool { return strings.EqualFold(w, known) }); i >= 0 {
				word = words[i]
				break
			}
		}
		if place.key == "pending" {
			word = "[" + word + "]"
		}
		parts = append(parts, place.key+": "+word)
	}
	return []string{"status: {" + strings.Join(parts, ", ") + "}"}
}
