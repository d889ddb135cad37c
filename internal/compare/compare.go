// Package compare compares the records that an application's own relay sends with those that outbox-cdc would
// send for the same rows. It watches both: rows through a temporary replication slot, and records in the
// topics.
//
// It publishes nothing, marks nothing and leaves nothing behind. The command compare calls it.
package compare

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Record is a record as it lies in a topic.
type Record = sink.Record

// Kind says how a row and a record differ.
type Kind string

// The kinds, worst first.
const (
	Missing   Kind = "missing"   // outbox-cdc would have sent it, the relay has not
	Extra     Kind = "extra"     // the relay sent it, outbox-cdc would not have
	Topic     Kind = "topic"     // sent to another topic
	Key       Kind = "key"       // sent with another key
	Value     Kind = "value"     // sent with another value
	Headers   Kind = "headers"   // sent with other headers
	Partition Kind = "partition" // sent to another partition
	Repeated  Kind = "repeated"  // the relay sent it more than once
	Refused   Kind = "refused"   // the row cannot become a record as it is mapped
	Waiting   Kind = "waiting"   // neither has sent it yet: the row is PENDING
	Before    Kind = "before"    // a record for a row from before the window, as far as can be known
)

var kinds = []KindFind{
	{Kind: Missing, Difference: true, Means: "outbox-cdc would have sent these records, the relay has not"},
	{Kind: Extra, Difference: true, Means: "the relay sent these records, outbox-cdc would not have"},
	{Kind: Topic, Difference: true, Means: "sent to another topic"},
	{Kind: Key, Difference: true, Means: "sent with another key"},
	{Kind: Value, Difference: true, Means: "sent with another value"},
	{Kind: Headers, Difference: true, Means: "sent with other headers"},
	{Kind: Partition, Difference: true, Means: "sent to another partition"},
	{Kind: Repeated, Difference: true, Means: "sent by the relay more than once"},
	{Kind: Refused, Difference: true, Means: "rows that cannot become a record as they are mapped: they would be FAILED"},
	{Kind: Waiting, Means: "rows that are still PENDING: the relay has not come to them"},
	{Kind: Before, Means: "records of rows from before the window, as far as can be told"},
}

// pair is the record of a row, or one in a topic, reduced to what is compared.
type pair struct {
	seq       int // in order of arrival
	topic     string
	partition int32 // for a row: the partition that it names, or -1
	key       []byte
	headers   []outbox.Header
	value     digest
	size      int // size of the value in bytes; -1: null

	row    *outbox.Row // nil: this is a record in a topic
	offset int64
	at     time.Time
}

type digest [16]byte

// remembered is how many digests of matched records are kept. They tell a repeated record from an extra one.
const remembered = 1 << 18

// Comparison matches rows with records. It matches each pair as soon as both are there, so it only holds what
// still waits. It is not safe for concurrent use.
type Comparison struct {
	// partition returns the partition that a record with the key belongs to; -1: unknown.
	partition func(by outbox.Partitioner, topic string, key []byte) int32
	ignore    []string

	seq             int
	rows, records   int
	same            int
	expected, found map[digest][]*pair
	waiting         int // on both sides together
	matched         map[digest]bool
	oldest          []digest // of matched, in order
	kinds           []KindFind
	examples        int
}

// Example is one difference.
type Example struct {
	// Table of the row.
	Table string `json:"table,omitempty"`
	// ID of the row: the values of its id columns.
	ID []string `json:"id,omitempty"`
	// Topic of the record.
	Topic string `json:"topic,omitempty"`
	// Partition of the record.
	Partition *int32 `json:"partition,omitempty"`
	// Offset of the record.
	Offset *int64 `json:"offset,omitempty"`
	// At is the record's timestamp.
	At *time.Time `json:"at,omitempty"`
	// Detail is what differs, in words. It never has a payload.
	Detail string `json:"detail"`
}

// New returns an empty Comparison. The headers in ignore are not compared. examples is how many examples of
// each kind are kept.
func New(partition func(by outbox.Partitioner, topic string, key []byte) int32, ignore []string, examples int) *Comparison {
	return &Comparison{
		partition: partition, ignore: ignore, examples: examples,
		expected: map[digest][]*pair{}, found: map[digest][]*pair{}, matched: map[digest]bool{},
		kinds: slices.Clone(kinds),
	}
}

// Row adds a row from the WAL.
func (c *Comparison) Row(r *outbox.Row) {
	c.rows++
	p := c.make(r.Topic, r.Partition, r.Key, r.Value, r.Headers)
	p.row = &outbox.Row{Table: r.Table, ID: r.ID, XID: r.XID, Commit: r.Commit}
	if r.Err != nil {
		c.tell(Refused, p, nil, r.Err.Error())
		return
	}
	c.match(c.expected, c.found, p)
}

