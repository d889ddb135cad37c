package outbox

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Mapping says how a table's columns become a Kafka record, and how its state
// is read and written. Column names are as in the catalogue, unquoted.
type Mapping struct {
	// ID columns identify a row; at least one. They are what a mark's UPDATE
	// finds the row by, so they should be the primary key.
	ID []string

	// Rows are conditions, and all must hold: any other row is not ours, as if it were not there.
	Rows []RowCondition

	Cluster ClusterMapping
	Topic   Template
	// TopicAllow are the topics that rows may name: names, and beginnings that end
	// with a star. Empty: every topic that does not begin with two underscores.
	TopicAllow []string
	Key        *Expr // nil: records without key
	Payload    PayloadMapping
	Headers    []HeaderMapping
	// MaxRowBytes is how many bytes the mapped columns of a row may have: one with
	// more is not read into memory, and the row cannot become a record. 0: any number.
	MaxRowBytes int
	// EventID is the header for consumers to dedupe by; an empty Name: none.
	EventID EventID
	// Partition is an integer column with the record's partition, or empty.
	Partition string
	// Partitioner chooses the partition of a keyed record that names none.
	Partitioner Partitioner
	// Timestamp is a timestamp column with the record's time, or empty.
	Timestamp string
	// TimestampNow: a record whose Timestamp its topic refuses goes out with the time of producing. Otherwise the row waits.
	TimestampNow bool
	// CreatedAt is a timestamp column used to measure latency and age, or empty.
	CreatedAt string
	// AvailableAfter are timestamp columns: before each of them a row is not due.
	AvailableAfter []string
	// Zone is the zone of times that have none, in every column that is read or written as a time; nil: UTC.
	Zone *time.Location
	// Epoch is the unit in which columns of numbers say a time, since 1970: a second, millisecond or
	// microsecond; 0: no such column does.
	Epoch time.Duration
	// Order columns give the order of sweeping, first to last.
	Order []string

	Published Published
	// Archive is the table that PublishedArchive moves rows to.
	Archive ArchiveTable
	Status  StatusMapping
	// OnFailed says what a FAILED row does to its key.
	OnFailed OnFailed
	// Grace is how old a PENDING row must be before it can count as missed.
	Grace time.Duration
	// Retention deletes rows this long after they were sent; 0: never.
	Retention time.Duration
	// DropPartitions: retention deletes no row, but drops each partition by a range
	// of CreatedAt once Retention has run out for every row in it.
	DropPartitions bool
	// RetentionUnsent deletes also rows that were never sent, this long after
	// CreatedAt; 0: never.
	RetentionUnsent time.Duration
	// RetentionLock is held while rows are deleted, as the application's own
	// housekeeping does; a zero Name: none.
	RetentionLock ShedLock

	// Below: living next to the application's own relay, or in its place.

	// HeadStart is how long a committed row is left to the application's own
	// relay. Then it is looked at, and published if it is still PENDING. 0: none.
	HeadStart time.Duration
	// Writer says which rows the writer sends by itself, and until when.
	Writer WriterMapping
	// Claim says how rows are kept from another relay while they are published.
	Claim Claim
	// ShedLock is the lock of the application's own relay that is held while
	// the stream publishes rows of this table; a zero Name: none.
	ShedLock ShedLock
	// HeadersTable is a side table with more headers; a zero Name: none.
	HeadersTable HeadersTable
	// LookFirst: the application changes rows that wait, so each is looked at before it is
	// published, and goes out as it is then.
	LookFirst bool
	// FailOn are topic errors that count as errors of the row itself. If there are any,
	// nothing else is charged but a record that is too large and a row that can be no
	// record: other errors are retried for free.
	FailOn []TopicError
	// MetricsCompat names the replaced relay whose metric names are exported
	// besides our own (im2be, advert-market, jeap), or is empty.
	MetricsCompat string
}

// NeedsLook says that rows are looked at once more between being read and being
// published, and go out as they are then: to give the application's own relay its head start,
// to claim them, to read their headers, or because they change.
func (m *Mapping) NeedsLook() bool {
	return m.HeadStart > 0 || m.Claim != ClaimNone || m.HeadersTable.Name != "" || m.LookFirst
}

// WriterMapping says which rows belong to the application, which sends them
// itself after its commit: those whose boolean Column is true, until the time
// in the timestamp column Until has passed. NULL in either: never ours. A zero
// Column: none.
type WriterMapping struct {
	Column string
	Until  string
}

