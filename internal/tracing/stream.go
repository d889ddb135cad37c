package tracing

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Stream makes spans for one stream's rows. Only the driver's goroutine uses it.
type Stream struct {
	tracer trace.Tracer
	name   string
	// open are the batches of rows that still wait for answers to marks.
	open map[*outbox.Row]*batch
}

// batch is rows that were acknowledged together. Its span lasts from sending them until the last of their
// marks is answered.
type batch struct {
	span         trace.Span
	names        *names
	left         int
	marked, lost int
	acknowledged time.Time
}

// names are the names of spans and attributes: OpenTelemetry's, or those of the relay that was replaced.
// https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/
type names struct {
	batch                   string
	size, successes, failed attribute.Key
	row                     func(*outbox.Row) string
	attributes              func(r *outbox.Row, outcome string) []attribute.KeyValue
	// parts says whether a batch's span has children and attributes about its destination.
	parts bool
}

var ours = &names{
	batch: "outbox batch", size: "messaging.batch.message_count", successes: "outbox.marked", failed: "outbox.not_marked",
	row: func(r *outbox.Row) string { return "send " + r.Topic },
	attributes: func(r *outbox.Row, outcome string) []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String("messaging.system", "kafka"),
			attribute.String("messaging.operation.name", "send"),
			attribute.String("messaging.operation.type", "send"),
			attribute.String("messaging.destination.name", r.Topic),
			attribute.String("messaging.message.id", strings.Join(outbox.SplitID(r.ID), ":")),
			attribute.Int("messaging.message.body.size", len(r.Value)),
			attribute.String("outbox.table", r.Table.String()),
			attribute.String("outbox.outcome", outcome),
		}
	},
	parts: true,
}

var im2be = &names{
	batch: "im2be.outbox.poller.tick", size: "batch.size", successes: "success.count", failed: "failure.count",
	row: func(*outbox.Row) string { return "im2be.outbox.publish.hot" },
	attributes: func(r *outbox.Row, outcome string) []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String("topic", r.Topic),
			attribute.String("event.id", idColumn(r, "event_id")),
			attribute.String("aggregate.id", idColumn(r, "aggregate_id")),
			attribute.String("outcome", outcome),
		}
	},
}

func namesOf(t *outbox.Table) *names {
	if t.Mapping.MetricsCompat == "im2be" {
		return im2be
	}
	return ours
}

// idColumn returns the text of one of a row's identity columns, or "".
func idColumn(r *outbox.Row, column string) string {
	i, parts := slices.Index(r.Table.Mapping.ID, column), outbox.SplitID(r.ID)
	if i < 0 || i >= len(parts) {
		return ""
	}
	return parts[i]
}

// Decoded makes the span for rows that were read from the WAL together. After that, each row belongs to the
// batch of its partition.
func (s *Stream) Decoded(rows int, began, now time.Time) {
	if s == nil {
		return
	}
	_, span := s.tracer.Start(context.Background(), "outbox decode", trace.WithNewRoot(), trace.WithTimestamp(began),
		trace.WithAttributes(attribute.String("outbox.stream", s.name), ours.size.Int(rows)))
	span.End(trace.WithTimestamp(now))
}

// Outcome makes spans for an outcome of the sink: one for the batch, and one for each row that carries a
// trace context. Rows that were given back will have another outcome, so they get no span yet.
func (s *Stream) Outcome(o outbox.Outcome, now time.Time) {
	if s == nil || len(o.Rows) == 0 {
		return
	}
	switch o.Class {
	case outbox.Delivered:
		s.delivered(&o, now)
	case outbox.Refused:
		for _, r := range o.Rows {
			s.row(r, trace.SpanContext{}, now, now, o.Err)
		}
	case outbox.Withdrawn:
	}
}

