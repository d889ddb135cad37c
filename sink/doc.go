// Package sink carries rows into one Kafka cluster and says of each what
// became of it, exactly once (outbox.Outcome). Each partition has a queue and at
// most one batch in flight, which is resent unchanged, with the same producer id,
// epoch and sequence, until its outcome is known. So the delivered rows of a key
// are always a prefix of the published ones.
//
// It never decides what is published, never reads or writes the database,
// never charges a row for anything but the row's own fault, and never bumps a
// producer epoch without the coordinator. The pipeline makes one Sink per stream
// and cluster.
//
// # Parts
//
// machine.go and machine_*.go decide and are pure; partition_queue.go, batch.go, codes.go
// and topic.go are its pieces. run.go drives it from one goroutine and carries out what it decides,
// by three kinds of goroutines:
//
//   - brokerConn (broker_conn.go): a connection to each broker that leads a
//     partition. It sends produce requests with batches of several partitions, so a
//     broker that hangs holds up nobody else's.
//   - metadataClient (metadata_client.go): asks any broker which topics and
//     partitions exist, and who leads them.
//   - producerIDClient (producer_id_client.go): obtains producer id and epoch from
//     the transaction coordinator, fences older producers, and searches partition
//     logs for batches whose answer was lost.
//
// ask.go and read.go are for code that looks at a cluster, or makes a topic: a Broker
// answers, and a Reader reads topics, in types of our own.
//
// sarama's AsyncProducer is not used because it goes on after a failed batch,
// and its Client is not because it hides topic ids, holds every caller up
// behind one slow dial, and calls each failure "out of brokers". Its Broker
// and its encoding are used. A Broker stays dead after an asynchronous error
// (Connected says true, sends fail), so each connection gets a new one.
//
// The project is built on sarama; franz-go is in its tests and its demo. kgo's Broker.Request with
// a kmsg.ProduceRequest could carry the same requests. It leaves fetched batches as they are, so
// record_batches.go would go, and an encoder of record batches would come. Its producer would not
// do: it takes no transactional id without transactions, so a leader that delivers at least once
// could not fence its predecessor.
//
// # What an answer means
//
// The broker compares producer id, epoch, first sequence and count, never
// content: a batch may not change while its fate is open. A rejection speaks
// only of its own try; whether an earlier try of the batch may have landed is
// kept in batch.maybe. A rejected batch consumes no sequence. codes.go has what each error
// code means, batch.judge what follows:
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
// Retry waits 20 ms to 500 ms (slowly: 5 s), refreshes metadata, and sends the
// same rows with the same sequence. Split puts the rows back and sends fewer,
// until the rejected record is alone, or goes by the indices that the broker names
// (KIP-467); the sequence stays. A topic that stays unknown for TopicGrace is
// blocked too.
//
// Resolve finds out: fence the partition, so that no try can land any more,
// then read the partition log from the last known offset for a batch of this producer
// id, epoch, sequence and count. Found: delivered. Not found: it is sent with
// sequence 0 on the new epoch. That needs READ on the topic; without it, the
// batch is sent again and logged, and its rows may be there twice.
//
// # Rows that wait for long
//
// A row that could not be sent for HeldFor may have changed. It stays at the front of its queue while the stream
// looks at it (machine_held.go). Only rows that no broker can have are looked at: a batch goes back to its queue first,
// if nothing of it is or will be in the log.
//
// # Fencing
//
// The producer id comes from InitProducerId with the transactional id, while
// records are produced without transactions. A new leader of the stream raises the epoch,
// adds all partitions to an empty transaction, aborts it, and calls
// InitProducerId again until it is answered with something else than 51
// (CONCURRENT_TRANSACTIONS): then all partitions have got the abort's
// marker, and each refuses the former leader's batches, also those that were on
// their way. Brokers of Kafka 4.3 and 4.4 can give a marker up (KAFKA-20734), so each
// partition's leader is asked for it (ends_client.go). A partition without it is fenced again,
// up to twice: some brokers show no such marker, and there the fence holds from the first batch.
// A fence costs one control record per partition. Partitions that become
// known later are fenced before their first batch.
//
// After a clean stop no request is outstanding, and the fence still holds. So the sink leaves its producer id to the
// next leader, with the partitions, by topic id, where a broker has shown the fence or taken a batch, and those that it
// inherited and never met (outbox.Fences, in the claim of outbox_cdc.leader). A leader that gets the next epoch of that
// producer id knows that nobody has had the transactional id since, and spares those partitions. In every other case
// they are fenced: another epoch or producer id, a topic made again or forgotten meanwhile, a batch in flight. So a
// note that is used twice, or comes out of a dump, does no harm. sim_fence_test.go shows that each rule is needed.
// Brokers forget a producer that wrote nothing to a partition for producer.id.expiration.ms
// (a day): a process that was frozen for longer can write there, however the leaders changed.
//
// Every InitProducerId but a Run's first names the producer id that we hold, so that
// it fails for a process that was superseded: Run then ends with ErrFenced. An empty
// transaction now and then keeps the id from expiring
// (transactional.id.expiration.ms, 7 days).
//
// # Transactions
//
// With Config.Transactions each row is published exactly once (docs/exactly-once.md).
// An exactlyonce.Machine decides over the transaction, the epochs and the journal;
// machine_transactions.go gives it the partition queues' rows, as many as one transaction takes,
// and takes back those that are not delivered when it has ended. So a queue treats a transaction like a
// batch in flight, and all that is said above of topics, splits and blocked keys holds.
// transaction_client.go sends the Machine's requests: those of the coordinator and the journal by
// the producerIDClient, batches by brokerConns. Run ends with exactlyonce.ErrSuperseded when
// another epoch is the current one, and with exactlyonce.ErrJournal when the journal is not
// the one that the database knows. A seal takes the place of resolve and fences.
//
// # What is not promised
//
// Without WRITE on the transactional id nothing is fenced (Sink.Fencing), and
// a search cannot exclude that a try lands after it: duplicates only. A key's
// rows that name different partitions are delivered one partition after the
// other, in order; rows of the key that name none are not ordered against
// them. When a partition without leader holds up a fence for 15 s, sending
// goes on: the fence then holds from the first batch on each partition.
package sink
