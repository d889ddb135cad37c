package sweeper

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Rows are fetched a few at first, to learn their size, and then many at a time.
const (
	firstFetch = 32
	mostFetch  = 2000
)

// Sweep reads one page. The rows of each part come in table order. All parts are read in one snapshot, which
// is taken after the request was made. A *TableError names the table that refuses the query. Any other error
// is temporary.
func (s *Sweeper) Sweep(ctx context.Context, req outbox.SweepRequest) (outbox.Page, error) {
	var page outbox.Page
	err := s.again(func() (err error) {
		page, err = s.sweepAround(ctx, req)
		return err
	})
	if err != nil {
		return outbox.Page{}, err
	}
	return page, nil
}

// sweepAround handles rows that the server cannot print: JSON of a few kilobytes can hold numbers that take a
// gigabyte. The page ends before the first such row, or has only that row, without its long values.
func (s *Sweeper) sweepAround(ctx context.Context, req outbox.SweepRequest) (outbox.Page, error) {
	page, err := s.page(ctx, req, false)
	for bare := false; tablesql.Unprintable(err) && !bare; {
		bare = req.Limit == 1
		req.Limit = max(1, min(len(page.Rows), req.Limit-1))
		page, err = s.page(ctx, req, bare)
		page.More = true
	}
	return page, err
}

func (s *Sweeper) page(ctx context.Context, req outbox.SweepRequest, bare bool) (outbox.Page, error) {
	reading := pageReading{Sweeper: s, request: req, bare: bare, arena: mapping.Arena{Apart: s.apart.Load()}}
	err := s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		reading.conn = conn
		return reading.run(ctx)
	})
	return reading.page, err
}

// pageReading is a page while it is read.
type pageReading struct {
	*Sweeper
	conn    *pgx.Conn
	request outbox.SweepRequest
	arena   mapping.Arena
	page    outbox.Page
	bytes   int
	cursors int                    // number of cursors opened
	trip    time.Duration          // a round trip to the server
	timed   map[*outbox.Table]bool // tables with indexes for due rows
	slow    bool                   // the last cursor took long to return its first rows
	bare    bool                   // long values are left out of every row
}

func (s *pageReading) run(ctx context.Context) error {
	plans := make([]*plan, len(s.request.Parts))
	s.timed = make(map[*outbox.Table]bool)
	for i := range s.request.Parts {
		t := s.request.Parts[i].Table
		var err error
		if plans[i], err = s.plan(ctx, s.conn, t); err != nil {
			return err
		}
		if s.timed[t], err = s.byTime(ctx, s.conn, plans[i]); err != nil {
			return err
		}
	}
	if err := s.begin(ctx, plans); err != nil {
		return err
	}
	for i := range s.request.Parts {
		if err := s.whole(ctx, plans[i], &s.request.Parts[i]); err != nil {
			t := s.request.Parts[i].Table
			return tablesql.Refusal(t, fmt.Errorf("reading a page of table %s: %w", t, err))
		}
	}
	if err := s.send(ctx, s.conn, tablesql.Step{SQL: "COMMIT"}); err != nil {
		return fmt.Errorf("ending the snapshot of a page: %w", err)
	}
	if s.request.WriteWAL {
		return s.writeWAL(ctx, s.conn)
	}
	return nil
}

