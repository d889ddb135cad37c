package config

import (
	"fmt"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file resolves the options of a table that the application's own relay uses too, or used before.

func (r *resolver) coexistence(m *outbox.Mapping) {
	s := r.spec
	m.HeadStart = s.HeadStart
	m.LookFirst = s.LookFirst
	m.RetentionUnsent = s.RetentionUnsent
	m.DropPartitions = s.RetentionBy == "partitions"
	m.RetentionLock = r.shedLock("retention_lock", s.RetentionLock)
	m.ShedLock = r.shedLock("shedlock", s.ShedLock)
	if w := s.Writer; w != nil {
		if w.Column == "" || w.Until == "" {
			r.complain("writer", "has not both of column and until", "write writer: {column: send_immediately, until: schedule_after}")
		}
		m.Writer = outbox.WriterMapping{Column: r.column("writer.column", w.Column), Until: r.column("writer.until", w.Until)}
	}
	m.HeadersTable = r.headersTable(m.ID)
	if s.Claim != "none" {
		m.Claim = outbox.Claim(s.Claim)
	}
	if s.MetricsCompat != "none" {
		m.MetricsCompat = s.MetricsCompat
	}
	for i, word := range s.FailOn {
		if slices.Contains(s.FailOn[:i], word) {
			r.complain("fail_on", fmt.Sprintf("%q is listed twice", word), "list it once")
		}
		m.FailOn = append(m.FailOn, outbox.TopicError(word))
	}
	if s.RetentionLock != nil && s.Retention == 0 && s.RetentionUnsent == 0 {
		r.complain("retention_lock", "locks nothing: there is no retention", "write retention: 168h, for example, or remove it")
	}
}

func (r *resolver) shedLock(key string, s *ShedLockSpec) outbox.ShedLock {
	if s == nil {
		return outbox.ShedLock{}
	}
	if s.Name == "" {
		r.complain(key+".name", "is missing", "write the lock's name, as in the application's @SchedulerLock(name = …)")
	}
	schema, table, ok := SplitTable(s.Table)
	if !ok {
		r.complain(key+".table", fmt.Sprintf("%q is not a table with its schema", s.Table), "write schema.name, for example public.shedlock")
	}
	return outbox.ShedLock{Schema: schema, Table: table, Name: s.Name}
}

func (r *resolver) headersTable(id []string) outbox.HeadersTable {
	h := r.spec.HeadersTable
	if h == nil {
		return outbox.HeadersTable{}
	}
	schema, name, ok := SplitTable(h.Table)
	if !ok {
		r.complain("headers_table.table", fmt.Sprintf("%q is not a table with its schema", h.Table), "write schema.name, for example public.message_header")
	}
	for _, c := range []struct{ key, column string }{{"parent", h.Parent}, {"name", h.Name}, {"value", h.Value}} {
		if c.column == "" {
			r.complain("headers_table."+c.key, "is missing", "write headers_table: {table: public.message_header, parent: message_id, order: header_index, name: header_name, value: header_value}")
		}
	}
	if len(id) > 1 {
		r.complain("headers_table", "cannot be combined with an id of several columns, which its parent column cannot refer to", "remove it, or name a single column as id")
	}
	return outbox.HeadersTable{
		Schema: schema, Name: name,
		Parent:      r.column("headers_table.parent", h.Parent),
		Order:       r.column("headers_table.order", h.Order),
		HeaderName:  r.column("headers_table.name", h.Name),
		HeaderValue: r.column("headers_table.value", h.Value),
	}
}

func (r *resolver) trace(key string, t *TraceSpec) *outbox.TraceMapping {
	if t.TraceID == "" || t.SpanID == "" {
		r.complain(key, "has not both of trace_id and span_id", "write trace: {trace_id: trace_id, span_id: span_id}")
	}
	return &outbox.TraceMapping{
		TraceIDHigh: r.column(key+".trace_id_high", t.TraceIDHigh),
		TraceID:     r.column(key+".trace_id", t.TraceID),
		SpanID:      r.column(key+".span_id", t.SpanID),
		Sampled:     r.column(key+".sampled", t.Sampled),
		Format:      outbox.TraceFormat(t.Format),
	}
}
