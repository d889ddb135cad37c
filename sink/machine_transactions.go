package sink

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// transactor publishes the rows of partition queues in transactions. When the exactlyonce.Machine has no
// rows, the queues give it as many as one transaction takes. When it is idle again, each row either was
// delivered or goes back to the front of its queue. There the refused rows are refused. So each outcome
// comes after the outcomes of the key's earlier rows.
type transactor struct {
	cfg     *Transactions
	once    *exactlyonce.Machine // nil: the journal is not known yet
	journal *topic
	// trouble is why the journal cannot be used, if it cannot.
	trouble trouble
	// recovered says that the database knows all rows that earlier leaders published.
	recovered bool
	ready     []*partitionQueue // queues with rows for the next transaction
	giving    []*partitionQueue // queues with rows in the present transaction
	// back are the rows of the transaction that are not delivered. The value is the error of a refused row,
	// and nil for other rows.
	back map[*outbox.Row]error
	// given is when the transaction got its rows, and progress is when one of its requests last succeeded.
	given, progress time.Time
	revisitAt       time.Time
	// unended are partitions in which the end of a transaction was found missing, and has not been found
	// since.
	unended map[topicPartition]bool
}

// answered is the result of a request of the exactlyonce.Machine.
type answered struct {
	request *exactlyonce.Request
	answer  exactlyonce.Answer
	refused map[topicPartition]sarama.KError // for an Add: why partitions were refused
	missing map[topicPartition]error         // for an Ends: why an end is missing
	shown   map[topicPartition]bool          // for an Ends: whether the leader has shown the end; nil: the result is not needed
}

// ended is the end of a transaction, and how much time has passed since the transaction got its rows.
type ended struct {
	exactlyonce.End
	took time.Duration
}

// ---- the journal

func (m *machine) isJournal(topic string) bool { return m.tx != nil && m.tx.journal.name == topic }

// journalHint says what an operator can do about an error of the journal.
var journalHint = map[sarama.KError]string{
	sarama.ErrUnknownTopicOrPartition: " (outbox-cdc init --kafka makes it; if rows were published before, outbox-cdc journal reset)",
}

// learnJournal takes what metadata tells about the journal. The first usable answer begins publishing.
func (m *machine) learnJournal(info topicInfo) {
	t, known := m.tx.journal, m.tx.cfg.Tally.Journal
	if m.tx.once != nil {
		known = t.uuid.String() // the database knew this id, or none
	}
	switch {
	case info.code != sarama.ErrNoError && info.code != sarama.ErrReplicaNotAvailable:
		m.journalTrouble(fmt.Errorf("topic %s, the journal of published rows: %w%s", t.name, info.code, journalHint[info.code]))
		return
	case len(info.leaders) != 1:
		m.journalTrouble(fmt.Errorf("topic %s, the journal of published rows, has %d partitions, must have 1", t.name, len(info.leaders)))
		return
	case known != "" && known != info.uuid.String():
		m.out.fatal = fmt.Errorf("%w: topic %s is not the journal that the database knows: it was deleted and created again, or journal.topic or the brokers were changed", exactlyonce.ErrJournal, t.name)
		return
	}
	t.state, t.uuid, t.maxBytes, m.tx.trouble = topicReady, info.uuid, info.maxBytes, trouble{}
	m.lead(t, info)
	if m.tx.once == nil {
		m.beginTransactions()
	}
}

// journalTrouble notes why the journal cannot be used, and asks for metadata again.
func (m *machine) journalTrouble(err error) {
	m.tx.trouble.fail(m.now, err)
	m.want(backoffMax)
}

// beginTransactions begins to lead. The exactlyonce.Machine first finds out which rows were published
// before.
func (m *machine) beginTransactions() {
	var known, dark []exactlyonce.Partition
	for _, t := range m.topics {
		for _, q := range t.queues {
			switch {
			case q.leader != "" && t.state == topicReady:
				known = append(known, q.ref())
			case t.state == topicReady:
				dark = append(dark, q.ref())
			}
		}
	}
	most := unitBytes
	if limit := m.tx.journal.maxBytes; limit > 0 {
		most = min(most, limit/2)
	}
	m.tx.once = exactlyonce.New(exactlyonce.Config{
		Journal: m.tx.journal.queues[0].ref(), MaxRows: m.tx.cfg.MaxRows, BatchRows: m.cfg.limits.rows,
		BatchBytes: func(topic string) int { return m.limits(m.topics[topic]).bytes },
		UnitRows:   unitRows, UnitBytes: most, PageBytes: pageBytes,
	}, m.tx.cfg.Tally.Head, known, dark...)
	m.goOn(nil)
}

