package config

import (
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// MappingSpec is the mapping language: how a table's columns become a Kafka record, and
// how its state is read and written. A list of one may be written without brackets.
type MappingSpec struct {
	// ID columns identify a row, for marks too: the primary key.
	ID []string `yaml:"id"`
	// Rows are conditions that all have to hold of a row. Other rows are not ours. Left out:
	// every row is.
	Rows []RowSpec `yaml:"rows"`
	// Topic of the record: exactly one of column, constant and template.
	Topic TopicSpec `yaml:"topic"`
	// Key of the record: exactly one of column, first and template. Left out, or NULL: no key,
	// and no order.
	Key *KeySpec `yaml:"key"`
	// Payload of the record, byte for byte: bytea as its bytes, text, json and jsonb as
	// PostgreSQL prints them.
	Payload PayloadSpec `yaml:"payload"`
	// Headers of the record, in this order.
	Headers []HeaderSpec `yaml:"headers"`
	// EventID is a header for consumers to drop duplicates by.
	EventID *EventIDSpec `yaml:"event_id"`
	// Partition is an integer column with the partition. Left out: the key decides, by
	// partitioner.
	Partition string `yaml:"partition"`
	// Partitioner is the hash of the key that chooses the partition. murmur2: as the Java
	// client, franz-go and kafkajs. crc32: as librdkafka (consistent, consistent_random).
	// fnv1a: as sarama's default. A change moves keys to other partitions.
	Partitioner string `yaml:"partitioner" default:"murmur2" enum:"murmur2,crc32,fnv1a"`
	// Timestamp is a timestamp column with the record's time. Kafka's retention.ms counts from it, so that a record of an
	// old row, as of a replay, may be deleted before it is read. Left out: the time of producing.
	Timestamp string `yaml:"timestamp"`
	// TimestampRefused says what becomes of a row whose time is further from now than its topic takes
	// (message.timestamp.before.max.ms, message.timestamp.after.max.ms). wait keeps it and its key waiting until the topic takes it, at no cost in attempts; now
	// gives its record the time of producing.
	TimestampRefused string `yaml:"timestamp_refused" default:"wait" enum:"wait,now"`
	// TimeZone is the zone of timestamp columns without time zone, such as Europe/Berlin, wherever one is read or
	// written as a time. A time that the clocks show twice is the second one; a time that they skip counts
	// as if they had not been changed (02:30 becomes 03:30).
	TimeZone string `yaml:"time_zone" default:"UTC"`
	// Epoch is the unit in which integer and numeric columns that are mapped as times count since 1970: s, ms or us.
	// Left out: such columns are refused.
	Epoch string `yaml:"epoch" default:"none" enum:"none,s,ms,us"`
	// CreatedAt is a timestamp column with the row's age, for latency, grace and order. It
	// must not change: with the id it tells a row from a later one with the same id.
	CreatedAt string `yaml:"created_at"`
	// AvailableAfter are timestamp columns: a row is not published before any of them.
	AvailableAfter []string `yaml:"available_after"`
	// Cluster is the Kafka cluster of the row. Left out: kafka.default.
	Cluster *ClusterSpec `yaml:"cluster"`
	// Order columns in which rows are swept. It should follow the order of commits per key. Ties go by
	// an id column that rises with each INSERT: an identity, a sequence or uuidv7() by default. Where there is none, they
	// keep the order of insertion within a transaction only until one of its rows is updated, space
	// is reused or the table is rewritten by REPACK (CONCURRENTLY) or pg_repack: then add a column
	// that rises. Left out: created_at.
	Order []string `yaml:"order"`
	// Published says what happens to a row on success: its status is written, it is deleted or
	// moved, or nothing (none). With none a lost slot loses rows, and every INSERT is published: rows that are
	// restored, copied, or moved out of a default partition come again.
	Published string `yaml:"published" default:"status" enum:"status,delete,archive,none"`
	// Archive is the table, schema.name, that published: archive moves rows to.
	Archive string `yaml:"archive"`
	// Status is where the row's state is kept: a column of values, or timestamps alone
	// (sent_at and failed_at, both NULL while pending).
	Status *StatusSpec `yaml:"status"`
	// OnFailed says what a FAILED row does to later rows of its key: skip lets them go on,
	// block keeps them waiting for an operator.
	OnFailed string `yaml:"on_failed" default:"skip" enum:"skip,block"`
	// Grace is how old a PENDING row must be to count as missed by the stream.
	Grace time.Duration `yaml:"grace" default:"5s" min:"0s" max:"24h"`
	// Retention deletes rows this long after they were sent. 0s: never.
	Retention time.Duration `yaml:"retention" default:"0s" min:"0s"`
	// RetentionBy says how: rows deletes row by row; partitions drops partitions by a range of
	// created_at.
	RetentionBy string `yaml:"retention_by" default:"rows" enum:"rows,partitions"`
	// RetentionUnsent deletes also pending or failed rows this long after created_at, but none
	// that a pause keeps waiting. 0s: never.
	RetentionUnsent time.Duration `yaml:"retention_unsent" default:"0s" min:"0s"`
	// RetentionLock is the ShedLock of the application's own housekeeping, held while rows are
	// deleted.
	RetentionLock *ShedLockSpec `yaml:"retention_lock"`
	// HeadStart is how long a committed row is left to the application's own relay. Then it is
	// published if it is still pending. A shorter grace counts as this long.
	HeadStart time.Duration `yaml:"head_start" default:"0s" min:"0s" max:"1h"`
	// Writer says which rows the application sends by itself after its commit, and until when.
	Writer *WriterSpec `yaml:"writer"`
	// Claim row_lock holds a lock on each row until its outcome is written, so that a relay
	// which selects with SKIP LOCKED passes over it.
	Claim string `yaml:"claim" default:"none" enum:"none,row_lock"`
	// ShedLock is the lock of the application's own relay (net.javacrumbs.shedlock). The
	// stream waits for it, and holds it while it publishes. The application's lock provider
	// must use the database's clock, or its own in UTC.
	ShedLock *ShedLockSpec `yaml:"shedlock"`
	// HeadersTable is a side table with a header in each row, written in the transaction of
	// the outbox row.
	HeadersTable *HeadersTableSpec `yaml:"headers_table"`
	// LookFirst is for applications that change waiting rows: each row is looked up before it
	// is published. Its last committed version is published, or none if the row is no longer pending. Left
	// out: a row is published as it was inserted, unless others changed it while it waited for five seconds.
	LookFirst bool `yaml:"look_first" default:"false"`
	// FailOn lists topic errors that count as errors of the row. Then only they, a too large
	// record and a row that cannot become a record fail a row; other refusals are tried again
	// without counting. Left out: a topic's error makes the topic wait, and costs no row an
	// attempt.
	FailOn []string `yaml:"fail_on" enum:"invalid_topic,unauthorized_topic,missing_topic"`
	// MetricsCompat exports also the metrics of the relay that is replaced, under its names.
	MetricsCompat string `yaml:"metrics_compat" default:"none" enum:"none,im2be,advert-market,jeap"`
}

// RowSpec is a condition that a row is ours: exactly one of in and not_in.
type RowSpec struct {
	// Column that tells our rows from others.
	Column string `yaml:"column"`
	// In lists the values of our rows. null stands for NULL. A condition has exactly one of in
	// and not_in.
	In []Value `yaml:"in"`
	// NotIn lists the values of rows that are not ours. Without null in it a row with NULL is
	// ours.
	NotIn []Value `yaml:"not_in"`
}

// PlaceSpec is one of several places of a value.
type PlaceSpec struct {
	// Column with the value, or with JSON.
	Column string `yaml:"column"`
	// Path is a JSON Pointer into the column's JSON. Left out: the column itself.
	Path string `yaml:"path"`
}

// TopicSpec says where the topic comes from: exactly one of column, constant and
// template.
type TopicSpec struct {
	// Column with the topic, or with the value that map gives a topic for.
	Column string `yaml:"column"`
	// Path is a JSON Pointer (RFC 6901) such as /type to a text or number in the column's
	// JSON.
	Path string `yaml:"path"`
	// First lists places in place of column: the first counts that is not NULL.
	First []PlaceSpec `yaml:"first"`
	// Map gives a topic for each value, or, with a star at the end, for all values with this beginning,
	// such as com.acme.billing.*. An exact value goes before a beginning; no beginning may
	// begin another.
	Map map[string]string `yaml:"map"`
	// Otherwise is the topic of values that are not in map; or fail: the row fails by itself;
	// or leave: the row is left to others.
	Otherwise string `yaml:"otherwise" default:"fail"`
	// Constant is the topic of every row.
	Constant string `yaml:"constant"`
	// Template is text with columns in it, such as outbox.event.${aggregatetype}.
	Template Template `yaml:"template"`
	// Allow lists the topics that rows may name by column or template: names, and beginnings
	// with a star, such as orders.*. Other rows fail by themselves. Left out: all but those
	// that begin with two underscores, which must always be allowed here by their full names.
	Allow []string `yaml:"allow"`
}

// KeySpec says where the record's key comes from: exactly one of column, first and
// template. A NULL is a record without a key.
type KeySpec struct {
	// Column with the key.
	Column string `yaml:"column"`
	// Path is a JSON Pointer such as /orderId to a text or number in the column's JSON.
	Path string `yaml:"path"`
	// First lists places in place of column: the first counts that is not NULL.
	First []PlaceSpec `yaml:"first"`
	// Template is text with columns in it, such as ${tenant_id}:${order_id}. A NULL in one is
	// an error of the row.
	Template Template `yaml:"template"`
	// Encoding of the column as bytes: text is what PostgreSQL prints (bytea is always its own
	// bytes), uuid its 16 bytes, int64 8 bytes, big-endian, rfc3339 a timestamp in UTC.
	Encoding string `yaml:"encoding" default:"text" enum:"text,uuid,int64,rfc3339"`
}

// PayloadSpec says which column is the record's value, byte for byte: bytea as
// its bytes, text, json and jsonb as PostgreSQL prints them.
type PayloadSpec struct {
	// Column with the payload.
	Column string `yaml:"column"`
	// Path is a JSON Pointer into the column's JSON: a string is published as its text,
	// anything else as written.
	Path string `yaml:"path"`
	// Decode is what the text is decoded from.
	Decode string `yaml:"decode" default:"none" enum:"none,base64"`
	// Object makes the payload a JSON object of these members, in this order, without blanks.
	Object []MemberSpec `yaml:"object"`
	// Tombstone publishes a NULL payload as a null value. Otherwise it is an error of the row.
	Tombstone bool `yaml:"tombstone" default:"false"`
	// EmptyTombstone publishes an empty payload as a null value too.
	EmptyTombstone bool `yaml:"empty_tombstone" default:"false"`
}

// MemberSpec is a member of an object: exactly one of column and value.
type MemberSpec struct {
	// Name of the member.
	Name string `yaml:"name"`
	// Column with its value.
	Column string `yaml:"column"`
	// Value of the member in every record, a string.
	Value *string `yaml:"value"`
	// As is how the value is written: a string, the JSON that the column holds (json, jsonb,
	// text or bytea), a number, a boolean, a time in RFC 3339 (UTC), or its bytes in base64.
	As string `yaml:"as" default:"string" enum:"string,json,number,boolean,time,base64"`
	// OmitNull leaves the member out where the column is NULL. Otherwise it is null.
	OmitNull bool `yaml:"omit_null" default:"false"`
}

// HeaderSpec is one source of headers: name with column, name with value, json,
// properties, or trace.
type HeaderSpec struct {
	// Name of the header. Left out with trace: traceparent, or b3 by its format.
	Name string `yaml:"name"`
	// Column with the header's value.
	Column string `yaml:"column"`
	// Path is a JSON Pointer into the JSON of column, or of json.
	Path string `yaml:"path"`
	// First lists places in place of column: the first counts that is not NULL.
	First []PlaceSpec `yaml:"first"`
	// Decode is what the text is decoded from.
	Decode string `yaml:"decode" default:"none" enum:"none,base64"`
	// Value of the header in every record.
	Value *string `yaml:"value"`
	// JSON is a json, jsonb, text or bytea column with an object of strings, a header each.
	JSON string `yaml:"json"`
	// Properties is a text or bytea column that java.util.Properties stored, a header for each
	// property, such as Debezium's tracingspancontext.
	Properties string `yaml:"properties"`
	// Values says whether the strings of json are the values, or base64 of them.
	Values string `yaml:"values" default:"text" enum:"text,base64"`
	// Nested is what becomes of an object or array in json: an error of the row, or its JSON
	// text as written.
	Nested string `yaml:"nested" default:"refuse" enum:"refuse,json"`
	// List says that json holds a list of objects such as [{"Key": "a", "Value": "b"}], a
	// header each.
	List *HeaderListSpec `yaml:"list"`
	// Except lists headers of json or properties to leave out: names, and beginnings with a
	// star.
	Except []string `yaml:"except"`
	// Encoding of column as bytes, as the key's.
	Encoding string `yaml:"encoding" default:"text" enum:"text,int64,rfc3339,uuid"`
	// OmitNull leaves the header out where the column is NULL. Otherwise its value is null.
	OmitNull bool `yaml:"omit_null" default:"false"`
	// Trace makes the header of the columns of a trace context, signed 64-bit integers, which are
	// written as unsigned hexadecimal numbers. It is left out where the trace or span id is NULL or
	// zero.
	Trace *TraceSpec `yaml:"trace"`
}

// HeaderListSpec are the keys of the objects of a list.
type HeaderListSpec struct {
	// Name is the key of a header's name.
	Name string `yaml:"name"`
	// Value is the key of its value. Where an object lacks it, the value is null.
	Value string `yaml:"value"`
}

// TraceSpec are the columns of a trace context: signed integers of 64 bits,
// which are written as unsigned hexadecimal numbers.
type TraceSpec struct {
	// TraceIDHigh is the upper half of the trace id. Left out, or NULL: zero.
	TraceIDHigh string `yaml:"trace_id_high"`
	// TraceID is the lower half of the trace id.
	TraceID string `yaml:"trace_id"`
	// SpanID is the id of the span that the publishing belongs to.
	SpanID string `yaml:"span_id"`
	// Sampled is a boolean column. Left out, or NULL: sampled.
	Sampled string `yaml:"sampled"`
	// Format of the header: w3c is traceparent, b3 the single header of Zipkin.
	Format string `yaml:"format" default:"w3c" enum:"w3c,b3"`
}

// WriterSpec says which rows the application sends itself: those whose column is true, until a time has
// passed. Where column is NULL, or it is true and until is NULL, the row is never published, only counted
// and reported.
type WriterSpec struct {
	// Column is a boolean column: true where the writer sends the row itself. If it is NULL, or if it is
	// true and until is NULL, the row is never published, only counted and reported.
	Column string `yaml:"column"`
	// Until is a timestamp column: when it has passed, the row is ours. An UPDATE before the
	// commit may set it.
	Until string `yaml:"until"`
}

// ShedLockSpec names a lock of net.javacrumbs.shedlock.
type ShedLockSpec struct {
	// Table with the locks, schema.name.
	Table string `yaml:"table" default:"public.shedlock"`
	// Name of the lock.
	Name string `yaml:"name"`
}

// HeadersTableSpec is a side table with a header per row of it.
type HeadersTableSpec struct {
	// Table is the side table's name, schema.name.
	Table string `yaml:"table"`
	// Parent is the column that refers to the outbox row's id, a single column.
	Parent string `yaml:"parent"`
	// Order is the column by which a row's headers are ordered.
	Order string `yaml:"order"`
	// Name is the column with the header's name.
	Name string `yaml:"name"`
	// Value is the column with its value: bytea as its bytes, others as PostgreSQL prints
	// them.
	Value string `yaml:"value"`
}

// EventIDSpec is the header that identifies an event.
type EventIDSpec struct {
	// Header is the header's name.
	Header string `yaml:"header"`
	// Columns are the value, joined by a colon. Of two or more text columns a colon or
	// backslash in a value is escaped by a backslash. Left out: the id columns.
	Columns []string `yaml:"columns"`
}

// ClusterSpec chooses the Kafka cluster of a row.
type ClusterSpec struct {
	// Column with the cluster's name. Left out: every row goes to default.
	Column string `yaml:"column"`
	// Default is the cluster where the column is NULL, blank or no configured cluster's name.
	// Left out: kafka.default.
	Default string `yaml:"default"`
	// Allow lists the clusters that rows may name; others lead to default. Left out: every
	// one.
	Allow []string `yaml:"allow"`
}

// StatusSpec says where a row's state is kept: in a column of values, or in
// timestamps alone (sent_at and failed_at, both NULL while pending).
type StatusSpec struct {
	// Column with the status.
	Column string `yaml:"column"`
	// Pending values of the column: rows to be published. null stands for NULL. Requeued rows
	// get the first text.
	Pending []Value `yaml:"pending"`
	// Sent is the value of a published row.
	Sent string `yaml:"sent"`
	// Failed is the value of a row whose budget is used up. Without it, and without failed_at,
	// a row is failed when attempts has reached max_attempts.
	Failed string `yaml:"failed"`
	// SentAt is a timestamp column set on success.
	SentAt string `yaml:"sent_at"`
	// FailedAt is a timestamp column set when the budget is used up, and cleared
	// on success.
	FailedAt string `yaml:"failed_at"`
	// SentBy are further timestamp columns: one that is set says that somebody else sent the
	// row.
	SentBy []string `yaml:"sent_by"`
	// Resend is a boolean column: true asks for the row again, whatever its state. It is
	// cleared when the row was sent, or has failed.
	Resend string `yaml:"resend"`
	// Processing is the value of column while another relay has the row.
	Processing string `yaml:"processing"`
	// RecoverAfter makes a row pending again that was seen unchanged in processing for this
	// long. 0s: never.
	RecoverAfter time.Duration `yaml:"recover_after" default:"0s" min:"0s" max:"24h"`
	// Attempts is an integer column that counts the row's own failures.
	Attempts string `yaml:"attempts"`
	// MaxAttempts is the budget of a row: after so many own failures it is failed. 0:
	// unlimited. 1 needs no attempts column. Left out: 10, or 0 without an attempts column.
	MaxAttempts *int `yaml:"max_attempts" min:"0" max:"1000000"`
	// MaxAttemptsColumn is an integer column with the row's own budget. NULL is max_attempts;
	// below 1 counts as 1.
	MaxAttemptsColumn string `yaml:"max_attempts_column"`
	// LastError is a text column for the last failure.
	LastError string `yaml:"last_error"`
	// LastErrorMax is how many characters last_error holds.
	LastErrorMax int `yaml:"last_error_max" default:"1000" min:"1" max:"1000000"`
	// Version is an integer column that every transition raises by one.
	Version string `yaml:"version"`
	// TouchedAt is a timestamp column that every transition sets to now.
	TouchedAt string `yaml:"touched_at"`
	// ExpiresAt is a timestamp column by which the application deletes rows that were sent.
	ExpiresAt *ExpirySpec `yaml:"expires_at"`
}

// ExpirySpec is a time that success sets.
type ExpirySpec struct {
	// Column is the timestamp column.
	Column string `yaml:"column"`
	// After is how long after the sending the time is.
	After time.Duration `yaml:"after" default:"24h" min:"0s"`
}

// Template is text with columns in it. It is written with ${column}, and $${
// for a ${ of its own.
type Template struct{ outbox.Template }

// Empty reports whether no template was given.
func (t Template) Empty() bool { return len(t.Literals) == 0 }
