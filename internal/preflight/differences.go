package preflight

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Difference is one way in which a table does not fit its mapping.
type Difference struct {
	// Table is the name of the table.
	Table string `json:"table"`
	// Problem is what differs.
	Problem string `json:"problem"`
	// Override is the lines of YAML that fix it, next to the table's profile or in
	// its mapping.
	Override Overrides `json:"override,omitempty"`
	// Hint is what else would fix it.
	Hint string `json:"hint,omitempty"`
	// Fatal is whether it keeps rows from being streamed, swept or marked.
	Fatal bool `json:"fatal"`

	about  About
	column string
	words  bool // the difference is about the status column's words
}

// differences returns the differences of all tables that could be read. The error is that of the first table
// that could not.
func (f *Facts) differences() (found []Difference, err error) {
	for i := range f.Tables {
		t := &f.Tables[i]
		switch why := cmp.Or(t.Missing["table"], t.Missing["catalogue"]); {
		case why == "":
			found = append(found, Differences(t)...)
		case err == nil:
			err = fmt.Errorf("look at table %s: %s", t.Table, why)
		}
	}
	return found, err
}

// Differences returns every difference between a table and its mapping. It is a pure function.
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
			var key Overrides // a unique key to use instead of the id
			if f.About == AboutIdentity && t.Catalogue != nil && len(t.Catalogue.Key) > 0 {
				key = Overrides{{"id", t.Catalogue.Key}}
			}
			d.add(Difference{Problem: f.Problem, Hint: f.Hint, Fatal: true, Override: key, about: f.About})
		case AboutWrite:
			d.add(Difference{Problem: f.Problem, Hint: f.Hint, Fatal: f.Fatal, about: f.About, column: f.Column})
		default: // missing privileges and indexes are no differences
		}
	}
	d.nulls()
	d.status()
	if slices.ContainsFunc(d.found, func(f Difference) bool { return f.words && f.Fatal }) {
		// A value that the status column refuses is reported once, not again for the write.
		return slices.DeleteFunc(d.found, func(f Difference) bool {
			return f.about == AboutWrite && f.column == t.Table.Mapping.Status.Column
		})
	}
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

// Override is a key of a mapping, such as status.sent_at, with the value that removes a difference. A nil
// value is YAML's null.
type Override struct {
	Key   string
	Value any
}

// Overrides remove a difference together.
type Overrides []Override

// Lines returns the overrides as YAML, one line per key of the mapping. If a key has two values, the first
// counts. A value for a whole key takes precedence over values inside it.
func (o Overrides) Lines() []string {
	var block yaml.MapSlice
	for _, v := range o {
		block = set(block, v.Key, v.Value)
	}
	lines := make([]string, len(block))
	for i, item := range block {
		value, _ := yaml.MarshalWithOptions(item.Value, yaml.Flow(true)) // a string can always be marshalled
		lines[i] = fmt.Sprintf("%s: %s", item.Key, bytes.TrimSpace(value))
	}
	return lines
}

// MarshalJSON returns the result of Lines.
func (o Overrides) MarshalJSON() ([]byte, error) { return json.Marshal(o.Lines()) }

func set(block yaml.MapSlice, path string, value any) yaml.MapSlice {
	key, rest, within := strings.Cut(path, ".")
	i := slices.IndexFunc(block, func(item yaml.MapItem) bool { return item.Key == key })
	if i < 0 {
		i, block = len(block), append(block, yaml.MapItem{Key: key, Value: yaml.MapSlice{}})
	}
	switch inner, isMap := block[i].Value.(yaml.MapSlice); {
	case isMap && within:
		block[i].Value = set(inner, rest, value)
	case isMap:
		block[i].Value = value
	}
	return block
}

// columnUse is a place in a mapping that names columns.
type columnUse struct {
	columns []string
	kind    string // kind of the columns that fit there
	// write returns the overrides that put other columns there. An empty name means that there is none.
	write func(names []string) Overrides
}

// The kinds of columns, with the types that belong to each.
const (
	anyColumn   = ""
	timeColumn  = "time"
	countColumn = "number"
	textColumn  = "text"
)

// unknown stands for a column that only people can name.
const unknown = "…"

// one returns a place for a single column. If there is no column for it, the keys of without become null. If
// without is empty, people have to name the column.
func one(key, column, kind string, without ...string) columnUse {
	return columnUse{[]string{column}, kind, func(names []string) (all Overrides) {
		if names[0] != "" || len(without) == 0 {
			return Overrides{{key, cmp.Or(names[0], unknown)}}
		}
		for _, key := range without {
			all = append(all, Override{key, nil})
		}
		return all
	}}
}

