package operator

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Record is the record that a row would become, or why it can be none, for people
// and as JSON.
type Record struct {
	// ID is the values of the row's id columns, in the mapping's order.
	ID []string `json:"id"`
	// Error is why the row cannot become a record.
	Error string `json:"error,omitempty"`
	// Pending is whether the row is still to be published.
	Pending bool `json:"pending"`
	// Due is when it may be published; `never`: its writer has it, and does not say until when.
	Due string `json:"available_after,omitempty"`
	// Cluster is the name of the Kafka cluster.
	Cluster string `json:"cluster"`
	// Topic of the record.
	Topic string `json:"topic"`
	// Partition that the mapping names. Missing: the key decides.
	Partition *int32 `json:"partition,omitempty"`
	// Timestamp that the mapping names. Missing: the time of sending.
	Timestamp string `json:"timestamp,omitempty"`
	// Key of the record; null: none.
	Key *Bytes `json:"key"`
	// Headers in their order.
	Headers []RecordHeader `json:"headers"`
	// Value of the record; null: a tombstone.
	Value *Bytes `json:"value"`
}

// RecordHeader is one header of a record.
type RecordHeader struct {
	// Name of the header.
	Name string `json:"name"`
	// Value of the header.
	Value *Bytes `json:"value"`
}

// Bytes are text, or base64 where they are no UTF-8.
type Bytes struct {
	// Text of the bytes, where they are UTF-8.
	Text *string `json:"text,omitempty"`
	// Base64 of the bytes, where they are not.
	Base64 *string `json:"base64,omitempty"`
	// Length is how many bytes they are.
	Length int `json:"bytes"`
}

// RecordOf describes the record of a previewed row.
func RecordOf(r *outbox.Row) Record {
	s := Record{ID: outbox.SplitID(r.ID), Pending: r.Pending, Cluster: r.Cluster, Topic: r.Topic, Key: bytesOf(r.Key), Headers: []RecordHeader{}, Value: bytesOf(r.Value)}
	if r.Err != nil {
		s.Error = r.Err.Error()
	}
	if r.Partition >= 0 {
		s.Partition = &r.Partition
	}
	if r.Timestamp > 0 {
		s.Timestamp = time.UnixMilli(r.Timestamp).UTC().Format(time.RFC3339Nano)
	}
	switch {
	case r.AvailableAt == outbox.Never:
		s.Due = "never"
	case r.AvailableAt > 0:
		s.Due = time.UnixMicro(r.AvailableAt).UTC().Format(time.RFC3339Nano)
	}
	for _, h := range r.Headers {
		s.Headers = append(s.Headers, RecordHeader{h.Name, bytesOf(h.Value)})
	}
	return s
}

// bytesOf returns nil for nil: for Kafka, nil and empty are different.
func bytesOf(b []byte) *Bytes {
	if b == nil {
		return nil
	}
	s := &Bytes{Length: len(b)}
	if utf8.Valid(b) {
		s.Text = new(string(b))
	} else {
		s.Base64 = new(base64.StdEncoding.EncodeToString(b))
	}
	return s
}

// Raw returns the bytes; nil: there are none, or they are hidden.
func (b *Bytes) Raw() []byte {
	switch {
	case b != nil && b.Text != nil:
		return []byte(*b.Text)
	case b != nil && b.Base64 != nil:
		raw, _ := base64.StdEncoding.DecodeString(*b.Base64) // written by bytesOf
		return raw
	}
	return nil
}

// Short returns the bytes in one line of at most width characters.
func (b *Bytes) Short(width int) string {
	switch {
	case b == nil:
		return "null"
	case b.Text == nil:
		return strconv.Itoa(b.Length) + " bytes"
	}
	return OneLine(*b.Text, width)
}

// OneLine returns a text in one line of at most width characters.
func OneLine(text string, width int) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) <= width {
		return string(runes)
	}
	return string(runes[:width-1]) + outbox.Ellipsis
}

// Hide removes the content of the record's value and of its headers' values, and leaves their lengths.
func (s *Record) Hide() {
	s.Value.hide()
	for i := range s.Headers {
		s.Headers[i].Value.hide()
	}
}

// HideKey removes the key's content and leaves its length.
func (s *Record) HideKey() { s.Key.hide() }

func (b *Bytes) hide() {
	if b != nil {
		b.Text, b.Base64 = nil, nil
	}
}

// PayloadOf returns a listed row's payload in the form that its record has; nil: it was not listed, or is
// NULL. Listings print bytea in PostgreSQL's escape format.
// https://www.postgresql.org/docs/current/functions-binarystring.html
func (t *Table) PayloadOf(r *Row) []byte {
	if r.Payload == nil {
		return nil
	}
	if t.relation.Column(t.relation.Table.Mapping.Payload.Column).OID != pgtype.ByteaOID {
		return []byte(*r.Payload)
	}
	return unescape(*r.Payload)
}

// unescape decodes the escape format of bytea: \\ and three octal digits.
func unescape(text string) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) && text[i+1] != '\\' {
			if n, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				out = append(out, byte(n))
				i += 3
				continue
			}
		}
		if text[i] == '\\' && i+1 < len(text) && text[i+1] == '\\' {
			i++
		}
		out = append(out, text[i])
	}
	return out
}
