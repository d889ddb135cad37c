package mapping

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/charset"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Compile makes the plan for reading a table's rows. set is the database's character set; nil: UTF-8. The
// error is an *Error. It names every mapped column that is missing or has an unusable type, and every setting
// that cannot work.
//
// Compile checks only the columns that Row reads: a publication's column list may leave out columns that are
// only written. Verify checks those too.
func Compile(set *charset.Set, t *outbox.Table, cols []Column) (*Plan, error) {
	c := compiler{table: t, cols: cols, set: set}
	plan := c.plan()
	if len(c.faults) > 0 {
		return nil, &Error{Table: t, Faults: c.faults}
	}
	return plan, nil
}

// Binary returns nil if every value that Row takes may come in binary form. Otherwise it returns an *Error
// that names the columns of types whose binary form is not understood (numeric, types of extensions, enums
// that are not known to be enums).
func (p *Plan) Binary() error { return p.binary }

// Verify is Compile for a check of the whole table. It also checks the columns that are only written, or that
// only sweeping uses: attempts, last error, version, the times of sending and failing, order.
func Verify(t *outbox.Table, cols []Column) error {
	c := compiler{table: t, cols: cols}
	c.plan()
	s := &t.Mapping.Status
	c.field(s.SentAt, roleWhen)
	c.field(s.FailedAt, roleWhen)
	c.field(s.Attempts, roleCount)
	c.field(s.MaxAttemptsColumn, roleCount)
	c.field(s.TouchedAt, roleWhen)
	c.field(s.ExpiresAt, roleWhen)
	c.field(s.LastError, roleLastError)
	c.field(s.Version, roleCount)
	for _, name := range t.Mapping.Order {
		c.field(name, roleOrder)
	}
	if len(c.faults) > 0 {
		return &Error{Table: t, Faults: c.faults}
	}
	return nil
}

// role is what a column is mapped as, and which types are allowed for that.
type role struct {
	name string
	hint string // completes "map …" if the type is wrong
	ok   func(kind) bool
	// found: the server has to find the value again, for marks and parks.
	found bool
	// content: the value is published for its content.
	content bool
	// time: the value is read or written as a time.
	time bool
}

func anyKind(kind) bool      { return true }
func isText(k kind) bool     { return k == kindText || k == kindPadded }
func isInteger(k kind) bool  { return k == kindInt2 || k == kindInt4 || k == kindInt8 }
func isTime(k kind) bool     { return k == kindTimestamp || k == kindTimestamptz }
func isJSONText(k kind) bool { return k == kindJSON || k == kindJSONB || isText(k) }

// isName reports whether values of the kind can be names or states. User-defined types (enums, citext) can.
// Whether a text is legal is checked row by row. Whether rows can be found by an id of the type is decided by
// package tablesql (Relation.types).
func isName(k kind) bool {
	return isText(k) || isInteger(k) || k == kindUUID || k == kindEnum || k == kindOther
}

func isIdentity(k kind) bool { return k != kindJSON && k != kindJSONB }

