// Package checkpoint decides, for one stream, what may be published, marked,
// parked, swept and confirmed. It is pure: no I/O, no clock, no goroutine, no
// randomness. The pipeline's driver goroutine feeds it what happened (the WAL,
// outcomes, answers, time) and carries out what Take returns; nobody else
// calls it. docs/internals/design.md states the rules, and the simulation in this
// package checks them.
//
// Core is not safe for concurrent use.
package checkpoint
