// Package mapping makes an outbox.Row from the column values of an outbox row, according to the table's
// outbox.Mapping. Decoder (values from the WAL) and sweeper (values from a SELECT) share it, so that a row
// gives the same record in whichever way it came.
//
// The package is pure: no I/O, no clock, no goroutine, no logging. It never drops a row, and never replaces a
// value that it cannot read by a default. A fault of the table is an *Error from Compile. A fault of a row is
// in the row's Err.
package mapping

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/charset"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Column is a column whose values can be read.
type Column struct {
	Name string // unquoted, as in the catalogue
	OID  uint32 // of the column's type; for a domain that of its base type, if known
	// Enum says that the type is known to be an enum, whose binary form is its label. If it is false, only
	// the text form of such a type can be read.
	Enum bool
}

// Value is one column's value as PostgreSQL sent it. Text is in the database's encoding. Data is read only
// during a call of Row, which copies what it keeps.
type Value struct {
	Data   []byte
	Length uint32 // length in bytes of a value that is too long
	Format byte
}

// The formats of values, as in TupleData.
// https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
const (
	Null      byte = 'n'
	Text      byte = 't'
	Binary    byte = 'b'
	Unchanged byte = 'u' // a TOASTed value that is unchanged and was not sent
	// LongText and LongBinary are formats of our own: the value has Length bytes in this form, too many to be
	// read.
	LongText   byte = 'l'
	LongBinary byte = 'L'
)

func (v *Value) long() bool { return v.Format == LongText || v.Format == LongBinary }

// Plan is a mapping compiled for a table's columns. It is immutable. Any number of goroutines may use it,
// each with an Arena of its own.
type Plan struct {
	table  *outbox.Table
	wanted []int   // ascending, unique
	read   []field // parallel to wanted
	binary error   // why values must not come in binary form; nil: they may

	id    []field // at least one
	event []field
	// eventEscapes: at least two columns of the event id are free text, so separators inside them are
	// escaped.
	eventEscapes bool
	cluster      clusterPlan
	topic        topicPlan
	key          *value
	keyEncode    reader // nil: the key is its text
	payload      value
	object       []memberPlan // used instead of payload; none: there is no object
	// headers are those of the event id, followed by the mapping's, in order.
	headers []headerPlan

	partition, timestamp, createdAt *field
	availableAt                     []field

	rows    []condition
	pending pendingPlan
	writer  *writerPlan // nil: there are no rows of a writer
}

// field is a mapped column: where its value is and how it is read.
type field struct {
	at   int // index into the values
	name string
	kind kind
	// set is the character set of the column's text; nil: UTF-8. exact: the server has to find the value
	// again.
	set   *charset.Set
	exact bool
	// zone is the time zone for a local time; nil: UTC. unit is how many microseconds one unit of a numeric
	// time has; 0: the time is not a number.
	zone *time.Location
	unit int64
}

type clusterPlan struct {
	column   *field // nil: the result is always fallback
	known    map[string]string
	fallback string // empty: there is none
}

// templatePlan is literals[0] columns[0] literals[1] and so on. Without columns the text is literals[0].
type templatePlan struct {
	literals []string
	columns  []value
	null     fault // the fault of a column that is NULL
}

type topicPlan struct {
	templatePlan
	allow *topicList // nil: the names come from the mapping itself
}

// reader turns a column's value into bytes; nil for NULL.
type reader func(*field, Value, *Arena) ([]byte, fault)

// headerPlan is one source of headers: the event id, a constant, a column, a JSON object or a trace context.
type headerPlan struct {
	source   headerSource
	name     string
	constant []byte
	column   value
	omitNull bool
	encode   reader              // nil: the column's content
	form     *outbox.JSONHeaders // for headerJSON; nil: an object of strings
	trace    *tracePlan          // for headerTrace
}

type headerSource uint8

