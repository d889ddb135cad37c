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

func main() {
	brokers, topic, committed, library := os.Args[1], os.Args[2], os.Args[3] == "committed", os.Args[4]
	values := make(chan []byte)
	read := map[string]func(string, string, bool, chan<- []byte) error{"franz-go": franz, "sarama": ibm, "kafka-go": segment}[library]
	if read == nil {
		log.Fatalf("unknown library %s", library)
	}
	go func() {
		if err := read(brokers, topic, committed, values); err != nil {
			log.Fatal(err)
		}
	}()
	var got []string
	markers := 0 // their places differ: the broker writes them after its answer
	wait := 30 * time.Second
	for {
		select {
		case v := <-values:
			wait = 3 * time.Second
			if strings.ContainsRune(string(v), 0) {
				markers++
				continue
			}
			got = append(got, string(v))
		case <-time.After(wait):
			fmt.Println(strings.Join(got, " ") + strings.Repeat(" MARKER", markers))
			return
		}
	}
}

func franz(brokers, topic string, committed bool, values chan<- []byte) error {
	opts := []kgo.Opt{kgo.SeedBrokers(brokers), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	if committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	c, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	for {
		fetches := c.PollFetches(context.Background())
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) { values <- r.Value })
	}
}

func ibm(brokers, topic string, committed bool, values chan<- []byte) error {
	conf := sarama.NewConfig()
	if committed {
		conf.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	c, err := sarama.NewConsumer([]string{brokers}, conf)
	if err != nil {
		return err
	}
	p, err := c.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	for m := range p.Messages() {
		values <- m.Value
	}
	return errors.New("the partition's messages ended")
}

func segment(brokers, topic string, committed bool, values chan<- []byte) error {
	conf := segmentio.ReaderConfig{Brokers: []string{brokers}, Topic: topic, MaxWait: time.Second}
	if committed {
		conf.IsolationLevel = segmentio.ReadCommitted
	}
	r := segmentio.NewReader(conf)
	for {
		m, err := r.ReadMessage(context.Background())
		if err != nil {
			return err
		}
		values <- m.Value
	}
}
