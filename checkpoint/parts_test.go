package checkpoint

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file checks what the parts of the Core promise about themselves. The simulation runs these checks
// after each step.

func (c *Core) inconsistency() error {
	if err := c.rows.inconsistency(); err != nil {
		return fmt.Errorf("rows: %w", err)
	}
	if err := c.parks.inconsistency(); err != nil {
		return fmt.Errorf("parks: %w", err)
	}
	if err := c.looks.inconsistency(&c.rows); err != nil {
		return fmt.Errorf("looks: %w", err)
	}
	if err := c.ledgerInconsistency(); err != nil {
		return err
	}
	if err := c.sleepersInconsistency(); err != nil {
		return err
	}
	if err := c.awaitingInconsistency(); err != nil {
		return err
	}
	return c.handbackInconsistency()
}

// ledgerInconsistency checks that each hold belongs to a row in memory or waits for a park, and that settled
// transactions are not kept.
func (c *Core) ledgerInconsistency() error {
	rows, unmarked := 0, map[string]int{}
	for h := range c.rows.entries {
		e := &c.rows.entries[h]
		if e.row == nil {
			continue
		}
		if e.tx != noTx {
			rows++
		}
		if e.unmarked {
			unmarked[e.row.Table.String()]++
		}
	}
	holds := 0
	for i, tx := range c.ledger.txs[c.ledger.head:] {
		if holds += tx.holds; tx.holds < 0 || i == 0 && tx.ended && tx.holds == 0 {
			return fmt.Errorf("ledger: transaction %d has %d holds, ended %v", i, tx.holds, tx.ended)
		}
	}
	leaves := c.draining // the position never passes rows that are left to the next process
	if want := rows + c.parks.holds; holds < want || holds > want && !leaves {
		return fmt.Errorf("ledger: %d holds, of %d rows and %d that wait for parks", holds, rows, c.parks.holds)
	}
	for table, n := range c.retries.refused {
		if n != unmarked[table] {
			return fmt.Errorf("%d marks of %s count as refused, and %d are", n, table, unmarked[table])
		}
	}
	return nil
}

// inconsistency checks that the counts agree with the entries, and that the list has exactly the rows in
// flight.
func (t *rowTable) inconsistency() error {
	var count, bytes, published, grown, waiting, flying, listed int
	for h := range t.entries {
		e := &t.entries[h]
		if e.row == nil {
			continue
		}
		count++
		bytes += e.size
		if e.state != kept {
			flying++
		}
		switch e.state {
		case unused, kept:
		case queued:
			waiting++
		case inSink, acked, attempt:
			published += e.size
			grown += e.grown
		}
		if e.row.Handle != uint32(h) {
			return fmt.Errorf("row %s has handle %d, and is entry %d", e.row.ID, e.row.Handle, h)
		}
	}
	for e := range t.flying() {
		listed++
		if e.state == kept || e.state == unused {
			return fmt.Errorf("row %s is not in flight and among those that are", e.row.ID)
		}
	}
	for id, h := range t.byID {
		if e := &t.entries[h]; e.row == nil || idOf(e.row) != id || !e.carried {
			return fmt.Errorf("id %s finds another row, or none", id.id)
		}
	}
	got := [...]int{t.count, t.bytes, t.published, t.grown, t.queued, t.inFlight, listed}
	want := [...]int{count, bytes, published, grown, waiting, flying, flying}
	if got != want {
		return fmt.Errorf("count, bytes, published, grown, queued, in flight, listed are %v, not %v", got, want)
	}
	return nil
}

// inconsistency checks that list and byScope have the same parks, and that the counts agree with them.
func (s *parkSet) inconsistency() error {
	for _, p := range s.list {
		if err := p.inconsistency(); err != nil {
			return err
		}
	}
	var ofKind [outbox.ScopeRow + 1]int
	keys, blocked, unmarked, holds := map[string]int{}, map[string]int{}, map[string]int{}, 0
	for _, p := range s.list {
		if s.byScope[p.Scope] != p {
			return fmt.Errorf("%v is another park than the one in the list", p.Scope)
		}
		ofKind[p.Scope.Kind]++
		if p.Scope.Kind >= outbox.ScopeKey {
			keys[p.Scope.Table]++
		}
		switch {
		case p.Cause == outbox.CauseBlocked:
			blocked[p.Scope.Table]++
		case p.Unmarked():
			unmarked[p.Scope.Table]++
		}
		for _, h := range p.waiting {
			holds += h.n
		}
	}
	if len(s.list) != len(s.byScope) || len(s.list) != len(s.awake)+len(s.asleep) || ofKind != s.ofKind || holds != s.holds {
		return fmt.Errorf("%d listed of %d, kinds %v not %v, holds %d not %d", len(s.list), len(s.byScope), s.ofKind, ofKind, s.holds, holds)
	}
	for table, counts := range map[string][2]map[string]int{"keys": {keys, s.keys}, "blocked": {blocked, s.blocked}, "unmarked": {unmarked, s.unmarked}} {
		for t, n := range counts[1] {
			if counts[0][t] != n {
				return fmt.Errorf("%s of %s: %d, not %d", table, t, n, counts[0][t])
			}
		}
	}
	return nil
}

