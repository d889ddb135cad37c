package outbox

import "time"

// Mapping says how a table's columns become a Kafka record, and how its state
// is read and written. Column names are as in the catalogue, unquoted.
type Mapping struct {
	// ID columns identify a row; at least one. They are what a mark's UPDATE
	// finds the row by, so they should be the primary key.
	ID []string

	Cluster ClusterMapping
	Topic   Template
	Key     *KeyMapping // nil: records without key
	Payload PayloadMapping
	Headers []HeaderMapping
	// EventID is the header for consumers to dedupe by; an empty Name: none.
	EventID EventID
	// Partition is an integer column with the record's partition, or empty.
	Partition string
	// Timestamp is a timestamp column with the record's time, or empty.
	Timestamp string
	// CreatedAt is a timestamp column used to measure latency and age, or empty.
	CreatedAt string
	// AvailableAfter is a timestamp column before which a row is not due, or empty.
	AvailableAfter string
	// Order columns give the order of sweeping, first to last.
	Order []string

	Published Published
	Status    StatusMapping
	// OnFailed says what a FAILED row does to its key.
	OnFailed OnFailed
	// Grace is how old a PENDING row must be before it can count as missed.
	Grace time.Duration
	// Retention deletes rows this long after they were sent; 0: never.
	Retention time.Duration
}

// Published is what happens to a row on success.
type Published string

// What happens on success.
const (
	PublishedStatus Published = "status" // its state is written
	PublishedDelete Published = "delete" // it is deleted
	PublishedNone   Published = "none"   // nothing: the table keeps no state
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
	Columns  []string
}

// ClusterMapping chooses the Kafka cluster of a row.
type ClusterMapping struct {
	Column  string // empty: always Default
	Default string // for NULL, blank or unknown names; empty: such a row fails
	Known   []string
}

// Encoding is how a column's value becomes bytes.
type Encoding string

// The encodings. Text is what PostgreSQL prints; a bytea column is always its
// own bytes.
const (
	EncodingText Encoding = "text"
	EncodingUUID Encoding = "uuid" // 16 bytes, of a uuid column
)

// KeyMapping says which column is the record key.
type KeyMapping struct {
	Column   string
	Encoding Encoding
}

// PayloadMapping says which column is the record value, byte for byte: bytea
// as its bytes, text, json, jsonb and others as PostgreSQL prints them.
type PayloadMapping struct {
	Column string
	// Tombstone publishes a NULL payload as a null value; otherwise it is an
	// error of the row.
	Tombstone bool
	// EmptyTombstone publishes an empty payload as a null value too.
	EmptyTombstone bool
}

// HeaderMapping is one source of headers: exactly one of Column (with Name),
// Value (a constant, with Name) and JSON (a column with an object of strings).
type HeaderMapping struct {
	Name     string
	Column   string
	Value    string
	JSON     string
	OmitNull bool // leave the header out when the column is NULL; otherwise null value
}

// EventID is the header that identifies an event.
type EventID struct {
	Name    string
	Columns []string // joined by ":"
}

// StatusMapping says where a row's state is kept. Either Column with values,
// or timestamps: SentAt set means SENT, FailedAt set means FAILED, both NULL
// PENDING. With PublishedDelete the Column may be empty: what exists is PENDING.
type StatusMapping struct {
	Column  string
	Pending []string // the first is the one we would write; all are selected
	Sent    string
	Failed  string

	SentAt   string // timestamp column set on success, or empty
	FailedAt string // timestamp column set on FAILED, or empty

	Attempts    string // integer column, or empty
	MaxAttempts int    // the budget; 0 without an Attempts column: unlimited
	LastError   string // text column, or empty
	// LastErrorMax cuts the error's text to this many characters; 0: 1000.
	LastErrorMax int
	Version      string // integer column raised by every transition, or empty
}
