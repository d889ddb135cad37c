package sink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// refuse makes kfake answer the next n produce requests with a code, without appending anything.
func refuse(c *kfake.Cluster, n int32, code int16) *atomic.Int32 {
	var done atomic.Int32
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if done.Add(1) > n {
			return nil, nil, false
		}
		preq, ok := req.(*kmsg.ProduceRequest)
		if !ok {
			return nil, nil, false
		}
		res, ok := preq.ResponseKind().(*kmsg.ProduceResponse)
		if !ok {
			return nil, nil, false
		}
		for _, t := range preq.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode, rp.BaseOffset = p.Partition, code, -1
				rt.Partitions = append(rt.Partitions, rp)
			}
			res.Topics = append(res.Topics, rt)
		}
		return res, nil, true
	})
	return &done
}

// TestPassingErrors: while passing errors are answered, each row gets its outcome, in order.
func TestPassingErrors(t *testing.T) {
	t.Parallel()
	for _, code := range []int16{-1, 2, 3, 5, 6, 7, 8, 9, 13, 14, 19, 20, 31, 45, 46, 47, 53, 56, 59, 74, 76, 89, 131} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			k := harness.Kfake(t, kfake.SeedTopics(2, "t"))
			r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "tx"})
			r.expect(outbox.Delivered, 5*time.Second, r.publish(newRow("t", "k", "v0"))...)
			refuse(k.Fake, 1, code)
			rows := append(r.publish(newRow("t", "k", "v1")), r.publish(newRow("t", "k", "v2"))...)
			r.expect(outbox.Delivered, 8*time.Second, rows...)
			if code == 46 { // brokers never answer this; it would mean that the batch is in the log
				return
			}
			inOrder(t, k.Records(t, "t"), "v", 3)
		})
	}
}

// TestClusterAuthorisation: an error of authorization is retried slowly, makes the cluster unusable, and is
// not charged to any row.
func TestClusterAuthorisation(t *testing.T) {
	t.Parallel()
	k := harness.Kfake(t, kfake.SeedTopics(1, "t"))
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "tx", OutageAfter: 10 * time.Millisecond})
	r.usable(5*time.Second, true)
	refuse(k.Fake, 3, 31)
	row := r.publish(newRow("t", "k", "v0"))
	if s := r.usable(5*time.Second, false); !errors.Is(s.Err, sarama.ErrClusterAuthorizationFailed) {
		t.Error(s.Err)
	}
	r.expect(outbox.Delivered, 5*time.Second, row...)
	r.usable(time.Second, true)
}

func TestTopicNotAuthorised(t *testing.T) {
	t.Parallel()
	k := harness.Kfake(t, kfake.SeedTopics(1, "t", "other"))
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "tx", Topics: []string{"t", "other"}})
	r.usable(5*time.Second, true)
	refuse(k.Fake, 1, 29)
	rows := r.publish(newRow("t", "k", "v0"), newRow("t", "", "v1"))
	r.expect(outbox.Withdrawn, 5*time.Second, rows...)
	scope := outbox.TopicScope("main", "t")
	for _, row := range rows {
		if o := r.fate[row]; o.Scope != scope || !errors.Is(o.Err, sarama.ErrTopicAuthorizationFailed) {
			t.Errorf("%+v", o)
		}
	}
	r.expect(outbox.Delivered, 5*time.Second, r.publish(newRow("other", "k", "v0"))...)
	elsewhere := outbox.TopicScope("other", "t")
	r.sink.Do(outbox.Command{Release: &elsewhere})
	r.expect(outbox.Withdrawn, time.Second, r.publish(newRow("t", "k", "v0"))...)
	r.sink.Do(outbox.Command{Release: &scope})
	r.expect(outbox.Delivered, 5*time.Second, r.publish(newRow("t", "k", "v0"))...)
	inOrder(t, k.Records(t, "t"), "v", 1)
}

