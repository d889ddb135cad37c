package suggest

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// state proposes where a row's state is stored.
func (p *proposing) state() {
	status := p.take(statusNames, func(c *Column) bool { return c.word() || c.integer() || c.boolean() })
	flag := p.sentColumn((*Column).boolean)
	sentAt := p.sentColumn(func(c *Column) bool { return c.time() && !c.NotNull })
	if status == nil && flag == nil {
		status = p.likeStatus()
	}
	asked := ""
	if status == nil && flag == nil && sentAt == nil {
		sentAt, asked = p.likeSent()
	}
	if status == nil && flag == nil && sentAt == nil {
		p.stateless()
		return
	}
	p.add("published", "status", "the row says what became of it")
	failed := false
	switch {
	case status != nil:
		failed = p.statusColumn(status, sentAt)
	case flag != nil:
		p.flag(flag)
	}
	if sentAt != nil {
		p.used[sentAt.Name] = true
		why := "set when the row was sent"
		if status == nil && flag == nil {
			why = "set when the row was sent; NULL while it is pending"
		}
		p.add("status.sent_at", sentAt.Name, "%s", why).Ask = asked
	}
	if c := p.take(failNames, (*Column).time); c != nil {
		p.add("status.failed_at", c.Name, "set when the row was given up")
		failed = failed || status == nil && flag == nil
	}
	p.budget(failed)
}

// sentColumn returns the column whose name says that a row was sent.
func (p *proposing) sentColumn(fits func(*Column) bool) *Column {
	var best *Column
	least := 0
	for i := range p.f.Columns {
		c := &p.f.Columns[i]
		rank := sentRank(fold(c.Name))
		if rank >= 0 && !p.used[c.Name] && fits(c) && (best == nil || rank < least) {
			best, least = c, rank
		}
	}
	return p.use(best)
}

// timeLike matches names of times, whatever the column's type.
var timeLike = regexp.MustCompile(`(?:at|on|time|date|timestamp|utc)$`)

// likeStatus returns a column whose default shows that it is a status: a state of rows that have to be
// published.
func (p *proposing) likeStatus() *Column {
	if c := p.sentColumn(func(c *Column) bool { return c.text() && !timeLike.MatchString(fold(c.Name)) }); c != nil {
		return c
	}
	return p.use(p.f.find(func(c *Column) bool {
		return !p.used[c.Name] && c.word() && meansWhat(literal(c.Default)) == meansPending
	}))
}

// likeSent returns the only time column that is NULL in new rows, with the question whether it is the time of
// sending. A partial index must be for rows without it.
func (p *proposing) likeSent() (*Column, string) {
	var found *Column
	for i := range p.f.Columns {
		c := &p.f.Columns[i]
		if p.used[c.Name] || !c.time() || c.NotNull || c.Default != "" || slices.Contains(otherTimes, fold(c.Name)) {
			continue
		}
		if found != nil {
			return nil, ""
		}
		found = c
	}
	pending := func(condition string) bool {
		return strings.Contains(condition, "("+found.Name+" IS NULL)") || strings.Contains(condition, "(\""+found.Name+"\" IS NULL)")
	}
	if found == nil || !slices.ContainsFunc(p.f.Partial, pending) {
		return nil, ""
	}
	return p.use(found), "is " + shown(found.Name) + " set when a row was sent? An index is for rows without it."
}

// stateless asks what becomes of a sent row, since no column shows it.
func (p *proposing) stateless() {
	ask := "what becomes of a row that was sent? No column says it. Write delete if the present relay deletes rows. With none nothing covers the loss of the replication slot. " +
		"Better: add a column, such as published_at timestamptz, and write status, with status: {sent_at: published_at}."
	for _, names := range [][]string{attemptNames, errorNames, dueNames} {
		if c := p.has(names); c != nil {
			ask += " " + shown(c.Name) + " says that rows are tried again, so the relay probably deletes those that were sent."
			break
		}
	}
	if c := p.f.find(func(c *Column) bool { return sentRank(fold(c.Name)) >= 0 && !c.time() && c.epoch() }); c != nil {
		ask += " Or is " + shown(c.Name) + " such a column? It is " + c.Type + ", so write epoch: s, ms or us, too."
	}
	p.add("published", "none", "").Ask = ask
}

