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
	"github.com/outbox-cdc/outbox-cdc/sink"
)

func journalCommand(io streams) *cobra.Command {
	var stream string
	var yes bool
	c := &cobra.Command{
		Use:   "reset",
		Short: "Replace the journal of a stream by an empty one",
		Long: `Replaces the journal of an exactly-once stream by an empty one, on each of its Kafka clusters: deletes the
topic, creates it, and has schema outbox_cdc forget the old one. Use it where the journal was deleted or
truncated: the stream does not start then.

Rows that were published and are not marked yet are still PENDING, and are published once more. The command
refuses while a process leads the stream.`,
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
	return group("journal", "The journals of streams that deliver exactly once", "  outbox-cdc journal reset --stream orders", c)
}

// resetJournals removes a journal's topic first, and then what the database knows of it. A stream that starts
// in between refuses to run, and a reset that failed half way can be repeated.
func resetJournals(ctx context.Context, s *config.Stream, p *preflight.Stream, io streams) (actor, error) {
	conn, err := connectOperator(ctx, s)
	if err != nil {
		return actor{}, err
	}
	defer postgres.HangUp(conn)
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

// removeJournal removes the topic and waits until the brokers have removed it.
func removeJournal(ctx context.Context, p *preflight.Stream, j *preflight.Journal) error {
	if j.Missing {
		return nil
	}
	err := j.Topic.Remove(ctx, p.Kafka[j.Cluster])
	if errors.Is(err, journal.ErrRefused) {
		return &failure{exitPermanent, fmt.Errorf("%w; have somebody run this who may, then repeat the command\n%s", err, j.Topic.RemoveCommand(j.Bootstrap))}
	}
	if err != nil {
		return err
	}
	return awaitJournal(ctx, p, j.Cluster, 30*time.Second, func(now *preflight.Journal) error {
		if !now.Missing {
			return fmt.Errorf("the brokers have not deleted topic %s yet: repeat the command", j.Topic.Name)
		}
		return nil
	})
}

// initKafka makes the journals of streams with exactly-once delivery.
func initKafka(ctx context.Context, cfg *config.Config, what initOptions, io streams) error {
	if what.nativeTable || what.noSlot {
		return usage("--kafka makes topics: run init without it for what the databases need")
	}
	chosen, err := chooseStreams(cfg, what.stream)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range preflightStreams(cfg, chosen) {
		if s.Once == nil {
			fmt.Fprintf(io.out, "%s: it delivers at least once, and needs no topic of its own\n", s.Name)
			continue
		}
		for _, j := range preflight.Journals(ctx, &s, preflight.Options{}) {
			if err := initJournal(ctx, &s, &j, what.showSQL, io); err != nil {
				errs = append(errs, fmt.Errorf("stream %s: Kafka cluster %s: %w", s.Name, j.Cluster, err))
			}
		}
	}
	return errors.Join(errs...)
}

// initJournal makes a missing journal. It returns an error if an existing one is unsound.
func initJournal(ctx context.Context, s *preflight.Stream, j *preflight.Journal, show bool, io streams) error {
	wrong := unsound(j.Findings)
	switch {
	case show && j.Unusable:
		fmt.Fprintf(io.err, "outbox-cdc: stream %s: %v\noutbox-cdc: so this is everything, also what exists already\n", s.Name, wrong)
	case !j.Missing && wrong != nil:
		return wrong
	case !j.Missing:
		_, err := fmt.Fprintf(io.out, "%s: there already: topic %s on cluster %s\n", s.Name, j.Topic.Name, j.Cluster)
		return err
	}
	if show {
		_, err := fmt.Fprintf(io.out, "# stream %s, journal on cluster %s\n%s\n", s.Name, j.Cluster, j.Topic.Command(j.Bootstrap, j.Replicas))
		return err
	}
	replicas, err := j.Topic.Make(ctx, s.Kafka[j.Cluster])
	switch {
	case errors.Is(err, sink.InvalidReplicationFactor):
		return fmt.Errorf("%w; start the brokers that are missing, or make the topic with fewer replicas\n%s", err, j.Topic.Command(j.Bootstrap, max(1, j.Replicas-1)))
	case errors.Is(err, journal.ErrRefused):
		return &failure{exitPermanent, fmt.Errorf("%w; have somebody run this who may\n%s", err, j.Topic.Command(j.Bootstrap, j.Replicas))}
	case err != nil:
		return err
	}
	fmt.Fprintf(io.out, "%s: made topic %s on cluster %s (1 partition, replication factor %d)\n", s.Name, j.Topic.Name, j.Cluster, replicas)
	return awaitJournal(ctx, s, j.Cluster, 10*time.Second, func(now *preflight.Journal) error {
		if now.Missing {
			return unsound(now.Findings)
		}
		return backoff.Permanent(unsound(now.Findings)) // somebody else made it meanwhile, or it still has an older setting
	})
}

// awaitJournal reads the state of the journal from the brokers until look returns nil or a permanent error,
// or until the time is over.
func awaitJournal(ctx context.Context, s *preflight.Stream, cluster string, most time.Duration, look func(*preflight.Journal) error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		for _, j := range preflight.Journals(ctx, s, preflight.Options{}) {
			if j.Cluster == cluster {
				return struct{}{}, look(&j)
			}
		}
		return struct{}{}, nil
	}, backoff.WithMaxElapsedTime(most))
	return err
}

// unsound returns why a journal cannot be used, with what to do; nil: it can be used.
func unsound(findings []preflight.Finding) error {
	for _, f := range findings {
		if f.Level != preflight.Fail {
			continue
		}
		text := f.Subject + ": " + f.Found
		for _, hint := range f.Hints {
			text += "\n  hint: " + hint
		}
		if f.Unseen {
			return errors.New(text)
		}
		return &failure{exitPermanent, errors.New(text)}
	}
	for _, f := range findings {
		if f.Unseen {
			return errors.New(f.Subject + ": " + f.Found)
		}
	}
	return nil
}
