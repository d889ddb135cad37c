package pipeline

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A slot is given up only if several looks find it above its budget with the same restart_lsn, and if the
// stream is swept already or others hold the slot. A sweep frees the WAL that the stream has not confirmed.
func TestTheSlotIsGivenUp(t *testing.T) {
	t.Parallel()
	at := func(restart, confirmed, insert outbox.LSN) replication.Retained {
		return replication.Retained{Restart: restart, Confirmed: confirmed, Insert: insert, Status: "reserved"}
	}
	for name, c := range map[string]struct {
		retained []replication.Retained
		sweeping bool
		want     bool
		free     uint64 // at the last look
	}{
		"an open transaction":          {[]replication.Retained{at(1, 1100, 1102), at(1, 1110, 1112), at(1, 1200, 1202), at(1, 1300, 1302)}, false, true, 2},
		"not for long":                 {[]replication.Retained{at(1, 1100, 1102), at(1, 1110, 1112), at(1, 1200, 1202)}, false, false, 2},
		"it moves":                     {[]replication.Retained{at(1, 1100, 1102), at(2, 1110, 1112), at(3, 1200, 1202), at(4, 1300, 1302)}, false, false, 2},
		"below in between":             {[]replication.Retained{at(1, 1100, 1102), at(1, 1110, 1112), at(1, 900, 902), at(1, 1200, 1202), at(1, 1300, 1302)}, false, false, 2},
		"within the budget":            {[]replication.Retained{at(1, 900, 902), at(1, 900, 902), at(1, 900, 902), at(1, 900, 902)}, false, false, 2},
		"a backlog is swept first":     {[]replication.Retained{at(1, 2, 1102), at(1, 2, 1112), at(1, 2, 1202), at(1, 2, 1302)}, false, false, 1301},
		"a standby is waited for":      {[]replication.Retained{at(1, 2, 1102), at(1, 2, 1112), at(1, 2, 1202), at(1, 2, 1302)}, true, true, 1301},
		"no slot, or one that is lost": {[]replication.Retained{at(0, 0, 9999), at(0, 0, 9999), at(0, 0, 9999), at(0, 0, 9999)}, true, false, 0},
	} {
		b, got := walBudget{limit: 1000}, false
		for _, r := range c.retained {
			got = b.exceeded(r, c.sweeping)
		}
		if free := freeable(c.retained[len(c.retained)-1], 1000); got != c.want || free != c.free {
			t.Errorf("%s: given up %v, %d bytes can be freed", name, got, free)
		}
	}
}

// A series of warnings is a stall. It is reported with the latest text and its beginning. A single warning,
// or two that are far apart, are no stall.
func TestTheServerHoldsTheStreamBack(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		warned []int // seconds
		asked  int
		since  int // 0: no stall
	}{
		"nothing":            {nil, 5, 0},
		"once":               {[]int{1}, 2, 0},
		"a standby restarts": {[]int{1, 2, 3}, 9, 0},
		"it lasts":           {[]int{1, 2, 3, 4, 5, 6}, 7, 1},
		"it was silent":      {[]int{1, 30, 31, 36}, 40, 30},
		"far apart":          {[]int{1, 30, 60}, 61, 0},
		"over":               {[]int{1, 2, 3, 4, 5, 6}, 17, 0},
	} {
		var s stall
		for _, at := range c.warned {
			s.warned("no such slot", began.Add(time.Duration(at)*time.Second))
		}
		asked := began.Add(time.Duration(c.asked) * time.Second)
		text, since := s.told(replication.Retained{Confirmed: 1, Insert: 2}, asked)
		if (text != "") != (c.since != 0) || text != "" && !since.Equal(began.Add(time.Duration(c.since)*time.Second)) {
			t.Errorf("%s: %q since %v", name, text, since)
		}
		if text, _ := s.told(replication.Retained{Confirmed: 2, Insert: 2}, asked); text != "" {
			t.Errorf("%s: nothing is left to be sent, and it is said %q", name, text)
		}
	}
}

// The lag in seconds counts if the position stays behind while nothing is in memory. It does not count in an
// idle stream.
func TestWhatIsNotConfirmedWaits(t *testing.T) {
	t.Parallel()
	var u unconfirmed
	began := time.Now()
	look := func(confirmed, insert outbox.LSN, after time.Duration) time.Duration {
		return u.waits(replication.Retained{Confirmed: confirmed, Insert: insert}, began.Add(after), 20*time.Second)
	}
	for i, c := range []struct {
		confirmed, insert outbox.LSN
		after, want       time.Duration
	}{
		{90, 100, 0, 0},
		{95, 110, 5 * time.Second, 0},
		{100, 120, 10 * time.Second, 0}, // reached; from here on 120 is waited for
		{119, 200, 30 * time.Second, 0},
		{119, 300, 31 * time.Second, 21 * time.Second},
		{119, 400, 100 * time.Second, 90 * time.Second},
		{120, 400, 101 * time.Second, 0},
		{0, 500, 200 * time.Second, 0}, // no slot
	} {
		if got := look(c.confirmed, c.insert, c.after); got != c.want {
			t.Errorf("look %d: %v, want %v", i, got, c.want)
		}
	}
}
