package sink

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file has the stream of the simulation. Its rows are in lines, one line for each key. It publishes the
// rows of a line in order, and publishes rows that are given back again.

type simTable struct {
	lines      []*simLine
	of         map[*outbox.Row]*simRow // each publication
	asks       map[*outbox.Row]bool    // publications that were asked about
	parked     map[outbox.Scope]bool   // scopes that the machine blocks
	blocked    []outbox.Scope          // now
	blockedAt  time.Time               // when the last scope was blocked
	listedAt   time.Time
	out        int // number of rows that have no outcome yet
	publishing int // 1 while rows go on to be published
	resting    bool
	draining   bool
	asking     *outbox.Scope // the scope that is being withdrawn
	listed     map[string]bool
	states     []simState // reports about the cluster
	made       int        // number of rows made
}

// simLine is a line of rows, which must be delivered in order.
type simLine struct {
	topic string
	table *outbox.Table
	key   []byte
	named bool // its rows name their partitions
	rows  []*simRow
	next  int // all rows before this index are done
}

// simRow is a row of the table.
type simRow struct {
	line   *simLine
	row    outbox.Row
	flaw   sarama.KError
	pub    *outbox.Row // the publication whose outcome the machine still owes, or nil
	since  time.Time
	sent   time.Time
	looked time.Time // when the stream last told its present state
	done   bool
	failed bool // given up for its own fault
	tries  int
	named  *outbox.Row // the publication that a broker named as rejected
	at     *partitionQueue
	until  time.Time // it is not published before this time
	copies int       // number of copies in partition logs
	gone   bool      // a copy was in a topic that was deleted
	doubt  bool      // there may be several copies
}

// errEncode stands for a record that cannot be written, errName for an id that the journal does not take.
const (
	errEncode sarama.KError = 10_000 + iota
	errName
)

// simTables have errors of topics that are the row's own.
var simTables = []*outbox.Table{
	{Schema: "public", Name: "outbox"},
	{Schema: "public", Name: "forbidden", Mapping: outbox.Mapping{TimestampNow: true, FailOn: []outbox.TopicError{outbox.TopicUnauthorized}}},
	{Schema: "public", Name: "all", Mapping: outbox.Mapping{FailOn: []outbox.TopicError{outbox.TopicMissing, outbox.TopicInvalid, outbox.TopicUnauthorized}}},
}

func (w *sim) makeRows() {
	w.of, w.asks, w.parked = map[*outbox.Row]*simRow{}, map[*outbox.Row]bool{}, map[outbox.Scope]bool{}
	flawed, lines := []int{0, 0, 10, 100}[w.IntN(4)], 1+w.IntN(8)
	others := 0
	if w.oneIn(3) {
		others = 3
	}
	for range lines {
		l := &simLine{topic: w.topics[w.IntN(w.ours)].name, table: simTables[max(0, w.IntN(8)-5)]}
		if w.IntN(10) < others { // can take no row
			l.topic = w.topics[w.IntN(len(w.topics))].name
		}
		if !w.oneIn(4) {
			l.key = []byte{byte('a' + w.IntN(5))}
			if w.oneIn(8) {
				l.key = []byte{}
			}
		}
		l.named = w.oneIn(4)
		same := func(o *simLine) bool {
			return o.topic == l.topic && o.table == l.table && string(o.key) == string(l.key) && o.key != nil && l.key != nil
		}
		if !slices.ContainsFunc(w.lines, same) {
			w.lines = append(w.lines, l)
		}
	}
	for _, l := range w.lines {
		for range 1 + w.IntN(20) {
			w.addRow(l, flawed)
		}
	}
	for _, t := range w.topics[w.ours:] {
		if strings.HasPrefix(t.name, "nowhere") && len(t.name) > len("nowhere") {
			l := &simLine{topic: t.name, table: simTables[0], key: []byte("a")}
			w.addRow(l, 0)
			w.lines = append(w.lines, l)
		}
	}
}

