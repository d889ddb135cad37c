// Package journal makes the topic in which a stream that delivers exactly once names what it
// published, and says how that topic has to be. docs/exactly-once.md has the rules.
package journal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Topic is a stream's journal on one Kafka cluster.
type Topic struct {
	Name string
	// Rows bounds the stream's rows in memory: so many may be published and not marked.
	Rows int
}

const (
	// rowBytes is about the most that a row takes in the journal: its name in a batch of its
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

// Settings of the topic, with so many replicas.
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

// Replicas of the topic in a cluster with so many brokers.
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
	controller, brokers, err := cfg.DialController(ctx, t.Name)
	if err != nil {
		return 0, err
	}
	defer controller.Close()
	replicas = Replicas(brokers)
	answer, text, err := controller.CreateTopic(t.Name, replicas, t.Settings(replicas))
	switch {
	case err != nil:
		return 0, err
	case answer == sink.TopicExists:
		return replicas, nil
	case text != "":
		text = " (" + text + ")"
	}
	return replicas, t.refused("make", answer, text)
}

// Remove removes the topic, if it is there.
func (t Topic) Remove(ctx context.Context, cfg sink.Config) error {
	controller, _, err := cfg.DialController(ctx, t.Name)
	if err != nil {
		return err
	}
	defer controller.Close()
	answer, err := controller.DeleteTopic(t.Name)
	switch {
	case err != nil:
		return err
	case answer == sink.UnknownTopic:
		return nil
	}
	return t.refused("remove", answer, "")
}

// refused is the error of an answer, or nil.
func (t Topic) refused(what string, code sink.Code, text string) error {
	switch code {
	case sink.NoError:
		return nil
	case sink.NotController, sink.RequestTimedOut:
		return fmt.Errorf("topic %s: %w", t.Name, code)
	}
	return fmt.Errorf("%w to %s topic %s: %w%s", ErrRefused, what, t.Name, code, text)
}
