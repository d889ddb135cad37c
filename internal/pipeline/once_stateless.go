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

// This file is exactly-once delivery of tables without state. No row is marked. Instead the tally has a
// position up to which all rows are settled. A start skips rows of the WAL that lie before the position or
// that a journal names. See package exactlyonce.

// mostUnnoted is how many published rows may wait for a position that covers them, for example behind a row
// that Kafka refuses. The next start keeps their names in memory, and the journal must still have them.
const mostUnnoted = 1_000_000

// stateless is what a leader knows of tables without state. Only the driver's loop uses it.
type stateless struct {
	published exactlyonce.Published
	positions map[string]*exactlyonce.Positions // by cluster
	// server is the server whose WAL is read. earlier is the position up to which its WAL may have rows that
	// earlier leaders published.
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

// found records units that the tally does not have.
func (s *stateless) found(cluster string, units []exactlyonce.Placed) {
	for i := range units {
		u := &units[i]
		s.published.Add(&u.Unit)
		s.positions[cluster].Add(u.Number, u.Offset, u.UpTo, len(u.Names))
	}
}

// tell adds to a connection which rows were published before it. All of them are known by now.
func (s *stateless) tell(c *checkpoint.Connected, settled settledOn) {
	if s == nil || !c.Streaming {
		return
	}
	s.server = settled.server
	for _, p := range s.positions {
		s.earlier = max(s.earlier, p.Before(c.Insert))
	}
	published := s.published
	s.published = exactlyonce.Published{} // the Core has them from here on
	published.Settled = settled.upTo
	c.Published, c.PublishedTo = published.Take, max(s.earlier, settled.upTo)
}

// delivered records a unit of this leader.
func (s *stateless) delivered(u *outbox.Unit) {
	if s != nil && u != nil {
		s.positions[u.Cluster].Add(u.Number, u.Place, u.UpTo, u.Rows)
	}
}

// full reports whether no more rows may come until the tally has noted some of the published ones: the next
// start keeps the names of all others in memory. There are two exceptions. A transaction inside which nothing
// can be noted passes as a whole, whatever its size. And the WAL is read up to the last rows of earlier
// leaders, because nothing can be noted before that.
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

// settledOn is the position up to which rows are settled according to the tallies, and the server that it
// belongs to.
type settledOn struct {
	upTo   outbox.LSN
	server statestore.Server
}

// settledUpTo reads the position from the server of conn, whose slot was confirmed only as far as rows are
// settled. If a tally's head is lower than the head that its journal was read from, the journal was read for
// another server, and the result is errNewTerm.
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

// note is what can be noted in a cluster's tally: a position, and the last unit that the position covers.
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

// notePositions writes the notes that the driver offers. The driver drops a note once it is written.
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

// noteLast writes the last positions at a clean stop. A cluster's tally is closed only if it has all units.
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