const (
	headerEventID headerSource = iota + 1
	headerConstant
	headerColumn
	headerJSON
	headerTrace
)

// pendingPlan says when a row is pending. Three conditions must hold: its status column has one of the values
// (column nil: there is none), all columns of nulls are NULL, and its attempts are below most (attempts nil:
// not counted). A row is also pending if the column resend is true.
type pendingPlan struct {
	column   *field
	values   []string
	null     bool // NULL counts as pending too
	nulls    []field
	attempts *field
	most     int64
	mostOf   *field // the column with the row's own budget; nil: none
	resend   *field
}

// writerPlan: rows whose column is true belong to their writer until the time in until.
type writerPlan struct{ column, until field }

// Wanted returns which columns' values Row takes, as ascending indexes into the columns given to Compile. The
// caller must not change it.
func (p *Plan) Wanted() []int { return p.wanted }

// Row makes a row from values, which are parallel to Wanted. It always returns a row, with the ID set. If
// something is wrong with the row, Err has the first fault (a *RowError). If the topic is at fault, Topic
// still has what the columns say, so that the row's scope is known. XID and Commit are left 0.
func (p *Plan) Row(values []Value, a *Arena) *outbox.Row {
	if len(values) != len(p.wanted) {
		panic(fmt.Sprintf("mapping: %d values for %d wanted columns of %s", len(values), len(p.wanted), p.table))
	}
	own, size, missing := false, 0, false
	for i := range values {
		v := &values[i]
		own, size, missing = own || len(v.Data) >= ownBytes, size+len(v.Data), missing || v.long()
	}
	r := reading{plan: p, values: values, arena: a, row: a.row(own)}
	r.row.Table = p.table
	r.row.Partition = -1
	most := p.table.Mapping.MaxRowBytes
	long := most > 0 && (missing || size > most) && r.long(most)
	// The string shares the arena's bytes. Nobody writes to them again.
	r.row.ID = asString(a.copy(r.joined(p.id, 0, false)))
	r.pending()
	r.cluster()
	r.topic()
	r.key()
	if !long {
		r.payload()
		r.headers()
	}
	r.partition()
	r.times()
	return r.row
}

// reading is a row while it is made. It lives on the stack.
type reading struct {
	plan   *Plan
	values []Value
	arena  *Arena
	row    *outbox.Row
	again  bool // the resend column is true: the row is pending and due, whatever its other columns say
}

// fail records a fault. Only the first one is kept.
func (r *reading) fail(f *field, fault fault) {
	if r.row.Err == nil {
		r.row.Err = &RowError{Column: f.name, Problem: string(fault)}
	}
}

// long reports whether the row has more than most bytes, counted as in its record, in whichever form they
// came. Such a row gets no payload and no headers.
func (r *reading) long(most int) bool {
	size, longest, at := int64(0), int64(-1), 0
	missing := -1
	for i := range r.plan.read {
		n := r.plan.read[i].length(r.values[i])
		if size += n; n > longest {
			longest, at = n, i
		}
		if r.values[i].long() {
			missing = i
		}
	}
	switch {
	case size > int64(most):
		r.fail(&r.plan.read[at], fault(fmt.Sprintf("has %d bytes, which makes the row %d bytes long: more than max_row_bytes, which is %d: raise it, or shorten the row", longest, size, most)))
	case missing >= 0: // only the stored length is known
		r.fail(&r.plan.read[missing], fault("is longer than max_row_bytes, which is "+strconv.Itoa(most)+": raise it, or shorten the row"))
	default:
		return false
	}
	return true
}