// wasRecovered takes the news that the database knows the units that were found. When no more follow, it
// knows all rows that were published.
func (m *machine) wasRecovered(found *exactlyonce.Recovery) {
	m.tx.once.Recovered()
	if !found.More {
		m.tx.recovered = true
		m.keepAt = m.now.Add(m.cfg.keepAlive)
	}
	m.goOn(nil)
}

// ---- rows

func (q *partitionQueue) ref() exactlyonce.Partition {
	return exactlyonce.Partition{Topic: q.topic.name, Number: q.partition}
}

// give gives rows of all queues to the next transaction. Short queues come first, so that the room that they
// leave goes to the others.
func (m *machine) give() {
	if !m.tx.once.Idle() {
		return
	}
	ready := slices.DeleteFunc(m.tx.ready, func(q *partitionQueue) bool {
		q.offered = q.state == queueIdle && q.rows.len() > 0 && !m.stale(q)
		return !q.offered
	})
	slices.SortStableFunc(ready, func(a, b *partitionQueue) int { return cmp.Compare(a.rows.len(), b.rows.len()) })
	rows, bytes := m.tx.cfg.MaxRows, transactionBytes
	for i, q := range ready {
		left := len(ready) - i
		n, size := m.giveOf(q, max(rows/left, min(rows, 1)), max(bytes/left, 1))
		rows, bytes = rows-n, bytes-size
	}
	m.tx.ready = slices.DeleteFunc(ready, func(q *partitionQueue) bool { return !q.offered })
	m.tx.given, m.tx.progress = m.now, m.now
	m.goOn(nil)
}

// giveOf gives the first rows of a queue to the transaction: at most this number of rows, with about this
// number of bytes at most. It returns how many rows and bytes it gave.
func (m *machine) giveOf(q *partitionQueue, rows, bytes int) (n, size int) {
	run, most := q.rows.peek(), m.limits(q.topic)
	for n < len(run) && n < rows && size < bytes && q.rejected[run[n]] == nil && !q.elsewhere(run[n]) && !most.old(run[n]) {
		record := recordOf(run[n], q)
		m.tx.once.Publish(record)
		n, size = n+1, size+record.Size
	}
	if n == 0 {
		return 0, 0
	}
	q.offered = false // the rest is offered after the transaction
	q.given = slices.Clone(run[:n])
	q.rows.drop(n)
	q.topic.batched(q.partition)
	m.tx.giving = append(m.tx.giving, q)
	return n, size
}

func recordOf(r *outbox.Row, q *partitionQueue) *exactlyonce.Record {
	record := &exactlyonce.Record{Row: r, At: q.ref(), Table: r.Table.String(), Key: orderOf(r), Size: recordSize(r)}
	if r.Table.Stateful() {
		record.Name = exactlyonce.NameOf(r)
	} else {
		record.Name, record.Commit = exactlyonce.NameInLog(r), r.Commit
	}
	return record
}

// orderOf returns a name that the row shares with all rows that it must not overtake; empty: there are none.
func orderOf(r *outbox.Row) string {
	if r.Key == nil {
		return ""
	}
	return outbox.JoinID(r.Table.String(), r.Topic, string(r.Key))
}

// ended takes back the transaction's rows that were not delivered.
func (m *machine) ended() {
	giving := m.tx.giving
	m.tx.giving = nil
	for _, q := range giving {
		m.clearBatch(q)
		var back []*outbox.Row // in their old order
		for _, r := range q.given {
			err, is := m.tx.back[r]
			if is {
				back = append(back, r)
			}
			if err != nil { // it is refused at the front of the queue
				q.reject(r, err)
				m.tx.once.Release(orderOf(r)) // from here on, the topic knows which keys are blocked
			}
		}
		q.given = nil
		q.rows.unshift(back)
		m.touch(q)
	}
	clear(m.tx.back)
}

// clearBatch forgets the batch in flight of a partition. Its answer is not awaited any more.
func (m *machine) clearBatch(q *partitionQueue) {
	if q.inFlight == nil {
		return
	}
	m.calm(q)
	q.clearInFlight()
}

