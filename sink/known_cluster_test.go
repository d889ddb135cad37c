package sink

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// A broker of another cluster comes to stand behind the address of ours, with the same topic. It gets no row, also not
// from the next Sink of the process, and the rows go out when ours is back. Only a restart takes the other cluster for ours.
func TestAnotherClusterGetsNoRow(t *testing.T) {
	t.Parallel()
	ours := harness.KfakeProxied(t, kfake.ClusterID("ours"), kfake.SeedTopics(1, "t"))
	const end = "\x1b[2J"
	theirs := harness.Kfake(t, kfake.ClusterID(end+strings.Repeat("x", 30_000)), kfake.SeedTopics(1, "t"))
	for _, transactional := range []string{"", "tx"} {
		cfg := Config{Brokers: ours.Addrs, DialTimeout: time.Second, RequestTimeout: time.Second, TransactionalID: transactional, KnownCluster: new(KnownCluster)}
		r := newRig(t, cfg)
		proxy := ours.Proxies[0]
		r.expect(outbox.Delivered, 5*time.Second, r.publish(newRow("t", "k", "v"))...)
		behind := proxy.Lead(theirs.Addrs[0])
		rows := r.publish(newRow("t", "k", "v"))
		refused := func(r *rig) {
			t.Helper()
			text := r.usable(20*time.Second, false).Err.Error()
			if !strings.Contains(text, `belongs to cluster "\x1b[2Jxxx`) || !strings.Contains(text, `belongs to "ours"`) || len(text) > 1000 {
				t.Errorf("the state says %.2000q", text)
			}
		}
		refused(r)
		next := newRig(t, cfg)
		next.publish(newRow("t", "k", "v"))
		refused(next)
		if got := theirs.Records(t, "t"); len(got) != 0 {
			t.Fatalf("the other cluster got %d rows", len(got))
		}
		next.stop()
		proxy.Lead(behind)
		r.expect(outbox.Delivered, 20*time.Second, rows...)
		r.stop()

		proxy.Lead(theirs.Addrs[0])
		cfg.KnownCluster = nil
		restarted := newRig(t, cfg)
		restarted.expect(outbox.Delivered, 20*time.Second, restarted.publish(newRow("t", "k", "v"))...)
		proxy.Lead(behind)
		theirs.DeleteTopic(t, "t")
		theirs.CreateTopic(t, "t", 1, nil)
	}
}

// Every connection of a Sink is judged, not only the one that asks for metadata.
func TestEachConnectionIsJudged(t *testing.T) {
	t.Parallel()
	c := harness.Kfake(t, kfake.ClusterID("theirs"), kfake.SeedTopics(1, "t"))
	for _, same := range []*KnownCluster{{id: "ours", from: "b:9092", topic: "t"}, {id: "theirs", topic: "t"}, {topic: "t"}, {id: "ours"}} {
		wrong := same.from != ""
		cfg := Config{Cluster: "main", Brokers: c.Addrs, KnownCluster: same}
		cfg.defaults()
		conf, err := cfg.sarama()
		if err != nil {
			t.Fatal(err)
		}
		b, err := newNetwork(t.Context(), conf, cfg, time.Second).open(c.Addrs[0])
		if err == nil {
			_ = b.Close()
		}
		if wrong != (err != nil) {
			t.Errorf("%+v: %v", same, err)
		}
		if err != nil && !strings.Contains(err.Error(), `it belongs to cluster "theirs", but b:9092 belongs to "ours"`) {
			t.Error(err)
		}
	}
}
