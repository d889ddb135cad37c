package sink

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
)

// The records of the journal are parsed here and not by sarama, because sarama would decompress whatever
// another producer wrote there. We write them without compression.

var (
	errCompressed = errors.New("a batch is compressed: compression.type of the topic must be producer")
	errGap        = errors.New("records are missing in a batch: cleanup.policy of the topic must be delete")
	errRecord     = errors.New("a record is damaged, or somebody else wrote it")
	errNoBatch    = errors.New("somebody else writes to the journal, in a form older than transactions")
)

// logBatch parses a record batch in the format of a partition log.
// https://kafka.apache.org/documentation/#recordbatch
func logBatch(h *header) (*exactlyonce.LogBatch, error) {
	const (
		attributes = 22
		count      = 57
		records    = 61
	)
	if h.batch == nil {
		return nil, fmt.Errorf("offset %d: %w", h.first, errNoBatch)
	}
	b := &exactlyonce.LogBatch{
		Offset: h.first, By: exactlyonce.Producer{PID: h.pid, Epoch: h.epoch}, Transactional: h.batch[attributes]&0x10 != 0,
	}
	n := int64(int32(binary.BigEndian.Uint32(h.batch[count:])))
	switch {
	case h.batch[attributes]&0x07 != 0:
		return nil, fmt.Errorf("offset %d: %w", h.first, errCompressed)
	case n < 1 || n != h.last-h.first+1:
		return nil, fmt.Errorf("offset %d: %w", h.first, errGap)
	}
	p := recordParser{b: h.batch[records:]}
	for i := range n {
		key, value, err := p.record(i)
		switch {
		case err != nil:
			return nil, fmt.Errorf("offset %d: %w", h.first+i, err)
		case !h.control:
			b.Records = append(b.Records, value)
		case len(key) < 4 || n != 1:
			return nil, fmt.Errorf("offset %d: %w", h.first+i, errRecord)
		case binary.BigEndian.Uint16(key[2:]) == 1:
			b.Control = exactlyonce.CommitMarker
		default:
			b.Control = exactlyonce.AbortMarker
		}
	}
	return b, nil
}

// recordParser parses the records of a batch.
type recordParser struct{ b []byte }

// record parses the next record, which must be the one at this index in its batch. It skips the headers.
func (p *recordParser) record(at int64) (key, value []byte, err error) {
	length, ok := p.varint()
	if !ok || length < 1 || length > int64(len(p.b)) {
		return nil, nil, errRecord
	}
	in := recordParser{b: p.b[1:length]} // behind the attributes
	p.b = p.b[length:]
	if _, ok = in.varint(); !ok { // the time
		return nil, nil, errRecord
	}
	if delta, ok := in.varint(); !ok || delta != at {
		return nil, nil, errGap
	}
	key, ok = in.bytes()
	value, okToo := in.bytes()
	if !ok || !okToo {
		return nil, nil, errRecord
	}
	return key, value, nil
}

func (p *recordParser) varint() (int64, bool) {
	n, size := binary.Varint(p.b)
	if size <= 0 {
		return 0, false
	}
	p.b = p.b[size:]
	return n, true
}

// bytes reads a byte string after its length; -1 stands for null.
func (p *recordParser) bytes() ([]byte, bool) {
	n, ok := p.varint()
	if !ok || n < -1 || n > int64(len(p.b)) {
		return nil, false
	}
	n = max(n, 0)
	out := p.b[:n]
	p.b = p.b[n:]
	return out, true
}
