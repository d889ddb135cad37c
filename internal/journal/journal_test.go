package journal

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

func TestMakeIsRepeatable(t *testing.T) {
	k := harness.Kfake(t, kfake.NumBrokers(2))
	topic, cfg := Topic{Name: "journal", Rows: 10_000}, sink.Config{Cluster: "main", Brokers: append([]string{"127.0.0.1:1"}, k.Addrs...), DialTimeout: time.Second}
	for range 2 {
		if replicas, err := topic.Make(t.Context(), cfg); err != nil || replicas != 2 {
			t.Fatalf("%d replicas, %v", replicas, err)
		}
	}
	if topics := k.Topics(t); len(topics) != 1 {
		t.Errorf("%v", topics)
	}
}

// Brokers that refuse say why.
func TestMakeIsRefused(t *testing.T) {
	k := harness.Kfake(t)
	const policyViolation = 44
	k.Fake.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
		res := req.ResponseKind().(*kmsg.CreateTopicsResponse)
		one := kmsg.NewCreateTopicsResponseTopic()
		one.Topic, one.ErrorCode, one.ErrorMessage = "j", policyViolation, kmsg.StringPtr("three replicas at least")
		res.Topics = append(res.Topics, one)
		return res, nil, true
	})
	_, err := Topic{Name: "j"}.Make(t.Context(), sink.Config{Cluster: "main", Brokers: k.Addrs})
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "three replicas at least") {
		t.Error(err)
	}
}

// A real broker refuses a user who may not create topics, and one who may makes the topic as it has to be.
func TestRealMake(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a Kafka of its own")
	}
	k := harness.PrivateKafka(t, harness.Authorizing())
	topic := Topic{Name: "__outbox-cdc-orders-journal", Rows: 10_000}
	poor := sink.Config{Cluster: "main", Brokers: k.AddrsOf("SAFE"), SASL: &sink.SASL{Mechanism: "PLAIN", Username: "poor", Password: "right"}}
	if _, err := topic.Make(t.Context(), poor); !errors.Is(err, ErrRefused) || !errors.Is(err, sink.TopicForbidden) {
		t.Error(err)
	}
	for range 2 { // it may be repeated
		if replicas, err := topic.Make(t.Context(), sink.Config{Cluster: "main", Brokers: k.Addrs}); err != nil || replicas != 1 {
			t.Fatalf("%d replicas, %v", replicas, err)
		}
	}
	var is []*sarama.ConfigResourceResult
	k.Admin(t, func(a sarama.ClusterAdmin) (err error) {
		is, err = a.DescribeConfigs([]*sarama.ConfigResource{{Type: sarama.TopicResource, Name: topic.Name}}, sarama.DescribeConfigsOptions{})
		return err
	})
	want := topic.Settings(1)
	for _, entry := range is[0].Configs {
		if value, set := want[entry.Name]; set && entry.Value == value {
			delete(want, entry.Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("the broker has other settings than %v", want)
	}
	if err := topic.Remove(t.Context(), poor); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
}

func TestRetentionFollowsMemory(t *testing.T) {
	for rows, want := range map[int]int64{100: leastBytes, 10_000_000: 25_600_000_000} {
		if got := (Topic{Rows: rows}).KeepBytes(); got != want {
			t.Errorf("%d rows: %d, want %d", rows, got, want)
		}
	}
}
