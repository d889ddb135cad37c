package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// This file has what the operators' commands share: the choice of streams, connections, the question before a
// dangerous act, and the identity of the person who acts.

// chooseStreams returns the stream with the name, or all streams if the name is empty.
func chooseStreams(cfg *config.Config, name string) ([]*config.Stream, error) {
	if name == "" {
		return cfg.Streams, nil
	}
	var names []string
	for _, s := range cfg.Streams {
		if s.Name == name {
			return []*config.Stream{s}, nil
		}
		names = append(names, s.Name)
	}
	return nil, usage("there is no stream %q in %s (write one of %s)", name, cfg.File, strings.Join(names, ", "))
}

// load reads the configuration and selects one or more of its streams.
func load[T any](file, stream string, choose func(*config.Config, string) (T, error)) (cfg *config.Config, chosen T, err error) {
	if cfg, err = config.Load(file); err == nil {
		chosen, err = choose(cfg, stream)
	}
	return cfg, chosen, err
}

// connectOperator connects as the role that reads and marks rows. So the tables' triggers run with that
// role's rights, never with an administrator's.
func connectOperator(ctx context.Context, s *config.Stream) (*pgx.Conn, error) {
	return connectBy(ctx, s, marker(s, operatorName), postgres.Access.Connect)
}

// operatorName is the application_name of the commands' connections.
const operatorName = "outbox-cdc operator"

// asAdmin returns access as the administrator's role if the environment names one, and otherwise the given
// access.
func asAdmin(a postgres.Access) postgres.Access {
	if admin := os.Getenv(adminVariable); admin != "" {
		return postgres.Access{DSN: admin, Application: a.Application}
	}
	return a
}

// connectBy connects to the stream's database.
func connectBy[C any](ctx context.Context, s *config.Stream, access postgres.Access, connect func(postgres.Access, context.Context) (C, error)) (conn C, err error) {
	to, err := access.Target()
	if err != nil {
		return conn, usage("%s is not a connection string: write it like postgres://user:password@host:5432/database", adminVariable)
	}
	if to.Database != s.Postgres.Database {
		return conn, usage("%s is for the database %q, the stream's is %q", adminVariable, to.Database, s.Postgres.Database)
	}
	return connectWithin(ctx, access, to, connect)
}

// connectWithin connects within a timeout. If the connection is refused, the error says what to do.
func connectWithin[C any](ctx context.Context, access postgres.Access, to postgres.Target, connect func(postgres.Access, context.Context) (C, error)) (C, error) {
	bounded, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := connect(access, bounded)
	if err != nil {
		hint := postgres.LoginRefused(err, to.User)
		err = &postgres.Error{Permanent: hint != "", What: "connect to " + to.String(), Hint: hint, Err: postgres.WithoutSettings(err)}
	}
	return conn, err
}

// unfit makes a usage error of an error that says that the command does not fit the table.
func unfit(err error) error {
	if _, unusable := errors.AsType[*tablesql.MappingError](err); unusable {
		return &failure{exitUsage, err}
	}
	if f := tablesql.FaultOf(err); err != nil && (f == tablesql.TableRefused || f == tablesql.RowRefused) {
		return &failure{exitPermanent, err}
	}
	return err
}

// confirm asks on a terminal. Without a terminal, only --yes lets the command go on.
func confirm(io streams, yes bool, question string) error {
	if yes {
		return nil
	}
	if !isTerminal(io.err) || !isTerminal(os.Stdin) {
		return usage("%s Repeat with --yes", question)
	}
	fmt.Fprintf(io.err, "%s [y/N] ", question)
	return answered(os.Stdin)
}

func answered(from io.Reader) error {
	line, _ := bufio.NewReader(from).ReadString('\n') // no answer means no
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return &failure{exitUsage, errors.New("it was not answered with y, so nothing was changed")}
}

// actor is who acts, for the log.
type actor struct {
	// OSUser is the user of the operating system, and who called sudo.
	OSUser string `json:"os_user"`
	// Host that the command ran on.
	Host string `json:"host"`
	// DatabaseUser is the role that it connected as.
	DatabaseUser string `json:"database_user"`
}

func whoActs(databaseUser string) actor {
	o := actor{OSUser: "unknown", Host: "unknown", DatabaseUser: databaseUser}
	if u, err := user.Current(); err == nil {
		o.OSUser = u.Username
	}
	if sudo := os.Getenv("SUDO_USER"); sudo != "" {
		o.OSUser += " (sudo by " + sudo + ")"
	}
	if host, err := os.Hostname(); err == nil {
		o.Host = host
	}
	return o
}

// audit begins a log line about what the operator did. The line is logged at every level.
func (o actor) audit(log zerolog.Logger) *zerolog.Event { return o.fields(log.Log()) }

func (o actor) fields(e *zerolog.Event) *zerolog.Event {
	return e.Str("os_user", o.OSUser).Str("host", o.Host).Str("database_user", o.DatabaseUser)
}

func printJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func streamFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "stream", "", "only the stream `NAME`")
	configured(c, "stream", func(s *config.Stream) []string { return []string{s.Name} })
}

func tableFlag(c *cobra.Command, to *string, usage string) {
	c.Flags().StringVar(to, "table", "", usage)
	configured(c, "table", func(s *config.Stream) (names []string) {
		for _, t := range s.OutboxTables() {
			names = append(names, t.String())
		}
		return names
	})
}

// configured completes a flag's value in the shell from the configured streams, or from the one that the
// flags name.
func configured(c *cobra.Command, flag string, of func(*config.Stream) []string) {
	_ = c.RegisterFlagCompletionFunc(flag, func(c *cobra.Command, _ []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		value := func(name string) string {
			if f := c.Flags().Lookup(name); f != nil {
				return f.Value.String()
			}
			return ""
		}
		cfg, err := config.Load(value("config"))
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for _, s := range cfg.Streams {
			if stream := value("stream"); flag == "stream" || stream == "" || stream == s.Name {
				names = append(names, of(s)...)
			}
		}
		slices.Sort(names)
		return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
	})
}

func jsonFlag(c *cobra.Command, to *bool) {
	c.Flags().BoolVar(to, "json", false, "print JSON (fields: docs/commands.md)")
}

func yesFlag(c *cobra.Command, to *bool, does string) {
	c.Flags().BoolVar(to, "yes", false, does)
}

func oneArgument(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage("%s needs one %s (see %s --help)", c.CommandPath(), what, c.CommandPath())
		}
		return nil
	}
}
