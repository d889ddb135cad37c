package sink

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file has the Kafka of the simulation, as producers see it: topics, partition logs that know producers by
// id, epoch and sequence, brokers that fail, and the coordinator of producer ids.

type simKafka struct {
	topics    []*simTopic // those that take rows first
	ours      int         // how many of the topics take rows
	named     map[string]*simTopic
	logs      map[topicPartition]*simLog
	down      map[string]bool // brokers that are down
	tries     map[*batch]*simTry
	late      int                // number of tries that are given up, but still on their way
	open      map[*batch]*simTry // the try of each batch that may have been appended
	fenced    map[*partitionQueue]bool
	tails     map[*partitionQueue]int64 // known ends of the partition logs
	sealed    map[*batch]bool
	notes     map[string]int // log lines
	acked     time.Time      // when the last batch was acknowledged
	askFailed time.Time      // since when requests for metadata have failed
	asksWell  time.Time      // since when they have been answered
	id        producer
	pids      int64
	jobs      int
	jobOut    bool
	jobEnd    time.Time // end of the last job
	kept      time.Time // when the id was last kept alive
}

// simTopic is a topic, or a name that no topic can have.
type simTopic struct {
	name     string
	uuid     byte
	there    bool
	ours     bool // it takes rows
	internal bool
	count    int                    // number of partitions
	max      int                    // maximum size of a batch, in bytes
	least    int                    // the least max so far
	says     sarama.KError          // what metadata answers, instead of the truth
	lag      int                    // number of partitions that metadata does not show yet
	blank    bool                   // metadata names no partitions
	write    sarama.KError          // the answer to produce requests
	excuses  map[sarama.KError]bool // errors that explain a block, because they were answered
	made     int                    // how often the topic was made
	acked    time.Time              // when the last batch was, or it came or went
	blocks   int                    // how often the topic was reported as blocked
	absent   int                    // number of answers in a row without the topic
	since    time.Time              // time of the first of these answers
}

type simLog struct {
	topic   *simTopic
	number  int32
	leader  string
	entries []simEntry
	hw      int // number of entries that are on all replicas
	moves   int // of its leadership
}

// simEntry is a batch of a partition log; without rows it is a marker.
type simEntry struct {
	offset int64
	as     producer
	seq    int32
	rows   []*outbox.Row
}

// simTry is one try to produce a batch.
type simTry struct {
	b       *batch
	to      string
	made    int // which making of the topic it is for
	as      producer
	seq     int32
	rows    []*outbox.Row
	untimed []bool // of the rows
	fate    *fate
}

const (
	simJournal  = "journal"  // of transactions
	simJournals = "journals" // another stream's
)

func (w *sim) makeTopics() {
	k := &w.simKafka
	k.logs, k.down, k.tries = map[topicPartition]*simLog{}, map[string]bool{}, map[*batch]*simTry{}
	k.open, k.fenced, k.id, k.pids = map[*batch]*simTry{}, map[*partitionQueue]bool{}, nobody, 1
	k.named = map[string]*simTopic{}
	k.tails, k.sealed, k.notes = map[*partitionQueue]int64{}, map[*batch]bool{}, map[string]int{}
	for i := range 1 + w.IntN(3) {
		w.topics = append(w.topics, &simTopic{name: fmt.Sprint("t", i), ours: true, there: !w.oneIn(8)})
	}
	w.ours = len(w.topics)
	w.topics = append(w.topics, &simTopic{name: simJournals, there: true}, &simTopic{name: "__consumer_offsets", there: true, internal: true},
		&simTopic{name: "nowhere"}, &simTopic{name: "not legal", says: sarama.ErrInvalidTopic}, &simTopic{name: "secret", says: sarama.ErrTopicAuthorizationFailed, there: true})
	if w.oneIn(20) { // more than each has its grace
		for i := range manyAbsentTopics + 1 {
			w.topics = append(w.topics, &simTopic{name: fmt.Sprint("nowhere", i)})
		}
	}
	if w.plan.once {
		most := 1 << 20
		if w.plan.told && w.coin() {
			most = 500
		}
		w.topics = append(w.topics, &simTopic{name: simJournal, there: true, count: 1, max: most})
	}
	for _, t := range w.topics {
		w.named[t.name] = t
		t.excuses = map[sarama.KError]bool{}
		t.count, t.max = cmp.Or(t.count, 1+w.IntN(3)), cmp.Or(t.max, []int{1 << 20, 400 + w.IntN(2000)}[w.IntN(2)])
		t.least = t.max
		if t.there {
			w.create(t)
		}
	}
}

