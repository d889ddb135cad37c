// Package pipeline is the flow of one stream. It moves rows and outcomes between the parts that do the work.
// Package checkpoint decides what may be published, marked and confirmed; the driver's loop calls it. The parts
// (replication, sink and others) speak the protocols. Command run makes a Stream and runs it. Command sweep makes
// it sweep once.
//
// # One row's way
//
//	WAL reader   receives a frame, decodes it into a batch, hands the batch over    wal_reader
//	driver       feeds the batch to the Core; sends the rows it releases to sinks   driver, carryout
//	sink         publishes, and answers with an outcome
//	driver       tells the Core the outcome; sends its marks to the updater         observe, carryout
//	updater      marks the row in its table, and answers
//	driver       tells the Core; stores the position that may be confirmed          driver
//	WAL reader   sends the position with the next status message                    wal_reader
//
// A row that does not come from the WAL comes with a page: the Core asks for a page, a goroutine reads it
// (questions), and the driver gives the answer to the Core.
//
// # What the package decides
//
// It decides when to lead again and after which pause (stream, wal_reader); whether an earlier leader with
// another configuration may have left rows that this one would publish twice (take_lead); how slot and publication
// are repaired (slot); when the slot is given up for the WAL budget (wal_budget); how far a catch-up is slowed
// down (limit); and when a sweep by command is over (one_shot). It also reports all of this in the log, in
// metrics and in the status (observe, telling).
//
// # Goroutines
//
// A term is one leadership. These are its goroutines. The first one that fails ends the others, and the term with
// them (wait.While). Its error decides how Run goes on: after a lost lead the process becomes a standby and does
// not end.
//
//	goroutine     began by    owns                                        ends
//	Run           cmd         the term; waits between terms               with its context
//	driver        term        the Core, the sinks' and updater's inputs   drained after a stop, or by an error
//	WAL reader    term        the replication connection, the decoder,    told to finish; another leads; a lost
//	                          what is remembered of the slot              connection ends it only with
//	                                                                      exactly-once delivery
//	sinks         term        one Kafka cluster each                      with the term
//	updater       term        the connections that mark                   with the term
//	maintenance   term        the WAL budget; looks every 5 s             with the term
//	retention     term                                                    with the term
//	backlog       term        what was counted last                       with the term
//	tallies (2)   term        exactly once: heads advanced, heads told    with the term
//	locks         term        the application's locks, extended           given back when drained, or lost
//	questions     driver      one query each                              answered, or with the connection
//
// Only the driver uses the Core. The other goroutines put an answer into the driver's queue, or wait for a function
// that the driver calls (questions). Driver and WAL reader share link, and nothing else. A Stream lives as long as
// the process. What one term leaves to the next is in store, telling, learned and locks.
//
// # Files
//
// Calls go down this list. A test in test/arch checks that.
//
//	stream          one leadership after another
//	sweep_once      a sweep by command, without a slot
//	term            one leadership: makes its parts, runs them
//	status          the stream's status
//	wal_reader      reads the WAL, confirms, connects again
//	slot            before a connection streams: history, publication, slot
//	driver          the loop: events go into the Core
//	carryout        the Core's decisions go out
//	observe         counts and logs what the driver passes on
//	maintenance     looks after slot, publication and tables
//	wal_budget      who makes the slot retain WAL
//	retention       deletes old rows
//	backlog         counts rows
//	limit           how fast rows may come
//	sample          notices rows that change while they wait
//	once            exactly-once delivery
//	once_stateless  the same for tables without state
//	one_shot        when a sweep by command is over
//	pauses          what an operator has paused
//	take_lead       takes the lead, and claims the tables; term ends it
//	locks           locks of the application's own relays
//	beat            keeps a connection alive that does not stream
//	keepalives      which position of the server counts
//	server_clock    what time it is for the server
//	questions       the way into the driver's loop
//	lockers         who has a table locked
//	link            between WAL reader and driver
//	learned         what connections taught, for the next ones
//	telling         reports faults
//	status_tracker  the data behind the status
//	stall           warnings of the server that go on
//	recent          what happened lately
//	store           writes of parks and the lead do not overlap
//	config          the configuration of one stream
package pipeline
