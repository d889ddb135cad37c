package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// adminVariable has the connection string of a role that may make roles, publications and slots, if neither
// role of the configuration may. It is a variable because a flag would show in the list of processes.
const adminVariable = replication.AdminVariable

// connectTimeout bounds connecting to a database.
const connectTimeout = 10 * time.Second

func initCommand(io streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "init",
		Short: "Make what the streams need in their databases",
		Long: `Makes, where it is missing, in the database of each stream: the schema outbox_cdc (who leads, what
is parked), the publication with publish='insert', then the slot, and the roles of dsn and
replication_dsn with the least privileges that work. It may be repeated, and never alters or drops
what it did not make.

It connects as the role of dsn. Where that may not make these things, put the connection string of
one who may (the tables' owner with REPLICATION, or a superuser) into the environment variable
` + adminVariable + `; with several streams name one by --stream.

Making the slot waits until every transaction that is open in the cluster has ended; it says for
which ones.

Streams with delivery: exactly_once also need a journal, a topic in each of their Kafka clusters.
init --kafka makes it, and nothing in the databases; it needs CREATE on the topic, and prints the
command for others who have it. --show-sql prints that command, and makes nothing.`,
		Example: `  outbox-cdc init --config outbox-cdc.yaml --show-sql
  outbox-cdc init --config outbox-cdc.yaml
  outbox-cdc init --config outbox-cdc.yaml --kafka
  ` + adminVariable + `=postgres://postgres@db/orders outbox-cdc init --stream orders --native-table`,
	}
	file, what := configFlag(c), initOptions{}
	c.Flags().BoolVar(&what.showSQL, "show-sql", false, "print what would be run, and change nothing")
	c.Flags().StringVar(&what.stream, "stream", "", "only the stream `NAME`")
	c.Flags().BoolVar(&what.nativeTable, "native-table", false, "also create the tables of profile native")
	c.Flags().BoolVar(&what.noSlot, "no-slot", false, "make neither publication nor slot: for sweep --once only")
	c.Flags().BoolVar(&what.kafka, "kafka", false, "make the journals of streams that deliver exactly once, and nothing else")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := config.Load(*file)
		if err != nil {
			return err
		}
		if what.kafka {
			return initKafka(c.Context(), cfg, what, io)
		}
		chosen, err := chooseDatabase(cfg, what.stream)
		if err != nil {
			return err
		}
		for _, s := range chosen {
			if err := initStream(c.Context(), s, what, io); err != nil {
				return fmt.Errorf("stream %s: %w", s.Name, err)
			}
		}
		return nil
	}
	return c
}

type initOptions struct {
	showSQL, nativeTable, noSlot, kafka bool
	stream                              string
}

func initStream(ctx context.Context, s *config.Stream, what initOptions, io streams) error {
	pg, err := connectAdmin(ctx, s)
	_, refused := errors.AsType[*failure](err)
	if err != nil && what.showSQL && ctx.Err() == nil && !refused {
		fmt.Fprintf(io.err, "outbox-cdc: stream %s: %v\n", s.Name, err)
		fmt.Fprintln(io.err, "outbox-cdc: so this is everything, also what exists already")
		plan, err := planOf(&replication.State{Database: s.Postgres.Database}, setupOf(s, ""), s, what)
		if err != nil {
			return err
		}
		return show(s, plan, io.out)
	}
	if err != nil {
		return err
	}
	defer postgres.HangUp(pg)
	setup := setupOf(s, pg.ParameterStatus("session_authorization"))
	state, err := replication.Inspect(ctx, pg, setup.Config)
	if err != nil {
		return err
	}
	if err := claimed(ctx, pg, s, &state); err != nil {
		return err
	}
	plan, err := planOf(&state, setup, s, what)
	if err != nil {
		return err
	}
	if what.showSQL {
		missing, err := replication.Pending(ctx, pg, plan)
		if err != nil {
			return err
		}
		return show(s, missing, io.out)
	}
	return apply(ctx, pg, s, setup, plan, io.out)
}

// claimed returns an error if another stream has a table of this one.
func claimed(ctx context.Context, pg *pgconn.PgConn, s *config.Stream, state *replication.State) error {
	if !state.Schema || s.Shadow() {
		return nil
	}
	// Another role may have made the schema since the state was read.
	if err := replication.TrustSchemaAsAdministrator(ctx, pg, true); err != nil {
		return &failure{exitPermanent, err}
	}
	claim := statestore.NewClaim(s.Slot, replication.LockKey(s.Slot), s.OutboxTables())
	rivals, err := statestore.RivalsOver(ctx, pg, s.Name, claim)
	if err == nil {
		err = statestore.Refusal(s.Name, claim, rivals)
	}
	if errors.Is(err, statestore.ErrClaimed) {
		return &failure{exitPermanent, err}
	}
	return err
}