func (w *sim) create(t *simTopic) {
	t.there, t.uuid, t.made, t.acked, t.lag = true, t.uuid+1, t.made+1, w.now, 0
	if w.plan.old {
		t.uuid = 0
	}
	for p := range t.count {
		w.logs[topicPartition{t.name, int32(p)}] = &simLog{topic: t, number: int32(p), leader: w.broker()}
	}
}

// remove deletes a topic, with its records and the tries that are on their way to it.
func (w *sim) remove(t *simTopic) {
	t.there = false
	for p := range t.count {
		at := topicPartition{t.name, int32(p)}
		for _, e := range w.logs[at].entries {
			w.lose(e.rows)
		}
		delete(w.logs, at)
	}
	w.forgetPending(t.name)
}

func (w *sim) topic(name string) *simTopic {
	return w.named[name]
}

var simBrokers = []string{"b0", "b1", "b2"}

// broker is one that runs, or none.
func (w *sim) broker() string {
	at := w.IntN(len(simBrokers))
	for i := range simBrokers {
		if b := simBrokers[(at+i)%len(simBrokers)]; !w.down[b] {
			return b
		}
	}
	return ""
}

// lead gives a partition another leader. What not all replicas had may be gone.
func (w *sim) lead(l *simLog, to string) {
	w.tell("%s/%d is led by %q", l.topic.name, l.number, to)
	l.moves++
	if l.leader = to; to == "" || w.logs[topicPartition{l.topic.name, l.number}] != l {
		return
	}
	if w.coin() && !w.plan.once {
		for _, e := range l.entries[l.hw:] {
			for _, r := range e.rows {
				w.of[r].copies--
			}
		}
		l.entries = l.entries[:l.hw]
	}
	l.hw = len(l.entries)
}

// someLog is any partition of the topics that take rows, or nil.
func (w *sim) someLog() *simLog {
	t := w.someTopic()
	if t == nil {
		return nil
	}
	return w.logs[topicPartition{t.name, int32(w.IntN(t.count))}]
}

// someTopic is any of the topics that take rows and are there, or nil.
func (w *sim) someTopic() *simTopic {
	if t := w.topics[w.IntN(w.ours)]; t.there {
		return t
	}
	return nil
}

// ---- metadata

var errDark = errors.New("no broker answers")

func (w *sim) ask(a *metadataRequest) {
	w.checkAsk(a)
	w.tell("ask %v", a.topics)
	w.asked = append(w.asked, w.now)
	names := slices.Sorted(slices.Values(a.topics)) // the machine's order is any
	w.after(w.lat(), func() {
		infos := map[string]topicInfo{}
		if w.dark > 0 || w.mute > 0 {
			w.hurt = w.now
			if w.askFailed.IsZero() {
				w.askFailed = w.now
			}
			if a.all {
				w.m.listed(nil, errDark)
			} else {
				w.m.metadata(names, nil, errDark)
			}
			return
		}
		if !w.askFailed.IsZero() {
			w.askFailed, w.asksWell = time.Time{}, w.now
		}
		if a.all {
			w.listed = map[string]bool{}
			for _, t := range w.topics {
				if t.there {
					infos[t.name] = w.info(t.name)
					w.listed[t.name] = t.says == 0 && !t.internal && !t.blank
				}
			}
			w.m.listed(infos, nil)
			return
		}
		for _, name := range names {
			infos[name] = w.info(name)
		}
		for _, name := range names {
			w.noteAnswer(name, infos)
		}
		w.m.metadata(names, infos, nil)
	})
}

