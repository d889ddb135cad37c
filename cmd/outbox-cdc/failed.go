package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/operator"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

func failedCommand(io streams) *cobra.Command {
	return group("failed", "List, requeue and discard rows that were given up", `  outbox-cdc failed list
  outbox-cdc failed show 4711 --table public.outbox
  outbox-cdc failed requeue --error 'too large' --since 24h
  outbox-cdc failed requeue --error 'too large' --since 24h --yes`,
		listCommand(io, tablesql.RowsFailed), showCommand(io), requeueCommand(io), discardCommand(io), replayCommand(io)) // the commands that change rows are in act.go
}

func pendingCommand(io streams) *cobra.Command {
	return group("pending", "List rows that are still to be published", "  outbox-cdc pending list --topic orders", listCommand(io, tablesql.RowsPending))
}

// listing is the JSON of failed list and pending list.
type listing struct {
	// Tables that were looked at.
	Tables []tableListing `json:"tables"`
}

type tableListing struct {
	// Stream is the name of its stream.
	Stream string `json:"stream"`
	// Table is the name of the table.
	Table string `json:"table"`
	// Total is how many rows the flags choose.
	Total operator.Count `json:"total"`
	// Rows are the first of them, at most `--limit`.
	Rows []operator.Row `json:"rows"`
}

// countLimit is how many rows a listing counts at most.
const countLimit = 100_000

func listCommand(io streams, state tablesql.RowState) *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List rows that used up their tries",
		Long: `Lists FAILED rows, the first in the order of sweeping, with the error that they ended with. A row
fails only by errors of itself (too large, refused by the broker); an outage costs no row a try.
Nothing is changed, and no payload is shown.`,
		Example: `  outbox-cdc failed list
  outbox-cdc failed list --topic orders --error 'too large' --since 24h --json`,
	}
	if state == tablesql.RowsPending {
		c.Short = "List rows that are still to be published"
		c.Long = `Lists PENDING rows, the first in the order of sweeping, with the time at which they are due and the
park that they wait for (a topic that is missing, a key whose row was refused), if any. Nothing is
changed, and no payload is shown.`
		c.Example = `  outbox-cdc pending list
  outbox-cdc pending list --key 42 --until 10m`
	}
	p := addFilterFlags(c, 20, map[bool]string{true: "created_at", false: "failed_at, else created_at,"}[state == tablesql.RowsPending])
	p.addError(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		all := listing{Tables: []tableListing{}}
		err := p.each(c.Context(), io, func(d *openTable) error {
			l, err := list(c, p, d, state)
			if err != nil {
				return err
			}
			all.Tables = append(all.Tables, l)
			if p.json {
				return nil
			}
			return printListing(io.out, &l, state)
		})
		if err != nil || !p.json {
			return err
		}
		return printJSON(io.out, all)
	}
	return c
}

func list(c *cobra.Command, p *filterFlags, d *openTable, state tablesql.RowState) (tableListing, error) {
	l := tableListing{Stream: d.stream.Name, Table: d.Outbox().String()}
	pick, err := p.pick(c, d.Outbox(), state)
	if err != nil {
		return l, err
	}
	shown := operator.Shown{}
	if state == tablesql.RowsPending {
		if shown.Parks, err = parksOf(c.Context(), d.conn, d.stream.Name); err != nil {
			return l, err
		}
	}
	if l.Total, err = d.Count(c.Context(), &pick, countLimit); err != nil {
		return l, err
	}
	l.Rows, err = d.List(c.Context(), &pick, p.limit, shown)
	return l, err
}

func printListing(out io.Writer, l *tableListing, state tablesql.RowState) error {
	fmt.Fprintf(out, "stream %s, table %s: %s", l.Stream, l.Table, counted(l.Total, state))
	if int64(len(l.Rows)) < l.Total.N {
		fmt.Fprintf(out, ", the first %d", len(l.Rows))
	}
	fmt.Fprintln(out)
	if len(l.Rows) == 0 {
		return nil
	}
	return printRows(out, l.Rows, state == tablesql.RowsPending)
}

// counted returns a sentence about how many rows of a state there are.
func counted(c operator.Count, state tablesql.RowState) string {
	text := capped(c.N, c.Capped) + " " + state.String() + " row"
	if c.N != 1 {
		text += "s"
	}
	return text
}

