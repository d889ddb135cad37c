package sink

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/failpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
)

// openRequests is the maximum number of produce requests in flight on a connection. A broker serves the
// requests of a connection one by one. More requests would only wait there, instead of here, where waiting
// batches are combined into one request.
const openRequests = 5

// produceVersion is the newest version of produce requests that sarama supports (Kafka 3.7). A broker may
// support only an older one. Since version 8 rejected records are named, since 10 the new leader.
const produceVersion = 10

// brokerConn produces to one broker. Only its own goroutine calls sarama's Broker; callbacks only put
// events.
type brokerConn struct {
	addr   string
	net    *network
	sink   *Sink
	jobs   *mailbox.Mailbox[*batch]
	events *mailbox.Mailbox[event]
	room   chan struct{} // has a value after a request was answered
	open   atomic.Int32  // number of requests in flight

	conn    *brokerSession
	refused error     // why the last attempt to connect failed
	until   time.Time // no attempt to connect before
}

// brokerSession is one connection of sarama's. After its first error it is dead.
type brokerSession struct {
	broker *sarama.Broker
	used   time.Time // when the brokerConn last used it
	dead   atomic.Bool
	// throttled is the time until which the broker asked us to wait; nil: it did not. sarama itself would
	// wait while it holds its lock.
	throttled atomic.Pointer[time.Time]
}

func (s *Sink) newBrokerConn(addr string, n *network, events *mailbox.Mailbox[event]) *brokerConn {
	return &brokerConn{addr: addr, net: n, sink: s, jobs: mailbox.New[*batch](), events: events, room: make(chan struct{}, 1)}
}

func (bc *brokerConn) run(ctx context.Context) {
	defer bc.drop()
	var todo, spare []*batch
	gather := func() {
		if taken := bc.jobs.Take(spare); taken != nil {
			todo, spare = append(todo, taken...), taken
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-bc.jobs.Ready():
		}
		for gather(); len(todo) > 0; gather() {
			if !bc.wait(ctx) {
				return
			}
			gather() // batches that came during the wait
			n := fill(todo, bc.sink.cfg.RequestBytes)
			bc.send(ctx, todo[:n])
			todo = append(todo[:0], todo[n:]...)
		}
	}
}

// wait waits until one more request may be sent. It returns false if ctx has ended.
func (bc *brokerConn) wait(ctx context.Context) bool {
	for bc.open.Load() >= openRequests {
		select {
		case <-ctx.Done():
			return false
		case <-bc.room:
		}
	}
	return true
}

// fill returns how many of the batches fit into one request; at least one.
func fill(todo []*batch, most int) int {
	total := 0
	for i, b := range todo {
		total += b.bytes
		if i > 0 && total > most {
			return i
		}
	}
	return len(todo)
}

// errLate says that a batch was not sent because rows must not be published any more; see Config.Until.
var errLate = errors.New("not sent: the application's lock, under which rows may be published, was not extended in time")

// send produces batches of different partitions in one request. Each batch gets exactly one reply.
func (bc *brokerConn) send(ctx context.Context, batches []*batch) {
	batches = slices.Clone(batches) // the caller's slice is reused
	c, err := bc.connect(ctx)
	if err != nil {
		bc.reply(batches, reply{err: err, unsent: true})
		return
	}
	var throttle time.Duration
	if until := c.throttled.Load(); until != nil {
		throttle = time.Until(*until)
	}
	if wait.Sleep(ctx, throttle) != nil {
		bc.reply(batches, reply{err: ctx.Err(), unsent: true})
		return
	}
	if bc.sink.cfg.late(time.Now()) {
		bc.reply(batches, reply{err: errLate, unsent: true})
		return
	}
	bc.open.Add(1)
	err = failpoint.Here(failpoint.BeforeProduce)
	if err == nil {
		a := arenas.Get().(*arena) //nolint:forcetypeassert // it holds nothing else
		err = c.broker.AsyncProduce(bc.request(batches, a), func(res *sarama.ProduceResponse, err error) {
			bc.answered(c, batches, res, err)
		})
		a.clear()
		arenas.Put(a)
	}
	if err == nil {
		if failpoint.Here(failpoint.AfterProduce) != nil {
			bc.drop()
		}
		return
	}
	bc.open.Add(-1)
	if encoding(err) {
		bc.retryAlone(ctx, batches, err)
		return
	}
	c.dead.Store(true)
	bc.reply(batches, reply{err: bc.net.explain(bc.addr, err)})
}

