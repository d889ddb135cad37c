// Package journal says how the topic has to be in which a stream that delivers exactly once
// names what it published, and makes it. docs/exactly-once.md has the rules.
package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Topic is a stream's journal on one Kafka cluster.
type Topic struct {
	Name string
	// Rows are the most of the stream in memory: that many may be published and not marked.
	Rows int
}

const (
	// rowBytes is about the most that the journal holds of a row: its name in a batch of its
	// own, with the marker that ends the transaction.
	rowBytes = 256
	// leastBytes is the least that is kept: statusupdater's 5,000 units of 1,000 usual ids each, or twice pipeline's
	// mostUnnoted rows of tables without state, each in a transaction of its own.
	leastBytes = 512 << 20
	// segmentBytes is how much is deleted at once.
	segmentBytes = 64 << 20
	// LeastMessage is the least max.message.bytes: one name has up to 64 KiB, and a batch at most
	// half of the limit.
	LeastMessage = 256 << 10
)

// KeepBytes is the least that the topic must keep: ten times the names of all rows in memory.
// It must not delete by time, however long nobody reads it.
func (t Topic) KeepBytes() int64 { return max(leastBytes, 10*rowBytes*int64(t.Rows)) }

// Settings of the topic, with as many replicas.
func (t Topic) Settings(replicas int) map[string]string {
	return map[string]string{
		"cleanup.policy":                 "delete",
		"retention.ms":                   "-1",
		"retention.bytes":                strconv.FormatInt(t.KeepBytes(), 10),
		"segment.bytes":                  strconv.Itoa(segmentBytes),
		"compression.type":               "producer",
		"min.insync.replicas":            strconv.Itoa(max(1, replicas-1)),
		"unclean.leader.election.enable": "false",
	}
}

// Replicas of the topic in a cluster with as many brokers.
func Replicas(brokers int) int { return min(3, max(1, brokers)) }

// Command makes the topic, for people who may.
func (t Topic) Command(bootstrap string, replicas int) string {
	var out strings.Builder
	fmt.Fprintf(&out, "kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions 1 --replication-factor %d", bootstrap, t.Name, replicas)
	settings := t.Settings(replicas)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&out, " --config %s=%s", name, settings[name])
	}
	return out.String()
}

// RemoveCommand removes the topic, for people who may.
func (t Topic) RemoveCommand(bootstrap string) string {
	return fmt.Sprintf("kafka-topics.sh --bootstrap-server %s --delete --topic %s", bootstrap, t.Name)
}

// ErrRefused says that we may not make or remove the topic, or that brokers do not want it so.
var ErrRefused = errors.New("the brokers refuse")

// Make makes the topic, unless it is there, and says how many replicas it has.
func (t Topic) Make(ctx context.Context, cfg sink.Config) (replicas int, err error) {
	controller, brokers, err := dialController(ctx, cfg, t.Name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = controller.Close() }() // it was only asked
	replicas = Replicas(brokers)
	entries := map[string]*string{}
	for name, value := range t.Settings(replicas) {
		entries[name] = &value
	}
	details := map[string]*sarama.TopicDetail{t.Name: {NumPartitions: 1, ReplicationFactor: int16(replicas), ConfigEntries: entries}} // #nosec G115 -- 1 to 3
	res, err := controller.CreateTopics(sarama.NewCreateTopicsRequest(sarama.MaxVersion, details, timeout(cfg), false))
	if err != nil {
		return 0, cfg.Explain(controller.Addr(), err)
	}
	answer := res.TopicErrors[t.Name]
	switch {
	case answer == nil:
		return 0, fmt.Errorf("broker %s did not say what became of topic %s", controller.Addr(), t.Name)
	case answer.Err == sarama.ErrTopicAlreadyExists:
		return replicas, nil
	case answer.ErrMsg != nil && *answer.ErrMsg != "":
		return replicas, t.refused("make", answer.Err, " ("+*answer.ErrMsg+")")
	}
	return replicas, t.refused("make", answer.Err, "")
}

// Remove removes the topic, if it is there.
func (t Topic) Remove(ctx context.Context, cfg sink.Config) error {
	controller, _, err := dialController(ctx, cfg, t.Name)
	if err != nil {
		return err
	}
	defer func() { _ = controller.Close() }() // it was only asked
	res, err := controller.DeleteTopics(sarama.NewDeleteTopicsRequest(sarama.MaxVersion, []string{t.Name}, timeout(cfg)))
	if err != nil {
		return cfg.Explain(controller.Addr(), err)
	}
	code, answered := res.TopicErrorCodes[t.Name]
	switch {
	case !answered:
		return fmt.Errorf("broker %s did not say what became of topic %s", controller.Addr(), t.Name)
	case code == sarama.ErrUnknownTopicOrPartition:
		return nil
	}
	return t.refused("remove", code, "")
}

func timeout(cfg sink.Config) time.Duration { return cmp.Or(cfg.RequestTimeout, 10*time.Second) }

// refused is the error of an answer, or nil.
func (t Topic) refused(what string, code sarama.KError, text string) error {
	switch code {
	case sarama.ErrNoError:
		return nil
	case sarama.ErrNotController, sarama.ErrRequestTimedOut:
		return fmt.Errorf("topic %s: %w", t.Name, code)
	}
	return fmt.Errorf("%w to %s topic %s: %w%s", ErrRefused, what, t.Name, code, text)
}

// dialController connects to the broker that makes topics, and counts the brokers. Asked for
// no topic at all, they would tell of every one.
func dialController(ctx context.Context, cfg sink.Config, topic string) (controller *sarama.Broker, brokers int, err error) {
	for _, address := range cfg.Brokers {
		var b *sarama.Broker
		if b, err = cfg.Dial(ctx, address); err != nil {
			continue
		}
		res, asked := b.GetMetadata(sarama.NewMetadataRequest(sarama.MaxVersion, []string{topic}))
		_ = b.Close() // it was only asked
		if asked != nil {
			err = cfg.Explain(address, asked)
			continue
		}
		for _, known := range res.Brokers {
			if known.ID() == res.ControllerID {
				controller, err = cfg.Dial(ctx, known.Addr())
				return controller, len(res.Brokers), err
			}
		}
		err = errors.New("the cluster has no controller at the moment")
	}
	return nil, 0, err
}
