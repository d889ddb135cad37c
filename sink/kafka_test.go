package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/transport"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// values returns a topic's record values of one partition order.
func values(records []harness.Record) []string {
	out := make([]string, len(records))
	for i, r := range records {
		out[i] = string(r.Value)
	}
	return out
}

// inOrder fails unless exactly n records prefix0, prefix1, … are there, in order.
func inOrder(t *testing.T, records []harness.Record, prefix string, n int) {
	t.Helper()
	if len(records) != n {
		t.Errorf("%d records, want %d", len(records), n)
	}
	for i, r := range records {
		if want := fmt.Sprint(prefix, i); string(r.Value) != want {
			t.Fatalf("record %d at offset %d is %q, want %q", i, r.Offset, r.Value, want)
		}
	}
}

// privateKafka returns a cluster that a test may break. It takes seconds to start.
func privateKafka(t *testing.T, o harness.KafkaOptions) *harness.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("starts brokers of its own")
	}
	return harness.PrivateKafka(t, o)
}

func TestRealOversizedRowAmongGoodOnes(t *testing.T) {
	k := harness.Kafka(t)
	topic := fmt.Sprint("oversized-", time.Now().UnixNano())
	k.CreateTopic(t, topic, 1, map[string]string{"max.message.bytes": "20000"})
	for _, compression := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(compression, func(t *testing.T) {
			before := len(k.Records(t, topic))
			r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: topic, Compression: compression})
			good := rowsOf(topic, "good", "g", 300)
			bad := newRow(topic, "bad", noise(40_000))
			rows := append(append([]*outbox.Row{}, good[:100]...), newRow(topic, "bad", "first"), bad, newRow(topic, "bad", "later"))
			r.publish(append(rows, good[100:]...)...)
			r.expect(outbox.Delivered, 10*time.Second, good...)
			r.expect(outbox.Refused, 10*time.Second, bad)
			r.expect(outbox.Delivered, time.Second, rows[100])
			r.expect(outbox.Withdrawn, time.Second, rows[102])
			scope := outbox.KeyScope(bad)
			if o := r.fate[bad]; o.Scope != scope || !errors.Is(o.Err, sarama.ErrMessageSizeTooLarge) {
				t.Errorf("outcome %+v", o)
			}
			blocked := r.publish(rowsOf(topic, "bad", "again", 2)...)
			r.expect(outbox.Withdrawn, time.Second, blocked...)
			r.sink.Do(outbox.Command{Release: &scope})
			r.expect(outbox.Delivered, 5*time.Second, r.publish(newRow(topic, "bad", "released"))...)
			if got := len(k.Records(t, topic)) - before; got != 302 {
				t.Errorf("%d records", got)
			}
		})
	}
}

// noise does not compress.
func noise(n int) string {
	b, x := make([]byte, n), uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return string(b)
}

func TestRealNamedRecords(t *testing.T) {
	k := harness.Kafka(t)
	if !k.Real {
		t.Skip("kfake does not name guilty records")
	}
	topic := fmt.Sprint("compacted-", time.Now().UnixNano())
	k.CreateTopic(t, topic, 1, map[string]string{"cleanup.policy": "compact"})
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: topic})
	var rows, keyless []*outbox.Row
	for i := range 100 {
		row := newRow(topic, "k", fmt.Sprint("v", len(rows)-len(keyless)))
		if i%25 == 3 {
			row.Key = nil
			keyless = append(keyless, row)
		}
		rows = append(rows, row)
	}
	r.publish(rows...)
	r.expect(outbox.Refused, 10*time.Second, keyless...)
	inOrder(t, k.AwaitRecords(t, topic, 96, 5*time.Second), "v", 96)
}

