package main

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// If the brokers refuse to create the journal, the error says why, and has the command for a user with the
// rights.
func TestInitKafkaIsRefused(t *testing.T) {
	kafka := harness.Kfake(t)
	config := filepath.Join(t.TempDir(), "once.yaml")
	text := `kafka: {clusters: {main: {brokers: [` + strconv.Quote(kafka.Addrs[0]) + `], fencing: required}}}
streams:
  - name: orders
    delivery: exactly_once
    postgres: {dsn: "postgres://writer@127.0.0.1:1/orders"}
    tables: [{table: public.outbox, profile: native}]
`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code sarama.KError
		text string
		exit int
		want []string
	}{
		{sarama.ErrTopicAuthorizationFailed, "Authorization failed.", exitPermanent, []string{"the brokers refuse to make topic __outbox-cdc-orders-journal", "Authorization failed.", "have somebody run this who may", "kafka-topics.sh"}},
		{
			sarama.ErrInvalidReplicationFactor, "The target replication factor of 3 cannot be reached because only 2 broker(s) are registered.", exitFailure,
			[]string{"only 2 broker(s) are registered", "start the brokers that are missing", "--replication-factor 1"},
		},
	} {
		kafka.Fake.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
			res := req.ResponseKind().(*kmsg.CreateTopicsResponse)
			one := kmsg.NewCreateTopicsResponseTopic()
			one.Topic, one.ErrorCode, one.ErrorMessage = "__outbox-cdc-orders-journal", int16(c.code), &c.text
			res.Topics = append(res.Topics, one)
			return res, nil, true
		})
		_, e := command(t, c.exit, "init", "--kafka", "--config", config)
		mustHave(t, e, c.want...)
	}
}