// joined joins the texts of columns in the arena's scratch memory, which the next use overwrites. None of the
// columns may be NULL. escapes: in free text, separators and backslashes get a backslash before them.
func (r *reading) joined(columns []field, separator byte, escapes bool) []byte {
	joined := r.arena.joined[:0]
	for i := range columns {
		f := &columns[i]
		if i > 0 {
			joined = append(joined, separator)
		}
		text, fault := f.text(r.values[f.at], r.arena)
		switch {
		case r.values[f.at].long():
			// No index can hold such a value, and no row is found by this text.
			text = fmt.Appendf(nil, "(%d bytes, more than max_row_bytes)", r.values[f.at].Length)
		case fault != "":
			r.fail(f, fault)
			text = f.escaped(r.values[f.at], r.arena)
		case text == nil:
			r.fail(f, "is NULL, but identifies the row or event: write a value into the row, or name columns that are NOT NULL")
		}
		if escapes && f.free() {
			joined = appendEscaped(joined, text, separator)
			continue
		}
		joined = append(joined, text...)
	}
	r.arena.joined = joined
	return joined
}

func appendEscaped(to, text []byte, separator byte) []byte {
	for _, c := range text {
		if c == separator || c == '\\' {
			to = append(to, '\\')
		}
		to = append(to, c)
	}
	return to
}

func (r *reading) pending() {
	p := &r.plan.pending
	if p.resend != nil {
		again, _, fault := p.resend.boolean(r.values[p.resend.at])
		if fault != "" {
			r.fail(p.resend, fault)
			again = true // so that the fault is reported
		}
		if r.again = again; again {
			r.row.Pending = true
			return
		}
	}
	r.row.Pending = (p.column == nil || r.inPendingState(p)) && r.allNull(p.nulls) && (p.attempts == nil || r.hasAttemptsLeft(p))
}

func (r *reading) inPendingState(p *pendingPlan) bool {
	status, fault := p.column.word(r.values[p.column.at], r.arena)
	if fault != "" {
		// The row counts as pending, so that the fault is reported.
		r.fail(p.column, fault)
		return true
	}
	if status == nil {
		return p.null
	}
	return slices.Contains(p.values, asString(status))
}

func (r *reading) hasAttemptsLeft(p *pendingPlan) bool {
	n, null, fault := p.attempts.integer(r.values[p.attempts.at])
	if fault != "" {
		r.fail(p.attempts, fault)
	}
	if null || fault != "" {
		return true
	}
	most := p.most
	if p.mostOf != nil {
		own, null, fault := p.mostOf.integer(r.values[p.mostOf.at])
		if fault != "" {
			r.fail(p.mostOf, fault)
			return true
		}
		if !null {
			most = max(own, 1) // with a budget below 1, no attempt would ever be made
		}
	}
	return n < most
}

func (r *reading) allNull(columns []field) bool {
	all := true
	for i := range columns {
		switch r.values[columns[i].at].Format {
		case Null:
		case Text, Binary:
			all = false
		default:
			r.fail(&columns[i], faultOfFormat(r.values[columns[i].at].Format))
		}
	}
	return all
}

func (r *reading) cluster() {
	c := &r.plan.cluster
	r.row.Cluster = c.fallback
	if c.column == nil {
		return
	}
	name, fault := c.column.word(r.values[c.column.at], r.arena)
	known, ok := c.known[string(name)]
	switch {
	case fault != "":
		r.row.Cluster = ""
		r.fail(c.column, fault)
	case ok:
		r.row.Cluster = known
	case c.fallback == "":
		r.fail(c.column, unknownCluster(name))
	}
}

func (r *reading) topic() {
	t := &r.plan.topic
	if len(t.columns) == 0 {
		r.row.Topic = t.literals[0]
		return
	}
	name, ok := r.filled(&t.templatePlan)
	topic, legal := r.arena.topic(name)
	r.row.Topic = topic
	switch {
	case !ok:
	case !legal:
		r.fail(&t.columns[0].field, illegalTopic(topic))
	case t.allow != nil && !t.allow.has(topic):
		r.fail(&t.columns[0].field, fault("gives the topic "+quoted(topic)+", which topic.allow of table "+r.plan.table.String()+" does not allow: add it there, or correct the row"))
	}
}

