package suggest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml"
)

// column returns a value of the form {column: name}.
func column(name string) yaml.MapSlice { return yaml.MapSlice{{Key: "column", Value: name}} }

// mapping makes a proposal from names and types.
func (p *proposing) mapping() {
	id := p.f.Unique[0]
	why := "the primary key"
	for _, name := range id {
		p.used[name] = true
		if c := p.f.column(name); c == nil || !c.NotNull {
			why = "the first unique index"
		}
	}
	// The state comes first, because a column such as "published" can be nothing else. Its lines are written
	// last.
	state := *p
	state.Proposal = &Proposal{}
	state.state()
	p.stateful = state.Lines[0].Value != "none"
	p.givenUp()
	p.add("id", id, "%s", why)
	payload := p.payload()
	if p.Refused = p.unreadable(payload); p.Refused != "" {
		p.Lines, p.Notes = nil, nil
		return
	}
	p.body = payload.Name
	if c := p.take(typeNames, (*Column).word); c != nil {
		p.kind = c.Name
	}
	p.topic()
	p.key()
	p.add("payload", column(payload.Name), "%s, published as it is stored", payload.Type).Ask = p.doubt(payload)
	p.headers()
	p.times()
	p.Lines = append(p.Lines, state.Lines...)
	p.Notes = append(p.Notes, state.Notes...)
	p.others()
}

func (p *proposing) payload() *Column {
	c := p.take(payloadNames, (*Column).content)
	if c == nil { // a type for content that can be nothing else
		c = p.use(p.only(func(c *Column) bool { return c.json() || c.is("bytea") }))
	}
	if c == nil {
		c = p.likePayload()
	}
	if c == nil { // as a last resort, a short text with a payload's name
		c = p.take(words("payload body data content"), (*Column).text)
	}
	return c
}

// doubt returns the question whether a column is the payload; "" if its name says so.
func (p *proposing) doubt(c *Column) string {
	if p.guessed {
		return "which column is the payload? The name of " + shown(c.Name) + " does not say it."
	}
	values := p.f.values(c.Name)
	if c.text() && len(values) > 0 && !slices.ContainsFunc(values, func(v string) bool { return strings.Trim(v, "0123456789") != "" || len(v) > 10 }) {
		return fmt.Sprintf("does %s hold the payload? It holds numbers only. Of large objects (Hibernate's @Lob)? Then the content is not in the table: ALTER TABLE … ALTER %[1]s TYPE text USING convert_from(lo_get(%[1]s::oid), 'UTF8').", shown(c.Name))
	}
	if strings.Contains(fold(c.Name), "payload") {
		return ""
	}
	var also []string
	for i := range p.f.Columns {
		other := &p.f.Columns[i]
		if !p.used[other.Name] && !other.Generated && other.content() && other.Chars == 0 && slices.Contains(payloadNames, fold(other.Name)) {
			also = append(also, other.Name)
		}
	}
	if len(also) == 0 {
		return ""
	}
	return "which column is the payload, " + shown(c.Name) + " or " + allShown(also, " or ") + "?"
}

// likePayload returns the only column that has JSON objects in all sampled rows, or else the only column of
// bytes. It guesses only if a state shows that the table is an outbox.
func (p *proposing) likePayload() *Column {
	if !p.stateful {
		return nil
	}
	objects := func(c *Column) bool {
		values := p.f.values(c.Name)
		return c.content() && len(values) > 0 && !slices.ContainsFunc(values, func(v string) bool { _, ok, _ := fieldsOf(v); return !ok })
	}
	for _, fits := range []func(*Column) bool{objects, func(c *Column) bool { return c.is("bytea") }} {
		if c := p.use(p.only(fits)); c != nil {
			p.guessed = true
			return c
		}
	}
	return nil
}

// only returns the single unused column that fits; nil: there is none, or there are several.
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