// ---- requests and answers

// goOn carries out what the exactlyonce.Machine has decided after an input. If the input was a request's
// failure, cause is the error.
func (m *machine) goOn(cause error) {
	ready := m.tx.once.Take()
	if ready.Err != nil {
		m.out.fatal = ready.Err
		return
	}
	for _, r := range ready.Requests {
		m.request(r, cause)
	}
	for _, d := range ready.Delivered {
		rows := make([]*outbox.Row, len(d.Records))
		for i, r := range d.Records {
			rows[i] = r.Row
		}
		m.out.outcomes = append(m.out.outcomes, outbox.Outcome{
			Rows: rows, Class: outbox.Delivered, Sent: m.tx.given,
			Unit: &outbox.Unit{Cluster: m.cluster, Number: d.Unit.Number, Place: d.Unit.Offset, Rows: len(rows), UpTo: d.Unit.UpTo},
		})
	}
	for _, r := range ready.Refused {
		m.tx.back[r.Row] = cause
	}
	for _, r := range ready.Withdrawn {
		m.tx.back[r.Row] = nil
	}
	if ready.End != nil {
		m.out.ends = append(m.out.ends, ended{*ready.End, m.now.Sub(m.tx.given)})
	}
	if ready.Recover != nil {
		m.out.recovery = ready.Recover
	}
	if m.tx.once.Idle() {
		m.ended()
	}
}

// request passes a request on: a batch to the partition's leader, anything else to the producerIDClient.
func (m *machine) request(r *exactlyonce.Request, cause error) {
	if r.Kind != exactlyonce.Produce {
		m.out.requests = append(m.out.requests, r)
		return
	}
	q := m.tx.journal.queues[0]
	if at := r.Batch.At; !m.isJournal(at.Topic) {
		q = m.topics[at.Topic].queues[at.Number] // the topic and its queue stay as long as their rows are in the transaction
	}
	if q.inFlight != nil && q.inFlight.request.Batch == r.Batch { // the same batch once more
		q.inFlight.request = r
		m.wait(q, cause, backoffMax)
		return
	}
	m.clearBatch(q)
	q.inFlight = m.batchOf(r, q)
	m.launch(q)
}

// batchOf makes a batch of the records or units of a request.
func (m *machine) batchOf(r *exactlyonce.Request, q *partitionQueue) *batch {
	rows := make([]*outbox.Row, 0, len(r.Batch.Records)+len(r.Batch.Units))
	for _, record := range r.Batch.Records {
		rows = append(rows, record.Row)
	}
	for i := range r.Batch.Units {
		rows = append(rows, &outbox.Row{Topic: q.topic.name, Value: r.Batch.Units[i].Append(nil)})
	}
	b := &batch{queue: q, rows: rows, bytes: batchOverhead, made: m.now, request: r, as: producer(r.As), seq: r.Batch.Seq}
	for _, row := range rows {
		b.bytes, b.headers = b.bytes+recordSize(row), b.headers+len(row.Headers)
	}
	return b
}

// producedOnce takes the reply to a try in a transaction.
func (m *machine) producedOnce(b *batch, r reply) {
	q := b.queue
	if q.inFlight != b {
		return // its transaction is over
	}
	if r.leader != "" {
		q.leader = r.leader
	}
	m.noteDisk(q, r)
	class := b.class(r)
	if b.retime(r) {
		class = exactlyonce.Again
	}
	switch {
	case r.unsent && !encoding(r.err):
		m.wait(q, r.cause(q), backoffMax)
		return
	case class == exactlyonce.OK:
		m.ackedAt, m.tx.progress = m.now, m.now
		q.topic.accepted = max(q.topic.accepted, b.bytes)
		m.noteLoss(b, r.offset)
		m.clearBatch(q)
	case class == exactlyonce.Refused && (r.code == sarama.ErrMessageSizeTooLarge || r.code == sarama.ErrMessageSetSizeTooLarge):
		q.topic.tooLarge(b)
	case class == exactlyonce.Forbidden && q.topic != m.tx.journal:
		m.blockTopic(q.topic, withHint(r.cause(q)))
	}
	bad := slices.DeleteFunc(slices.Clone(r.rejected), func(i int) bool { return i < 0 || i >= len(b.rows) })
	m.tx.once.Answer(b.request, exactlyonce.Answer{Class: class, Bad: bad, Offset: r.offset})
	m.goOn(r.cause(q))
}

