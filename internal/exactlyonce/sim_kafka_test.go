package exactlyonce

import "slices"

// This file is Kafka in the simulation: one transaction coordinator that speaks
// protocol 1, as TransactionCoordinator and ProducerStateManager do it, and partition logs.

type coordState uint8

const (
	empty coordState = iota
	ongoing
	prepareCommit
	prepareAbort
	completeCommit
	completeAbort
)

type coordinator struct {
	pid     int64
	epoch   int16
	last    int16 // the epoch before this one, whose request may be repeated; -1: none
	state   coordState
	parts   map[Partition]bool
	markers []Partition // partitions whose markers are still to be written
	repairs int16       // the commit's epoch, as a repair's timeout names it; -1: no repair
}

type entry struct {
	offset  int64
	by      Producer
	seq     int32
	control Control
	inTx    bool
	recs    []*Record
	units   []Unit
	open    bool // its transaction has no marker yet
	aborted bool
}

func (e *entry) count() int32 { return int32(max(len(e.recs)+len(e.units), 1)) }

type plog struct {
	at      Partition
	down    bool
	entries []*entry
	end     int64
	epoch   int16 // of our producer id; -1: none
	next    int32 // next sequence number
}

type kafka struct {
	coord coordinator
	logs  []*plog
	alive bool // the coordinator answers
	drops bool // the coordinator gives up the markers of partitions without leader (KAFKA-20734)
	cut   bool // a repair was aborted: docs/exactly-once.md says when
}

func newKafka(parts int) *kafka {
	k := &kafka{coord: coordinator{pid: 7, epoch: 0, last: -1, repairs: -1, parts: map[Partition]bool{}}, alive: true}
	k.logs = append(k.logs, &plog{at: journalAt, epoch: -1})
	for i := range parts {
		k.logs = append(k.logs, &plog{at: Partition{"t", int32(i)}, epoch: -1})
	}
	return k
}

func (k *kafka) log(at Partition) *plog {
	i := slices.IndexFunc(k.logs, func(l *plog) bool { return l.at == at })
	return k.logs[i]
}

// handle processes a request and returns its answer.
func (k *kafka) handle(w *world, r *Request) Answer {
	switch r.Kind {
	case Init:
		return k.init(r)
	case Add:
		return k.add(w, r)
	case Commit, Abort:
		return k.endTxn(r)
	case Produce:
		return k.produce(w, r.Batch)
	case Last:
		return k.lastOne()
	case Ends:
		return k.ends(w, r)
	default:
		return k.read(w, r)
	}
}

func (k *kafka) init(r *Request) Answer {
	c := &k.coord
	if r.As != Nobody && r.As.PID != c.pid {
		return Answer{Class: Superseded}
	}
	switch c.state {
	case prepareCommit, prepareAbort:
		return Answer{Class: Busy}
	case ongoing: // for any caller: the epoch is not compared
		k.fenceEpoch()
		return Answer{Class: Busy}
	}
	switch {
	case r.As == Nobody:
		c.epoch, c.last = c.epoch+1, -1
	case r.As.Epoch == c.epoch:
		c.epoch, c.last = c.epoch+1, r.As.Epoch
	case r.As.Epoch == c.last:
	default:
		return Answer{Class: Superseded}
	}
	c.state, c.repairs = empty, r.Of.Epoch
	return Answer{Class: OK, Producer: Producer{c.pid, c.epoch}}
}

// lastOne answers DescribeTransactions.
func (k *kafka) lastOne() Answer {
	c := &k.coord
	a := Answer{Class: OK, Outcome: Undone, Producer: Producer{c.pid, c.epoch}, Of: Producer{c.pid, c.epoch}}
	if c.repairs >= 0 {
		a.Of.Epoch = c.repairs
	}
	switch {
	case c.state == prepareCommit || c.state == prepareAbort:
		a.Class = Busy
	case c.state == ongoing && c.repairs >= 0:
		a.Outcome = Repairing
	case c.state == ongoing:
		a.Outcome = Running
	case c.state == completeCommit || c.repairs >= 0:
		a.Outcome = Committed
	}
	return a
}