func showCommand(io streams) *cobra.Command {
	var payload bool
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show all about one row, in whatever state it is",
		Long: `Shows one row as it would be published: topic, key, times, tries, the whole error and the size of
its payload. The id has the values of the mapping's id columns, joined by commas (or as a JSON
list, where a value has a comma).`,
		Example: `  outbox-cdc failed show 4711
  outbox-cdc failed show 6f1c…,93ab… --table public.outbox --payload`,
		Args: oneArgument("id"),
	}
	p := &filterFlags{config: configFlag(c), limit: 1}
	streamFlag(c, &p.stream)
	tableFlag(c, &p.table, "the table `SCHEMA.NAME`")
	c.Flags().BoolVar(&payload, "payload", false, "print the payload, too; on a terminal without its control characters")
	jsonFlag(c, &p.json)
	c.RunE = func(c *cobra.Command, args []string) error {
		p.ids = args
		return p.each(c.Context(), io, func(d *openTable) error { return show1(c, p, d, payload, io) })
	}
	return c
}

func show1(c *cobra.Command, p *filterFlags, d *openTable, payload bool, io streams) error {
	pick := tablesql.Filter{State: tablesql.RowsAny, IDs: []string{operator.ParseID(p.ids[0], len(d.Outbox().Mapping.ID))}}
	held, err := parksOf(c.Context(), d.conn, d.stream.Name)
	if err != nil {
		return err
	}
	found, err := d.List(c.Context(), &pick, 1, operator.Shown{Payload: payload, Parks: held, Characters: operator.Whole})
	switch {
	case err != nil:
		return err
	case len(found) == 0:
		return &failure{exitFailure, fmt.Errorf("table %s has no row with the id %s", d.Outbox(), p.ids[0])}
	case p.json:
		return printJSON(io.out, found[0])
	}
	return printRow(io.out, d, &found[0], payload)
}

func printRow(out io.Writer, d *openTable, r *operator.Row, payload bool) error {
	w := newTable(out)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", printable(name), printable(value))
		}
	}
	line("table", r.Table+" (stream "+d.stream.Name+")")
	for i, name := range d.Outbox().Mapping.ID {
		line(name, r.ID[i])
	}
	line("state", r.State)
	line("topic", r.Topic)
	key := "none"
	if r.Key != nil {
		key = *r.Key
	}
	line("key", key)
	line("created", r.Created)
	line("due", r.Due)
	line("sent", r.Sent)
	line("failed", r.Failed)
	line("attempts", strconv.FormatInt(r.Attempts, 10))
	line("error", r.Error)
	line("waits for", r.Parked)
	size := "NULL"
	if r.PayloadBytes != nil {
		size = fmt.Sprintf("%d bytes", *r.PayloadBytes)
	}
	line("payload", size)
	if err := w.Flush(); err != nil {
		return err
	}
	switch {
	case r.Payload == nil && payload && r.PayloadBytes != nil:
		return fmt.Errorf("the payload has more than %d MiB, and is not printed: read it with COPY (SELECT %s FROM %s WHERE …) TO a file",
			operator.MaxPayload>>20, d.Outbox().Mapping.Payload.Column, d.Outbox())
	case r.Payload != nil && !isTerminal(out):
		fmt.Fprintln(raw(out), "\n"+*r.Payload)
	case r.Payload != nil:
		fmt.Fprintln(out, "\n"+*r.Payload)
	}
	return nil
}

// parksOf reads the parks and the pauses, including pauses that the leader has not noticed yet. Without
// schema outbox_cdc there are none.
func parksOf(ctx context.Context, conn *pgx.Conn, stream string) ([]outbox.Park, error) {
	err := replication.TrustSchema(ctx, postgres.On(conn))
	var list, paused []outbox.Park
	if err == nil {
		store := statestore.New(statestore.Config{DB: conn, Stream: stream})
		if list, err = store.Load(ctx); err == nil {
			paused, err = store.Paused(ctx)
		}
		list = append(slices.DeleteFunc(list, func(p outbox.Park) bool { return p.Cause == outbox.CausePaused }), paused...)
	}
	if errors.Is(err, statestore.ErrNoSchema) || errors.Is(err, replication.ErrNoSchema) {
		return nil, nil
	}
	return list, err
}

func printRows(out io.Writer, list []operator.Row, pending bool) error {
	w := newTable(out)
	last, fourth := "ERROR", "FAILED AT"
	if pending {
		last, fourth = "WAITS FOR", "DUE"
	}
	fmt.Fprintf(w, "ID\tTOPIC\tKEY\tCREATED\t%s\tATTEMPTS\t%s\n", fourth, last)
	for i := range list {
		r := &list[i]
		key, at, why := "-", r.Failed, r.Error
		if r.Key != nil {
			key = *r.Key
		}
		if pending {
			at, why = r.Due, r.Parked
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", printable(r.IDText()), printable(cmp.Or(r.Topic, "-")), printable(operator.OneLine(key, 40)), short(r.Created), short(at), r.Attempts, printable(cmp.Or(operator.OneLine(why, 200), "-")))
	}
	return w.Flush()
}
