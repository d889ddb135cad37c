// Package mapping turns the raw column values of one outbox row into an
// outbox.Row, as the table's outbox.Mapping says. The decoder (values from the
// WAL) and the sweeper (values from a SELECT) share it, so that a row makes the
// same record whichever way it came.
//
// It is pure: no I/O, no clock, no goroutine, no logging. It never drops a row
// and never puts a default in place of a value that it cannot read: what is
// wrong with the table is an *Error of Compile, what is wrong with a row is in
// the row's Err.
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

// Column is one column that values can be read of.
type Column struct {
	Name string // as in the catalogue, unquoted
	OID  uint32 // of its type; of a domain's base type where that is known
	// Enum says that the type is known to be an enum, whose binary form is its
	// label. It may be left false: then only the text form can be read.
	Enum bool
}

// Value is one column's value as PostgreSQL sent it, text in the bytes that the
// database stores. The Data is only read during a call to Row, which copies what
// it keeps.
type Value struct {
	Data   []byte
	Length uint32 // of a long one, bytes
	Format byte
}

// The formats of values, as in TupleData.
// https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
const (
	Null      byte = 'n'
	Text      byte = 't'
	Binary    byte = 'b'
	Unchanged byte = 'u' // a TOASTed value that was not sent
	// LongText and LongBinary are ours: the value has Length bytes in this form,
	// too many to be read.
	LongText   byte = 'l'
	LongBinary byte = 'L'
)

func (v *Value) long() bool { return v.Format == LongText || v.Format == LongBinary }

// Plan is a mapping compiled against a table's columns. It is immutable and
// may be used by any number of goroutines, each with its own Arena.
type Plan struct {
	table  *outbox.Table
	wanted []int   // ascending, unique
	read   []field // parallel to wanted
	binary error   // why values may not be binary

	id    []field // at least one
	event []field
	// eventEscapes: at least two columns of the event id are free text, so separators
	// inside them are escaped.
	eventEscapes bool
	cluster      clusterPlan
	topic        topicPlan
	key          *value
	keyEncode    reader // nil: its text
	payload      value
	object       []memberPlan // in place of payload; none: there is no object
	// headers are the event id's, then the mapping's, in its order.
	headers []headerPlan

	partition, timestamp, createdAt *field
	availableAt                     []field

	rows    []condition
	pending pendingPlan
	writer  *writerPlan // nil: every row is ours
}

// field is a mapped column: where its value is and how it is read.
type field struct {
	at   int // index into the values
	name string
	kind kind
	// set is that of the column's text; nil: the text is UTF-8. exact: the server
	// has to find the value again.
	set   *charset.Set
	exact bool
	// zone is that of a time without one; nil: UTC. unit is how many microseconds a
	// time's number counts by; 0: it is no number.
	zone *time.Location
	unit int64
}

type clusterPlan struct {
	column   *field // nil: always fallback
	known    map[string]string
	fallback string // empty: none
}

// templatePlan is literals[0] columns[0] literals[1] …; without columns the text
// is literals[0].
type templatePlan struct {
	literals []string
	columns  []value
	null     fault // of a column that is NULL
}

type topicPlan struct {
	templatePlan
	allow *topicList // nil: the names are the mapping's own
}

// reader makes bytes of a column's value; nil for NULL.
type reader func(*field, Value, *Arena) ([]byte, fault)

// headerPlan is one source of headers: the event id, a constant, a column, a
// JSON object or a trace context.
type headerPlan struct {
	source   headerSource
	name     string
	constant []byte
	column   value
	omitNull bool
	encode   reader              // nil: the column's content
	form     *outbox.JSONHeaders // of headerJSON; nil: an object of strings
	trace    *tracePlan          // of headerTrace
}

type headerSource uint8

const (
	headerEventID headerSource = iota + 1
	headerConstant
	headerColumn
	headerJSON
	headerTrace
)

// pendingPlan: a row is pending if its status column has one of the values (nil: no
// such column), all of nulls are NULL, and its attempts (nil: not counted) are below
// most; or if the flag resend asks for it again.
type pendingPlan struct {
	column   *field
	values   []string
	null     bool // the column may be NULL, too
	nulls    []field
	attempts *field
	most     int64
	mostOf   *field // a column with the row's own; nil: none
	resend   *field
}

// writerPlan: rows whose column is true are their writer's until the time.
type writerPlan struct{ column, until field }

// Wanted is which columns' values Row takes: indices into Compile's columns,
// ascending. It must not be changed.
func (p *Plan) Wanted() []int { return p.wanted }

// Row makes a row of values, which are parallel to Wanted. It always returns
// one, with its ID set; what is wrong with it is in Err (a *RowError, the first
// fault found). Where that is the topic, Topic holds what the columns say, so
// that the row's scope can still be told. XID and Commit are left 0.
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
	// The string shares the arena's bytes, which nobody writes to again.
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

// reading is one row being made. It lives on the stack.
type reading struct {
	plan   *Plan
	values []Value
	arena  *Arena
	row    *outbox.Row
	again  bool // the row is asked for again: it is pending and due, whatever else it is
}

// fail keeps the first fault.
func (r *reading) fail(f *field, fault fault) {
	if r.row.Err == nil {
		r.row.Err = &RowError{Column: f.name, Problem: string(fault)}
	}
}

// long says whether the row has more bytes than most, counted as in its record, in
// whichever form they came. Such a row gets no payload and no headers.
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
	case missing >= 0: // what is known is the length as it is stored
		r.fail(&r.plan.read[missing], fault("is longer than max_row_bytes, which is "+strconv.Itoa(most)+": raise it, or shorten the row"))
	default:
		return false
	}
	return true
}

// joined joins the texts of columns, none of which may be NULL, in the arena's
// scratch memory, which the next use overwrites. With escapes, separators and
// backslashes in free text get a backslash.
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
			// No index can hold such a value, and its substitute finds no row.
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
			again = true // so that the fault is seen
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
		// Taken for pending, so that the fault is seen.
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
			most = max(own, 1) // below 1 no attempt would ever be made
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

// filled may be a column's own memory or scratch. It is not ok if a part is not.
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

// key is nil where a part of the row's scope was too long to be read: no
// condition would find the scope in the table, so such a row waits alone.
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

// Impersonates says whether one of the headers that a row brings along has the
// event id's name and not its value. Consumers would drop the event for another,
// or take it twice.
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
		// A time that cannot be measured with is left out.
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

// writers is when a row of the writer's becomes ours: when its time has passed.
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
		// Kafka has no time before 1970, and 0 stands for the time of producing.
		r.fail(f, "is not after 1970-01-01, which a record's timestamp must be")
	default:
		r.row.Timestamp = at / 1000
	}
}
