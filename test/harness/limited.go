package harness

import (
	"encoding/binary"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Limits make real brokers behave like older brokers, or like a service that supports only a part of Kafka's
// protocol.
type Limits struct {
	// Versions are the requests that the brokers claim to know, each with its newest version. On any other
	// request the proxy closes the connection, as brokers do.
	Versions *kversion.Versions
	// NoCoordinator is the error code that answers a search for a transaction
	// coordinator, with NoTransactionsText. 0: it goes to the broker.
	NoCoordinator int16
	// Hangup: the connection is closed on such a search.
	Hangup bool
	// Coordinators are the codes that answer the first of these searches, one code each, instead of
	// NoCoordinator. HangupCode closes the connection.
	Coordinators []int16
	// LoseAnswer is the number of the produce request, counted from 1, whose answer is lost: the proxy closes
	// the connection instead of passing it on. 0: none.
	LoseAnswer int32
}

// EventHubs returns the protocol of Azure Event Hubs without transactions as seen in 2023,
// except the requests of consumers (github.com/aio-libs/aiokafka/issues/945).
func EventHubs() *kversion.Versions {
	return upTo(map[kmsg.Key]int16{
		kmsg.Produce: 7, kmsg.Fetch: 6, kmsg.ListOffsets: 7, kmsg.Metadata: 5, kmsg.FindCoordinator: 4,
		kmsg.SASLHandshake: 1, kmsg.ApiVersions: 3, kmsg.InitProducerID: 1, kmsg.DescribeConfigs: 2, kmsg.SASLAuthenticate: 1,
	})
}

// Redpanda returns the protocol of the handlers of a Redpanda that was published
// (github.com/redpanda-data/redpanda, src/v/kafka/server/handlers); newer ones know more.
func Redpanda() *kversion.Versions {
	return upTo(map[kmsg.Key]int16{
		kmsg.Produce: 7, kmsg.Fetch: 11, kmsg.ListOffsets: 3, kmsg.Metadata: 7, kmsg.FindCoordinator: 2,
		kmsg.SASLHandshake: 1, kmsg.ApiVersions: 3, kmsg.InitProducerID: 1, kmsg.DescribeConfigs: 2, kmsg.SASLAuthenticate: 1,
		kmsg.AddPartitionsToTxn: 1, kmsg.EndTxn: 1,
	})
}

// WarpStream knows the requests that its documentation lists
// (docs.warpstream.com/warpstream/kafka/reference/protocol-and-feature-support), here as Kafka 2.8 does.
func WarpStream() *kversion.Versions {
	v := map[kmsg.Key]int16{}
	for _, key := range []kmsg.Key{
		kmsg.Produce, kmsg.InitProducerID, kmsg.Fetch, kmsg.ListOffsets, kmsg.Metadata, kmsg.FindCoordinator, kmsg.ApiVersions,
		kmsg.DescribeConfigs, kmsg.AddPartitionsToTxn, kmsg.EndTxn, kmsg.SASLHandshake, kmsg.SASLAuthenticate,
	} {
		v[key], _ = kversion.V2_8_0().LookupMaxKeyVersion(int16(key))
	}
	return upTo(v)
}

func upTo(newest map[kmsg.Key]int16) *kversion.Versions {
	v := new(kversion.Versions)
	for key, version := range newest {
		v.SetMaxKeyVersion(int16(key), version)
	}
	return v
}

// HangupCode is not one of Kafka's codes.
const HangupCode = math.MinInt16

// NoTransactionsText comes with Limits.NoCoordinator.
const NoTransactionsText = "coordinators of transactions are not supported in this tier"

// Limited are brokers behind proxies that apply Limits.
type Limited struct {
	limits   Limits
	produced atomic.Int32
	searches atomic.Int32
	// Unknown counts requests that the brokers claim not to know.
	Unknown atomic.Int32
}

// Limit puts Limits on all connections to a cluster with KafkaOptions.Proxied until the
// test ends.
func (c *Cluster) Limit(t testing.TB, limits Limits) *Limited {
	t.Helper()
	l := &Limited{limits: limits}
	for _, p := range c.Proxies {
		p.Refuse()
		listener, err := net.Listen("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		var open sync.WaitGroup
		open.Go(func() {
			for {
				client, err := listener.Accept()
				if err != nil {
					return
				}
				open.Go(func() { l.serve(client, p.proxy.Upstream) })
			}
		})
		t.Cleanup(func() {
			_ = listener.Close()
			open.Wait()
			p.Allow()
		})
	}
	return l
}

// asked is a request under way.
type asked struct{ key, version int16 }

// serve ends with either side's connection.
func (l *Limited) serve(client net.Conn, upstream string) {
	defer func() { _ = client.Close() }()
	broker, err := net.Dial("tcp", upstream)
	if err != nil {
		return
	}
	defer func() { _ = broker.Close() }()
	var pending sync.Map // correlation id → asked
	var both sync.WaitGroup
	both.Go(func() {
		defer func() { _ = broker.Close() }()
		for frame, err := next(client); err == nil; frame, err = next(client) {
			if !l.request(frame, client, broker, &pending) {
				return
			}
		}
	})
	both.Go(func() {
		defer func() { _ = client.Close() }()
		for frame, err := next(broker); err == nil; frame, err = next(broker) {
			if !l.answer(frame, client, &pending) {
				return
			}
		}
	})
	both.Wait()
}

// next reads a message without its length.
func next(from io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	_, err := io.ReadFull(from, frame)
	return frame, err
}

func send(to io.Writer, frame []byte) bool {
	_, err := to.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
	return err == nil
}

// request passes a request on, answers it, or says that the connection is to be closed.
func (l *Limited) request(frame []byte, client, broker io.Writer, pending *sync.Map) bool {
	be := binary.BigEndian
	a, correlation := asked{int16(be.Uint16(frame)), int16(be.Uint16(frame[2:]))}, be.Uint32(frame[4:])
	if newest, known := l.limits.Versions.LookupMaxKeyVersion(a.key); (!known || a.version > newest) && a.key != int16(kmsg.ApiVersions) {
		l.Unknown.Add(1)
		return false
	}
	if a.key == int16(kmsg.FindCoordinator) && a.version > 0 {
		code := l.limits.NoCoordinator
		if n := int(l.searches.Add(1)); n <= len(l.limits.Coordinators) {
			code = l.limits.Coordinators[n-1]
		}
		if l.limits.Hangup || code == HangupCode {
			return false
		}
		if code != 0 {
			text := NoTransactionsText
			res := &kmsg.FindCoordinatorResponse{Version: a.version, ErrorCode: code, ErrorMessage: &text, NodeID: -1}
			return send(client, res.AppendTo(be.AppendUint32(nil, correlation)))
		}
	}
	pending.Store(correlation, a)
	return send(broker, frame)
}

func (l *Limited) answer(frame []byte, client io.Writer, pending *sync.Map) bool {
	correlation := binary.BigEndian.Uint32(frame)
	stored, known := pending.LoadAndDelete(correlation)
	if !known {
		return false
	}
	switch a := stored.(asked); a.key {
	case int16(kmsg.Produce):
		if l.produced.Add(1) == l.limits.LoseAnswer {
			return false
		}
	case int16(kmsg.ApiVersions):
		res := &kmsg.ApiVersionsResponse{Version: a.version}
		if err := res.ReadFrom(frame[4:]); err != nil {
			return false
		}
		res.ApiKeys = l.claimed(res.ApiKeys)
		frame = res.AppendTo(frame[:4:4])
	}
	return send(client, frame)
}

// claimed keeps, of the requests that a broker knows, those that it is to know.
func (l *Limited) claimed(keys []kmsg.ApiVersionsResponseApiKey) (left []kmsg.ApiVersionsResponseApiKey) {
	for _, k := range keys {
		if newest, known := l.limits.Versions.LookupMaxKeyVersion(k.ApiKey); known && newest >= k.MinVersion {
			k.MaxVersion = min(k.MaxVersion, newest)
			left = append(left, k)
		}
	}
	return left
}
