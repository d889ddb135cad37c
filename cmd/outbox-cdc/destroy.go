package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/slots"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/internal/survey"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

func destroyCommand(io streams) *cobra.Command {
	var stream string
	var yes, asJSON bool
	c := &cobra.Command{
		Use:   "destroy",
		Short: "Remove what init made in the databases",
		Long: `Removes exactly what init made for the streams: the slot, the publication if init made it, what
schema outbox_cdc keeps about the stream, and the schema when no other stream is left in it. Your
tables, their rows, roles and grants stay. It says what it will remove and how much WAL that frees,
and asks. While a process leads the stream it refuses.

It connects as the role of dsn, or as that of ` + adminVariable + `.`,
		Example: `  outbox-cdc destroy --stream orders
  outbox-cdc destroy --stream orders --yes`,
	}
	file, logs := configFlag(c), addLogFlags(c)
	streamFlag(c, &stream)
	yesFlag(c, &yes, "remove without asking")
	jsonFlag(c, &asJSON)
	c.RunE = func(c *cobra.Command, _ []string) error {
		log, err := logs.logger(io.err)
		if err != nil {
			return err
		}
		_, chosen, err := load(*file, stream, chooseDatabase)
		if err != nil {
			return err
		}
		report := destroyReport{Streams: []destroyed{}}
		for _, s := range chosen {
			d, err := destroyStream(c.Context(), s, yes, asJSON, io)
			if len(d.Removed) > 0 {
				d.By.audit(log).Err(err).Str("stream", d.Stream).Strs("removed", d.Removed).Msg("an operator removed what init made")
			}
			if err != nil {
				return fmt.Errorf("stream %s: %w", s.Name, err)
			}
			report.Streams = append(report.Streams, d)
		}
		if asJSON {
			return printJSON(io.out, report)
		}
		return nil
	}
	return c
}

// destroyReport is the JSON of destroy.
type destroyReport struct {
	// Streams whose things were removed.
	Streams []destroyed `json:"streams"`
}

type destroyed struct {
	// Stream is the name of the stream.
	Stream string `json:"stream"`
	// Removed says in words what was removed.
	Removed []string `json:"removed"`
	// Freed is the WAL that the server can remove at its next checkpoint.
	Freed uint64 `json:"wal_freed_bytes"`
	// By is who did it.
	By actor `json:"by"`
}

func destroyStream(ctx context.Context, s *config.Stream, yes, quiet bool, io streams) (destroyed, error) {
	pg, err := connectAdmin(ctx, s)
	if err != nil {
		return destroyed{}, err
	}
	defer postgres.HangUp(pg)
	d := destroyed{Stream: s.Name, Removed: []string{}, By: whoActs(pg.ParameterStatus("session_authorization"))}
	setup := setupOf(s, "")
	state, err := replication.Inspect(ctx, pg, setup.Config)
	if err != nil {
		return d, err
	}
	plan, err := replication.DestroyPlan(&state, setup)
	if err != nil {
		return d, err
	}
	if len(plan) == 0 {
		fmt.Fprintf(io.err, "%s: nothing is left that init made\n", s.Name)
		return d, nil
	}
	if d.Freed, err = freedBy(ctx, s); err != nil {
		return d, err
	}
	for _, step := range plan {
		fmt.Fprintf(io.err, "%s: will remove %s\n", s.Name, step.Title)
	}
	fmt.Fprintf(io.err, "%s: that frees %s of WAL; tables, rows, roles and grants stay\n", s.Name, status.Bytes(d.Freed))
	if err := confirm(io, yes, "Remove it?"); err != nil {
		return d, err
	}
	err = replication.Apply(ctx, pg, setup, plan, replication.Progress{Done: func(step replication.Step) {
		d.Removed = append(d.Removed, step.Title)
		if !quiet {
			fmt.Fprintf(io.out, "%s: removed %s\n", s.Name, step.Title)
		}
	}})
	if e, ok := errors.AsType[*postgres.Error](err); ok { // the error's own words are about a plan that creates
		e.What = strings.Replace(e.What, "make ", "remove ", 1)
		e.Hint = strings.Replace(e.Hint, "; --show-sql prints the statements", "", 1)
	}
	return d, err
}

// freedBy returns how many bytes of WAL only the stream's slot holds back. It returns an error if a process
// leads the stream.
func freedBy(ctx context.Context, s *config.Stream) (uint64, error) {
	conn, err := connectBy(ctx, s, asAdmin(marker(s, operatorName)), postgres.Access.Connect)
	if err != nil {
		return 0, err
	}
	defer postgres.HangUp(conn)
	if err := notLed(ctx, postgres.On(conn), s); err != nil {
		return 0, err
	}
	list, err := slots.List(ctx, postgres.On(conn))
	if err != nil {
		return 0, err
	}
	slots.Judge(list, nil)
	for i := range list {
		if list[i].Name == s.Slot && list[i].Database == s.Postgres.Database {
			if list[i].Active {
				return 0, &failure{exitPermanent, fmt.Errorf("slot %s: %s", s.Slot, list[i].Refusal)}
			}
			return list[i].Frees, nil
		}
	}
	return 0, nil
}

// notLed returns an error if a process leads the stream.
func notLed(ctx context.Context, q postgres.DB, s *config.Stream) error {
	leader, _, err := survey.Leader(ctx, q, s.Name, s.Slot)
	switch {
	case err != nil || leader == nil:
		return err
	case leader.Intruder != "":
		return &failure{exitPermanent, errors.New(leader.Intruder)}
	}
	return &failure{exitPermanent, fmt.Errorf("%s leads the stream (pid %s): stop that process first", leader.Name, leader.PID)}
}