// places returns every place of a mapping that names columns.
func places(m *outbox.Mapping) []columnUse {
	s := &m.Status
	sentAt := []string{"status.sent_at"}
	if s.Column == "" {
		sentAt = nil // here the time is the state itself
	}
	payload := one("payload.column", m.Payload.Column, anyColumn)
	if len(m.Payload.Object) > 0 {
		payload = columnUse{m.Payload.Names()[1:], anyColumn, func([]string) Overrides { return Overrides{{"payload.object", unknown}} }}
	}
	all := []columnUse{
		payload,
		one("cluster.column", m.Cluster.Column, textColumn, "cluster"),
		one("partition", m.Partition, countColumn, "partition"),
		one("timestamp", m.Timestamp, timeColumn, "timestamp"),
		one("created_at", m.CreatedAt, timeColumn, "created_at"),
		one("status.column", s.Column, textColumn),
		one("status.sent_at", s.SentAt, timeColumn, sentAt...),
		one("status.failed_at", s.FailedAt, timeColumn, "status.failed_at"),
		one("status.attempts", s.Attempts, countColumn, "status.attempts", "status.max_attempts"),
		one("status.max_attempts_column", s.MaxAttemptsColumn, countColumn, "status.max_attempts_column"),
		one("status.last_error", s.LastError, textColumn, "status.last_error"),
		one("status.version", s.Version, countColumn, "status.version"),
		one("status.touched_at", s.TouchedAt, timeColumn, "status.touched_at"),
		one("status.expires_at.column", s.ExpiresAt, timeColumn, "status.expires_at"),
		one("status.resend", s.Resend, anyColumn, "status.resend"),
		one("writer.column", m.Writer.Column, anyColumn, "writer"),
		one("writer.until", m.Writer.Until, timeColumn, "writer"),
		list("id", m.ID, "", nil),
		list("order", m.Order, "order", nil),
		list("available_after", m.AvailableAfter, "available_after", nil),
		list("status.sent_by", s.SentBy, "status.sent_by", nil),
		topicPlace(&m.Topic),
	}
	switch key := m.Key; {
	case key == nil:
	case key.Parts == nil:
		all = append(all, one("key.column", key.Column, anyColumn)) // without a key, rows have no order
	default:
		all = append(all, columnUse{topicColumns(key.Parts), textColumn, func(names []string) Overrides { return Overrides{{"key.template", template(key.Parts, names)}} }})
	}
	if m.EventID.Name != "" {
		all = append(all, list("event_id.columns", m.EventID.Columns, "event_id", Overrides{{"event_id.header", m.EventID.Name}}))
	}
	return append(all, headersPlace(m.Headers))
}

// list returns a place for several columns; before comes first in its overrides. If no column is left, the
// key without becomes null. If without is empty, people have to name columns.
func list(key string, columns []string, without string, before Overrides) columnUse {
	return columnUse{columns, anyColumn, func(names []string) Overrides {
		left := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "" })
		switch {
		case len(left) == 0 && without != "":
			return Overrides{{without, nil}}
		case len(left) == 0:
			left = []string{unknown}
		}
		return append(slices.Clip(before), Override{key, left})
	}}
}

// template returns the template's text with the columns' names.
func template(t *outbox.Template, names []string) string {
	text := t.Literals[0]
	for i, name := range names {
		text += "${" + cmp.Or(name, unknown) + "}" + t.Literals[i+1]
	}
	return text
}

func topicColumns(topic *outbox.Template) (names []string) {
	for i := range topic.Columns {
		names = append(names, topic.Columns[i].Column)
	}
	return names
}

func topicPlace(topic *outbox.Template) columnUse {
	return columnUse{topicColumns(topic), textColumn, func(names []string) Overrides {
		if topic.Known() != nil && len(names) == 1 {
			return Overrides{{"topic.column", cmp.Or(names[0], unknown)}, {"topic.map", unknown}}
		}
		if len(names) == 1 && topic.Literals[0] == "" && topic.Literals[1] == "" {
			return Overrides{{"topic.column", cmp.Or(names[0], unknown)}}
		}
		return Overrides{{"topic.template", template(topic, names)}}
	}}
}

