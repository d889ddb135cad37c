package sink

import (
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// forbidMetadata makes brokers answer that we may not see the topic, while on is set. It counts the requests
// since then: those about the topic and, after the topic is forgotten, those about no topic.
func forbidMetadata(t *testing.T, c *kfake.Cluster, topic string) (on *atomic.Bool, asked *atomic.Int32) {
	on, asked = &atomic.Bool{}, &atomic.Int32{}
	c.ControlKey(int16(kmsg.ApiVersions), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if on.Load() {
			asked.Add(1)
		}
		return nil, nil, false
	})
	host, text, err := net.SplitHostPort(c.ListenAddrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	c.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		res, ok := req.ResponseKind().(*kmsg.MetadataResponse)
		if !ok || !on.Load() {
			return nil, nil, false
		}
		broker := kmsg.NewMetadataResponseBroker()
		broker.Host, broker.Port = host, int32(port)
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic, rt.ErrorCode = &topic, 29
		res.Brokers, res.Topics = append(res.Brokers, broker), append(res.Topics, rt)
		asked.Add(1)
		return res, nil, true
	})
	return on, asked
}

// A topic that we may not see for a while is forgotten. When it is there again, the broker must not
// take its rows for those that it has.
func TestATopicThatWasForgottenForAWhile(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "t"))
	on, asked := forbidMetadata(t, c, "t")
	r := newRig(t, Config{Brokers: c.ListenAddrs(), Topics: []string{"t"}, MetadataRefresh: 20 * time.Millisecond})
	r.expect(outbox.Delivered, 5*time.Second, r.publish(newRow("t", "k", "0"))...)
	on.Store(true)
	r.until("it was forbidden", 10*time.Second, func() bool { return asked.Load() > 2 })
	on.Store(false)
	for class := outbox.Withdrawn; class == outbox.Withdrawn; { // as long as it still seems forbidden
		row := r.publish(newRow("t", "k", "1"))[0]
		r.until("an outcome", 10*time.Second, func() bool { class = r.fate[row].Class; return class != 0 })
		scope := outbox.TopicScope("main", "t")
		r.sink.Do(outbox.Command{Release: &scope})
	}
	keysInOrder(t, consume(t, c.ListenAddrs(), "t", 2), 1)
}
