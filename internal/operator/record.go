package operator

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Record is the record that a row would become, or why it can be none, for people
// and as JSON.
type Record struct {
	ID        []string       `json:"id"`
	Error     string         `json:"error,omitempty"`
	Pending   bool           `json:"pending"`
	Due       string         `json:"available_after,omitempty"`
	Cluster   string         `json:"cluster"`
	Topic     string         `json:"topic"`
	Partition *int32         `json:"partition,omitempty"`
	Timestamp string         `json:"timestamp,omitempty"`
	Key       *Bytes         `json:"key"`
	Headers   []RecordHeader `json:"headers"`
	Value     *Bytes         `json:"value"`
}

// RecordHeader is one header of a record.
type RecordHeader struct {
	Name  string `json:"name"`
	Value *Bytes `json:"value"`
}

// Bytes are text, or base64 where they are no UTF-8.
type Bytes struct {
	Text   *string `json:"text,omitempty"`
	Base64 *string `json:"base64,omitempty"`
	Length int     `json:"bytes"`
}

// RecordOf describes a row of a preview.
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

// bytesOf is nil for nil, which Kafka tells from what is empty.
func bytesOf(b []byte) *Bytes {
	if b == nil {
		return nil
	}
	s := &Bytes{Length: len(b)}
	if utf8.Valid(b) {
		text := string(b)
		s.Text = &text
	} else {
		text := base64.StdEncoding.EncodeToString(b)
		s.Base64 = &text
	}
	return s
}

// Raw are the bytes; nil: there are none, or they are hidden.
func (b *Bytes) Raw() []byte {
	switch {
	case b != nil && b.Text != nil:
		return []byte(*b.Text)
	case b != nil && b.Base64 != nil:
		raw, _ := base64.StdEncoding.DecodeString(*b.Base64) // bytesOf wrote it
		return raw
	}
	return nil
}

// Short is the bytes in a line of at most so many characters.
func (b *Bytes) Short(width int) string {
	switch {
	case b == nil:
		return "null"
	case b.Text == nil:
		return strconv.Itoa(b.Length) + " bytes"
	}
	runes := []rune(strings.Join(strings.Fields(*b.Text), " "))
	if len(runes) <= width {
		return string(runes)
	}
	return string(runes[:width-1]) + Ellipsis
}

// Hide leaves the length of what a record says, not the content: of its value and
// of its headers' values.
func (s *Record) Hide() {
	s.Value.hide()
	for i := range s.Headers {
		s.Headers[i].Value.hide()
	}
}

func (b *Bytes) hide() {
	if b != nil {
		b.Text, b.Base64 = nil, nil
	}
}
