package suggest

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml"
)

// column is a value of the form {column: name}.
func column(name string) yaml.MapSlice { return yaml.MapSlice{{Key: "column", Value: name}} }

// mapping proposes by names and types.
func (p *proposing) mapping() {
	id := p.f.Unique[0]
	why := "the primary key"
	if !p.isPrimary() {
		why = "the first unique index"
	}
	for _, name := range id {
		p.used[name] = true
	}
	// The state first: a column such as "published" is nothing else. Its lines come last.
	state := *p
	state.Proposal = &Proposal{}
	state.state()
	p.stateLines = state.Lines
	p.add("id", list(id), "%s", why)
	payload := p.payload()
	if p.Refused = p.unreadable(payload); p.Refused != "" {
		p.Lines, p.Questions, p.Notes = nil, nil, nil
		return
	}
	p.body = payload.Name
	p.kindOfEvent()
	p.topic()
	p.key()
	p.add("payload", column(payload.Name), "%s, published as it is stored", payload.Type)
	if p.guessed {
		p.Lines[len(p.Lines)-1].Ask = "is this the payload? Its name does not say so."
	}
	p.headers()
	p.times(state.Lines[0].Value != "none")
	p.Lines = append(p.Lines, state.Lines...)
	p.Questions = append(p.Questions, state.Questions...)
	p.Notes = append(p.Notes, state.Notes...)
	p.others()
}

// list is one name without brackets where there is only one.
func list(names []string) []string { return names }

func (p *proposing) isPrimary() bool {
	return !slices.ContainsFunc(p.f.Unique[0], func(name string) bool {
		c := p.f.column(name)
		return c == nil || !c.NotNull
	})
}

func (p *proposing) payload() *Column {
	c := p.take(payloadNames, (*Column).content)
	if c == nil {
		c = p.onlyJSON()
	}
	if c == nil {
		c = p.likePayload()
	}
	if c == nil { // as the last resort a short text that is called payload
		c = p.take(words("payload body data content"), (*Column).text)
	}
	if c != nil {
		p.opaque(c)
	}
	return c
}

// likePayload is the only column whose sampled values are all JSON objects, else the
// only one of bytes. That the table is an outbox is said by its having a state.
func (p *proposing) likePayload() *Column {
	if p.stateLines[0].Value == "none" {
		return nil
	}
	objects := func(c *Column) bool {
		values := p.f.values(c.Name)
		return c.content() && len(values) > 0 && !slices.ContainsFunc(values, func(v string) bool { _, ok, _ := fieldsOf(v); return !ok })
	}
	for _, fits := range []func(*Column) bool{objects, func(c *Column) bool { return c.is("bytea") }} {
		if c := p.only(fits); c != nil {
			p.used[c.Name], p.guessed = true, true
			return c
		}
	}
	return nil
}

// only is the one column that fits and has no place; nil: none, or several.
func (p *proposing) only(fits func(*Column) bool) *Column {
	var found *Column
	for i := range p.f.Columns {
		c := &p.f.Columns[i]
		if p.used[c.Name] || c.Generated || headerLike(c.Name) || !fits(c) {
			continue
		}
		if found != nil {
			return nil
		}
		found = c
	}
	return found
}

// unreadable says why nothing can be published of the payload.
func (p *proposing) unreadable(c *Column) string {
	if c == nil {
		if i := slices.IndexFunc(p.f.Columns, func(c Column) bool { return c.is("oid") && slices.Contains(payloadNames, fold(c.Name)) }); i >= 0 {
			return "column " + shown(p.f.Columns[i].Name) + " holds numbers of large objects (Hibernate's @Lob) and not their content: ALTER TABLE … ALTER … TYPE bytea USING lo_get(…), and map the property so, without @Lob"
		}
		return "no column holds a payload (json, jsonb, bytea or text): the table does not look like an outbox, or its rows refer to content elsewhere"
	}
	for _, v := range p.f.values(c.Name) {
		if by := serialized(v); by != "" {
			return "column " + shown(c.Name) + " holds objects serialized by " + by + ", which only the application can read"
		}
	}
	return ""
}

