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

// Mapping says how a table's columns become a Kafka record, and how a row's state is read and written. Column
// names are unquoted, as in the catalogue.
type Mapping struct {
	// ID columns identify a row; there is at least one. A mark's UPDATE finds the row by them, so they should
	// be the primary key.
	ID []string

	// Rows are conditions. A row for which one of them is false is ignored, as if the table did not have it.
	Rows []RowCondition

	Cluster ClusterMapping
	Topic   Template
	// TopicAllow are the topics that rows may name. An entry is a topic's name, or a prefix that ends with a
	// star. Empty: every topic that does not begin with two underscores.
	TopicAllow []string
	Key        *Expr // nil: records without key
	Payload    PayloadMapping
	Headers    []HeaderMapping
	// MaxRowBytes is how many bytes the mapped columns of a row may have in total. A larger row is not read
	// into memory and cannot become a record. 0: no limit.
	MaxRowBytes int
	// EventID is the header by which consumers recognise duplicates. An empty Name: no such header.
	EventID EventID
	// Partition is an integer column with the record's partition, or empty.
	Partition string
	// Partitioner chooses the partition of a keyed record that names none.
	Partitioner Partitioner
	// Timestamp is a timestamp column with the record's time, or empty.
	Timestamp string
	// TimestampNow: where the topic refuses a record's Timestamp, the record is sent with the time of
	// producing. Otherwise the row waits.
	TimestampNow bool
	// CreatedAt is a timestamp column used to measure latency and age, or empty.
	CreatedAt string
	// AvailableAfter are timestamp columns. A row is due once the time in each of them has passed.
	AvailableAfter []string
	// Zone is the time zone for values without one, in every column that is read or written as a time. nil:
	// UTC.
	Zone *time.Location
	// Epoch is the unit of numeric columns that hold a time since 1970: a second, a millisecond or a
	// microsecond. 0: no column does.
	Epoch time.Duration
	// Order are the columns that define the order of sweeping, first to last.
	Order []string

	Published Published
	// Archive is the table that PublishedArchive moves rows to.
	Archive ArchiveTable
	Status  StatusMapping
	// OnFailed says what a FAILED row means for later rows of its key.
	OnFailed OnFailed
	// Grace is how old a PENDING row must be before it can count as missed by the stream.
	Grace time.Duration
	// Retention deletes rows this long after they were sent; 0: never.
	Retention time.Duration
	// DropPartitions: retention deletes no rows. Instead it drops a partition (by a range of CreatedAt) once
	// Retention has passed for every row in it.
	DropPartitions bool
	// RetentionUnsent also deletes rows that were never sent, this long after CreatedAt. 0: never.
	RetentionUnsent time.Duration
	// RetentionLock is held while rows are deleted, as the application's own housekeeping does. A zero Name:
	// no lock.
	RetentionLock ShedLock

	// The fields below are for tables that the application's own relay uses too, or used before.

	// HeadStart is how long a committed row is left to the application's own relay. After that time its state
	// is looked up, and the row is published if it is still PENDING. 0: no head start.
	HeadStart time.Duration
	// Writer says which rows their writer sends itself, and until when.
	Writer WriterMapping
	// Claim says how rows are kept from another relay while they are published here.
	Claim Claim
	// ShedLock is the lock of the application's own relay. It is held while the stream publishes rows of this
	// table. A zero Name: no lock.
	ShedLock ShedLock
	// HeadersTable is a side table with further headers. A zero Name: there is none.
	HeadersTable HeadersTable
	// LookFirst: the application changes waiting rows, so each row is read again just before it is published,
	// and is published with the values read then.
	LookFirst bool
	// FailOn are the topic errors that count as errors of the row. If there are any, an attempt is charged
	// only for these, for a record that is too large, and for a row that cannot become a record. After any
	// other error the row is retried without a charge.
	FailOn []TopicError
	// MetricsCompat names the replaced relay whose metric names are exported in addition to our own (im2be,
	// advert-market, jeap). Empty: none.
	MetricsCompat string
}

// NeedsLook reports whether rows are read once more between their arrival and their publication, and
// published with the values read then. The reasons are a head start, a claim, headers in a side table, and
// rows that change.
func (m *Mapping) NeedsLook() bool {
	return m.HeadStart > 0 || m.Claim != ClaimNone || m.HeadersTable.Name != "" || m.LookFirst
}