// filled returns a template's text. It may be a column's own memory, or scratch. ok is false if a part has a
// fault.
func (r *reading) filled(t *templatePlan) (text []byte, ok bool) {
	if len(t.columns) == 1 && t.literals[0] == "" && t.literals[1] == "" {
		return r.part(&t.columns[0], t.null)
	}
	ok = true
	text = append(r.arena.joined[:0], t.literals[0]...)
	for i := range t.columns {
		part, fine := r.part(&t.columns[i], t.null)
		ok = ok && fine
		text = append(text, part...)
		text = append(text, t.literals[i+1]...)
	}
	r.arena.joined = text
	return text, ok
}

func (r *reading) part(v *value, null fault) (part []byte, ok bool) {
	part, fault := r.name(v)
	if fault == "" && part == nil {
		fault = null
	}
	if fault != "" {
		r.fail(&v.field, fault)
	}
	return part, fault == ""
}

// key sets the row's key. The key is nil if a part of the row's scope was too long to be read: no condition
// would find that scope in the table, so such a row waits alone.
func (r *reading) key() {
	v := r.plan.key
	if v == nil || v.long(r.values) || r.nameless() {
		return
	}
	var fault fault
	switch {
	case v.parts != nil:
		if key, ok := r.filled(v.parts); ok {
			r.row.Key = r.arena.copy(key)
		}
	case r.plan.keyEncode != nil && v.plain():
		r.row.Key, fault = r.plan.keyEncode(&v.field, r.values[v.at], r.arena)
	case r.plan.keyEncode != nil: // the 16 bytes of a uuid in JSON
		var text []byte
		if text, fault = r.scalar(v, (*field).word); text != nil && fault == "" {
			r.row.Key, fault = r.arena.uuid(text)
		}
	default:
		r.row.Key, fault = r.bytes(v, false)
	}
	if fault != "" {
		r.fail(&v.field, fault)
	}
}

func (r *reading) nameless() bool {
	for i := range r.plan.topic.columns {
		if r.plan.topic.columns[i].long(r.values) {
			return true
		}
	}
	c := r.plan.cluster.column
	return c != nil && r.values[c.at].long()
}

func (r *reading) payload() {
	if len(r.plan.object) > 0 {
		r.object(r.plan.object)
		return
	}
	v := &r.plan.payload
	payload, fault := r.bytes(v, true)
	m := &r.plan.table.Mapping.Payload
	switch {
	case fault != "":
		r.fail(&v.field, fault)
	case payload == nil && !m.Tombstone:
		r.fail(&v.field, "is NULL, but holds the payload: write one into the row, or set payload.tombstone")
	case len(payload) == 0 && m.EmptyTombstone:
		payload = nil
	}
	r.row.Value = payload
}

func (r *reading) headers() {
	if len(r.plan.headers) == 0 {
		return
	}
	list := r.arena.headerList[:0]
	for i := range r.plan.headers {
		list = r.header(&r.plan.headers[i], list)
	}
	r.row.Headers = r.arena.headers(list)
}

func (r *reading) header(h *headerPlan, list []outbox.Header) []outbox.Header {
	switch h.source {
	case headerEventID:
		id := r.arena.copy(r.joined(r.plan.event, ':', r.plan.eventEscapes))
		return append(list, outbox.Header{Name: h.name, Value: id})
	case headerConstant:
		return append(list, outbox.Header{Name: h.name, Value: h.constant})
	case headerJSON:
		return r.jsonHeaders(h, list)
	case headerTrace:
		return r.traceHeader(h, list)
	}
	var value []byte
	var fault fault
	if h.encode != nil {
		value, fault = h.encode(&h.column.field, r.values[h.column.at], r.arena)
	} else {
		value, fault = r.bytes(&h.column, true)
	}
	if fault != "" {
		r.fail(&h.column.field, fault)
	}
	if value == nil && h.omitNull {
		return list
	}
	return append(list, outbox.Header{Name: h.name, Value: value})
}