// headersPlace returns the place of all headers, because a configuration replaces the list of headers as a
// whole.
func headersPlace(all []outbox.HeaderMapping) columnUse {
	var columns []string
	for i := range all {
		columns = append(columns, cmp.Or(all[i].Column, all[i].JSON))
	}
	return columnUse{columns, anyColumn, func(names []string) Overrides {
		var left []any
		for i := range all {
			if columns[i] == "" || names[i] != "" {
				left = append(left, header(&all[i], names[i]))
			}
		}
		if len(left) == 0 {
			return Overrides{{"headers", nil}}
		}
		return Overrides{{"headers", left}}
	}}
}

func header(h *outbox.HeaderMapping, column string) any {
	named := yaml.MapSlice{{Key: "name", Value: h.Name}}
	switch {
	case h.JSON != "":
		if h.Form != nil && h.Form.Properties {
			return yaml.MapSlice{{Key: "properties", Value: column}}
		}
		return yaml.MapSlice{{Key: "json", Value: column}}
	case h.Trace != nil && h.Column == "":
		return unknown // the profile writes it out
	case h.Column == "":
		return append(named, yaml.MapItem{Key: "value", Value: h.Value})
	case h.OmitNull:
		return append(named, yaml.MapItem{Key: "column", Value: column}, yaml.MapItem{Key: "omit_null", Value: true})
	}
	return append(named, yaml.MapItem{Key: "column", Value: column})
}

// overrides put other columns in place of one that does not fit, and of further columns in the same places
// that do not fit either.
func (d *differing) overrides(column string) Overrides {
	if column == "" {
		return nil
	}
	unfit := map[string]bool{}
	for _, f := range d.t.Inspection.Findings {
		if f.About == AboutColumn {
			unfit[f.Column] = true
		}
	}
	var all Overrides
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
		all = append(all, p.write(names)...)
	}
	return all
}

// meant returns the column that may be meant instead of the given one: it has the right kind, is not mapped
// yet, and has a similar name.
func (d *differing) meant(column, kind string) string {
	all := places(&d.t.Table.Mapping)
	var fitting []string
	for _, c := range d.t.Inspection.Columns {
		mapped := slices.ContainsFunc(all, func(p columnUse) bool { return slices.Contains(p.columns, c.Name) })
		if !mapped && c.Name != column && fits(d.t.column(c.Name), kind) {
			fitting = append(fitting, c.Name)
		}
	}
	return outbox.Nearest(column, fitting, len(column)/2)
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

// nulls reports columns that accept NULL, where a NULL would make the row fail or leave it without order.
func (d *differing) nulls() {
	m := &d.t.Table.Mapping
	nullable := func(column string) bool {
		c := d.t.column(column)
		return c != nil && !c.NotNull
	}
	needed := func(columns []string, what string) {
		for _, column := range columns {
			if nullable(column) {
				d.add(Difference{Problem: fmt.Sprintf("column %q may be NULL; a row without %s fails", column, what), Hint: "ALTER TABLE " + quotedTable(d.t.Table.Table) + " ALTER " + sql.Identifier(column) + " SET NOT NULL"})
			}
		}
	}
	needed(topicColumns(&m.Topic), "a topic")
	if nullable(m.Payload.Column) && !m.Payload.Tombstone && len(m.Payload.Object) == 0 {
		d.add(Difference{
			Problem:  fmt.Sprintf("column %q may be NULL; a row without a payload fails", m.Payload.Column),
			Override: Overrides{{"payload.column", m.Payload.Column}, {"payload.tombstone", true}}, Hint: "which publishes NULL as a tombstone",
		})
	}
	switch {
	case m.Key == nil:
	case m.Key.Parts != nil:
		needed(topicColumns(m.Key.Parts), "a part of its key")
	case nullable(m.Key.Column):
		d.add(Difference{Problem: fmt.Sprintf("column %q may be NULL; such records have no key, and no order", m.Key.Column)})
	}
	if m.Cluster.Column != "" && m.Cluster.Default == "" && nullable(m.Cluster.Column) {
		d.add(Difference{
			Problem:  fmt.Sprintf("column %q may be NULL, and there is no default; a row without a cluster fails", m.Cluster.Column),
			Override: Overrides{{"cluster.column", m.Cluster.Column}, {"cluster.default", unknown}},
		})
	}
}

// ---- the words of the status ----

// status compares the status values of the mapping with those that the column allows, and with those that
// rows have.
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
	if refused(s.Sent) && (!d.t.Table.Mapping.Published.Removes() || len(c.StatusLabels) > 0 && d.t.Table.Mapping.Published == outbox.PublishedArchive) {
		d.unwritable(s.Sent, "a row was sent", allowed, suggestion)
	}
	if refused(s.Failed) {
		d.unwritable(s.Failed, "a row has failed", allowed, suggestion)
	}
	if rules := allowedWords(&Catalogue{StatusRules: c.ArchiveRules}); s.Sent != "" && len(rules) > 0 && !slices.Contains(rules, s.Sent) {
		archive := d.t.Table.Mapping.Archive
		d.add(Difference{
			Problem: fmt.Sprintf("column %q of the archive %s cannot be %s, which is written there when a row was sent; it may be %s", s.Column, archive, s.Sent, some(rules)),
			Fatal:   true, words: true,
			Hint: fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT …, the one on %s", sql.Identifier(archive.Schema, archive.Name), sql.Identifier(s.Column)),
		})
	}
	if unknown := unmapped(d.t); len(unknown) > 0 {
		f := Difference{Problem: fmt.Sprintf("rows have %q %s, which the mapping does not name: they are left alone", s.Column, some(unknown)), words: true}
		if strangers(d.t) {
			f.Override = suggestion
		}
		d.add(f)
	}
}

