package sink

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
)

// FuzzHeaders: whatever a partition's log contains, a search reads on behind it or ends.
func FuzzHeaders(f *testing.F) {
	f.Add([]byte{}, []byte{})
	f.Add(make([]byte, 100), recordBatch(0, 100))
	f.Add([]byte("\x00\x00\x00\x10"), append(recordBatch(0, 3), recordBatch(3, 1)[:40]...))
	f.Add([]byte{}, make([]byte, 100)) // batches of no length
	f.Add([]byte{}, journalBatches(f))
	f.Add([]byte{}, append(make([]byte, 8), "\x00\x00\x00\x0e1234\x00\x001234567812345678"...)) // of the oldest form
	f.Fuzz(func(t *testing.T, answer, records []byte) {
		for version := int16(oldestFetch); version <= fetchVersion; version++ {
			if at, err := recordsAt(answer, version); err == nil && at+4 > len(answer) {
				t.Errorf("version %d: records at %d of %d bytes", version, at, len(answer))
			}
		}
		list := headersOf(records)
		if len(list) > len(records)/26 {
			t.Errorf("%d batches in %d bytes", len(list), len(records))
		}
		reader := exactlyonce.NewReader(&exactlyonce.Request{Until: exactlyonce.Nobody})
		if _, err := feedJournal(reader, list); err == nil && reader.Next() < 0 {
			t.Errorf("the journal goes on at %d", reader.Next())
		}
		s := search{n: 1}
		if next, _, _ := s.in(&fetched{headers: list}, 7); next < 7 {
			t.Errorf("goes back to %d", next)
		}
	})
}

// FuzzFrameLengths: however an answer's bytes are cut into reads, all bytes before the first impossible
// length are passed on, and none behind it.
func FuzzFrameLengths(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x04abcd\x00\x00\x00\x05abcde"), []byte{0, 2, 7})
	f.Add([]byte("\x00\x00\x00\x04abcdHTTP/1.1"), []byte{9})
	f.Add([]byte("\x00\x00\x00\x03abc"), []byte{0})
	f.Fuzz(func(t *testing.T, data, sizes []byte) {
		whole, _ := io.ReadAll(&framed{Conn: &pieces{data: data}})
		cut, err := io.ReadAll(&framed{Conn: &pieces{data: data, sizes: sizes}})
		// Of a wrong length, the bytes that came before it was seen to be wrong may be out.
		if len(cut) < len(whole) || len(cut) > len(whole)+3 || !strings.HasPrefix(string(data), string(cut)) || err == nil && len(cut) != len(data) {
			t.Fatalf("%q in pieces %v: %q, in one %q, %v", data, sizes, cut, whole, err)
		}
	})
}

// pieces are bytes that come a few at a time.
type pieces struct {
	net.Conn
	data, sizes []byte
}

func (p *pieces) Read(to []byte) (int, error) {
	if len(p.data) == 0 {
		return 0, io.EOF
	}
	n := len(p.data)
	if len(p.sizes) > 0 {
		n, p.sizes = min(n, int(p.sizes[0])+1), p.sizes[1:]
	}
	n = copy(to, p.data[:n])
	p.data = p.data[n:]
	return n, nil
}

// FuzzAnswers: whatever a broker answers to a request of ours, the code does not panic, and allocates memory
// only in proportion to the answer.
func FuzzAnswers(f *testing.F) {
	for kind := range questions {
		answer := goodAnswer(f, kind)
		f.Add(uint8(kind), answer)
		f.Add(uint8(kind), answer[:len(answer)/2])
		f.Add(uint8(kind), []byte{})
		f.Add(uint8(kind), []byte("\x00\x00\x00\x00\x7f\xff\xff\xff\x7f\xff\xff\xff"))
	}
	f.Fuzz(func(t *testing.T, kind uint8, answer []byte) {
		const most = 1 << 20
		if len(answer) > most {
			return
		}
		before := allocated()
		ask(t, int(kind)%len(questions), answer)
		if took := allocated() - before; took > most+256*uint64(len(answer)) {
			t.Errorf("%d bytes of an answer took %d bytes", len(answer), took)
		}
	})
}