// A quota of the client makes the broker ask for pauses, which are told.
func TestRealQuota(t *testing.T) {
	k := harness.Kafka(t)
	topic := k.Topic(t, 1)
	admin, err := sarama.NewClusterAdmin(k.Addrs, sarama.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	client := []sarama.QuotaEntityComponent{{EntityType: sarama.QuotaEntityClientID, MatchType: sarama.QuotaMatchExact, Name: topic}}
	if err := admin.AlterClientQuotas(client, sarama.ClientQuotasOp{Key: "producer_byte_rate", Value: 20_000}, false); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: topic, ClientID: topic, Compression: "none"})
	for n := 0; r.tally.throttled.Load() == 0; n++ { // until brokers know the quota, and then until it is used up
		if n == 60 {
			t.Fatal("no broker asked for a pause")
		}
		r.expect(outbox.Delivered, 60*time.Second, r.publish(newRow(topic, "k", noise(50_000)))...)
	}
}

// A partition of one replica is empty after its disk broke: what was acknowledged is gone, and the log says so.
func TestRealAcknowledgedRecordsAreLost(t *testing.T) {
	t.Parallel()
	k := privateKafka(t, harness.KafkaOptions{})
	topic := k.Topic(t, 1)
	var log bytes.Buffer
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "lost", Log: zerolog.New(&log)})
	r.expect(outbox.Delivered, 30*time.Second, r.publish(rowsOf(topic, "k", "v", 5)...)...)
	k.Nodes[0].Stop()
	k.Nodes[0].Lose(t, topic, 0)
	k.Nodes[0].Start(t)
	for range 2 { // the first one may be sent twice, so it shows nothing
		r.expect(outbox.Delivered, 30*time.Second, r.publish(newRow(topic, "k", "after"))...)
	}
	r.stop()
	<-r.done
	r.finished = true
	if !strings.Contains(log.String(), lost(topic)) {
		t.Errorf("the log has no %q:\n%s", lost(topic), &log)
	}
}

func TestRealBrokerKilledUnderLoad(t *testing.T) {
	t.Parallel()
	k := privateKafka(t, harness.KafkaOptions{})
	topic := k.Topic(t, 1)
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "killed", BatchRows: 200})
	r.usable(20*time.Second, true)
	const n = 60_000
	rows := rowsOf(topic, "hot", "v", n)
	half := make(chan struct{})
	go func() {
		for i := 0; i < n; i += 100 {
			r.publish(rows[i : i+100]...)
			if i == n/2 {
				close(half)
			}
			time.Sleep(time.Millisecond) // load, not a wait
		}
	}()
	<-half
	k.Nodes[0].Kill()
	state := r.usable(10*time.Second, false)
	if !strings.Contains(state.Err.Error(), k.Addrs[0]) {
		t.Errorf("the error names no broker: %v", state.Err)
	}
	k.Nodes[0].Start(t)
	r.usable(10*time.Second, true)
	r.expect(outbox.Delivered, 30*time.Second, rows...)
	inOrder(t, k.Records(t, topic), "v", n)
	t.Logf("%d batches were sent again", r.tally.retries.Load()) // none, where the broker had answered all
}

func TestRealLostAcknowledgement(t *testing.T) {
	t.Parallel()
	k := privateKafka(t, harness.KafkaOptions{Proxied: true})
	topic := k.Topic(t, 1)
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "lost", RequestTimeout: time.Second})
	r.expect(outbox.Delivered, 20*time.Second, r.publish(newRow(topic, "k", "v0"))...)
	for round := range 3 {
		k.Proxies[0].Silence(harness.Replies)
		row := newRow(topic, "k", fmt.Sprint("v", 1+2*round))
		r.publish(row)
		harness.Eventually(t, 5*time.Second, func() error { // it is in the log, and we do not know
			if got := k.Count(t, topic); got != 2+2*round {
				return fmt.Errorf("%d records", got)
			}
			return nil
		})
		next := newRow(topic, "k", fmt.Sprint("v", 2+2*round))
		r.publish(next)
		k.Proxies[0].Speak()
		r.expect(outbox.Delivered, 10*time.Second, row, next)
	}
	inOrder(t, k.Records(t, topic), "v", 7)
}

