package mapping

import "github.com/outbox-cdc/outbox-cdc/internal/outbox"

// tracePlan is a trace context in columns; high and sampled may be nil.
type tracePlan struct {
	format   outbox.TraceFormat
	high     *field
	id, span field
	sampled  *field
}

// traceContext is one row's.
type traceContext struct {
	high, id, span uint64
	sampled        bool
}

// traceHeader leaves the header out where there is no trace: an id that is NULL
// or zero, which both formats forbid.
func (r *reading) traceHeader(h *headerPlan, list []outbox.Header) []outbox.Header {
	c := r.traceContext(h.trace)
	if c.span == 0 || c.high == 0 && c.id == 0 {
		return list
	}
	var memory [55]byte
	text := memory[:0]
	if h.trace.format == outbox.TraceB3 {
		text = c.b3(text)
	} else {
		text = c.w3c(text)
	}
	return append(list, outbox.Header{Name: h.name, Value: r.arena.copy(text)})
}

// traceContext reads the columns. Where the trace id is NULL or cannot be read, there is
// none; a span id is 0 then.
func (r *reading) traceContext(p *tracePlan) (c traceContext) {
	id, noID := r.traceID(&p.id)
	span, _ := r.traceID(&p.span)
	if noID {
		return traceContext{}
	}
	c = traceContext{id: id, span: span, sampled: true}
	if p.high != nil {
		c.high, _ = r.traceID(p.high)
	}
	if p.sampled != nil {
		sampled, null, fault := p.sampled.boolean(r.values[p.sampled.at])
		if fault != "" {
			r.fail(p.sampled, fault)
		}
		c.sampled = sampled || null
	}
	return c
}

// traceID is the 64 bits of a signed column.
func (r *reading) traceID(f *field) (id uint64, none bool) {
	n, null, fault := f.integer(r.values[f.at])
	if fault != "" {
		r.fail(f, fault)
		return 0, true
	}
	return uint64(n), null
}

// w3c is the traceparent header, version 00: 00-TRACE-SPAN-FLAGS.
// https://www.w3.org/TR/trace-context/#traceparent-header
func (c *traceContext) w3c(to []byte) []byte {
	to = appendHex64(appendHex64(append(to, "00-"...), c.high), c.id)
	to = appendHex64(append(to, '-'), c.span)
	if c.sampled {
		return append(to, "-01"...)
	}
	return append(to, "-00"...)
}

// b3 is the single header TRACE-SPAN-SAMPLED; a trace id of 64 bits has 16 digits.
// https://github.com/openzipkin/b3-propagation#single-header
func (c *traceContext) b3(to []byte) []byte {
	if c.high != 0 {
		to = appendHex64(to, c.high)
	}
	to = appendHex64(append(appendHex64(to, c.id), '-'), c.span)
	if c.sampled {
		return append(to, "-1"...)
	}
	return append(to, "-0"...)
}

// appendHex64 appends 16 digits.
func appendHex64(to []byte, n uint64) []byte {
	const digits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		to = append(to, digits[n>>shift&15])
	}
	return to
}
