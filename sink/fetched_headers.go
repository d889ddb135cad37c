package sink

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"

	"github.com/IBM/sarama"
)

// A search needs only the headers of record batches. sarama decompresses what it fetches, and allocates as
// many records as a header says. So a batch of 1 MB from another producer may take gigabytes. For this
// reason a search's connection takes the batches out of the answers before sarama sees them.

// header is the header of a record batch.
// https://kafka.apache.org/documentation/#recordbatch
type header struct {
	first, last int64 // offsets
	control     bool
	pid         int64
	epoch       int16
	sequence    int32
	batch       []byte // the whole batch
}

// fetched is the answer to a fetch of one partition.
type fetched struct {
	version int16 // of the request
	high    int64 // high watermark
	headers []header
}

// reader is a connection for searches of partition logs.
type reader struct {
	*sarama.Broker
	conn    *headersConn
	version int16 // of fetches
}

func (n *network) openReader(addr string) (*reader, error) {
	r := &reader{}
	own := *n
	own.longest = longestFetch
	own.wrap = func(conn net.Conn) net.Conn {
		r.conn = &headersConn{Conn: conn}
		return r.conn
	}
	own.conf.Net.Proxy.Dialer = &own
	var err error
	if r.Broker, err = own.open(addr); err != nil {
		return nil, err
	}
	known, err := versions(r.Broker)
	if r.version = min(fetchVersion, known[keyFetch]); err == nil && r.version < oldestFetch {
		err = fmt.Errorf("broker %s knows fetches up to version %d, not %d", addr, r.version, oldestFetch)
	}
	if err != nil {
		_ = r.Close() // it is given up anyway
		return nil, n.explain(addr, err)
	}
	return r, nil
}

// fetch reads batches from an offset on.
func (r *reader) fetch(p topicPartition, from int64) (*fetched, error) {
	req := &sarama.FetchRequest{
		Version: r.version, MaxWaitTime: 100, MinBytes: 1, MaxBytes: fetchBytes,
		Isolation: sarama.ReadUncommitted, SessionEpoch: -1,
	}
	req.AddBlock(p.Topic, p.Number, from, fetchBytes, -1)
	r.conn.answers.Store(&fetched{version: r.version})
	res, err := r.Fetch(req)
	answer := r.conn.answers.Swap(nil)
	switch {
	case err != nil:
		return nil, err
	case res.ErrorCode != 0:
		return nil, sarama.KError(res.ErrorCode)
	}
	block := res.GetBlock(p.Topic, p.Number)
	switch {
	case block == nil || answer == nil:
		return nil, sarama.ErrIncompleteResponse
	case block.Err != sarama.ErrNoError:
		return nil, block.Err
	}
	answer.high = block.HighWaterMarkOffset
	return answer, nil
}

// fetchVersion is the newest version of fetches that searches use: from version 12 on, answers have another
// form. oldestFetch is the first version whose answers have record batches.
// https://kafka.apache.org/protocol#The_Messages_Fetch
const (
	fetchVersion = 11
	oldestFetch  = 4
)

// headersConn is a connection that removes the records from answers to fetches.
type headersConn struct {
	net.Conn
	answers atomic.Pointer[fetched] // set while a fetch is under way: where the headers go
	pending []byte                  // the part of an answer that is still to be read
	passing int                     // how many bytes of an answer are passed on as they come
}

// Read passes on one answer after the other, each from its length field on.
func (c *headersConn) Read(p []byte) (int, error) {
	if c.passing == 0 && len(c.pending) == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	if len(c.pending) > 0 {
		n := copy(p, c.pending)
		c.pending = c.pending[n:]
		return n, nil
	}
	n, err := c.Conn.Read(p[:min(len(p), c.passing)])
	c.passing -= n
	return n, err
}

// next begins an answer. The connection below has checked its length.
func (c *headersConn) next() error {
	length := make([]byte, 4)
	if _, err := io.ReadFull(c.Conn, length); err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint32(length))
	into := c.answers.Load()
	if into == nil {
		c.pending, c.passing = length, size
		return nil
	}
	answer := make([]byte, 4+size)
	if _, err := io.ReadFull(c.Conn, answer[4:]); err != nil {
		return err
	}
	at, err := recordsAt(answer, into.version)
	if err != nil {
		return err
	}
	if at > 0 {
		into.headers = headersOf(answer[at+4:])
		answer = answer[:at+4]
		binary.BigEndian.PutUint32(answer[at:], 0)
	}
	binary.BigEndian.PutUint32(answer, uint32(len(answer)-4))
	c.pending = answer
	return nil
}

// recordsAt returns where the length of the records stands in an answer to a fetch of this version and one
// partition; 0: the answer has no partition.
func recordsAt(answer []byte, version int16) (int, error) {
	const (
		aborted   = 8 + 8 // an aborted transaction
		malformed = "a fetch answered with %s at byte %d"
	)
	topics := 4 + 4 + 4        // length, correlation id, throttle time
	partition := 4 + 2 + 8 + 8 // id, error, high watermark, stable offset
	behind := 0
	if version >= 5 {
		partition += 8 // start
	}
	if version >= 7 {
		topics += 2 + 4 // error, session
	}
	if version >= 11 {
		behind = 4 // preferred replica
	}
	at := topics
	number := func(size int) int {
		if at+size > len(answer) {
			at = len(answer) + 1
			return -1
		}
		at += size
		if size == 2 {
			return int(int16(binary.BigEndian.Uint16(answer[at-2:])))
		}
		return int(int32(binary.BigEndian.Uint32(answer[at-4:])))
	}
	if n := number(4); n == 0 {
		return 0, nil
	} else if n != 1 {
		return 0, fmt.Errorf(malformed, "other than one topic", at)
	}
	at += max(0, number(2)) // its name
	if number(4) != 1 {
		return 0, fmt.Errorf(malformed, "other than one partition", at)
	}
	at += partition
	if n := number(4); n > 0 {
		at += n * aborted
	}
	at += behind
	if at < 0 || at+4 > len(answer) {
		return 0, fmt.Errorf(malformed, "less than a partition", at)
	}
	return at, nil
}

// headersOf returns the headers of all whole batches. The last batch may be cut off: headersOf ends before
// data that is too short to be a batch.
func headersOf(records []byte) (list []header) {
	const (
		prefix   = 8 + 4                                              // first offset, length
		whole    = prefix + 4 + 1 + 4 + 2 + 4 + 8 + 8 + 8 + 2 + 4 + 4 // leader epoch, magic, CRC, …, count
		magic    = prefix + 4
		shortest = magic + 1 + 1 + 4 + 4 // a message of the oldest form: attributes, lengths of key and value
	)
	be := binary.BigEndian
	for len(records) >= shortest {
		first, length := int64(be.Uint64(records)), int64(be.Uint32(records[8:]))
		if prefix+length > int64(len(records)) || prefix+length < shortest {
			return list
		}
		b := records[:prefix+length]
		records = records[prefix+length:]
		if b[magic] < 2 || len(b) < whole { // of a form older than producer ids
			list = append(list, header{first: first, last: first, pid: -1})
			continue
		}
		h := header{first: first, last: first + int64(int32(be.Uint32(b[23:]))), control: b[22]&0x20 != 0, batch: b}
		h.pid, h.epoch, h.sequence = int64(be.Uint64(b[43:])), int16(be.Uint16(b[51:])), int32(be.Uint32(b[53:]))
		list = append(list, h)
	}
	return list
}
