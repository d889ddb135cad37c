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

// Requeue, discard and replay work alike: they look first, say what would be done, do it with --yes, and log
// who did what.

// actFlags are the flags of an act, except those that select rows.
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
	// Plan says which rows would be changed.
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
		return usage("--rows-per-second %d is below 0: write how many rows, or leave it out", a.rate)
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
				printAct(io.out, &op, &done, d)
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
	var filter []string // the flags that selected the rows
	for _, name := range []string{"id", "topic", "key", "error", "since", "until", "limit", "all", "status", "delete"} {
		if f := c.Flags().Lookup(name); f != nil && f.Changed {
			filter = append(filter, name+"="+f.Value.String())
		}
	}
	d.Audit(log, d.stream.Name, &op, &result, err, func(e *zerolog.Event) { by.fields(e).Strs("filter", filter) })
	return t, by, err
}

func printAct(out io.Writer, op *operator.Operation, t *actedTable, d *openTable) {
	p, action := &t.Plan, op.Action
	fmt.Fprintf(out, "stream %s, table %s: %s match", t.Stream, t.Table, counted(p.Matched, action.State()))
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
	switch {
	case t.Result != nil:
		printResult(out, op, t.Result, d)
	case p.Taken > 0:
		fmt.Fprintf(out, "%s; nothing was changed: repeat with --yes\n", inWords(op, outcomes[action].would))
	}
}

// outcomes are the texts about what would happen to rows, and about what happened.
var outcomes = map[operator.Action]struct{ would, did string }{
	operator.Requeue: {"they would be PENDING again, their attempts counted from zero", "requeued"},
	operator.Replay:  {"they would be PENDING again, and published once more", "to be replayed"},
	operator.Delete:  {"they would be deleted", "deleted"},
	operator.Dismiss: {"they would get the status STATUS", "set to STATUS"},
}

func inWords(op *operator.Operation, outcome string) string {
	return strings.Replace(outcome, "STATUS", printable(op.Status), 1)
}

func printResult(out io.Writer, op *operator.Operation, r *operator.Result, d *openTable) {
	fmt.Fprintf(out, "%s: %d", inWords(op, outcomes[op.Action].did), r.Changed)
	if r.Passed > 0 {
		fmt.Fprintf(out, "; passed over, since changed or locked by others meanwhile, or kept as they were by a trigger: %d", r.Passed)
	}
	if r.Unknown > 0 {
		fmt.Fprintf(out, "; unknown, since the connection broke: %d", r.Unknown)
	}
	if op.Action == operator.Requeue || op.Action == operator.Replay {
		fmt.Fprintf(out, "; the stream finds them within about %s", d.stream.WatchInterval+d.Outbox().Mapping.Grace)
	}
	fmt.Fprintln(out)
}

const dryRun = `Without --yes it only counts them and shows the first. Rows that are not in that state any more when
their turn comes, or that somebody has locked, are passed over, so a row in flight is never touched.
Who did what is logged on standard error.`

func requeueCommand(io streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "requeue",
		Short: "Make FAILED rows PENDING again",
		Long: `Makes FAILED rows PENDING as if they had never been tried: their attempts are counted from zero, their error is
cleared, a version column is raised. The stream finds them by its watch (watch_interval and grace)
and sweeps them. Requeued rows are late: where a later row of the key was already SENT, the order of
the key cannot be kept, and requeue names those rows.

` + dryRun,
		Example: `  outbox-cdc failed requeue --id 4711 --table public.outbox
  outbox-cdc failed requeue --topic orders --error 'too large' --since 24h --yes
  outbox-cdc failed requeue --all --limit 100000 --yes`,
	}
	a := addActFlags(c, 10_000, "failed_at, else created_at,")
	a.addError(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.run(c, io, operator.Operation{Action: operator.Requeue})
	}
	return c
}

func discardCommand(io streams) *cobra.Command {
	var remove bool
	var status string
	c := &cobra.Command{
		Use:   "discard",
		Short: "Give FAILED rows up for good",
		Long: `Gives FAILED rows up: they will never be published. Say how, since the table is yours:

  --status ARCHIVED   gives them that value in the status column, one that means neither pending,
                      sent nor failed (your table must allow it; later clean-up is your own)
  --delete            deletes them (the role needs DELETE on the table)

` + dryRun,
		Example: `  outbox-cdc failed discard --id 4711 --table public.outbox --delete --yes
  outbox-cdc failed discard --topic orders --until 2026-01-31 --status ARCHIVED`,
	}
	a := addActFlags(c, 10_000, "failed_at, else created_at,")
	a.addError(c)
	c.Flags().BoolVar(&remove, "delete", false, "delete the rows")
	c.Flags().StringVar(&status, "status", "", "give the rows this `STATUS` instead")
	c.RunE = func(c *cobra.Command, _ []string) error {
		op := operator.Operation{Action: operator.Dismiss, Status: status}
		if remove {
			op = operator.Operation{Action: operator.Delete}
		}
		if remove == c.Flags().Changed("status") {
			return usage("say either --delete or --status STATUS (see %s --help)", c.CommandPath())
		}
		return a.run(c, io, op)
	}
	return c
}

func replayCommand(io streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "replay",
		Short: "Publish SENT rows once more",
		Long: `Makes SENT rows PENDING, so that they are swept and published once more, in the order of the table
but after everything that was published since: for a consumer that lost what it had read. Consumers
see the same event ids again. Tables that delete on success or keep no state have nothing to replay.
(replay and failed replay are the same.)

` + dryRun,
		Example: `  outbox-cdc replay --since 2026-01-31T10:00:00Z --until 2026-01-31T11:00:00Z --topic orders
  outbox-cdc replay --since 2h --rows-per-second 500 --yes`,
	}
	a := addActFlags(c, operator.MaxLimit, "sent_at, else created_at,")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.run(c, io, operator.Operation{Action: operator.Replay})
	}
	return c
}
