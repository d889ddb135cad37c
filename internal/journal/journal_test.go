package journal

import (
	"errors"
	"strings"
	"testing"
	"time"

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

func TestRetentionFollowsMemory(t *testing.T) {
	for rows, want := range map[int]int64{100: leastBytes, 10_000_000: 25_600_000_000} {
		if got := (Topic{Rows: rows}).KeepBytes(); got != want {
			t.Errorf("%d rows: %d, want %d", rows, got, want)
		}
	}
}
