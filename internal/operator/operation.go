package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Action is a kind of change to rows.
type Action string

// The actions.
const (
	// Requeue makes FAILED rows PENDING, their attempts counted from zero.
	Requeue Action = "requeue"
	// Replay makes SENT rows PENDING: they are published once more.
	Replay Action = "replay"
	// Delete deletes FAILED rows.
	Delete Action = "delete"
	// Dismiss gives FAILED rows another status.
	Dismiss Action = "dismiss"
)

// Operation is a change that an operator makes to rows of one table.
type Operation struct {
	Action Action
	Filter tablesql.Filter // its State follows from the action
	// Status of Dismiss.
	Status string
	// Limit is the largest number of rows to change, the first ones in the order of sweeping. At most
	// MaxLimit.
	Limit int
	// PerSecond is the largest number of rows changed per second; 0: no limit.
	PerSecond int
	// Progress is called after each page; it may be nil.
	Progress func(done, of int)
}

// State returns the state of the rows that the action is for.
func (a Action) State() tablesql.RowState {
	if a == Replay {
		return tablesql.RowsSent
	}
	return tablesql.RowsFailed
}

// Plan is what an Operation would do.
type Plan struct {
	// Matched are the rows that the flags choose.
	Matched Count `json:"matched"`
	// Taken is how many of them are changed, at most `--limit`.
	Taken int64 `json:"taken"`
	// TimeColumn names the columns that `--since` and `--until` are compared with: the first that is
	// set counts.
	TimeColumn string `json:"time_column,omitempty"`
	// Sample is the first five rows.
	Sample []Row `json:"sample"`
	// Order says which rows come after later rows of their key.
	Order Order `json:"order"`
}

// Order says of how many rows the order of their keys cannot be kept: a later
// row of the key was already SENT.
type Order struct {
	// Looked is how many rows were looked at: 1000 at most, for ten seconds.
	Looked int `json:"looked_at"`
	// Overtaken is how many of them have a later row of their key that is SENT.
	Overtaken int `json:"overtaken"`
	// IDs are those of the first ten of them.
	IDs [][]string `json:"ids,omitempty"`
	// Note is why this could not be found out.
	Note string `json:"note,omitempty"`
}

// Result is what an Operation did.
type Result struct {
	// Changed is how many rows were changed.
	Changed int `json:"changed"`
	// Passed are rows that were in another state by then, locked by somebody, or kept as they were by a trigger.
	Passed int `json:"passed_over"`
	// Unknown is how many rows may have been changed: the connection broke meanwhile.
	Unknown int `json:"unknown,omitempty"`
	// IDs of the first 100 rows that were changed.
	IDs [][]string `json:"ids"`
}

// sampleRows is how many rows a plan shows.
const sampleRows = 5

// Plan finds out what the operation would do. It changes nothing.
func (t *Table) Plan(ctx context.Context, op Operation) (Plan, error) {
	op.Filter.State = op.Action.State()
	var p Plan
	if _, err := t.change(&op); err != nil { // an error if the table cannot serve the operation
		return p, err
	}
	var err error
	if p.Matched, err = t.Count(ctx, &op.Filter, MaxLimit); err != nil {
		return p, err
	}
	p.Taken = min(p.Matched.N, int64(op.Limit))
	p.TimeColumn = strings.Join(t.relation.TimeOf(op.Filter.State), ", ")
	if p.Sample, err = t.List(ctx, &op.Filter, min(sampleRows, op.Limit), Shown{}); err != nil {
		return p, err
	}
	if op.Action == Requeue {
		p.Order, err = t.order(ctx, &op)
	}
	return p, err
}

// order finds out whether later rows of the rows' keys were already SENT. That may take a scan of the table,
// so it has a short timeout. If there is no answer in time, the result says so.
func (t *Table) order(ctx context.Context, op *Operation) (Order, error) {
	ids, err := t.ids(ctx, &op.Filter, min(orderRows, op.Limit))
	if err != nil || len(ids) == 0 {
		return Order{}, err
	}
	o := Order{Looked: len(ids)}
	step, ok, err := t.relation.Overtaken(ids, func(id string) {
		if o.Overtaken++; o.Overtaken <= 10 {
			o.IDs = append(o.IDs, outbox.SplitID(id))
		}
	})
	if err != nil || !ok {
		return Order{Note: "the rows have no key, or the table keeps no SENT rows to compare with"}, err
	}
	err = t.run(ctx, orderTimeout, step)
	if postgres.HasCode(err, pgerrcode.QueryCanceled) {
		return Order{Note: fmt.Sprintf("whether later rows of the keys were SENT could not be told within %s", orderTimeout)}, nil
	}
	if err != nil {
		return Order{}, t.failure("look at the order of rows", err)
	}
	return o, nil
}