// TestRealLandedThenRefused: the first try was appended, and its answer was lost. The retry is refused,
// because the limit was lowered in between. No row is charged.
func TestRealLandedThenRefused(t *testing.T) {
	t.Parallel()
	k := privateKafka(t, harness.KafkaOptions{Proxied: true})
	topic := k.Topic(t, 1)
	var log bytes.Buffer
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "landed", RequestTimeout: time.Second, Log: zerolog.New(&log)})
	r.expect(outbox.Delivered, 20*time.Second, r.publish(newRow(topic, "k", "v0"))...)
	k.Proxies[0].Silence(harness.Replies)
	big := newRow(topic, "k", noise(50_000))
	r.publish(big)
	harness.Eventually(t, 5*time.Second, func() error {
		if got := k.Count(t, topic); got != 2 {
			return fmt.Errorf("%d records", got)
		}
		return nil
	})
	k.ConfigureTopic(t, topic, map[string]string{"max.message.bytes": "10000"})
	k.Proxies[0].Speak()
	r.expect(outbox.Delivered, 15*time.Second, big)
	r.expect(outbox.Delivered, 5*time.Second, r.publish(newRow(topic, "k", "after"))...)
	if got := values(k.Records(t, topic)); len(got) != 3 || got[2] != "after" {
		t.Errorf("%d records", len(got))
	}
	r.stop() // ends what writes the log
	if err := <-r.done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	r.finished = true
	if !strings.Contains(log.String(), "searching the partition log for a batch whose outcome is unknown") {
		t.Errorf("the batch was not looked for: %s", &log)
	}
}

// TestRealZombieIsFenced: the second Sink of a transactional id fences the first one, including the batches
// that the first one has on their way.
func TestRealZombieIsFenced(t *testing.T) {
	t.Parallel()
	k := privateKafka(t, harness.KafkaOptions{Proxied: true})
	topic := k.Topic(t, 4)
	old := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "leader", Topics: []string{topic}, RequestTimeout: 3 * time.Second})
	for i := range 8 {
		old.publish(newRow(topic, fmt.Sprint("k", i), "old"))
	}
	harness.Eventually(t, 20*time.Second, func() error {
		if got := k.Count(t, topic); got != 8 {
			return fmt.Errorf("%d records", got)
		}
		return nil
	})
	k.Proxies[0].Slow(harness.Requests, 2*time.Second)
	for i := range 8 {
		old.publish(newRow(topic, fmt.Sprint("k", i), "late"))
	}
	young := newRig(t, Config{Brokers: k.Direct, TransactionalID: "leader", Topics: []string{topic}})
	young.usable(10*time.Second, true)
	for i := range 8 {
		young.publish(newRow(topic, fmt.Sprint("k", i), "young"))
	}
	select {
	case err := <-old.done:
		old.finished = true
		if !errors.Is(err, ErrFenced) {
			t.Errorf("the old one ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the old one goes on")
	}
	records := k.AwaitRecords(t, topic, 16, 10*time.Second)
	for _, v := range values(records) {
		if v == "late" {
			t.Error("a late batch landed")
		}
	}
	if len(records) != 16 {
		t.Errorf("%d records", len(records))
	}
}

// TestRealCleanStopsAreNotFencedAgain: as long as each sink leaves its fences to the next one, only rows are
// written to the topic. After a kill, each partition gets a marker.
func TestRealCleanStopsAreNotFencedAgain(t *testing.T) {
	k := harness.Kafka(t)
	if !k.Real {
		t.Skip("kfake has no markers")
	}
	const partitions, restarts = 3, 20
	topic := k.Topic(t, partitions)
	var before *outbox.Fences
	published := 0
	run := func() *rig {
		r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: topic, Topics: []string{topic}, Before: before})
		r.expect(outbox.Delivered, 20*time.Second, r.publish(newRow(topic, "k", fmt.Sprint("v", published)))...)
		published++
		return r
	}
	markers := func(what string, want int64) {
		t.Helper()
		end, err := k.End(t.Context(), topic)
		if got := end - int64(published); err != nil || got != want {
			t.Fatalf("%s there are %d markers, want %d: %v", what, got, want, err)
		}
	}
	for i := range restarts {
		r := run()
		markers(fmt.Sprintf("after start %d", i), partitions)
		if before = r.sink.Leave(t.Context()); before == nil || len(before.Topics[topic].Partitions) != partitions {
			t.Fatalf("it leaves %+v", before)
		}
		r.stop()
	}
	run().stop() // killed: what it was told holds for nobody after it
	markers("after a last clean start", partitions)
	run()
	markers("after a kill", 2*partitions)
	inOrder(t, k.Records(t, topic), "v", published)
}

