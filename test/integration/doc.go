// Package integration tests the real program against a real PostgreSQL and a
// real Apache Kafka: `outbox-cdc init` and `outbox-cdc run`, applications that
// write next to it, and faults. What happened is judged by package history. It
// holds tests only.
//
// OUTBOX_TEST_LONG=1 runs the long form: more rows, more kills, and what takes
// long anyway. OUTBOX_TEST_OLDER=commit runs that version next to this one. go test -short runs the hot path, restarts and kills only.
//
// # Files
//
//	stream, transactions                         the hot path
//	tables, mapping, times, scheduled, share     kinds of tables, mappings and rows
//	records, loose, blocked, jeap                rows that Kafka refuses, or that can be no record
//	coexistence                                  next to the application's own relay: claims, head starts, shadow
//	once, once_stateless                         exactly-once delivery
//	crash, faults, chaos, soak                   kills and faults under load, at random, for long
//	leader, versions, pause, limits              several processes, and what an operator asks of them
//	failover, slot, lost, samples, publication   slot and publication, lost or made again
//	database, broker, brokers                    servers that stop, crash, or refuse
//	swapped, rename, operators                   what migrations and operators change under a stream
//	misconfigured, surroundings, roles           configuration, privileges, disks, names, connections
//	operator_view, causes                        what log, status and metrics say
//	world, process, writers, recovery, served    the tests' own parts
package integration
