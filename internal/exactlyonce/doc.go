// Package exactlyonce decides, for one stream and one Kafka cluster, which rows
// are in a Kafka transaction, when it is committed, and what the database knows of
// it. It is pure: no I/O, no clock, no goroutine, no randomness. docs/exactly-once.md
// states the rules; the simulation in this package checks them.
//
//   - Machine (machine.go) is the transaction: requests out, answers in. machine_tx.go begins it, fills and commits it;
//     machine_seal.go asks whether its end is in each partition (proved); machine_repair.go deals with what went wrong.
//   - Unit and Name (unit.go) are what a transaction writes into the journal: which
//     rows it published.
//   - Reader (journal.go) reads the units of committed transactions back.
//   - Tally (tally.go) is what the database knows: units whose rows are marked, and
//     rows that are published and not marked.
//   - Published and Positions (published.go) replace the marks of tables without state.
//
// One rule carries the rest: before a process looks at a row, it gets an epoch, and then
// reads every unit that was committed under earlier ones. Kafka gives an epoch to one process
// at a time, so it does not matter how many processes believe that they lead, or which copy
// of the database they see.
package exactlyonce