// WriterMapping says which rows the application sends itself after its commit. They are the rows whose
// boolean Column is true, until the time in the timestamp column Until has passed. A row with NULL in Column
// or Until is never ours. A zero Column: there are no such rows.
type WriterMapping struct {
	Column string
	Until  string
}

// Claim is a way to keep rows from another relay while they are published here.
type Claim string

// The ways to claim.
const (
	ClaimNone Claim = ""
	// ClaimRowLock locks rows by FOR UPDATE SKIP LOCKED until their outcome is written in the same
	// transaction. Another relay that uses SKIP LOCKED passes over them. If this process dies, the locks end
	// with its session.
	ClaimRowLock Claim = "row_lock"
)

// ShedLock identifies a lock of the library net.javacrumbs.shedlock in its JDBC table.
type ShedLock struct {
	Schema, Table string
	Name          string
}

// HeadersTable is a side table with one header per row. The headers of an outbox row are written in that
// row's transaction and read in the order of column Order.
type HeadersTable struct {
	Schema, Name  string
	Parent, Order string // Parent refers to the outbox row's only ID column
	HeaderName    string
	HeaderValue   string
}

// TopicError is a kind of error by which Kafka refuses a whole topic.
type TopicError string

// The topic errors that FailOn can name.
const (
	TopicInvalid      TopicError = "invalid_topic"      // INVALID_TOPIC_EXCEPTION
	TopicUnauthorized TopicError = "unauthorized_topic" // TOPIC_AUTHORIZATION_FAILED
	TopicMissing      TopicError = "missing_topic"      // UNKNOWN_TOPIC_OR_PARTITION
)

// Published is what happens to a row once it is published.
type Published string

// The values of Published.
const (
	PublishedStatus Published = "status" // the row's state is written
	PublishedDelete Published = "delete" // the row is deleted
	PublishedNone   Published = "none"   // nothing happens: the table keeps no state
	// PublishedArchive moves the row to another table, where its state is written.
	PublishedArchive Published = "archive"
)

// Removes reports whether a published row is removed from its table.
func (p Published) Removes() bool { return p == PublishedDelete || p == PublishedArchive }

// ArchiveTable names the table for archived rows. It has a column of the same name and type for every column
// of the outbox table.
type ArchiveTable struct{ Schema, Name string }

func (t ArchiveTable) String() string { return t.Schema + "." + t.Name }

// Partitioner is the hash function of a record's key that chooses the record's partition.
type Partitioner string

// The partitioners of the producers that outbox-cdc may replace.
const (
	Murmur2 Partitioner = "murmur2" // the Java client
	CRC32   Partitioner = "crc32"   // librdkafka
	FNV1a   Partitioner = "fnv1a"   // sarama
)

// OnFailed is what a row that has used up its budget means for later rows of its key.
type OnFailed string

// The values of OnFailed.
const (
	OnFailedSkip  OnFailed = "skip"  // later rows of the key go on
	OnFailedBlock OnFailed = "block" // the key waits for an operator
)

// Template is text with columns in it, such as outbox.event.${aggregatetype}. Its parts alternate:
// Literals[0], Columns[0], Literals[1] and so on, with len(Literals) == len(Columns)+1.
type Template struct {
	Literals []string
	Columns  []Expr
}

// Known returns all topics that the template can produce, or nothing if it can produce any topic.
func (t *Template) Known() []string {
	switch {
	case len(t.Columns) == 0:
		return t.Literals
	case len(t.Columns) == 1 && t.Columns[0].Map != nil:
		return t.Columns[0].Map.Values()
	}
	return nil
}

// Expr says where a value of a record comes from: a column, or a place in the JSON of a column.
type Expr struct {
	Column string
	// Pointer is the place in the column's JSON (RFC 6901), as unescaped parts. Empty: the column itself.
	Pointer  []string
	Encoding Encoding
	// Or are alternative places. The first value that is not NULL is used. An alternative has no Or of its
	// own.
	Or []Expr
	// Parts, for a key, joins several columns; the first of them is Column. nil: the key is one column.
	Parts *Template
	// Base64: the value is base64 and is decoded.
	Base64 bool
	// Map replaces the value by another text. nil: the value is used as it is.
	Map *ValueMap
}

