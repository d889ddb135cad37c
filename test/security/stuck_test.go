package security

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// Few of many rows cannot go out for long: they keep no memory of those that went out beside them.
func TestStuckRowsKeepNoOthersMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.kafka = harness.Kfake(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "good", "stuck"))
	w.topic, w.cluster["brokers"] = "good", w.kafka.Addrs
	for partition, topic := range []string{"good", "stuck"} { // no request is for both
		if err := w.kafka.Fake.MoveTopicPartition(topic, 0, int32(partition)); err != nil {
			t.Fatal(err)
		}
	}
	var up atomic.Bool
	w.kafka.Fake.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		w.kafka.Fake.KeepControl()
		asked := r.(*kmsg.ProduceRequest)
		if up.Load() || !slices.ContainsFunc(asked.Topics, func(t kmsg.ProduceRequestTopic) bool { return t.Topic == "stuck" }) {
			return nil, nil, false
		}
		return refusal(asked, func(_ string, p *kmsg.ProduceResponseTopicPartition) { p.ErrorCode = kerr.NotEnoughReplicas.Code }), nil, true
	})
	p := w.run()
	p.Await(30*time.Second, "handed back to the stream") // a sweep stops at what is stuck
	const rows = 200_000
	for range 40 {
		w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT CASE WHEN n % 64 = 0 THEN 'stuck' ELSE 'good' END, n, convert_to(repeat('x', 1000), 'UTF8') FROM generate_series(1, $1::int) AS n`, rows/40)
	}
	w.awaitWithin(2*time.Minute, `SELECT count(*) FROM outbox WHERE topic = 'good' AND status <> 'SENT'`, 0)
	peak := p.Peak() >> 20
	stuck := harness.One[int](t, w.db, `SELECT count(*) FROM outbox WHERE topic = 'stuck' AND status <> 'SENT'`)
	t.Logf("the process took %d MiB while %d rows were stuck", peak, stuck)
	if most := int64(baseMiB + 2*8 + 4*4); peak > most {
		t.Errorf("that is more than %d", most)
	}
	up.Store(true)
	w.awaitWithin(2*time.Minute, `SELECT count(*) FROM outbox WHERE status <> 'SENT'`, 0)
	w.stopped(p)
}
