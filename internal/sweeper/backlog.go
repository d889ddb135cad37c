package sweeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// Bounds of what Failed returns for a table.
const (
	maxFailed      = 100_000
	maxFailedBytes = 256 << 20
)

// Failed returns a FAILED row of every key that has one, of the tables where
// such a row keeps its key waiting (on_failed: block). Rows without a key hold
// nobody and are left out. The rows have id, scope and times only. A table that
// refuses, or has too many, is a *TableError, with which the rows of the others
// are returned.
func (s *Sweeper) Failed(ctx context.Context) ([]*outbox.Row, error) {
	var rows []*outbox.Row
	err := s.fresh(func() error {
		rows = nil
		return s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			var arena mapping.Arena
			var refused []error
			for _, t := range s.cfg.Tables {
				if t.Mapping.OnFailed != outbox.OnFailedBlock || t.Mapping.Key == nil || !t.Stateful() {
					continue
				}
				failed, err := s.failed(ctx, conn, t, &arena)
				if err != nil && !isRefusal(refusal(t, err)) {
					return err
				}
				refused = append(refused, refusal(t, err))
				rows = append(rows, failed...)
			}
			return errors.Join(refused...)
		})
	})
	return rows, err
}

func (s *Sweeper) failed(ctx context.Context, conn *pgx.Conn, t *outbox.Table, arena *mapping.Arena) ([]*outbox.Row, error) {
	p, err := s.plan(ctx, conn, t)
	if err != nil {
		return nil, err
	}
	r := newReader(p, true, arena)
	r.most = maxFailedBytes
	scope := p.relation.Scope()
	sql := "SELECT DISTINCT ON (" + scope + ") " + r.selected() + " FROM " + p.relation.Name() + " AS t WHERE " +
		p.relation.Failed() + " AND " + tablesql.Ref(t.Mapping.Key.Column) + " IS DISTINCT FROM NULL ORDER BY " +
		scope + ", " + strings.Join(p.relation.Order(), ", ") + " LIMIT " + strconv.Itoa(maxFailed+1)
	settings := s.settings()
	if err := s.send(ctx, conn, settings.Step(nil), tablesql.Step{SQL: sql, Each: r.each}); err != nil {
		return nil, fmt.Errorf("reading the failed rows of table %s: %w", t, err)
	}
	if len(r.rows) > maxFailed || r.full {
		return nil, &TableError{Table: t, Err: &tablesql.MappingError{
			Table: t, Problem: fmt.Sprintf("has FAILED rows of more than %d keys, or of keys that take more than %d MiB, each of which blocks its key", maxFailed, maxFailedBytes>>20),
			Hint: "requeue or discard them, or set on_failed: skip",
		}}
	}
	// One whose key cannot be read has none, and holds nobody.
	return slices.DeleteFunc(r.rows, func(row *outbox.Row) bool { return row.Key == nil }), nil
}

// Pending is how many rows of a table wait to be published.
type Pending struct {
	Rows   int64
	Capped bool          // there are more than Rows
	Ready  int64         // of these, rows whose time has come
	Oldest time.Duration // age of the oldest of Ready; 0: none, or the table has no creation time
}

// maxCounted bounds how many rows Pending counts, and so what it costs.
const maxCounted = 100_000

// Pending counts the pending rows of a table, due or not.
func (s *Sweeper) Pending(ctx context.Context, t *outbox.Table) (Pending, error) {
	var p Pending
	err := s.fresh(func() error {
		return s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			known, err := s.plan(ctx, conn, t)
			if err != nil {
				return err
			}
			settings := s.settings()
			err = s.send(ctx, conn, settings.Step(nil), tablesql.Step{SQL: pendingSQL(known.relation), Each: p.read})
			if err != nil {
				return refusal(t, fmt.Errorf("counting the pending rows of table %s: %w", t, err))
			}
			return nil
		})
	})
	return p, err
}

func pendingSQL(r *tablesql.Relation) string {
	from := " FROM " + r.Name() + " AS t WHERE " + r.Pending()
	due, ready := from, "NULL" // all of them
	if condition := r.Due(); condition != "" {
		due = from + " AND " + condition
		ready = counted(due)
	}
	oldest := "NULL"
	if at := r.Table.Mapping.CreatedAt; at != "" {
		ref := tablesql.Ref(at)
		oldest = "(SELECT " + r.Age() + due + " AND " + ref + " > '-infinity' ORDER BY " + ref + " LIMIT 1)"
	}
	return "SELECT " + counted(from) + ", " + oldest + ", " + ready
}

// counted counts rows up to the bound, and one more.
func counted(from string) string {
	return fmt.Sprintf("(SELECT count(*) FROM (SELECT 1%s LIMIT %d) AS counted)", from, maxCounted+1)
}

func (p *Pending) read(row [][]byte) (err error) {
	*p = Pending{}
	if p.Rows, err = strconv.ParseInt(string(row[0]), 10, 64); err != nil {
		return fmt.Errorf("reading a count: %w", err)
	}
	if p.Rows > maxCounted {
		p.Rows, p.Capped = maxCounted, true
	}
	p.Ready = p.Rows
	if row[2] != nil {
		if p.Ready, err = strconv.ParseInt(string(row[2]), 10, 64); err != nil {
			return fmt.Errorf("reading a count: %w", err)
		}
		p.Ready = min(p.Ready, maxCounted)
	}
	p.Oldest, err = readAge(row[1])
	return err
}

// readAge reads an age in microseconds; NULL, and what lies ahead, is 0.
func readAge(text []byte) (time.Duration, error) {
	if text == nil {
		return 0, nil
	}
	micros, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading an age: %w", err)
	}
	return max(0, time.Duration(micros)*time.Microsecond), nil
}
