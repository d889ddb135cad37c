package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/operator"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// Bounds of a preview.
const (
	maxPreviewed = 1000     // rows
	maxGiven     = 64 << 20 // bytes of a row on standard input
	mostBytes    = 64 << 20 // bytes of all records together; one record is always shown
)

func previewCommand(io streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "preview",
		Short: "Show the records that rows would become; nothing is published",
		Long: `Shows the records that the next pending rows would become, or those of --id, whatever their state:
topic, key, headers and value (the partition where a column names it). A row that cannot become a
record is shown with its error. Nothing is published, nothing is marked, and Kafka is not asked.

With --stdin a row is read from standard input: a JSON object with its columns. Those that are left
out are NULL. PostgreSQL reads the values by the columns' types, and the row is inserted nowhere.

Exit code 3: a row cannot become a record.`,
		Example: `  outbox-cdc preview
  outbox-cdc preview --table public.outbox --id 4711 --json
  echo '{"id": 1, "topic": "orders", "payload": "{}"}' | outbox-cdc preview --table public.outbox --stdin`,
	}
	p := addFilterFlags(c, 10, "created_at")
	c.Flags().Lookup("limit").Usage = fmt.Sprintf("at most this many `ROWS` of each table (1 to %d)", maxPreviewed)
	stdin := c.Flags().Bool("stdin", false, "read a row from standard input, as a JSON object")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if p.limit > maxPreviewed {
			return usage("--limit %d is not between 1 and %d", p.limit, maxPreviewed)
		}
		if *stdin && p.narrowed() {
			return usage("--stdin gives the row itself: leave out what picks rows of the table")
		}
		return runPreview(c, p, *stdin, io)
	}
	return c
}

// previewed is the JSON of a preview.
type previewed struct {
	// Tables that were looked at.
	Tables []previewedTable `json:"tables"`
}

type previewedTable struct {
	// Stream is the name of its stream.
	Stream string `json:"stream"`
	// Table is the name of the table.
	Table string `json:"table"`
	// Records that its rows would become.
	Records []operator.Record `json:"records"`

	wrong int // number of rows that cannot become records
}

func runPreview(c *cobra.Command, p *filterFlags, stdin bool, io streams) error {
	var given []byte
	if stdin {
		var err error
		if given, err = readGiven(os.Stdin); err != nil {
			return err
		}
	}
	all, wrong, tables := previewed{Tables: []previewedTable{}}, 0, 0
	err := p.each(c.Context(), io, func(d *openTable) error {
		if tables++; stdin && tables > 1 {
			return usage("--stdin is a row of one table: name it with --table, and its stream with --stream")
		}
		t, err := previewTable(c, p, d, given)
		if err != nil {
			return err
		}
		all.Tables, wrong = append(all.Tables, t), wrong+t.wrong
		if p.json {
			return nil
		}
		return printPreview(io.out, &t)
	})
	if err == nil && p.json {
		err = printJSON(io.out, all)
	}
	if err == nil && wrong > 0 {
		return &failure{exitPermanent, fmt.Errorf("%s cannot become a record", plural(wrong, "row"))}
	}
	return err
}

func readGiven(from io.Reader) ([]byte, error) {
	given, err := io.ReadAll(io.LimitReader(from, maxGiven+1))
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	if len(given) > maxGiven {
		return nil, usage("the row on standard input is longer than %d MiB", maxGiven>>20)
	}
	return given, nil
}

func previewTable(c *cobra.Command, p *filterFlags, d *openTable, given []byte) (previewedTable, error) {
	t := previewedTable{Stream: d.stream.Name, Table: d.Outbox().String(), Records: []operator.Record{}}
	rows, err := previewRows(c, p, d, given)
	_, malformed := errors.AsType[*operator.InputError](err)
	_, unfitting := errors.AsType[*mapping.Error](err)
	if malformed || unfitting {
		return t, &failure{exitUsage, err}
	}
	for _, r := range rows {
		if r.Err != nil {
			t.wrong++
		}
		t.Records = append(t.Records, operator.RecordOf(r))
	}
	return t, err
}

func previewRows(c *cobra.Command, p *filterFlags, d *openTable, given []byte) ([]*outbox.Row, error) {
	if given != nil {
		r, err := d.PreviewOf(c.Context(), given)
		return []*outbox.Row{r}, err
	}
	state := tablesql.RowsPending
	if len(p.ids) > 0 {
		state = tablesql.RowsAny
	}
	pick, err := p.pick(c, d.Outbox(), state)
	if err != nil {
		return nil, err
	}
	return d.Preview(c.Context(), &pick, p.limit, mostBytes)
}

func printPreview(out io.Writer, t *previewedTable) error {
	fmt.Fprintf(out, "stream %s, table %s: %s\n", t.Stream, t.Table, plural(len(t.Records), "row"))
	if len(t.Records) == 0 {
		return nil
	}
	w := newTable(out)
	row(w, "ID", "TOPIC", "KEY", "HEADERS", "VALUE")
	for i := range t.Records {
		r := &t.Records[i]
		headers := make([]string, len(r.Headers))
		for i, h := range r.Headers {
			headers[i] = operator.OneLine(h.Name, 30) + "=" + h.Value.Short(30)
		}
		value := r.Value.Short(80)
		if r.Error != "" {
			value = "NO RECORD: " + r.Error
		}
		row(w, operator.OneLine(strings.Join(r.ID, ","), 40), cmp.Or(operator.OneLine(r.Topic, 60), "-"), r.Key.Short(40), cmp.Or(operator.OneLine(strings.Join(headers, " "), 120), "-"), value)
	}
	return w.Flush()
}
