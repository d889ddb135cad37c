package sink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/semaphore"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// mutilator is a proxy between a client and a broker. It passes on requests unchanged. While it is armed, it
// spoils every reply that is long enough.
type mutilator struct {
	t        *testing.T
	listener net.Listener
	upstream string
	spoil    atomic.Pointer[func(frame []byte) []byte]
	spoilt   atomic.Int32
	group    sync.WaitGroup
	mu       sync.Mutex
	conns    []net.Conn
}

// newMutilator starts a mutilator. kfake advertises its address.
func newMutilator(t *testing.T, opts ...kfake.Opt) (*mutilator, *harness.Cluster) {
	t.Helper()
	m := &mutilator{t: t}
	hidden := func(network, _ string) (net.Listener, error) {
		inner, err := (&net.ListenConfig{}).Listen(t.Context(), network, "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		if m.listener, err = (&net.ListenConfig{}).Listen(t.Context(), network, "127.0.0.1:0"); err != nil {
			return nil, errors.Join(err, inner.Close())
		}
		m.upstream = inner.Addr().String()
		return elsewhere{inner, m.listener.Addr()}, nil
	}
	k := harness.Kfake(t, append([]kfake.Opt{kfake.ListenFn(hidden)}, opts...)...)
	m.group.Go(m.accept)
	t.Cleanup(m.close)
	return m, k
}

// elsewhere is a listener whose Addr is another address.
type elsewhere struct {
	net.Listener
	shown net.Addr
}

func (e elsewhere) Addr() net.Addr { return e.shown }

func (m *mutilator) close() {
	_ = m.listener.Close()
	m.cut()
	m.group.Wait()
}

func (m *mutilator) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.conns {
		_ = c.Close()
	}
	m.conns = nil
}

func (m *mutilator) accept() {
	for {
		client, err := m.listener.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(m.t.Context(), "tcp", m.upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		m.mu.Lock()
		m.conns = append(m.conns, client, server)
		m.mu.Unlock()
		m.group.Go(func() {
			_, _ = io.Copy(server, client)
			_ = server.Close()
		})
		m.group.Go(func() {
			m.replies(client, server)
			_ = client.Close()
			_ = server.Close()
		})
	}
}

// replies passes frames on: four bytes of length, four of correlation, the body.
func (m *mutilator) replies(client io.Writer, server io.Reader) {
	for {
		header := make([]byte, 4)
		if _, err := io.ReadFull(server, header); err != nil {
			return
		}
		frame := make([]byte, 4+binary.BigEndian.Uint32(header))
		copy(frame, header)
		if _, err := io.ReadFull(server, frame[4:]); err != nil {
			return
		}
		if spoil := m.spoil.Load(); spoil != nil {
			frame = (*spoil)(frame)
			m.spoilt.Add(1)
		}
		if _, err := client.Write(frame); err != nil || len(frame) < 8 {
			return // what is too short to be a reply ends with the connection
		}
	}
}

// Whatever a broker answers, the sink does not panic, its memory stays bounded, and each row's outcome is the
// one that Kafka gave. When the broker's answers are correct again, all rows are delivered, once and in order.
func TestHostileBroker(t *testing.T) {
	for name, spoil := range map[string]func(frame []byte) []byte{
		"a length of 2 GiB":     func(f []byte) []byte { binary.BigEndian.PutUint32(f, 1<<31-1); return f },
		"a negative length":     func(f []byte) []byte { binary.BigEndian.PutUint32(f, 1<<32-1); return f },
		"no length":             func(f []byte) []byte { binary.BigEndian.PutUint32(f, 0); return f },
		"cut short":             func(f []byte) []byte { return f[:6] },
		"half of it":            func(f []byte) []byte { return resized(f[:4+len(f[4:])/2]) },
		"more than it is":       func(f []byte) []byte { return resized(append(f, make([]byte, 100)...)) },
		"somebody else's reply": func(f []byte) []byte { f[7] ^= 1; return f },
		"a body of ones":        func(f []byte) []byte { return filled(f, 0xff) },
		"arrays of 2^31-1":      func(f []byte) []byte { return filled(f, 0x7f) },
		"a body of nothing":     func(f []byte) []byte { return resized(f[:8]) },
		"another protocol":      func([]byte) []byte { return []byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			m, k := newMutilator(t, kfake.SeedTopics(1, "t"))
			r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "tx", RequestTimeout: time.Second, DialTimeout: time.Second})
			r.expect(outbox.Delivered, 5*time.Second, r.publish(newRow("t", "k", "v0"))...)
			m.spoil.Store(&spoil)
			rows := r.publish(newRow("t", "k", "v1"), newRow("t", "k", "v2"))
			r.until("some replies were spoilt", 20*time.Second, func() bool { return m.spoilt.Load() >= 3 })
			rows = append(rows, r.publish(newRow("t", "k", "v3"))...)
			m.spoil.Store(nil)
			m.cut() // a reader in the middle of a frame would wait for its rest
			r.expect(outbox.Delivered, 20*time.Second, rows...)
			inOrder(t, k.Records(t, "t"), "v", 4)
			var mem runtime.MemStats
			runtime.ReadMemStats(&mem)
			if mem.HeapSys > 512<<20 {
				t.Errorf("%d MiB of heap", mem.HeapSys>>20)
			}
		})
	}
}

