package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/compare"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/sweeper"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

func compareCommand(io streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "compare",
		Short: "Compare what the present relay sends with what outbox-cdc would send",
		Long: `Watches the tables of one stream and their topics at the same time, while the relay that
outbox-cdc is to replace goes on working, and reports what differs: records that only one of the
two sends, and other keys, values, headers or partitions; first by kind, then by example.

Rows are read through a temporary replication slot, which ends with the command; the stream's own
slot, the table and the topics are left alone. Payloads are never printed. Rows are taken for the
time of --for; then records are awaited for up to --settle.

The publication must exist (outbox-cdc init). Exit code 0: nothing differs, 3: something does.`,
		Example: `  outbox-cdc compare --stream orders --for 10m
  outbox-cdc compare --stream orders --for 24h --json > differences.json
  outbox-cdc compare --ignore-header id --examples 20`,
	}
	file, o := configFlag(c), compareOptions{}
	c.Flags().StringVar(&o.stream, "stream", "", "the stream `NAME`; with one stream it need not be named")
	c.Flags().DurationVar(&o.window, "for", 5*time.Minute, "how long rows are taken")
	c.Flags().DurationVar(&o.settle, "settle", time.Minute, "how long the relay may take to send a row")
	c.Flags().StringArrayVar(&o.ignore, "ignore-header", nil, "do not compare the header `NAME`; may be repeated")
	c.Flags().IntVar(&o.examples, "examples", 5, "examples of each kind")
	c.Flags().BoolVar(&o.json, "json", false, "print the report as JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, s, err := load(*file, o.stream, oneStream)
		if err != nil {
			return err
		}
		report, err := runCompare(c.Context(), cfg, s, o, io)
		if err != nil {
			return fmt.Errorf("stream %s: %w", s.Name, err)
		}
		if o.json {
			err = printJSON(io.out, report)
		} else {
			printReport(report, io.out)
		}
		if err == nil && report.Differences > 0 { // differences have an exit code of their own
			err = &failure{exitPermanent, errReported}
		}
		return err
	}
	return c
}

type compareOptions struct {
	stream         string
	window, settle time.Duration
	ignore         []string
	examples       int
	json           bool
}

// oneStream returns the stream with the name, or the only stream.
func oneStream(cfg *config.Config, name string) (*config.Stream, error) {
	chosen, err := chooseStreams(cfg, name)
	if err != nil {
		return nil, err
	}
	if len(chosen) > 1 {
		return nil, usage("there are %d streams: name one with --stream", len(chosen))
	}
	return chosen[0], nil
}

// comparedAtOnce is how many rows and records may wait for a match: about a gigabyte.
const comparedAtOnce = 2_000_000

func runCompare(ctx context.Context, cfg *config.Config, s *config.Stream, o compareOptions, io streams) (*compare.Report, error) {
	if o.window <= 0 || o.settle <= 0 {
		return nil, usage("--for and --settle are durations above zero, such as 10m")
	}
	pool, err := openPool(s, nil)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	sw, err := sweeper.New(sweeper.Config{Pool: pool, Tables: s.OutboxTables(), Log: zerolog.Nop()})
	if err != nil {
		return nil, err
	}
	partitions, err := sw.Partitions(ctx)
	if err != nil {
		return nil, err
	}
	readers := map[string]*sink.Reader{}
	defer func() {
		for _, r := range readers {
			r.Close()
		}
	}()
	for name, sc := range sinkConfigs(cfg, s, zerolog.Nop()) {
		reader, err := sc.Reader(ctx)
		if err != nil {
			return nil, err
		}
		readers[name] = reader
	}
	return compare.Run(ctx, compare.Config{
		Stream: s.Name, Access: streamer(s, ""), Publication: s.Publication,
		Tables: s.OutboxTables(), Partitions: partitions, Readers: readers, Partition: sink.PartitionOf,
		Check: sw.Check, MaxFrame: maxFrame(s.OutboxTables()), For: o.window, Settle: o.settle, IgnoreHeaders: o.ignore, Examples: o.examples, Limit: comparedAtOnce,
		Began: func() {
			fmt.Fprintf(io.err, "outbox-cdc: comparing stream %s for %s, and up to %s more for records to come\n", s.Name, o.window, o.settle)
		},
	})
}

func printReport(r *compare.Report, to io.Writer) {
	fmt.Fprintf(to, "stream %s, %s to %s: %s, %s, %d equal, %s\n", r.Stream,
		r.Since.Format(time.RFC3339), r.Until.Format(time.RFC3339), plural(r.Rows, "row"), plural(r.Records, "record"), r.Same, plural(r.Differences, "difference"))
	if len(r.Kinds) == 0 {
		return
	}
	w := newTable(to)
	row(w, "KIND", "COUNT", "MEANS")
	for _, k := range r.Kinds {
		row(w, string(k.Kind), strconv.Itoa(k.Count), k.Means)
	}
	_ = w.Flush() // as every print here
	for _, k := range r.Kinds {
		for _, e := range k.Examples {
			fmt.Fprintf(to, "%s: %s: %s\n", k.Kind, whereabouts(e), e.Detail)
		}
	}
}

// whereabouts names a row, a record, or both.
func whereabouts(e compare.Example) string {
	var parts []string
	if e.Table != "" {
		quoted := make([]string, len(e.ID))
		for i, id := range e.ID {
			quoted[i] = strconv.Quote(id)
		}
		parts = append(parts, "row "+strings.Join(quoted, ", ")+" of "+e.Table)
	}
	if e.Offset != nil {
		parts = append(parts, fmt.Sprintf("record %s/%d at offset %d", e.Topic, *e.Partition, *e.Offset))
	}
	return strings.Join(parts, ", ")
}