func (w *sim) addRow(l *simLine, flawed int) {
	r := &simRow{line: l}
	w.made++
	id := fmt.Sprintf("%s-%s-%s%d", l.topic, l.table.Name, l.key, w.made)
	r.row = outbox.Row{Table: l.table, ID: id, Cluster: "main", Topic: l.topic, Key: l.key, Partition: -1, Pending: true}
	r.row.Value = make([]byte, []int{5, 50, 200, 1500}[w.IntN(3+w.IntN(2))])
	if w.oneIn(4) {
		r.row.Headers = []outbox.Header{{Name: "h", Value: []byte(id)}, {Name: "i"}}
	}
	if l.named {
		r.row.Partition = int32(w.IntN(4))
	}
	if w.IntN(1000) < flawed {
		r.flaw = []sarama.KError{sarama.ErrInvalidRecord, sarama.ErrInvalidRecord, sarama.ErrInvalidTimestamp, sarama.ErrInvalidMessage, errEncode}[w.IntN(5)]
		if r.flaw == sarama.ErrInvalidTimestamp && r.row.Table.Mapping.TimestampNow {
			r.row.Timestamp = 1
		}
		if w.plan.once && w.oneIn(6) {
			r.flaw, r.row.ID = errName, id+strings.Repeat(" ", longestID)
		}
	}
	l.rows = append(l.rows, r)
	if l.key == nil { // each is a line of its own
		l.rows = nil
		w.lines = append(w.lines, &simLine{topic: l.topic, table: l.table, named: l.named, rows: []*simRow{r}})
		r.line = w.lines[len(w.lines)-1]
	}
}

// flawOf returns the code by which brokers refuse a row, whatever its size; 0: they take it.
func (w *sim) flawOf(p *outbox.Row) sarama.KError {
	if r := w.of[p]; r != nil && r.flaw < errEncode { // else the journal's
		return r.flaw
	}
	return 0
}

// unencodable reports whether one of the rows cannot be encoded.
func (w *sim) unencodable(rows []*outbox.Row) bool {
	return slices.ContainsFunc(rows, func(p *outbox.Row) bool { r := w.of[p]; return r != nil && r.flaw == errEncode })
}

// canGo reports whether a line's rows can be delivered in the end.
func (w *sim) canGo(l *simLine) bool { return w.topic(l.topic).ours && w.topic(l.topic).there }

// ---- publishing

const simMemory = 40 // rows that wait for their outcome

// publish goes on publishing rows.
func (w *sim) publish() {
	w.publishing = 0
	if w.resting {
		return
	}
	var rows []*outbox.Row
	for n := 1 + w.IntN(12); n > 0 && w.out < simMemory; n-- {
		rows = append(rows, w.more(w.lines[w.IntN(len(w.lines))])...)
	}
	w.draining = w.draining && w.out > 0
	if len(rows) > 0 && !w.draining {
		w.m.command(outbox.Command{Publish: rows})
	}
	w.publishing = 1
	w.after(w.upTo(w.plan.pause), w.publish)
}

// more returns the next rows of a line.
func (w *sim) more(l *simLine) []*outbox.Row {
	if w.draining || len(l.rows) == 0 || l.next == len(l.rows) || w.calm && !w.canGo(l) {
		return nil
	}
	blocked := w.parked[outbox.TopicScope("main", l.topic)] || w.parked[outbox.KeyScope(&l.rows[0].row)]
	if blocked && (w.now.Sub(w.blockedAt) > 20*time.Millisecond || w.coin()) { // else it has not heard of that yet
		return nil
	}
	var rows []*outbox.Row
	most := 1 + w.IntN(6)
	for l.next < len(l.rows) && (l.rows[l.next].done || l.rows[l.next].failed) {
		l.next++
	}
	for _, r := range l.rows[l.next:] {
		switch {
		case r.done || r.failed || l.key == nil && r.until.After(w.now):
		case r.pub != nil && len(rows) > 0:
			w.fail("row %s was given back while a later one of its key has no outcome", rows[len(rows)-1].ID)
		case r.pub != nil:
		case len(rows) < most:
			p := r.row
			r.pub, r.since = &p, w.now
			w.of[r.pub] = r
			rows = append(rows, r.pub)
			w.out++
		}
	}
	return rows
}

// withdraw takes rows back that were never sent.
func (w *sim) withdraw() {
	l := w.lines[w.IntN(len(w.lines))]
	if len(l.rows) > 0 {
		w.withdrawScope(w.scopeOf(&l.rows[w.IntN(len(l.rows))].row))
	}
}

