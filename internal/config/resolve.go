package config

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // machines and images may have no zones

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// mostRowBytes is the largest max_row_bytes. PostgreSQL prints a bytea column as twice as many bytes, and a
// few more.
const mostRowBytes = 256 << 20

// defaultMaxAttempts is the budget of attempts of a table with an attempts column.
const defaultMaxAttempts = 10

// checkTable resolves a table's mapping into t.Outbox, or reports problems.
func checkTable(b *binder, cfg *Config, t *Table, at string) {
	if b.hasProblem(at + ".profile") {
		return // every other key would look missing
	}
	r := resolver{b: b, at: at, spec: &t.MappingSpec}
	schema, name, ok := SplitTable(t.Table)
	if !ok && t.Table != "" {
		b.complain(at+".table", fmt.Sprintf("%q is not a table with its schema", t.Table), `write schema.name, for example public.outbox ("my.schema"."table" where a name has a dot)`)
	}
	m := r.mapping(cfg)
	if ok {
		m.MaxRowBytes = maxRowBytes(cfg, t)
		t.Outbox = &outbox.Table{Schema: schema, Name: name, Mapping: m}
		checkShare(b, t, at+".share")
	}
}

// maxRowBytes returns the configured max_row_bytes, or a default. The default leaves room for records that
// fit only after compression, and for topics whose own limit is higher.
func maxRowBytes(cfg *Config, t *Table) int {
	if t.MaxRowBytes > 0 {
		return int(t.MaxRowBytes)
	}
	most := Bytes(1 << 20)
	for _, c := range cfg.Kafka.Clusters {
		if c != nil {
			most = max(most, c.MaxRequestBytes)
		}
	}
	return int(min(4*most, mostRowBytes))
}

// SplitTable splits "schema.name". Either part may be in double quotes, and has to be if it contains a dot or
// a quote.
func SplitTable(text string) (schema, name string, ok bool) {
	schema, rest, ok := cutIdentifier(text)
	if !ok || !strings.HasPrefix(rest, ".") {
		return "", "", false
	}
	name, rest, ok = cutIdentifier(rest[1:])
	return schema, name, ok && rest == ""
}

func cutIdentifier(text string) (name, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		end := strings.IndexAny(text, `."`)
		if end < 0 {
			end = len(text)
		}
		return text[:end], text[end:], isIdentifier(text[:end])
	}
	for i := 1; i < len(text); i++ {
		if text[i] != '"' {
			continue
		}
		if i+1 < len(text) && text[i+1] == '"' {
			i++
			continue
		}
		name = strings.ReplaceAll(text[1:i], `""`, `"`)
		return name, text[i+1:], isIdentifier(name)
	}
	return "", "", false
}

// resolver turns the mapping of one table into an outbox.Mapping.
type resolver struct {
	b    *binder
	at   string // the table's path in the file
	spec *MappingSpec
}

func (r *resolver) complain(key, found, hint string) {
	path := join(r.at, key)
	if !r.b.hasProblem(path) {
		r.b.complain(path, found, hint)
	}
}

func (r *resolver) mapping(cfg *Config) outbox.Mapping {
	s := r.spec
	m := outbox.Mapping{
		ID:             r.columns("id", s.ID),
		Rows:           r.rows(),
		Cluster:        r.cluster(cfg),
		Topic:          r.topic(),
		TopicAllow:     r.allowedTopics(),
		Key:            r.key(),
		Payload:        outbox.PayloadMapping{Expr: r.expr("payload", s.Payload.Column, s.Payload.Path, nil, s.Payload.Decode), Tombstone: s.Payload.Tombstone, EmptyTombstone: s.Payload.EmptyTombstone},
		Headers:        r.headers(),
		Partition:      r.column("partition", s.Partition),
		Partitioner:    outbox.Partitioner(s.Partitioner),
		Timestamp:      r.column("timestamp", s.Timestamp),
		TimestampNow:   s.TimestampRefused == "now",
		CreatedAt:      r.column("created_at", s.CreatedAt),
		AvailableAfter: r.columns("available_after", s.AvailableAfter),
		Zone:           r.zone(),
		Epoch:          map[string]time.Duration{"s": time.Second, "ms": time.Millisecond, "us": time.Microsecond}[s.Epoch],
		Order:          r.columns("order", s.Order),
		Published:      outbox.Published(s.Published),
		OnFailed:       outbox.OnFailed(s.OnFailed),
		Grace:          s.Grace,
		Retention:      s.Retention,
	}
	r.object(&m.Payload)
	r.coexistence(&m)
	if e := s.EventID; e != nil {
		if e.Header == "" {
			r.complain("event_id.header", "is missing", "write event_id: {header: id}")
		}
		m.EventID = outbox.EventID{Name: e.Header, Columns: r.columns("event_id.columns", e.Columns)}
		if len(e.Columns) == 0 {
			m.EventID.Columns = slices.Clone(m.ID)
		}
	}
	if len(m.ID) == 0 {
		r.complain("id", "is missing", "write the primary key's columns, for example id: [id]")
	}
	if m.Payload.Column == "" && s.Payload.Object == nil {
		r.complain("payload.column", "is missing", "write payload: {column: payload}")
	}
	r.state(&m)
	return m
}