// Names returns the columns that the value comes from.
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

// Plain reports whether the value is a column's own value, unchanged.
func (e *Expr) Plain() bool {
	return e.Map == nil && len(e.Pointer) == 0 && len(e.Or) == 0 && e.Parts == nil && !e.Base64
}

// MaxJSONDepth is the greatest nesting depth of JSON from which a topic or a key is read.
const MaxJSONDepth = 32

// ParsePointer splits a JSON Pointer into its unescaped parts. https://www.rfc-editor.org/rfc/rfc6901
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

// ValueMap replaces one text by another.
type ValueMap struct {
	Exact map[string]string
	// Beginnings match texts by prefix. No prefix is the prefix of another one. An entry in Exact takes
	// precedence.
	Beginnings []Beginning
	// Otherwise is the result for every other text. If it is empty, any other text is an error of the row.
	Otherwise string
	// Leave: rows with any other text are not ours and are ignored.
	Leave bool
}

// Beginning maps every text with the prefix With to Text.
type Beginning struct{ With, Text string }

// Values returns all texts that the map can produce, sorted.
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

// RowCondition holds for a row whose Column has one of the values, or, with Not, none of them.
type RowCondition struct {
	Column string
	Values []string
	Null   bool // NULL counts as one of the values
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
	Default string // for NULL, blank or unknown names; empty: such a row is an error
	Known   []string
}

// Leads reports whether rows may go to the cluster.
func (c *ClusterMapping) Leads(cluster string) bool { return c.Column != "" || c.Default == cluster }

// Encoding says how a column's value becomes bytes.
type Encoding string

// The encodings. Text is the value as PostgreSQL prints it. The value of a bytea column is always its own
// bytes.
const (
	EncodingText    Encoding = "text"
	EncodingUUID    Encoding = "uuid"    // 16 bytes, of a uuid column
	EncodingInt64   Encoding = "int64"   // 8 bytes, big-endian, of an integer column
	EncodingRFC3339 Encoding = "rfc3339" // of a timestamp, in UTC
)

// PayloadMapping says what the record's value is, byte for byte. A bytea column gives its bytes. Columns of
// other types (text, json, jsonb and so on) give the text that PostgreSQL prints.
type PayloadMapping struct {
	Expr
	// Tombstone publishes a NULL payload as a null value. Otherwise a NULL payload is an error of the row.
	Tombstone bool
	// EmptyTombstone publishes an empty payload as a null value too.
	EmptyTombstone bool
	// Object are the members of the JSON object that is the payload. Expr then has only Column, the member
	// that is shown to people. Empty: Expr is the payload.
	Object []Member
}

// Names returns the columns that the payload comes from.
func (m *PayloadMapping) Names() []string {
	names := m.Expr.Names()
	for i := range m.Object {
		names = append(names, m.Object[i].Column)
	}
	return names
}

// Plain reports whether the payload is a column's own value, unchanged.
func (m *PayloadMapping) Plain() bool { return len(m.Object) == 0 && m.Expr.Plain() }

// Member is one member of a JSON object: the value of a column in some form, or a constant.
type Member struct {
	Name     string
	Column   string // empty: the member is the constant Value
	Value    string
	Form     MemberForm
	OmitNull bool // leaves the member out where the column is NULL; otherwise the member is null
}

// MemberForm says how a column's value is written in JSON.
type MemberForm string

// The values of MemberForm.
const (
	MemberString  MemberForm = "string"
	MemberJSON    MemberForm = "json" // the column's JSON as it is
	MemberNumber  MemberForm = "number"
	MemberBoolean MemberForm = "boolean"
	MemberTime    MemberForm = "time" // RFC 3339, in UTC
	MemberBase64  MemberForm = "base64"
)

// HeaderMapping is one source of headers. Exactly one of these is set: Column (with Name), Value (a constant,
// with Name), Trace (with Name), JSON (a column with an object of strings).
type HeaderMapping struct {
	Name   string
	Column string
	Value  string
	JSON   string
	// Form describes the content of column JSON. nil: an object of strings.
	Form *JSONHeaders
	// Encoding of Column; empty: text.
	Encoding Encoding
	// Pointer and Or apply to Column and JSON, as in Expr.
	Pointer  []string
	Or       []Expr
	Base64   bool
	OmitNull bool // leaves the header out where the column is NULL; otherwise its value is null
	// Trace builds the header from the columns of a trace context. The header is left out where the trace id
	// or the span id is NULL.
	Trace *TraceMapping
}