func (w *sim) withdrawScope(s outbox.Scope) {
	w.tell("withdraw %v", s)
	w.asking = &s
	waiting := map[*partitionQueue]*batch{}
	for q := range w.m.waiting {
		if s.Topic != "" && q.topic.name != s.Topic {
			waiting[q] = q.inFlight
		}
	}
	w.m.command(outbox.Command{Withdraw: &s})
	for q, b := range waiting {
		if q.inFlight != b {
			w.fail("%s is nothing to %v", q, s)
		}
	}
}

// drain is the end of a stream: nothing more is published until all is answered.
func (w *sim) drain() {
	w.draining = true
	w.withdrawScope(outbox.StreamScope())
}

// withdrawn checks that all rows that were not on their way were given back.
func (w *sim) withdrawn() {
	if w.asking == nil {
		return
	}
	flying := map[*outbox.Row]bool{}
	for _, t := range w.m.topics {
		for _, q := range t.queues {
			for _, p := range q.inFlightRows() {
				flying[p] = true
			}
		}
	}
	for _, l := range w.lines {
		for _, r := range l.rows {
			if r.pub != nil && w.asking.Contains(r.pub) && !flying[r.pub] {
				w.fail("row %s is not on its way and was not given back", r.row.ID)
			}
		}
	}
	w.asking = nil
}

// ---- what became of rows

var simClasses = map[outbox.Class]string{outbox.Delivered: "delivered", outbox.Refused: "refused", outbox.Withdrawn: "withdrawn", outbox.TakenOut: "taken out"}

// stale answers what the rows are: most as before or with other content, some not to be sent any more.
func (w *sim) stale(rows []*outbox.Row) {
	w.tell("what has become of %s?", ids(rows))
	for _, p := range rows {
		r := w.of[p]
		switch {
		case r == nil || r.pub != p || !p.Stale:
			w.fail("row %s is asked about, and is not there", p.ID)
		case w.now.Sub(later(r.since, r.looked)) < w.m.cfg.heldFor-tenth:
			w.fail("row %s is asked about after %v", p.ID, w.now.Sub(later(r.since, r.looked)))
		case w.asks[p]:
			w.fail("row %s is asked about twice", p.ID)
		}
		w.asks[p] = true
	}
	w.after(w.lat(), func() {
		var answers []outbox.Checked
		for _, p := range rows {
			r, a := w.of[p], outbox.Checked{Row: p}
			if !w.oneIn(8) {
				now := *p
				now.Stale, now.Value, a.Now = false, slices.Clone(p.Value), &now
			}
			if r.pub == p && a.Now != nil { // else it has left
				r.pub, r.looked = a.Now, w.now
				w.of[a.Now] = r
			}
			answers = append(answers, a)
		}
		w.tell("it is told of %s", ids(rows))
		w.m.command(outbox.Command{Looked: answers})
	})
}

func (w *sim) outcome(o *outbox.Outcome) {
	if o.Class == outbox.Stale {
		w.stale(o.Rows)
		return
	}
	w.tell("%s by %v (blocked %v, %v): %s", simClasses[o.Class], o.Scope, o.Blocked, o.Err, ids(o.Rows))
	ofKey := o.Class == outbox.Refused && o.Scope.Kind == outbox.ScopeKey
	ofTopic := o.Class == outbox.Withdrawn && o.Scope.Kind == outbox.ScopeTopic && o.Err != nil
	if o.Blocked != ((ofKey || ofTopic) && !w.parked[o.Scope]) {
		w.fail("blocked is %v: %v", o.Blocked, o.Scope)
	}
	if len(o.Rows) == 0 {
		w.fail("an outcome of nothing: %+v", o)
	}
	for _, p := range o.Rows {
		r := w.of[p]
		if r == nil || r.pub != p {
			w.fail("a second outcome of row %s", p.ID)
		}
		switch o.Class {
		case outbox.Delivered:
			w.delivered(r, o)
		case outbox.Refused:
			w.refused(r, o)
		case outbox.Withdrawn:
			if errors.Is(o.Err, sarama.ErrUnknownTopicOrPartition) { // brokers that say so for seconds are believed, for open batches, too
				r.doubt = true
			}
			w.gaveBack(r, o)
		case outbox.TakenOut:
			w.notThere(r)
			if r.failed = true; !w.asks[p] {
				w.fail("row %s is taken out, and nobody wanted that", r.row.ID)
			}
		}
		r.pub, r.sent = nil, time.Time{}
		w.out--
	}
	if !o.Blocked {
		return
	}
	if ofTopic {
		t := w.topic(o.Scope.Topic)
		if t.blocks++; w.notes["the topic cannot be written to: its rows wait"+t.name] != t.blocks {
			w.fail("nobody reads that topic %s is blocked", t.name)
		}
	}
	w.parked[o.Scope] = true
	w.blocked, w.blockedAt = append(w.blocked, o.Scope), w.now
}

