package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// Verb is what is done to rows.
type Verb string

// The verbs.
const (
	// Requeue makes FAILED rows PENDING, their attempts counted anew.
	Requeue Verb = "requeue"
	// Replay makes SENT rows PENDING: they are published once more.
	Replay Verb = "replay"
	// Delete deletes FAILED rows.
	Delete Verb = "delete"
	// Dismiss gives FAILED rows another status.
	Dismiss Verb = "dismiss"
)

// Act is one act of an operator on one table.
type Act struct {
	Verb Verb
	Pick tablesql.Pick // its Lot follows from the verb
	// Status of Dismiss.
	Status string
	// Limit is the most rows to take, the first in the order of sweeping.
	// At most MaxLimit.
	Limit int
	// PerSecond is the most rows changed in a second; 0: no limit.
	PerSecond int
	// Progress is told after each page; it may be nil.
	Progress func(done, of int)
}

func (a *Act) lot() tablesql.Lot {
	if a.Verb == Replay {
		return tablesql.LotSent
	}
	return tablesql.LotFailed
}

// Plan is what an act would do.
type Plan struct {
	// Matched rows, of which the act takes at most its limit.
	Matched Count `json:"matched"`
	Taken   int64 `json:"taken"`
	// TimeColumn is what since and until are compared with: the first of these
	// columns that is set.
	TimeColumn string `json:"time_column,omitempty"`
	Sample     []Row  `json:"sample"`
	Order      Order  `json:"order"`
}

// Order says of how many rows the order of their keys cannot be kept: a later
// row of the key was already SENT.
type Order struct {
	// Looked is how many of the rows were looked at; 0 with Note: none could be.
	Looked    int        `json:"looked_at"`
	Overtaken int        `json:"overtaken"`
	IDs       [][]string `json:"ids,omitempty"` // of the first ten
	Note      string     `json:"note,omitempty"`
}

// Result is what an act did.
type Result struct {
	Changed int `json:"changed"`
	// Passed rows were no longer in the state that was asked for, or somebody
	// had them locked.
	Passed int `json:"passed_over"`
	// Unknown rows: the connection broke while they were changed.
	Unknown int `json:"unknown,omitempty"`
	// IDs of the first rows that were changed, at most MaxNamed.
	IDs [][]string `json:"ids"`
}

// sampleRows is how many rows a plan shows.
const sampleRows = 5

// Plan looks what the act would do and changes nothing.
func (d *Desk) Plan(ctx context.Context, a Act) (Plan, error) {
	a.Pick.Lot = a.lot()
	var p Plan
	if _, err := d.statement(&a); err != nil { // a table that cannot
		return p, err
	}
	var err error
	if p.Matched, err = d.Count(ctx, &a.Pick, MaxLimit); err != nil {
		return p, err
	}
	p.Taken = min(p.Matched.N, int64(a.Limit))
	p.TimeColumn = strings.Join(d.relation.TimeOf(a.Pick.Lot), ", ")
	if p.Sample, err = d.List(ctx, &a.Pick, min(sampleRows, a.Limit), Shown{}); err != nil {
		return p, err
	}
	if a.Verb == Requeue {
		p.Order, err = d.order(ctx, &a)
	}
	return p, err
}

// order looks whether the rows' keys went on without them. It may take a scan
// of the table, so it has little time; without an answer it says so.
func (d *Desk) order(ctx context.Context, a *Act) (Order, error) {
	ids, err := d.ids(ctx, &a.Pick, min(orderRows, a.Limit))
	if err != nil || len(ids) == 0 {
		return Order{}, err
	}
	step, ok, err := d.relation.Overtaken(ids)
	if err != nil || !ok {
		return Order{Note: "the rows have no key, or the table keeps no SENT rows to compare with"}, err
	}
	o := Order{Looked: len(ids)}
	step.Each = func(row [][]byte) error {
		n, err := tablesql.Ordinal(row[0], len(ids))
		if err != nil {
			return err
		}
		if o.Overtaken++; o.Overtaken <= 10 {
			o.IDs = append(o.IDs, outbox.SplitID(ids[n]))
		}
		return nil
	}
	err = d.run(ctx, orderTimeout, step)
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == "57014" {
		return Order{Note: fmt.Sprintf("whether later rows of the keys were SENT could not be told within %s", orderTimeout)}, nil
	}
	if err != nil {
		return Order{}, d.failure("look at the order of rows", err)
	}
	return o, nil
}

// ids reads the ids of picked rows.
func (d *Desk) ids(ctx context.Context, pick *tablesql.Pick, limit int) ([]string, error) {
	step, err := d.relation.PickIDs(pick, limit)
	if err != nil {
		return nil, err
	}
	var ids []string
	step.Each = d.relation.EachID(func(id string) { ids = append(ids, id) })
	if err := d.run(ctx, statementTimeout, step); err != nil {
		return nil, d.failure("read the ids of rows", err)
	}
	return ids, nil
}

func (d *Desk) statement(a *Act) (string, error) {
	switch a.Verb {
	case Requeue, Replay:
		return d.relation.Requeue(a.lot())
	case Delete:
		return d.relation.Delete(a.lot())
	case Dismiss:
		return d.relation.Dismiss(a.Status)
	}
	return "", fmt.Errorf("%q is nothing that can be done to rows", a.Verb)
}

// Do does it, a page at a time, each page committed by itself. After an error
// the Result says what was done until then.
func (d *Desk) Do(ctx context.Context, a Act) (Result, error) {
	a.Pick.Lot = a.lot()
	result := Result{IDs: [][]string{}}
	text, err := d.statement(&a)
	if err != nil {
		return result, err
	}
	ids, err := d.ids(ctx, &a.Pick, a.Limit)
	if err != nil {
		return result, err
	}
	began := time.Now()
	for done := 0; done < len(ids); {
		page := ids[done:min(done+pageSize(a.PerSecond), len(ids))]
		if err := d.page(ctx, text, page, &result); err != nil {
			return result, d.refused(&a, err)
		}
		done += len(page)
		if a.Progress != nil {
			a.Progress(done, len(ids))
		}
		if done < len(ids) && a.PerSecond > 0 {
			if err := pause(ctx, time.Until(began.Add(time.Duration(done)*time.Second/time.Duration(a.PerSecond)))); err != nil {
				return result, fmt.Errorf("%s rows of table %s: %w", a.Verb, d.relation.Table, err)
			}
		}
	}
	return result, nil
}

// pageSize keeps a page under a second's worth of rows.
func pageSize(perSecond int) int {
	if perSecond <= 0 {
		return pageRows
	}
	return max(1, min(pageRows, perSecond))
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func (d *Desk) page(ctx context.Context, text string, ids []string, result *Result) error {
	args, err := d.relation.IDArrays(len(ids), func(i int) string { return ids[i] })
	if err != nil {
		return err
	}
	var changed [][]string
	step := tablesql.Step{SQL: text, Args: args, Each: func(row [][]byte) error {
		n, err := tablesql.Ordinal(row[0], len(ids))
		if err == nil {
			changed = append(changed, outbox.SplitID(ids[n]))
		}
		return err
	}}
	if err := d.run(ctx, statementTimeout, step); err != nil {
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

// refused adds what ends the refusal of an act.
func (d *Desk) refused(a *Act, err error) error {
	var server *pgconn.PgError
	if a.Verb == Delete && errors.As(err, &server) && server.Code == "42501" {
		return fmt.Errorf("delete rows of table %s: %w (%s)", d.relation.Table, err, grantDelete(d.relation.Table, d.conn.Config().User))
	}
	return d.failure(string(a.Verb)+" rows", err)
}