// resized returns the frame with its correct length in front.
func resized(f []byte) []byte {
	binary.BigEndian.PutUint32(f, uint32(len(f)-4))
	return f
}

// filled returns a reply to the right request that otherwise has only one byte value in it.
func filled(f []byte, b byte) []byte {
	for i := range f[8:] {
		f[8+i] = b
	}
	return f
}

// Frames are followed however the bytes of them are cut into reads.
func TestFramesAreFollowed(t *testing.T) {
	good := []byte{0, 0, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 0, 4, 7, 8, 9, 10}
	for _, bad := range [][]byte{{0, 0, 0, 3}, {0, 0, 0, 0}, {0, 0, 0, 101}, {0xff, 0xff, 0xff, 0xff}, {0x7f, 0xff, 0xff, 0xff}, []byte("HTTP")} {
		for step := 1; step <= len(good)+4; step++ {
			f := &framed{most: 100}
			passed := 0
			for rest := append(append([]byte(nil), good...), bad...); len(rest) > 0 && f.wrong.Load() == nil; {
				n := min(step, len(rest))
				passed += f.follow(rest[:n])
				rest = rest[n:]
			}
			if f.wrong.Load() == nil || passed < len(good) || passed > len(good)+3 {
				t.Fatalf("%v in steps of %d: %d bytes passed, %v", bad, step, passed, f.wrong.Load())
			}
		}
	}
}

// If a server at the port is not Kafka, the error says so, and the answer takes no memory.
func TestAPortOfSomethingElse(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	addr := server.Listener.Addr().String()
	r := newRig(t, Config{Brokers: []string{addr}})
	s := r.usable(5*time.Second, false)
	for _, part := range []string{addr, "another protocol", "HTTP"} {
		if !strings.Contains(s.Err.Error(), part) {
			t.Errorf("%q is missing in: %v", part, s.Err)
		}
	}
}

// A coordinator that attempts nothing and refuses nothing is asked again after a pause, which begins with
// looking for the coordinator; and when it does as it is asked, all is delivered.
func TestACoordinatorThatAttemptsNothing(t *testing.T) {
	t.Parallel()
	k := harness.Kfake(t, kfake.SeedTopics(2, "t"))
	var looked atomic.Int32
	var well atomic.Bool
	k.Fake.ControlKey(int16(kmsg.FindCoordinator), func(kmsg.Request) (kmsg.Response, error, bool) {
		k.Fake.KeepControl()
		looked.Add(1)
		return nil, nil, false
	})
	k.Fake.ControlKey(int16(kmsg.AddPartitionsToTxn), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.Fake.KeepControl()
		asked, ok := req.(*kmsg.AddPartitionsToTxnRequest)
		if !ok || well.Load() {
			return nil, nil, false
		}
		res, ok := asked.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
		if !ok {
			return nil, nil, false
		}
		for _, topic := range asked.Topics {
			for _, p := range topic.Partitions {
				res.Topics = append(res.Topics, kmsg.AddPartitionsToTxnResponseTopic{
					Topic: topic.Topic, Partitions: []kmsg.AddPartitionsToTxnResponseTopicPartition{{Partition: p, ErrorCode: int16(sarama.ErrOperationNotAttempted)}},
				})
			}
		}
		// Refusals of what we did not ask for do not concern us.
		res.Topics = append(res.Topics, kmsg.AddPartitionsToTxnResponseTopic{
			Topic: "another", Partitions: []kmsg.AddPartitionsToTxnResponseTopicPartition{{Partition: 7, ErrorCode: int16(sarama.ErrUnknownTopicOrPartition)}},
		})
		return res, nil, true
	})
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "tx"})
	rows := r.publish(newRow("t", "k", "v0"), newRow("t", "k", "v1"))
	harness.Eventually(t, 20*time.Second, func() error {
		if n := looked.Load(); n < 3 {
			return fmt.Errorf("the coordinator was looked for %d times", n)
		}
		return nil
	})
	well.Store(true)
	r.expect(outbox.Delivered, 20*time.Second, rows...)
	inOrder(t, k.Records(t, "t"), "v", 2)
}

