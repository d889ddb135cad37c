package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// This file is exactly-once delivery of tables that keep no state. Nothing is marked, so the tally has a
// position instead, up to which all rows are settled, and a start skips the rows of the WAL that the position
// covers or a journal names: see package exactlyonce.

// mostUnnoted is how many published rows may wait for a position that covers them, such as those behind a row that
// Kafka refuses. The next start has their names in memory, and the journal must have them.
const mostUnnoted = 1_000_000

// stateless is what a leader knows of such tables, in the driver's loop only.
type stateless struct {
	published exactlyonce.Published
	positions map[string]*exactlyonce.Positions // by cluster
	// server is the one whose WAL is read, and earlier where rows that earlier leaders published
	// end in it.
	server  statestore.Server
	earlier outbox.LSN
}

func newStateless(clusters []string) *stateless {
	s := &stateless{positions: map[string]*exactlyonce.Positions{}}
	for _, cluster := range clusters {
		s.positions[cluster] = &exactlyonce.Positions{}
	}
	return s
}

// found takes units that the tally does not have.
func (s *stateless) found(cluster string, units []exactlyonce.Placed) {
	for i := range units {
		u := &units[i]
		s.published.Add(&u.Unit)
		s.positions[cluster].Add(u.Number, u.Offset, u.UpTo, len(u.Names))
	}
}

// tell adds to a connection what was published before it: that is all known by now.
func (s *stateless) tell(c *checkpoint.Connected, settled settledOn) {
	if s == nil || !c.Streaming {
		return
	}
	s.server = settled.server
	for _, p := range s.positions {
		s.earlier = max(s.earlier, p.Before(c.Insert))
	}
	published := s.published
	s.published = exactlyonce.Published{} // the Core's, until it needs it no more
	published.Settled = settled.upTo
	c.Published, c.PublishedTo = published.Take, max(s.earlier, settled.upTo)
}

// delivered takes a unit of this leader.
func (s *stateless) delivered(u *outbox.Unit) {
	if s != nil && u != nil {
		s.positions[u.Cluster].Add(u.Number, u.Place, u.UpTo, u.Rows)
	}
}

// full says that no more rows may come until the tally has noted some: the next start keeps the names of all
// others in memory. There are two exceptions. A transaction within which nothing can be noted goes through, whatever
// its size. And the WAL is read to the end of what earlier leaders published, since that cannot be noted before.
func (o *once) full(core *checkpoint.Core) bool {
	if o == nil || o.stateless == nil {
		return false
	}
	s, rows := o.stateless, 0
	for _, p := range s.positions {
		rows += p.Rows()
	}
	return rows > mostUnnoted && core.Received() > s.earlier && (!core.OneTransaction() || len(s.notes(core.Settled())) > 0)
}

// settledOn is the position up to which the tallies say that rows are settled, and its server.
type settledOn struct {
	upTo   outbox.LSN
	server statestore.Server
}

// settledUpTo reads it from the server that conn leads to; its slot was confirmed only up to where rows are settled.
// A tally's head before the one that its journal was read from tells that the journal was read for another server.
func (o *once) settledUpTo(ctx context.Context, conn *replication.Conn, remembered *statestore.Identity, insert outbox.LSN) (settled settledOn, err error) {
	if o == nil || o.stateless == nil {
		return settled, nil
	}
	settled.server = statestore.Server{Slot: remembered.SystemID + "/" + remembered.Slot, Guard: o.key}
	err = whileBeating(ctx, conn, func(ctx context.Context) error {
		found, err := o.store.Positions(ctx, slices.Sorted(maps.Keys(o.tallies)), max(remembered.SlotPoint, 1)-1, insert, settled.server)
		for _, p := range found {
			if p.Head < o.tallies[p.Cluster].Head.Number {
				return errNewTerm
			}
			settled.upTo = max(settled.upTo, p.LSN)
		}
		return err
	})
	return settled, err
}

// note is what can be noted in a cluster's tally: a position, and the last unit that it covers.
type note struct {
	cluster string
	last    exactlyonce.Placed
	settled settledOn
}

func (s *stateless) notes(settled outbox.LSN) (all []note) {
	for cluster, p := range s.positions {
		if last := p.Passed(settled); last.Number > 0 {
			all = append(all, note{cluster, last, settledOn{settled, s.server}})
		}
	}
	return all
}

// notePositions notes what the driver says can be noted, which is forgotten once it is written.
func (o *once) notePositions(ctx context.Context) error {
	var notes []note
	err := o.inLoop(ctx, func() { notes = o.stateless.notes(o.core.Settled()) })
	if err != nil {
		return err
	}
	for _, n := range notes {
		if failed := o.store.SettleTally(ctx, n.cluster, n.last, n.settled.upTo, n.settled.server); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		o.answers.Put(answer{0, func() { o.stateless.positions[n.cluster].Noted(n.last.Number) }})
	}
	return err
}

// noteLast notes positions for good, at a clean stop. A cluster's tally is closed only if it has all units.
func (o *once) noteLast(ctx context.Context, cluster string) error {
	s := o.stateless
	if s == nil {
		return nil
	}
	all := s.notes(o.core.Settled())
	if i := slices.IndexFunc(all, func(n note) bool { return n.cluster == cluster }); i >= 0 {
		n := all[i]
		if err := o.store.SettleTally(ctx, cluster, n.last, n.settled.upTo, n.settled.server); err != nil {
			return err
		}
		s.positions[cluster].Noted(n.last.Number)
	}
	if !s.positions[cluster].Empty() {
		return fmt.Errorf("%w: the WAL was not read to the last row that the journal names", statestore.ErrUnsettled)
	}
	return nil
}
