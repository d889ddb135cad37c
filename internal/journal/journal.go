// Package journal makes and checks the topic of a journal. With exactly-once delivery, a stream's journal
// names the rows that it published. docs/exactly-once.md has the rules.
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
	// Rows is the largest number of the stream's rows in memory. So many rows may be published and not
	// marked.
	Rows int
}

const (
	// rowBytes is roughly the most bytes that a row takes in the journal: its name in a batch of its own,
	// with the marker at the end of the transaction.
	rowBytes = 256
	// leastBytes is how much is kept at least. It has room for the 5,000 units of statusupdater with 1,000
	// typical ids each, and for twice the mostUnnoted rows of pipeline (tables without state), each in a
	// transaction of its own.
	leastBytes = 512 << 20
	// segmentBytes is how much Kafka deletes at once.
	segmentBytes = 64 << 20
	// LeastMessage is the lowest permitted max.message.bytes. One name has up to 64 KiB, and a batch takes at
	// most half of the limit.
	LeastMessage = 256 << 10
)

// KeepBytes returns how many bytes the topic must keep at least: ten times the names of all rows in memory.
// The topic must not delete records by time, however long nobody reads it.
func (t Topic) KeepBytes() int64 { return max(leastBytes, 10*rowBytes*int64(t.Rows)) }

// Settings returns the topic's settings for the given number of replicas.
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

// Replicas returns how many replicas the topic gets in a cluster with this many brokers.
func Replicas(brokers int) int { return min(3, max(1, brokers)) }

// Command returns the command line that makes the topic, for people with the rights.
func (t Topic) Command(bootstrap string, replicas int) string {
	var out strings.Builder
	fmt.Fprintf(&out, "kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions 1 --replication-factor %d", bootstrap, t.Name, replicas)
	settings := t.Settings(replicas)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&out, " --config %s=%s", name, settings[name])
	}
	return out.String()
}

// RemoveCommand returns the command line that removes the topic, for people with the rights.
func (t Topic) RemoveCommand(bootstrap string) string {
	return fmt.Sprintf("kafka-topics.sh --bootstrap-server %s --delete --topic %s", bootstrap, t.Name)
}

// ErrRefused says that we may not make or remove the topic, or the brokers refuse its settings.
var ErrRefused = errors.New("the brokers refuse")

// Make makes the topic unless it exists, and returns its number of replicas.
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

// Remove removes the topic if it exists.
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

// refused returns the error of an answer, or nil.
func (t Topic) refused(what string, code sink.Code, text string) error {
	switch code {
	case sink.NoError:
		return nil
	case sink.NotController, sink.RequestTimedOut:
		return fmt.Errorf("topic %s: %w", t.Name, code)
	}
	return fmt.Errorf("%w to %s topic %s: %w%s", ErrRefused, what, t.Name, code, text)
}
