// Package pipeline is one stream's flow: it moves rows, and what becomes of them, between the parts that
// do the work. What may be published, marked and confirmed is decided by package checkpoint, whose loop is
// the driver's; protocols are spoken by the parts. Command run makes a Stream and runs it, command sweep
// has it sweep once.
//
// # One row's way
//
//	WAL reader   receives a frame, decodes it into a batch, hands the batch over    wal_reader
//	driver       feeds the batch to the Core; hands what it releases to the sinks   driver, carryout
//	sink         publishes, and answers with an outcome
//	driver       tells the Core the outcome; hands its marks to the updater         observe, carryout
//	updater      marks the row in its table, and answers
//	driver       tells the Core; stores the position that may be confirmed          driver
//	WAL reader   sends the position with the next status message                    wal_reader
//
// A row that the WAL does not bring comes with a page: the Core asks for it, a goroutine reads it
// (questions), and the answer is taken in by the driver.
//
// # What the package decides
//
// When to lead again and after what wait (stream, wal_reader), whether an earlier leader with another
// configuration may have left rows that this one would publish twice (take_lead), how slot and publication are put right (slot), when the slot
// is given up for the WAL budget (wal_budget), how far a catch-up slows down (limit), when a sweep by command
// is over (one_shot). And what is told of it all, in the log, metrics and status (observe, telling).
//
// # Goroutines
//
// A term is one leadership. These are its goroutines; the first that ends with an error ends the others and
// the term (wait.While), and its error decides how Run goes on: a lost lead makes a standby, and does not end
// the process.
//
//	goroutine     began by    owns                                        ends
//	Run           cmd         the term; waits between terms               with its context
//	driver        term        the Core, the sinks' and updater's inputs   drained after a stop, or by an error
//	WAL reader    term        the replication connection, the decoder,    told to finish; another leads; a lost
//	                          what is remembered of the slot              connection ends it only if rows come
//	                                                                      exactly once
//	sinks         term        one Kafka cluster each                      with the term
//	updater       term        the connections that mark                   with the term
//	maintenance   term        the WAL budget; looks every 5 s             with the term
//	retention     term                                                    with the term
//	backlog       term        what was counted last                       with the term
//	tallies (2)   term        exactly once: heads moved on, heads told    with the term
//	locks         term        the application's locks, extended           given back when drained, or lost
//	questions     driver      one query each                              answered, or with the connection
//
// Nobody but the driver touches the Core: others put an answer into its queue, or wait for a function
// that it calls (questions). Driver and WAL reader meet in link, and nowhere else. A Stream lives as long as
// the process; what its terms leave to one another is in store, telling, learned and locks.
//
// # Files
//
// Calls run down this list (a test in test/arch holds it).
//
//	stream          one leadership after another
//	sweep_once      a sweep by command, without a slot
//	term            one leadership: makes its parts, runs them
//	status          what the stream says of itself
//	wal_reader      reads the WAL, confirms, connects again
//	slot            before a connection streams: history, publication, slot
//	driver          the loop: what happens goes into the Core
//	carryout        what the Core decided goes out
//	observe         tells metrics and log what passes through
//	maintenance     looks after slot, publication and tables
//	wal_budget      who makes the slot retain WAL
//	retention       deletes old rows
//	backlog         counts rows
//	limit           how fast rows may come
//	sample          notices rows that change while they wait
//	once            exactly-once delivery
//	once_stateless  the same of tables that keep no state
//	one_shot        when a sweep by command is over
//	pauses          what an operator has paused
//	take_lead       takes the lead and the claim to the tables (it ends in term)
//	locks           locks of the application's own relays
//	beat            a connection that does not stream is kept alive
//	keepalives      which position of the server counts
//	server_clock    what time it is for the server
//	questions       the way into the driver's loop
//	lockers         who has a table locked
//	link            between WAL reader and driver
//	learned         what connections taught, for the next
//	telling         what fails is told
//	status_tracker  what status is told from
//	stall           warnings of the server that go on
//	recent          what happened lately
//	store           writes of parks and the lead do not overlap
//	config          what one stream is
package pipeline