// info returns what metadata tells about a topic.
func (w *sim) info(name string) topicInfo {
	t := w.topic(name)
	switch {
	case t == nil || !t.there && t.says == 0:
		return topicInfo{code: sarama.ErrUnknownTopicOrPartition}
	case t.says != 0:
		return topicInfo{code: t.says}
	}
	info := topicInfo{uuid: sarama.Uuid{t.uuid}, internal: t.internal}
	if w.plan.told {
		info.maxBytes = t.max
	}
	for p := 0; p < t.count-t.lag && !t.blank; p++ {
		info.leaders = append(info.leaders, w.logs[topicPartition{name, int32(p)}].leader)
	}
	if w.oneIn(30) {
		info.code = sarama.ErrReplicaNotAvailable // says nothing of the leaders
	}
	return info
}

// noteAnswer remembers what may explain that a topic gets blocked.
func (w *sim) noteAnswer(name string, infos map[string]topicInfo) {
	t := w.topic(name)
	if t == nil {
		return
	}
	code := infos[name].code
	if code != sarama.ErrUnknownTopicOrPartition {
		t.excuses[code], t.absent = true, 0
		return
	}
	if t.absent++; t.absent == 1 {
		t.since = w.now
	}
	t.excuses[code] = t.excuses[code] || absentOf(infos) > manyAbsentTopics || t.absent > 1 && w.now.Sub(t.since) >= w.m.cfg.topicGrace
}

// ---- producing

// fate is what happens to a try, if it is not just appended and acknowledged.
type fate struct {
	what   string
	err    error
	unsent bool
	code   sarama.KError
	lands  bool // it is appended, but not yet on all replicas
	offset bool // the answer has the offset
	late   bool // it arrives when its answer is no longer awaited
	plain  bool // only for runs without transactions
	// patience: how long a row may wait after it.
	patience time.Duration
}

var errReset = errors.New("connection reset")

var fates = []fate{
	{what: "not sent", err: errors.New("connection refused"), unsent: true},
	{what: "not sent in time", err: errLate, unsent: true, plain: true},
	{what: "lost", err: errReset},
	{what: "answer lost", err: errReset, lands: true},
	{what: "late", err: errors.New("timeout"), late: true, plain: true},
	{what: "not leader", code: sarama.ErrNotLeaderForPartition},
	{what: "appended, then not leader", code: sarama.ErrNotLeaderForPartition, lands: true, offset: true},
	{what: "appended, then topic unknown", code: sarama.ErrUnknownTopicOrPartition, lands: true, offset: true},
	{what: "no leader", code: sarama.ErrLeaderNotAvailable},
	{what: "timed out", code: sarama.ErrRequestTimedOut},
	{what: "timed out, appended", code: sarama.ErrRequestTimedOut, lands: true},
	{what: "too few replicas, appended", code: sarama.ErrNotEnoughReplicasAfterAppend, lands: true},
	{what: "unknown error, appended", code: sarama.ErrUnknown, lands: true},
	{what: "network error, appended", code: sarama.ErrNetworkException, lands: true},
	{what: "too few replicas", code: sarama.ErrNotEnoughReplicas},
	{what: "broken disk", code: sarama.ErrKafkaStorageError},
	{what: "damaged on the wire", code: sarama.ErrInvalidMessage},
	{what: "out of order", code: sarama.ErrOutOfOrderSequenceNumber},
	{what: "out of order, with an offset", code: sarama.ErrOutOfOrderSequenceNumber, offset: true},
	{what: "unknown producer", code: sarama.ErrUnknownProducerID},
	{what: "unknown mapping", code: sarama.ErrInvalidProducerIDMapping},
	{what: "fenced", code: sarama.ErrProducerFenced},
	{what: "epoch", code: sarama.ErrInvalidProducerEpoch},
	{what: "cluster not authorised", code: sarama.ErrClusterAuthorizationFailed, patience: 2 * backoffSlow},
	{what: "request not understood", code: sarama.ErrInvalidRequest, patience: 2 * backoffSlow},
	{what: "topic not authorised", code: sarama.ErrTopicAuthorizationFailed, patience: 2 * backoffSlow},
	{what: "topic invalid", code: sarama.ErrInvalidTopic, patience: 2 * backoffSlow},
	{what: "policy", code: sarama.ErrPolicyViolation, patience: 2 * backoffSlow},
	{what: "limit lowered", code: sarama.ErrMessageSizeTooLarge, plain: true},
}