// TestTopicErrorsOfRowsThemselves: if the table's fail_on names the error, the rows of a forbidden topic are
// refused one by one, and the topic is not blocked. A missing topic is still blocked.
func TestTopicErrorsOfRowsThemselves(t *testing.T) {
	t.Parallel()
	k := harness.Kfake(t, kfake.SeedTopics(1, "t"))
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "tx", Topics: []string{"t"}, TopicGrace: 10 * time.Millisecond})
	r.usable(5*time.Second, true)
	refuse(k.Fake, 1, 29)
	first, second, keyless := newRow("t", "k", "v0"), newRow("t", "k", "v1"), newRow("t", "", "v2")
	for _, row := range []*outbox.Row{first, second, keyless} {
		row.Table = ownTable
	}
	r.publish(first, second, keyless)
	r.expect(outbox.Refused, 5*time.Second, first, keyless)
	r.expect(outbox.Withdrawn, 5*time.Second, second)
	o := r.fate[first]
	if !o.Blocked || o.Scope != outbox.KeyScope(first) || !strings.HasPrefix(o.Err.Error(), "TOPIC_AUTHORIZATION_FAILED: topic t") {
		t.Errorf("%+v", o)
	}
	if o = r.fate[keyless]; o.Blocked {
		t.Errorf("%+v", o)
	}
	// No outcome said that the topic is blocked, and it is not.
	r.expect(outbox.Delivered, 5*time.Second, r.publish(newRow("t", "k", "v0"))...)
	scope := outbox.KeyScope(first)
	r.sink.Do(outbox.Command{Release: &scope})
	again := newRow("t", "k", "v1")
	again.Table = ownTable
	r.expect(outbox.Delivered, 5*time.Second, r.publish(again)...)
	missing := newRow("none", "k", "v0")
	missing.Table = ownTable
	r.expect(outbox.Withdrawn, 5*time.Second, r.publish(missing)...)
	table := *ownTable
	table.Mapping.FailOn = []outbox.TopicError{outbox.TopicMissing}
	gone := newRow("gone", "", "v0")
	gone.Table = &table
	r.expect(outbox.Refused, 5*time.Second, r.publish(gone)...)
	if err := r.fate[gone].Err; !strings.HasPrefix(err.Error(), "UNKNOWN_TOPIC_OR_PARTITION: topic gone does not exist") {
		t.Error(err)
	}
}

// If a table's fail_on names errors, other errors are not charged to its rows. A record that is too large is
// always charged.
func TestErrorsThatATableTakesForPassing(t *testing.T) {
	t.Parallel()
	k := harness.Kfake(t, kfake.SeedTopics(1, "t"))
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "tx", Topics: []string{"t"}})
	r.usable(5*time.Second, true)
	for code, uncharged := range map[int16]bool{int16(sarama.ErrInvalidRecord): true, int16(sarama.ErrMessageSizeTooLarge): false} {
		for table, passing := range map[*outbox.Table]bool{ownTable: uncharged, newRow("t", "", "").Table: false} {
			refuse(k.Fake, 1, code)
			row := newRow("t", "", "v")
			row.Table = table
			r.expect(outbox.Refused, 5*time.Second, r.publish(row)...)
			if o := r.fate[row]; o.Uncharged != passing {
				t.Errorf("code %d, table %s: uncharged %v", code, table, o.Uncharged)
			}
		}
	}
}

// TestOutage: a broker that is away for a while gets all rows, in order. The cluster is reported unusable
// once, and usable once.
func TestOutage(t *testing.T) {
	k := harness.KfakeProxied(t, kfake.SeedTopics(3, "t"))
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "tx", OutageAfter: 200 * time.Millisecond})
	r.usable(5*time.Second, true)
	k.Cut()
	rows := r.publish(rowsOf("t", "k", "v", 1000)...)
	state := r.usable(5*time.Second, false)
	if !strings.Contains(state.Err.Error(), k.Addrs[0]) {
		t.Errorf("no broker named: %v", state.Err)
	}
	withdrawn := r.publish(newRow("t", "other", "x"))
	scope := outbox.KeyScope(withdrawn[0])
	r.sink.Do(outbox.Command{Withdraw: &scope})
	r.expect(outbox.Withdrawn, time.Second, withdrawn...)
	k.Restore(t)
	r.expect(outbox.Delivered, 10*time.Second, rows...)
	r.usable(time.Second, true)
	inOrder(t, k.Records(t, "t"), "v", 1000)
	changes := slices.CompactFunc(slices.Clone(r.said), func(a, b outbox.ClusterState) bool { return a.Usable == b.Usable })
	if len(changes) != 3 { // the cluster is reported unusable once more, with another reason
		t.Errorf("states %v", r.said)
	}
}

// TestAnotherReason: when the reason why the cluster cannot be used changes, it is reported again, but not
// with every try.
func TestAnotherReason(t *testing.T) {
	t.Parallel()
	k := harness.Kfake(t, kfake.SeedTopics(1, "t"))
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "tx", OutageAfter: 50 * time.Millisecond})
	r.usable(5*time.Second, true)
	refuse(k.Fake, 5, int16(sarama.ErrNotLeaderForPartition))
	tries := refuse(k.Fake, 5, int16(sarama.ErrNotEnoughReplicas))
	rows := r.publish(rowsOf("t", "k", "v", 10)...)
	r.expect(outbox.Delivered, 10*time.Second, rows...)
	r.usable(time.Second, true)
	if len(r.said) != 4 || tries.Load() <= 5 {
		t.Fatalf("%d tries, states %v", tries.Load(), r.said)
	}
	if first, then := r.said[1], r.said[2]; !errors.Is(first.Err, sarama.ErrNotLeaderForPartition) || !errors.Is(then.Err, sarama.ErrNotEnoughReplicas) || then.Usable {
		t.Errorf("states %v", r.said)
	}
	inOrder(t, k.Records(t, "t"), "v", 10)
}

