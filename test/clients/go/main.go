// Command read reads a topic by one of Go's libraries: BROKERS TOPIC default|committed LIBRARY.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	segmentio "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

type record struct{ key, value, header []byte }

func main() {
	brokers, topic, mode, library := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	read := map[string]func(context.Context, config, chan<- record) error{"franz-go": franz, "sarama": ibm, "kafka-go": segment}[library]
	if read == nil {
		log.Fatalf("unknown library %s", library)
	}
	ctx, stop := context.WithCancel(context.Background())
	records, ended := make(chan record), make(chan error)
	go func() {
		ended <- read(ctx, config{brokers, topic, library + "-" + topic + "-" + mode, mode == "committed"}, records)
	}()
	var got []string
	markers := 0 // their places differ: the broker writes them after its answer
	wait := 30 * time.Second
	for ctx.Err() == nil {
		select {
		case r := <-records:
			wait = 3 * time.Second
			switch {
			case strings.ContainsRune(string(r.value), 0):
				markers++
			case topic == "nulls":
				got = append(got, text(r.key)+":"+text(r.value)+":"+text(r.header))
			default:
				got = append(got, text(r.value))
			}
		case err := <-ended:
			log.Fatal(err)
		case <-time.After(wait):
			stop()
		}
	}
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
	fmt.Println(strings.Join(got, " ") + strings.Repeat(" MARKER", markers))
}

func text(b []byte) string {
	if b == nil {
		return "null"
	}
	return string(b)
}

type config struct {
	brokers, topic, group string
	committed             bool
}

func franz(ctx context.Context, conf config, records chan<- record) error {
	opts := []kgo.Opt{kgo.SeedBrokers(conf.brokers), kgo.ConsumerGroup(conf.group), kgo.ConsumeTopics(conf.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	if conf.committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	c, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			got := record{key: r.Key, value: r.Value}
			for _, h := range r.Headers {
				if h.Key == "header" {
					got.header = h.Value
				}
			}
			records <- got
		})
	}
}

func ibm(ctx context.Context, conf config, records chan<- record) error {
	c := sarama.NewConfig()
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	if conf.committed {
		c.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	group, err := sarama.NewConsumerGroup([]string{conf.brokers}, conf.group, c)
	if err != nil {
		return err
	}
	return errors.Join(group.Consume(ctx, []string{conf.topic}, claims(records)), group.Close())
}

type claims chan<- record

func (claims) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (claims) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c claims) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		got := record{key: m.Key, value: m.Value}
		for _, h := range m.Headers {
			if string(h.Key) == "header" {
				got.header = h.Value
			}
		}
		c <- got
		session.MarkMessage(m, "")
	}
	return nil
}

func segment(ctx context.Context, conf config, records chan<- record) error {
	c := segmentio.ReaderConfig{Brokers: []string{conf.brokers}, GroupID: conf.group, Topic: conf.topic, MaxWait: time.Second}
	if conf.committed {
		c.IsolationLevel = segmentio.ReadCommitted
	}
	r := segmentio.NewReader(c)
	for {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			return errors.Join(err, r.Close())
		}
		got := record{key: m.Key, value: m.Value}
		for _, h := range m.Headers {
			if h.Key == "header" {
				got.header = h.Value
			}
		}
		records <- got
	}
}