// send takes a try on its way.
func (w *sim) send(b *batch) {
	t := w.topic(b.queue.topic.name)
	try := &simTry{b: b, to: b.queue.leader, made: t.made, as: b.as, seq: b.seq, rows: slices.Clone(b.rows), untimed: slices.Clone(b.untimed)}
	w.tell("send to %s as %v seq %d, %d rows from %s, try %d", b.queue, try.as, try.seq, len(try.rows), try.rows[0].ID, b.tries)
	w.checkSend(try)
	w.tries[b] = try
	var leader string
	answer := func(r reply) {
		w.tell("%s as %v seq %d, %d rows from %s: %s", b.queue, try.as, try.seq, len(try.rows), try.rows[0].ID, r)
		delete(w.tries, b)
		r.leader = leader
		if r.err != nil || r.code != 0 {
			w.hurt = w.now
			t.excuses[r.code] = t.excuses[r.code] || r.code != sarama.ErrUnknownTopicOrPartition // of which metadata decides
		}
		w.noteOpen(try, r)
		for _, i := range r.rejected {
			if i >= 0 && i < len(try.rows) && w.open[b] == nil {
				w.of[try.rows[i]].named, w.of[try.rows[i]].at = try.rows[i], b.queue
			}
		}
		if (r.code == 0 || r.code == sarama.ErrDuplicateSequenceNumber) && r.err == nil {
			w.noteTail(b.queue, r.offset, len(b.rows))
			w.acked, t.acked = w.now, w.now
		}
		awaited, before := b.queue.inFlight == b, b.queue.leader
		w.m.produced(b, r)
		if awaited && b.queue.leader != cmp.Or(leader, before) {
			w.fail("%s is led by %q, of which the answer says %q", b.queue, b.queue.leader, leader)
		}
	}
	if !w.calm && w.IntN(1000) < w.plan.losses && len(w.plan.fates) > 0 {
		try.fate = &w.plan.fates[w.IntN(len(w.plan.fates))]
		switch code := try.fate.code; {
		case code == sarama.ErrMessageSizeTooLarge && w.open[b] == nil, // a batch is too large or not, unless it was appended before
			code == sarama.ErrInvalidMessage && b.corrupt > 0: // nor is one damaged often
			try.fate = nil
		}
	}
	w.after(w.lat(), func() {
		f := try.fate
		switch {
		case w.dark > 0 || w.down[try.to]:
			answer(reply{err: errors.New("connection refused"), unsent: true})
		case w.unencodable(try.rows):
			answer(reply{err: sarama.PacketEncodingError{Info: "too long"}, unsent: true})
		case f != nil && f.late:
			w.late++
			w.after(w.upTo(4*time.Second), func() {
				w.late--
				if t.made == try.made { // else it went with its topic
					w.tell("late, %s as %v seq %d, %d rows from %s: %s", b.queue, try.as, try.seq, len(try.rows), try.rows[0].ID, w.append(try))
				}
			})
			w.after(w.upTo(time.Second), func() { answer(reply{err: f.err}) })
		case f != nil && !f.lands:
			r := reply{err: f.err, unsent: f.unsent, code: f.code, offset: -1}
			if f.offset {
				r.offset = 0
			}
			answer(r)
		default:
			r := w.append(try)
			if f != nil && r.code == 0 {
				if r.code, r.err = f.code, f.err; !f.offset || r.err != nil {
					r.offset = -1
				}
			}
			if l := w.logs[topicPartition{t.name, b.queue.partition}]; r.code == sarama.ErrNotLeaderForPartition && l != nil && w.coin() {
				leader = l.leader
			}
			w.after(w.lat(), func() { answer(r) })
		}
	})
}