// Record adds a record from a topic.
func (c *Comparison) Record(r Record) {
	c.records++
	p := c.make(r.Topic, r.Partition, r.Key, r.Value, r.Headers)
	p.offset, p.at = r.Offset, r.At
	if d := p.exact(); len(c.expected[d]) == 0 && c.matched[d] {
		c.tell(Repeated, nil, p, "the same record was sent before")
		return
	}
	c.match(c.found, c.expected, p)
}

// make copies what it keeps, because the row's memory is shared with many others.
func (c *Comparison) make(topic string, partition int32, key, value []byte, headers []outbox.Header) *pair {
	c.seq++
	full := sha256.Sum256(value)
	p := &pair{seq: c.seq, topic: topic, partition: partition, key: bytes.Clone(key), value: digest(full[:16]), size: len(value)}
	if value == nil {
		p.size = -1
	}
	for _, h := range headers {
		if !slices.Contains(c.ignore, h.Name) {
			p.headers = append(p.headers, outbox.Header{Name: h.Name, Value: bytes.Clone(h.Value)})
		}
	}
	return p
}

// parts selects parts of a record.
type parts struct{ topic, key, value, headers bool }

// exact returns the digest of everything that must be equal, which is all but the partition.
func (p *pair) exact() digest { return p.of(parts{topic: true, key: true, value: true, headers: true}) }

func (p *pair) of(some parts) digest {
	h := sha256.New()
	put := func(b []byte, null bool) {
		n := uint64(len(b))
		if null {
			n = 1 << 63
		}
		h.Write(binary.BigEndian.AppendUint64(nil, n))
		h.Write(b)
	}
	if some.topic {
		put([]byte(p.topic), false)
	}
	if some.key {
		put(p.key, p.key == nil)
	}
	if some.value {
		put(p.value[:], p.size < 0)
	}
	for _, header := range p.headers {
		if some.headers {
			put([]byte(header.Name), false)
			put(header.Value, header.Value == nil)
		}
	}
	return digest(h.Sum(nil)[:16])
}

// match pairs p with the first equal one on the other side. If there is none, it keeps p.
func (c *Comparison) match(own, other map[digest][]*pair, p *pair) {
	d := p.exact()
	equal := other[d]
	if len(equal) == 0 {
		own[d] = append(own[d], p)
		c.waiting++
		return
	}
	q := equal[0]
	if other[d] = equal[1:]; len(other[d]) == 0 {
		delete(other, d)
	}
	c.waiting--
	if !c.matched[d] {
		c.matched[d] = true
		if c.oldest = append(c.oldest, d); len(c.oldest) > remembered {
			delete(c.matched, c.oldest[0])
			c.oldest = c.oldest[1:]
		}
	}
	if p.row == nil {
		p, q = q, p
	}
	want := p.partition // -1: any partition
	if want < 0 && p.key != nil {
		want = c.partition(p.row.Table.Mapping.Partitioner, p.topic, p.key)
	}
	if want >= 0 && want != q.partition {
		c.tell(Partition, p, q, fmt.Sprintf("partition %d, where outbox-cdc would have chosen %d", q.partition, want))
		return
	}
	c.same++
}

func (c *Comparison) tell(kind Kind, row, record *pair, detail string) {
	k := &c.kinds[slices.IndexFunc(c.kinds, func(k KindFind) bool { return k.Kind == kind })]
	k.Count++
	if len(k.Examples) >= c.examples {
		return
	}
	e := Example{Detail: detail}
	if row != nil {
		e.Table, e.ID, e.Topic = row.row.Table.String(), outbox.SplitID(row.row.ID), row.topic
	}
	if record != nil {
		at := record.at.UTC()
		e.Topic, e.Partition, e.Offset, e.At = record.topic, &record.partition, &record.offset, &at
	}
	k.Examples = append(k.Examples, e)
}

// ordered returns the pairs of a side in order of arrival.
func ordered(side map[digest][]*pair) []*pair {
	var all []*pair
	for _, ps := range side {
		all = append(all, ps...)
	}
	slices.SortFunc(all, func(a, b *pair) int { return a.seq - b.seq })
	return all
}

// likeness lists the ways in which a row and a record that are not equal can still be the same event, most
// likely first.
var likeness = []parts{
	{topic: true, key: true, value: true},
	{topic: true, value: true, headers: true},
	{key: true, value: true, headers: true},
	{topic: true, key: true, headers: true},
	{topic: true, value: true},
	{key: true, value: true},
	{topic: true, key: true},
}

