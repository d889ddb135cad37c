package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/admin/page"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

func pauseCommand(io streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "pause",
		Short: "Publish nothing of a stream, or of a table, until it is resumed",
		Long: `Publishes nothing more of a stream, or of one of its tables: rows stay PENDING. The slot moves on,
so no WAL is kept for them. The database remembers it, through restarts and changes of leadership.
The process that leads notices within five seconds; what was sent to Kafka by then is still
acknowledged and marked, what waits for Kafka is taken back.`,
		Example: `  outbox-cdc pause --stream orders
  outbox-cdc pause --stream orders --table public.outbox`,
	}
	return pausing(c, io, page.PausedMessage, pausable, func(ctx context.Context, s *statestore.Store, table string, by actor) error {
		return s.Pause(ctx, table, by.OSUser+"@"+by.Host)
	})
}

func resumeCommand(io streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "resume",
		Short: "End a pause",
		Long: `Ends the pause of a table, or every pause of a stream. The rows that waited are swept in the order
of the table, then the stream goes on. A table that is paused may be named though the configuration
has it no more.`,
		Example: `  outbox-cdc resume --stream orders`,
	}
	anything := func(*config.Stream, string) error { return nil }
	return pausing(c, io, page.ResumedMessage, anything, func(ctx context.Context, s *statestore.Store, table string, _ actor) error {
		return resume(ctx, s, table)
	})
}

func resume(ctx context.Context, s *statestore.Store, table string) error {
	parks, err := s.Paused(ctx)
	if err != nil {
		return err
	}
	// If the table is not paused, its name may be wrong.
	if table != "" && !slices.ContainsFunc(parks, func(p outbox.Park) bool { return p.Scope.Table == table }) {
		return usage("table %s is not paused by itself: outbox-cdc status names what is; a paused stream is resumed without --table", table)
	}
	return s.Resume(ctx, table)
}

// pauses is the JSON of pause and resume.
type pauses struct {
	// Stream is the name of the stream.
	Stream string `json:"stream"`
	// Paused is what is paused now.
	Paused []paused `json:"paused"`
	// By is who ran the command.
	By actor `json:"by"`
}

type paused struct {
	// Scope is the stream or a table, in words.
	Scope string `json:"scope"`
	// Words is who paused it, in words.
	Words string `json:"reason"`
	// Since is when it was paused.
	Since time.Time `json:"since"`
}

func pausing(c *cobra.Command, io streams, done string, may func(*config.Stream, string) error, change func(context.Context, *statestore.Store, string, actor) error) *cobra.Command {
	var stream, table string
	var asJSON bool
	file, logs := configFlag(c), addLogFlags(c)
	streamFlag(c, &stream)
	tableFlag(c, &table, "only the table `SCHEMA.NAME`")
	jsonFlag(c, &asJSON)
	c.RunE = func(c *cobra.Command, _ []string) error {
		log, err := logs.logger(io.err)
		if err != nil {
			return err
		}
		_, s, err := load(*file, stream, oneStream)
		if err == nil {
			err = may(s, table)
		}
		if err != nil {
			return err
		}
		now := pauses{Stream: s.Name, Paused: []paused{}}
		parks, err := onPauses(c.Context(), s, func(ctx context.Context, store *statestore.Store, databaseUser string) error {
			now.By = whoActs(databaseUser)
			return change(ctx, store, table, now.By)
		})
		if err != nil {
			return fmt.Errorf("stream %s: %w", s.Name, err)
		}
		for _, p := range parks {
			now.Paused = append(now.Paused, paused{p.Scope.String(), p.Reason, p.Since.UTC()})
		}
		now.By.audit(log).Str("stream", s.Name).Str("table", table).Msg(done)
		if asJSON {
			return printJSON(io.out, now)
		}
		if len(now.Paused) == 0 {
			fmt.Fprintf(io.out, "%s: nothing is paused\n", now.Stream)
		}
		for _, p := range now.Paused {
			fmt.Fprintf(io.out, "%s: %s: %s since %s\n", now.Stream, p.Scope, p.Words, p.Since.Format(time.RFC3339))
		}
		return nil
	}
	return c
}

// pausable returns why the stream, or the table if one is named, cannot be paused.
func pausable(s *config.Stream, table string) error {
	tables := s.OutboxTables()
	var names []string
	for _, t := range tables {
		names = append(names, t.String())
	}
	switch {
	case s.Mode == "shadow":
		return usage("stream %s is in shadow: it publishes nothing", s.Name)
	case slices.ContainsFunc(tables, func(t *outbox.Table) bool { return !t.Stateful() }):
		return usage("a table of stream %s keeps no state, so its rows cannot wait in it: stop the process instead", s.Name)
	case table != "" && !slices.Contains(names, table):
		return usage("stream %s has no table %q (write one of %s)", s.Name, table, strings.Join(names, ", "))
	}
	return nil
}

// onPauses calls change, and reports what is paused then.
func onPauses(ctx context.Context, s *config.Stream, change func(ctx context.Context, store *statestore.Store, databaseUser string) error) ([]outbox.Park, error) {
	conn, err := connectOperator(ctx, s)
	if err != nil {
		return nil, err
	}
	defer postgres.HangUp(conn)
	if err := replication.TrustSchema(ctx, postgres.On(conn)); err != nil {
		return nil, err
	}
	store := statestore.New(statestore.Config{DB: conn, Stream: s.Name})
	if err := change(ctx, store, conn.PgConn().ParameterStatus("session_authorization")); err != nil {
		return nil, err
	}
	return store.Paused(ctx)
}

// pagePauses returns the same for the operator's page.
func pagePauses(s *config.Stream) *page.Pauses {
	return &page.Pauses{
		May: func(table string) error { return pausable(s, table) },
		Change: func(ctx context.Context, verb, table, by string) ([]outbox.Park, error) {
			return onPauses(ctx, s, func(ctx context.Context, store *statestore.Store, _ string) error {
				switch verb {
				case page.Pause:
					return store.Pause(ctx, table, by)
				case page.Resume:
					return resume(ctx, store, table)
				}
				return nil // only a query
			})
		},
	}
}
