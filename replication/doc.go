// Package replication owns the one replication connection of a stream. On it the package takes the leadership
// lock, inspects slot and publication, receives the WAL in frames, and sends the status messages that confirm
// a position. The package also makes and removes publication and slot.
//
// The package leaves to others what may be confirmed. It reads no rows of tables, starts no goroutine, and
// writes nothing to schema outbox_cdc. One goroutine (the pipeline's WAL reader) owns a Conn. Other
// goroutines may call only those methods whose comments say so.
//
// Protocol: https://www.postgresql.org/docs/current/protocol-replication.html
package replication
