package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/operator"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// filterFlags are the flags that select rows and tables.
type filterFlags struct {
	config        *string
	stream, table string
	ids           []string
	topic, key    string
	pattern       string
	since, until  string
	limit         int
	json          bool
}

func addFilterFlags(c *cobra.Command, limit int, time string) *filterFlags {
	p := &filterFlags{config: configFlag(c)}
	f := c.Flags()
	streamFlag(c, &p.stream)
	tableFlag(c, &p.table, "only the table `SCHEMA.NAME`")
	f.StringArrayVar(&p.ids, "id", nil, "only the row of this `ID`; of several columns: A,B or [\"A\",\"B\"] (repeatable)")
	f.StringVar(&p.topic, "topic", "", "only rows of this `TOPIC`")
	f.StringVar(&p.key, "key", "", "only rows of this `KEY`")
	f.StringVar(&p.since, "since", "", "only rows whose "+time+" is at or after `TIME` (2026-01-31T10:00:00Z, 2026-01-31, or 2h for two hours ago)")
	f.StringVar(&p.until, "until", "", "only rows whose "+time+" is before `TIME`")
	f.IntVar(&p.limit, "limit", limit, fmt.Sprintf("at most this many `ROWS` of each table (1 to %d)", operator.MaxLimit))
	jsonFlag(c, &p.json)
	return p
}

func (p *filterFlags) addError(c *cobra.Command) {
	c.Flags().StringVar(&p.pattern, "error", "", "only rows whose last error matches this regular expression, whatever its case (`PATTERN`)")
}

// narrowed reports whether a flag chooses among the rows.
func (p *filterFlags) narrowed() bool {
	return len(p.ids) > 0 || p.topic != "" || p.key != "" || p.pattern != "" || p.since != "" || p.until != ""
}

type openTable struct {
	*operator.Table
	stream *config.Stream
	conn   *pgx.Conn
}

func (p *filterFlags) pick(c *cobra.Command, t *outbox.Table, state tablesql.RowState) (tablesql.Filter, error) {
	chosen := operator.Selection{Error: p.pattern, Since: p.since, Until: p.until}
	if c.Flags().Changed("topic") {
		chosen.Topic = &p.topic
	}
	if c.Flags().Changed("key") {
		chosen.Key = &p.key
	}
	for _, text := range p.ids {
		chosen.IDs = append(chosen.IDs, operator.ParseID(text, len(t.Mapping.ID)))
	}
	pick, err := chosen.Filter(state, time.Now())
	return pick, wrongFlag(err)
}

// wrongFlag names the flag that is wrong.
func wrongFlag(err error) error {
	if wrong, is := errors.AsType[*operator.WrongField](err); is {
		return usage("--%s: %v", wrong.Field, err)
	}
	return err
}

// each calls f for every table that the flags name. A table that cannot serve the command is skipped with a
// note. If no table can, that is an error.
func (p *filterFlags) each(ctx context.Context, io streams, f func(*openTable) error) error {
	if p.limit < 1 || p.limit > operator.MaxLimit {
		return usage("--limit %d is not between 1 and %d", p.limit, operator.MaxLimit)
	}
	times := operator.Selection{Since: p.since, Until: p.until}
	if _, err := times.Filter(tablesql.RowsAny, time.Now()); err != nil {
		return wrongFlag(err)
	}
	cfg, chosen, err := load(*p.config, p.stream, p.choose)
	if err != nil {
		return err
	}
	n, passed := 0, []error{}
	for _, s := range cfg.Streams {
		if len(chosen[s]) == 0 {
			continue
		}
		unfit, err := p.eachOf(ctx, s, chosen[s], f)
		if err != nil {
			return fmt.Errorf("stream %s: %w", s.Name, err)
		}
		n += len(chosen[s])
		passed = append(passed, unfit...)
	}
	if n == len(passed) {
		return unfit(errors.Join(passed...))
	}
	for _, err := range passed {
		fmt.Fprintf(io.err, "outbox-cdc: passed over: %v\n", err)
	}
	return nil
}

// eachOf calls f for the tables of one stream. passed has the reasons why tables were skipped.
func (p *filterFlags) eachOf(ctx context.Context, s *config.Stream, tables []*outbox.Table, f func(*openTable) error) (passed []error, err error) {
	conn, err := connectOperator(ctx, s)
	if err != nil {
		return nil, err
	}
	defer postgres.HangUp(conn)
	for _, t := range tables {
		d, err := operator.Open(ctx, conn, t)
		if err == nil {
			err = f(&openTable{Table: d, stream: s, conn: conn})
		}
		if _, unusable := errors.AsType[*tablesql.MappingError](err); unusable {
			passed = append(passed, fmt.Errorf("stream %s: %w", s.Name, err))
		} else if err != nil {
			return nil, unfit(err)
		}
	}
	return passed, nil
}

// choose returns the tables with the given names, by stream.
func (p *filterFlags) choose(cfg *config.Config, stream string) (map[*config.Stream][]*outbox.Table, error) {
	list, err := chooseStreams(cfg, stream)
	if err != nil {
		return nil, err
	}
	chosen, n, names := map[*config.Stream][]*outbox.Table{}, 0, []string{}
	for _, s := range list {
		for _, t := range s.OutboxTables() {
			names = append(names, t.String())
			if p.table == "" || p.table == t.String() {
				chosen[s] = append(chosen[s], t)
				n++
			}
		}
	}
	switch {
	case n == 0:
		return nil, usage("there is no table %q in %s (write one of %s)", p.table, cfg.File, strings.Join(names, ", "))
	case n > 1 && len(p.ids) > 0:
		return nil, usage("an id is of one table: name it with --table, and its stream with --stream (tables: %s)", strings.Join(names, ", "))
	}
	return chosen, nil
}

// short cuts a time in RFC 3339 after its seconds.
func short(at string) string {
	if len(at) > 19 {
		return at[:10] + " " + at[11:19] + "Z"
	}
	return cmp.Or(at, "-")
}