// Claim is how rows are kept from another relay while they are published.
type Claim string

// The ways to claim.
const (
	ClaimNone Claim = ""
	// ClaimRowLock locks rows FOR UPDATE SKIP LOCKED until their outcome is
	// written, in the same transaction: another relay's own SKIP LOCKED passes
	// over them, and a dead holder leaves nothing behind.
	ClaimRowLock Claim = "row_lock"
)

// ShedLock names a lock of net.javacrumbs.shedlock in its JDBC table.
type ShedLock struct {
	Schema, Table string
	Name          string
}

// HeadersTable is a side table with headers of rows, written in the row's own
// transaction, a header each, in the order of the Order column.
type HeadersTable struct {
	Schema, Name  string
	Parent, Order string // Parent refers to the row's only ID column
	HeaderName    string
	HeaderValue   string
}

// TopicError is a kind of Kafka's refusal of a whole topic.
type TopicError string

// The topic errors that FailOn can name.
const (
	TopicInvalid      TopicError = "invalid_topic"      // INVALID_TOPIC_EXCEPTION
	TopicUnauthorized TopicError = "unauthorized_topic" // TOPIC_AUTHORIZATION_FAILED
	TopicMissing      TopicError = "missing_topic"      // UNKNOWN_TOPIC_OR_PARTITION
)

// Published is what happens to a row on success.
type Published string

// What happens on success.
const (
	PublishedStatus Published = "status" // its state is written
	PublishedDelete Published = "delete" // it is deleted
	PublishedNone   Published = "none"   // nothing: the table keeps no state
	// PublishedArchive moves it to another table, where its state is written.
	PublishedArchive Published = "archive"
)

// Removes says that a row which was published is no longer in its table.
func (p Published) Removes() bool { return p == PublishedDelete || p == PublishedArchive }

// ArchiveTable has a column of the same name and type for every column of the outbox.
type ArchiveTable struct{ Schema, Name string }

func (t ArchiveTable) String() string { return t.Schema + "." + t.Name }

// Partitioner is the hash of a record's key that chooses its partition.
type Partitioner string

// The hashes of producers that outbox-cdc may take a topic over from.
const (
	Murmur2 Partitioner = "murmur2" // the Java client
	CRC32   Partitioner = "crc32"   // librdkafka
	FNV1a   Partitioner = "fnv1a"   // sarama
)

// OnFailed is what a row that used up its budget does to its key.
type OnFailed string

// What a FAILED row does.
const (
	OnFailedSkip  OnFailed = "skip"  // later rows of the key go on
	OnFailedBlock OnFailed = "block" // the key waits for an operator
)

// Template is literal text with columns in it, such as
// outbox.event.${aggregatetype}: Literals[0] Columns[0] Literals[1] ….
// len(Literals) == len(Columns)+1.
type Template struct {
	Literals []string
	Columns  []Expr
}

// Known are the only topics that rows can have, empty: any.
func (t *Template) Known() []string {
	switch {
	case len(t.Columns) == 0:
		return t.Literals
	case len(t.Columns) == 1 && t.Columns[0].Map != nil:
		return t.Columns[0].Map.Values()
	}
	return nil
}

// Expr says where a value of a record comes from: a column, or a place in its JSON.
type Expr struct {
	Column string
	// Pointer leads to a place in the column's JSON (RFC 6901): the parts, unescaped. Empty:
	// the column itself.
	Pointer  []string
	Encoding Encoding
	// Or are further places, without an Or of their own: the first that is not NULL counts.
	Or []Expr
	// Parts, of a key: it is joined from several columns, the first of which is Column; nil: it is not.
	Parts *Template
	// Base64: the value is decoded.
	Base64 bool
	// Map gives another text for the value; nil: the value itself.
	Map *ValueMap
}

// Names are the columns that the value comes from.
func (e *Expr) Names() []string {
	names := []string{e.Column}
	for i := range e.Or {
		names = append(names, e.Or[i].Column)
	}
	if e.Parts != nil {
		for i := range e.Parts.Columns {
			names = append(names, e.Parts.Columns[i].Column)
		}
	}
	return names
}

// Plain says that the value is a column's as it is.
func (e *Expr) Plain() bool {
	return e.Map == nil && len(e.Pointer) == 0 && len(e.Or) == 0 && e.Parts == nil && !e.Base64
}

// MaxJSONDepth is how deep JSON may be nested from which a topic or a key is read.
const MaxJSONDepth = 32

