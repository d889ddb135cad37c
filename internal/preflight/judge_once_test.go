package preflight

import (
	"maps"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/journal"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// soundOnce returns the facts of a sound stream with exactly-once delivery.
func soundOnce() *Facts {
	f := sound()
	topic := journal.Topic{Name: "__outbox-cdc-orders-journal", Rows: 10_000}
	f.Stream.Once = &Once{Journals: map[string]journal.Topic{"main": topic}, Timeout: 30 * time.Second}
	f.Table.Role.Tally = []string{"tally", "tally_left", "tally_unit"}
	c := &f.Kafka[0]
	settings := topic.Settings(3)
	settings["max.message.bytes"] = "1048588"
	c.Journal = &TopicFacts{
		Topic: sink.Topic{Name: topic.Name, Partitions: 1, Replicas: 3, InSync: 3, Operations: c.Topics[0].Operations, OperationsKnown: true}, Settings: settings,
	}
	c.Settings = map[string]string{"transaction.max.timeout.ms": "900000", "transaction.state.log.replication.factor": "3", "transaction.state.log.min.isr": "2"}
	c.RequireFencing, c.Verifies = true, true
	return f
}

func TestNothingIsSaidOfSoundTransactions(t *testing.T) {
	for _, f := range Judge(soundOnce()) {
		if f.Level != OK && f.Check != "shedlock" && f.Check != "slot-creation" {
			t.Errorf("%+v", f)
		}
	}
	for _, f := range Judge(sound()) {
		if f.Check == "tally" || f.Check == "journal" || f.Check == "transactions" {
			t.Errorf("of a stream that delivers at least once: %+v", f)
		}
	}
}

func TestJudgmentsOfExactlyOnce(t *testing.T) {
	is := func(name, value string) func(*Facts) {
		return func(f *Facts) { f.Kafka[0].Journal.Settings[name] = value }
	}
	kept := func(change func(*TopicFacts)) func(*Facts) { return func(f *Facts) { change(f.Kafka[0].Journal) } }
	broker := func(settings map[string]string) func(*Facts) {
		return func(f *Facts) { maps.Copy(f.Kafka[0].Settings, settings) }
	}
	opened := func(pid string) func(*Facts) {
		return func(f *Facts) {
			f.Leader = &replication.Holder{PID: pid}
			f.Tallies = []statestore.TallyState{{Cluster: "main", Open: true, Left: 1}}
		}
	}
	write := int32(1 << uint(mayWrite))
	for name, c := range map[string]struct {
		check  string
		level  Level
		change func(*Facts)
		want   []string
	}{
		"no tables":        {"tally", Fail, func(f *Facts) { f.Table.Role.Tally = nil }, []string{"outbox-cdc init --stream orders"}},
		"tables forbidden": {"tally", Fail, func(f *Facts) { f.Table.Role.TallyLacking = []string{"tally: UPDATE"} }, []string{"tally: UPDATE", "outbox_cdc.tally_left TO \"cdc\""}},

		"never opened": {"open-tally", OK, func(f *Facts) { f.Tallies = []statestore.TallyState{{Cluster: "main"}} }, []string{"closed"}},
		"open and led": {"open-tally", OK, opened("7"), []string{"as always", "1 published row is left to be marked"}},
		"left open":    {"open-tally", Warn, opened(""), []string{"was killed", "SIGTERM"}},
		"another's": {"open-tally", Fail, func(f *Facts) {
			f.Orphans = []statestore.Orphan{{Stream: "old", Cluster: "main", Table: "public.outbox"}}
		}, []string{"start stream old once more"}},
		"at least once before": {"open-tally", Fail, func(f *Facts) {
			f.Unclean = []statestore.Unclean{{Stream: "old", Table: "public.outbox", Delivery: "at_least_once"}}
		}, []string{"stream old delivers its rows at least once", "run refuses", "SIGTERM"}},
		"at least once now": {"open-tally", Warn, func(f *Facts) {
			f.Leader = &replication.Holder{PID: "7"}
			f.Unclean = []statestore.Unclean{{Stream: "orders", Table: "public.outbox", Delivery: "at_least_once"}}
		}, []string{"after a kill"}},
		"another id": {"open-tally", Fail, func(f *Facts) {
			opened("")(f)
			f.Unclean = []statestore.Unclean{{Stream: "orders", Delivery: "exactly_once", IDs: map[string]string{"main": "before"}}}
		}, []string{"transactional id before, not "}},
		"another id, closed": {"open-tally", OK, func(f *Facts) {
			f.Tallies = []statestore.TallyState{{Cluster: "main"}}
			f.Unclean = []statestore.Unclean{{Stream: "orders", Delivery: "exactly_once", IDs: map[string]string{"main": "before"}}}
		}, nil},
		"tally not seen": {"open-tally", Skip, func(f *Facts) { f.Missing["tallies"] = "no answer within 10s" }, []string{"no answer"}},

		"no journal":     {"journal", Fail, kept(func(t *TopicFacts) { t.Err = sink.UnknownTopic }), []string{"init --kafka --stream orders", "--partitions 1", "retention.ms=-1"}},
		"forbidden":      {"journal", Fail, kept(func(t *TopicFacts) { t.Err = sink.TopicForbidden }), []string{"--operation Write"}},
		"no leader":      {"journal", Fail, kept(func(t *TopicFacts) { t.Leaderless = 1 }), []string{"no leader"}},
		"two partitions": {"journal", Fail, kept(func(t *TopicFacts) { t.Partitions = 2 }), []string{"must have 1"}},
		"another journal": {"journal", Fail, func(f *Facts) {
			f.Kafka[0].Journal.ID = "now"
			f.Tallies = []statestore.TallyState{{Cluster: "other", Journal: "now"}, {Cluster: "main", Journal: "before"}}
		}, []string{"run refuses", "outbox-cdc journal reset --stream orders"}},
		"the same journal": {"journal", OK, func(f *Facts) {
			f.Kafka[0].Journal.ID = "now"
			f.Tallies = []statestore.TallyState{{Cluster: "other", Journal: "before"}, {Cluster: "main", Journal: "now"}}
		}, nil},
		"no READ":         {"journal", Fail, kept(func(t *TopicFacts) { t.Operations = write }), []string{"--operation Read --topic __outbox-cdc-orders-journal"}},
		"settings hidden": {"journal", Warn, kept(func(t *TopicFacts) { t.Settings = nil }), []string{"DescribeConfigs"}},
		"compacted":       {"journal", Fail, is("cleanup.policy", "compact"), []string{"cleanup.policy=delete"}},
		"a week":          {"journal", Fail, is("retention.ms", "604800000"), []string{"retention.ms=-1"}},
		"too small":       {"journal", Fail, is("retention.bytes", "1000000"), []string{"retention.bytes=536870912"}},
		"for ever":        {"journal", OK, is("retention.bytes", "-1"), nil},
		"compressed":      {"journal", Fail, is("compression.type", "zstd"), []string{"compression.type=producer"}},
		"uncompressed":    {"journal", OK, is("compression.type", "uncompressed"), nil},
		"unclean":         {"journal", Fail, is("unclean.leader.election.enable", "true"), []string{"unclean.leader.election.enable=false"}},
		"short records":   {"journal", Fail, is("max.message.bytes", "1000"), []string{"max.message.bytes=262144"}},
		"few in sync":     {"journal", Fail, kept(func(t *TopicFacts) { t.InSync = 1 }), []string{"takes no records"}},
		"one replica":     {"journal", Warn, kept(func(t *TopicFacts) { t.Replicas, t.InSync, t.Settings["min.insync.replicas"] = 1, 1, "1" }), []string{"one disk"}},
		"one suffices":    {"journal", Warn, is("min.insync.replicas", "1"), []string{"min.insync.replicas=2"}},
		"not asked":       {"journal", Skip, func(f *Facts) { f.Kafka[0].Journal = nil }, []string{"could not look"}},

		"not required":         {"transactions", Fail, func(f *Facts) { f.Kafka[0].RequireFencing = false }, []string{"fencing: required"}},
		"no transactions":      {"transactions", Fail, func(f *Facts) { f.Kafka[0].NoTransactions = "none" }, []string{"brokers with transactions"}},
		"Kafka 3.5":            {"transactions", Fail, func(f *Facts) { f.Kafka[0].Verifies = false }, []string{"3.6"}},
		"no room for a repair": {"transactions", Warn, broker(map[string]string{"transaction.max.timeout.ms": "60000"}), []string{"transaction.max.timeout.ms=900000"}},
		"short limit":          {"transactions", Fail, broker(map[string]string{"transaction.max.timeout.ms": "20000"}), []string{"timeout: 20000ms"}},
		"one log":              {"transactions", Warn, broker(map[string]string{"transaction.state.log.replication.factor": "1"}), []string{"1 replica"}},
		"one must":             {"transactions", Warn, broker(map[string]string{"transaction.state.log.min.isr": "1"}), []string{"min.isr=2"}},
		"hidden":               {"transactions", OK, func(f *Facts) { f.Kafka[0].Settings = nil }, []string{"may not be read"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := soundOnce()
			c.change(f)
			expect(t, worst(t, Judge(f), c.check), c.level, c.want...)
		})
	}
}