// append does what a partition's leader does with a try, and returns the reply.
func (w *sim) append(try *simTry) reply {
	name := try.b.queue.topic.name
	t, l := w.topic(name), w.logs[topicPartition{name, try.b.queue.partition}]
	no := func(code sarama.KError) reply { return reply{code: code, offset: -1} }
	switch {
	case l == nil || !t.there:
		return no(sarama.ErrUnknownTopicOrPartition)
	case l.leader != try.to:
		return no(sarama.ErrNotLeaderForPartition)
	case t.write != 0:
		return no(t.write)
	}
	if r := w.refusal(t, try); r.code != 0 {
		return r
	}
	if w.plan.once {
		return w.appendOnce(l, try)
	}
	known, epoch, next, last := l.producer(try.as.PID)
	for _, e := range last {
		if e.as == try.as && e.seq == try.seq && len(e.rows) == len(try.rows) {
			if !slices.Equal(e.rows, try.rows) {
				w.fail("%s: rows from %s are taken for those from %s", try.b.queue, try.rows[0].ID, e.rows[0].ID)
			}
			if !w.replicates(try) {
				return reply{offset: e.offset}
			}
			if l.hw = len(l.entries); w.oneIn(4) {
				return no(sarama.ErrDuplicateSequenceNumber)
			}
			return reply{offset: e.offset}
		}
	}
	switch {
	case known && try.as.Epoch < epoch:
		return no(sarama.ErrInvalidProducerEpoch)
	case known && (try.as.Epoch == epoch && try.seq != next || try.as.Epoch > epoch && try.seq != 0):
		return no(sarama.ErrOutOfOrderSequenceNumber)
	}
	w.land(l, try.rows)
	r := reply{offset: l.add(simEntry{as: try.as, seq: try.seq, rows: try.rows})}
	if w.replicates(try) {
		l.hw = len(l.entries)
	}
	return r
}

// replicates reports whether a try is acknowledged by all replicas, as far as is known to us now.
func (w *sim) replicates(try *simTry) bool { return try.fate == nil || try.fate.late || w.coin() }

func (l *simLog) end() int64 {
	if len(l.entries) == 0 {
		return 0
	}
	last := l.entries[len(l.entries)-1]
	return last.offset + int64(max(len(last.rows), 1))
}

func (l *simLog) add(e simEntry) int64 {
	e.offset = l.end()
	l.entries = append(l.entries, e)
	return e.offset
}

// mark writes an abort marker, which raises the epoch.
func (l *simLog) mark(as producer) {
	l.add(simEntry{as: as})
	l.hw = len(l.entries)
}

// producer returns what a broker knows of a producer: all from the log. A partition that knows
// nothing accepts any sequence.
func (l *simLog) producer(pid int64) (known bool, epoch int16, next int32, last []simEntry) {
	for _, e := range l.entries {
		if e.as.PID != pid {
			continue
		}
		if !known || e.as.Epoch > epoch {
			known, epoch, next, last = true, e.as.Epoch, 0, nil
		}
		if len(e.rows) > 0 {
			next = advance(e.seq, len(e.rows))
			last = append(last, e)
			last = last[max(0, len(last)-5):]
		}
	}
	return known, epoch, next, last
}

// simMessages are what brokers say of records that they refuse.
var simMessages = []string{"not to my taste", "", sarama.ErrInvalidRecord.Error()}

// refusal returns a broker's answer to records that it does not take.
func (w *sim) refusal(t *simTopic, try *simTry) reply {
	r, size, rows := reply{offset: -1}, batchOverhead, try.rows
	for i, row := range rows {
		size += recordSize(row)
		if try.untimed != nil && try.untimed[i] {
			continue
		}
		if code := w.flawOf(row); code != 0 && (r.code == 0 || r.code == code) {
			r.code = code
			if w.plan.named && code == sarama.ErrInvalidRecord {
				r.rejected, r.message = append(r.rejected, i), simMessages[w.IntN(len(simMessages))]
			}
		}
	}
	if size > t.max {
		r = reply{code: []sarama.KError{sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge}[w.IntN(2)], offset: -1}
	}
	if len(r.rejected) > 0 && w.oneIn(4) {
		r.rejected = append(r.rejected, -1, len(rows)) // brokers err
	}
	return r
}

// ---- the coordinator of producer ids, by which a new producer id is got