// ids reads the ids of the selected rows.
func (t *Table) ids(ctx context.Context, filter *tablesql.Filter, limit int) ([]string, error) {
	var ids []string
	bytes := 0
	step, err := t.relation.PickIDs(filter, limit, func(id string) {
		if bytes += len(id); bytes <= maxIDBytes {
			ids = append(ids, id)
		}
	})
	if err != nil {
		return nil, err
	}
	if err := t.run(ctx, statementTimeout, step); err != nil {
		return nil, t.failure("read the ids of rows", err)
	}
	if bytes > maxIDBytes {
		return nil, &tablesql.MappingError{
			Table: t.relation.Table, Problem: fmt.Sprintf("has rows whose ids take %d MiB, more than the %d MiB that are read at once", bytes>>20, maxIDBytes>>20),
			Hint: "take fewer rows (--limit)",
		}
	}
	return ids, nil
}

func (t *Table) change(op *Operation) (*tablesql.Change, error) {
	switch op.Action {
	case Requeue, Replay:
		return t.relation.Requeue(op.Action.State())
	case Delete:
		return t.relation.Delete(op.Action.State())
	case Dismiss:
		return t.relation.Dismiss(op.Status)
	}
	return nil, fmt.Errorf("rows cannot be changed by %q: write %s, %s, %s or %s", op.Action, Requeue, Replay, Delete, Dismiss)
}

// Do carries the operation out, one page at a time. Each page is committed by itself. After an error, Result
// says what was done until then.
func (t *Table) Do(ctx context.Context, op Operation) (Result, error) {
	op.Filter.State = op.Action.State()
	result := Result{IDs: [][]string{}}
	change, err := t.change(&op)
	if err != nil {
		return result, err
	}
	ids, err := t.ids(ctx, &op.Filter, op.Limit)
	if err != nil {
		return result, err
	}
	size := pageRows
	if op.PerSecond > 0 {
		size = min(size, op.PerSecond) // at most the rows of one second
	}
	began, done := time.Now(), 0
	for page := range slices.Chunk(ids, size) {
		if err := t.page(ctx, change, page, &result); err != nil {
			if table := t.relation.Table; op.Action == Delete && postgres.HasCode(err, pgerrcode.InsufficientPrivilege) {
				grant := "GRANT DELETE ON " + sql.Identifier(table.Schema, table.Name) + " TO " + sql.Identifier(t.conn.Config().User)
				return result, &postgres.Error{What: "delete rows of table " + table.String(), Err: err, Hint: grant}
			}
			return result, t.failure(string(op.Action)+" rows", err)
		}
		done += len(page)
		if op.Progress != nil {
			op.Progress(done, len(ids))
		}
		if done < len(ids) && op.PerSecond > 0 {
			if err := wait.Sleep(ctx, time.Until(began.Add(time.Duration(done)*time.Second/time.Duration(op.PerSecond)))); err != nil {
				return result, fmt.Errorf("%s rows of table %s: %w", op.Action, t.relation.Table, err)
			}
		}
	}
	return result, nil
}

// Audit logs who changed rows, at every log level, and also after an error. who adds the fields that say by
// whom, and which rows were requested.
func (t *Table) Audit(log zerolog.Logger, stream string, op *Operation, result *Result, err error, who func(*zerolog.Event)) {
	if result.Changed == 0 {
		return
	}
	ids := make([]string, len(result.IDs))
	for i, id := range result.IDs {
		ids[i] = strings.Join(id, ",")
	}
	log = log.Level(zerolog.InfoLevel)
	log.Info().Err(err).Str("verb", string(op.Action)).Str("stream", stream).Stringer("table", t.Outbox()).Func(who).
		Int("rows", result.Changed).Int("passed_over", result.Passed).Int("unknown", result.Unknown).Strs("ids", ids).
		Msg("an operator changed rows")
}

func (t *Table) page(ctx context.Context, change *tablesql.Change, ids []string, result *Result) error {
	var changed [][]string
	step, err := change.Of(ids, func(id string) { changed = append(changed, outbox.SplitID(id)) })
	if err != nil {
		return err
	}
	if err := t.run(ctx, statementTimeout, step); err != nil {
		if tablesql.Unknown(err) {
			result.Unknown += len(ids)
		}
		return err
	}
	result.Changed += len(changed)
	result.Passed += len(ids) - len(changed)
	result.IDs = append(result.IDs, changed[:min(len(changed), MaxNamed-len(result.IDs))]...)
	return nil
}