// class returns what a reply means in a transaction.
func (b *batch) class(r reply) exactlyonce.Class {
	switch {
	case encoding(r.err):
		return exactlyonce.Refused
	case r.err != nil:
		return exactlyonce.Silence
	case r.code == sarama.ErrInvalidMessage && r.offset < 0:
		if b.corrupt++; b.corrupt >= corruptTries {
			return exactlyonce.Refused
		}
	}
	return exactlyonce.Classify(exactlyonce.Produce, int16(r.code), r.offset >= 0)
}

// wasAnswered takes the result of a request that the producerIDClient has carried out.
func (m *machine) wasAnswered(a answered) {
	if a.answer.Class == exactlyonce.OK {
		m.idFails = trouble{}
		m.tx.progress = m.now
	}
	for p, code := range a.refused { // these partitions cannot be added to a transaction
		q := m.queueOf(p)
		switch {
		case q == nil:
		case code == sarama.ErrTopicAuthorizationFailed || code == sarama.ErrInvalidTopic:
			m.unfit(q.topic, withHint(fmt.Errorf("topic %s: %w", p.Topic, code)))
		default:
			m.wait(q, fmt.Errorf("topic %s, partition %d: %w", p.Topic, p.Number, code), backoffMax)
		}
	}
	m.learnEnds(&a)
	if a.request.Marker { // rows of partitions without the marker wait
		for p, err := range a.missing {
			if q := m.queueOf(p); q != nil {
				m.wait(q, err, backoffMax)
			}
		}
	}
	m.tx.once.Answer(a.request, a.answer)
	m.goOn(nil)
}

// learnEnds notes in which partitions ends of transactions are missing. It does not count ends as missing
// while their markers may still be on their way.
func (m *machine) learnEnds(a *answered) {
	if a.request.Kind != exactlyonce.Ends {
		return
	}
	changed := false
	for _, p := range a.request.Partitions {
		at := topicPartition(p)
		lacks := a.missing[at] != nil && (a.request.Marker || a.request.Try >= describeAfter)
		if lacks == m.tx.unended[at] {
			continue
		}
		changed = true
		if delete(m.tx.unended, at); lacks {
			m.tx.unended[at] = true
		}
	}
	if !changed {
		return
	}
	m.out.unended = map[string][]int32{}
	for at := range m.tx.unended {
		m.out.unended[at.Topic] = append(m.out.unended[at.Topic], at.Number)
	}
}

// leadersOf returns the leaders of the partitions whose ends are asked for.
func (m *machine) leadersOf(r *exactlyonce.Request) map[topicPartition]string {
	if r.Kind != exactlyonce.Ends {
		return nil
	}
	leaders := map[topicPartition]string{}
	for _, p := range r.Partitions {
		q := m.queueOf(topicPartition(p))
		if m.isJournal(p.Topic) {
			q = m.tx.journal.queues[0]
		}
		if q != nil {
			leaders[topicPartition(p)] = q.leader
		}
	}
	return leaders
}

// revisitEvery is the interval at which partitions that seals have left out are sealed, once they have a
// leader.
const revisitEvery = 5 * time.Second

// revisit ends transactions that earlier epochs have left open in partitions which had no leader then.
func (m *machine) revisit() {
	if m.now.Before(m.tx.revisitAt) {
		return
	}
	m.tx.revisitAt = m.now.Add(revisitEvery)
	m.tx.once.Revisit(m.led)
	m.goOn(nil)
}

// led reports whether a partition has a leader and its topic can be used.
func (m *machine) led(p exactlyonce.Partition) bool {
	q := m.queueOf(topicPartition(p))
	return q != nil && q.leader != "" && q.topic.state == topicReady
}

func (m *machine) tickTransactions() {
	if m.tx.once == nil {
		return
	}
	if !m.now.Before(m.tx.progress.Add(stuckAfter)) {
		m.tx.progress = m.now
		m.tx.once.GiveUp()
		m.goOn(nil)
	}
	if m.cfg.keepAlive > 0 && !m.keepAt.After(m.now) {
		m.keepAt = m.now.Add(m.cfg.keepAlive)
		m.tx.once.KeepAlive()
		m.goOn(nil)
	}
	m.revisit()
	m.give()
}