var (
	roleID         = role{name: "part of the row's id", hint: "a column that compares, such as the primary key", ok: isIdentity, found: true}
	roleEventID    = role{name: "part of the event id", hint: "a column that compares, such as the primary key", ok: isIdentity}
	roleTopic      = role{name: "the topic", hint: "a text column", ok: isName, found: true}
	roleCluster    = role{name: "the Kafka cluster's name", hint: "a text column", ok: isName, found: true}
	roleKey        = role{name: "the record key", hint: "", ok: anyKind, found: true, content: true}
	roleKeyUUID    = role{name: "a record key with encoding uuid", hint: "a uuid column, or set encoding: text", ok: func(k kind) bool { return k == kindUUID || isText(k) }, found: true}
	roleKeyInt64   = role{name: "a record key with encoding int64", hint: "a smallint, integer or bigint column, or set encoding: text", ok: isInteger, found: true}
	roleKeyTime    = role{name: "a record key with encoding rfc3339", hint: "a timestamptz or timestamp column, or set encoding: text", ok: isTime, found: true, time: true}
	roleKeyPart    = role{name: "a part of the record key", hint: "a text, uuid or integer column", ok: isName, found: true, content: true}
	rolePayload    = role{name: "the payload", hint: "", ok: anyKind, content: true}
	roleHeader     = role{name: "a header", hint: "", ok: anyKind, content: true}
	roleInt64      = role{name: "a header with encoding int64", hint: "a smallint, integer or bigint column", ok: isInteger}
	roleHeaderUUID = role{name: "a header with encoding uuid", hint: "a uuid column", ok: func(k kind) bool { return k == kindUUID || isText(k) }}
	roleHeaders    = role{name: "headers in JSON", hint: "a jsonb, json, text or bytea column", ok: func(k kind) bool { return isJSONText(k) || k == kindBytea }}
	roleProperties = role{name: "properties of Java", hint: "a text or bytea column", ok: func(k kind) bool { return isText(k) || k == kindBytea }}
	rolePartition  = role{name: "the partition", hint: "a smallint, integer or bigint column", ok: isInteger}
	roleTime       = role{name: "a time", hint: "a timestamptz or timestamp column", ok: isTime, time: true}
	roleStatus     = role{name: "the status", hint: "a text, enum, integer or boolean column", ok: func(k kind) bool { return isName(k) || k == kindBool }}
	roleRows       = role{name: "what tells our rows", hint: "a text, enum, integer, uuid or boolean column", ok: func(k kind) bool { return isName(k) || k == kindBool }, found: true}
	roleWhen       = role{name: "the time of sending or failing", hint: "a timestamptz or timestamp column", ok: isTime, time: true}
	roleCount      = role{name: "a counter", hint: "a smallint, integer or bigint column", ok: isInteger}
	roleLastError  = role{name: "the last error", hint: "a text column", ok: func(k kind) bool { return isText(k) || k == kindOther }}
	roleOrder      = role{name: "part of the order", hint: "a column that compares", ok: isIdentity}
	roleTrace      = role{name: "part of a trace context", hint: "a bigint column", ok: isInteger}
	roleFlag       = role{name: "a flag", hint: "a boolean column", ok: func(k kind) bool { return k == kindBool }}
)

type compiler struct {
	table  *outbox.Table
	cols   []Column
	set    *charset.Set
	at     map[string]int // index of each column among the columns that are read
	faults []ColumnFault
}

// plan compiles twice: first to learn which columns are read, then with their indexes.
func (c *compiler) plan() *Plan {
	c.at = map[string]int{}
	c.compile(new(Plan))
	c.faults = nil
	p := &Plan{table: c.table}
	var textOnly []ColumnFault
	for i, col := range c.cols {
		if _, read := c.at[col.Name]; !read {
			continue
		}
		f := field{at: len(p.wanted), name: col.Name, kind: kindOf(col)}
		p.wanted = append(p.wanted, i)
		p.read = append(p.read, f)
		c.at[f.name] = f.at
		if !f.kind.readsBinary() {
			textOnly = append(textOnly, ColumnFault{
				Column: col.Name, Type: typeName(col),
				Problem: "cannot be read in binary form", Hint: "let the server send text",
			})
		}
	}
	if len(textOnly) > 0 {
		p.binary = &Error{Table: c.table, Faults: textOnly}
	}
	c.compile(p)
	return p
}

func (c *compiler) compile(p *Plan) {
	m := &c.table.Mapping
	if len(m.ID) == 0 {
		c.fault("has no id columns", "name the columns of the primary key")
	}
	p.id = c.fields(m.ID, roleID)
	p.cluster = c.cluster(&m.Cluster)
	p.topic = c.topic(&m.Topic)
	c.key(p, m.Key)
	if m.Payload.Column == "" {
		c.fault("has no payload", "name the payload's column")
	}
	if len(m.Payload.Object) > 0 {
		p.object = c.members(m.Payload.Object)
	} else if m.Payload.Column != "" {
		p.payload = c.value(&m.Payload.Expr, rolePayload)
	}
	c.headers(p, m)
	p.partition = c.optional(m.Partition, rolePartition)
	p.timestamp = c.optional(m.Timestamp, roleTime)
	p.createdAt = c.optional(m.CreatedAt, roleTime)
	p.availableAt = c.fields(m.AvailableAfter, roleTime)
	p.rows = c.rows(m)
	p.pending = c.pending(m)
	if w := &m.Writer; w.Column != "" || w.Until != "" {
		if w.Column == "" || w.Until == "" {
			c.fault("has rows of the writer, but only one of column and until", "name both columns")
		}
		p.writer = &writerPlan{column: c.field(w.Column, roleFlag), until: c.field(w.Until, roleTime)}
	}
}