// ends answers DescribeProducers.
func (k *kafka) ends(w *world, r *Request) (a Answer) {
	for i, p := range r.Partitions {
		if slices.Contains(r.Partitions[:i], p) {
			w.fail("%v is asked for twice", p)
		}
		l := k.log(p)
		isOpen := slices.ContainsFunc(l.entries, func(e *entry) bool { return e.open })
		switch {
		case l.down:
			a.Unknown = append(a.Unknown, p)
		case r.Marker && (isOpen || l.epoch < r.Of.Epoch), !r.Marker && isOpen && l.epoch == r.Of.Epoch:
			a.Open = append(a.Open, p)
		}
	}
	if a.Class = OK; len(a.Open)+len(a.Unknown) > 0 && !w.off["proof"] {
		a.Class = Again
	}
	return a
}

// fenceEpoch aborts the open transaction under a new epoch that no process gets.
func (k *kafka) fenceEpoch() {
	c := &k.coord
	for _, l := range k.logs {
		k.cut = k.cut || c.repairs >= 0 && c.parts[l.at] && l.epoch == c.repairs && slices.ContainsFunc(l.entries, func(e *entry) bool { return e.open })
	}
	c.epoch, c.last = c.epoch+1, -1
	k.prepare(prepareAbort)
}

func (k *kafka) prepare(s coordState) {
	c := &k.coord
	c.state = s
	c.markers = nil
	for _, l := range k.logs {
		if c.parts[l.at] {
			c.markers = append(c.markers, l.at)
		}
	}
	k.complete()
}

func (k *kafka) complete() {
	c := &k.coord
	if len(c.markers) > 0 {
		return
	}
	clear(c.parts)
	if c.state == prepareCommit {
		c.state = completeCommit
	} else {
		c.state = completeAbort
	}
}

func (k *kafka) current(r *Request) bool { return r.As == Producer{k.coord.pid, k.coord.epoch} }

func (k *kafka) add(w *world, r *Request) Answer {
	c := &k.coord
	switch {
	case !k.current(r):
		return Answer{Class: Superseded}
	case c.state == prepareAbort || c.state == prepareCommit:
		return Answer{Class: Busy}
	}
	if bad := w.unusable(r.Partitions); len(bad) > 0 {
		return Answer{Class: Refused, Refused: bad}
	}
	c.state = ongoing
	for _, p := range r.Partitions {
		c.parts[p] = true
	}
	return Answer{Class: OK}
}

func (k *kafka) endTxn(r *Request) Answer {
	c := &k.coord
	if !k.current(r) {
		return Answer{Class: classOf(r.Kind, codeFenced)}
	}
	want, done, prepared := completeCommit, prepareCommit, prepareAbort
	if r.Kind == Abort {
		want, done, prepared = completeAbort, prepareAbort, prepareCommit
	}
	code := int16(codeInvalidState)
	switch c.state {
	case ongoing:
		k.prepare(done)
		code = codeNone
	case want:
		code = codeNone
	case done:
		code = codeConcurrent
	case prepared, empty:
	}
	return Answer{Class: classOf(r.Kind, code)}
}

func classOf(kind Kind, code int16) Class { return Classify(kind, code, false) }

// markable reports whether mark has something to do.
func (k *kafka) markable() bool {
	return slices.ContainsFunc(k.coord.markers, func(p Partition) bool { return k.drops || !k.log(p).down })
}

// mark writes the coordinator's next marker, or gives it up.
func (k *kafka) mark() bool {
	c := &k.coord
	for i, at := range c.markers {
		l := k.log(at)
		switch {
		case !l.down:
			l.marker(Producer{c.pid, c.epoch}, c.state == prepareCommit)
		case !k.drops:
			continue
		}
		c.markers = slices.Delete(c.markers, i, i+1)
		k.complete()
		return true
	}
	return false
}

func (l *plog) marker(by Producer, commit bool) {
	if by.Epoch > l.epoch {
		l.epoch, l.next = by.Epoch, 0
	}
	control := AbortMarker
	if commit {
		control = CommitMarker
	}
	for _, e := range l.entries {
		if e.open {
			e.open, e.aborted = false, !commit
		}
	}
	l.append(&entry{by: by, control: control, inTx: true})
}

func (l *plog) append(e *entry) int64 {
	e.offset = l.end
	l.entries = append(l.entries, e)
	l.end += int64(e.count())
	return e.offset
}