// zone returns the time zone; nil: UTC. "Local" is refused: it is this machine's zone, not the writers'.
func (r *resolver) zone() *time.Location {
	name := r.spec.TimeZone
	if name == "UTC" {
		return nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		r.complain("time_zone", fmt.Sprintf("%q is not a time zone", name), "write a name of the IANA database, for example Europe/Berlin")
		return nil
	}
	return zone
}

// object resolves a payload that is made of columns.
func (r *resolver) object(m *outbox.PayloadMapping) {
	s := &r.spec.Payload
	if s.Object == nil {
		return
	}
	const hint = "write payload: {object: [{name: type, value: OrderPlaced}, {name: data, column: payload, as: json}]}"
	if s.Column != "" || s.Path != "" || s.Decode != "none" || s.Tombstone || s.EmptyTombstone {
		r.complain("payload.object", "cannot be combined with column, path, decode, tombstone and empty_tombstone", hint)
	}
	seen := map[string]bool{}
	for i, member := range s.Object {
		key := fmt.Sprintf("payload.object[%d]", i)
		out := outbox.Member{Name: member.Name, Column: r.column(key+".column", member.Column), Form: outbox.MemberForm(member.As), OmitNull: member.OmitNull}
		switch {
		case (member.Column == "") == (member.Value == nil):
			r.complain(key, "has not exactly one of column and value", hint)
		case member.Name == "":
			r.complain(key, "has no name", hint)
		case seen[member.Name]:
			r.complain(key+".name", fmt.Sprintf("%q is the name of two members", member.Name), "give each member a name of its own")
		case member.Value != nil && (member.As != "string" || member.OmitNull):
			r.complain(key, "has as or omit_null with a constant value", "remove it")
		}
		if seen[member.Name] = true; member.Value != nil {
			out.Value = *member.Value
		}
		// People are shown the JSON document among the members, or else the first column.
		if out.Column != "" && (m.Column == "" || out.Form == outbox.MemberJSON && !slices.ContainsFunc(m.Object, func(m outbox.Member) bool { return m.Form == outbox.MemberJSON })) {
			m.Column = out.Column
		}
		m.Object = append(m.Object, out)
	}
	if m.Column == "" {
		r.complain("payload.object", "has no member with a column", hint)
	}
}

// column checks a column's name. An empty name means that there is no column.
func (r *resolver) column(key, name string) string {
	if name != "" && !isIdentifier(name) {
		r.complain(key, fmt.Sprintf("%q is not a column name", name), "write 1 to 63 characters")
	}
	return name
}

// expr resolves a value of the record: a column, a place in its JSON, or the first of several places.
func (r *resolver) expr(key, column, path string, first []PlaceSpec, decode string) outbox.Expr {
	if len(first) == 0 {
		e := r.place(key, column, path)
		e.Base64 = decode == "base64"
		return e
	}
	if column != "" || path != "" {
		r.complain(key, "has first, and column or path", "write first: [{column: headers, path: /key}, {column: id}] alone")
	}
	places := make([]outbox.Expr, len(first))
	for i, p := range first {
		at := fmt.Sprintf("%s.first[%d]", key, i)
		if p.Column == "" {
			r.complain(at+".column", "is missing", "write {column: headers, path: /key} or {column: id}")
		}
		places[i] = r.place(at, p.Column, p.Path)
	}
	e := places[0]
	e.Or, e.Base64 = places[1:], decode == "base64"
	return e
}