// start tells the machine its first producer id.
func (w *sim) start(failures int) {
	w.after(backoff(failures, backoffMax), func() {
		if !w.calm && w.oneIn(3) || w.dark+w.stuck > 0 {
			w.hurt = w.now
			w.m.idTrouble(errors.New("no coordinator"))
			w.start(failures + 1)
			return
		}
		w.id = producer{w.pids, 0}
		w.hurt, w.kept = w.now, w.now
		w.m.started(w.id, w.plan.fencing)
	})
}

// job does the work of the producerIDClient.
func (w *sim) job(j *producerIDJob) {
	w.checkJob(j)
	w.jobs++
	w.jobOut = true
	slices.SortFunc(j.fence, func(a, b fenceTarget) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) }) // topics come in any order
	targets := []topicPartition{}
	for _, f := range j.fence {
		targets = append(targets, f.topicPartition)
	}
	unsealed := false
	for _, s := range j.resolve {
		if !s.sealed {
			unsealed = true
			targets = append(targets, s.topicPartition)
		}
	}
	d := w.lat()
	if unsealed && !w.plan.fencing {
		d += time.Second // what is on its way gets the time to arrive
	}
	w.after(d, func() { w.seal(j, targets, unsealed, 0) })
}

func (w *sim) seal(j *producerIDJob, targets []topicPartition, unsealed bool, tries int) {
	leaderless := func(p topicPartition) bool { l := w.logs[p]; return l != nil && l.leader == "" }
	switch {
	case w.dark+w.stuck > 0:
		w.hurt = w.now
		w.m.idTrouble(errors.New("no coordinator"))
		w.after(backoff(tries+1, backoffMax), func() { w.seal(j, targets, unsealed, tries+1) })
		return
	case slices.ContainsFunc(targets, leaderless) && w.plan.fencing && w.seed%2 == 0: // markers cannot be written; else they are given up
		w.hurt = w.now
		w.after(backoff(tries+1, backoffMax), func() { w.seal(j, targets, unsealed, tries+1) })
		return
	}
	res := producerIDResult{tails: map[topicPartition]int64{}, refused: map[topicPartition]sarama.KError{}}
	switch {
	case j.keepAlive != nil:
		if l := w.logs[*j.keepAlive]; l != nil && l.leader != "" {
			l.mark(w.id)
		}
	case len(targets) > 0 && !w.plan.fencing:
		w.pids++
		w.id = producer{w.pids, 0}
	case len(targets) > 0:
		w.fence(targets, unsealed, &res)
	}
	for _, f := range j.fence {
		if res.refused[f.topicPartition] != 0 {
			w.hurt = w.now
			continue
		}
		res.fenced = append(res.fenced, f.topicPartition)
		if l := w.logs[f.topicPartition]; l != nil && !w.oneIn(4) {
			res.tails[f.topicPartition] = l.end()
		}
	}
	w.after(w.lat(), func() {
		for _, s := range j.resolve {
			res.found = append(res.found, w.search(s, res.refused))
		}
		res.id, w.jobOut, w.jobEnd = w.id, false, w.now
		w.tell("job %s is done: %+v", j, res.fenced)
		for _, p := range res.fenced {
			if t := w.m.topics[p.Topic]; t != nil && int(p.Number) < len(t.queues) {
				q := t.queues[p.Number]
				w.fenced[q] = true
				if tail, known := res.tails[p]; known && w.tails[q] == 0 {
					w.noteTail(q, tail, 0)
				}
			}
		}
		for _, f := range res.found {
			if f.found {
				w.noteTail(f.batch.queue, f.offset, len(f.batch.rows))
			}
		}
		w.m.jobDone(res)
	})
}

// noteTail remembers what is known of a partition log's end, and 1, so that 0 is not.
func (w *sim) noteTail(q *partitionQueue, offset int64, n int) {
	if offset >= 0 {
		w.tails[q] = offset + int64(n) + 1
	}
}

// fence raises the epoch in partitions by a transaction that is aborted.
func (w *sim) fence(targets []topicPartition, unsealed bool, res *producerIDResult) {
	if unsealed {
		w.id.Epoch++
	}
	marked := false
	for _, p := range targets {
		t, l := w.topic(p.Topic), w.logs[p]
		switch {
		case l == nil:
			res.refused[p] = sarama.ErrUnknownTopicOrPartition
		case t.write == sarama.ErrTopicAuthorizationFailed:
			res.refused[p] = t.write
		case l.leader == "":
			res.refused[p] = sarama.ErrLeaderNotAvailable
			marked = true
			continue
		default:
			l.mark(w.id)
			marked = true
			continue
		}
		t.excuses[t.write] = true
	}
	if marked {
		w.id.Epoch++
	}
}

