// Package replication owns a stream's one replication connection: the
// leadership lock taken on it, the look at slot and publication, the frames of
// the WAL and the status messages that confirm them. It also makes and removes
// publication and slot.
//
// It never decides what may be confirmed, never reads a table's rows, never
// starts a goroutine and never writes to schema outbox_cdc. One goroutine (the
// pipeline's reader) owns a Conn; only Wake and Kill may be called from others.
//
// Protocol: https://www.postgresql.org/docs/current/protocol-replication.html
package replication