// retryAlone sends each batch alone, to find the one that cannot be encoded.
func (bc *brokerConn) retryAlone(ctx context.Context, batches []*batch, err error) {
	if len(batches) == 1 {
		bc.reply(batches, reply{err: err, unsent: true})
		return
	}
	for i := range batches {
		if !bc.wait(ctx) {
			bc.reply(batches[i:], reply{err: ctx.Err(), unsent: true})
			return
		}
		bc.send(ctx, batches[i:i+1])
	}
}

// answered runs on the Broker's goroutine, so it must not call the Broker.
func (bc *brokerConn) answered(c *brokerSession, batches []*batch, res *sarama.ProduceResponse, err error) {
	if err != nil {
		c.dead.Store(true)
		bc.reply(batches, reply{err: bc.net.explain(bc.addr, err)})
	} else {
		if res.ThrottleTime > 0 {
			c.throttled.Store(new(time.Now().Add(res.ThrottleTime)))
		}
		replies := make([]event, len(batches))
		for i, b := range batches {
			replies[i] = event{batch: b, reply: read(res, b)}
		}
		replies[0].throttle = res.ThrottleTime
		bc.events.Put(replies...)
	}
	bc.open.Add(-1)
	select {
	case bc.room <- struct{}{}:
	default:
	}
}

func (bc *brokerConn) reply(batches []*batch, r reply) {
	for _, b := range batches {
		bc.events.Put(event{batch: b, reply: r})
	}
}

// longestText is the maximum length, in characters, of a broker's message about a batch. Each row of the
// batch, its park and the log keep a copy.
const longestText = 1000

func read(res *sarama.ProduceResponse, b *batch) reply {
	block := res.GetBlock(b.queue.topic.name, b.queue.partition)
	if block == nil {
		return reply{err: sarama.ErrIncompleteResponse}
	}
	r := reply{code: block.Err, offset: block.Offset}
	if block.ErrorMessage != nil {
		r.message = outbox.Cut(*block.ErrorMessage, longestText)
	}
	for _, e := range block.RecordErrors {
		r.rejected = append(r.rejected, int(e.BatchIndex))
		if e.BatchIndexErrorMessage != nil && r.message == "" {
			r.message = outbox.Cut(*e.BatchIndexErrorMessage, longestText)
		}
	}
	if block.CurrentLeader != nil {
		for _, e := range res.NodeEndpoints {
			if e.NodeID == block.CurrentLeader.LeaderID {
				r.leader = net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
			}
		}
	}
	return r
}

// idleMost is how long a connection may have been idle and still be used. Brokers (connections.max.idle.ms,
// 10 minutes; Event Hubs, 4 minutes) and devices in between close idle connections. A batch sent into a
// closed one has an unknown outcome.
const idleMost = 3 * time.Minute

// connect returns a live connection. After a failed attempt there is none for a while, so that many batches
// do not cause many attempts.
func (bc *brokerConn) connect(ctx context.Context) (*brokerSession, error) {
	now := time.Now()
	if bc.conn != nil && !bc.conn.dead.Load() && (bc.open.Load() > 0 || now.Sub(bc.conn.used) < idleMost) {
		bc.conn.used = now
		return bc.conn, nil
	}
	bc.drop()
	if now.Before(bc.until) {
		return nil, bc.refused
	}
	b, err := bc.net.open(bc.addr)
	if err != nil {
		pause := backoffMin
		if errors.Is(err, sarama.ErrSASLAuthenticationFailed) {
			pause = 2 * time.Second // repeated failures can lock an account
		}
		bc.refused, bc.until = err, time.Now().Add(pause)
		return nil, err
	}
	bc.conn, bc.refused = &brokerSession{broker: b, used: now}, nil
	return bc.conn, ctx.Err()
}