// search searches a partition log for a batch, up to the end that is on all replicas.
func (w *sim) search(s search, refused map[topicPartition]sarama.KError) searched {
	out := searched{batch: s.batch, sealed: true}
	l, t := w.logs[s.topicPartition], w.topic(s.Topic)
	switch code, is := refused[s.topicPartition]; {
	case is:
		out.sealed, out.err = s.sealed, code
	case !s.look:
	case l == nil:
		out.err = sarama.ErrUnknownTopicOrPartition
	case l.leader == "" || w.dark+w.blind > 0:
		out.err = errors.New("not found out")
	case w.unread: // it is sent again, and said aloud
		w.doubt(s.batch.rows)
	default:
		if s.uuid != (sarama.Uuid{t.uuid}) || s.from > l.end() {
			s.from = -1
		}
		for _, e := range l.entries[:l.hw] {
			if e.offset >= s.from && e.as == s.as && e.seq == s.seq && len(e.rows) == s.n {
				out.found, out.offset = true, e.offset
			}
		}
	}
	if w.sealed[s.batch] = out.sealed && out.err != nil; out.err != nil {
		w.hurt = w.now
	} else {
		delete(w.open, s.batch)
	}
	return out
}

func (j *producerIDJob) String() string {
	s := fmt.Sprintf("fence %v", j.fence)
	for _, r := range j.resolve {
		s += fmt.Sprintf(", find %d rows as %v seq %d from %d in %v", r.n, r.as, r.seq, r.from, r.topicPartition)
	}
	if j.keepAlive != nil {
		s += fmt.Sprintf(", keep alive at %v", *j.keepAlive)
	}
	return s
}

func (r reply) String() string {
	if r.err != nil {
		return fmt.Sprintf("%v (unsent %v)", r.err, r.unsent)
	}
	return fmt.Sprintf("code %d, offset %d, rejected %v", int(r.code), r.offset, r.rejected)
}

// ---- what goes wrong

type mishap struct {
	do    func(*sim)
	never bool // never with transactions
	// patience: how long a row may wait after it.
	patience time.Duration
}

// ofTopic returns a mishap of a topic, for a while.
func ofTopic(what string, most time.Duration, begin, end func(*simTopic)) func(*sim) {
	return func(w *sim) {
		if t := w.someTopic(); t != nil && t.says == 0 && !t.blank && t.write == 0 {
			w.wrongFor(most, fmt.Sprint(t.name, " ", what), func() { begin(t) }, func() { end(t) })
		}
	}
}

func says(code sarama.KError, most time.Duration) func(*sim) {
	return ofTopic(fmt.Sprint("is said to be ", int(code)), most, func(t *simTopic) { t.says = code }, func(t *simTopic) { t.says = 0 })
}

func writes(code sarama.KError) func(*sim) {
	return ofTopic(fmt.Sprint("refuses with ", int(code)), 3*time.Second, func(t *simTopic) { t.write = code }, func(t *simTopic) { t.write = 0 })
}

// counted returns a mishap that is on while a number is not 0.
func counted(what string, most time.Duration, n func(*sim) *int) func(*sim) {
	return func(w *sim) {
		w.wrongFor(most, what, func() { *n(w)++ }, func() { *n(w)-- })
	}
}