func (r *resolver) place(key, column, path string) outbox.Expr {
	pointer, err := outbox.ParsePointer(path)
	switch {
	case err != nil:
		r.complain(key+".path", fmt.Sprintf("%q %s", path, err), "write a JSON Pointer (RFC 6901) such as /orderId or /customer/id, with ~1 for / and ~0 for ~ in a name")
	case len(pointer) > maxPointer:
		r.complain(key+".path", fmt.Sprintf("has more than %d parts", maxPointer), "write a shorter one")
	}
	return outbox.Expr{Column: r.column(key+".column", column), Pointer: pointer}
}

// maxPointer is the largest number of parts of a JSON Pointer.
const maxPointer = 16

func (r *resolver) columns(key string, names []string) []string {
	for i, name := range names {
		if !isIdentifier(name) {
			r.complain(key, fmt.Sprintf("%q is not a column name", name), "write 1 to 63 characters")
		}
		if slices.Contains(names[:i], name) {
			r.complain(key, fmt.Sprintf("the column %q is listed twice", name), "list it once")
		}
	}
	return slices.Clone(names)
}

// ---- the record ----

// topicText matches the characters that Kafka allows in a topic's name.
var topicText = regexp.MustCompile(`^[a-zA-Z0-9._-]*$`)

func (r *resolver) topic() outbox.Template {
	s := r.spec.Topic
	given := count(s.Column != "", len(s.First) > 0, s.Constant != "", !s.Template.Empty())
	if given != 1 {
		found := "is missing"
		if given > 1 {
			found = "has more than one of column, first, constant and template"
		}
		r.complain("topic", found, `write one of topic: {column: topic}, {constant: orders} or {template: "outbox.event.${aggregatetype}"}`)
		return outbox.Template{Literals: []string{""}}
	}
	words := r.topicMap()
	switch {
	case s.Column != "" || len(s.First) > 0:
		e := r.expr("topic", s.Column, s.Path, s.First, "")
		e.Map = words
		return outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{e}}
	case s.Constant != "":
		r.topicName("topic.constant", s.Constant)
		return outbox.Template{Literals: []string{s.Constant}}
	}
	for _, literal := range s.Template.Literals {
		r.topicLiteral("topic.template", literal)
	}
	if len(s.Template.Columns) == 0 {
		r.complain("topic.template", "has no ${column} in it", "name a column, as in outbox.event.${aggregatetype}, or write constant for template")
	}
	return s.Template.Template
}

// allowedTopics returns the names of topics, and the prefixes that end with a star.
func (r *resolver) allowedTopics() []string {
	s := r.spec.Topic
	if s.Allow != nil && s.Constant != "" {
		r.complain("topic.allow", "cannot be combined with constant, which is the only topic of the table", "remove it")
	}
	if s.Allow != nil && s.Map != nil {
		r.complain("topic.allow", "cannot be combined with map, whose topics are the only ones of the table", "remove it")
	}
	for i, pattern := range s.Allow {
		beginning := strings.TrimSuffix(pattern, "*")
		if pattern == "" || len(beginning) > 249 || !topicText.MatchString(beginning) {
			r.complain(fmt.Sprintf("topic.allow[%d]", i), fmt.Sprintf("%q is neither a topic nor the beginning of one", pattern), "write a name such as orders, or its beginning and a star, such as orders.*")
		}
		if beginning != pattern && strings.HasPrefix(beginning, "__") {
			r.complain(fmt.Sprintf("topic.allow[%d]", i), fmt.Sprintf("%q would allow topics of Kafka and of tools around it", pattern), "write the whole name of each topic that begins with two underscores")
		}
	}
	if s.Allow != nil && len(s.Allow) == 0 {
		r.complain("topic.allow", "is empty, so no row could be published", "list the topics that rows may name, or leave it out")
	}
	return slices.Clone(s.Allow)
}

