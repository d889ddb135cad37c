// A connector of go-pq-cdc-kafka for the table of the bench, after the README and
// the production tutorial of the project: https://github.com/Trendyol/go-pq-cdc-kafka
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	cdc "github.com/Trendyol/go-pq-cdc-kafka"
	"github.com/Trendyol/go-pq-cdc-kafka/config"
	cdcconfig "github.com/Trendyol/go-pq-cdc/config"
	"github.com/Trendyol/go-pq-cdc/pq/publication"
	"github.com/Trendyol/go-pq-cdc/pq/slot"
	kafka "github.com/segmentio/kafka-go"
)

func main() {
	cfg := config.Connector{
		CDC: cdcconfig.Config{
			Host: os.Getenv("PEER_HOST"), Port: number("PEER_POSTGRES_PORT"),
			Username: os.Getenv("PEER_USER"), Password: os.Getenv("PEER_PASSWORD"), Database: os.Getenv("PEER_DATABASE"),
			Publication: publication.Config{
				CreateIfNotExists: true, Name: "outbox",
				Operations: publication.Operations{publication.OperationInsert},
				Tables:     publication.Tables{{Name: "outbox0", Schema: "public", ReplicaIdentity: publication.ReplicaIdentityDefault}},
			},
			Slot:   slot.Config{CreateIfNotExists: true, Name: os.Getenv("PEER_SLOT"), SlotActivityCheckerInterval: 3000},
			Metric: cdcconfig.MetricConfig{Port: number("PEER_PORT")},
			Logger: cdcconfig.LoggerConfig{LogLevel: slog.LevelInfo},
		},
		Kafka: config.Kafka{
			// The topic is the row's own.
			Brokers: []string{os.Getenv("PEER_KAFKA")},
			// All replicas, as the other relays of the bench; the default is the leader alone.
			RequiredAcks: -1,
			Balancer:     "Murmur2Balancer",
			// The README's and the tutorial's; the default is 10 s. The size of a batch, 2000, is the default.
			ProducerBatchTickerDuration: 200 * time.Millisecond,
		},
	}
	ctx := context.Background()
	connector, err := cdc.NewConnector(ctx, cfg, record)
	if err != nil {
		slog.Error("new connector", "error", err)
		os.Exit(1)
	}
	defer connector.Close()
	connector.Start(ctx)
}

// record is what becomes of a row.
func record(m *cdc.Message) []kafka.Message {
	if !m.Type.IsInsert() {
		return nil
	}
	topic, _ := m.NewData["topic"].(string)
	payload, _ := m.NewData["payload"].([]byte)
	return []kafka.Message{{Topic: topic, Key: text(m.NewData["aggregate_id"]), Value: payload}}
}

// text is a uuid as text.
func text(v any) []byte {
	if id, ok := v.([16]byte); ok {
		return fmt.Appendf(nil, "%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	}
	return fmt.Append(nil, v)
}

func number(name string) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		slog.Error("the environment", "name", name, "error", err)
		os.Exit(1)
	}
	return n
}