var mishaps = []mishap{
	{do: func(w *sim) {
		if l := w.someLog(); l != nil {
			w.lead(l, w.broker())
		}
	}},
	{do: func(w *sim) {
		if l := w.someLog(); l != nil && l.leader != "" {
			w.wrongFor(3*time.Second, "no leader", func() { w.lead(l, "") }, func() { w.lead(l, w.broker()) })
		}
	}},
	{do: (*sim).brokerDown},
	{do: counted("no broker can be reached", 5*time.Second, func(w *sim) *int { return &w.dark })},
	{do: counted("no metadata", 2*time.Second, func(w *sim) *int { return &w.mute })},
	{do: counted("the coordinator is stuck", 3*time.Second, func(w *sim) *int { return &w.stuck })},
	{do: counted("no log can be read", 3*time.Second, func(w *sim) *int { return &w.blind })},
	{do: func(w *sim) {
		if t := w.someTopic(); t != nil && t.count < 5 {
			t.count++
			w.tell("%s has %d partitions", t.name, t.count)
			if !w.plan.old && w.coin() {
				w.wrongFor(2*time.Second, "not all have heard of that", func() { t.lag++ }, func() { t.lag = max(0, t.lag-1) })
			}
			w.logs[topicPartition{t.name, int32(t.count - 1)}] = &simLog{topic: t, number: int32(t.count - 1), leader: w.broker()}
		}
	}},
	{do: (*sim).recreate, patience: backoffSlow},
	{do: says(sarama.ErrUnknownTopicOrPartition, 500*time.Millisecond)},
	{do: says(sarama.ErrTopicAuthorizationFailed, 3*time.Second), patience: backoffSlow},
	{do: says(sarama.ErrLeaderNotAvailable, 3*time.Second)},
	{do: ofTopic("shows no partitions", 3*time.Second, func(t *simTopic) { t.blank = true }, func(t *simTopic) { t.blank = false })},
	{do: writes(sarama.ErrTopicAuthorizationFailed), patience: backoffSlow},
	{do: writes(sarama.ErrPolicyViolation), patience: backoffSlow},
	{do: writes(sarama.ErrClusterAuthorizationFailed), patience: 2 * backoffSlow},
	{do: writes(sarama.ErrNotEnoughReplicas)},
	{do: func(w *sim) {
		if !w.shut {
			w.wrongFor(3*time.Second, "nothing may be sent", func() { w.shut = true }, func() { w.shut = false })
		}
	}, never: true},
	{do: func(w *sim) {
		if t := w.someTopic(); t != nil && t.max > 300 {
			t.max = t.max/2 + w.IntN(t.max/2)
			t.least = min(t.least, t.max)
			w.tell("%s takes %d bytes", t.name, t.max)
		}
	}},
	{do: (*sim).withdraw},
	{do: (*sim).withdraw},
	{do: (*sim).drain},
	{do: func(w *sim) {
		if w.now.Sub(w.listedAt) > 5*time.Second { // topics are not asked about meanwhile
			w.listedAt = w.now
			w.m.command(outbox.Command{List: true})
		}
	}},
	{do: (*sim).releaseOthers},
	{do: func(w *sim) {
		if t := w.topic(simJournal); t != nil && t.says == 0 {
			w.wrongFor(3*time.Second, "no journal", func() { t.says = sarama.ErrUnknownTopicOrPartition }, func() { t.says = 0 })
		}
	}},
}

func (w *sim) brokerDown() {
	b := simBrokers[w.IntN(len(simBrokers))]
	if w.down[b] {
		return
	}
	w.wrongFor(4*time.Second, b+" is down", func() {
		w.down[b] = true
		for _, p := range w.places() {
			if l := w.logs[p]; l.leader == b && w.coin() { // else it is still said to lead
				w.lead(l, w.broker())
			}
		}
	}, func() {
		delete(w.down, b)
		for _, p := range w.places() {
			if l := w.logs[p]; l.leader == "" {
				w.lead(l, w.broker())
			}
		}
	})
}

// recreate deletes a topic, which is made again at once or later, maybe with fewer partitions.
func (w *sim) recreate() {
	t := w.someTopic()
	if t == nil || t.says != 0 || t.blank || t.write != 0 {
		return
	}
	w.wrongFor([]time.Duration{time.Millisecond, 8 * time.Second}[w.IntN(2)], t.name+" is deleted",
		func() { w.remove(t) },
		func() {
			t.count = max(1, t.count-w.IntN(2))
			w.create(t)
		})
}

// places returns the partitions of all logs, in order.
func (w *sim) places() []topicPartition {
	return slices.SortedFunc(maps.Keys(w.logs), func(a, b topicPartition) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
}
