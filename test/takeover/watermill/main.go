// Command watermill is an application with Watermill's outbox: its publisher writes
// envelopes into the table that watermill-sql makes, and its forwarder takes them to
// Kafka. Test data for the parity test; a module of its own, since the program has
// nothing to do with Watermill.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
)

// outbox is the forwarder's topic: the table is watermill_outbox.
const outbox = "outbox"

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: watermill write DSN < MESSAGES | watermill relay DSN BROKER")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	db, err := pgxpool.New(ctx, os.Args[2])
	if err == nil {
		defer db.Close()
		switch os.Args[1] {
		case "write":
			err = write(db)
		case "relay":
			err = relay(ctx, db, os.Args[3])
		}
	}
	if err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

// given is a message on standard input.
type given struct {
	UUID, Topic string
	Payload     []byte
	Metadata    map[string]string
}

// write publishes the messages as an application does, by way of the outbox.
func write(db *pgxpool.Pool) error {
	table, err := sql.NewPublisher(sql.BeginnerFromPgx(db), sql.PublisherConfig{SchemaAdapter: sql.DefaultPostgreSQLSchema{}, AutoInitializeSchema: true}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	publisher := forwarder.NewPublisher(table, forwarder.PublisherConfig{ForwarderTopic: outbox})
	var all []given
	if err := json.NewDecoder(os.Stdin).Decode(&all); err != nil {
		return err
	}
	for _, g := range all {
		m := message.NewMessage(g.UUID, g.Payload)
		m.Metadata = g.Metadata
		if err := publisher.Publish(g.Topic, m); err != nil {
			return err
		}
	}
	fmt.Println("wrote")
	return nil
}

// relay runs the forwarder until it is interrupted.
func relay(ctx context.Context, db *pgxpool.Pool, broker string) error {
	subscriber, err := sql.NewSubscriber(sql.BeginnerFromPgx(db), sql.SubscriberConfig{
		SchemaAdapter: sql.DefaultPostgreSQLSchema{}, OffsetsAdapter: sql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
	}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	config := kafka.DefaultSaramaSyncPublisherConfig()
	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: []string{broker}, Marshaler: kafka.DefaultMarshaler{}, OverwriteSaramaConfig: config}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	f, err := forwarder.NewForwarder(subscriber, publisher, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: outbox})
	if err != nil {
		return err
	}
	return f.Run(ctx)
}
