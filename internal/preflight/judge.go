package preflight

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// check is one named check: what docs/check.md says of it, and its judgment.
type check struct {
	name string
	// looks says what it looks at, and levels, what is a WARN and what a FAIL.
	looks, levels string
	// why it matters, said with every WARN and FAIL.
	why   string
	judge func(j *judgment)
}

// checks are all there are, in the order of the report.
func checks() []check {
	return slices.Concat(transportChecks, serverChecks, slotChecks, roleChecks, tableChecks, stateChecks, kafkaChecks, onceChecks)
}

// Judge turns facts into findings. It is pure.
func Judge(f *Facts) []Finding {
	var all []Finding
	for _, c := range checks() {
		j := judgment{Facts: f, check: &c}
		c.judge(&j)
		all = append(all, j.found...)
	}
	return all
}

// judgment is one check at work on the facts of one stream.
type judgment struct {
	*Facts
	check *check
	found []Finding
}

func (j *judgment) add(f Finding) *Finding {
	f.Check, f.Stream = j.check.name, j.Stream.Name
	if f.Level == Warn || f.Level == Fail {
		f.Why = j.check.why
	}
	f.Hints = j.Server.platform().Hints(f.Hints...)
	j.found = append(j.found, f)
	return &j.found[len(j.found)-1]
}

func (j *judgment) ok(subject, found string, args ...any) *Finding {
	return j.add(Finding{Level: OK, Subject: subject, Found: fmt.Sprintf(found, args...)})
}

func (j *judgment) warn(subject, found string, hint ...string) *Finding {
	return j.add(Finding{Level: Warn, Subject: subject, Found: found, Hints: hint})
}

func (j *judgment) fail(subject, found string, hint ...string) *Finding {
	return j.add(Finding{Level: Fail, Subject: subject, Found: found, Hints: hint})
}

// skip says why there is nothing to look at.
func (j *judgment) skip(subject, why string) {
	j.add(Finding{Level: Skip, Subject: subject, Found: why})
}

// unseen says why it could not look.
func (j *judgment) unseen(subject, why string) {
	j.add(Finding{Level: Skip, Subject: subject, Found: "could not look: " + why, Unseen: true})
}

// missing is why a group of facts was not seen.
func (j *judgment) missing(group string) string {
	if why := j.Missing[group]; why != "" {
		return why
	}
	return "no connection to the database (see the check connection)"
}

// server gives the server's facts, or notes that there are none.
func (j *judgment) server() (*Server, bool) {
	if j.Server == nil {
		j.unseen("", j.missing("server"))
	}
	return j.Server, j.Server != nil
}

// state likewise: whether there is one.
func (j *judgment) state() bool {
	if j.State == nil {
		j.unseen("", j.missing("state"))
	}
	return j.State != nil
}

// tables calls f for each table, by the name that findings have.
func (j *judgment) tables(f func(name string, t *TableFacts)) {
	if j.Table.Err != nil {
		j.unseen("", j.missing(""))
		return
	}
	for i := range j.Facts.Tables {
		f(j.Facts.Tables[i].Table.String(), &j.Facts.Tables[i])
	}
}

// resolved calls f for each table that exists and could be looked at.
func (j *judgment) resolved(f func(name string, t *TableFacts)) {
	j.tables(func(name string, t *TableFacts) {
		switch {
		case t.Gone != "":
			j.skip(name, "the table is not there (see the check table)")
		case t.Refused != "":
			j.skip(name, "the table cannot be read (see the check table)")
		case t.Inspection == nil:
			j.unseen(name, t.Missing["table"])
		default:
			f(name, t)
		}
	})
}

// catalogued likewise, with what the catalogue says.
func (j *judgment) catalogued(f func(name string, t *TableFacts, c *Catalogue)) {
	j.tables(func(name string, t *TableFacts) {
		switch {
		case t.Catalogue != nil:
			f(name, t, t.Catalogue)
		case t.Missing["catalogue"] != "":
			j.unseen(name, t.Missing["catalogue"])
		default:
			j.skip(name, "the table is not there (see the check table)")
		}
	})
}

// ---- words ----

func quotedTable(t *outbox.Table) string { return sql.Identifier(t.Schema, t.Name) }

func quotedNames(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = sql.Identifier(name)
	}
	return strings.Join(quoted, ", ")
}

// size shows bytes as people read them.
func size(bytes int64) string { return status.Bytes(uint64(max(0, bytes))) } // #nosec G115 -- not negative

// span shows seconds as people read them.
func span(seconds int64) string {
	d := time.Duration(seconds) * time.Second
	const day = 24 * time.Hour
	switch {
	case d >= 2*day:
		return fmt.Sprintf("%d days", d/day)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return d.String()
}

// count puts a number before its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// some lists names, not more than five.
func some(names []string) string {
	if len(names) > 5 {
		return strings.Join(names[:5], ", ") + fmt.Sprintf(" and %d more", len(names)-5)
	}
	return strings.Join(names, ", ")
}