// Finish pairs similar rows and records, classifies the others, and returns the result. pending are the
// waiting rows that are PENDING in the table. Records from before early may belong to rows from before the
// window.
func (c *Comparison) Finish(pending map[*outbox.Row]bool, early time.Time) *Report {
	rows, records := ordered(c.expected), ordered(c.found)
	for _, by := range likeness {
		same := map[digest][]*pair{}
		for _, q := range records {
			d := q.of(by)
			same[d] = append(same[d], q)
		}
		taken := map[*pair]bool{}
		rows = slices.DeleteFunc(rows, func(p *pair) bool {
			d := p.of(by)
			if len(same[d]) == 0 || pending[p.row] {
				return false
			}
			q := same[d][0]
			same[d] = same[d][1:]
			taken[q] = true
			c.differ(p, q)
			return true
		})
		records = slices.DeleteFunc(records, func(q *pair) bool { return taken[q] })
	}
	for _, p := range rows {
		if pending[p.row] {
			c.tell(Waiting, p, nil, "the row is PENDING")
		} else {
			c.tell(Missing, p, nil, "no record of the row was found")
		}
	}
	for _, q := range records {
		if q.at.Before(early) {
			c.tell(Before, nil, q, "no row of it was written in the window")
		} else {
			c.tell(Extra, nil, q, "no row of it was written in the window")
		}
	}
	r := &Report{Rows: c.rows, Records: c.records, Same: c.same, Kinds: []KindFind{}}
	for _, k := range c.kinds {
		if k.Count > 0 {
			r.Kinds = append(r.Kinds, k)
		}
		if k.Difference {
			r.Differences += k.Count
		}
	}
	return r
}

// differ records the first difference between a row's record and a topic's.
func (c *Comparison) differ(p, q *pair) {
	switch {
	case p.topic != q.topic:
		c.tell(Topic, p, q, fmt.Sprintf("topic %s, where outbox-cdc would have sent to %s", q.topic, p.topic))
	case !bytes.Equal(p.key, q.key) || (p.key == nil) != (q.key == nil):
		c.tell(Key, p, q, fmt.Sprintf("key %s, where outbox-cdc would have sent %s", shown(q.key), shown(p.key)))
	case p.value != q.value || p.size != q.size:
		c.tell(Value, p, q, fmt.Sprintf("value of %s, where outbox-cdc would have sent another of %s", bytesOf(q.size), bytesOf(p.size)))
	default:
		c.tell(Headers, p, q, headerDifference(p.headers, q.headers))
	}
}

func bytesOf(n int) string {
	if n < 0 {
		return "null"
	}
	return fmt.Sprintf("%d bytes", n)
}

func shown(b []byte) string {
	const most = 64
	switch {
	case b == nil:
		return "null"
	case len(b) > most:
		return fmt.Sprintf("%q…", b[:most])
	}
	return fmt.Sprintf("%q", b)
}

func headerDifference(ours, theirs []outbox.Header) string {
	for i := range max(len(ours), len(theirs)) {
		switch {
		case i >= len(theirs):
			return fmt.Sprintf("header %s=%s is missing, which outbox-cdc would have sent", ours[i].Name, shown(ours[i].Value))
		case i >= len(ours):
			return fmt.Sprintf("header %s=%s, which outbox-cdc would not have sent", theirs[i].Name, shown(theirs[i].Value))
		case ours[i].Name != theirs[i].Name, shown(ours[i].Value) != shown(theirs[i].Value), !bytes.Equal(ours[i].Value, theirs[i].Value):
			return fmt.Sprintf("header %d is %s=%s, where outbox-cdc would have sent %s=%s", i+1,
				theirs[i].Name, shown(theirs[i].Value), ours[i].Name, shown(ours[i].Value))
		}
	}
	return "headers differ"
}

// Report is what a comparison found.
type Report struct {
	// Stream that was compared.
	Stream string `json:"stream"`
	// Since is when the first rows were taken.
	Since time.Time `json:"since"`
	// Until is when the last rows were taken.
	Until time.Time `json:"until"`
	// Rows that came from the WAL.
	Rows int `json:"rows"`
	// Records that were found in the topics.
	Records int `json:"records"`
	// Same is how many of each are equal.
	Same int `json:"same"`
	// Differences of all kinds that are one.
	Differences int `json:"differences"`
	// Kinds are what was found, the worst first.
	Kinds []KindFind `json:"kinds"`
}

// KindFind is what was found of one kind.
type KindFind struct {
	// Kind is `missing`, `extra`, `topic`, `key`, `value`, `headers`, `partition`, `repeated`,
	// `refused`, `waiting` or `before`.
	Kind Kind `json:"kind"`
	// Difference is false for `waiting` and `before`.
	Difference bool `json:"difference"`
	// Means says what the kind is.
	Means string `json:"means"`
	// Count is how many there are.
	Count int `json:"count"`
	// Examples are the first ones, at most `--examples`.
	Examples []Example `json:"examples"`
}