func (c *compiler) fault(problem, hint string) {
	c.faults = append(c.faults, ColumnFault{Problem: problem, Hint: hint})
}

// field finds a column and checks its type. An empty name means that there is no column.
func (c *compiler) field(name string, r role) field {
	if name == "" {
		return field{}
	}
	i := slices.IndexFunc(c.cols, func(col Column) bool { return col.Name == name })
	if i < 0 {
		c.missing(name, r)
		return field{}
	}
	at := c.at[name]
	c.at[name] = at // records that the column is read
	f := field{at: at, name: name, kind: kindOf(c.cols[i]), exact: r.found}
	if f.kind.hasText() {
		f.set = c.set
	}
	number := isInteger(f.kind) || c.cols[i].OID == oidNumeric
	switch m := &c.table.Mapping; {
	case !r.time:
	case number && !r.found && m.Epoch > 0:
		f.unit = m.Epoch.Microseconds()
		return f
	case number && !r.found:
		r.hint += ", or say what its numbers count since 1970: epoch: s, ms or us"
	case f.kind == kindTimestamp && r.found && m.Zone != nil: // the server's time zone rules may differ from ours
		c.faults = append(c.faults, ColumnFault{
			Column: name, Type: typeName(c.cols[i]),
			Problem: "cannot be " + r.name + " while time_zone is set, since a key is found in the table as it is written", Hint: "map a timestamptz column, or set encoding: text",
		})
	case f.kind == kindTimestamp:
		f.zone = m.Zone
	}
	if f.kind == kindOID && r.content {
		c.faults = append(c.faults, c.largeObject(name, r))
	} else if !r.ok(f.kind) {
		c.faults = append(c.faults, ColumnFault{
			Column: name, Type: typeName(c.cols[i]),
			Problem: "cannot be " + r.name, Hint: "map " + r.hint,
		})
	}
	return f
}

// largeObject returns the fault of a column of large objects: only the object's number would be published.
func (c *compiler) largeObject(name string, r role) ColumnFault {
	table := sql.Identifier(c.table.Schema, c.table.Name)
	return ColumnFault{
		Column: name, Type: "oid",
		Problem: "cannot be " + r.name + ", since the number of a large object is not its content",
		Hint: fmt.Sprintf("ALTER TABLE %s ALTER %[2]s TYPE bytea USING lo_get(%[2]s) (for text: TYPE text USING convert_from(lo_get(%[2]s), 'UTF8')), "+
			"and map the property so, in Hibernate without @Lob; or, if the number itself is meant: TYPE bigint", table, sql.Identifier(name)),
	}
}

func (c *compiler) fields(names []string, r role) []field {
	fields := make([]field, 0, len(names))
	for _, name := range names {
		if name == "" {
			c.fault("has an empty column name as "+r.name, "name a column")
		}
		fields = append(fields, c.field(name, r))
	}
	return fields
}

func (c *compiler) optional(name string, r role) *field {
	if name == "" {
		return nil
	}
	f := c.field(name, r)
	return &f
}

func (c *compiler) cluster(m *outbox.ClusterMapping) clusterPlan {
	p := clusterPlan{column: c.optional(m.Column, roleCluster), fallback: m.Default, known: make(map[string]string, len(m.Known))}
	for _, name := range m.Known {
		p.known[name] = name
	}
	if m.Column == "" && m.Default == "" {
		c.fault("leads to no Kafka cluster", "name a default cluster or a column with its name")
	}
	return p
}

func (c *compiler) topic(m *outbox.Template) topicPlan {
	if len(m.Literals) != len(m.Columns)+1 {
		c.fault("has no topic", "name a topic, a column or a template such as outbox.event.${aggregatetype}")
		return topicPlan{}
	}
	if len(m.Columns) == 0 && !LegalTopic(m.Literals[0]) {
		c.fault("has the topic "+quoted(m.Literals[0])+", which is not legal in Kafka",
			"use 1 to 249 of a-z, A-Z, 0-9, dot, underscore and hyphen")
	}
	p := topicPlan{templatePlan: c.template(m, roleTopic)}
	p.null = "is NULL, but names the topic: write one into the row, or map the topic to what every row has"
	if m.Known() == nil {
		p.allow = newTopicList(c.table)
	}
	return p
}

func (c *compiler) template(m *outbox.Template, r role) templatePlan {
	p := templatePlan{literals: m.Literals, columns: make([]value, len(m.Columns))}
	for i := range m.Columns {
		p.columns[i] = c.value(&m.Columns[i], r)
	}
	return p
}

