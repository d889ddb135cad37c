package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/suggest"
)

type suggestOptions struct {
	dsn, table, topic string
	brokers           []string
	sample            int
	json              bool
}

func mappingCommand(io streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "suggest",
		Short: "Propose a mapping from a table's columns and a few of its rows",
		Long: `Reads a table's columns, constraints and defaults and a few of its rows, and prints the mapping that
they suggest, to be pasted below tables: in the configuration, with the reason of each line. What
only you can know is a QUESTION in place of the value, with candidates: which topic, where no column
names one. A configuration with a QUESTION left is refused. Tables of known libraries are
recognized, and those whose rows only the library itself can read are refused.

With --brokers it prints a whole configuration. Its DSN has no password: PostgreSQL's own variable
PGPASSWORD or passfile gives it.

Nothing is written to the database: it is read in read-only transactions, values of more than
16 KiB not at all. Without --dsn, the variables PGHOST, PGUSER, PGDATABASE … say where. Exit code 3:
nothing can be proposed, and why.`,
		Example: `  outbox-cdc mapping suggest --dsn postgres://postgres@localhost:5432/orders --table public.outbox_events
  outbox-cdc mapping suggest --table public.outbox_events --topic orders --brokers localhost:9092 > outbox-cdc.yaml`,
	}
	o := suggestOptions{}
	c.Flags().StringVar(&o.dsn, "dsn", "", "connection string of the database (`DSN`)")
	c.Flags().StringVar(&o.table, "table", "", "the table `SCHEMA.NAME`")
	c.Flags().StringVar(&o.topic, "topic", "", "the `TOPIC` of every row, where no column names one")
	c.Flags().StringSliceVar(&o.brokers, "brokers", nil, "print a whole configuration, with these Kafka brokers (`HOST:PORT,…`)")
	c.Flags().IntVar(&o.sample, "sample", 200, fmt.Sprintf("read this many `ROWS`, at most %d; 0: none", suggest.MaxSample))
	jsonFlag(c, &o.json)
	c.RunE = func(c *cobra.Command, _ []string) error { return o.run(c.Context(), io) }
	return group("mapping", "Propose the mapping of a table", `  outbox-cdc mapping suggest --dsn postgres://postgres@localhost:5432/orders --table public.outbox_events`, c)
}

func (o *suggestOptions) run(ctx context.Context, io streams) error {
	schema, name, ok := config.SplitTable(o.table)
	if !ok {
		example := "public.outbox_events"
		if _, _, ok := config.SplitTable("public." + o.table); ok {
			example = "public." + o.table
		}
		return usage("--table %q is not a table with its schema: write --table %s", o.table, example)
	}
	if o.sample < 0 || o.sample > suggest.MaxSample {
		return usage("--sample %d is not between 0 and %d", o.sample, suggest.MaxSample)
	}
	access := postgres.Access{DSN: o.dsn, Application: operatorName}
	to, err := access.Target()
	if err != nil {
		return usage("--dsn is not a connection string: write it like postgres://user@host:5432/database")
	}
	conn, err := connectWithin(ctx, access, to, postgres.Access.Connect)
	if err != nil {
		return err
	}
	defer postgres.HangUp(conn)
	f, err := suggest.Read(ctx, conn, schema, name, o.sample)
	if errors.Is(err, suggest.ErrNoTable) {
		return usage("there is no table %s.%s in %s (upper and lower case matter)", schema, name, to)
	}
	if err != nil {
		return err
	}
	return o.print(io, suggest.Propose(f, suggest.Options{Topic: o.topic}), to)
}

// suggestion is the JSON of a proposal.
type suggestion struct {
	// Version of this layout.
	Version int `json:"version"`
	// Table is the name of the table.
	Table string `json:"table"`
	// Known is the library whose table it is.
	Known string `json:"known,omitempty"`
	// Refused is why nothing is proposed.
	Refused string `json:"refused,omitempty"`
	// YAML is the proposal.
	YAML string `json:"yaml,omitempty"`
	// Questions are those that the proposal asks.
	Questions []string `json:"questions"`
	// Notes are what else is worth knowing.
	Notes []string `json:"notes"`
}