// onlyJSON is the one column of a type for content that nothing else can be.
func (p *proposing) onlyJSON() *Column {
	found := p.only(func(c *Column) bool { return c.json() || c.is("bytea") })
	if found != nil {
		p.used[found.Name] = true
	}
	return found
}

// opaque asks about a payload that does not hold what it seems to.
func (p *proposing) opaque(c *Column) {
	values := p.f.values(c.Name)
	if len(values) == 0 || !c.text() {
		return
	}
	if !slices.ContainsFunc(values, func(v string) bool { return strings.Trim(v, "0123456789") != "" || len(v) > 10 }) {
		p.ask("%s holds numbers only. Are they numbers of large objects (Hibernate's @Lob)? Then the content is not in the table: ALTER TABLE … ALTER %[1]s TYPE text USING convert_from(lo_get(%[1]s::oid), 'UTF8')", shown(c.Name))
	}
}

func (p *proposing) kindOfEvent() {
	if c := p.take(typeNames, func(c *Column) bool { return c.word() }); c != nil {
		p.kind = c.Name
	}
}

func (p *proposing) topic() {
	c := p.take(topicNames, (*Column).word)
	switch {
	case p.o.Topic != "":
		p.add("topic", yaml.MapSlice{{Key: "constant", Value: p.o.Topic}}, "as you said")
	case c != nil:
		p.topicColumn(c)
	default:
		p.noTopic()
	}
}

func (p *proposing) topicColumn(c *Column) {
	p.add("topic", column(c.Name), "the topic by the column's name%s", p.seen(c))
	if fold(c.Name) == "destination" {
		p.Lines[len(p.Lines)-1].Ask = "does " + shown(c.Name) + " hold names of Kafka topics?"
	}
}

// noTopic: the topic is in the application's code.
func (p *proposing) noTopic() {
	ask := "which topic? No column names one."
	if c := p.has(sharedNames); c != nil {
		ask = "which topic? No column names one; " + shown(c.Name) + " may say where a row goes."
	}
	if p.kind != "" {
		ask += " It may follow from " + shown(p.kind) + p.seen(p.f.column(p.kind)) + "."
	}
	if c := p.has(aggregateNames); c != nil && c.word() {
		ask += ` Debezium's router would use {template: "outbox.event.${` + shown(c.Name) + `}"}.`
	}
	p.add("topic", p.openTopic(), "")
	p.Lines[len(p.Lines)-1].Ask = ask
}

// openTopic is a map of the types that were seen, or the same topic for all rows:
// in either the topics are to be written.
func (p *proposing) openTopic() yaml.MapSlice {
	var types []string
	if p.kind != "" {
		types = p.known(p.kind)
	}
	var topics yaml.MapSlice
	for _, value := range types {
		if len(topics) < mostTypes && value != "" && len(value) <= 200 && !strings.HasSuffix(value, "*") {
			topics = append(topics, yaml.MapItem{Key: value, Value: Unanswered})
		}
	}
	if len(topics) == 0 {
		return yaml.MapSlice{{Key: "constant", Value: Unanswered}}
	}
	return yaml.MapSlice{{Key: "column", Value: p.kind}, {Key: "map", Value: topics}, {Key: "otherwise", Value: "fail"}}
}

// mostTypes is how many types of events a proposal lists.
const mostTypes = 30

