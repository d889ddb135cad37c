package sweeper

import (
	"context"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

const (
	// maxIDOrder is the largest number of ids in all ID orders together. It bounds their memory to some 10
	// MB.
	maxIDOrder      = 100_000
	maxIDOrderBytes = 16 << 20
	// slowFetch is how long the first rows of a page may take. An index that serves the sweep returns them at
	// once, whatever the table's size.
	slowFetch = 50 * time.Millisecond
	// idOrderLasts is how long an ID order is used before it is read again.
	idOrderLasts = time.Minute
)

// idOrder is a stored order of pending rows, for tables where each page is costly to find in order. There are
// two such cases. Many rows may share one value of the order column, as the rows of one transaction share its
// time: then each page would sort all of them. Or no index serves the sweep: then each page would step over
// every row that was sent. So the order is read once and kept. The rows themselves are not kept: each page
// reads them in its own snapshot.
//
// In the first case, pages keep the order that they would have without the ID order. A row that appears later
// with the same value was committed after those in the ID order, and is read when these are through. Rows
// with a greater value are read after them. Each page looks for rows with a lesser value first. In the second
// case, the ID order has the next pending rows, whatever their value, and other rows are read later. This
// keeps the order of a key as long as writers of one key wait for each other: then an earlier commit was
// visible when the ID order was read.
type idOrder struct {
	all   bool      // the second case: pending rows of any value
	value string    // the first case: the value of the order column
	ids   []string  // in order; each row was pending when last read; empty: not read yet
	read  time.Time // when ids were read
}

// takeIDOrder hands the table's ID order to one caller, who may put it back.
func (s *Sweeper) takeIDOrder(t *outbox.Table) *idOrder {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.idOrders[t]
	delete(s.idOrders, t)
	return a
}

func (s *Sweeper) putIDOrder(t *outbox.Table, a *idOrder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idOrders[t] = a
}

// room returns how many ids an ID order may have next to those of other tables.
func (s *Sweeper) room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.maxOrderIDs / (len(s.idOrders) + 1)
}

// byIDOrder fills the page with rows before and in the table's ID order. It returns false if there is none,
// or if its end was reached; the page is then as before and the ID order is closed.
func (s *pageReading) byIDOrder(ctx context.Context, p *plan, part *outbox.SweepPart) (bool, error) {
	a := s.takeIDOrder(part.Table)
	if a == nil || !a.all && p.relation.TieColumn() == nil { // the mapping has another order column now
		return false, nil
	}
	rows, bytes, more := len(s.page.Rows), s.bytes, s.page.More
	costly := false
	if !a.all {
		if err := s.before(ctx, p, part, a); err != nil {
			return false, err
		}
		costly = s.slow
	}
	if s.remaining() > 0 {
		if err := s.onIDOrder(ctx, p, part, a); err != nil {
			return false, err
		}
	}
	if s.remaining() > 0 {
		// The end of the ID order was reached. Only the plain selection shows what comes after it, and what
		// is new within it.
		s.page.Rows, s.bytes, s.page.More = s.page.Rows[:rows], bytes, more
		return false, nil
	}
	s.page.More = true
	if costly {
		a = &idOrder{all: true}
	}
	s.putIDOrder(part.Table, a)
	return true, nil
}

// before reads the rows with a lesser value than that of the ID order.
func (s *pageReading) before(ctx context.Context, p *plan, part *outbox.SweepPart, a *idOrder) error {
	r := s.reader(p, part)
	q := p.relation.Page(r.selected(), s.remaining())
	s.wanted(q, part)
	q.Tied("<", a.value)
	step, _ := q.Step(s.taking(r))
	_, err := s.fetch(ctx, step)
	return err
}

// onIDOrder reads rows in the sequence of the ID order until the page is full or the end is reached. It
// removes rows that are no longer pending. Rows in flight stay in the ID order and are not read.
func (s *pageReading) onIDOrder(ctx context.Context, p *plan, part *outbox.SweepPart, a *idOrder) error {
	if len(a.ids) == 0 || s.cfg.Now().Sub(a.read) > idOrderLasts {
		if err := s.readIDOrder(ctx, p, part, a); err != nil {
			return err
		}
	}
	flying := make(map[string]bool, len(part.ExcludeIDs))
	for _, id := range part.ExcludeIDs {
		flying[id] = true
	}
	for at := 0; s.remaining() > 0 && at < len(a.ids); {
		from := at
		var window []string
		for ; at < len(a.ids) && len(window) < s.remaining(); at++ {
			if !flying[a.ids[at]] {
				window = append(window, a.ids[at])
			}
		}
		gone, err := s.window(ctx, p, part, a, window)
		if err != nil {
			return err
		}
		kept := slices.DeleteFunc(a.ids[from:at], func(id string) bool { return gone[id] })
		a.ids = slices.Delete(a.ids, from+len(kept), at)
		at = from + len(kept)
	}
	return nil
}

// readIDOrder reads the ids of all pending rows of the wanted keys: due or not, in flight or not. So no row
// can overtake another.
func (s *pageReading) readIDOrder(ctx context.Context, p *plan, part *outbox.SweepPart, a *idOrder) error {
	q := p.relation.PendingIDs(s.room())
	q.Include(part.Include)
	q.Exclude(part.Exclude, nil)
	q.Known(part.Known)
	if !a.all {
		q.Tied("=", a.value)
	}
	var ids []string
	bytes := 0
	step, nothing := q.IDs(func(id string) {
		if bytes += len(id); bytes <= maxIDOrderBytes { // other rows are read after the ID order
			ids = append(ids, id)
		}
	})
	if nothing {
		return nil
	}
	a.ids, a.read = nil, s.cfg.Now()
	err := s.send(ctx, s.conn, step)
	a.ids = ids
	return err
}

// window reads rows by their ids, adds the wanted ones to the page, and returns the ids that are no longer
// pending.
func (s *pageReading) window(ctx context.Context, p *plan, part *outbox.SweepPart, a *idOrder, ids []string) (map[string]bool, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	r := s.reader(p, part)
	q, err := p.relation.WantedAmong(ids)
	if err != nil {
		return nil, err
	}
	q.Include(part.Include)
	q.Exclude(part.Exclude, nil)
	q.Known(part.Known)
	s.headStart(q, part.Table)
	var tied *string
	if !a.all {
		tied = &a.value
	}
	pending, known := make([]bool, len(ids)), 0
	take := s.taking(r)
	complete, err := s.fetch(ctx, q.Among(r.selected(), tied, func(row [][]byte) error {
		n, err := tablesql.Ordinal(row[0], len(ids))
		if err != nil {
			return err
		}
		pending[n], known = true, n+1
		if string(row[1]) != "t" {
			return nil
		}
		return take(row[2:])
	}))
	if complete {
		known = len(ids)
	}
	gone := make(map[string]bool)
	for n := range known {
		if !pending[n] {
			gone[ids[n]] = true
		}
	}
	return gone, err
}
