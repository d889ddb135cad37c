package harness

import "os"

// The environment variables that choose the surroundings.
const (
	// EnvKafka: "required" makes a missing Java or Maven a failure, "fake"
	// uses kfake although they are there.
	EnvKafka = "OUTBOX_TEST_KAFKA"
	// EnvPostgres is the PostgreSQL version, such as 17 or 17.11.0.
	EnvPostgres = "OUTBOX_TEST_POSTGRES"
	// EnvKafkaVersion is the Apache Kafka version, from 2.8 on.
	EnvKafkaVersion = "OUTBOX_TEST_KAFKA_VERSION"
	// EnvPgBouncer: "required" makes a missing PgBouncer a failure.
	EnvPgBouncer = "OUTBOX_TEST_PGBOUNCER"
)

func postgresVersion() string { return os.Getenv(EnvPostgres) }

func kafkaVersion() string {
	if v := os.Getenv(EnvKafkaVersion); v != "" {
		return v
	}
	return "4.4.0"
}

// KafkaVersion returns the version of the real brokers.
func KafkaVersion() string { return kafkaVersion() }