// allocated returns the total number of bytes that were allocated so far.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// questions are what we ask brokers, each with what is done with the answer.
var questions = []func(*sarama.Broker, *headersConn){
	func(b *sarama.Broker, _ *headersConn) {
		_, _ = (&metadataClient{conn: b, net: &network{conf: sarama.Config{Version: sarama.MaxVersion}, knownCluster: &KnownCluster{}}}).talk(&metadataRequest{topics: []string{"orders"}})
	},
	func(b *sarama.Broker, _ *headersConn) {
		(&metadataClient{conn: b}).limits(map[string]topicInfo{"orders": {}})
	},
	func(b *sarama.Broker, c *headersConn) {
		lookFor(b, c, fetchVersion)
	},
	func(b *sarama.Broker, _ *headersConn) {
		_ = listOffsets(b, []topicPartition{{"orders", 0}}, sarama.OffsetOldest, map[topicPartition]int64{})
	},
	func(b *sarama.Broker, _ *headersConn) {
		rows := rowsOf("orders", "k", "v", 2)
		sent := &batch{queue: &partitionQueue{topic: newTopic("orders")}, rows: rows}
		res, err := b.Produce((&brokerConn{sink: &Sink{conf: sarama.NewConfig()}}).request([]*batch{sent}, &arena{}))
		if err == nil {
			r := read(res, sent)
			_, _ = sent.judge(r, nobody), r.cause(sent.queue)
		}
	},
	func(b *sarama.Broker, _ *headersConn) {
		_, _ = b.InitProducerID(&sarama.InitProducerIDRequest{Version: 4})
	},
	func(b *sarama.Broker, _ *headersConn) {
		_, _ = b.AddPartitionsToTxn(&sarama.AddPartitionsToTxnRequest{Version: 3, TopicPartitions: map[string][]int32{"orders": {0}}})
	},
	func(b *sarama.Broker, c *headersConn) {
		lookFor(b, c, oldestFetch)
	},
	func(b *sarama.Broker, _ *headersConn) {
		_ = canFence(b)
	},
	func(b *sarama.Broker, c *headersConn) {
		if block, err := (&reader{Broker: b, conn: c, version: fetchVersion}).fetch(topicPartition{"orders", 0}, 5); err == nil {
			_, _ = feedJournal(exactlyonce.NewReader(&exactlyonce.Request{Until: exactlyonce.Nobody}), block.headers)
		}
	},
}

func lookFor(b *sarama.Broker, c *headersConn, version int16) {
	if block, err := (&reader{Broker: b, conn: c, version: version}).fetch(topicPartition{"orders", 0}, 5); err == nil {
		search{n: 1}.in(block, 5)
	}
}

// ask sends a request to a broker that gives this answer and then closes the connection. It returns the
// request.
func ask(t testing.TB, question int, answer []byte) (key, version int16) {
	t.Helper()
	conf, err := Config{Cluster: "main", Brokers: []string{"broker:9092"}, TransactionalID: "t"}.sarama()
	if err != nil {
		t.Fatal(err)
	}
	fake := &answering{answer: answer, asked: make(chan struct{})}
	c := &headersConn{Conn: &framed{Conn: fake}}
	conf.ApiVersionsRequest = false
	conf.Net.Proxy.Enable, conf.Net.Proxy.Dialer = true, dials{c}
	b := sarama.NewBroker("broker:9092")
	if err := b.Open(conf); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Connected(); err != nil {
		t.Fatal(err)
	}
	questions[question](b, c)
	_ = b.Close()
	return fake.key, fake.version
}

type dials struct{ net.Conn }

func (d dials) Dial(string, string) (net.Conn, error) { return d.Conn, nil }