func (r *reading) jsonHeaders(h *headerPlan, list []outbox.Header) []outbox.Header {
	f := &h.column.field
	text, _, fault := r.first(&h.column, (*field).document)
	more := list
	if text != nil && fault == "" {
		more, fault = appendJSONHeaders(list, text, h.form, r.arena)
	}
	if fault == "" && r.plan.event != nil && Impersonates(r.plan.table, list[0].Value, more[len(list):]) {
		fault = "has a header of the event id's name with another value: take it out of the row, or give event_id.header another name"
	}
	if fault != "" {
		r.fail(f, fault)
		return list
	}
	return more
}

// Impersonates reports whether one of the row's own headers has the event id's name with another value.
// Consumers would take the event for another one, and drop it or process it twice.
func Impersonates(t *outbox.Table, eventID []byte, headers []outbox.Header) bool {
	name := t.Mapping.EventID.Name
	return name != "" && slices.ContainsFunc(headers, func(h outbox.Header) bool { return h.Name == name && !bytes.Equal(h.Value, eventID) })
}

func (r *reading) partition() {
	f := r.plan.partition
	if f == nil {
		return
	}
	n, null, fault := f.integer(r.values[f.at])
	switch {
	case fault != "":
		r.fail(f, fault)
	case null:
	case n < 0 || n > 1<<31-1:
		r.fail(f, "is not a partition number (0 to 2147483647)")
	default:
		r.row.Partition = int32(n)
	}
}

// times reads the three timestamps.
func (r *reading) times() {
	if f := r.plan.timestamp; f != nil {
		r.timestamp(f)
	}
	if f := r.plan.createdAt; f != nil {
		// A time that is unfit for measuring is left out.
		if at, _, _ := f.written(r.values[f.at], r.arena); at > 0 && at != infinity {
			r.row.CreatedAt, r.row.CreatedOffset = at, int16((at-utc(at, f.zone))/(60*microsPerSecond)) // #nosec G115 -- hours
		}
	}
	for i := range r.plan.availableAt {
		f := &r.plan.availableAt[i]
		at, _, fault := f.instant(r.values[f.at], r.arena)
		if fault != "" {
			r.fail(f, fault)
		}
		r.row.AvailableAt = max(r.row.AvailableAt, at)
	}
	if w := r.plan.writer; w != nil {
		r.row.AvailableAt = max(r.row.AvailableAt, r.writers(w))
	}
	if r.again {
		r.row.AvailableAt = 0
	}
}

// writers returns when a row of the writer becomes ours: when its time has passed.
func (r *reading) writers(w *writerPlan) int64 {
	theirs, null, fault := w.column.boolean(r.values[w.column.at])
	switch {
	case fault != "":
		r.fail(&w.column, fault)
		return 0
	case null:
		return outbox.Never
	case !theirs:
		return 0
	}
	until, null, fault := w.until.instant(r.values[w.until.at], r.arena)
	switch {
	case fault != "":
		r.fail(&w.until, fault)
		return 0
	case null, until == infinity:
		return outbox.Never
	}
	return max(until+1, 0)
}

func (r *reading) timestamp(f *field) {
	at, null, fault := f.instant(r.values[f.at], r.arena)
	switch {
	case fault != "":
		r.fail(f, fault)
	case null:
	case at == infinity && f.unit != 0:
		r.fail(f, "is beyond every time, which a record's timestamp cannot be: correct the row, or the unit of epoch in the mapping")
	case at == infinity:
		r.fail(f, "is infinity, which a record's timestamp cannot be")
	case at < 1000:
		// Kafka has no times before 1970, and 0 stands for the time of producing.
		r.fail(f, "is not after 1970-01-01, which a record's timestamp must be")
	default:
		r.row.Timestamp = at / 1000
	}
}
