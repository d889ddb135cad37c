package config

import (
	"time"

	"github.com/outbox-cdc/outbox-cdc/outbox"
)

// MappingSpec is the mapping language of tables and profiles: how a table's
// columns become a Kafka record and how its state is read and written. A list
// of one may be written without brackets. In a table with a profile, a key
// that is given replaces the profile's, and null takes it away.
type MappingSpec struct {
	// ID columns identify a row, and marks find rows by them: the primary key.
	ID []string `yaml:"id"`
	// Topic of the record.
	Topic TopicSpec `yaml:"topic"`
	// Key of the record. Left out: records without a key, in no order.
	Key *KeySpec `yaml:"key"`
	// Payload of the record.
	Payload PayloadSpec `yaml:"payload"`
	// Headers of the record, in this order.
	Headers []HeaderSpec `yaml:"headers"`
	// EventID is a header for consumers to drop duplicates by.
	EventID *EventIDSpec `yaml:"event_id"`
	// Partition is an integer column with the record's partition. Left out:
	// the key decides, as the Java client does it.
	Partition string `yaml:"partition"`
	// Timestamp is a timestamp column with the record's time. Left out: the
	// time of producing.
	Timestamp string `yaml:"timestamp"`
	// CreatedAt is a timestamp column with the row's age, for latency, grace
	// and order.
	CreatedAt string `yaml:"created_at"`
	// AvailableAfter is a timestamp column before which a row is not published.
	AvailableAfter string `yaml:"available_after"`
	// Cluster is the Kafka cluster of the row. Left out: kafka.default.
	Cluster *ClusterSpec `yaml:"cluster"`
	// Order columns in which rows are swept, first to last. It should follow
	// the order of commits per key; ties keep the order of insertion within a
	// transaction. Left out: created_at.
	Order []string `yaml:"order"`
	// Published says what happens to a row on success: its status is written,
	// it is deleted, or nothing (then nothing covers the loss of the slot).
	Published string `yaml:"published" default:"status" enum:"status,delete,none"`
	// Status is where the row's state is kept.
	Status *StatusSpec `yaml:"status"`
	// OnFailed says what a row whose budget is used up does to the later rows of
	// its key: skip lets them go on, block keeps them waiting for an operator.
	OnFailed string `yaml:"on_failed" default:"skip" enum:"skip,block"`
	// Grace is how old a PENDING row must be before it can count as missed by
	// the stream.
	Grace time.Duration `yaml:"grace" default:"5s" min:"0s" max:"24h"`
	// Retention deletes rows this long after they were sent. 0s: never.
	Retention time.Duration `yaml:"retention" default:"0s" min:"0s"`
}

// TopicSpec says where the topic comes from: exactly one of its keys.
type TopicSpec struct {
	// Column with the topic.
	Column string `yaml:"column"`
	// Constant is the topic of every row.
	Constant string `yaml:"constant"`
	// Template is text with columns in it, such as outbox.event.${aggregatetype}.
	Template Template `yaml:"template"`
}

// KeySpec says which column is the record's key. A NULL is a record without a key.
type KeySpec struct {
	// Column with the key.
	Column string `yaml:"column"`
	// Encoding of the column as bytes: text is what PostgreSQL prints (a bytea
	// column is always its own bytes), uuid is the 16 bytes of a uuid column.
	Encoding string `yaml:"encoding" default:"text" enum:"text,uuid"`
}

// PayloadSpec says which column is the record's value, byte for byte: bytea as
// its bytes, text, json and jsonb as PostgreSQL prints them.
type PayloadSpec struct {
	// Column with the payload.
	Column string `yaml:"column"`
	// Tombstone publishes a NULL payload as a null value. Otherwise a NULL
	// payload is an error of that row.
	Tombstone bool `yaml:"tombstone" default:"false"`
	// EmptyTombstone publishes an empty payload as a null value too.
	EmptyTombstone bool `yaml:"empty_tombstone" default:"false"`
}

// HeaderSpec is one source of headers: name with column, name with value, or json.
type HeaderSpec struct {
	// Name of the header.
	Name string `yaml:"name"`
	// Column with the header's value.
	Column string `yaml:"column"`
	// Value of the header in every record.
	Value *string `yaml:"value"`
	// JSON is a json or jsonb column with an object of strings, a header each.
	JSON string `yaml:"json"`
	// OmitNull leaves the header out where the column is NULL. Otherwise the
	// header's value is null.
	OmitNull bool `yaml:"omit_null" default:"false"`
}

// EventIDSpec is the header that identifies an event.
type EventIDSpec struct {
	// Header is the header's name.
	Header string `yaml:"header"`
	// Columns are the value, joined by a colon. Left out: the id columns.
	Columns []string `yaml:"columns"`
}

// ClusterSpec chooses the Kafka cluster of a row.
type ClusterSpec struct {
	// Column with the cluster's name. Left out: every row goes to default.
	Column string `yaml:"column"`
	// Default is the cluster for a column that is NULL, blank or no configured
	// cluster's name. Left out: kafka.default.
	Default string `yaml:"default"`
}

// StatusSpec says where a row's state is kept: in a column of values, or in
// timestamps alone (sent_at and failed_at, both NULL while pending).
type StatusSpec struct {
	// Column with the status.
	Column string `yaml:"column"`
	// Pending values of the column: rows to be published.
	Pending []string `yaml:"pending"`
	// Sent is the value written after Kafka acknowledged the record.
	Sent string `yaml:"sent"`
	// Failed is the value written when the budget is used up.
	Failed string `yaml:"failed"`
	// SentAt is a timestamp column set on success.
	SentAt string `yaml:"sent_at"`
	// FailedAt is a timestamp column set when the budget is used up.
	FailedAt string `yaml:"failed_at"`
	// Attempts is an integer column that counts the failures of the row itself.
	Attempts string `yaml:"attempts"`
	// MaxAttempts is the budget: at this many failures of its own the row is
	// failed. 0: unlimited. Left out: 10, or 0 without an attempts column.
	MaxAttempts *int `yaml:"max_attempts" min:"0" max:"1000000"`
	// LastError is a text column for the last failure.
	LastError string `yaml:"last_error"`
	// LastErrorMax is how many characters last_error holds.
	LastErrorMax int `yaml:"last_error_max" default:"1000" min:"1" max:"1000000"`
	// Version is an integer column that every transition raises by one.
	Version string `yaml:"version"`
}

// Template is text with columns in it. It is written with ${column}, and $${
// for a ${ of its own.
type Template struct{ outbox.Template }

// Empty says that no template was given.
func (t Template) Empty() bool { return len(t.Literals) == 0 }