// topicMap returns the map from the column's values to topics.
func (r *resolver) topicMap() *outbox.ValueMap {
	s := r.spec.Topic
	switch {
	case s.Map == nil && s.Otherwise != otherwiseFail:
		r.complain("topic.otherwise", "says what becomes of values that are not in map, but there is no map", "write map: {OrderPlaced: orders}, or remove it")
		return nil
	case s.Map == nil:
		return nil
	case s.Column == "" && len(s.First) == 0:
		r.complain("topic.map", "is of a column's values, but there is no column", "write topic: {column: event_type, map: {OrderPlaced: orders}}")
	case len(s.Map) == 0:
		r.complain("topic.map", "is empty", "write the topics of the column's values, for example {OrderPlaced: orders}")
	}
	m := &outbox.ValueMap{Exact: map[string]string{}}
	for _, text := range slices.Sorted(maps.Keys(s.Map)) {
		r.topicName("topic.map."+text, s.Map[text])
		switch beginning, star := strings.CutSuffix(text, "*"); {
		case !star:
			m.Exact[text] = s.Map[text]
		case beginning == "":
			r.complain("topic.map.*", "means every value", "write otherwise: "+s.Map[text])
		default:
			for _, other := range m.Beginnings {
				if strings.HasPrefix(beginning, other.With) {
					r.complain("topic.map."+text, fmt.Sprintf("begins with %q, which has a topic of its own", other.With), "leave one of the two out, or list whole values: nothing says which of them counts")
				}
			}
			m.Beginnings = append(m.Beginnings, outbox.Beginning{With: beginning, Text: s.Map[text]})
		}
	}
	switch s.Otherwise {
	case otherwiseLeave:
		m.Leave = true
	case otherwiseFail:
	default:
		r.topicName("topic.otherwise", s.Otherwise)
		m.Otherwise = s.Otherwise
	}
	return m
}

// The values of otherwise that are not a topic.
const (
	otherwiseFail  = "fail"
	otherwiseLeave = "leave"
)

// rows returns the conditions for rows that are ours.
func (r *resolver) rows() []outbox.RowCondition {
	var all []outbox.RowCondition
	for i, s := range r.spec.Rows {
		key := fmt.Sprintf("rows[%d]", i)
		const form = "write {column: broker, in: [kafka]} or {column: queue_name, not_in: [failed]}"
		c := outbox.RowCondition{Column: r.column(key+".column", s.Column), Not: s.NotIn != nil}
		c.Values, c.Null = values(append(s.In, s.NotIn...))
		switch {
		case s.Column == "":
			r.complain(key+".column", "is missing", form)
		case (s.In == nil) == (s.NotIn == nil):
			r.complain(key, "has not exactly one of in and not_in", form)
		case len(c.Values) == 0 && !c.Null:
			r.complain(key, "lists no value", form)
		}
		all = append(all, c)
	}
	return all
}

// topicName checks a complete name of a topic.
func (r *resolver) topicName(key, name string) {
	r.topicLiteral(key, name)
	if !isTopic(name) {
		r.complain(key, fmt.Sprintf("%q is not a topic", name), "write 1 to 249 letters, digits, dots, - or _")
	}
}

func isTopic(name string) bool {
	return name != "" && len(name) <= 249 && name != "." && name != ".." && topicText.MatchString(name)
}

func (r *resolver) topicLiteral(key, text string) {
	if !topicText.MatchString(text) {
		r.complain(key, fmt.Sprintf("%q has characters that no topic may have", text), "write letters, digits, dots, - and _ only")
	}
}