func (w *sim) release(s outbox.Scope) {
	if s.Kind == outbox.ScopeTopic { // another cluster's of this name is nothing to us
		before := *w.m.topics[s.Topic]
		w.m.command(outbox.Command{Release: &outbox.Scope{Kind: s.Kind, Cluster: "other", Topic: s.Topic}})
		if before.state != w.m.topics[s.Topic].state {
			w.fail("released for another cluster: %v", s)
		}
	}
	w.tell("release %v", s)
	delete(w.parked, s)
	w.m.command(outbox.Command{Release: &s})
}

// releaseOthers releases scopes that are not blocked here, because commands go to the sinks of all clusters.
func (w *sim) releaseOthers() {
	before := map[*topic]topicState{}
	for _, t := range w.m.topics {
		before[t] = t.state
	}
	for _, name := range append(w.m.names(), "elsewhere") {
		key := outbox.Scope{Kind: outbox.ScopeKey, Table: "public.elsewhere", Topic: name, Key: "a"}
		w.m.command(outbox.Command{Release: &key})
		if !w.m.topicBlocked(name) {
			s := outbox.TopicScope("main", name)
			w.m.command(outbox.Command{Release: &s})
		}
	}
	for t, state := range before {
		if t.state != state || w.m.topics[t.name] != t {
			w.fail("topic %s was released, and not blocked", t.name)
		}
	}
}

// delivered checks that a row is in its partition log, behind those before it.
func (w *sim) delivered(r *simRow, o *outbox.Outcome) {
	w.inTurn(r, o)
	switch {
	case r.copies == 0 && !r.gone:
		w.fail("row %s is delivered, and not in the log", r.row.ID)
	case o.Sent != r.sent && !w.plan.once || o.Sent.IsZero():
		w.fail("row %s was sent at %v, not %v", r.row.ID, r.sent, o.Sent)
	case o.Err != nil || o.Uncharged || o.Scope != (outbox.Scope{}):
		w.fail("row %s is delivered, and: %+v", r.row.ID, o)
	}
	r.done = true
}

// inTurn checks that each row before this one is done: the delivered rows of a key are a prefix.
func (w *sim) inTurn(r *simRow, o *outbox.Outcome) {
	for _, e := range r.line.rows {
		if e == r {
			return
		}
		if !e.done && !e.failed {
			w.fail("row %s is %s before row %s", r.row.ID, simClasses[o.Class], e.row.ID)
		}
	}
}

// refused checks that the refusal is the row's own fault.
func (w *sim) refused(r *simRow, o *outbox.Outcome) {
	w.inTurn(r, o)
	w.notThere(r)
	if o.Scope != outbox.KeyScope(r.pub) || o.Err == nil {
		w.fail("row %s is refused: %+v", r.row.ID, o)
	}
	t, least := w.topic(r.line.topic), batchOverhead+recordSize(&r.row)
	tooLarge := errors.Is(o.Err, sarama.ErrMessageSizeTooLarge) || errors.Is(o.Err, sarama.ErrMessageSetSizeTooLarge)
	charged, again := false, true
	switch kind, _ := topicErrorOf(o.Err); {
	case kind != "" && slices.Contains(r.line.table.Mapping.FailOn, kind):
		charged = true
		w.excused(t, o.Err)
	case r.flaw == errEncode && encoding(o.Err), tooLarge && least > t.least:
		charged, again = true, false
	case r.row.Timestamp != 0 && errors.Is(o.Err, sarama.ErrInvalidTimestamp):
		w.fail("row %s has a time that another could have replaced", r.row.ID)
	case r.flaw == errName && errors.Is(o.Err, errLongID), r.flaw != 0 && errors.Is(o.Err, r.flaw):
		again = false
		if text := o.Err.Error(); strings.HasSuffix(text, ": ") || strings.Count(text, r.flaw.Error()) > 1 {
			w.fail("what is that: %s", text)
		}
	case r.line.named && strings.Contains(o.Err.Error(), "does not exist (it has ") && int(r.row.Partition) >= len(w.m.topics[t.name].queues):
		again = int(r.row.Partition) < t.count || !w.calm
	default:
		w.fail("row %s is charged for nothing: %v", r.row.ID, o.Err)
	}
	if passing := len(r.line.table.Mapping.FailOn) > 0 || errors.Is(o.Err, sarama.ErrInvalidTimestamp); o.Uncharged != (!charged && passing) {
		w.fail("row %s is refused, uncharged %v: %v", r.row.ID, o.Uncharged, o.Err)
	}
	r.until = w.now.Add(100 * time.Millisecond << min(r.tries, 5)) // a key waits for its release
	if r.tries++; !again {
		r.failed = r.tries > 1 || r.flaw == errName
	}
	r.failed = r.failed || w.calm && !again
}

