package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/cenkalti/backoff/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/journal"
	"github.com/outbox-cdc/outbox-cdc/internal/preflight"
)

// This file makes the journals of streams that deliver exactly once.

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

// initJournal makes a journal that is missing, and refuses one that is not as it has to be.
func initJournal(ctx context.Context, s *preflight.Stream, j *preflight.Journal, show bool, io streams) error {
	wrong := unsound(j.Findings)
	switch {
	case show && j.Unusable:
		fmt.Fprintf(io.err, "outbox-cdc: stream %s: %v\noutbox-cdc: so this is everything, with whatever is there already\n", s.Name, wrong)
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
	case errors.Is(err, sarama.ErrInvalidReplicationFactor):
		return fmt.Errorf("%w; start the brokers that are missing, or make the topic with fewer replicas\n%s", err, j.Topic.Command(j.Bootstrap, max(1, j.Replicas-1)))
	case errors.Is(err, journal.ErrRefused):
		return &failure{exitPermanent, fmt.Errorf("%w; who may, runs\n%s", err, j.Topic.Command(j.Bootstrap, j.Replicas))}
	case err != nil:
		return err
	}
	fmt.Fprintf(io.out, "%s: made topic %s on cluster %s (1 partition, replication factor %d)\n", s.Name, j.Topic.Name, j.Cluster, replicas)
	return seen(ctx, s, j.Cluster)
}

// seen waits until the brokers tell of a journal that was made, and says what is wrong with it: an
// older setting, or what somebody else made meanwhile.
func seen(ctx context.Context, s *preflight.Stream, cluster string) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		for _, j := range preflight.Journals(ctx, s, preflight.Options{}) {
			if j.Cluster != cluster {
				continue
			}
			if err := unsound(j.Findings); j.Missing {
				return struct{}{}, err
			} else if err != nil {
				return struct{}{}, backoff.Permanent(err)
			}
		}
		return struct{}{}, nil
	}, backoff.WithMaxElapsedTime(10*time.Second))
	return err
}

// unsound is what keeps a journal from being used, with what fixes it.
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