// JSONHeaders describes how a column stores headers.
type JSONHeaders struct {
	Properties bool // the column has not JSON, but text written by java.util.Properties
	Base64     bool // strings are base64 of the values
	Nested     bool // an object or array becomes a header's value as it is written; otherwise it is an error of the row
	// Except are names of headers to leave out. An entry that ends with a star is a prefix.
	Except []string
	// Name and Value are keys for a list of objects with one header each. Empty: the column has a single
	// object.
	Name, Value string
}

// Excepts reports whether the header with this name is left out.
func (f *JSONHeaders) Excepts(name string) bool {
	return slices.ContainsFunc(f.Except, func(e string) bool {
		beginning, star := strings.CutSuffix(e, "*")
		return name == e || star && strings.HasPrefix(name, beginning)
	})
}

// Expr returns where the header's value, or the JSON with headers, comes from.
func (h *HeaderMapping) Expr() Expr {
	return Expr{Column: cmp.Or(h.Column, h.JSON), Pointer: h.Pointer, Or: h.Or, Base64: h.Base64}
}

// TraceMapping names the columns of a trace context. The ids are signed 64-bit integers, printed as unsigned
// hexadecimal. Sampled is a boolean; NULL counts as sampled.
type TraceMapping struct {
	TraceIDHigh, TraceID, SpanID string
	Sampled                      string // or empty
	Format                       TraceFormat
}

// TraceFormat is the format in which a trace context is written.
type TraceFormat string

// The formats of trace contexts.
const (
	TraceW3C TraceFormat = "w3c" // https://www.w3.org/TR/trace-context/#traceparent-header
	TraceB3  TraceFormat = "b3"  // https://github.com/openzipkin/b3-propagation#single-header
)

// EventID is the record header that identifies an event.
type EventID struct {
	Name    string
	Columns []string // joined by ":"
}

// StatusMapping says where a row's state is stored. One way is Column with its values. The other is
// timestamps: SentAt set means SENT, FailedAt set means FAILED, both NULL means PENDING. Where success
// removes rows, Column may be empty: every row in the table is then PENDING.
type StatusMapping struct {
	Column  string
	Pending []string // all these values mean PENDING; the first one is the value that is written
	// PendingNull: NULL in Column means PENDING too.
	PendingNull bool
	Sent        string
	Failed      string

	SentAt   string // timestamp column set on success, or empty
	FailedAt string // timestamp column set on FAILED and cleared on success, or empty
	// SentBy are further timestamp columns. If one is set, another relay has sent the row.
	SentBy []string
	// Resend is a boolean column, or empty. true makes the row PENDING, whatever its other columns say. Every
	// transition sets it to false.
	Resend string
	// Processing is the value of Column while another relay works on the row, or empty. A row that stays
	// unchanged with this value for longer than RecoverAfter is made PENDING again. RecoverAfter 0: never.
	Processing   string
	RecoverAfter time.Duration

	Attempts    string // integer column, or empty
	MaxAttempts int    // the budget of attempts; 0 without an Attempts column: unlimited
	// MaxAttemptsColumn is an integer column with the row's own budget, or empty. NULL stands for
	// MaxAttempts. A value below 1 counts as 1, so that each row is tried.
	MaxAttemptsColumn string
	LastError         string // text column, or empty
	// LastErrorMax is how many characters of the error's text are stored; 0: 1000.
	LastErrorMax int
	Version      string // integer column raised by every transition, or empty
	TouchedAt    string // timestamp column set by every transition, or empty
	// ExpiresAt is a timestamp column, or empty. On success it is set to the present time plus ExpiresAfter.
	// The application deletes rows by it.
	ExpiresAt    string
	ExpiresAfter time.Duration
}

// CountDecides reports whether only the stored count of attempts tells a FAILED row from a pending one.
func (s *StatusMapping) CountDecides() bool {
	stored := s.Column != "" && s.Failed != "" || s.Column == "" && s.FailedAt != ""
	return !stored && s.Attempts != "" && s.MaxAttempts > 0
}
