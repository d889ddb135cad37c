// Package exactlyonce makes the decisions of exactly-once delivery for one stream and one Kafka cluster:
// which rows are in a Kafka transaction, when the transaction is committed, and what the database knows of
// it. The package is pure: no I/O, no clock, no goroutine, no randomness. docs/exactly-once.md states the
// rules; the simulation in this package checks them.
//
//   - Machine (machine.go) decides over transactions: it gives out requests and takes their answers.
//     machine_tx.go begins a transaction, fills and commits it, and proves that its end is in each
//     partition. machine_seal.go begins a new epoch after everything earlier has ended. machine_repair.go
//     makes up for ends of transactions that Kafka has lost.
//   - Unit and Name (unit.go) are what a transaction writes into the journal: which
//     rows it published.
//   - Reader (journal.go) reads the units of committed transactions from the journal.
//   - Tally (tally.go) is what the database knows: the units whose rows are marked, and
//     the rows that are published and not marked.
//   - Published and Positions (published.go) replace the marks of tables without state.
//
// One rule carries the rest: before a process looks at a row, it gets an epoch, and then reads every unit
// that was committed under earlier epochs. Kafka gives an epoch to one process at a time. So the rule holds
// however many processes believe that they lead, and whichever copy of the database they see.
package exactlyonce
