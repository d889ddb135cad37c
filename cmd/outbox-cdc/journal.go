package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/journal"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/preflight"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

func journalCommand(io streams) *cobra.Command {
	return group("journal", "The journals of streams that deliver exactly once", "  outbox-cdc journal reset --stream orders", journalResetCommand(io))
}

func journalResetCommand(io streams) *cobra.Command {
	var stream string
	var yes bool
	c := &cobra.Command{
		Use:   "reset",
		Short: "Begin the journal of a stream again",
		Long: `Begins the journal of a stream that delivers exactly once again, on each of its Kafka clusters: the topic
is removed and made, and schema outbox_cdc forgets what it knows of it. It is for a journal that was
deleted or truncated, since the stream refuses to start with it.

Rows that were published and are not marked yet are PENDING: they are published once more. While a
process leads the stream it refuses.`,
		Example: `  outbox-cdc journal reset --stream orders --yes`,
	}
	file, logs := configFlag(c), addLogFlags(c)
	streamFlag(c, &stream)
	yesFlag(c, &yes, "reset without asking")
	c.RunE = func(c *cobra.Command, _ []string) error {
		log, err := logs.logger(io.err)
		if err != nil {
			return err
		}
		cfg, s, err := load(*file, stream, oneStream)
		if err != nil {
			return err
		}
		if !s.ExactlyOnce() {
			return usage("stream %s delivers at least once, and has no journal", s.Name)
		}
		if err := confirm(io, yes, fmt.Sprintf("Reset the journal of stream %s? Rows that were published and are not marked yet are published once more.", s.Name)); err != nil {
			return err
		}
		by, err := resetJournals(c.Context(), s, &preflightStreams(cfg, []*config.Stream{s})[0], io)
		by.audit(log).Err(err).Str("stream", s.Name).Msg("an operator reset the journal of a stream")
		if err != nil {
			return fmt.Errorf("stream %s: %w", s.Name, err)
		}
		return nil
	}
	return c
}

// resetJournals removes topics before what the database knows of them, so that a stream that starts
// in between refuses, and a reset that failed half way can be repeated.
func resetJournals(ctx context.Context, s *config.Stream, p *preflight.Stream, io streams) (actor, error) {
	conn, err := connectOperator(ctx, s)
	if err != nil {
		return actor{}, err
	}
	defer hangUp(conn)
	by := whoActs(conn.PgConn().ParameterStatus("session_authorization"))
	if err := replication.TrustSchema(ctx, postgres.On(conn)); err != nil {
		return by, err
	}
	if err := notLed(ctx, postgres.On(conn), s); err != nil {
		return by, err
	}
	store := statestore.New(statestore.Config{DB: conn, Stream: s.Name})
	for _, j := range preflight.Journals(ctx, p, preflight.Options{}) {
		err := removeJournal(ctx, p, &j)
		if err == nil {
			err = store.ForgetTally(ctx, j.Cluster)
		}
		if err == nil {
			fmt.Fprintf(io.out, "%s: forgot what was published to cluster %s\n", s.Name, j.Cluster)
			j.Missing = true
			err = initJournal(ctx, p, &j, false, io)
		}
		if err != nil {
			return by, fmt.Errorf("cluster %s: %w", j.Cluster, err)
		}
	}
	return by, nil
}

// removeJournal removes the topic and waits until the brokers have.
func removeJournal(ctx context.Context, p *preflight.Stream, j *preflight.Journal) error {
	if j.Missing {
		return nil
	}
	err := j.Topic.Remove(ctx, p.Kafka[j.Cluster])
	if errors.Is(err, journal.ErrRefused) {
		return &failure{exitPermanent, fmt.Errorf("%w; who may, runs\n%s\nand repeats this command then", err, j.Topic.RemoveCommand(j.Bootstrap))}
	}
	if err != nil {
		return err
	}
	_, err = backoff.Retry(ctx, func() (struct{}, error) {
		for _, now := range preflight.Journals(ctx, p, preflight.Options{}) {
			if now.Cluster == j.Cluster && !now.Missing {
				return struct{}{}, fmt.Errorf("topic %s is still there", j.Topic.Name)
			}
		}
		return struct{}{}, nil
	}, backoff.WithMaxElapsedTime(30*time.Second))
	return err
}