func (r *resolver) key() *outbox.Expr {
	k := r.spec.Key
	if k == nil {
		return nil
	}
	const forms = "write one of key: {column: aggregate_id}, {first: [{column: headers, path: /key}, {column: id}]} or {template: \"${tenant_id}:${order_id}\"}"
	given := count(k.Column != "", len(k.First) > 0, !k.Template.Empty())
	switch {
	case given == 0:
		r.complain("key.column", "is missing", "write key: {column: aggregate_id}, or leave key out for records without one")
	case given > 1 || !k.Template.Empty() && k.Path != "":
		r.complain("key", "has more than one of column, first and template", forms)
	case k.Encoding != "text" && (!k.Template.Empty() || k.Encoding != "uuid" && (k.Path != "" || len(k.First) > 0)):
		r.complain("key.encoding", fmt.Sprintf("%s, which is of a whole column", k.Encoding), "name that column alone, or remove encoding")
	case !k.Template.Empty() && len(k.Template.Columns) == 0:
		r.complain("key.template", "has no ${column} in it", "name columns, as in ${tenant_id}:${order_id}, or leave key out for records without one")
		return nil
	case !k.Template.Empty():
		return &outbox.Expr{Column: k.Template.Columns[0].Column, Parts: &k.Template.Template}
	}
	e := r.expr("key", k.Column, k.Path, k.First, "")
	e.Encoding = outbox.Encoding(k.Encoding)
	return &e
}

func (r *resolver) headers() []outbox.HeaderMapping {
	var headers []outbox.HeaderMapping
	for i, h := range r.spec.Headers {
		key := fmt.Sprintf("headers[%d]", i)
		out := outbox.HeaderMapping{Name: h.Name, Column: r.column(key+".column", h.Column), JSON: cmp.Or(r.column(key+".json", h.JSON), r.column(key+".properties", h.Properties)), OmitNull: h.OmitNull}
		if h.Trace != nil {
			out.Trace = r.trace(key+".trace", h.Trace)
			out.Name = cmp.Or(h.Name, map[outbox.TraceFormat]string{outbox.TraceW3C: "traceparent", outbox.TraceB3: "b3"}[out.Trace.Format])
		}
		if h.Encoding != string(outbox.EncodingText) {
			out.Encoding = outbox.Encoding(h.Encoding)
		}
		if h.Value != nil {
			out.Value = *h.Value
		}
		out.Form = r.headerJSON(key, &h)
		if h.Trace == nil {
			e := r.expr(key, cmp.Or(h.Column, out.JSON), h.Path, h.First, h.Decode)
			out.Pointer, out.Or, out.Base64 = e.Pointer, e.Or, e.Base64
			if len(h.First) > 0 {
				out.Column = e.Column
			}
		}
		r.headerForm(key, h)
		if e := r.spec.EventID; e != nil && out.Name != "" && out.Name == e.Header {
			r.complain(key+".name", fmt.Sprintf("%q is the header of event_id, too", out.Name), "give one of them another name: consumers would take either for the event's id")
		}
		headers = append(headers, out)
	}
	return headers
}

// headerJSON returns how a header's JSON is laid out; nil: as an object of strings.
func (r *resolver) headerJSON(key string, h *HeaderSpec) *outbox.JSONHeaders {
	if h.Values == "text" && h.Nested == "refuse" && h.List == nil && h.Except == nil && h.Properties == "" {
		return nil
	}
	form := &outbox.JSONHeaders{Properties: h.Properties != "", Base64: h.Values == "base64", Nested: h.Nested == "json", Except: h.Except}
	if h.List != nil {
		form.Name, form.Value = h.List.Name, h.List.Value
	}
	const hint = "write {json: headers, list: {name: Key, value: Value}, values: base64, except: [\"x-*\"]}"
	switch {
	case h.JSON == "" && (!form.Properties || form.Base64 || form.Nested || h.List != nil):
		r.complain(key, "has values, nested, list or except without json, whose headers they are about", hint)
	case h.List != nil && (form.Name == "" || form.Value == "" || form.Name == form.Value):
		r.complain(key+".list", "does not name two keys", hint)
	case form.Base64 && form.Nested:
		r.complain(key+".nested", "cannot be combined with values: base64", "leave one of them out")
	case slices.ContainsFunc(h.Except, func(e string) bool { return e == "" || e == "*" }):
		r.complain(key+".except", "has an empty name, or a star alone, which is every name", "list names, and beginnings with a star")
	}
	return form
}