// flag proposes a boolean column. A NULL in it counts as false.
func (p *proposing) flag(c *Column) {
	p.add("status.column", c.Name, "true once the row was sent")
	pending := []any{"false"}
	if !c.NotNull {
		pending = append(pending, nil)
	}
	p.add("status.pending", pending, "not sent yet")
	p.add("status.sent", "true", "")
}

// statusColumn proposes the meaning of the status values. It reports whether one of them means failed.
func (p *proposing) statusColumn(c *Column, sentAt *Column) (failed bool) {
	if c.boolean() {
		p.flag(c)
		return false
	}
	p.add("status.column", c.Name, "the state of a row")
	if c.integer() {
		p.numbers(c)
		return false
	}
	values, from := p.statesOf(c)
	v := sorted(values)
	initial := literal(c.Default)
	if len(v.pending) == 0 && initial != "" && meansWhat(initial) == meansNothing {
		v.pending = []string{initial}
		v.unknown = slices.DeleteFunc(v.unknown, func(value string) bool { return value == initial })
	}
	if all := c.Enum || from == ", by a constraint"; all && len(v.unknown) == 1 { // the only value that is left
		switch {
		case len(v.pending) == 0 && v.sent != "":
			v.pending, v.unknown = v.unknown, nil
		case len(v.pending) > 0 && v.sent == "":
			v.sent, v.unknown, v.guessed = v.unknown[0], nil, true
		}
	}
	p.complete(c, &v, sentAt)
	var pending []any
	for _, value := range v.pending {
		pending = append(pending, value)
	}
	if len(v.unknown) > 0 {
		pending = append(pending, question("are rows with "+shown(c.Name)+" "+allShown(v.unknown[:min(len(v.unknown), 5)], " or ")+" to be published? Write those that are; the others are left alone"))
	}
	if v.retried != "" {
		pending = append(pending, question("are rows with "+shown(c.Name)+" "+shown(v.retried)+" tried again? Then write "+Scalar(v.retried)+"; if not, remove this item"))
	}
	line := p.add("status.pending", pending, "to be published%s", from)
	if v.nothing {
		line.Ask = "which values of " + shown(c.Name) + " has a row that is to be published? Nothing in the table says it."
	}
	sent := p.add("status.sent", v.sent, "written when Kafka has it")
	if v.guessed {
		sent.Ask = "what is written when a row was sent? Nothing in the table says it."
	}
	if v.failed != "" {
		p.add("status.failed", v.failed, "written when the row was given up")
	}
	if v.processing != "" {
		p.add("status.processing", v.processing, "another relay has the row")
		p.add("status.recover_after", "5m", "a row that was left there unchanged is published after all")
	}
	return v.failed != ""
}

// states are the values of a status column by meaning.
type states struct {
	pending                           []string
	sent, failed, processing, retried string
	unknown                           []string
	nothing                           bool // nothing shows which values are pending
	guessed                           bool // the value for sent is a guess
}

func sorted(values []string) states {
	var v states
	var soft string
	for _, value := range values {
		switch meansWhat(value) {
		case meansPending:
			v.pending = append(v.pending, value)
		case meansSent:
			v.sent = cmp.Or(v.sent, value)
		case meansProcessing:
			v.processing = cmp.Or(v.processing, value)
		case meansFailed:
			soft = cmp.Or(soft, value)
		case meansDead:
			v.failed = cmp.Or(v.failed, value)
		case meansOther:
		default:
			v.unknown = append(v.unknown, value)
		}
	}
	switch {
	case v.failed == "":
		v.failed = soft
	case soft != "":
		v.retried = soft
	}
	return v
}