func (c *compiler) value(e *outbox.Expr, r role) value {
	if e.Column == "" {
		c.fault("has an empty column name as "+r.name, "name a column")
	}
	v := c.place(e, r, len(e.Or) == 0)
	for i := range e.Or {
		v.or = append(v.or, c.place(&e.Or[i], r, false))
	}
	v.words, v.base64 = e.Map, e.Base64
	return v
}

// place compiles one of the places of a value. alone: it is the only one.
func (c *compiler) place(e *outbox.Expr, r role, alone bool) value {
	switch {
	case len(e.Pointer) > 0:
		r = role{name: "JSON that holds " + r.name, hint: "a json, jsonb, text or bytea column", ok: func(k kind) bool { return isJSONText(k) || k == kindBytea }, found: r.found}
	case !alone: // several places must be of one kind
		r.ok = isName
		r.hint = "a text, uuid or integer column"
	}
	v := value{field: c.field(e.Column, r), pointer: e.Pointer}
	if len(e.Pointer) > 0 {
		v.set = c.set // for bytea too: the server reads it as text
	}
	return v
}

// rows returns the conditions for rows that are ours.
func (c *compiler) rows(m *outbox.Mapping) []condition {
	var all []condition
	for _, r := range m.Rows {
		f := c.field(r.Column, roleRows)
		all = append(all, condition{value: value{field: f}, texts: printed(r.Values, f.kind), null: r.Null, excludes: r.Not})
	}
	if e := m.LeavesToOthers(); e != nil {
		all = append(all, condition{value: c.value(e, roleTopic)})
	}
	return all
}

func (c *compiler) key(p *Plan, m *outbox.Expr) {
	if m == nil {
		return
	}
	if m.Column == "" {
		c.fault("has a key without a column", "name the key's column, or leave the key out")
		return
	}
	r := roleKey
	switch m.Encoding {
	case outbox.EncodingUUID:
		r, p.keyEncode = roleKeyUUID, (*field).uuid
	case outbox.EncodingInt64:
		r, p.keyEncode = roleKeyInt64, (*field).int64
	case outbox.EncodingRFC3339:
		r, p.keyEncode = roleKeyTime, (*field).rfc3339
	case outbox.EncodingText, "":
	default:
		c.fault(fmt.Sprintf("has the key encoding %q", m.Encoding), "use text, uuid, int64 or rfc3339")
	}
	if m.Parts != nil {
		parts := c.template(m.Parts, roleKeyPart)
		parts.null = "is NULL, but is a part of the key: write a value into the row, or make the key of columns that every row has"
		p.key = &value{field: parts.columns[0].field, parts: &parts}
		return
	}
	v := c.value(m, r)
	p.key = &v
}

func (c *compiler) headers(p *Plan, m *outbox.Mapping) {
	if m.EventID.Name != "" {
		if len(m.EventID.Columns) == 0 {
			c.fault("has an event id header without columns", "name the columns that identify an event, such as the id's")
		}
		p.event = c.fields(m.EventID.Columns, roleEventID)
		free := 0
		for i := range p.event {
			if p.event[i].free() {
				free++
			}
		}
		p.eventEscapes = free > 1
		p.headers = append(p.headers, headerPlan{source: headerEventID, name: m.EventID.Name})
	}
	for i := range m.Headers {
		p.headers = append(p.headers, c.header(&m.Headers[i]))
	}
}

func (c *compiler) header(m *outbox.HeaderMapping) headerPlan {
	switch {
	case m.Trace != nil && m.Name != "" && m.Column == "" && m.Value == "" && m.JSON == "":
		return c.trace(m)
	case m.Trace != nil:
	case m.JSON != "" && m.Column == "" && m.Value == "" && m.Name == "":
		e := m.Expr()
		r := roleHeaders
		if m.Form != nil && m.Form.Properties {
			r = roleProperties
		}
		return headerPlan{source: headerJSON, column: c.value(&e, r), form: m.Form}
	case m.Column != "" && m.JSON == "" && m.Value == "" && m.Name != "":
		e := m.Expr()
		r, encode := roleHeader, reader(nil)
		switch m.Encoding {
		case outbox.EncodingInt64:
			r, encode = roleInt64, (*field).int64
		case outbox.EncodingRFC3339:
			r, encode = roleTime, (*field).rfc3339
		case outbox.EncodingUUID:
			r, encode = roleHeaderUUID, (*field).uuid
		}
		return headerPlan{source: headerColumn, name: m.Name, column: c.value(&e, r), omitNull: m.OmitNull, encode: encode}
	case m.Column == "" && m.JSON == "" && m.Name != "":
		return headerPlan{source: headerConstant, name: m.Name, constant: []byte(m.Value)}
	}
	c.fault("has a header that is none of a column with a name, a constant with a name, a trace context with a name, and a JSON column",
		"give each header exactly one of these")
	return headerPlan{}
}