func TestRealWrongPassword(t *testing.T) {
	t.Parallel()
	const jaas = `org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="a" user_cdc="right";`
	k := privateKafka(t, harness.KafkaOptions{
		Listeners: []harness.Listener{{Name: "SAFE", Protocol: "SASL_PLAINTEXT"}},
		Settings: map[string]string{
			"sasl.enabled.mechanisms":                   "PLAIN",
			"listener.name.safe.plain.sasl.jaas.config": jaas,
		},
	})
	topic := k.Topic(t, 1)
	wrong := newRig(t, Config{Brokers: k.AddrsOf("SAFE"), SASL: &SASL{Mechanism: transport.SASLPlain, Username: "cdc", Password: "wrong"}})
	state := wrong.usable(10*time.Second, false)
	for _, want := range []string{k.AddrsOf("SAFE")[0], "refused our credentials", `"cdc"`} {
		if !strings.Contains(state.Err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, state.Err)
		}
	}
	if !errors.Is(state.Err, sarama.ErrSASLAuthenticationFailed) {
		t.Errorf("unclear: %v", state.Err)
	}
	right := newRig(t, Config{Brokers: k.AddrsOf("SAFE"), SASL: &SASL{Mechanism: transport.SASLPlain, Username: "cdc", Password: "right"}, TransactionalID: "tx"})
	right.expect(outbox.Delivered, 20*time.Second, right.publish(newRow(topic, "k", "v"))...)
	without := newRig(t, Config{Brokers: k.AddrsOf("SAFE")})
	if state := without.usable(10*time.Second, false); !strings.Contains(state.Err.Error(), k.AddrsOf("SAFE")[0]) {
		t.Errorf("without SASL: %v", state.Err)
	}
}

func TestRealMissingTopic(t *testing.T) {
	k := harness.Kafka(t)
	topic := fmt.Sprint("missing-", time.Now().UnixNano())
	other := k.Topic(t, 1)
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: topic, TopicGrace: 500 * time.Millisecond})
	rows := r.publish(rowsOf(topic, "k", "v", 5)...)
	r.expect(outbox.Delivered, 20*time.Second, r.publish(newRow(other, "k", "v"))...)
	r.expect(outbox.Withdrawn, 5*time.Second, rows...)
	scope := outbox.TopicScope("main", topic)
	if o := r.fate[rows[0]]; o.Scope != scope || !errors.Is(o.Err, sarama.ErrUnknownTopicOrPartition) {
		t.Errorf("outcome %+v", o)
	}
	r.expect(outbox.Withdrawn, time.Second, r.publish(newRow(topic, "k", "meanwhile"))...)
	k.CreateTopic(t, topic, 3, nil)
	r.sink.Do(outbox.Command{Release: &scope})
	r.expect(outbox.Delivered, 10*time.Second, r.publish(rowsOf(topic, "k", "v", 5)...)...)
	inOrder(t, k.Records(t, topic), "v", 5)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.said {
		if !s.Usable {
			t.Errorf("a missing topic made the cluster unusable: %v", s.Err)
		}
	}
}