// begin locks the tables, takes the snapshot, and then reads the insert position.
func (s *pageReading) begin(ctx context.Context, plans []*plan) error {
	if err := s.send(ctx, s.conn, tablesql.Step{SQL: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"}); err != nil {
		return fmt.Errorf("taking the snapshot of a page: %w", err)
	}
	for _, p := range plans {
		t, pin := p.relation.Table, s.settings().Pin(p.relation)
		if len(pin) == 0 {
			continue
		}
		if err := s.send(ctx, s.conn, pin...); err != nil {
			return tablesql.Refusal(t, fmt.Errorf("reading a page of table %s: %w", t, err))
		}
	}
	began := time.Now()
	read := func(row [][]byte) (err error) {
		if s.page.Snapshot, err = outbox.ParseSnapshot(string(row[0])); err != nil {
			return err
		}
		s.page.Insert, err = outbox.ParseLSN(string(row[1]))
		return err
	}
	err := s.send(ctx, s.conn,
		// This statement's snapshot is that of the transaction. It exists before the expressions are
		// evaluated, so the insert position is read after it.
		s.settings().Step(read, "pg_catalog.pg_current_snapshot()::pg_catalog.text", "pg_catalog.pg_current_wal_insert_lsn()::pg_catalog.text"),
	)
	if err != nil {
		return fmt.Errorf("taking the snapshot of a page: %w", err)
	}
	s.trip = time.Since(began)
	return nil
}

// whole reads one table's rows with their headers from a side table.
func (s *pageReading) whole(ctx context.Context, p *plan, part *outbox.SweepPart) error {
	from := len(s.page.Rows)
	if err := s.part(ctx, p, part); err != nil {
		return err
	}
	rows := s.page.Rows[from:]
	if len(rows) == 0 {
		return nil
	}
	relation := p.relation
	if s.bare {
		relation = relation.Brief()
	}
	side, step, err := relation.HeadersOf(len(rows), func(i int) *outbox.Row { return rows[i] })
	if err != nil || side == nil {
		return err
	}
	if err := s.send(ctx, s.conn, step); err != nil {
		return err
	}
	for _, row := range rows {
		s.bytes -= row.Size()
	}
	if n := side.AttachAll(); n < len(rows) { // the next page begins there
		rows, s.page.More = rows[:n], true
		s.page.Rows = s.page.Rows[:from+n]
	}
	for _, row := range rows {
		s.bytes += row.Size()
	}
	return nil
}

// headStart leaves young rows to the application's own relay. A page for a hand-back must have every row;
// there the caller waits.
func (s *pageReading) headStart(q *tablesql.PageQuery, t *outbox.Table) {
	if !s.request.ForHandback {
		q.Old(t.Mapping.HeadStart)
	}
}

// wanted restricts a query to the rows of the part.
func (s *pageReading) wanted(q *tablesql.PageQuery, part *outbox.SweepPart) {
	if s.timed[part.Table] {
		q.ByTime()
	}
	q.Include(part.Include)
	q.Exclude(part.Exclude, part.ExcludeIDs)
	q.Known(part.Known)
	s.headStart(q, part.Table)
}

// part reads one table's rows: by its ID order if it has one, otherwise by the plain selection. The latter
// may find that the table needs an ID order.
func (s *pageReading) part(ctx context.Context, p *plan, part *outbox.SweepPart) error {
	if s.remaining() <= 0 {
		s.page.More = true
		return nil
	}
	// wide: the scopes are not single keys and rows.
	wide := !slices.ContainsFunc(part.Include, func(s outbox.Scope) bool { return s.Kind == outbox.ScopeKey || s.Kind == outbox.ScopeRow })
	if wide {
		done, err := s.byIDOrder(ctx, p, part)
		if done || err != nil {
			return err
		}
	}
	r := s.reader(p, part)
	q := p.relation.Page(r.selected(), s.remaining())
	s.wanted(q, part)
	if tie := p.relation.TieColumn(); tie != nil {
		q.Add(tie)
	}
	step, nothing := q.Step(s.taking(r))
	if nothing {
		return nil
	}
	if _, err := s.fetch(ctx, step); err != nil {
		return err
	}
	if s.remaining() > 0 {
		return nil
	}
	s.page.More = true
	switch {
	case !wide:
	case r.run >= idOrderPays && r.run >= len(r.rows)/2:
		s.putIDOrder(part.Table, &idOrder{value: string(r.value)})
	case s.slow:
		s.putIDOrder(part.Table, &idOrder{all: true})
	}
	return nil
}

// reader returns a reader for rows of the page.
func (s *pageReading) reader(p *plan, part *outbox.SweepPart) *reader {
	r := newReader(p, false, &s.arena)
	r.bare = s.bare
	if p.relation.SystemColumns {
		r.horizon, r.snapshot = part.Horizon, &s.page.Snapshot
	}
	return r
}

// idOrderPays is how many rows with one order value at a page's end make an ID order cheaper than sorting for
// each page.
const idOrderPays = 100

// remaining returns how many more rows fit into the page.
func (s *pageReading) remaining() int {
	if s.bytes >= s.maxBytes() {
		return 0
	}
	return s.request.Limit - len(s.page.Rows)
}

// fetch reads through a cursor, so that a page of large rows can end before the query's result does.
// complete: the result was read to its end.
func (s *pageReading) fetch(ctx context.Context, query tablesql.Step) (complete bool, err error) {
	s.cursors++
	cursor := "page" + strconv.Itoa(s.cursors) // closed by COMMIT
	steps := []tablesql.Step{{SQL: "DECLARE " + cursor + " NO SCROLL CURSOR FOR " + query.SQL, Args: query.Args}}
	for want, taken, bytes := firstFetch, 0, s.bytes; ; {
		got := 0
		steps = append(steps, tablesql.Step{SQL: "FETCH " + strconv.Itoa(want) + " FROM " + cursor, Each: func(row [][]byte) error {
			got++
			if s.remaining() <= 0 {
				return nil // more rows were fetched than fit
			}
			return query.Each(row)
		}})
		began := time.Now()
		if err := s.send(ctx, s.conn, steps...); err != nil {
			return false, err
		}
		if taken == 0 {
			s.slow = time.Since(began) > s.slowFetch+s.trip
		}
		taken += got
		if got < want || s.remaining() <= 0 {
			return got < want && s.remaining() > 0, nil
		}
		// Fetch as many rows as will fit, judged by the size of those that came.
		average := max(1, (s.bytes-bytes)/taken)
		want = max(1, min(s.remaining(), mostFetch, (s.maxBytes()-s.bytes)/average+1))
		steps = nil
	}
}

// taking returns a function that adds rows to the page.
func (s *pageReading) taking(r *reader) func(row [][]byte) error {
	return func(row [][]byte) error {
		if err := r.each(row); err != nil {
			return err
		}
		last := r.rows[len(r.rows)-1]
		s.page.Rows = append(s.page.Rows, last)
		s.bytes += last.Size()
		return nil
	}
}

func (s *pageReading) maxBytes() int {
	if s.request.MaxBytes > 0 {
		return s.request.MaxBytes
	}
	return s.cfg.PageBytes
}

// writeWAL writes to the WAL, so that the WAL extends beyond a position just read.
func (s *Sweeper) writeWAL(ctx context.Context, conn *pgx.Conn) error {
	if err := s.send(ctx, conn, tablesql.Step{SQL: sql.Heartbeat}); err != nil {
		return fmt.Errorf("writing WAL behind what was read: %w", err)
	}
	return nil
}
