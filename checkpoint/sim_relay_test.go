package checkpoint

import (
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file is the application's own relay in the simulation, and the claims that
// keep its rows and ours apart. Next to a table with a head start it publishes and
// marks right after the commit, within the head start; with one that claims it
// is a poller that takes rows into a state of its own, in whatever order, and dies
// now and then.

// dbClaim is an open transaction that has locked rows.
type dbClaim struct {
	p     *proc
	open  map[*outbox.Row]bool // locked, neither marked nor given up
	done  map[*outbox.Row]bool
	marks []outbox.Mark
	told  bool // the process knows of it
}

func (w *world) lockOf(r *dbRow) *dbClaim {
	for _, c := range w.claims {
		for row := range c.open {
			if w.row(row) == r {
				return c
			}
		}
		for row := range c.done {
			if w.row(row) == r {
				return c
			}
		}
	}
	return nil
}

func (p *proc) claimOf(row *outbox.Row) *dbClaim {
	for _, c := range p.w.claims {
		if c.p == p && (c.open[row] || c.done[row]) {
			return c
		}
	}
	return nil
}

// claim locks rows that are PENDING and nobody's.
func (w *world) claim(p *proc, rows []*outbox.Row) ([]outbox.Checked, *dbClaim) {
	c := &dbClaim{p: p, open: map[*outbox.Row]bool{}, done: map[*outbox.Row]bool{}}
	answers := w.check(p, rows)
	for i, a := range answers {
		switch {
		case a.State != outbox.CheckPending:
		case w.lockOf(w.row(a.Row)) != nil, w.row(a.Row).locked:
			answers[i].State, answers[i].Now = outbox.CheckTaken, nil
		default:
			c.open[a.Latest()] = true
		}
	}
	if len(c.open) > 0 {
		w.claims = append(w.claims, c)
	}
	return answers, c
}

// claimQuery is a claim on its way.
type claimQuery struct {
	query[[]*outbox.Row, []outbox.Checked]
	claim *dbClaim
}

func (p *proc) runClaim(q *claimQuery) {
	q.ran = true
	if q.refuse = p.w.anyBroken(q.ask); q.refuse == nil {
		q.answer, q.claim = p.w.claim(p, q.ask)
		p.w.note("%v: claims %v: %v", p, outboxIDs(q.ask), q.answer)
	}
}

func (p *proc) claimAnswered(q *claimQuery) {
	if q.refuse != nil {
		p.input(func() { p.core.ClaimRefused(q.refuse, errMapping) })
		return
	}
	q.claim.told = true
	p.sawTerminal(q.answer)
	p.input(func() { p.core.Claimed(q.answer) })
}

// endClaiming is the end of the connection's questions: a claim that has run, or
// runs all the same, is answered late.
func (p *proc) endClaiming() {
	q := p.claiming
	p.claiming = nil
	if q == nil || q.refuse != nil {
		return
	}
	if !q.ran && p.w.chance(50) {
		p.runClaim(q)
	}
	if q.ran && q.refuse == nil {
		p.late = append(p.late, q)
	}
}

func (p *proc) listClaims() {
	w := p.w
	if q := p.claiming; q != nil {
		if !q.ran {
			w.can(evQuery, func() { p.runClaim(q) })
		} else {
			w.can(evAnswer, func() { p.claiming = nil; p.claimAnswered(q) })
		}
	}
	if len(p.late) > 0 {
		w.can(evAnswer, func() { q := p.late[0]; p.late = p.late[1:]; p.claimAnswered(q) })
	}
	for _, c := range w.claims {
		if c.p != p || !c.told {
			continue
		}
		if len(c.open) == 0 {
			w.can(evMark, func() { p.commitClaim(c, false) })
			if !w.healing && len(c.marks) > 0 {
				w.can(evMarkLost, func() { p.commitClaim(c, true) })
			}
		}
	}
}

// commitClaim writes the marks of a claim and lets its locks go.
func (p *proc) commitClaim(c *dbClaim, lost bool) {
	for _, m := range c.marks {
		if r := p.w.row(m.Row); p.w.noWrite[m.Row.Table] || r.unmarked != 0 && r.exists() && r.status == statusPending { // the refusal ends the transaction
			p.w.breakClaim(c)
			return
		}
	}
	p.w.forgetClaim(c)
	for _, m := range c.marks {
		p.marks = append(p.marks, m)
		p.runMark(len(p.marks)-1, lost)
	}
}

func (w *world) forgetClaim(c *dbClaim) {
	for i, o := range w.claims {
		if o == c {
			w.claims = append(w.claims[:i:i], w.claims[i+1:]...)
			return
		}
	}
}

// breakClaim is the end of a claim's session: its locks are gone, which nobody is
// told, and its marks are written like others.
func (w *world) breakClaim(c *dbClaim) {
	w.note("database: a claim of %v breaks", c.p)
	w.forgetClaim(c)
	for _, rows := range []map[*outbox.Row]bool{c.open, c.done} {
		for row := range rows {
			w.row(row).allowed++
		}
	}
	c.p.marks = append(c.p.marks, c.marks...)
}

func (w *world) breakClaims() {
	for len(w.claims) > 0 {
		w.breakClaim(w.claims[0])
	}
}

// dropClaims is the end of the process.
func (p *proc) dropClaims() {
	for i := 0; i < len(p.w.claims); {
		if p.w.claims[i].p == p {
			p.w.forgetClaim(p.w.claims[i])
		} else {
			i++
		}
	}
	p.claiming, p.late = nil, nil
}

// ends marks a claimed row or unlocks it: each gets one of both, once.
func (c *dbClaim) ends(row *outbox.Row, mark *outbox.Mark) {
	if c.done[row] {
		c.p.w.fail("contract", nil, "%v: claimed row %s gets a second end", c.p, row.ID)
	}
	if mark != nil {
		c.marks = append(c.marks, *mark)
	}
	delete(c.open, row)
	c.done[row] = true // locked until the whole claim is done
}

// giveUp carries Unclaim out.
func (p *proc) giveUp(rows []*outbox.Row) {
	for _, row := range rows {
		p.w.note("%v: gives the claim on row %s up", p, row.ID)
		if c := p.claimOf(row); c != nil {
			c.ends(row, nil)
		}
	}
}

// wantMark takes a mark to its claim, or to the others.
func (p *proc) wantMark(m outbox.Mark) {
	if c := p.claimOf(m.Row); c != nil {
		c.ends(m.Row, &m)
		return
	}
	p.marks = append(p.marks, m)
}

// ---- the relay

// window returns the time by which the relay, which publishes after the commit, has published the row.
func (w *world) window(r *dbRow) time.Time {
	from := r.tx.committedAt
	if r.foundInvisible.After(from) {
		from = r.foundInvisible
	}
	return from.Add(r.table.Mapping.HeadStart)
}

func (w *world) listRelay() {
	for _, r := range w.rows {
		m := &r.table.Mapping
		if !r.exists() || r.foreign || r.status != statusPending || r.poison != 0 || r.bad != nil || r.unmarked != 0 || r.wasUnmarked || r.available.After(w.now) {
			continue
		}
		switch {
		case r.taken:
			w.can(evRelayDone, func() { w.relaySends(r) })
			if !w.healing {
				w.can(evRelayDies, func() { w.relayDies(r) })
			}
		case w.healing || r.requeued || r.dead:
		case m.Claim != outbox.ClaimNone:
			if w.lockOf(r) == nil {
				w.can(evRelay, func() { w.note("relay: takes %v", r); r.taken = true })
			}
		case m.HeadStart > 0 && w.now.Before(w.window(r)):
			w.can(evRelay, func() { w.relaySends(r) })
		}
	}
}

// relaySends publishes and marks a row.
func (w *world) relaySends(r *dbRow) {
	w.note("relay: sends %v", r)
	r.taken, r.other = false, true
	r.copies++
	w.checkLanding(r, &landing{row: r, step: w.step})
	if w.lockOf(r) != nil {
		w.fail("claims", r, "%v is sent by the relay though we hold its lock", r)
	}
	w.markSent(r)
}

// relayDies leaves the row in its state, published or not, until it is recovered.
func (w *world) relayDies(r *dbRow) {
	w.note("relay: dies over %v", r)
	r.taken, r.dead, r.requeued = false, true, true // found by the watch when it is put back
	if w.chance(50) {
		r.allowed++
		r.copies++
		r.other = true
	}
}
