package sweeper

import (
	"context"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/outbox"
	"github.com/outbox-cdc/outbox-cdc/statement"
)

// maxAgenda bounds the ids of an agenda, and so its memory (some 10 MB).
const maxAgenda = 100_000

// agenda is the order of pending rows that share one value of the order column,
// as the rows of one transaction share its time. A page of them takes a sort of
// them all, so page after page of a million such rows would take for ever. The
// order is read once and kept; the rows are not: each page reads them, and what
// lies before them, from its own snapshot.
//
// It keeps the order that pages are promised in. A row that appears later with
// the same value was committed after those on the agenda, and comes when the
// agenda is through; rows with a greater value come after that; rows with a
// lesser one are looked for with every page.
type agenda struct {
	value string   // of the order column
	ids   []string // in order; pending when last looked at; empty: not read yet
}

// openAgenda remembers that a full page had one value.
func (s *Sweeper) openAgenda(t *outbox.Table, value string) {
	s.putAgenda(t, &agenda{value: value})
}

// takeAgenda gives the table's agenda to one caller, who may put it back.
func (s *Sweeper) takeAgenda(t *outbox.Table) *agenda {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.agendas[t]
	delete(s.agendas, t)
	return a
}

func (s *Sweeper) putAgenda(t *outbox.Table, a *agenda) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agendas[t] = a
}

// byAgenda fills the page with rows before and on the table's agenda, and says
// whether it did. If not, the page is as it was and the agenda is closed.
func (s *sweep) byAgenda(ctx context.Context, p *plan, part *outbox.SweepPart, steps *statement.Column) (bool, error) {
	a := s.takeAgenda(part.Table)
	if a == nil {
		return false, nil
	}
	rows, bytes, more := len(s.page.Rows), s.bytes, s.page.More
	if err := s.before(ctx, p, part, steps, a); err != nil {
		return false, err
	}
	if s.left() > 0 {
		if err := s.onAgenda(ctx, p, part, steps, a); err != nil {
			return false, err
		}
	}
	if s.left() > 0 {
		// Its end was reached. What comes behind it, and what is new among it,
		// only the plain selection tells.
		s.page.Rows, s.bytes, s.page.More = s.page.Rows[:rows], bytes, more
		return false, nil
	}
	s.page.More = true
	s.putAgenda(part.Table, a)
	return true, nil
}

// before reads the rows with a lesser value.
func (s *sweep) before(ctx context.Context, p *plan, part *outbox.SweepPart, steps *statement.Column, a *agenda) error {
	r := newReader(p, false, &s.arena)
	q := newSelection(p.relation, r.selected(), s.left())
	q.include(part.Include)
	q.exclude(part.Exclude, part.ExcludeIDs)
	s.headStart(q)
	q.where = append(q.where, statement.Ref(steps.Name)+" < "+q.params.Bind([]byte(a.value), steps.Type))
	_, err := s.fetch(ctx, q.sql(), q.params, s.taking(r))
	return err
}

// onAgenda reads rows in the order of the agenda until the page is full or its
// end is reached, and takes off what is no longer pending. Rows in flight stay
// on it and are not looked at.
func (s *sweep) onAgenda(ctx context.Context, p *plan, part *outbox.SweepPart, steps *statement.Column, a *agenda) error {
	if len(a.ids) == 0 {
		if err := s.readAgenda(ctx, p, steps, a); err != nil {
			return err
		}
	}
	flying := make(map[string]bool, len(part.ExcludeIDs))
	for _, id := range part.ExcludeIDs {
		flying[id] = true
	}
	for at := 0; s.left() > 0 && at < len(a.ids); {
		from := at
		var window []string
		for ; at < len(a.ids) && len(window) < s.left(); at++ {
			if !flying[a.ids[at]] {
				window = append(window, a.ids[at])
			}
		}
		gone, err := s.window(ctx, p, part, steps, a.value, window)
		if err != nil {
			return err
		}
		at = a.drop(from, at, gone)
	}
	return nil
}

// drop takes ids off between two places, and returns where the second is now.
func (a *agenda) drop(from, to int, gone map[string]bool) int {
	if len(gone) == 0 {
		return to
	}
	kept := a.ids[from:from]
	for _, id := range a.ids[from:to] {
		if !gone[id] {
			kept = append(kept, id)
		}
	}
	a.ids = append(a.ids[:from+len(kept)], a.ids[to:]...)
	return from + len(kept)
}

// readAgenda reads the order: of all pending rows, wanted now or not, so that
// none that is wanted later can be overtaken.
func (s *sweep) readAgenda(ctx context.Context, p *plan, steps *statement.Column, a *agenda) error {
	var params statement.Params
	sql := "SELECT " + p.relation.IDColumns() + " FROM " + p.relation.Name() + " AS t WHERE " + p.relation.Pending() + " AND " +
		statement.Ref(steps.Name) + " = " + params.Bind([]byte(a.value), steps.Type) +
		" ORDER BY " + strings.Join(p.relation.Order(), ", ") + " LIMIT " + strconv.Itoa(s.agendaRows)
	parts := make([]string, len(p.relation.Table.Mapping.ID))
	return s.send(ctx, s.conn, statement.Step{SQL: sql, Args: params, Each: func(row [][]byte) error {
		for i := range parts {
			parts[i] = string(row[i])
		}
		a.ids = append(a.ids, outbox.JoinID(parts...))
		return nil
	}})
}

// window reads rows by their ids, takes those that are wanted, and returns the
// ids that are no longer pending.
func (s *sweep) window(ctx context.Context, p *plan, part *outbox.SweepPart, steps *statement.Column, value string, ids []string) (map[string]bool, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	r := newReader(p, false, &s.arena)
	params, from, on, err := p.relation.BindList(ids)
	if err != nil {
		return nil, err
	}
	q := &selection{relation: p.relation, params: params}
	if due := p.relation.Due(); due != "" {
		q.where = append(q.where, due)
	}
	q.include(part.Include)
	q.exclude(part.Exclude, nil)
	s.headStart(q)
	wanted := "true"
	if len(q.where) > 0 {
		wanted = "coalesce(" + strings.Join(q.where, " AND ") + ", false)"
	}
	sql := "SELECT u.n, " + wanted + ", " + r.selected() + " FROM " + from + " JOIN " + p.relation.Name() + " AS t ON " + on +
		" WHERE " + p.relation.Pending() + " AND " + statement.Ref(steps.Name) + " = " + q.params.Bind([]byte(value), steps.Type) + " ORDER BY u.n"
	pending, known := make([]bool, len(ids)), 0
	take := s.taking(r)
	complete, err := s.fetch(ctx, sql, q.params, func(row [][]byte) error {
		n, err := statement.Ordinal(row[0], len(ids))
		if err != nil {
			return err
		}
		pending[n], known = true, n+1
		if string(row[1]) != "t" {
			return nil
		}
		return take(row[2:])
	})
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
