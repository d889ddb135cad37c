package preflight

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

func TestTransport(t *testing.T) {
	for _, c := range []struct {
		dsn, streaming string
		kafka          sink.Config
		named          string
		want           string
	}{
		{"postgres://u@localhost/d", "postgres://u@localhost/d", sink.Config{Brokers: []string{"localhost:9092"}}, "localhost:9092", ""},
		{"postgres://u@localhost/d", "postgres://u@localhost/d", sink.Config{Brokers: []string{"localhost:9092"}}, "k:9092", "kafka main: no TLS to k:9092"},
		{"postgres://u@db/d?sslmode=verify-full", "host=/run/pg user=r dbname=d", sink.Config{Brokers: []string{"k:9093"}, TLS: &sink.TLS{}}, "k:9093", ""},
		{"postgres://u@db/d", "postgres://u@db/d", sink.Config{Brokers: []string{"k:9092", "localhost:1"}}, "k:9092", "dsn: connections to db may go without TLS; kafka main: no TLS to k:9092"},
		{
			"postgres://u@db/d?sslmode=require", "postgres://r@db/d?sslmode=disable",
			sink.Config{Brokers: []string{"k:9092"}, TLS: &sink.TLS{Insecure: true}},
			"k:9092",
			"dsn: connections to db are encrypted, but the server's certificate or name is not verified; replication_dsn: connections to db may go without TLS; kafka main: insecure_skip_verify accepts any certificate",
		},
	} {
		f := sound()
		f.Stream.DSN, f.Stream.Replication.DSN = c.dsn, c.streaming
		f.Stream.Kafka = map[string]sink.Config{"main": c.kafka}
		f.Kafka = []ClusterFacts{{Name: "main", Brokers: []BrokerFacts{{Address: c.named}}}}
		var got []string
		for _, finding := range Judge(f) {
			if finding.Check == "transport" && finding.Level != OK {
				got = append(got, finding.Subject+": "+finding.Found)
			}
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s: got %q, want %q", c.dsn, text, c.want)
		}
	}
}
