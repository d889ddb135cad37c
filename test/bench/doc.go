// Package bench measures outbox-cdc against servers of its own: speed, latency,
// memory and what it costs the database, each held against a reference that is
// taken in the same run. `make bench` runs it, prints a table and writes
// bench.json; docs/internals/performance.md says what each figure means.
//
// It decides no test: figures of a shared machine say little by themselves. It
// never fakes one either: a bar that could not be measured says why, and a run
// whose topic does not hold every row once and in order per key counts as not
// measured.
package bench