// If a broker answers that every offset is out of range, a search ends with that error.
func TestASearchOfALogWithoutOffsetsEnds(t *testing.T) {
	k := harness.Kfake(t, kfake.SeedTopics(1, "t"))
	var fetched atomic.Int32
	k.Fake.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.Fake.KeepControl()
		fetched.Add(1)
		asked, ok := req.(*kmsg.FetchRequest)
		if !ok {
			return nil, nil, false
		}
		res, ok := asked.ResponseKind().(*kmsg.FetchResponse)
		if !ok {
			return nil, nil, false
		}
		p := kmsg.NewFetchResponseTopicPartition()
		p.ErrorCode = int16(sarama.ErrOffsetOutOfRange)
		res.Topics = []kmsg.FetchResponseTopic{{Topic: "t", Partitions: []kmsg.FetchResponseTopicPartition{p}}}
		return res, nil, true
	})
	conf := Config{Cluster: "main", Brokers: k.Addrs, TransactionalID: "tx"}
	conf.defaults()
	base, err := conf.sarama()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := newNetwork(ctx, base, Config{}, 10*time.Second).openReader(k.Addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	_, found, err := scan(ctx, b, search{fenceTarget: fenceTarget{topicPartition: topicPartition{"t", 0}}, from: 5, n: 1})
	if found || !errors.Is(err, sarama.ErrOffsetOutOfRange) || fetched.Load() != 2 {
		t.Errorf("found %v, %v, after %d fetches", found, err, fetched.Load())
	}
}

// Long answers of a cluster share room: one waits until another has come to its end, or its
// connection has, and gives up in the end.
func TestLongAnswersComeOneAfterAnother(t *testing.T) {
	room := semaphore.NewWeighted(answersAtOnce)
	begin := func(patient time.Duration) (*framed, net.Conn) {
		server, client := net.Pipe()
		f := &framed{Conn: client, most: longestFetch, room: room, patient: patient, ctx: t.Context()}
		t.Cleanup(func() { _ = errors.Join(f.Close(), server.Close()) })
		return f, server
	}
	read := func(f *framed, server net.Conn, data []byte) error {
		sent := make(chan error, 1)
		go func() {
			_, err := server.Write(data)
			sent <- err
		}()
		_, err := io.ReadFull(f, make([]byte, len(data)))
		return errors.Join(err, <-sent)
	}
	head := func(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
	first, its := begin(time.Minute)
	if err := read(first, its, head(longestFetch)); err != nil {
		t.Fatal(err)
	}
	hasty, its2 := begin(10 * time.Millisecond)
	if err := read(hasty, its2, head(shortAnswer)); err != nil {
		t.Error("a short answer waits:", err)
	}
	hasty, its2 = begin(10 * time.Millisecond)
	go func() { _, _ = its2.Write(head(longestAnswer)) }()
	if _, err := io.ReadFull(hasty, make([]byte, 4)); err == nil || !strings.Contains(err.Error(), "found no room") {
		t.Error(err)
	}
	patient, its3 := begin(time.Minute)
	got := make(chan error, 1)
	go func() { got <- read(patient, its3, head(longestAnswer)) }()
	_ = first.Close()
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := read(patient, its3, make([]byte, longestAnswer)); err != nil {
		t.Error(err)
	}
	if !room.TryAcquire(answersAtOnce) {
		t.Error("the room was not given back")
	}
}