// answering is a connection to a broker that gives one answer.
type answering struct {
	net.Conn
	key, version int16
	answer       []byte // behind the correlation id, then all
	once         sync.Once
	asked        chan struct{} // closed when there is an answer
}

func (a *answering) Write(request []byte) (int, error) {
	a.once.Do(func() {
		be := binary.BigEndian
		a.key, a.version = int16(be.Uint16(request[4:])), int16(be.Uint16(request[6:]))
		whole := be.AppendUint32(nil, uint32(4+len(a.answer)))
		a.answer = append(append(whole, request[8:12]...), a.answer...)
		close(a.asked)
	})
	return len(request), nil
}

func (a *answering) Read(to []byte) (int, error) {
	<-a.asked
	if len(a.answer) == 0 {
		return 0, io.EOF
	}
	n := copy(to, a.answer)
	a.answer = a.answer[n:]
	return n, nil
}

func (a *answering) Close() error                   { a.once.Do(func() { close(a.asked) }); return nil }
func (*answering) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*answering) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*answering) SetDeadline(time.Time) error      { return nil }
func (*answering) SetReadDeadline(time.Time) error  { return nil }
func (*answering) SetWriteDeadline(time.Time) error { return nil }

// goodAnswer returns a correct answer to the request.
func goodAnswer(t testing.TB, question int) []byte {
	t.Helper()
	key, version := ask(t, question, nil)
	res := kmsg.ResponseForKey(key)
	res.SetVersion(version)
	fillAnswer(res)
	var answer []byte
	if res.IsFlexible() {
		answer = append(answer, 0) // no tags in the header
	}
	return res.AppendTo(answer)
}

func fillAnswer(res kmsg.Response) {
	topic := "orders"
	switch r := res.(type) {
	case *kmsg.MetadataResponse:
		r.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 1, Host: "broker", Port: 9092}}
		r.Topics = []kmsg.MetadataResponseTopic{{Topic: &topic, Partitions: []kmsg.MetadataResponseTopicPartition{
			{Partition: 0, Leader: 1, Replicas: []int32{1}, ISR: []int32{1}}, {Partition: 1, Leader: 1},
		}}}
	case *kmsg.DescribeConfigsResponse:
		limit := "1048588"
		r.Resources = []kmsg.DescribeConfigsResponseResource{{ResourceName: topic, ResourceType: kmsg.ConfigResourceTypeTopic, Configs: []kmsg.DescribeConfigsResponseResourceConfig{
			{Name: "max.message.bytes", Value: &limit},
		}}}
	case *kmsg.FetchResponse:
		r.Topics = []kmsg.FetchResponseTopic{{Topic: topic, Partitions: []kmsg.FetchResponseTopicPartition{{
			HighWatermark: 9, AbortedTransactions: []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 1}},
			RecordBatches: append(recordBatch(5, 3), recordBatch(8, 1)...),
		}}}}
	case *kmsg.ListOffsetsResponse:
		r.Topics = []kmsg.ListOffsetsResponseTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsResponseTopicPartition{{Offset: 7}}}}
	case *kmsg.ProduceResponse:
		message := "no"
		r.Topics = []kmsg.ProduceResponseTopic{{Topic: topic, Partitions: []kmsg.ProduceResponseTopicPartition{{
			ErrorCode: 87, ErrorRecords: []kmsg.ProduceResponseTopicPartitionErrorRecord{{RelativeOffset: 1, ErrorMessage: &message}}, ErrorMessage: &message,
		}}}}
	case *kmsg.InitProducerIDResponse:
		r.ProducerID, r.ProducerEpoch = 7, 1
	case *kmsg.AddPartitionsToTxnResponse:
		r.Topics = []kmsg.AddPartitionsToTxnResponseTopic{{Topic: topic, Partitions: []kmsg.AddPartitionsToTxnResponseTopicPartition{{ErrorCode: 55}}}}
	}
}

