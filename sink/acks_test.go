package sink

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Each produce request wants the acknowledgement of all replicas in sync.
func TestEveryReplicaAcknowledges(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "tx"} {
		c := fake(t, kfake.SeedTopics(3, "t"))
		var asked, less atomic.Int32
		c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			asked.Add(1)
			if r.(*kmsg.ProduceRequest).Acks != -1 {
				less.Add(1)
			}
			return nil, nil, false
		})
		r := newRig(t, Config{Brokers: c.ListenAddrs(), TransactionalID: id})
		r.expect(outbox.Delivered, 5*time.Second, r.publish(rowsOf("t", "", "v", 100)...)...)
		if asked.Load() == 0 || less.Load() > 0 {
			t.Errorf("%q: %d of %d requests want less", id, less.Load(), asked.Load())
		}
	}
}