func (s *Stream) delivered(o *outbox.Outcome, now time.Time) {
	sent := o.Sent
	if sent.IsZero() {
		sent = now
	}
	first := o.Rows[0]
	n := namesOf(first.Table)
	ctx, span := s.tracer.Start(context.Background(), n.batch, trace.WithNewRoot(), trace.WithTimestamp(sent),
		trace.WithAttributes(n.size.Int(len(o.Rows))))
	b := &batch{span: span, names: n, acknowledged: now}
	if n.parts {
		span.SetAttributes(attribute.String("outbox.stream", s.name), attribute.String("messaging.system", "kafka"),
			attribute.String("messaging.destination.name", first.Topic), attribute.String("outbox.commit_lsn", o.Rows[len(o.Rows)-1].Commit.String()))
		_, publish := s.tracer.Start(ctx, "publish", trace.WithTimestamp(sent))
		publish.End(trace.WithTimestamp(now))
	}
	for _, r := range o.Rows {
		s.row(r, span.SpanContext(), sent, now, nil)
		if r.Table.Stateful() {
			b.left++
			s.open[r] = b
		}
	}
	if b.left == 0 {
		s.end(b, now)
	}
}

// row makes the span for a row with a trace context, within that trace.
func (s *Stream) row(r *outbox.Row, of trace.SpanContext, sent, now time.Time, err error) {
	parent := propagation.TraceContext{}.Extract(context.Background(), headers{r})
	if !trace.SpanContextFromContext(parent).IsValid() {
		return
	}
	n, outcome := namesOf(r.Table), "success"
	if err != nil {
		outcome = "failure"
	}
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindProducer), trace.WithTimestamp(sent), trace.WithAttributes(n.attributes(r, outcome)...),
	}
	if of.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: of}))
	}
	_, span := s.tracer.Start(parent, n.row(r), options...)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End(trace.WithTimestamp(now))
}

// Marked counts the answers to marks. It ends a batch when all its answers have come.
func (s *Stream) Marked(answers []outbox.Marked, now time.Time) {
	if s == nil {
		return
	}
	for i := range answers {
		b := s.open[answers[i].Row]
		if b == nil || answers[i].State == outbox.MarkedInvisible { // the mark will be asked again
			continue
		}
		delete(s.open, answers[i].Row)
		if answers[i].State == outbox.MarkedSent {
			b.marked++
		} else {
			b.lost++
		}
		if b.left--; b.left == 0 {
			s.end(b, now)
		}
	}
}

func (s *Stream) end(b *batch, now time.Time) {
	b.span.SetAttributes(b.names.successes.Int(b.marked), b.names.failed.Int(b.lost))
	if b.names.parts && b.marked+b.lost > 0 {
		_, mark := s.tracer.Start(trace.ContextWithSpan(context.Background(), b.span), "mark", trace.WithTimestamp(b.acknowledged))
		mark.End(trace.WithTimestamp(now))
	}
	b.span.End(trace.WithTimestamp(now))
}

// Abandon ends the batches whose marks will not be answered any more, because the leadership ended.
func (s *Stream) Abandon(now time.Time) {
	if s == nil {
		return
	}
	for row, b := range s.open {
		delete(s.open, row)
		b.lost++
		if b.left--; b.left == 0 {
			b.span.SetStatus(codes.Error, "the leadership ended before all rows were marked")
			s.end(b, now)
		}
	}
}

// headers lets the propagator read a row's headers.
type headers struct{ row *outbox.Row }

// Get implements propagation.TextMapCarrier.
func (h headers) Get(name string) string {
	for i := range h.row.Headers {
		if h.row.Headers[i].Name == name {
			return string(h.row.Headers[i].Value)
		}
	}
	return ""
}

// Set implements propagation.TextMapCarrier. It does nothing: the record stays as its writer made it.
func (headers) Set(string, string) {}

// Keys implements propagation.TextMapCarrier. A trace context is read by name, so no keys are needed.
func (headers) Keys() []string { return nil }
