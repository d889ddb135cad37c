package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/operator"
)

// This file holds what requeue, discard and replay have in common: look first,
// say what would be done, do it with --yes, log who did what.

// actFlags are the flags of an act besides those that pick rows.
type actFlags struct {
	*filterFlags
	logs *logFlags
	all  bool
	yes  bool
	rate int
}

func addActFlags(c *cobra.Command, limit int, time string) *actFlags {
	a := &actFlags{filterFlags: addFilterFlags(c, limit, time), logs: addLogFlags(c)}
	c.Flags().BoolVar(&a.all, "all", false, "every row: needed where no other flag picks any")
	c.Flags().IntVar(&a.rate, "rows-per-second", 0, "change at most this many `ROWS` a second (0: no limit)")
	yesFlag(c, &a.yes, "act; without it only what would be done is shown")
	return a
}

// acted is the JSON of an act.
type acted struct {
	// Action is `requeue`, `replay`, `delete` or `dismiss` (which gives rows another status).
	Action operator.Action `json:"verb"`
	// DryRun is true where nothing was changed: without `--yes`.
	DryRun bool `json:"dry_run"`
	// By is who did it. Missing: a dry run.
	By *actor `json:"by,omitempty"`
	// Tables whose rows were looked at.
	Tables []actedTable `json:"tables"`
}

type actedTable struct {
	// Stream is the name of its stream.
	Stream string `json:"stream"`
	// Table is the name of the table.
	Table string `json:"table"`
	// Plan is what would be done.
	Plan operator.Plan `json:"plan"`
	// Result is what was done. Missing: a dry run.
	Result *operator.Result `json:"result,omitempty"`
}

// run carries the act out on every table that the flags name.
func (a *actFlags) run(c *cobra.Command, io streams, op operator.Operation) error {
	if !a.narrowed() && !a.all {
		return usage("%s picks no rows: say which (--id, --topic, --key, --since, …), or --all", c.CommandPath())
	}
	if a.rate < 0 {
		return usage("--rows-per-second %d is less than nothing", a.rate)
	}
	log, err := a.logs.logger(io.err)
	if err != nil {
		return err
	}
	out := acted{Action: op.Action, DryRun: !a.yes, Tables: []actedTable{}}
	err = a.each(c.Context(), io, func(d *openTable) error {
		done, by, err := a.onTable(c, io, d, op, log)
		if a.yes {
			out.By = &by
		}
		if done.Table != "" {
			out.Tables = append(out.Tables, done)
			if !a.json {
				printAct(io.out, op.Action, &done, d)
			}
		}
		return err
	})
	if a.json && len(out.Tables) > 0 {
		err = errors.Join(err, printJSON(io.out, out))
	}
	return err
}

func (a *actFlags) onTable(c *cobra.Command, io streams, d *openTable, op operator.Operation, log zerolog.Logger) (actedTable, actor, error) {
	by := whoActs(d.conn.Config().User)
	var err error
	if op.Filter, err = a.pick(c, d.Outbox(), 0); err != nil {
		return actedTable{}, by, err
	}
	op.Limit, op.PerSecond = a.limit, a.rate
	plan, err := d.Plan(c.Context(), op)
	if err != nil {
		return actedTable{}, by, err
	}
	t := actedTable{Stream: d.stream.Name, Table: d.Outbox().String(), Plan: plan}
	if !a.yes || plan.Taken == 0 {
		return t, by, nil
	}
	going := newProgress(io.err, log, fmt.Sprintf("%s rows of %s", op.Action, d.Outbox()))
	op.Progress = func(done, of int) { going.tell(done, of, time.Now()) }
	result, err := d.Do(c.Context(), op)
	going.end()
	t.Result = &result
	d.Audit(log, d.stream.Name, &op, &result, err, func(e *zerolog.Event) { by.fields(e).Strs("filter", picked(c)) })
	return t, by, err
}

// picked are the flags that chose the rows, for the log.
func picked(c *cobra.Command) []string {
	var filter []string
	for _, name := range []string{"id", "topic", "key", "error", "since", "until", "limit", "all", "status", "delete"} {
		if f := c.Flags().Lookup(name); f != nil && f.Changed {
			filter = append(filter, name+"="+f.Value.String())
		}
	}
	return filter
}

func printAct(out io.Writer, action operator.Action, t *actedTable, d *openTable) {
	p := &t.Plan
	fmt.Fprintf(out, "stream %s, table %s: %s %s match", t.Stream, t.Table, countText(p.Matched), plain(action.State(), p.Matched.N))
	if p.Taken < p.Matched.N || p.Matched.Capped {
		fmt.Fprintf(out, "; the first %d are taken (--limit)", p.Taken)
	}
	fmt.Fprintln(out)
	if t.Result == nil && len(p.Sample) > 0 {
		_ = printRows(out, p.Sample, false)
		if p.Taken > int64(len(p.Sample)) {
			fmt.Fprintf(out, "… and %d more\n", p.Taken-int64(len(p.Sample)))
		}
	}
	printOrder(out, p)
	switch {
	case t.Result != nil:
		printResult(out, action, t.Result, d)
	case p.Taken > 0:
		fmt.Fprintf(out, "%s; nothing was changed: repeat with --yes\n", wouldBe[action])
	}
}

var wouldBe = map[operator.Action]string{
	operator.Requeue: "they would be PENDING again, their attempts counted from zero",
	operator.Replay:  "they would be PENDING again, and published once more",
	operator.Delete:  "they would be deleted",
	operator.Dismiss: "they would get the other status",
}

func printOrder(out io.Writer, p *operator.Plan) {
	o := &p.Order
	switch {
	case o.Overtaken > 0:
		fmt.Fprintf(out, "order: of %d of them (of %d looked at) later rows of the key were SENT already: they come after those", o.Overtaken, o.Looked)
		for i, id := range o.IDs {
			fmt.Fprint(out, map[bool]string{true: "; ids ", false: " "}[i == 0], printable(strings.Join(id, ",")))
		}
		fmt.Fprintln(out)
	case o.Note != "" && p.Taken > 0:
		fmt.Fprintln(out, "order: "+o.Note)
	}
}

func printResult(out io.Writer, action operator.Action, r *operator.Result, d *openTable) {
	fmt.Fprintf(out, "%s: %d", map[operator.Action]string{operator.Requeue: "requeued", operator.Replay: "to be replayed", operator.Delete: "deleted", operator.Dismiss: "dismissed"}[action], r.Changed)
	if r.Passed > 0 {
		fmt.Fprintf(out, "; passed over, since changed or locked by others meanwhile: %d", r.Passed)
	}
	if r.Unknown > 0 {
		fmt.Fprintf(out, "; unknown, since the connection broke: %d", r.Unknown)
	}
	if action == operator.Requeue || action == operator.Replay {
		fmt.Fprintf(out, "; the stream finds them within about %s", d.stream.WatchInterval+d.Outbox().Mapping.Grace)
	}
	fmt.Fprintln(out)
}
