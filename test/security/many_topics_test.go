package security

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// A writer uses very many topics, which exist. Each takes a bounded part of memory, and all rows go out.
func TestManyTopics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const topics, most = 5000, 16 << 10 // bytes of each
	names := make([]string, topics)
	for i := range names {
		names[i] = fmt.Sprint("topic-", i)
	}
	w.kafka = harness.Kfake(t, kfake.SeedTopics(1, names...)) // its own memory is this process's
	w.topic, w.cluster["brokers"] = names[0], w.kafka.Addrs
	p := w.run()
	insert := func(n int) {
		w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT 'topic-' || n, 'k', '' FROM generate_series(0, $1::int - 1) AS n`, n)
		w.awaitWithin(3*time.Minute, `SELECT count(*) FROM outbox WHERE status <> 'SENT'`, 0)
	}
	insert(1)
	before := p.Peak()
	insert(topics)
	insert(topics)
	after := p.Peak()
	t.Logf("the process took %d MiB with one topic, %d MiB with %d", before>>20, after>>20, topics)
	if after-before > topics*most {
		t.Errorf("a topic took %d bytes", (after-before)/topics)
	}
	w.stopped(p)
}