// known are the values of a column that are known, sorted.
func (p *proposing) known(name string) []string {
	values := p.f.values(name)
	if c := p.f.column(name); c.Enum {
		values = append(values, c.Labels...)
	}
	for _, k := range p.f.Checks {
		if k.Column == name && strings.Contains(k.Definition, "ARRAY[") {
			values = append(values, literals(k.Definition)...)
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// seen lists a column's sampled values.
func (p *proposing) seen(c *Column) string {
	values := slices.Concat(c.Labels, p.f.values(c.Name))
	slices.Sort(values)
	if values = slices.Compact(values); len(values) == 0 {
		return ""
	}
	more := ""
	if len(values) > 8 {
		values, more = values[:8], ", …"
	}
	for i := range values {
		values[i] = shown(values[i])
	}
	return " (" + strings.Join(values, ", ") + more + ")"
}

func (p *proposing) key() {
	if c := p.take(keyNames, (*Column).keyLike); c != nil {
		p.add("key", column(c.Name), "records of one key keep their order")
		return
	}
	var ids []string
	for _, c := range p.f.Columns {
		folded := fold(c.Name)
		if !p.used[c.Name] && c.keyLike() && len(folded) > 2 && strings.HasSuffix(folded, "id") && !slices.Contains(otherIDs, folded) {
			ids = append(ids, c.Name)
		}
	}
	fields := commonFields(p)
	switch {
	case len(ids) == 1:
		p.used[ids[0]] = true
		p.add("key", column(ids[0]), "the only column that looks like the id of what the event is about")
	case len(ids) == 0 && len(fields) == 1:
		p.add("key", p.field(fields[0]), "all sampled payloads have it")
		p.Lines[len(p.Lines)-1].Ask = "which key? No column names one. This is the only field of the payload that looks like it."
	default:
		p.ask("which key? No column names one, so records have none and no order among them%s", ofThese(ids)+p.these(fields))
	}
}

// field is a place in the payload.
func (p *proposing) field(name string) yaml.MapSlice {
	pointer := "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	return append(column(p.body), yaml.MapItem{Key: "path", Value: pointer})
}

func ofThese(names []string) string {
	if len(names) == 0 {
		return ""
	}
	for i := range names {
		names[i] = shown(names[i])
	}
	return ". It may be " + strings.Join(names, " or ")
}

// these tells which fields of the payload could be the key.
func (p *proposing) these(fields []string) string {
	if len(fields) == 0 {
		return ""
	}
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = shown(fields[i])
	}
	return ". Fields of the payload that all sampled rows have: " + strings.Join(names, ", ") + "; such as key: " + flow(p.field(fields[0]))
}

func (p *proposing) headers() {
	var headers []yaml.MapSlice
	header := func(items ...yaml.MapItem) { headers = append(headers, items) }
	if p.kind != "" {
		header(yaml.MapItem{Key: "name", Value: "event-type"}, yaml.MapItem{Key: "column", Value: p.kind})
	}
	for _, name := range words("traceparent tracestate") {
		if c := p.take([]string{name}, (*Column).text); c != nil {
			header(yaml.MapItem{Key: "name", Value: name}, yaml.MapItem{Key: "column", Value: c.Name}, yaml.MapItem{Key: "omit_null", Value: true})
		}
	}
	if c := p.take(words("tracingspancontext"), (*Column).text); c != nil {
		header(yaml.MapItem{Key: "properties", Value: c.Name})
	}
	if c := p.take(headerNames, func(c *Column) bool { return c.json() || c.text() }); c != nil {
		if p.headersFit(c) {
			header(yaml.MapItem{Key: "json", Value: c.Name})
		} else {
			p.ask("is %s an object of headers? Its values are no object of texts, numbers and booleans in every sampled row, or no row was there to tell. If so: headers: [{json: %[1]s}]", shown(c.Name))
		}
	}
	if len(headers) > 0 {
		p.add("headers", headers, "names are free; leave out what consumers do not expect")
	}
	event := p.f.Unique[0]
	if c := p.take(words("eventid messageid eventuuid"), (*Column).keyLike); c != nil && !slices.Contains(event, c.Name) {
		event = []string{c.Name}
	}
	p.add("event_id", yaml.MapSlice{{Key: "header", Value: "event-id"}, {Key: "columns", Value: event}}, "consumers drop duplicates by it")
}

// nowLike is the default of a time at which a row was made.
var nowLike = regexp.MustCompile(`(?i)^\(?(?:now|clock_timestamp|statement_timestamp|transaction_timestamp|timezone)\(|^CURRENT_TIMESTAMP`)

func (p *proposing) times(stateful bool) {
	created := p.take(createdNames, (*Column).time)
	if created == nil { // a partitioned table has it in its key
		if c := p.has(createdNames); c != nil && c.time() && slices.Contains(p.f.Unique[0], c.Name) {
			created = c
		}
	}
	if created == nil {
		created = p.only(func(c *Column) bool {
			return c.time() && nowLike.MatchString(c.Default) && !slices.Contains(otherTimes, fold(c.Name))
		})
	}
	if created != nil {
		p.add("created_at", created.Name, "the age of a row")
	}
	p.due(stateful)
	order := p.f.Unique[0]
	switch {
	case len(order) == 1 && p.f.column(order[0]).counted():
		p.add("order", list(order), "counted up with each INSERT")
	case p.sequence() != nil:
		p.add("order", []string{p.sequence().Name}, "counted up with each INSERT")
	case created != nil:
		p.add("order", []string{created.Name}, "as near to the order of commits as the table tells")
	default:
		p.add("order", list(order), "nothing else tells an order")
	}
	if created != nil && created.is("timestamp without time zone") {
		p.note("times without a zone are read as UTC: %s must be UTC", shown(created.Name))
	}
	if c := p.take(partitionNames, (*Column).integer); c != nil {
		p.ask("is %s the partition of the record? If so: partition: %[1]s", shown(c.Name))
	}
}

// due are the times before which a row is not sent: those that were set for it, and, next to one,
// until when another relay has it.
func (p *proposing) due(stateful bool) {
	all := p.takeTimes(dueNames)
	if len(all) > 0 {
		all = append(all, p.takeTimes(untilNames)...)
	}
	switch {
	case !stateful || len(all) == 0:
	case len(all) == 1:
		p.add("available_after", all[0], "rows wait until then")
	default:
		p.add("available_after", all, "rows wait until each of these has passed")
	}
}

// takeTimes takes all columns of the names that are times.
func (p *proposing) takeTimes(names []string) (all []string) {
	for c := p.take(names, (*Column).time); c != nil; c = p.take(names, (*Column).time) {
		all = append(all, c.Name)
	}
	return all
}

func (p *proposing) sequence() *Column {
	for i := range p.f.Columns {
		c := &p.f.Columns[i]
		if slices.Contains(sequenceNames, fold(c.Name)) && c.counted() {
			return c
		}
	}
	return nil
}

// others asks about columns that point to other readers and writers.
func (p *proposing) others() {
	c := p.has(sharedNames)
	switch mine := p.ofKafka(c); {
	case mine != nil:
		p.set("rows", []yaml.MapSlice{append(column(c.Name), yaml.MapItem{Key: "in", Value: mine})}, "the others are for somebody else")
	case c != nil:
		p.ask("does the table hold rows that are for somebody else than Kafka (%s)? They would be published and marked too", shown(c.Name)+p.seen(c))
	}
	for _, condition := range p.f.Partial[:min(len(p.f.Partial), 3)] {
		if name := p.otherIn(condition); name != "" {
			p.ask("an index is for rows with %s alone. Are only those for Kafka? Then say so of %s in rows", cut(comment(condition), 200), shown(name))
		}
	}
	if c := p.has(leaseNames); c != nil {
		p.note("%s is the present relay's own lock: stop that relay before this one starts, see docs/takeover", shown(c.Name))
	}
	if p.f.NoRows != "" {
		p.note("no rows could be read: %s", cut(p.f.NoRows, 300))
	}
	if p.f.RowSecurity {
		p.note("row security hides rows from this role, so none were read; the role that streams needs BYPASSRLS")
	}
}

// ofKafka are the values of a column that mean Kafka; nil: none is known to.
func (p *proposing) ofKafka(c *Column) (mine []string) {
	if c == nil {
		return nil
	}
	for _, value := range p.known(c.Name) {
		if strings.Contains(fold(value), "kafka") {
			mine = append(mine, value)
		}
	}
	return mine
}

// otherIn is a column in a condition that has no place in the mapping.
func (p *proposing) otherIn(condition string) string {
	for i := range p.f.Columns {
		c := &p.f.Columns[i]
		if !p.used[c.Name] && !slices.Contains(sharedNames, fold(c.Name)) && slices.Contains(strings.FieldsFunc(condition, notOfName), c.Name) {
			return c.Name
		}
	}
	return ""
}

func notOfName(r rune) bool {
	return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
}
