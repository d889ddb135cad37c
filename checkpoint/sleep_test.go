package checkpoint

import (
	"fmt"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// asleepCore has keys parked: each second one of them is tried.
func asleepCore(t *testing.T, keys int) (*hotPath, func(n int) *park) {
	t.Helper()
	h := newHotPath(1)
	h.park(keys)
	key := func(n int) *park {
		return h.core.parks.of(outbox.KeyScope(&outbox.Row{Table: h.rows[0].Table, Key: fmt.Appendf(nil, "parked-%d", n)}))
	}
	for i := range keys {
		p := key((i * 7) % keys) // in no order
		p.nextSweep = time.Time{}
		h.core.parks.tryAt(p, h.core.now.Add(time.Duration(1+(i*7)%keys)*time.Second))
	}
	h.step(t, 0)
	return h, key
}

// step lets time pass, and checks what the Core's parts promise.
func (h *hotPath) step(t *testing.T, by time.Duration) Ready {
	t.Helper()
	h.core.Tick(h.core.now.Add(by))
	r := h.core.Take()
	if r.Parks != nil {
		h.core.ParksWritten(outbox.ParksCommitted)
	}
	if err := h.core.inconsistency(); err != nil {
		t.Fatal(err)
	}
	return r
}

// However many keys wait, a step looks at none of them; those whose time has come are
// swept, and nothing else is.
func TestAStepLooksAtWhatIsDue(t *testing.T) {
	t.Parallel()
	h, key := asleepCore(t, 1000)
	if n := len(h.core.parks.awake); n != 0 {
		t.Fatalf("a step looks at %d parks", n)
	}
	h.round(t, true)
	if wait := h.core.NextTick().Sub(h.core.now); len(h.core.parks.awake) != 0 || wait != time.Second {
		t.Fatalf("behind a row a step looks at %d parks, and the next is in %v", len(h.core.parks.awake), wait)
	}
	r := h.step(t, 3*time.Second)
	if r.Sweep == nil || len(r.Sweep.Parts[0].Include) != 3 || len(r.Sweep.Parts[0].Exclude) != 0 || len(h.core.parks.awake) != 3 {
		t.Fatalf("three are due: %+v, %d are awake", r.Sweep, len(h.core.parks.awake))
	}
	for n := range 3 {
		if key(n).bed != 0 {
			t.Errorf("key %d sleeps", n)
		}
	}
	h.core.Swept(outbox.Page{})
	if h.step(t, 0); h.core.hb == nil || len(h.core.hb.parks) != 3 {
		t.Fatalf("swept keys are handed back: %+v", h.core.hb)
	}
}

// Whatever changes a park that sleeps wakes it.
func TestWhatChangesAParkWakesIt(t *testing.T) {
	t.Parallel()
	changes := map[string]func(c *Core, p *park){
		"it fails again":           func(c *Core, p *park) { c.park(p.Scope, outbox.CauseRowError, "again", c.now.Add(time.Minute)) },
		"its row is tried later":   func(c *Core, p *park) { c.nextTry(p, outbox.Marked{Attempts: 2}) },
		"its trouble is over":      func(c *Core, p *park) { p.Next = c.now; c.troubleOver(p, &outbox.Row{}) },
		"it is the operator's":     func(c *Core, p *park) { c.leaveToOperator(p, "1", 0, time.Time{}) },
		"it is not the operator's": func(c *Core, p *park) { c.freeKey(p) },
		"it is gone":               func(c *Core, p *park) { c.unpark(p) },
		"a failover took it back":  func(c *Core, _ *park) { c.readParks(nil) },
		"an earlier version of it is written": func(c *Core, p *park) {
			c.writing = &writing{puts: []put{{p, p.version - 1}}}
			c.ParksWritten(outbox.ParksCommitted)
		},
		"it was swept": func(c *Core, p *park) {
			c.sweeps.page = &pageRequest{parks: []*park{p}, askedAt: c.generation}
			c.Swept(outbox.Page{})
		},
		"a wider park has it": func(c *Core, p *park) {
			c.park(outbox.StreamScope(), outbox.CauseSlot, "lost", time.Time{}).durable = true
			c.absorb(p)
		},
	}
	for name, change := range changes {
		h, key := asleepCore(t, 5)
		p := key(2)
		if change(h.core, p); p.bed != 0 {
			t.Errorf("%s: it sleeps", name)
		}
		if err := h.core.parks.inconsistency(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		h.step(t, 0)
	}
}

// A parked key wakes when it may be both tried and swept. If it is never swept, it wakes when it may be tried.
func TestWhenAKeyWakes(t *testing.T) {
	t.Parallel()
	_, table, now := begun(t, outbox.PublishedStatus)
	soon, late := now.Add(time.Second), now.Add(time.Minute)
	for name, x := range map[string]struct {
		kind        outbox.Scope
		cause       outbox.Cause
		next, sweep time.Time
		want        time.Time
	}{
		"tried later":         {outbox.KeyScope(rowOf(table, "1")), outbox.CauseRowError, late, soon, late},
		"swept later":         {outbox.KeyScope(rowOf(table, "1")), outbox.CauseRowError, soon, late, late},
		"the operator's":      {outbox.KeyScope(rowOf(table, "1")), outbox.CauseBlocked, soon, late, soon},
		"it cannot be marked": {outbox.RowScope(rowOf(table, "1")), outbox.CauseWriteBack, soon, late, soon},
		"a row without a key": {outbox.RowScope(rowOf(table, "1")), outbox.CauseRowError, soon, late, late},
	} {
		p := &park{Park: outbox.Park{Scope: x.kind, Cause: x.cause, Next: x.next}, nextSweep: x.sweep}
		if !p.wakesAt().Equal(x.want) {
			t.Errorf("%s: in %v", name, p.wakesAt().Sub(now))
		}
	}
	h, _ := asleepCore(t, 5)
	s := &h.core.parks
	if s.wakeDue(h.core.now.Add(2 * time.Second)); len(s.awake) != 2 || len(s.asleep) != 3 {
		t.Errorf("%d are awake, %d sleep", len(s.awake), len(s.asleep))
	}
}
