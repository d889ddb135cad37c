package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// handback is the hand-back of parked scopes to the stream. From its start on, the scopes' rows of the WAL
// are kept. A statement reads, in a snapshot S, the scopes' rows that are PENDING and not in flight. They
// are published. When these rows, and those that were in flight, are marked, the parks are removed. Then the
// kept rows are published, those up to the position B only after a look. A hand-back ends with its
// connection.
type handback struct {
	parks []*park // one wide park, or any number of narrow ones; each is in phase keeping
	step  hbStep
	// outstanding counts the rows in memory that the hand-back waits for: the scopes' rows that were in
	// flight, and those of S.
	outstanding int
	// xids are the transactions with discarded rows. Each must be visible in S, or have ended. So must the
	// transactions in progress at the connection's start, which are in Core.txs.
	xids     []uint32
	complete bool       // S has shown all that it had to show
	insert   outbox.LSN // B: the WAL insert position of the statement's page
	retry    time.Time
	deadline time.Time
}

type hbStep uint8

const (
	hbWaiting  hbStep = iota // waits for its turn to send the statement
	hbReading                // the statement is outstanding
	hbRows                   // waits until the outstanding rows are marked
	hbRemoving               // the removal of the parks is outstanding
)

// startHandback begins a hand-back of the widest scope that is ready. Only one hand-back runs at a time, and
// none begins while there is a gate.
func (c *Core) startHandback() {
	if c.hb != nil || c.gate != nil || c.sweeps.page != nil || !c.streaming || c.cfg.Shadow {
		return
	}
	parks := c.handbackCandidates()
	if len(parks) == 0 {
		return
	}
	h := &handback{parks: parks, xids: c.txs.xids(), deadline: c.now.Add(handbackLimit + 2*c.headStart.longest())}
	g := &gate{keeping: true, park: parks[0]}
	if g.park.Scope.Kind >= outbox.ScopeKey {
		g.keys = map[outbox.Scope]bool{}
	}
	for _, p := range parks {
		p.phase, p.sweptOut = keeping, false
		if g.keys != nil {
			g.keys[p.Scope] = true
		}
	}
	for e := range c.rows.flying() {
		if g.keeps(e.row) {
			e.awaitedBy(h)
		}
	}
	c.hb, c.gate = h, g
}

// handbackCandidates returns the parks that may be handed back next: one wide park, or else narrow ones.
func (c *Core) handbackCandidates() []*park {
	var wide *park
	var narrow []*park
	for _, p := range c.parks.awake {
		if p.phase == absorbed {
			return nil
		}
		if !p.sweptOut || !p.durable || c.blocksSweep(p) || !c.causeOver(p) || len(c.parks.wider(p)) > 0 {
			continue // not ready, or a wider park has to be handed back first
		}
		if p.Scope.Kind >= outbox.ScopeKey {
			narrow = append(narrow, p)
		} else if wide == nil || p.Scope.Kind < wide.Scope.Kind {
			wide = p
		}
	}
	if wide != nil {
		return []*park{wide}
	}
	return narrow[:min(len(narrow), maxKeysASweep)]
}

// causeOver reports whether the scope's cause is over and its rows can be published. While a cluster is down
// and not parked, no scope's rows can, because they may be rows of that cluster.
func (c *Core) causeOver(p *park) bool {
	for name := range c.down {
		if c.parks.of(outbox.ClusterScope(name)) == nil {
			return false
		}
	}
	switch p.Scope.Kind {
	case outbox.ScopeStream:
		return c.cfg.WALBudget == 0 || c.retained < c.cfg.WALBudget/2
	case outbox.ScopeTable:
		return c.tables.carried(p.Scope.Table) && c.parks.keys[p.Scope.Table] <= c.cfg.MaxKeys/2
	}
	return true
}

// progressHandback takes the next step of the hand-back, if it is due.
func (c *Core) progressHandback() {
	h := c.hb
	if h == nil || h.step == hbRemoving {
		return
	}
	wholeStream := h.parks[0].Scope.Kind == outbox.ScopeStream
	if h.deadline.Before(c.now) || c.full() && (!wholeStream || c.ledger.inTx) {
		c.abandonHandback()
		return
	}
	switch {
	case h.step == hbWaiting && !(wholeStream && c.ledger.inTx) && !h.retry.After(c.now) && c.sweeps.page == nil:
		h.step = hbReading
		c.ask(h.parks, h)
	case h.step == hbRows && h.outstanding == 0:
		if h.complete {
			h.step = hbRemoving
			return
		}
		h.step, h.retry = hbWaiting, c.now.Add(invisibleWait)
	}
}

// handbackPage takes the page of the hand-back's statement.
func (c *Core) handbackPage(s *pageRequest, page *outbox.Page) {
	h := s.hb
	if c.hb != h {
		return
	}
	h.insert = page.Insert
	h.complete = !page.More && len(c.txs.started) == 0
	for _, xid := range h.xids {
		if !page.Snapshot.Ended(page.Snapshot.Widen(xid)) {
			h.complete = false
		}
	}
	h.step = hbRows
	c.publishSwept(page.Rows, s)
}

// abandonHandback ends the hand-back without success. Its scopes stay parked, and the kept rows are left to
// the sweeper.
func (c *Core) abandonHandback() {
	h := c.hb
	if h == nil {
		return
	}
	c.hb = nil
	for _, p := range h.parks {
		c.backToSweeping(p, h)
	}
	c.discardKept()
	c.gate = nil
}

// leaveHandback takes one park out of the hand-back, because its scope has failed again.
func (c *Core) leaveHandback(p *park) {
	h := c.hb
	if h.step == hbRemoving || len(h.parks) == 1 {
		c.abandonHandback()
		return
	}
	h.parks = slices.DeleteFunc(slices.Clone(h.parks), func(o *park) bool { return o == p })
	delete(c.gate.keys, p.Scope)
	c.backToSweeping(p, h)
	c.discardKept()
}

func (c *Core) backToSweeping(p *park, h *handback) {
	p.phase, p.sweptOut = sweeping, false
	p.nextSweep = c.now.Add(sweepPause)
	if h.step == hbRemoving {
		p.written = 0 // our table may not hold the park any more: write it again
	}
}