// drop closes the connection. Every request in flight on it gets its callback.
func (bc *brokerConn) drop() {
	if bc.conn != nil {
		_ = bc.conn.broker.Close()
		bc.conn = nil
	}
}

// request makes a request of the batches. AsyncProduce encodes it before it returns, and keeps no part of
// it, so the arena is then free for the next request.
func (bc *brokerConn) request(batches []*batch, a *arena) *sarama.ProduceRequest {
	req := &sarama.ProduceRequest{
		Version: produceVersion, RequiredAcks: sarama.WaitForAll,
		Timeout: int32(bc.sink.cfg.RequestTimeout / time.Millisecond),
	}
	if bc.sink.cfg.Transactions != nil {
		req.TransactionalID = &bc.sink.cfg.TransactionalID
	}
	a.reset(batches)
	for _, b := range batches {
		req.AddBatch(b.queue.topic.name, b.queue.partition, a.encode(b, bc.sink.conf.Producer.Compression))
	}
	return req
}

// arenas are shared by all brokerConns: a large one is needed only during encoding.
var arenas = sync.Pool{New: func() any { return new(arena) }}

// arena holds the structs that sarama needs for records and headers, so that none is allocated for each
// row.
type arena struct {
	records    []sarama.Record
	recordRefs []*sarama.Record
	headers    []sarama.RecordHeader
	headerRefs []*sarama.RecordHeader
}

func (a *arena) reset(batches []*batch) {
	records, headers := 0, 0
	for _, b := range batches {
		records += len(b.rows)
		headers += b.headers
	}
	a.records, a.recordRefs = slices.Grow(a.records[:0], records), slices.Grow(a.recordRefs[:0], records)
	a.headers, a.headerRefs = slices.Grow(a.headers[:0], headers), slices.Grow(a.headerRefs[:0], headers)
}

// clear drops the references to rows.
func (a *arena) clear() {
	clear(a.records)
	clear(a.headers)
}

// encode makes a record batch of a batch. Each try needs a new one, because sarama caches the encoded form
// in the RecordBatch.
func (a *arena) encode(b *batch, codec sarama.CompressionCodec) *sarama.RecordBatch {
	first := b.timeOf(0)
	last, start := first, len(a.records)
	for i, r := range b.rows {
		at := b.timeOf(i)
		last = max(last, at)
		a.records = append(a.records, sarama.Record{
			OffsetDelta: int64(i), TimestampDelta: time.Duration(at-first) * time.Millisecond,
			Key: r.Key, Value: r.Value, Headers: a.encodeHeaders(r),
		})
		a.recordRefs = append(a.recordRefs, &a.records[len(a.records)-1])
	}
	if b.request != nil && len(b.request.Batch.Units) > 0 {
		codec = sarama.CompressionNone // the journal is read without decompressing, see logBatch
	}
	return &sarama.RecordBatch{
		Version: 2, IsTransactional: b.request != nil, Codec: codec, CompressionLevel: sarama.CompressionLevelDefault,
		FirstTimestamp: time.UnixMilli(first), MaxTimestamp: time.UnixMilli(last),
		ProducerID: b.as.PID, ProducerEpoch: b.as.Epoch, FirstSequence: b.seq,
		LastOffsetDelta: int32(len(b.rows) - 1),
		Records:         a.recordRefs[start:],
	}
}

func (a *arena) encodeHeaders(r *outbox.Row) []*sarama.RecordHeader {
	start := len(a.headers)
	for i := range r.Headers {
		h := &r.Headers[i]
		a.headers = append(a.headers, sarama.RecordHeader{Key: bytesOf(h.Name), Value: h.Value})
		a.headerRefs = append(a.headerRefs, &a.headers[len(a.headers)-1])
	}
	return a.headerRefs[start:len(a.headerRefs):len(a.headerRefs)]
}

// bytesOf returns a string's bytes without copying them. They must not be changed.
func bytesOf(s string) []byte {
	if s == "" {
		return []byte{} // nil would be a null name, which brokers refuse
	}
	return unsafe.Slice(unsafe.StringData(s), len(s))
}