func (o *suggestOptions) print(io streams, p *suggest.Proposal, to postgres.Target) error {
	text := ""
	if p.Refused == "" {
		text = p.YAML()
		if len(o.brokers) > 0 {
			text = o.file(to, p)
		}
	}
	questions := p.Asked()
	if o.json {
		err := printJSON(io.out, suggestion{1, p.Table, p.Known, p.Refused, text, append([]string{}, questions...), append([]string{}, p.Notes...)})
		if err != nil || p.Refused == "" {
			return err
		}
		return &failure{exitPermanent, errReported}
	}
	if p.Refused != "" {
		known := ""
		if p.Known != "" {
			known = " is that of " + p.Known + ", and"
		}
		return &failure{exitPermanent, fmt.Errorf("table %s%s cannot be taken over: %s", p.Table, known, p.Refused)}
	}
	fmt.Fprint(io.out, text)
	if len(questions) > 0 {
		fmt.Fprintf(io.err, "outbox-cdc: %s to answer, marked QUESTION: a configuration with one left is refused\n", plural(len(questions), "question"))
	}
	return nil
}

// file returns a whole configuration file, without secrets.
func (o *suggestOptions) file(to postgres.Target, p *suggest.Proposal) string {
	brokers := make([]string, len(o.brokers))
	for i, b := range o.brokers {
		brokers[i] = suggest.Scalar(b)
	}
	return "kafka:\n  clusters:\n    main: {brokers: [" + strings.Join(brokers, ", ") + "]}\n" +
		"streams:\n  - name: " + suggest.Scalar(streamName(to.Database)) + "\n    postgres: {dsn: " + suggest.Scalar(o.address(to)) + "}\n    tables:\n" + p.YAML()
}

// address returns a URL with user, host, port, database and sslmode of the connection string.
func (o *suggestOptions) address(to postgres.Target) string {
	u := url.URL{Scheme: "postgres", User: url.User(to.User), Path: "/" + to.Database}
	query := url.Values{}
	if given, err := url.Parse(o.dsn); err == nil && given.Query().Has("sslmode") {
		query.Set("sslmode", given.Query().Get("sslmode"))
	}
	port := strconv.Itoa(int(to.Port))
	if strings.HasPrefix(to.Host, "/") {
		query.Set("host", to.Host)
		query.Set("port", port)
	} else {
		u.Host = net.JoinHostPort(to.Host, port)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// streamName makes a stream's name from the database's name.
func streamName(database string) string {
	name := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return -1
	}, strings.ToLower(database)), "-_")
	if name == "" {
		return "outbox"
	}
	return name[:min(len(name), 40)]
}

func profileCommand(io streams) *cobra.Command {
	return group("profile", "Look at the ready-made mappings", `  outbox-cdc profile list
  outbox-cdc profile show im2be`, profileListCommand(io), profileShowCommand(io))
}

func profileListCommand(io streams) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the profiles",
		RunE: func(*cobra.Command, []string) error {
			w := newTable(io.out)
			for _, name := range config.ProfileNames() {
				p, err := config.LoadProfile(name)
				if err != nil {
					return err
				}
				fmt.Fprintf(w, "%s\t%s\n", p.Name, p.Summary)
			}
			return w.Flush()
		},
	}
}

func profileShowCommand(io streams) *cobra.Command {
	return &cobra.Command{
		Use:     "show NAME",
		Short:   "Print a profile, in the language of the configuration",
		Long:    "Prints a profile as it is in this binary. A table that names the profile may give any of these keys as well, which replaces the profile's.",
		Example: "  outbox-cdc profile show im2be",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("%s needs one name (see outbox-cdc profile list)", c.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return config.ProfileNames(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := config.LoadProfile(args[0])
			if err != nil {
				return usage("%w", err)
			}
			_, err = fmt.Fprint(io.out, p.Source)
			return err
		},
	}
}