func (c *compiler) trace(m *outbox.HeaderMapping) headerPlan {
	t := m.Trace
	if t.Format != outbox.TraceW3C && t.Format != outbox.TraceB3 {
		c.fault(fmt.Sprintf("has the trace format %q", t.Format), "use w3c or b3")
	}
	if t.TraceID == "" || t.SpanID == "" {
		c.fault("has a trace header without a trace id or a span id", "name the columns of both")
	}
	return headerPlan{source: headerTrace, name: m.Name, trace: &tracePlan{
		format: t.Format,
		high:   c.optional(t.TraceIDHigh, roleTrace), id: c.field(t.TraceID, roleTrace), span: c.field(t.SpanID, roleTrace),
		sampled: c.optional(t.Sampled, roleFlag),
	}}
}

func (c *compiler) pending(m *outbox.Mapping) pendingPlan {
	s := &m.Status
	p := pendingPlan{resend: c.optional(s.Resend, roleFlag)}
	columns := s.SentBy
	if s.CountDecides() {
		p.attempts, p.most = c.optional(s.Attempts, roleCount), int64(s.MaxAttempts)
		p.mostOf = c.optional(s.MaxAttemptsColumn, roleCount)
	}
	if s.Column != "" {
		if len(s.Pending) == 0 {
			c.fault("has a status column but no value that means pending", "name at least one pending value")
		}
		f := c.field(s.Column, roleStatus)
		p.column, p.values, p.null = &f, printed(s.Pending, f.kind), s.PendingNull
	} else {
		columns = slices.Concat([]string{s.SentAt, s.FailedAt}, s.SentBy)
	}
	for _, name := range columns {
		if name != "" {
			p.nulls = append(p.nulls, c.field(name, roleWhen))
		}
	}
	if p.column == nil && len(p.nulls) == 0 && !m.Published.Removes() && m.Published != outbox.PublishedNone {
		c.fault("says nowhere which rows are pending", "map a status column or a sent_at column, or set published: delete or none")
	}
	return p
}

// Printed returns values as PostgreSQL prints them in a column; for names, without the blanks of the padding.
func Printed(values []string, c Column) []string { return printed(values, kindOf(c)) }

func printed(values []string, k kind) []string {
	all := slices.Clone(values)
	for i, v := range all {
		switch {
		case k == kindBool && strings.EqualFold(v, "true"):
			all[i] = "t"
		case k == kindBool && strings.EqualFold(v, "false"):
			all[i] = "f"
		case k == kindPadded:
			all[i] = strings.TrimRight(v, " ")
		}
	}
	return all
}

// missing reports a missing column, with the existing columns and those that may be meant.
func (c *compiler) missing(name string, r role) {
	if slices.ContainsFunc(c.faults, func(f ColumnFault) bool { return f.Column == name && f.Type == "" }) {
		return // it is reported already
	}
	names := make([]string, len(c.cols))
	for i := range c.cols {
		names[i] = c.cols[i].Name
	}
	hint := "map an existing column; "
	if meant := outbox.Nearest(name, names, len(name)/2); meant != "" {
		hint = fmt.Sprintf("did you mean %q? ", meant)
	}
	switch {
	case len(names) == 0:
		hint += "there are no columns"
	case len(names) > maxListed:
		hint += "there are " + strings.Join(names[:maxListed], ", ") + ", …"
	default:
		hint += "there are " + strings.Join(names, ", ")
	}
	c.faults = append(c.faults, ColumnFault{
		Column: name, Problem: "does not exist, but is mapped as " + r.name, Hint: hint,
	})
}

// maxListed is how many columns an error lists.
const maxListed = 40

func typeName(c Column) string {
	switch name := typeNames[c.OID]; {
	case c.Enum:
		return "enum"
	case name != "":
		return name
	}
	return "type with OID " + strconv.FormatUint(uint64(c.OID), 10)
}