// journalBatches returns units and their markers, as a journal has them.
func journalBatches(t testing.TB) []byte {
	t.Helper()
	unit := exactlyonce.Unit{Number: 1, Table: "public.outbox", Names: []exactlyonce.Name{{ID: "1"}}}
	records := func(n int, r kmsg.Record) (all []byte) {
		for i := range n {
			r.OffsetDelta = int32(i)
			r.Length = 0
			r.Length = int32(len(r.AppendTo(nil)) - 1)
			all = r.AppendTo(all)
		}
		return all
	}
	batch := func(first int64, n int, attributes int16, r kmsg.Record) []byte {
		b := kmsg.RecordBatch{
			FirstOffset: first, Magic: 2, Attributes: attributes, LastOffsetDelta: int32(n - 1), ProducerID: 7, ProducerEpoch: 1,
			NumRecords: int32(n), Records: records(n, r),
		}
		b.Length = int32(len(b.AppendTo(nil)) - 12)
		return b.AppendTo(nil)
	}
	return slices.Concat(
		batch(0, 1, 0x10, kmsg.Record{Value: unit.Append(nil)}),
		batch(1, 1, 0x30, kmsg.Record{Key: []byte{0, 0, 0, 1}, Value: []byte{0, 0, 0, 0, 0, 0}}), // committed
		batch(2, 2, 0x10, kmsg.Record{Value: unit.Append(nil)}),
		batch(4, 1, 0x30, kmsg.Record{Key: []byte{0, 0, 0, 0}, Value: []byte{0, 0, 0, 0, 0, 0}}), // aborted
	)
}

func TestJournalIsRead(t *testing.T) {
	t.Parallel()
	good := journalBatches(t)
	reader := exactlyonce.NewReader(&exactlyonce.Request{Until: exactlyonce.Producer{PID: 7, Epoch: 1}})
	done, err := feedJournal(reader, headersOf(good))
	if u := reader.Answer().Units; !done || err != nil || len(u) != 1 || u[0].Number != 1 || u[0].Table != "public.outbox" || reader.Next() != 5 {
		t.Errorf("%+v, next %d, %v", u, reader.Next(), err)
	}
	for _, c := range []struct {
		what   string
		damage func(b []byte)
		want   error
	}{
		{"compressed", func(b []byte) { b[22] |= 2 }, errCompressed},
		{"of no transaction", func(b []byte) { b[22] = 0 }, exactlyonce.ErrForeign},
		{"cleaned", func(b []byte) { b[26] = 3 }, errGap},
		{"with a wrong count", func(b []byte) { b[60] = 0 }, errGap},
		{"with a record of no length", func(b []byte) { b[61] = 0 }, errRecord},
	} {
		bad := slices.Clone(good)
		c.damage(bad)
		if _, err := feedJournal(exactlyonce.NewReader(&exactlyonce.Request{Until: exactlyonce.Nobody}), headersOf(bad)); !errors.Is(err, c.want) {
			t.Errorf("a batch %s: %v, want %v", c.what, err, c.want)
		}
	}
}

// recordBatch is one without records that says it has so many.
func recordBatch(first int64, records int32) []byte {
	b := kmsg.RecordBatch{FirstOffset: first, Length: 49, Magic: 2, LastOffsetDelta: records - 1, ProducerID: 7, ProducerEpoch: 1, NumRecords: records}
	return b.AppendTo(nil)
}

// The seeds are answers that are understood.
func TestGoodAnswersAreUnderstood(t *testing.T) {
	t.Parallel()
	if at, err := recordsAt(append(make([]byte, 8), goodAnswer(t, 2)...), fetchVersion); err != nil || at == 0 {
		t.Errorf("%d, %v", at, err)
	}
	if got := headersOf(append(recordBatch(5, 3), recordBatch(8, 1)...)); len(got) != 2 || got[0].last != 7 || got[1].pid != 7 {
		t.Errorf("%+v", got)
	}
	// A batch that is too short to be one ends the reading.
	if got := headersOf(append(recordBatch(5, 3), make([]byte, 100)...)); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}