func (d *differing) unwritable(word, when string, allowed []string, suggestion Overrides) {
	d.add(Difference{
		Problem: fmt.Sprintf("column %q cannot be %s, which is written when %s; it may be %s", d.t.Table.Mapping.Status.Column, word, when, some(allowed)),
		Fatal:   true, words: true, Override: suggestion,
	})
}

// unmapped returns the states of rows that the mapping does not name.
func unmapped(t *TableFacts) []string {
	s := &t.Table.Mapping.Status
	mapped := append(slices.Clone(s.Pending), s.Sent, s.Failed, s.Processing)
	if t.Inspection != nil {
		for _, c := range t.Inspection.Columns {
			if c.Name == s.Column { // rows have states as the server prints them
				mapped = mapping.Printed(mapped, c)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(t.States), func(state string) bool { return slices.Contains(mapped, state) })
}

// strangers reports whether rows have states, but none that the mapping names.
func strangers(t *TableFacts) bool { return len(t.States) > 0 && len(unmapped(t)) == len(t.States) }

// wordsOf returns a sentence that says that the status values fit.
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

// allowedWords returns the labels of the enum, or the values in a CHECK constraint on the column alone. nil:
// any value is allowed.
func allowedWords(c *Catalogue) []string {
	if len(c.StatusLabels) > 0 {
		return c.StatusLabels
	}
	var words []string
	for _, rule := range c.StatusRules {
		condition, literals := literalsOf(rule)
		if !lists(condition) {
			return nil // the constraint is not a list of values
		}
		words = append(words, literals...)
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// literalsOf extracts the literals from a constraint as PostgreSQL prints it. If the text is split at quotes,
// every second part is a literal. An empty part between two literals is a quote inside one literal.
func literalsOf(rule string) (condition string, literals []string) {
	parts := strings.Split(rule, "'")
	for i, part := range parts {
		switch {
		case i%2 == 0:
			condition += part
		case i > 1 && parts[i-1] == "":
			literals[len(literals)-1] += "'" + part
		default:
			literals = append(literals, part)
		}
	}
	return condition, literals
}

// lists reports whether a condition lists the allowed values, in the forms in which PostgreSQL prints IN and
// =.
func lists(condition string) bool {
	return strings.Contains(condition, " = ") && !slices.ContainsFunc([]string{"<>", "~", " NOT ", "length("},
		func(other string) bool { return strings.Contains(condition, other) })
}

// usual has the status values that outbox tables commonly use.
var usual = []struct {
	key   string
	words []string
}{
	{"pending", []string{"pending", "new", "ready", "created", "unsent", "open", "waiting", "queued", "unprocessed", "todo"}},
	{"sent", []string{"sent", "delivered", "published", "processed", "done", "completed", "success", "succeeded", "finished"}},
	{"failed", []string{"failed", "error", "dead", "failure", "rejected"}},
}

// suggest assigns the statuses of a table to the keys of the mapping.
func (d *differing) suggest(words []string) Overrides {
	if len(words) == 0 {
		return nil
	}
	var all Overrides
	for _, place := range usual {
		word := unknown
		for _, known := range place.words {
			if i := slices.IndexFunc(words, func(w string) bool { return strings.EqualFold(w, known) }); i >= 0 {
				word = words[i]
				break
			}
		}
		all = append(all, Override{"status." + place.key, word})
	}
	all[0].Value = []any{all[0].Value} // a list, since several values may mean pending
	return all
}