func (k *kafka) produce(w *world, b *Batch) Answer {
	l := k.log(b.At)
	switch {
	case l.down:
		return Answer{Class: Again}
	case w.forbidden[b.At]:
		return Answer{Class: classOf(Produce, codeTopicAuthorization)}
	}
	// A record is checked before its sequence number, so a batch that was appended may be refused later.
	for i, r := range b.Records {
		if w.poison[string(r.Row.Value)] {
			if w.chance(2) {
				return Answer{Class: Refused, Bad: []int{i}}
			}
			return Answer{Class: Refused}
		}
	}
	switch {
	case b.By.Epoch < l.epoch:
		return Answer{Class: classOf(Produce, codeInvalidEpoch)}
	case b.By.Epoch == l.epoch && b.Seq != l.next:
		for _, e := range l.entries {
			if e.control == Data && e.by == b.By && e.seq == b.Seq && e.count() == b.count() {
				return Answer{Class: OK, Offset: e.offset}
			}
		}
		return Answer{Class: classOf(Produce, codeOutOfOrder)}
	case b.By.Epoch > l.epoch && l.epoch >= 0 && b.Seq != 0:
		return Answer{Class: classOf(Produce, codeOutOfOrder)}
	}
	l.epoch, l.next = b.By.Epoch, b.Seq+b.count()
	return Answer{Class: OK, Offset: l.append(&entry{
		by: b.By, seq: b.Seq, inTx: true, recs: b.Records, units: b.Units, open: true,
	})}
}

// legacyProduce appends a batch of a process that delivers at least once: it has our producer id and no
// transaction.
func (k *kafka) legacyProduce(at Partition, epoch int16, r *Record) bool {
	l := k.log(at)
	if l.down || epoch < l.epoch || slices.ContainsFunc(l.entries, func(e *entry) bool { return e.open }) {
		return false
	}
	if epoch > l.epoch {
		l.epoch, l.next = epoch, 0
	}
	l.next++
	l.append(&entry{by: Producer{k.coord.pid, epoch}, recs: []*Record{r}})
	return true
}

// read reads the journal with the real Reader, from real bytes. A broker that has just become the leader
// may not know the end of the log yet.
func (k *kafka) read(w *world, r *Request) Answer {
	l := k.log(journalAt)
	reader := NewReader(r)
	entries, stale := l.entries, false
	if !reader.ToTheEnd() && (w.stale > 0 || w.chance(8)) {
		entries, stale = entries[:len(entries)*2/3], true
		w.stale = max(0, w.stale-1)
	}
	for _, e := range entries {
		if e.offset+int64(e.count()) <= r.From {
			continue
		}
		b := LogBatch{Offset: e.offset, By: e.by, Transactional: e.inTx, Control: e.control}
		for i := range e.units {
			b.Records = append(b.Records, e.units[i].Append(nil))
		}
		done, err := reader.Feed(&b)
		if err != nil {
			return Answer{Err: err}
		}
		if done {
			return reader.Answer()
		}
	}
	if reader.ToTheEnd() {
		return reader.Last()
	}
	if w.off["marker"] { // as if the end offset had been asked for
		return reader.Answer()
	}
	if !stale && !slices.Contains(k.coord.markers, journalAt) { // our marker was written, and is missing
		return Answer{Err: ErrJournal}
	}
	return Answer{Class: Again}
}

// published returns how often read_committed shows a row. Rows whose commit is decided count, too.
func (k *kafka) published() map[string]int {
	out := map[string]int{}
	for _, l := range k.logs {
		decided := k.coord.state == prepareCommit && slices.Contains(k.coord.markers, l.at)
		for _, e := range l.entries {
			if e.aborted || e.open && !decided {
				continue
			}
			for _, r := range e.recs {
				out[string(r.Row.Value)]++
			}
		}
	}
	return out
}

// held reports whether consumers are held up by a transaction without an end; partitions in but do not
// count.
func (k *kafka) held(but func(Partition) bool) bool {
	for _, l := range k.logs {
		if !but(l.at) && slices.ContainsFunc(l.entries, func(e *entry) bool { return e.open }) {
			return true
		}
	}
	return false
}
