package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// check is one named check: its text in docs/check.md and its judgment.
type check struct {
	name string
	// looks says what the check examines. levels says what is a WARN and what is a FAIL.
	looks, levels string
	// why is the reason why it matters. It is printed with every WARN and FAIL.
	why string
	// once: the check applies only to streams with exactly-once delivery.
	once bool
	// needs are the groups of facts that the check cannot do without.
	needs []string
	judge func(j *judgment)
}

// checks returns all checks in the order of the report.
func checks() []check {
	return slices.Concat(transportChecks, serverChecks, slotChecks, roleChecks, tableChecks, kafkaChecks, onceChecks)
}

// Judge turns facts into findings. It is a pure function.
func Judge(f *Facts) []Finding {
	var all []Finding
	for _, c := range checks() {
		all = append(all, f.judgedBy(&c)...)
	}
	return all
}

// judgedBy returns the findings of one check.
func (f *Facts) judgedBy(c *check) []Finding {
	if c.once && f.Stream.Once == nil {
		return nil
	}
	j := judgment{Facts: f, check: c}
	seen := map[string]bool{
		"server": f.Server != nil, "role": f.Table.Role != nil,
		"release": f.State != nil, "state": f.State != nil && len(f.State.Lacking) == 0,
	}
	for _, group := range c.needs {
		if !seen[group] {
			j.unseen("", j.missing(group))
			return j.found
		}
	}
	c.judge(&j)
	return j.found
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
	for i, hint := range f.Hints {
		if strings.HasPrefix(hint, "outbox-cdc init ") && j.ownsNotAll() {
			f.Hints[i] = replication.AdminVariable + "=… " + hint + "  # the connection string of the tables' owner with REPLICATION, or of a superuser"
		}
	}
	j.found = append(j.found, f)
	return &j.found[len(j.found)-1]
}

// ownsNotAll reports whether our role does not own some table, so that it cannot create what init creates.
func (j *judgment) ownsNotAll() bool {
	if j.Table.Role == nil || j.Table.Role.Superuser {
		return false
	}
	return slices.ContainsFunc(j.Tables, func(t TableFacts) bool { return t.Details != nil && !t.Details.Owned })
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

// otherwise adds an OK for a subject that has no finding yet.
func (j *judgment) otherwise(subject, found string, args ...any) {
	if !slices.ContainsFunc(j.found, func(f Finding) bool { return f.Subject == subject }) {
		j.ok(subject, found, args...)
	}
}

// faults adds a FAIL for each of the table's inspection findings about the given subjects.
func (j *judgment) faults(name string, t *TableFacts, about ...About) {
	for _, f := range t.Inspection.Findings {
		if slices.Contains(about, f.About) {
			j.fail(name, f.Problem, f.Hint+";")
		}
	}
}

// skip adds a SKIP: there is nothing to examine.
func (j *judgment) skip(subject, why string) {
	j.add(Finding{Level: Skip, Subject: subject, Found: why})
}

// unseen adds a SKIP: the check could not look.
func (j *judgment) unseen(subject, why string) {
	j.add(Finding{Level: Skip, Subject: subject, Found: "could not look: " + why, Unseen: true})
}

// missing returns why a group of facts was not seen.
func (j *judgment) missing(group string) string {
	if group == "release" { // the part of State that every server has
		group = "state"
	}
	return cmp.Or(j.Missing[group], "no connection to the database (see the check connection)")
}

// eachTable runs judge for each table, with the name that findings use.
func eachTable(judge func(j *judgment, name string, t *TableFacts)) func(*judgment) {
	return func(j *judgment) {
		if j.Table.Err != nil {
			j.unseen("", j.missing(""))
			return
		}
		for i := range j.Tables {
			judge(j, j.Tables[i].Table.String(), &j.Tables[i])
		}
	}
}

// eachInspected runs judge for each table that exists and could be read.
func eachInspected(judge func(j *judgment, name string, t *TableFacts)) func(*judgment) {
	return eachTable(func(j *judgment, name string, t *TableFacts) {
		switch {
		case t.Gone != "":
			j.skip(name, "the table is not there (see the check table)")
		case t.Refused != "":
			j.skip(name, "the table cannot be read (see the check table)")
		case t.Inspection == nil:
			j.unseen(name, t.Missing["table"])
		default:
			judge(j, name, t)
		}
	})
}

// eachCatalogued runs judge with each table's catalogue entries, and eachDetailed with the details.
func eachCatalogued(judge func(j *judgment, name string, t *TableFacts, c *Catalogue)) func(*judgment) {
	return eachTold(func(t *TableFacts) *Catalogue { return t.Catalogue }, judge)
}

func eachDetailed(judge func(j *judgment, name string, t *TableFacts, d *Details)) func(*judgment) {
	return eachTold(func(t *TableFacts) *Details { return t.Details }, judge)
}

func eachTold[T any](told func(*TableFacts) *T, judge func(j *judgment, name string, t *TableFacts, of *T)) func(*judgment) {
	return eachTable(func(j *judgment, name string, t *TableFacts) {
		of := told(t)
		switch {
		case of != nil:
			judge(j, name, t, of)
		case t.Missing["catalogue"] != "":
			j.unseen(name, t.Missing["catalogue"])
		default:
			j.skip(name, "the table is not there (see the check table)")
		}
	})
}

// notes are remarks about one subject, to be reported together, with the hints for them.
type notes struct{ found, hints []string }

func (n *notes) add(is bool, what string, hints ...string) {
	if is {
		n.found, n.hints = append(n.found, what), append(n.hints, hints...)
	}
}

// warnOf adds a WARN with the notes, if there are any.
func (j *judgment) warnOf(subject, intro string, n notes) {
	if len(n.found) > 0 {
		j.warn(subject, intro+strings.Join(n.found, "; "), slices.Compact(n.hints)...)
	}
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

// size formats bytes for people.
func size(bytes int64) string { return status.Bytes(uint64(max(0, bytes))) } // #nosec G115 -- not negative

// span formats seconds for people.
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

// count returns a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// some joins at most five names.
func some(names []string) string {
	if len(names) > 5 {
		return strings.Join(names[:5], ", ") + fmt.Sprintf(" and %d more", len(names)-5)
	}
	return strings.Join(names, ", ")
}
