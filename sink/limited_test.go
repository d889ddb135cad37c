package sink

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// premium returns a protocol with transactions that ends early.
func premium() *kversion.Versions {
	v := harness.EventHubs()
	for key, newest := range map[kmsg.Key]int16{kmsg.InitProducerID: 4, kmsg.AddPartitionsToTxn: 3, kmsg.EndTxn: 3} {
		v.SetMaxKeyVersion(int16(key), newest)
	}
	return v
}

// restarts returns answers of brokers that come and go: refusals, never many in a row.
func restarts() (answers []int16) {
	for range 6 {
		answers = append(answers, harness.HangupCode, kerr.UnknownServerError.Code, kerr.CoordinatorNotAvailable.Code)
	}
	return answers
}

// searchAt returns the sequences of the batches that a search finds.
func searchAt(t *testing.T, cfg Config, topic string) (sequences []int32, err error) {
	t.Helper()
	cfg.defaults()
	conf, err := cfg.sarama()
	if err != nil {
		return nil, err
	}
	r, err := newNetwork(t.Context(), conf, Config{}, coordinatorTimeout).openReader(cfg.Brokers[0])
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	answer, err := r.fetch(topicPartition{topic, 0}, 0)
	if err != nil {
		return nil, err
	}
	for _, h := range answer.headers {
		if !h.control {
			sequences = append(sequences, h.sequence)
		}
	}
	return sequences, nil
}

// Brokers that know less of the protocol, or refuse transactional ids: rows are
// published in order, a lost answer is looked for and found, no request is sent that
// the brokers do not know, and the sink says whether former leaders are fenced.
func TestBrokersWithLess(t *testing.T) {
	t.Parallel()
	k := privateKafka(t, harness.KafkaOptions{Proxied: true})
	for name, c := range map[string]struct {
		limits harness.Limits
		off    bool
		want   Fencing
	}{
		"no transactions":             {harness.Limits{Versions: harness.EventHubs()}, false, FencingRefused},
		"the coordinator is refused":  {harness.Limits{Versions: premium(), NoCoordinator: kerr.InvalidRequest.Code}, false, FencingRefused},
		"the connection is closed":    {harness.Limits{Versions: premium(), Hangup: true}, false, FencingRefused},
		"brokers that restart":        {harness.Limits{Versions: premium(), Coordinators: restarts()}, false, FencingOn},
		"an old protocol":             {harness.Limits{Versions: premium()}, false, FencingOn},
		"Redpanda":                    {harness.Limits{Versions: harness.Redpanda()}, false, FencingRefused},
		"WarpStream":                  {harness.Limits{Versions: harness.WarpStream()}, false, FencingOn},
		"Kafka 2.8":                   {harness.Limits{Versions: kversion.V2_8_0()}, false, FencingOn},
		"no fencing is wanted":        {harness.Limits{Versions: harness.EventHubs()}, true, FencingOff},
		"epochs that nobody can name": {harness.Limits{Versions: kversion.V2_4_0()}, false, FencingRefused},
	} {
		t.Run(name, func(t *testing.T) {
			c.limits.LoseAnswer = 2
			limited := k.Limit(t, c.limits)
			topic := k.Topic(t, 1)
			cfg := Config{Brokers: k.Addrs, TransactionalID: "limited", RequestTimeout: 2 * time.Second}
			if c.off {
				cfg.TransactionalID = ""
			}
			r := newRig(t, cfg)
			for i := range 4 {
				r.expect(outbox.Delivered, 60*time.Second, r.publish(newRow(topic, "k", fmt.Sprint("v", i)))...)
			}
			if got := r.sink.Fencing(); got != c.want {
				t.Errorf("fencing is %v, wanted %v", got, c.want)
			}
			inOrder(t, k.Records(t, topic), "v", 4)
			if n := limited.Unknown.Load(); n > 0 {
				t.Errorf("%d requests that the brokers do not know", n)
			}
		})
	}
	t.Run("searches", func(t *testing.T) {
		topic := k.Topic(t, 1)
		cfg := Config{Cluster: "main", Brokers: k.Addrs, TransactionalID: "searches"}
		r := newRig(t, cfg)
		for i := range 3 {
			r.expect(outbox.Delivered, 30*time.Second, r.publish(newRow(topic, "k", fmt.Sprint("v", i)))...)
		}
		for version := int16(3); version <= fetchVersion; version++ {
			t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
				limits := harness.Limits{Versions: kversion.V2_8_0()}
				limits.Versions.SetMaxKeyVersion(keyFetch, version)
				k.Limit(t, limits)
				got, err := searchAt(t, cfg, topic)
				switch {
				case version < oldestFetch:
					if err == nil || !strings.Contains(err.Error(), "knows fetches up to version") {
						t.Error(err)
					}
				case err != nil:
					t.Error(err)
				case !slices.Equal(got, []int32{0, 1, 2}):
					t.Errorf("batches with sequences %d", got)
				}
			})
		}
	})
	t.Run("fencing is required", func(t *testing.T) {
		k.Limit(t, harness.Limits{Versions: premium(), NoCoordinator: kerr.InvalidRequest.Code})
		topic := k.Topic(t, 1)
		r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "limited", RequireFencing: true})
		r.publish(newRow(topic, "k", "v0"))
		r.until("why nothing is published", 60*time.Second, func() bool {
			return slices.ContainsFunc(r.said, func(s outbox.ClusterState) bool {
				return !s.Usable && strings.Contains(s.Err.Error(), "fencing: required") && strings.Contains(s.Err.Error(), harness.NoTransactionsText)
			})
		})
		if records := k.Records(t, topic); len(records) > 0 {
			t.Errorf("%d records without fencing", len(records))
		}
	})
}
