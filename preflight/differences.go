package preflight

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/mapping"
	"github.com/outbox-cdc/outbox-cdc/outbox"
	"github.com/outbox-cdc/outbox-cdc/sweeper"
)

// Difference is one way in which a table does not fit its mapping.
type Difference struct {
	Table   string `json:"table"`
	Problem string `json:"problem"`
	// Override are the lines of YAML beside the table's profile, or in its
	// mapping, that would mend it.
	Override []string `json:"override,omitempty"`
	// Mend is what else would.
	Mend string `json:"mend,omitempty"`
	// Fatal: rows cannot be streamed, swept or marked as it is. Otherwise it is
	// only worth knowing.
	Fatal bool `json:"fatal"`

	about sweeper.About
	words bool // of the status
}

// Differences lists everything in which a table differs from its mapping. It
// is pure.
func Differences(t *TableFacts) []Difference {
	d := differing{t: t}
	if t.Gone != "" {
		problem, mend, _ := strings.Cut(t.Gone, ": ")
		d.add(Difference{Problem: "it " + problem, Mend: mend, Fatal: true, about: sweeper.AboutKind})
		return d.found
	}
	if t.Resolution == nil {
		return nil
	}
	for _, f := range t.Resolution.Findings {
		switch f.About {
		case sweeper.AboutColumn:
			d.add(Difference{Problem: f.Problem, Mend: f.Mend, Fatal: true, Override: d.overrides(f.Column), about: f.About})
		case sweeper.AboutKind, sweeper.AboutNull, sweeper.AboutIdentity:
			d.add(Difference{Problem: f.Problem, Mend: f.Mend, Fatal: true, Override: d.identities(f.About), about: f.About})
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

// use is one place of a mapping that names a column.
type use struct {
	column string
	// key is the line of YAML with %s for another column's name.
	key string
	// without is the line that does without the column; empty: there is none.
	without string
	kind    string // of columns that fit there
}

// The kinds of columns, by their types' names.
const (
	anyColumn   = ""
	timeColumn  = "time"
	countColumn = "number"
	textColumn  = "text"
)

// uses lists every place of a mapping that names a column.
func uses(m *outbox.Mapping) []use {
	all := []use{
		{m.Payload.Column, "payload: {column: %s}", "", anyColumn},
		{m.Cluster.Column, "cluster: {column: %s}", "cluster: null", textColumn},
		{m.Partition, "partition: %s", "partition: null", countColumn},
		{m.Timestamp, "timestamp: %s", "timestamp: null", timeColumn},
		{m.CreatedAt, "created_at: %s", "created_at: null", timeColumn},
		{m.AvailableAfter, "available_after: %s", "available_after: null", timeColumn},
		{m.Status.Column, "status: {column: %s}", "", textColumn},
		{m.Status.SentAt, "status: {sent_at: %s}", "status: {sent_at: null}", timeColumn},
		{m.Status.FailedAt, "status: {failed_at: %s}", "status: {failed_at: null}", timeColumn},
		{m.Status.Attempts, "status: {attempts: %s}", "status: {attempts: null, max_attempts: null}", countColumn},
		{m.Status.LastError, "status: {last_error: %s}", "status: {last_error: null}", textColumn},
		{m.Status.Version, "status: {version: %s}", "status: {version: null}", countColumn},
		{m.Status.Resend, "status: {resend: %s}", "status: {resend: null}", anyColumn},
		{m.Writer.Column, "writer: {column: %s, until: " + m.Writer.Until + "}", "writer: null", anyColumn},
		{m.Writer.Until, "writer: {column: " + m.Writer.Column + ", until: %s}", "writer: null", timeColumn},
	}
	if m.Status.Column == "" { // the times are the state
		for i := range all {
			if strings.HasPrefix(all[i].key, "status: {sent_at") {
				all[i].without = ""
			}
		}
	}
	if m.Key != nil {
		all = append(all, use{m.Key.Column, "key: {column: %s}", "key: null", anyColumn})
	}
	if topic := &m.Topic; len(topic.Columns) == 1 && topic.Literals[0] == "" && topic.Literals[1] == "" {
		all = append(all, use{topic.Columns[0], "topic: {column: %s}", "topic: {constant: …}", textColumn})
	} else {
		for i, column := range topic.Columns {
			all = append(all, use{column, "topic: {template: \"" + template(topic, i) + "\"}", "topic: {constant: …}", textColumn})
		}
	}
	return append(all, listed(m)...)
}

// template is the topic with %s for one of its columns.
func template(topic *outbox.Template, replaced int) string {
	text := topic.Literals[0]
	for i, column := range topic.Columns {
		if i == replaced {
			column = "%s"
		}
		text += "${" + column + "}" + topic.Literals[i+1]
	}
	return text
}

// listed are the places in lists, which a configuration replaces whole.
func listed(m *outbox.Mapping) []use {
	var all []use
	list := func(key string, columns []string, without string) {
		for i := range columns {
			with := slices.Clone(columns)
			with[i] = "%s"
			all = append(all, use{columns[i], key + strings.Join(with, ", ") + closing(key), without, anyColumn})
		}
	}
	list("id: [", m.ID, "")
	list("order: [", m.Order, "order: null")
	list("status: {sent_by: [", m.Status.SentBy, "status: {sent_by: null}")
	if m.EventID.Name != "" {
		list("event_id: {header: "+m.EventID.Name+", columns: [", m.EventID.Columns, "event_id: null")
	}
	for i := range m.Headers {
		h := &m.Headers[i]
		others := headers(slices.Delete(slices.Clone(m.Headers), i, i+1))
		switch {
		case h.Column != "":
			all = append(all, use{h.Column, headers(replacedHeader(m.Headers, i)), others, anyColumn})
		case h.JSON != "":
			all = append(all, use{h.JSON, headers(replacedHeader(m.Headers, i)), others, anyColumn})
		}
	}
	return all
}

func closing(key string) string {
	if strings.Contains(key, "{") {
		return "]}"
	}
	return "]"
}

func replacedHeader(all []outbox.HeaderMapping, i int) []outbox.HeaderMapping {
	with := slices.Clone(all)
	if with[i].JSON != "" {
		with[i].JSON = "%s"
	} else {
		with[i].Column = "%s"
	}
	return with
}

// headers are a list of headers in YAML.
func headers(all []outbox.HeaderMapping) string {
	if len(all) == 0 {
		return "headers: null"
	}
	var lines []string
	for _, h := range all {
		switch {
		case h.JSON != "":
			lines = append(lines, "{json: "+h.JSON+"}")
		case h.Column != "" && h.OmitNull:
			lines = append(lines, "{name: "+h.Name+", column: "+h.Column+", omit_null: true}")
		case h.Column != "":
			lines = append(lines, "{name: "+h.Name+", column: "+h.Column+"}")
		default:
			lines = append(lines, "{name: "+h.Name+", value: "+h.Value+"}")
		}
	}
	return "headers: [" + strings.Join(lines, ", ") + "]"
}

// overrides are the lines that use another column in place of one, or none.
func (d *differing) overrides(column string) []string {
	var lines []string
	for _, u := range uses(&d.t.Table.Mapping) {
		if u.column != column || column == "" {
			continue
		}
		other := d.meant(column, u.kind)
		switch {
		case other != "":
			lines = append(lines, fmt.Sprintf(u.key, other))
		case u.without != "":
			lines = append(lines, u.without)
		default:
			lines = append(lines, fmt.Sprintf(u.key, "…"))
		}
	}
	return slices.Compact(lines)
}

// meant is the column that may be meant instead of one: of the right kind, not
// mapped yet, and with a name like it, or else the only one.
func (d *differing) meant(column, kind string) string {
	used := map[string]bool{}
	for _, u := range uses(&d.t.Table.Mapping) {
		used[u.column] = true
	}
	var fitting []mapping.Column
	for _, c := range d.t.Resolution.Columns {
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

// identities is the override for an id that is not unique: what is.
func (d *differing) identities(about sweeper.About) []string {
	if about != sweeper.AboutIdentity || d.t.Catalogue == nil {
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
			d.add(Difference{Problem: fmt.Sprintf("column %q may be NULL; a row without a topic fails", column), Mend: "ALTER TABLE " + quotedTable(d.t.Table.Table) + " ALTER " + quotedNames([]string{column}) + " SET NOT NULL"})
		}
	}
	if nullable(m.Payload.Column) && !m.Payload.Tombstone {
		d.add(Difference{
			Problem:  fmt.Sprintf("column %q may be NULL; a row without a payload fails", m.Payload.Column),
			Override: []string{"payload: {column: " + m.Payload.Column + ", tombstone: true}"}, Mend: "which publishes NULL as a tombstone",
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
	suggestion := d.suggest(slices.Concat(allowed, d.t.States))
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
