package sweeper

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/mapping"
	"github.com/outbox-cdc/outbox-cdc/outbox"
	"github.com/outbox-cdc/outbox-cdc/statement"
)

// Rows are fetched a few at first, to learn their size, then many at a time.
const (
	firstFetch = 32
	mostFetch  = 2000
)

// Sweep reads one page: every part in table order, all parts from one snapshot,
// which is taken after the request was made. A *TableError says which table
// refuses; other errors pass.
func (s *Sweeper) Sweep(ctx context.Context, req outbox.SweepRequest) (outbox.Page, error) {
	var page outbox.Page
	err := s.fresh(func() error {
		return s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			sw := sweep{Sweeper: s, conn: conn, request: req}
			err := sw.run(ctx)
			page = sw.page
			return err
		})
	})
	if err != nil {
		return outbox.Page{}, err
	}
	return page, nil
}

// sweep is one page being read.
type sweep struct {
	*Sweeper
	conn    *pgx.Conn
	request outbox.SweepRequest
	arena   mapping.Arena
	page    outbox.Page
	bytes   int
}

func (s *sweep) run(ctx context.Context) error {
	plans := make([]*plan, len(s.request.Parts))
	for i := range s.request.Parts {
		var err error
		if plans[i], err = s.plan(ctx, s.conn, s.request.Parts[i].Table); err != nil {
			return err
		}
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	for i := range s.request.Parts {
		if err := s.part(ctx, plans[i], &s.request.Parts[i]); err != nil {
			return refusal(s.request.Parts[i].Table, err)
		}
	}
	if err := statement.Run(ctx, s.conn, statement.Step{SQL: "COMMIT"}); err != nil {
		return fmt.Errorf("ending the snapshot of a page: %w", err)
	}
	if s.request.Nudge {
		return s.nudge(ctx, s.conn, "sweep")
	}
	return nil
}

// begin takes the snapshot, then reads the insert position.
func (s *sweep) begin(ctx context.Context) error {
	settings := statement.Settings{StatementTimeout: s.cfg.StatementTimeout}
	err := statement.Run(ctx, s.conn,
		statement.Step{SQL: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"},
		// The statement's snapshot, which is the transaction's, exists before
		// its expressions are evaluated.
		settings.Step(s.readPosition, "pg_current_snapshot()::text", "pg_current_wal_insert_lsn()::text"),
	)
	if err != nil {
		return fmt.Errorf("taking the snapshot of a page: %w", err)
	}
	return nil
}

func (s *sweep) readPosition(row [][]byte) (err error) {
	if s.page.Snapshot, err = outbox.ParseSnapshot(string(row[0])); err != nil {
		return err
	}
	s.page.Insert, err = outbox.ParseLSN(string(row[1]))
	return err
}

// part reads one table's rows through a cursor, so that a page of large rows
// can end before its limit.
func (s *sweep) part(ctx context.Context, p *plan, part *outbox.SweepPart) error {
	left := s.request.Limit - len(s.page.Rows)
	if left <= 0 || s.full() {
		s.page.More = true
		return nil
	}
	r := newReader(p, false, &s.arena)
	q := newSelection(p.relation, r.selected(), left)
	q.include(part.Include)
	q.exclude(part.Exclude, part.ExcludeIDs)
	if q.none {
		return nil
	}
	if err := s.fetch(ctx, r, q); err != nil {
		return fmt.Errorf("reading a page of table %s: %w", part.Table, err)
	}
	return nil
}

func (s *sweep) fetch(ctx context.Context, r *reader, q *selection) error {
	steps := []statement.Step{{SQL: "DECLARE page NO SCROLL CURSOR FOR " + q.sql(), Args: q.params.Values}}
	for taken := 0; ; {
		want := s.next(r, q.limit-taken)
		before := len(r.rows)
		steps = append(steps, statement.Step{SQL: "FETCH " + strconv.Itoa(want) + " FROM page", Each: s.each(r)})
		if err := statement.Run(ctx, s.conn, steps...); err != nil {
			return err
		}
		got := len(r.rows) - before
		taken += got
		if taken == q.limit || s.full() {
			s.page.More = true
		}
		if s.page.More || got < want {
			return statement.Run(ctx, s.conn, statement.Step{SQL: "CLOSE page"})
		}
		steps = steps[:0]
	}
}

// each takes rows as long as the page has room.
func (s *sweep) each(r *reader) func(row [][]byte) error {
	return func(row [][]byte) error {
		if s.full() {
			s.page.More = true
			return nil
		}
		if err := r.each(row); err != nil {
			return err
		}
		last := r.rows[len(r.rows)-1]
		s.page.Rows = append(s.page.Rows, last)
		s.bytes += last.Size()
		return nil
	}
}

func (s *sweep) maxBytes() int {
	if s.request.MaxBytes > 0 {
		return s.request.MaxBytes
	}
	return s.cfg.PageBytes
}

func (s *sweep) full() bool { return s.bytes >= s.maxBytes() }

// next is how many rows to fetch: as many as will fit, by the size of those
// that came.
func (s *sweep) next(r *reader, left int) int {
	if len(r.rows) == 0 {
		return min(left, firstFetch)
	}
	average := max(1, r.bytes/len(r.rows))
	return max(1, min(left, mostFetch, (s.maxBytes()-s.bytes)/average+1))
}

// nudge writes WAL, so that the log gets behind a position just read.
// https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-REPLICATION
func (s *Sweeper) nudge(ctx context.Context, conn *pgx.Conn, why string) error {
	err := statement.Run(ctx, conn, statement.Step{
		SQL:  "SELECT pg_logical_emit_message(true, 'outbox-cdc', $1)",
		Args: [][]byte{[]byte(why)},
	})
	if err != nil {
		return fmt.Errorf("writing WAL behind what was read: %w", err)
	}
	return nil
}
