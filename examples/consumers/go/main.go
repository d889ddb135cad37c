// Command consumer applies each event once, however often it is delivered: the event's
// id goes into an inbox table in the same transaction as what the event changes.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
)

// An error ends the program: whatever starts it again continues after the last commit.
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := consume(ctx); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func consume(ctx context.Context) error {
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Getenv("KAFKA_BROKERS"), ",")...), kgo.ConsumeTopics(os.Getenv("TOPIC")),
		kgo.ConsumerGroup(os.Getenv("GROUP")), kgo.InstanceID(os.Getenv("INSTANCE")), // the same instance takes its partitions up at once
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
	)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for {
		fetches := client.PollRecords(ctx, 100)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			if err := apply(ctx, db, record); err != nil {
				return err
			}
		}
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			return err
		}
		client.AllowRebalance()
	}
}

// apply does nothing for an event that the inbox has. One that another consumer is at
// work on is waited for.
func apply(ctx context.Context, db *pgxpool.Pool, record *kgo.Record) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		added, err := tx.Exec(ctx, `INSERT INTO inbox (topic, event_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`, record.Topic, eventID(record))
		if err != nil || added.RowsAffected() == 0 {
			return err
		}
		return change(ctx, tx, record)
	})
}

// eventID is the header that event_id names in the mapping.
func eventID(record *kgo.Record) any {
	for _, header := range record.Headers {
		if header.Key == "event-id" {
			return string(header.Value)
		}
	}
	return nil // NOT NULL refuses it: an event without an id cannot be told from its duplicate
}

// change is the application's own work. Done twice, it would be wrong.
func change(ctx context.Context, tx pgx.Tx, record *kgo.Record) error {
	_, err := tx.Exec(ctx, `INSERT INTO account (id, balance) VALUES ($1, $2::text::bigint)
		ON CONFLICT (id) DO UPDATE SET balance = account.balance + excluded.balance`, string(record.Key), string(record.Value))
	return err
}