func (r *resolver) headerForm(key string, h HeaderSpec) {
	const forms = "write {name: traceparent, column: trace_parent}, {name: source, value: shop}, {json: headers}, {properties: tracingspancontext} or {trace: {trace_id: …, span_id: …}}"
	switch {
	case count(h.Column != "", len(h.First) > 0, h.Value != nil, h.JSON != "", h.Properties != "", h.Trace != nil) != 1:
		r.complain(key, "has not exactly one of column, first, value, json, properties and trace", forms)
	case h.Path != "" && h.Column == "" && h.JSON == "", h.Decode != "none" && h.Column == "" && len(h.First) == 0:
		r.complain(key, "has path or decode without a column to read", forms)
	case h.Encoding != "text" && (h.Column == "" || h.Path != "" || h.Decode != "none"):
		r.complain(key, "has an encoding, which is of a whole column", forms)
	case (h.JSON != "" || h.Properties != "") && h.Name != "":
		r.complain(key, "has a name with json or properties, which name the headers", forms)
	case h.JSON == "" && h.Properties == "" && h.Trace == nil && h.Name == "":
		r.complain(key, "has no name", forms)
	case h.Trace != nil && h.OmitNull:
		r.complain(key, "has omit_null with trace, which is left out without a trace anyway", "remove omit_null")
	case h.Value != nil && h.OmitNull:
		r.complain(key, "has omit_null with a constant value", "remove omit_null")
	}
}

func (r *resolver) cluster(cfg *Config) outbox.ClusterMapping {
	known := clusterNames(&cfg.Kafka)
	m := outbox.ClusterMapping{Default: cfg.Kafka.Default, Known: known}
	c := r.spec.Cluster
	if c == nil {
		return m
	}
	m.Column = r.column("cluster.column", c.Column)
	if c.Allow != nil {
		m.Known = slices.Clone(c.Allow)
	}
	for _, name := range c.Allow {
		checkClusterName(r.b, join(r.at, "cluster.allow"), name, known)
	}
	if c.Default != "" {
		m.Default = c.Default
		checkClusterName(r.b, join(r.at, "cluster.default"), c.Default, known)
	}
	return m
}

// ---- the state ----

func (r *resolver) state(m *outbox.Mapping) {
	s := r.spec.Status
	if m.Published == outbox.PublishedNone {
		r.stateless()
		return
	}
	if s == nil {
		if m.Published == outbox.PublishedStatus {
			r.complain("status", "is missing", "write where the state is kept, for example status: {column: status, pending: [PENDING], sent: SENT, failed: FAILED}, or published: delete")
		}
		s = &StatusSpec{}
	}
	m.Status = r.status(s)
	m.Archive = r.archive(s)
	if m.Published == outbox.PublishedStatus && r.spec.Status != nil {
		r.statusForm(s)
	}
	switch { // the values that mean that another relay has the row
	case s.Processing != "" && s.Column == "":
		r.complain("status.processing", "is a value, but there is no column to hold it", "write column: status")
	case s.Processing == "" && s.RecoverAfter > 0:
		r.complain("status.recover_after", fmt.Sprintf("%s, but no value says that another relay has a row", s.RecoverAfter), "write processing: PROCESSING, or remove it")
	}
	if s.Resend != "" && m.Published.Removes() {
		r.complain("status.resend", fmt.Sprintf("cannot be combined with published: %s, which keeps nothing to send again", m.Published), "remove it")
	}
	if len(r.spec.FailOn) > 0 && s.Failed == "" && s.FailedAt == "" {
		r.complain("fail_on", "lists errors, but nothing says how a failed row is written", "write status: {failed: FAILED} (a value) or {failed_at: COLUMN} (a timestamp)")
	}
	r.budget(s, m)
	if len(m.Order) == 0 && m.CreatedAt == "" {
		r.complain("order", "is missing", "write the columns that follow the order of commits, for example order: [id]")
	} else if len(m.Order) == 0 {
		m.Order = []string{m.CreatedAt}
	}
	r.times(m)
}

