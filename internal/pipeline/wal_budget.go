package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// giveUpAfter is how many looks in a row must find the slot above the budget with the same restart_lsn.
// Together they take longer than the 15 s within which the server advances a slot that nothing holds.
const giveUpAfter = 4

// walBudget decides when the slot is given up for wal_budget, because an open transaction or a standby keeps
// the stream from advancing it. The slot is made again when that transaction has ended. One goroutine uses
// walBudget.
type walBudget struct {
	limit   uint64
	restart outbox.LSN // restart_lsn when the slot was last above the budget,
	times   int        // and for how many looks in a row
	holder  string     // holder that was logged last
}

// exceeded reports whether the slot has to be given up, since it would stay above the budget for ever.
func (b *walBudget) exceeded(r replication.Retained, sweeping bool) bool {
	if b.limit == 0 || r.Bytes() <= b.limit || !sweeping && !r.HeldByOthers(b.limit) {
		b.times = 0
		return false
	}
	if r.Restart != b.restart {
		b.restart, b.times = r.Restart, 0
	}
	b.times++
	return b.times >= giveUpAfter
}

// freeable returns how many bytes of the slot's WAL a sweep can free.
func freeable(r replication.Retained, budget uint64) uint64 {
	if r.HeldByOthers(budget) {
		return r.Lag()
	}
	return r.Bytes()
}

// unconfirmed measures for how long the confirmed position has not reached a former end of the WAL.
type unconfirmed struct {
	target outbox.LSN
	since  time.Time
}

// waits returns that time. It returns 0 up to usual, which is what an idle stream takes.
func (u *unconfirmed) waits(r replication.Retained, now time.Time, usual time.Duration) time.Duration {
	if r.Confirmed == 0 || r.Confirmed >= u.target {
		u.target, u.since = r.Insert, now
		return 0
	}
	if passed := now.Sub(u.since); passed > usual {
		return passed
	}
	return 0
}

// keepBudget returns which session or standby makes the slot retain WAL. It gives the slot up where nothing
// else keeps the budget; the rows are still in the table.
func (m *maintenance) keepBudget(ctx context.Context, r replication.Retained) string {
	stalledBy := m.tellStall(r, time.Now())
	holder, err := replication.HolderOf(ctx, postgres.On(m.pool), r, m.cfg.Core.WALBudget)
	m.retried(ctx, err, slotEvery, "could not look at the slot and its publication")
	held := fmt.Sprintf("%s of %s (wal_budget)", status.Bytes(r.Bytes()), status.Bytes(m.cfg.Core.WALBudget))
	if lasting := holder.Lasting(); holder.Exists() && lasting.String() != m.budget.holder {
		m.budget.holder = lasting.String()
		const message = "the slot holds back WAL because a transaction is open: it is freed when that one ends, not by sweeping"
		m.tracker.recordEvent("slot", message+": "+holder.String())
		m.log.Warn().Str("slot", m.cfg.Replication.Slot).Str("held", held).Str("by", holder.String()).Msg(message)
	}
	if m.cfg.KeepSlot || m.stateless || m.cfg.Shadow || !m.budget.exceeded(r, m.sweeping.Load()) {
		return holder.Text()
	}
	m.budget.times = 0
	reason := "slot " + m.cfg.Replication.Slot + " holds back " + held
	switch {
	case holder.Exists():
		reason += " because of " + holder.Lasting().String()
	case stalledBy != "":
		reason += " because the server waits: " + stalledBy
	}
	if m.wal.giveUp(reason) {
		m.log.Warn().Str("slot", m.cfg.Replication.Slot).Str("reason", reason).Msg("gave the slot up, so that the WAL budget is kept: rows are swept until it can be made again")
	}
	return holder.Text()
}

// tellStall logs once that the server holds the stream back, and once that it no longer does.
func (m *maintenance) tellStall(r replication.Retained, now time.Time) (stalledBy string) {
	stalledBy = m.tracker.stalledBy(r, now)
	if (stalledBy != "") == m.stalled {
		return stalledBy
	}
	if m.stalled = !m.stalled; m.stalled {
		m.tracker.recordEvent("slot", "the server holds the stream back: "+stalledBy)
		return stalledBy
	}
	const message = "the server sends from the slot again"
	m.tracker.recordEvent("slot", message)
	m.log.Info().Str("slot", m.cfg.Replication.Slot).Msg(message)
	return ""
}