// complete adds guesses for the values that nothing in the table shows, in the style of those that are there.
func (p *proposing) complete(c *Column, v *states, sentAt *Column) {
	if v.nothing = len(v.pending) == 0; v.nothing {
		v.pending = []string{inCaseOf(cmp.Or(literal(c.Default), "PENDING"), "PENDING")}
		if len(v.unknown) > 0 {
			v.pending, v.unknown = v.unknown[:min(len(v.unknown), 5)], nil
		}
	}
	if v.sent != "" {
		return
	}
	v.guessed = true
	word := "SENT"
	if c.Chars == 1 {
		word = "Y"
	}
	if sentAt != nil {
		if m := sentName.FindStringSubmatch(fold(sentAt.Name)); m != nil && slices.Contains(words("published dispatched delivered processed completed"), m[1]) {
			word = strings.ToUpper(m[1])
		}
	}
	v.sent = inCaseOf(v.pending[0], word)
}

func inCaseOf(like, word string) string {
	switch {
	case like == strings.ToLower(like):
		return strings.ToLower(word)
	case like != strings.ToUpper(like):
		return word[:1] + strings.ToLower(word[1:])
	}
	return word
}

// numbers handles a status of numbers, which do not show their meaning.
func (p *proposing) numbers(c *Column) {
	initial, ask := literal(c.Default), ""
	if _, err := strconv.Atoi(initial); err != nil {
		initial, ask = "0", "which number of "+shown(c.Name)+" has a row that is to be published?"
	}
	sent := "1"
	if initial == "1" {
		sent = "2"
	}
	p.add("status.pending", []string{initial}, "the default of new rows").Ask = ask
	p.add("status.sent", sent, "").Ask = "what do the numbers of " + shown(c.Name) + p.seen(c) + " mean? Write pending, sent and failed as the application has them."
}

// statesOf returns the values that a status may have. They come from its type or from a constraint, or else
// from sampled rows and the default.
func (p *proposing) statesOf(c *Column) (values []string, from string) {
	if c.Enum {
		return c.Labels, ", by the type"
	}
	for _, k := range p.f.Checks {
		if k.Column == c.Name {
			if values = literals(k.Definition); len(values) > 1 {
				return values, ", by a constraint"
			}
		}
	}
	values = p.f.values(c.Name)
	if initial := literal(c.Default); initial != "" {
		values = append([]string{initial}, values...)
		from = ", by the default"
	}
	slices.Sort(values)
	if values = slices.Compact(values); len(values) > 30 {
		values = values[:30]
	}
	return values, from
}

var quotedText = regexp.MustCompile(`'((?:[^']|'')*)'`)

// literals returns the texts in an expression.
func literals(expression string) (values []string) {
	for _, m := range quotedText.FindAllStringSubmatch(expression, -1) {
		value := strings.ReplaceAll(m[1], "''", "'")
		if !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	return values
}

var number = regexp.MustCompile(`^\(?'?(-?\d+)'?\)?(::.*)?$`)

// literal returns the value of a constant default.
func literal(expression string) string {
	if m := number.FindStringSubmatch(expression); m != nil {
		return m[1]
	}
	if values := literals(expression); len(values) == 1 && strings.HasPrefix(expression, "'") {
		return values[0]
	}
	return ""
}

// budget proposes how failures are counted. failed: something shows that a row was given up.
func (p *proposing) budget(failed bool) {
	if c := p.take(attemptNames, (*Column).integer); c != nil {
		p.add("status.attempts", c.Name, "counts failures of the row itself")
		switch most := p.has(mostNames); {
		case most != nil && most.integer():
			n, err := strconv.Atoi(literal(most.Default))
			if err != nil || n < 1 {
				n = 10
			}
			p.add("status.max_attempts", n, "of rows in which %s is NULL", shown(most.Name))
			p.add("status.max_attempts_column", most.Name, "the row's own budget")
		case failed:
			p.add("status.max_attempts", 10, "failures until the row is given up")
		default:
			p.add("status.max_attempts", 10, "a row with so many has failed; nothing else says so")
		}
	} else if failed {
		p.add("status.max_attempts", 1, "no column counts failures, so the first of the row itself is the last; 0: try for ever")
	}
	if c := p.take(words("updatedat modifiedat lastmodifiedat updatedon"), (*Column).time); c != nil {
		p.add("status.touched_at", c.Name, "set with every change of the row")
	}
	if c := p.take(errorNames, (*Column).text); c != nil {
		p.add("status.last_error", c.Name, "what went wrong")
	}
}