// archive resolves the table that rows are moved to.
func (r *resolver) archive(s *StatusSpec) outbox.ArchiveTable {
	const form = "write published: archive and archive: public.outbox_archive"
	text, archives := r.spec.Archive, r.spec.Published == string(outbox.PublishedArchive)
	if text == "" && !archives {
		return outbox.ArchiveTable{}
	}
	schema, name, ok := SplitTable(text)
	switch {
	case text == "":
		r.complain("archive", "is missing, but published is archive", form)
	case !archives:
		r.complain("archive", "is a table that no row is moved to, since published is "+r.spec.Published, form+", or remove it")
	case !ok:
		r.complain("archive", fmt.Sprintf("%q is not a table with its schema", text), "write schema.name, for example public.outbox_archive")
	case s.Column != "" && s.Sent == "":
		r.complain("status.sent", "is missing", "write the value that a row has in the archive, for example sent: SENT")
	}
	return outbox.ArchiveTable{Schema: schema, Name: name}
}

func (r *resolver) status(s *StatusSpec) outbox.StatusMapping {
	out := outbox.StatusMapping{
		Column:       r.column("status.column", s.Column),
		Sent:         s.Sent,
		Failed:       s.Failed,
		SentAt:       r.column("status.sent_at", s.SentAt),
		FailedAt:     r.column("status.failed_at", s.FailedAt),
		SentBy:       r.columns("status.sent_by", s.SentBy),
		Resend:       r.column("status.resend", s.Resend),
		Processing:   s.Processing,
		RecoverAfter: s.RecoverAfter,
		Attempts:     r.column("status.attempts", s.Attempts),
		LastError:    r.column("status.last_error", s.LastError),
		LastErrorMax: s.LastErrorMax,
		Version:      r.column("status.version", s.Version),
		TouchedAt:    r.column("status.touched_at", s.TouchedAt),
	}
	if e := s.ExpiresAt; e != nil {
		out.ExpiresAt, out.ExpiresAfter = r.column("status.expires_at.column", e.Column), e.After
		if e.Column == "" {
			r.complain("status.expires_at.column", "is missing", "write expires_at: {column: expires_at, after: 24h}")
		}
	}
	// A statement cannot write one column twice.
	seen := map[string]bool{out.Column: true, out.SentAt: true, out.FailedAt: true, out.Attempts: true, out.LastError: true, out.Version: true, out.Resend: true}
	for _, c := range []struct{ key, name string }{{"status.touched_at", out.TouchedAt}, {"status.expires_at", out.ExpiresAt}} {
		if c.name != "" && seen[c.name] {
			r.complain(c.key, fmt.Sprintf("the column %q is written as something else, too", c.name), "name a column of its own, or leave it out")
		}
		seen[c.name] = true
	}
	out.Pending, out.PendingNull = values(s.Pending)
	if s.Attempts != "" {
		out.MaxAttempts = defaultMaxAttempts
	}
	if s.MaxAttempts != nil {
		out.MaxAttempts = *s.MaxAttempts
	}
	out.MaxAttemptsColumn = r.column("status.max_attempts_column", s.MaxAttemptsColumn)
	if s.MaxAttemptsColumn != "" && (s.Attempts == "" || out.MaxAttempts == 0) {
		r.complain("status.max_attempts_column", "is given, but attempts are not counted, or max_attempts, which counts where it is NULL, is 0", "write attempts: COLUMN and max_attempts: 10, or remove it")
	}
	return out
}

// statusForm checks how a state is stored: as values of a column, or as timestamps.
func (r *resolver) statusForm(s *StatusSpec) {
	if s.Column == "" {
		if s.SentAt == "" {
			r.complain("status", "has neither column nor sent_at", "write column with pending and sent, or sent_at alone where a timestamp says that a row was sent")
		}
		if len(s.Pending) > 0 || s.Sent != "" || s.Failed != "" {
			r.complain("status", "has values but no column to hold them", "write column: status")
		}
		return
	}
	pending, _ := values(s.Pending)
	if len(pending) == 0 {
		r.complain("status.pending", "is missing", "write the values of rows to be published, for example pending: [PENDING]")
	}
	if s.Sent == "" {
		r.complain("status.sent", "is missing", "write the value of a row that was published, for example sent: SENT")
	}
	all := append(pending, s.Sent, s.Failed, s.Processing)
	for i, v := range all {
		if v != "" && slices.Contains(all[:i], v) {
			r.complain("status", fmt.Sprintf("the value %q means two things", v), "give pending, sent, failed and processing different values")
		}
	}
}