// unreadable returns why the payload cannot be published.
func (p *proposing) unreadable(c *Column) string {
	if c == nil {
		if c := p.f.find(func(c *Column) bool { return c.is("oid") && slices.Contains(payloadNames, fold(c.Name)) }); c != nil {
			return "column " + shown(c.Name) + " holds numbers of large objects (Hibernate's @Lob) and not their content: ALTER TABLE … ALTER … TYPE bytea USING lo_get(…), and map the property so, without @Lob"
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

func (p *proposing) topic() {
	c := p.take(topicNames, (*Column).word)
	switch {
	case p.o.Topic != "":
		p.add("topic", yaml.MapSlice{{Key: "constant", Value: p.o.Topic}}, "as you said")
	case c != nil:
		line := p.add("topic", column(c.Name), "the topic by the column's name%s", p.seen(c))
		if slices.Contains(words("destination target route"), fold(c.Name)) {
			line.Ask = "does " + shown(c.Name) + " hold names of Kafka topics" + p.seen(c) + "?"
		}
	default:
		p.noTopic()
	}
}

// noTopic asks for the topic, which only the application's code has: for each type of event that was seen, or
// for all rows.
func (p *proposing) noTopic() {
	ask := "which topic? No column names one."
	if c := p.has(sharedNames); c != nil {
		ask = "which topic? No column names one; " + shown(c.Name) + " may say where a row goes."
	}
	var topics yaml.MapSlice
	if p.kind != "" {
		ask += " It may follow from " + shown(p.kind) + p.seen(p.f.column(p.kind)) + "."
		for _, value := range p.known(p.kind) {
			if value != "" && len(value) <= 200 && !strings.HasSuffix(value, "*") {
				topics = append(topics, yaml.MapItem{Key: value, Value: question("which topic?")})
			}
		}
	}
	router := ""
	if c := p.has(aggregateNames); c != nil && c.word() {
		router = `, as Debezium's router does {template: "outbox.event.${` + c.Name + `}"}`
		if !plainWord.MatchString(c.Name) {
			router = ""
		}
	}
	if len(topics) > 0 && len(topics) <= mostTypes {
		topic := yaml.MapSlice{{Key: "column", Value: p.kind}, {Key: "map", Value: topics}, {Key: "otherwise", Value: "fail"}}
		p.add("topic", topic, "%s Or for all rows {constant: TOPIC}%s", ask, router)
		return
	}
	p.ask("topic", "%s Candidates: {constant: TOPIC}%s", ask, router)
}

// known returns the known values of a column, sorted.
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
	return " (" + allShown(values, ", ") + more + ")"
}

func (p *proposing) key() {
	if c := p.take(keyNames, (*Column).keyLike); c != nil {
		line := p.add("key", column(c.Name), "records of one key keep their order")
		if p.unique(c.Name) {
			line.Ask = "is this the key? Each row has a value of its own in it, so no two records keep an order."
		}
		return
	}
	var ids []string
	for _, c := range p.f.Columns {
		folded := fold(c.Name)
		if !p.used[c.Name] && c.keyLike() && len(folded) > 2 && strings.HasSuffix(folded, "id") && !slices.Contains(otherIDs, folded) && !p.unique(c.Name) {
			ids = append(ids, c.Name)
		}
	}
	fields := commonFields(p)
	switch {
	case len(ids) == 1:
		p.used[ids[0]] = true
		p.add("key", column(ids[0]), "").Ask = "which key? No column names one. This is the only column that looks like the id of what the event is about; without this key records have none, and no order."
	case len(ids) == 0 && len(fields) == 1:
		p.add("key", p.field(fields[0]), "").Ask = "which key? No column names one. This is the only field of the payload that looks like it; without this key records have none, and no order."
	default:
		var may []string
		for _, id := range ids[:min(len(ids), 5)] {
			may = append(may, flow(column(id)))
		}
		for _, field := range fields {
			may = append(may, flow(p.field(field)))
		}
		if len(may) == 0 {
			may = []string{"{column: " + p.body + ", path: /FIELD}"}
		}
		p.ask("key", "which key? No column names one; without this key records have none, and no order. Candidates: %s", strings.Join(may, ", "))
	}
}

// unique reports whether each row has its own value in the column. Such a column gives no order.
func (p *proposing) unique(name string) bool {
	return slices.ContainsFunc(p.f.Unique, func(columns []string) bool { return len(columns) == 1 && columns[0] == name })
}

// field returns the value for a field of the payload.
func (p *proposing) field(name string) yaml.MapSlice {
	pointer := "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	return append(column(p.body), yaml.MapItem{Key: "path", Value: pointer})
}

func (p *proposing) headers() {
	var headers []any
	header := func(items ...yaml.MapItem) { headers = append(headers, yaml.MapSlice(items)) }
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
	if c := p.take(headerNames, func(c *Column) bool { return c.json() || c.text() || c.is("bytea") }); c != nil {
		object := yaml.MapSlice{{Key: "json", Value: c.Name}}
		if p.headersFit(c) {
			headers = append(headers, object)
		} else {
			why := "no row was there to tell"
			if len(p.f.values(c.Name)) > 0 {
				why = "not in every sampled row"
			}
			headers = append(headers, question("is "+shown(c.Name)+" an object of texts, numbers and booleans that are headers? "+why+". Candidate: "+flow(object)+", or remove this item"))
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

// nowLike matches the default of a column with the creation time.
var nowLike = regexp.MustCompile(`(?i)^\(?(?:now|clock_timestamp|statement_timestamp|transaction_timestamp|timezone)\(|^CURRENT_TIMESTAMP`)

func (p *proposing) times() {
	created, guessed := p.take(createdNames, (*Column).time), false
	if created == nil { // a partitioned table may have it in its key
		if c := p.has(createdNames); c != nil && c.time() && slices.Contains(p.f.Unique[0], c.Name) {
			created = c
		}
	}
	if created == nil {
		created = p.only(func(c *Column) bool {
			return c.time() && nowLike.MatchString(c.Default) && !slices.Contains(otherTimes, fold(c.Name))
		})
		guessed = created != nil
	}
	if created != nil {
		line := p.add("created_at", created.Name, "the age of a row")
		if guessed {
			line.Ask = "when was a row made? This is the only time with now as its default."
		}
	}
	due := p.takeTimes(dueNames)
	if len(due) > 0 { // the other one is until when another relay has the row
		due = append(due, p.takeTimes(untilNames)...)
	}
	switch {
	case !p.stateful || len(due) == 0:
	case len(due) == 1:
		p.add("available_after", due[0], "rows wait until then")
	default:
		p.add("available_after", due, "rows wait until each of these has passed")
	}
	if c := p.take(dueNames, (*Column).epoch); c != nil && p.stateful && len(due) == 0 {
		p.ask("available_after", "may rows be published before %s? If so, remove this key; else write [%s], and since it is %s, epoch: s, ms or us, too.", shown(c.Name), c.Name, c.Type)
	}
	p.order(created, guessed)
	if created != nil && created.is("timestamp without time zone") {
		p.note("times without a zone are read as UTC; if %s is local time: time_zone: Europe/Berlin, or as it is", shown(created.Name))
	}
	if c := p.take(partitionNames, (*Column).integer); c != nil {
		p.add("partition", c.Name, "").Ask = "is this the partition of the record? If not, remove this key."
	}
}

// order proposes the columns that give the order of sweeping.
func (p *proposing) order(created *Column, guessed bool) {
	id := p.f.Unique[0]
	counted := p.f.find(func(c *Column) bool { return slices.Contains(id, c.Name) && c.counted() })
	if counted == nil {
		counted = p.f.find(func(c *Column) bool { return slices.Contains(sequenceNames, fold(c.Name)) && c.counted() })
	}
	epoch := p.take(createdNames, (*Column).epoch)
	switch {
	case counted != nil:
		p.add("order", []string{counted.Name}, "counted up with each INSERT")
	case created != nil:
		line := p.add("order", []string{created.Name}, "as near to the order of commits as the table tells")
		if guessed {
			line.Ask = "which columns tell in which order rows were made?"
		}
	case epoch != nil && epoch.integer():
		p.add("order", []string{epoch.Name}, "as near to the order of commits as the table tells")
		p.note("%s is a number, so created_at is left out and the age of rows is not known; to have it, write created_at: %s and epoch: s, ms or us", shown(epoch.Name), Scalar(epoch.Name))
	default:
		var may []string
		for i := range p.f.Columns {
			c := &p.f.Columns[i]
			if c == epoch || !p.used[c.Name] && c.NotNull && (c.time() || c.counted() || slices.Contains(sequenceNames, fold(c.Name))) {
				may = append(may, "["+Scalar(c.Name)+"]")
			}
		}
		if may = append(may, flow(id)+", which is any order unless its values rise"); len(may) > 6 {
			may = may[:6]
		}
		p.ask("order", "which columns tell in which order rows were made? No name says it. Candidates: %s", strings.Join(may, ", "))
	}
}

// takeTimes takes all columns with these names that are times.
func (p *proposing) takeTimes(names []string) (all []string) {
	for c := p.take(names, (*Column).time); c != nil; c = p.take(names, (*Column).time) {
		all = append(all, c.Name)
	}
	return all
}

// givenUp finds flags of rows that must not be published, whatever their state.
func (p *proposing) givenUp() {
	for i := range p.f.Columns {
		c := &p.f.Columns[i]
		if !p.used[c.Name] && c.boolean() && (slices.Contains(keptNames, bare(c.Name)) || slices.Contains(keptNames, fold(c.Name)) || slices.Contains(deletedNames, fold(c.Name))) {
			p.used[c.Name] = true
			p.excluded = append(p.excluded, c.Name)
		}
	}
}

// ours adds a condition on rows, or a question for one.
func (p *proposing) ours(condition any, why string) {
	for i := range p.Lines {
		if l := &p.Lines[i]; l.Key == "rows" {
			if all, ok := l.Value.([]any); ok {
				l.Value = append(all, condition)
			}
			return
		}
	}
	p.add("rows", []any{condition}, "%s", why)
}

// others asks about columns that point to other readers and writers.
func (p *proposing) others() {
	if c := p.has(sharedNames); c != nil {
		mine := slices.DeleteFunc(p.known(c.Name), func(value string) bool { return !strings.Contains(fold(value), "kafka") })
		if len(mine) > 0 {
			p.ours(append(column(c.Name), yaml.MapItem{Key: "in", Value: mine}), "the others are for somebody else")
		} else {
			p.ours(question("does the table hold rows that are for somebody else than Kafka ("+shown(c.Name)+p.seen(c)+")? They would be published and marked too. Candidate: "+
				flow(append(column(c.Name), yaml.MapItem{Key: "in", Value: []string{"VALUE"}}))+"; if not, remove this item"), "")
		}
	}
	for _, c := range p.excluded {
		item := any(append(column(c), yaml.MapItem{Key: "not_in", Value: []any{"true"}}))
		if !slices.Contains(keptNames, fold(c)) {
			item = question("are rows in which " + shown(c) + " is true to be left alone? Candidate: " + flow(item) + "; if not, remove this item")
		}
		p.ours(item, "the others were given up or cancelled")
	}
	for _, condition := range p.f.Partial[:min(len(p.f.Partial), 3)] {
		names := strings.FieldsFunc(condition, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		other := p.f.find(func(c *Column) bool {
			return !p.used[c.Name] && !slices.Contains(p.excluded, c.Name) && !slices.Contains(sharedNames, fold(c.Name)) && slices.Contains(names, c.Name)
		})
		if other != nil {
			p.ours(question("an index is for rows with "+cut(comment(condition), 200)+" alone. Are only those for Kafka? Candidate: "+
				flow(append(column(other.Name), yaml.MapItem{Key: "in", Value: []string{"VALUE"}}))+"; if not, remove this item"), "")
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
