// Package sink carries rows into one Kafka cluster, and reports for each row exactly once what became of it
// (outbox.Outcome). Each partition has a queue and at most one batch in flight. The batch is resent
// unchanged, with the same producer id, epoch and sequence, until its outcome is known. So the delivered
// rows of a key are always a prefix of the published ones.
//
// The package never decides what is published. It never reads or writes the database. It charges a row only
// for the row's own fault, and only the coordinator raises a producer epoch. The pipeline makes one Sink
// for each stream and cluster.
//
// # Parts
//
// The files machine.go and machine_*.go decide and are pure; partition_queue.go, batch.go, codes.go and
// topic.go are their pieces. run.go drives the machine from one goroutine. What the machine decides is
// carried out by three kinds of goroutines:
//
//   - brokerConn (broker_conn.go): a connection to each broker that leads a
//     partition. It sends produce requests with batches of several partitions. A
//     broker that hangs holds up only its own partitions.
//   - metadataClient (metadata_client.go): asks any broker which topics and
//     partitions exist, and which brokers lead them.
//   - producerIDClient (producer_id_client.go): obtains producer id and epoch from
//     the transaction coordinator, fences older producers, and searches partition
//     logs for batches whose answer was lost.
//
// ask.go and read.go are for code that looks at a cluster, or makes a topic: a Broker answers questions,
// and a Reader reads topics. Both use types of our own, not sarama's.
//
// For publishing, sarama's Broker and its encoding are used. Its AsyncProducer is not, because it goes on after a failed
// batch. Its Client is not, because it hides topic ids, delays every caller behind one slow dial, and
// reports each failure as "out of brokers". A Broker stays dead after an asynchronous error (Connected says
// true, sends fail), so each connection gets a new one.
//
// The project is built on sarama; franz-go is used in its tests and its demo. kgo's Broker.Request with a
// kmsg.ProduceRequest could carry the same requests. It leaves fetched batches as they are: then
// fetched_headers.go would not be needed, but an encoder of record batches would. Its producer is not
// suitable: it takes a transactional id only with transactions, so a leader that delivers at least once
// could not fence its predecessor.
//
// # What an answer means
//
// The broker compares producer id, epoch, first sequence and count, but never the content. So a batch must
// not change while its outcome is unknown. A rejection tells only about its own try. batch.maybe tells
// whether an earlier try of the batch may have been appended. A rejected batch uses up no sequence numbers.
// codes.go says what each error code means; batch.judge decides what follows:
//
//	answer                                    earlier tries known    one open (maybe)
//	0, 46 known duplicate                     delivered              delivered
//	no answer; 7, 13, 20                      maybe, retry           retry
//	-1                                        maybe, retry slowly    retry slowly
//	never left us                             retry                  retry
//	3, 5, 6, 8, 9, 14, 19, 48, 56, 74, rest   retry                  retry
//	  the same with an offset                 maybe, retry           retry
//	32 where other times are allowed          send with those        resolve
//	10, 18, 32, 87; 2 for the third time      split                  resolve
//	17, 29, 43, 44                            block the topic        retry slowly
//	31, 35, 42, 53, 58, 76                    retry slowly           retry slowly
//	45, 49, 59, 90                            resolve                resolve
//	47 on an older epoch of ours              send on the new one    resolve
//	47 on the current epoch                   resolve                resolve
//
// Retry waits 20 ms to 500 ms (slowly: 5 s), refreshes metadata, and sends the same rows with the same
// sequence. Split puts the rows back into the queue and sends fewer of them, until the rejected record is
// alone. If the broker names the rejected records by their indices (KIP-467), Split goes by these. The
// sequence stays the same. A topic that stays unknown for TopicGrace is blocked, too.
//
// Resolve finds out whether a batch was appended. It fences the partition, so that no try can be appended
// any more. Then it reads the partition log from the last known offset, and looks for a batch of this
// producer id, epoch, sequence and count. If it finds one, the batch is delivered. Otherwise the batch is
// sent with sequence 0 in the new epoch. Resolve needs READ on the topic. Without READ, the batch is sent
// again, its rows may be in the topic twice, and a log line says so.
//
// # Rows that wait for long
//
// A row that could not be sent for HeldFor may have changed. It stays at the front of its queue until the
// stream has looked at it (machine_held.go). Only rows that no broker can have are looked at. So a batch
// first goes back to its queue, if none of it is or will be in the log.
//
// # Fencing
//
// The producer id comes from InitProducerId with the transactional id, while records are produced without
// transactions. A new leader of the stream raises the epoch, adds all partitions to an empty transaction,
// aborts it, and calls InitProducerId again until the answer is not 51 (CONCURRENT_TRANSACTIONS) any more.
// Then all partitions have got the abort's marker, and each refuses the former leader's batches, including
// those that are still on their way. Brokers of Kafka 4.3 and 4.4 can give a marker up (KAFKA-20734), so
// each partition's leader is asked for it (ends_client.go). A partition without the marker is fenced again,
// up to twice. Some brokers show no such marker; there the fence holds from the first batch. A fence costs
// one control record per partition. Partitions that become known later are fenced before their first batch.
//
// After a clean stop no request is outstanding, and the fence still holds. So the sink leaves a note for
// the next leader (outbox.Fences, in the claim of outbox_cdc.leader). It has the producer id and, by topic
// id, the partitions where a broker has shown the fence or taken a batch, and those that the sink inherited
// and never met. A leader that gets the next epoch of that producer id knows that nobody has had the
// transactional id in between, and does not fence those partitions. All other partitions are fenced: with
// another epoch or producer id, when a topic was made again or forgotten meanwhile, or with a batch in
// flight. So a note that is used twice, or comes out of a dump, does no harm. sim_fence_test.go shows that
// each rule is needed. Brokers forget a producer that wrote nothing to a partition for
// producer.id.expiration.ms (a day). A process that was frozen for longer can write there, however often
// the leader has changed.
//
// Except for a Run's first one, every InitProducerId names the producer id that we hold. So it fails for a
// process that was superseded, and Run ends with ErrFenced. From time to time an empty transaction keeps
// the id from expiring (transactional.id.expiration.ms, 7 days).
//
// # Transactions
//
// With Config.Transactions each row is published exactly once (docs/exactly-once.md). An
// exactlyonce.Machine decides over the transaction, the epochs and the journal. machine_transactions.go
// gives it rows of the partition queues, as many as one transaction takes. When the transaction has ended,
// it takes back the rows that were not delivered. So a queue treats a transaction like a batch in flight,
// and everything above about topics, splits and blocked keys holds. The producerIDClient sends the
// Machine's requests to the coordinator and for the journal (transaction_client.go); brokerConns send its
// batches. Run ends with exactlyonce.ErrSuperseded when another epoch is the current one, and with
// exactlyonce.ErrJournal when the journal is not the one that the database knows. Seals replace resolve and
// fences.
//
// # What is not promised
//
// Without WRITE on the transactional id nothing is fenced (Sink.Fencing). Then a search cannot exclude that
// a try is appended after it, which leads to duplicates only. If rows of a key name different partitions,
// they are delivered in order, one partition after the other; rows of the key that name no partition are
// not ordered against them. If a partition without a leader delays a fence for 15 s, sending goes on: the
// fence then holds from the first batch on each partition.
package sink