// inconsistency checks that a park has no data that only parks of other scopes and causes have.
func (p *park) inconsistency() error {
	kind, blocked := p.Scope.Kind, p.Cause == outbox.CauseBlocked
	switch {
	case p.listed && kind != outbox.ScopeTopic,
		p.scan != scanNone && kind != outbox.ScopeTopic && kind != outbox.ScopeTopics,
		(p.knownTopics != nil) != (kind == outbox.ScopeTopics),
		p.failedRow != "" && kind < outbox.ScopeKey,
		p.blocker != stillFailed && !blocked,
		(p.mark != nil || p.inTally || len(p.othersInTally) > 0) && !p.Unmarked(),
		len(p.othersInTally) > 0 && !p.inTally,
		(p.hurried || p.spending || p.refusedAt > 0) && kind != outbox.ScopeTable,
		p.written > 0 && !p.asked && !p.inTally,
		p.releasesInFlight && kind != outbox.ScopeStream:
		return fmt.Errorf("the park of %v knows what it cannot: %+v", p.Scope, p)
	}
	return nil
}

// sleepersInconsistency checks that each park is either awake or asleep. For a park that is asleep, a step
// would have nothing to do, neither now nor before NextTick.
func (c *Core) sleepersInconsistency() error {
	awake := map[*park]bool{}
	for _, p := range c.parks.awake {
		awake[p] = true
	}
	for _, p := range c.parks.list {
		if asleep := p.bed > 0; asleep == awake[p] || asleep && c.parks.asleep[p.bed-1] != p {
			return fmt.Errorf("%v has bed %d, and is awake: %v", p.Scope, p.bed, awake[p])
		}
		if awake[p] || !p.wakesAt().After(c.now) { // the park wakes in this step
			continue
		}
		asksOperator := (p.Cause == outbox.CauseBlocked || p.Unmarked()) && !p.Next.After(c.now)
		switch first := c.parks.asleep[0]; {
		case p.dirty() || p.phase != sweeping || p.sweptOut || c.due(p) || p.scan != scanNone || asksOperator:
			return fmt.Errorf("%v sleeps, and there is something to do: %+v", p.Scope, p)
		case first.wakesAt().After(p.wakesAt()):
			return fmt.Errorf("%v sleeps until %v, and the first wakes at %v", p.Scope, p.wakesAt(), first.wakesAt())
		}
	}
	return nil
}

// inconsistency checks that each row in state queued is in its table's queue once, and that no other row is
// there.
func (s *looks) inconsistency(rows *rowTable) error {
	places := map[uint32]int{}
	claims := map[*claim]int{}
	for _, q := range s.queues {
		for _, list := range [][]uint32{q.queue, q.asked, q.waiting} {
			for _, h := range list {
				places[h]++
				if e := &rows.entries[h]; e.state != queued || e.row.Table != q.table {
					return fmt.Errorf("entry %d does not belong into the queue of %v", h, q.table)
				}
			}
		}
	}
	for e := range rows.flying() {
		if e.state == queued && places[e.row.Handle] != 1 {
			return fmt.Errorf("row %s is in a queue %d times", e.row.ID, places[e.row.Handle])
		}
		if e.claim != nil {
			claims[e.claim]++
		}
	}
	for cl, n := range claims {
		if cl.rows != n {
			return fmt.Errorf("a claim counts %d rows, and has %d", cl.rows, n)
		}
	}
	ofTables := 0
	for _, q := range s.queues {
		ofTables += q.claims
		if q.claims < 0 || q.claims > s.claims.perTable {
			return fmt.Errorf("%d claims of %v are open, at most %d may be", q.claims, q.table, s.claims.perTable)
		}
	}
	if ofTables != s.claims.open {
		return fmt.Errorf("%d claims are counted, and %d by their tables", s.claims.open, ofTables)
	}
	if len(claims) != s.claims.open {
		return fmt.Errorf("%d claims are counted, and there are %d", s.claims.open, len(claims))
	}
	return nil
}

// awaitingInconsistency checks that each park awaits exactly the rows that point to it.
func (c *Core) awaitingInconsistency() error {
	awaiting := map[*park]int{}
	for e := range c.rows.flying() {
		if e.awaits != nil {
			awaiting[e.awaits]++
		}
	}
	for _, p := range c.parks.list {
		if p.awaiting != awaiting[p] {
			return fmt.Errorf("%v awaits %d rows, and there are %d", p.Scope, p.awaiting, awaiting[p])
		}
	}
	return nil
}

// handbackInconsistency checks that a hand-back awaits exactly the rows that point to it, and keeps the same
// rows as its gate.
func (c *Core) handbackInconsistency() error {
	for _, p := range c.parks.list {
		if p.phase == keeping && (c.hb == nil || !slices.Contains(c.hb.parks, p)) {
			return fmt.Errorf("%v is kept, and not handed back", p.Scope)
		}
	}
	if c.hb == nil {
		return nil
	}
	n := 0
	for h := range c.rows.entries {
		if c.rows.entries[h].hb == c.hb {
			n++
		}
	}
	switch {
	case n != c.hb.outstanding:
		return fmt.Errorf("the hand-back awaits %d rows, and there are %d", c.hb.outstanding, n)
	case !c.draining && (c.gate == nil || !c.gate.keeping):
		return fmt.Errorf("a hand-back without its gate")
	}
	for _, p := range c.hb.parks {
		if p.phase != keeping || c.parks.of(p.Scope) != p {
			return fmt.Errorf("%v is handed back, and in phase %d", p.Scope, p.phase)
		}
	}
	return nil
}

// A part of the Core that has rules of its own gets a type with an invariant. It does not become one more
// field of the Core.
func TestTheCoreStaysSmall(t *testing.T) {
	if n := reflect.TypeFor[Core]().NumField(); n >= 30 {
		t.Errorf("Core has %d fields", n)
	}
}