func TestRealRecreatedTopic(t *testing.T) {
	k := harness.Kafka(t)
	if !k.Real {
		t.Skip("needs topic ids")
	}
	topic := k.Topic(t, 1)
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: topic, MetadataRefresh: 200 * time.Millisecond, TopicGrace: time.Minute})
	r.expect(outbox.Delivered, 20*time.Second, r.publish(rowsOf(topic, "k", "old", 3)...)...)
	k.DeleteTopic(t, topic)
	k.CreateTopic(t, topic, 1, nil)
	scope := outbox.TopicScope("main", topic)
	r.until("topic was made again", 10*time.Second, func() bool {
		row := newRow(topic, "k", "probe")
		r.publish(row)
		for _, o := range r.order {
			if o.Class == outbox.Withdrawn && errors.Is(o.Err, errRecreated) && o.Scope == scope {
				return true
			}
		}
		return false
	})
	before := k.Count(t, topic)
	r.sink.Do(outbox.Command{Release: &scope})
	r.expect(outbox.Delivered, 10*time.Second, r.publish(rowsOf(topic, "k", "v", 5)...)...)
	inOrder(t, k.Records(t, topic)[before:], "v", 5)
}

func TestRealPartitionsAdded(t *testing.T) {
	k := harness.Kafka(t)
	topic := k.Topic(t, 2)
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: topic, MetadataRefresh: 100 * time.Millisecond})
	var rows []*outbox.Row
	grown := false
	harness.Eventually(t, 30*time.Second, func() error {
		for i := range 50 {
			rows = append(rows, newRow(topic, fmt.Sprint("k", i%10), fmt.Sprint(len(rows))))
		}
		r.publish(rows[len(rows)-50:]...)
		if !grown && len(rows) > 500 {
			k.AddPartitions(t, topic, 5)
			grown = true
		}
		for _, rec := range k.Records(t, topic) {
			if rec.Partition >= 2 {
				return nil
			}
		}
		return fmt.Errorf("nothing in the new partitions after %d rows", len(rows))
	})
	r.expect(outbox.Delivered, 20*time.Second, rows...)
	r.mu.Lock()
	defer r.mu.Unlock()
	last := map[string]int{}
	for _, o := range r.order {
		for _, row := range o.Rows {
			var i int
			_, _ = fmt.Sscan(string(row.Value), &i)
			if before, ok := last[string(row.Key)]; ok && i != before+10 {
				t.Fatalf("key %s: %d after %d", row.Key, i, before)
			}
			last[string(row.Key)] = i
		}
	}
}

// TestRealLeadersMove: brokers are stopped, killed and started again under load. Each partition's log has
// each row once, in order.
func TestRealLeadersMove(t *testing.T) {
	t.Parallel()
	k := privateKafka(t, harness.KafkaOptions{Brokers: 3, Settings: map[string]string{"min.insync.replicas": "2"}})
	topic := k.Topic(t, 6)
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "moving", BatchRows: 100})
	r.usable(30*time.Second, true)
	stop, stopped := make(chan struct{}), make(chan []*outbox.Row)
	go func() {
		var rows []*outbox.Row
		defer func() { stopped <- rows }()
		pace := time.NewTicker(5 * time.Millisecond)
		defer pace.Stop()
		for {
			select {
			case <-stop:
				return
			case <-pace.C:
			}
			for p := range int32(6) {
				row := newRow(topic, fmt.Sprint("k", p), fmt.Sprint("v", len(rows)/6))
				row.Partition = p
				rows = append(rows, row)
			}
			r.publish(rows[len(rows)-6:]...)
		}
	}()
	progress := func(within time.Duration) {
		t.Helper()
		var before int
		r.until("", time.Second, func() bool { before = len(r.fate); return true })
		r.until("rows go on", within, func() bool { return len(r.fate) > before+1000 })
	}
	progress(30 * time.Second)
	k.Nodes[1].Stop()
	progress(40 * time.Second)
	k.Nodes[1].Start(t)
	progress(40 * time.Second)
	k.Nodes[2].Kill()
	progress(60 * time.Second)
	k.Nodes[2].Start(t)
	progress(40 * time.Second)
	close(stop)
	rows := <-stopped
	r.expect(outbox.Delivered, 60*time.Second, rows...)
	byPartition := map[int32][]harness.Record{}
	for _, rec := range k.Records(t, topic) {
		byPartition[rec.Partition] = append(byPartition[rec.Partition], rec)
	}
	for p := range int32(6) {
		inOrder(t, byPartition[p], "v", len(rows)/6)
	}
}