// TestUnreachableFromTheStart: an outage at the start is reported at once, and ends when a broker appears.
func TestUnreachableFromTheStart(t *testing.T) {
	t.Parallel()
	k := harness.KfakeProxied(t, kfake.SeedTopics(1, "t"))
	k.Cut()
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "tx", OutageAfter: time.Hour})
	r.usable(5*time.Second, false)
	row := r.publish(newRow("t", "k", "v0"))
	k.Restore(t)
	r.usable(5*time.Second, true)
	r.expect(outbox.Delivered, 5*time.Second, row...)
}

// TestConnectionsCutUnderLoad loses answers at random places.
func TestConnectionsCutUnderLoad(t *testing.T) {
	t.Parallel()
	k := harness.KfakeProxied(t, kfake.SeedTopics(1, "t"))
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "tx", BatchRows: 50})
	r.usable(5*time.Second, true)
	var rows []*outbox.Row
	for i := range 20 {
		more := make([]*outbox.Row, 500)
		for j := range more {
			more[j] = newRow("t", "k", fmt.Sprint("v", 500*i+j))
		}
		rows = append(rows, r.publish(more...)...)
		r.until("some progress", 10*time.Second, func() bool { return len(r.fate) > 500*i })
		k.Proxies[0].Cut()
	}
	r.expect(outbox.Delivered, 20*time.Second, rows...)
	inOrder(t, k.Records(t, "t"), "v", len(rows))
}

// TestStopsAtOnce: Run returns although a broker does not answer.
func TestStopsAtOnce(t *testing.T) {
	k := harness.KfakeProxied(t, kfake.SeedTopics(1, "t"))
	p := &permit{}
	p.set(time.Hour)
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "tx", Until: p.Until})
	r.expect(outbox.Delivered, 5*time.Second, r.publish(newRow("t", "k", "v"))...)
	k.Proxies[0].Silence(harness.Requests, harness.Replies)
	before := p.asked.Load()
	r.publish(newRow("t", "k", "v"))
	r.until("a second request", 5*time.Second, func() bool { return p.asked.Load() > before+1 }) // for the batch, and when it is sent
	begin := time.Now()
	r.stop()
	err := <-r.done
	r.finished = true
	if took := time.Since(begin); took > 4*time.Second || !errors.Is(err, context.Canceled) {
		t.Errorf("%v after %v", err, took)
	}
}

func TestHeadersKeysAndTimestamps(t *testing.T) {
	k := harness.Kfake(t, kfake.SeedTopics(4, "t"))
	r := newRig(t, Config{Brokers: k.Addrs})
	full := newRow("t", "k", "v")
	full.Headers = []outbox.Header{{Name: "id", Value: []byte("1")}, {Name: "null"}, {Name: "", Value: []byte{}}}
	full.Timestamp, full.Partition = 1_700_000_000_123, 2
	older := newRow("t", "k", "older")
	older.Timestamp, older.Partition = 1_600_000_000_000, 2
	tombstone := newRow("t", "", "")
	tombstone.Value = nil
	empty := newRow("t", "", "")
	empty.Key, empty.Value, empty.Partition = []byte{}, []byte{}, 3
	before := time.Now().Add(-time.Second)
	r.expect(outbox.Delivered, 5*time.Second, r.publish(full, older, tombstone, empty)...)
	for _, rec := range k.Records(t, "t") {
		switch string(rec.Value) {
		case "v":
			if rec.Partition != 2 || rec.Timestamp.UnixMilli() != full.Timestamp || len(rec.Headers) != 3 {
				t.Errorf("%+v", rec)
			}
			if h := rec.Headers; string(h[0].Value) != "1" || h[1].Value != nil || h[2].Name != "" || h[2].Value == nil {
				t.Errorf("headers %+v", h)
			}
		case "older":
			if rec.Timestamp.UnixMilli() != older.Timestamp {
				t.Errorf("timestamp %v", rec.Timestamp)
			}
		default:
			if rec.Timestamp.Before(before) {
				t.Errorf("timestamp %v", rec.Timestamp)
			}
			if rec.Key == nil != (rec.Value == nil) {
				t.Errorf("null and empty mixed up: %+v", rec)
			}
		}
	}
	beyond := newRow("t", "k", "x")
	beyond.Partition = 9
	r.expect(outbox.Refused, 5*time.Second, r.publish(beyond)...)
	if err := r.fate[beyond].Err; !strings.Contains(err.Error(), "partition 9") {
		t.Error(err)
	}
}