// budget checks that failed attempts can be counted, and that the end of the budget can be stored.
func (r *resolver) budget(s *StatusSpec, m *outbox.Mapping) {
	if m.Status.MaxAttempts == 0 {
		return
	}
	if s.Attempts == "" && (m.Status.MaxAttempts > 1 || m.Published.Removes()) {
		r.complain("status.max_attempts", fmt.Sprintf("%d, but there is no column to count in", m.Status.MaxAttempts), "write attempts: COLUMN, max_attempts: 1 where the first failure is the last, or max_attempts: 0 to try for ever")
	}
	if s.Attempts != "" || m.Published.Removes() {
		return // a row counts as FAILED when its count has reached the budget
	}
	if s.Column != "" && s.Failed == "" || s.Column == "" && s.FailedAt == "" {
		r.complain("status", fmt.Sprintf("max_attempts is %d, but nothing says how a failed row is written", m.Status.MaxAttempts), "write failed: FAILED (a value), failed_at: COLUMN (a timestamp) or attempts: COLUMN (a count that decides), or max_attempts: 0 to try for ever")
	}
}

func (r *resolver) times(m *outbox.Mapping) {
	if m.TimestampNow && m.Timestamp == "" {
		r.complain("timestamp_refused", "is about timestamp, which is not given", "write timestamp: COLUMN, or remove it")
	}
	if m.Retention > 0 && m.Published == outbox.PublishedStatus && m.Status.SentAt == "" && len(m.Status.SentBy) == 0 {
		r.complain("retention", fmt.Sprintf("%s, but no column says when a row was sent", m.Retention), "write status: {sent_at: COLUMN}, or retention: 0s")
	}
	if m.Retention > 0 && m.Published.Removes() {
		r.complain("retention", fmt.Sprintf("cannot be combined with published: %s, which keeps no sent rows in the table", m.Published), "remove it")
	}
	if m.DropPartitions && (m.Retention == 0 || m.CreatedAt == "" || m.RetentionUnsent > 0) {
		r.complain("retention_by", "partitions, which needs retention and created_at, and does not go with retention_unsent", "write both, or retention_by: rows")
	}
	const byCreation = "write created_at: COLUMN, or remove it"
	if m.RetentionUnsent > 0 && m.CreatedAt == "" {
		r.complain("retention_unsent", fmt.Sprintf("%s, but no column says when a row was created", m.RetentionUnsent), byCreation)
	}
	if m.HeadStart > 0 && m.CreatedAt == "" {
		r.complain("head_start", fmt.Sprintf("%s, but no column says when a row was created", m.HeadStart), byCreation)
	}
	m.Grace = max(m.Grace, m.HeadStart)
}

// stateless reports options that need a state, for a table that keeps none.
func (r *resolver) stateless() {
	s := r.spec
	for _, c := range []struct {
		given bool
		key   string
		why   string
	}{
		{s.Status != nil, "status", ""},
		{s.Archive != "", "archive", ""},
		{len(s.AvailableAfter) > 0, "available_after", ", where nothing can wait"},
		{s.Retention > 0, "retention", ""},
		{s.RetentionUnsent > 0, "retention_unsent", ""},
		{s.OnFailed == string(outbox.OnFailedBlock), "on_failed", ""},
		{s.HeadStart > 0, "head_start", ", where nothing tells what another relay has sent"},
		{s.Writer != nil, "writer", ", where nothing can wait"},
		{s.Claim == string(outbox.ClaimRowLock), "claim", ""},
		{s.HeadersTable != nil, "headers_table", ", where rows are not read again"},
		{s.LookFirst, "look_first", ", where nothing tells what became of a row"},
		{len(s.FailOn) > 0, "fail_on", ", where nothing can be written of a failure"},
	} {
		if c.given {
			r.complain(c.key, "cannot be combined with published: none"+c.why, "remove it, or keep a state (published: status or delete)")
		}
	}
}

func count(conditions ...bool) int {
	n := 0
	for _, c := range conditions {
		if c {
			n++
		}
	}
	return n
}
