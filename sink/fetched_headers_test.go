package sink

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// Another producer's batch that is small in the topic and very large when it is
// decompressed is passed over by a search, which finds ours behind it.
func TestRealSearchDecompressesNothing(t *testing.T) {
	k := harness.Kafka(t)
	topic := k.Topic(t, 1)
	conf := Config{Cluster: "main", Brokers: k.Addrs, TransactionalID: topic}
	size := 64 << 20
	if os.Getenv("OUTBOX_TEST_LONG") == "1" {
		size = 1 << 30
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	inflated(t, ctx, conf, topic, size)
	r := newRig(t, conf)
	r.expect(outbox.Delivered, 20*time.Second, r.publish(rowsOf(topic, "k", "v", 3)...)...)

	conf.defaults()
	base, err := conf.sarama()
	if err != nil {
		t.Fatal(err)
	}
	b, err := newNetwork(ctx, base, Config{}, 10*time.Second).openReader(k.Addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	ours := header{pid: -1}
	for from := int64(0); ours.pid < 0; {
		block, err := b.fetch(topicPartition{topic, 0}, from)
		if err != nil || len(block.headers) == 0 {
			t.Fatalf("at %d: %+v, %v", from, block, err)
		}
		for _, h := range block.headers {
			if !h.control && h.pid >= 0 {
				ours = h
			}
			from = h.last + 1
		}
	}
	s := search{fenceTarget: fenceTarget{topicPartition: topicPartition{topic, 0}}, as: producer{ours.pid, ours.epoch}, seq: ours.sequence, n: int(ours.last-ours.first) + 1}
	offset, found, err := scan(ctx, b, s)
	if !found || offset != ours.first || offset == 0 || err != nil {
		t.Errorf("found %v at %d, not at %d: %v", found, offset, ours.first, err)
	}
	s.seq += 100
	if offset, found, err = scan(ctx, b, s); found || err != nil {
		t.Errorf("found what is not there at %d: %v", offset, err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
		t.Errorf("the search allocated %d MiB", took>>20)
	}
}

// inflated produces a record of so many zeros.
func inflated(t *testing.T, ctx context.Context, conf Config, topic string, size int) {
	t.Helper()
	b, err := conf.Dial(ctx, conf.Brokers[0])
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	req := &sarama.ProduceRequest{RequiredAcks: sarama.WaitForAll, Timeout: 30_000, Version: 7}
	now := time.Now()
	req.AddBatch(topic, 0, &sarama.RecordBatch{
		Version: 2, Codec: sarama.CompressionZSTD, CompressionLevel: sarama.CompressionLevelDefault, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		FirstTimestamp: now, MaxTimestamp: now, Records: []*sarama.Record{{Value: make([]byte, size)}},
	})
	res, err := b.broker.Produce(req)
	if err != nil {
		t.Fatal(err)
	}
	if block := res.GetBlock(topic, 0); block == nil || block.Err != sarama.ErrNoError {
		t.Fatalf("%+v", block)
	}
}