// gaveBack checks that a row was given back for a reason.
func (w *sim) gaveBack(r *simRow, o *outbox.Outcome) {
	w.notThere(r)
	t := w.topic(r.line.topic)
	switch {
	case !o.Scope.Contains(r.pub) || o.Uncharged:
		w.fail("row %s is given back: %+v", r.row.ID, o)
	case o.Err != nil:
		w.excused(t, o.Err)
		if errors.Is(o.Err, sarama.ErrTopicAuthorizationFailed) && !strings.Contains(o.Err.Error(), "grant") {
			w.fail("no hint: %v", o.Err)
		}
		if kind, _ := topicErrorOf(o.Err); o.Scope != outbox.TopicScope("main", t.name) || slices.Contains(r.line.table.Mapping.FailOn, kind) {
			w.fail("row %s is given back: %+v", r.row.ID, o)
		}
	case w.asking != nil && *w.asking == o.Scope:
	case o.Scope.Kind == outbox.ScopeKey && w.parked[o.Scope]:
	default:
		w.fail("row %s is given back for nothing: %+v", r.row.ID, o)
	}
}

// excused checks that the brokers said something of the topic for which it may be blocked.
func (w *sim) excused(t *simTopic, err error) {
	var code sarama.KError
	switch {
	case errors.Is(err, errIsJournal):
		if t.name == simJournals || t.name == simJournal {
			return
		}
	case errors.Is(err, errRecreated):
		if t.made > 1 { // or else it cannot have been
			if t.uuid != 0 && w.notes[madeAgain(t.name)+t.name] == 0 {
				w.fail("nobody reads that topic %s was made again", t.name)
			}
			return
		}
	case errors.As(err, &code) && (t.excuses[code] || t.internal):
		return
	}
	w.fail("topic %s is blocked for nothing: %v", t.name, err)
}

// notThere checks that nothing of a row is in the log.
func (w *sim) notThere(r *simRow) {
	if r.copies > 0 && !r.doubt {
		w.fail("row %s is not delivered, and in the log", r.row.ID)
	}
}

// ---- partition logs

// land puts rows into a partition log.
func (w *sim) land(l *simLog, rows []*outbox.Row) {
	for i, p := range rows {
		r := w.of[p]
		switch {
		case !l.topic.ours:
			w.fail("row %s is in topic %s", p.ID, l.topic.name)
		case r.copies > 0 && w.plan.old && l.topic.made > 1:
			r.doubt = true // nobody tells that the topic was made again, and a search began at the end of the earlier one
		case r.copies > 0 && !r.doubt:
			w.fail("row %s is in the log twice", p.ID)
		case p.Partition >= 0 && p.Partition != l.number:
			w.fail("row %s is in partition %d", p.ID, l.number)
		}
		r.copies++
		for _, e := range r.line.rows {
			if e == r {
				break
			}
			if e.copies == 0 && !e.gone && !e.failed && !slices.Contains(rows[:i], e.pub) {
				w.fail("row %s is in the log before row %s", p.ID, e.row.ID)
			}
		}
	}
}

// lose notes that a topic with these rows was deleted.
func (w *sim) lose(rows []*outbox.Row) {
	for _, p := range rows {
		w.of[p].copies, w.of[p].gone = 0, true
	}
}

// doubt says that rows may be in the log twice.
func (w *sim) doubt(rows []*outbox.Row) {
	for _, p := range rows {
		w.of[p].doubt = true
	}
}

func ids(rows []*outbox.Row) string {
	out := make([]string, 0, len(rows))
	for _, r := range rows {
		out = append(out, r.ID[:min(len(r.ID), 40)])
	}
	return strings.Join(out, " ")
}
