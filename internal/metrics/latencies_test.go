package metrics

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

func TestLatenciesSince(t *testing.T) {
	s := New("", "").Stream("orders", nil, 0)
	now := time.Unix(1_000_000, 0)
	deliver := func(age time.Duration, rows int) {
		o := outbox.Outcome{Class: outbox.Delivered}
		for range rows {
			o.Rows = append(o.Rows, &outbox.Row{Table: &outbox.Table{}, CreatedAt: now.Add(-age).UnixMicro()})
		}
		s.Outcome(o, now)
	}
	deliver(time.Hour, 1000)
	before := s.Ages()
	if got := before.Since(before, 0.5); got != 0 {
		t.Errorf("without a row: %v", got)
	}
	deliver(10*time.Millisecond, 98)
	deliver(2*time.Second, 2)
	after := s.Ages()
	for share, want := range map[float64]float64{0.5: 0.010, 0.98: 0.010, 0.99: 2, 1: 2} {
		if got := after.Since(before, share); got < want || got > want*1.2 {
			t.Errorf("%v of the rows within %v s, want %v to %v", share, got, want, want*1.2)
		}
	}
}