// ParsePointer takes a JSON Pointer apart into its parts.
// https://www.rfc-editor.org/rfc/rfc6901
func ParsePointer(text string) (parts []string, err error) {
	if text == "" {
		return nil, nil
	}
	if text[0] != '/' {
		return nil, errors.New("does not begin with a slash")
	}
	parts = strings.Split(text[1:], "/")
	for i, part := range parts {
		if strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(part), "~") {
			return nil, errors.New("has a ~ that is followed by neither 0 nor 1")
		}
		if !utf8.ValidString(part) || strings.ContainsRune(part, 0) {
			return nil, errors.New("has characters that no text of PostgreSQL has")
		}
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
	}
	return parts, nil
}

// ValueMap gives a text for another.
type ValueMap struct {
	Exact map[string]string
	// Beginnings of texts. None begins another; an exact text comes first.
	Beginnings []Beginning
	// Otherwise is the text for all others; empty: they are an error of the row.
	Otherwise string
	// Leave: rows with another text are not ours.
	Leave bool
}

// Beginning gives Text for every text that begins with With.
type Beginning struct{ With, Text string }

// Values are all texts that the map gives, sorted.
func (m *ValueMap) Values() []string {
	all := slices.Collect(maps.Values(m.Exact))
	for _, b := range m.Beginnings {
		all = append(all, b.Text)
	}
	if m.Otherwise != "" {
		all = append(all, m.Otherwise)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// RowCondition is that a column has one of the values, or none of them.
type RowCondition struct {
	Column string
	Values []string
	Null   bool // NULL is among the values
	Not    bool
}

// LeavesToOthers is the topic's Expr if its map leaves rows to others; otherwise nil.
func (m *Mapping) LeavesToOthers() *Expr {
	if t := &m.Topic; len(t.Columns) == 1 && t.Columns[0].Map != nil && t.Columns[0].Map.Leave {
		return &t.Columns[0]
	}
	return nil
}

// ClusterMapping chooses the Kafka cluster of a row.
type ClusterMapping struct {
	Column  string // empty: always Default
	Default string // for NULL, blank or unknown names; empty: such a row fails
	Known   []string
}

// Leads says whether rows may go to the cluster.
func (c *ClusterMapping) Leads(cluster string) bool { return c.Column != "" || c.Default == cluster }

// Encoding is how a column's value becomes bytes.
type Encoding string

// The encodings. Text is what PostgreSQL prints; a bytea column is always its
// own bytes.
const (
	EncodingText    Encoding = "text"
	EncodingUUID    Encoding = "uuid"    // 16 bytes, of a uuid column
	EncodingInt64   Encoding = "int64"   // 8 bytes, big-endian, of an integer column
	EncodingRFC3339 Encoding = "rfc3339" // of a timestamp, in UTC
)

// PayloadMapping says what the record value is, byte for byte: bytea
// as its bytes, text, json, jsonb and others as PostgreSQL prints them.
type PayloadMapping struct {
	Expr
	// Tombstone publishes a NULL payload as a null value; otherwise it is an
	// error of the row.
	Tombstone bool
	// EmptyTombstone publishes an empty payload as a null value too.
	EmptyTombstone bool
	// Object: the payload is a JSON object of these members. Then the Expr has only Column: the member that people are
	// shown. Empty: the Expr is the payload.
	Object []Member
}

// Names are the columns that the payload is made of.
func (m *PayloadMapping) Names() []string {
	names := m.Expr.Names()
	for i := range m.Object {
		names = append(names, m.Object[i].Column)
	}
	return names
}

// Plain says that the payload is a column's as it is.
func (m *PayloadMapping) Plain() bool { return len(m.Object) == 0 && m.Expr.Plain() }

// Member is a value of an object: of a column in a form, or a constant.
type Member struct {
	Name     string
	Column   string // empty: Value
	Value    string
	Form     MemberForm
	OmitNull bool // leave it out where the column is NULL; otherwise it is null
}

// MemberForm is how a column's value stands in JSON.
type MemberForm string

// The forms.
const (
	MemberString  MemberForm = "string"
	MemberJSON    MemberForm = "json" // as it is written
	MemberNumber  MemberForm = "number"
	MemberBoolean MemberForm = "boolean"
	MemberTime    MemberForm = "time" // RFC 3339, in UTC
	MemberBase64  MemberForm = "base64"
)

// HeaderMapping is one source of headers: exactly one of Column (with Name),
// Value (a constant, with Name), Trace (with Name) and JSON (a column with an
// object of strings).
type HeaderMapping struct {
	Name   string
	Column string
	Value  string
	JSON   string
	// Form of JSON; nil: an object of strings.
	Form *JSONHeaders
	// Encoding of Column; empty: text.
	Encoding Encoding
	// Of Column and JSON, as in Expr.
	Pointer  []string
	Or       []Expr
	Base64   bool
	OmitNull bool // leave the header out when the column is NULL; otherwise null value
	// Trace makes the header, instead, of the columns of a trace context. It is
	// left out where the trace or span id is NULL.
	Trace *TraceMapping
}

// JSONHeaders is how headers are written in a column.
type JSONHeaders struct {
	Properties bool // it is no JSON, but what java.util.Properties stored
	Base64     bool // strings are base64 of the values
	Nested     bool // an object or array is a value, as it is written; otherwise an error of the row
	// Except are names that are left out, and beginnings that end with a star.
	Except []string
	// Name and Value are the keys of a list of objects, a header each; empty: it is an object.
	Name, Value string
}

// Excepts says that a header of the name is left out.
func (f *JSONHeaders) Excepts(name string) bool {
	return slices.ContainsFunc(f.Except, func(e string) bool {
		beginning, star := strings.CutSuffix(e, "*")
		return name == e || star && strings.HasPrefix(name, beginning)
	})
}

// Expr is where the header's value comes from, or the object with headers.
func (h *HeaderMapping) Expr() Expr {
	return Expr{Column: cmp.Or(h.Column, h.JSON), Pointer: h.Pointer, Or: h.Or, Base64: h.Base64}
}

// TraceMapping are columns of a trace context: signed 64-bit integers that are
// printed as unsigned hexadecimal, and a boolean; Sampled NULL counts as sampled.
type TraceMapping struct {
	TraceIDHigh, TraceID, SpanID string
	Sampled                      string // or empty
	Format                       TraceFormat
}

// TraceFormat is how a trace context is written.
type TraceFormat string

// The formats of trace contexts.
const (
	TraceW3C TraceFormat = "w3c" // https://www.w3.org/TR/trace-context/#traceparent-header
	TraceB3  TraceFormat = "b3"  // https://github.com/openzipkin/b3-propagation#single-header
)

// EventID is the header that identifies an event.
type EventID struct {
	Name    string
	Columns []string // joined by ":"
}

// StatusMapping says where a row's state is kept. Either Column with values,
// or timestamps: SentAt set means SENT, FailedAt set means FAILED, both NULL
// PENDING. Where success removes rows the Column may be empty: what exists is PENDING.
type StatusMapping struct {
	Column  string
	Pending []string // the first is the one we would write; all are selected
	// PendingNull: a row whose Column is NULL is pending, too.
	PendingNull bool
	Sent        string
	Failed      string

	SentAt   string // timestamp column set on success, or empty
	FailedAt string // timestamp column set on FAILED and cleared on success, or empty
	// SentBy are further timestamp columns: one that is set says that somebody
	// else sent the row.
	SentBy []string
	// Resend is a boolean column: true makes the row PENDING whatever else it
	// is. Every transition clears it. Or empty.
	Resend string
	// Processing is the value of Column while another relay has the row, or
	// empty. A row that keeps it longer than RecoverAfter, seen to be unchanged
	// for all that time, is made PENDING again; 0: never.
	Processing   string
	RecoverAfter time.Duration

	Attempts    string // integer column, or empty
	MaxAttempts int    // the budget; 0 without an Attempts column: unlimited
	// MaxAttemptsColumn is an integer column with the row's own budget, or empty: NULL is
	// MaxAttempts, and below 1 counts as 1, so that each row is tried.
	MaxAttemptsColumn string
	LastError         string // text column, or empty
	// LastErrorMax cuts the error's text to this many characters; 0: 1000.
	LastErrorMax int
	Version      string // integer column raised by every transition, or empty
	TouchedAt    string // timestamp column set by every transition, or empty
	// ExpiresAt is a timestamp column set to ExpiresAfter from then on success, or empty:
	// the application deletes rows by it.
	ExpiresAt    string
	ExpiresAfter time.Duration
}

// CountDecides says that nothing but the stored count tells a FAILED row from
// a pending one.
func (s *StatusMapping) CountDecides() bool {
	stored := s.Column != "" && s.Failed != "" || s.Column == "" && s.FailedAt != ""
	return !stored && s.Attempts != "" && s.MaxAttempts > 0
}