// connectAdmin connects as the role that may create objects. It refuses if other people's code could run with
// that role's rights.
func connectAdmin(ctx context.Context, s *config.Stream) (*pgconn.PgConn, error) {
	pg, err := connectBy(ctx, s, asAdmin(marker(s, operatorName)), postgres.Access.ConnectPlain)
	if refused, ok := errors.AsType[*postgres.Error](err); ok && postgres.LoginRefused(err, s.Postgres.User) != "" && os.Getenv(adminVariable) == "" {
		refused.Hint += "; or, where that role is still to be made, name one that may make it: " + adminVariable + "=postgres://postgres@db/" + s.Postgres.Database
	}
	if err != nil {
		return nil, err
	}
	if err := replication.TrustSchemaAsAdministrator(ctx, pg, false); err != nil {
		postgres.HangUp(pg)
		return nil, &failure{exitPermanent, err}
	}
	return pg, nil
}

// setupOf returns what init has to make. The roles are those of the configuration, except the role that is
// connected: it exists.
func setupOf(s *config.Stream, connected string) replication.Setup {
	setup := replication.Setup{Config: replicationConfig(s), Stream: s.Name, StreamRole: s.Postgres.User, WriteRole: s.Postgres.User, Tally: s.ExactlyOnce()}
	if to, err := streamer(s, "").Target(); err == nil { // it was parsed when the configuration was loaded
		setup.StreamRole = to.User
	}
	if setup.StreamRole == connected {
		setup.StreamRole = ""
	}
	if setup.WriteRole == connected {
		setup.WriteRole = ""
	}
	return setup
}

// planOf returns the steps of init. Native tables come first, because the publication lists tables.
func planOf(state *replication.State, setup replication.Setup, s *config.Stream, what initOptions) ([]replication.Step, error) {
	setup.NoSlot = what.noSlot
	steps, err := replication.InitPlan(state, setup)
	if err != nil || !what.nativeTable {
		return steps, err
	}
	var tables []replication.Step
	for _, t := range s.Tables {
		if t.Profile != "native" {
			continue
		}
		tables = append(tables, replication.Step{
			Title: "table " + t.Outbox.String() + " of profile native",
			SQL:   sql.NativeTable(t.Outbox.Schema, t.Outbox.Name),
			Done:  "SELECT to_regclass(" + sql.Literal(sql.Identifier(t.Outbox.Schema, t.Outbox.Name)) + ") IS NOT NULL",
		}, nativeDue(t.Outbox.Schema, t.Outbox.Name)) // a table of an earlier version has another index
	}
	if len(tables) == 0 {
		return nil, usage("--native-table: the stream has no table of profile native")
	}
	return slices.Concat(tables, steps), nil
}

func show(s *config.Stream, plan []replication.Step, out io.Writer) error {
	p := &s.Postgres
	if len(plan) == 0 {
		_, err := fmt.Fprintf(out, "-- stream %s: everything is there\n", s.Name)
		return err
	}
	_, err := fmt.Fprintf(out, "-- stream %s, database %s on %s:%d\n\n%s\n", s.Name, p.Database, p.Host, p.Port, replication.Script(plan))
	return err
}

func apply(ctx context.Context, pg *pgconn.PgConn, s *config.Stream, setup replication.Setup, plan []replication.Step, out io.Writer) error {
	err := replication.Apply(ctx, pg, setup, plan, replication.Progress{
		Done:    func(step replication.Step) { fmt.Fprintf(out, "%s: made %s\n", s.Name, step.Title) },
		Skipped: func(step replication.Step) { fmt.Fprintf(out, "%s: there already: %s\n", s.Name, step.Title) },
		Blocked: func(_ replication.Step, b *replication.Blocked) {
			fmt.Fprintf(out, "%s: %v; still waiting\n", s.Name, b)
		},
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: ready\n", s.Name)
	if err == nil && s.ExactlyOnce() {
		_, err = fmt.Fprintf(out, "%s: outbox-cdc init --kafka makes its journal in Kafka\n", s.Name)
	}
	return err
}

// chooseDatabase is chooseStreams for commands that may use the administrator's connection, which leads to a
// single database.
func chooseDatabase(cfg *config.Config, name string) ([]*config.Stream, error) {
	chosen, err := chooseStreams(cfg, name)
	if len(chosen) > 1 && os.Getenv(adminVariable) != "" {
		return nil, usage("%s leads to one database, and there are several streams: choose one with --stream NAME", adminVariable)
	}
	return chosen, err
}
