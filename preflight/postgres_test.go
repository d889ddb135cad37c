package preflight

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

func TestGoodOrder(t *testing.T) {
	k := harness.Kfake(t)
	k.CreateTopic(t, "orders", 3, nil)
	w := made(t, harness.Postgres(t), k.Addrs...)
	w.db.Exec(t, "INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'k', 'hello')")
	r := w.check()
	t.Log(show(r))
	for _, f := range r.Findings {
		if f.Level == Fail || f.Unseen {
			t.Errorf("%+v", f)
		}
	}
}
