package sweeper

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// FailedCount is how many rows of a table are FAILED, each count up to 100,000.
type FailedCount struct {
	Rows int64
	// Resend are rows that failed and are to be sent once more: they are
	// PENDING and not among Rows.
	Resend int64
}

// failedTimeout bounds what counting FAILED rows costs: without an index that
// serves it, it reads the whole table.
const failedTimeout = 2 * time.Second

// CountFailed counts the FAILED rows of a table, if that takes no longer than a
// moment; otherwise the server's cancellation (57014) is the error.
func (s *Sweeper) CountFailed(ctx context.Context, t *outbox.Table) (FailedCount, error) {
	var f FailedCount
	err := s.fresh(func() error {
		return s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			known, err := s.plan(ctx, conn, t)
			if err != nil {
				return err
			}
			settings := s.settings()
			settings.StatementTimeout = min(settings.StatementTimeout, failedTimeout)
			err = s.send(ctx, conn, settings.Step(nil), tablesql.Step{SQL: failedSQL(known.relation), Each: f.read})
			if err != nil {
				return refusal(t, fmt.Errorf("counting the failed rows of table %s: %w", t, err))
			}
			return nil
		})
	})
	return f, err
}

func failedSQL(r *tablesql.Relation) string {
	from := " FROM " + r.Name() + " AS t WHERE "
	resend := "0"
	if m := &r.Table.Mapping.Status; m.Resend != "" && m.FailedAt != "" {
		resend = from + tablesql.Ref(m.FailedAt) + " IS NOT NULL AND " + tablesql.Ref(m.Resend)
		if ours := r.ShareCondition(); ours != "" {
			resend += " AND " + ours
		}
		resend = counted(resend)
	}
	return "SELECT " + counted(from+r.Failed()) + ", " + resend
}

func (f *FailedCount) read(row [][]byte) error {
	for i, to := range []*int64{&f.Rows, &f.Resend} {
		n, err := strconv.ParseInt(string(row[i]), 10, 64)
		if err != nil {
			return fmt.Errorf("reading a count: %w", err)
		}
		*to = min(n, maxCounted)
	}
	return nil
}