func TestRecordsWithoutKeySpread(t *testing.T) {
	k := harness.Kfake(t, kfake.SeedTopics(6, "t"))
	r := newRig(t, Config{Brokers: k.Addrs})
	var rows []*outbox.Row
	for range 200 {
		rows = append(rows, r.publish(rowsOf("t", "", strings.Repeat("x", 1000), 20)...)...)
	}
	r.expect(outbox.Delivered, 10*time.Second, rows...)
	counts := map[int32]int{}
	for _, rec := range k.Records(t, "t") {
		counts[rec.Partition]++
	}
	for p := range int32(6) {
		if counts[p] < len(rows)/30 {
			t.Errorf("partition %d got %d of %d", p, counts[p], len(rows))
		}
	}
}

func TestKeepAlive(t *testing.T) {
	k := harness.Kfake(t, kfake.SeedTopics(2, "t"))
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "tx", KeepAlive: 20 * time.Millisecond, Topics: []string{"t"}})
	r.usable(5*time.Second, true)
	var ended atomic.Int32
	k.Fake.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		k.Fake.KeepControl()
		ended.Add(1)
		return nil, nil, false
	})
	var rows []*outbox.Row
	for ended.Load() < 5 {
		row := newRow("t", "k", fmt.Sprint("v", len(rows)))
		r.expect(outbox.Delivered, 5*time.Second, r.publish(row)...)
		rows = append(rows, row)
	}
	inOrder(t, k.Records(t, "t"), "v", len(rows))
}

func TestWithdrawGivesBackWhatWasNeverSent(t *testing.T) {
	t.Parallel()
	k := harness.KfakeProxied(t, kfake.SeedTopics(1, "t"))
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "tx", BatchRows: 10, RequestTimeout: time.Second})
	r.expect(outbox.Delivered, 5*time.Second, r.publish(newRow("t", "k", "v0"))...)
	k.Proxies[0].Silence(harness.Replies)
	sent := r.publish(newRow("t", "k", "v1"))
	harness.Eventually(t, 5*time.Second, func() error {
		if n := k.Count(t, "t"); n != 2 {
			return fmt.Errorf("%d records", n)
		}
		return nil
	})
	queued := r.publish(rowsOf("t", "k", "queued", 30)...)
	all := outbox.StreamScope()
	r.sink.Do(outbox.Command{Withdraw: &all})
	r.expect(outbox.Withdrawn, time.Second, queued...)
	if o := r.fate[queued[0]]; o.Scope != all || o.Err != nil {
		t.Errorf("%+v", o)
	}
	again := r.publish(newRow("t", "k", "v2"))
	k.Proxies[0].Speak()
	r.expect(outbox.Delivered, 10*time.Second, append(sent, again...)...)
	inOrder(t, k.Records(t, "t"), "v", 3)
}

// TestLargerThanAnyRequest: if sarama refuses to encode a row, the fault is the row's.
func TestLargerThanAnyRequest(t *testing.T) {
	before := sarama.MaxRequestSize
	sarama.MaxRequestSize = 1 << 20
	t.Cleanup(func() { sarama.MaxRequestSize = before })
	k := harness.Kfake(t, kfake.SeedTopics(3, "t"))
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "tx", RequestBytes: 1 << 19, BatchBytes: 1 << 18})
	var good []*outbox.Row
	for i := range 100 {
		good = append(good, newRow("t", fmt.Sprint("k", i), "v"))
	}
	huge := newRow("t", "huge", string(make([]byte, 2<<20)))
	r.publish(append(append(good[:50:50], huge), good[50:]...)...)
	r.expect(outbox.Delivered, 5*time.Second, good...)
	r.expect(outbox.Refused, 5*time.Second, huge)
}

// TestLowTransactionTimeout: a broker that allows only short transactions.
func TestLowTransactionTimeout(t *testing.T) {
	t.Parallel()
	k := harness.Kfake(t, kfake.SeedTopics(1, "t"), kfake.BrokerConfigs(map[string]string{"transaction.max.timeout.ms": "10000"}))
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "tx"})
	r.expect(outbox.Delivered, 5*time.Second, r.publish(newRow("t", "k", "v"))...)
	if r.sink.Fencing() != FencingOn {
		t.Error("not fencing")
	}
}

// No row is published to a journal, whichever stream the journal belongs to. Other rows are published.
func TestNoRowGoesIntoAJournal(t *testing.T) {
	t.Parallel()
	k := harness.Kfake(t, kfake.SeedTopics(1, "t", "journal"))
	r := newRig(t, Config{Brokers: k.Addrs, Journals: []string{"journal"}})
	bad, good := newRow("journal", "k", "v"), newRow("t", "k", "v")
	r.publish(bad, good)
	r.expect(outbox.Withdrawn, 30*time.Second, bad)
	r.expect(outbox.Delivered, 30*time.Second, good)
	if !errors.Is(r.fate[bad].Err, errIsJournal) {
		t.Error(r.fate[bad].Err)
	}
}
