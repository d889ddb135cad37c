// Package integration tests the real program against a real PostgreSQL and a
// real Apache Kafka: `outbox-cdc init` and `outbox-cdc run`, applications that
// write next to it, and faults. What happened is judged by package history. It
// holds tests only.
//
// OUTBOX_TEST_LONG=1 runs the long form: more rows, more kills, and what takes
// long anyway. OUTBOX_TEST_OLDER=commit runs that version next to this one. go test -short runs the hot path, restarts and kills only.
package integration
