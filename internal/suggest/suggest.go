// Package suggest proposes a mapping for an outbox table that it has not seen before. From the table's
// columns, constraints, defaults and some rows it makes the YAML of a configuration, with the reason for each
// line. What only people can know is written as a question. The package recognises layouts of libraries by
// their columns. It refuses layouts whose rows only the library itself can read.
//
// Read does the I/O; Propose is a pure function. Neither writes to the database.
package suggest

import (
	"fmt"
	"slices"
	"strings"
)

// Proposal is the proposal for a table.
type Proposal struct {
	Table string
	// Known is the library or profile that the table belongs to; empty: none is known.
	Known string
	// Refused is why the table must not, or cannot, be taken over. There are no Lines then.
	Refused string
	// Lines are the mapping, in the order in which it is written.
	Lines []Line
	// Notes are remarks for the reader.
	Notes []string
}

// Line is one key of the mapping.
type Line struct {
	Key   string // status.sent_at stands for the key sent_at in status
	Value any    // in the form that the YAML library takes
	Why   string
	// Ask is a question that only people can answer. It is written in place of the value, which is then a
	// candidate; nil: there is no candidate.
	Ask string
}

// question is an item of a list, or a value of a map, that only people can write.
type question string

// mostTypes is how many types of events a proposal lists, each with a question.
const mostTypes = 12

// Options are facts that the caller knows.
type Options struct {
	// Topic is the topic of all rows; empty: the table has to say it.
	Topic string
}

// Propose makes a proposal from the facts.
func Propose(f *Facts, o Options) *Proposal {
	p := proposing{f: f, o: o, Proposal: &Proposal{Table: quotedName(f.Schema) + "." + quotedName(f.Name)}, used: map[string]bool{}}
	switch {
	case f.Kind != "r" && f.Kind != "p":
		p.Refused = "it is no table (a view, or a foreign table): name the table behind it"
		return p.Proposal
	case len(f.Unique) == 0:
		p.Refused = "it has no primary key and no unique index, so a published row could not be marked: add one, such as ALTER TABLE … ADD PRIMARY KEY (id)"
		return p.Proposal
	}
	var known *layout // the first layout that the table has
	if i := slices.IndexFunc(layouts(), func(l layout) bool { return l.fits(f) }); i >= 0 {
		known = &layouts()[i]
		p.Known = known.Name
		if known.Refuse != "" {
			p.Refused = known.Refuse
			return p.Proposal
		}
		if p.profile(known) {
			return p.Proposal
		}
	}
	p.mapping()
	if known != nil {
		p.adjust(known)
	}
	slices.SortStableFunc(p.Lines, func(a, b Line) int { return slices.Index(inOrder, a.Key) - slices.Index(inOrder, b.Key) })
	return p.Proposal
}

// inOrder is the order in which a mapping is written: the record, times, the state, the rest.
var inOrder = words(`id rows topic key payload headers event_id partition created_at available_after order published
	status.column status.pending status.processing status.recover_after status.sent status.failed status.sent_at status.failed_at status.touched_at status.expires_at status.attempts status.max_attempts status.max_attempts_column status.last_error
	on_failed head_start claim`)

// quotedName returns a name in the form that the configuration takes in schema.table.
func quotedName(name string) string {
	if strings.ContainsAny(name, `."`) {
		name = `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	}
	return name
}

// proposing is a proposal while it is made.
type proposing struct {
	*Proposal
	f        *Facts
	o        Options
	used     map[string]bool // columns that are used already
	kind     string          // the column with the type of the event
	body     string          // the column with the payload
	guessed  bool            // body was chosen by its content, not by its name
	stateful bool            // the table has a state
	excluded []string        // flags of rows that are left alone
}

// add adds a line, and returns it so that a question can be added.
func (p *proposing) add(key string, value any, why string, args ...any) *Line {
	p.Lines = append(p.Lines, Line{Key: key, Value: value, Why: fmt.Sprintf(why, args...)})
	return &p.Lines[len(p.Lines)-1]
}

// ask puts a question in place of a line's value, or adds a line that is a question.
func (p *proposing) ask(key, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	i := slices.IndexFunc(p.Lines, func(l Line) bool { return l.Key == key })
	if i < 0 {
		p.Lines = append(p.Lines, Line{Key: key, Ask: text})
		return
	}
	if l := &p.Lines[i]; l.Ask != "" {
		l.Ask += " Also: " + text
	} else {
		l.Ask = text
	}
}

func (p *proposing) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// set replaces a line, or adds it.
func (p *proposing) set(key string, value any, why string) {
	line := Line{Key: key, Value: value, Why: why}
	if i := slices.IndexFunc(p.Lines, func(l Line) bool { return l.Key == key }); i >= 0 {
		p.Lines[i] = line
		return
	}
	p.Lines = append(p.Lines, line)
}

// take returns, and marks as used, a column that has one of the names and whose type fits. The earliest name
// wins.
func (p *proposing) take(names []string, fits func(*Column) bool) *Column {
	for _, called := range []func(string) string{fold, bare} {
		for _, name := range names {
			c := p.f.find(func(c *Column) bool { return called(c.Name) == name && !p.used[c.Name] && !c.Generated && fits(c) })
			if c != nil {
				return p.use(c)
			}
		}
	}
	return nil
}

// use marks a column as used. The column may be nil.
func (p *proposing) use(c *Column) *Column {
	if c != nil {
		p.used[c.Name] = true
	}
	return c
}

// has returns a column that has one of the names, used or not.
func (p *proposing) has(names []string) *Column {
	return p.f.find(func(c *Column) bool { return slices.Contains(names, fold(c.Name)) })
}

// ---- types ----

func (c *Column) is(types ...string) bool { return slices.Contains(types, c.Type) }

func (c *Column) text() bool {
	return c.is("text", "character varying", "character", "name") || strings.HasSuffix(c.Type, "citext")
}
func (c *Column) word() bool    { return c.text() || c.Enum }
func (c *Column) integer() bool { return c.is("smallint", "integer", "bigint") }
func (c *Column) time() bool {
	return c.is("timestamp with time zone", "timestamp without time zone")
}

// epoch reports whether the type may hold a time that is not a timestamp.
func (c *Column) epoch() bool   { return c.is("bigint", "double precision", "numeric") || c.text() }
func (c *Column) json() bool    { return c.is("json", "jsonb") }
func (c *Column) boolean() bool { return c.is("boolean") }
func (c *Column) keyLike() bool {
	return c.text() || c.integer() || c.is("uuid", "bytea") || c.Enum
}

// content reports whether the column can hold a payload. A short text is a name.
func (c *Column) content() bool {
	return c.json() || c.is("bytea", "xml") || c.text() && (c.Chars == 0 || c.Chars > 255)
}

// counted reports whether the column's values rise with each INSERT.
func (c *Column) counted() bool {
	return c.integer() && (c.Identity || strings.HasPrefix(c.Default, "nextval("))
}
