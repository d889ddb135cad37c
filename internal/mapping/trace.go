package mapping

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// tracePlan is a trace context in columns. high and sampled may be nil.
type tracePlan struct {
	format   outbox.TraceFormat
	high     *field
	id, span field
	sampled  *field
}

// traceHeader adds the header of a trace context. It adds none if an id is NULL or zero, which both formats
// forbid: then there is no trace.
func (r *reading) traceHeader(h *headerPlan, list []outbox.Header) []outbox.Header {
	p := h.trace
	id, noID := r.traceID(&p.id)
	span, _ := r.traceID(&p.span)
	if noID {
		return list
	}
	high, sampled := uint64(0), true
	if p.high != nil {
		high, _ = r.traceID(p.high)
	}
	if p.sampled != nil {
		is, null, fault := p.sampled.boolean(r.values[p.sampled.at])
		if fault != "" {
			r.fail(p.sampled, fault)
		}
		sampled = is || null
	}
	if span == 0 || high == 0 && id == 0 {
		return list
	}
	var memory [55]byte
	text := memory[:0]
	if p.format == outbox.TraceB3 {
		// The form is TRACE-SPAN-SAMPLED. A trace id of 64 bits has 16 digits.
		// https://github.com/openzipkin/b3-propagation#single-header
		if high != 0 {
			text = appendHex64(text, high)
		}
		text = append(appendHex64(text, id), '-')
		text = append(appendHex64(text, span), "-0"...)
	} else {
		// The form of version 00 is 00-TRACE-SPAN-FLAGS.
		// https://www.w3.org/TR/trace-context/#traceparent-header
		text = appendHex64(append(text, "00-"...), high)
		text = append(appendHex64(text, id), '-')
		text = append(appendHex64(text, span), "-00"...)
	}
	if sampled {
		text[len(text)-1] = '1'
	}
	return append(list, outbox.Header{Name: h.name, Value: r.arena.copy(text)})
}

// traceID returns the 64 bits of a signed column; 0 if it is NULL or cannot be read.
func (r *reading) traceID(f *field) (id uint64, none bool) {
	n, null, fault := f.integer(r.values[f.at])
	if fault != "" {
		r.fail(f, fault)
		return 0, true
	}
	return uint64(n), null
}

// appendHex64 appends 16 hex digits.
func appendHex64(to []byte, n uint64) []byte {
	var number [8]byte
	binary.BigEndian.PutUint64(number[:], n)
	return hex.AppendEncode(to, number[:])
}
