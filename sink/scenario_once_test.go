package sink

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// onceStage is a stage with transactions.
type onceStage struct {
	*stage
	epoch int16
	infos map[string]topicInfo
	asked []*exactlyonce.Request // and answered well
}

// newOnceStage is one whose leadership has begun, for a topic t with that many partitions.
func newOnceStage(t *testing.T, partitions int) *onceStage {
	s := &onceStage{stage: &stage{t, newMachine("main", machineConfig{
		limits: limits{rows: 10, bytes: 1 << 20}, topicGrace: 3 * time.Second, outageAfter: time.Second, refresh: time.Minute, keepAlive: time.Hour,
		random: func(int) int { return 0 }, transactions: &Transactions{Journal: "journal", MaxRows: 6, Timeout: time.Minute},
	}, []string{"t"})}}
	s.infos = map[string]topicInfo{"journal": {uuid: sarama.Uuid{1}, leaders: []string{"b"}}}
	info := topicInfo{uuid: sarama.Uuid{2}}
	for range partitions {
		info.leaders = append(info.leaders, "b")
	}
	s.infos["t"] = info
	s.m.now = time.Unix(1_000_000, 0)
	s.m.tick(s.m.now)
	s.m.take()
	s.coordinate(s.metadata())
	return s
}

func (s *onceStage) metadata() work {
	s.m.metadata([]string{"journal", "t"}, s.infos, nil)
	return s.later(0)
}

// coordinate answers requests well until there are none.
func (s *onceStage) coordinate(w work) (all work) {
	s.Helper()
	for {
		all.send, all.outcomes, all.ends = append(all.send, w.send...), append(all.outcomes, w.outcomes...), append(all.ends, w.ends...)
		switch {
		case len(w.requests) > 0:
			w = s.reply(w.requests[0], answered{answer: exactlyonce.Answer{Class: exactlyonce.OK}})
		case w.recovery != nil:
			s.m.wasRecovered(w.recovery)
			w = s.later(0)
		default:
			return all
		}
	}
}

// reply gives the machine an answer to a request, and returns the work that follows.
func (s *onceStage) reply(r *exactlyonce.Request, a answered) work {
	s.asked = append(s.asked, r)
	if a.request = r; r.Kind == exactlyonce.Init {
		s.epoch++
		a.answer.Producer = exactlyonce.Producer{PID: 1, Epoch: s.epoch}
	}
	s.m.wasAnswered(a)
	return s.later(0)
}

func (s *onceStage) put(rows ...*outbox.Row) work {
	s.m.command(outbox.Command{Publish: rows})
	return s.later(0)
}

// batches returns the batch of the topic and the batch of the journal.
func (s *onceStage) batches(w work) (rows, journal *batch) {
	s.Helper()
	for _, b := range w.send {
		if b.queue.topic.name == "journal" {
			journal = b
		} else {
			rows = b
		}
	}
	if rows == nil || journal == nil {
		s.Fatalf("sent: %v", w.send)
	}
	return rows, journal
}

func TestALeadershipSealsWhatIsKnown(t *testing.T) {
	s := newOnceStage(t, 2)
	i := slices.IndexFunc(s.asked, func(r *exactlyonce.Request) bool { return r.Kind == exactlyonce.Add })
	if got := fmt.Sprint(s.asked[i].Partitions); got != "[{journal 0} {t 0} {t 1}]" {
		t.Error(got)
	}
	known := topicInfo{uuid: sarama.Uuid{2}, leaders: []string{"b", ""}} // no marker can be written without a leader
	s = &onceStage{stage: &stage{t, newMachine("main", s.m.cfg, []string{"t"})}, infos: map[string]topicInfo{"t": known, "journal": s.infos["journal"]}}
	s.m.now = time.Unix(1_000_000, 0)
	s.m.topics["u"] = newTopic("u")
	s.m.topics["u"].queues = []*partitionQueue{{topic: s.m.topics["u"], leader: "b"}} // not ready
	s.coordinate(s.metadata())
	i = slices.IndexFunc(s.asked, func(r *exactlyonce.Request) bool { return r.Kind == exactlyonce.Add })
	if got := fmt.Sprint(s.asked[i].Partitions); got != "[{journal 0} {t 0}]" {
		t.Error(got)
	}
}

// A topic that is released while its rows are in a transaction is asked about until it can be
// used: an aborted transaction gives them back.
func TestATopicIsReleasedDuringATransaction(t *testing.T) {
	s := newOnceStage(t, 1)
	s.batches(s.coordinate(s.put(newRow("t", "k", "v"))))
	s.infos["t"] = topicInfo{code: sarama.ErrTopicAuthorizationFailed}
	s.metadata()
	s.release()
	s.infos["t"] = topicInfo{code: sarama.ErrLeaderNotAvailable}
	s.metadata()
	if after := s.m.askAt.Sub(s.m.now); after > backoffMax {
		t.Errorf("the topic is asked about after %v", after)
	}
}

// What was published before comes in parts.
func TestARecoveryInParts(t *testing.T) {
	s := newOnceStage(t, 1)
	m := newMachine("main", s.m.cfg, nil)
	s.m = m
	m.now = time.Unix(1_000_000, 0)
	w := s.metadata()
	for w.requests[0].Kind != exactlyonce.Read {
		w = s.reply(w.requests[0], answered{answer: exactlyonce.Answer{Class: exactlyonce.OK}})
	}
	w = s.reply(w.requests[0], answered{answer: exactlyonce.Answer{Class: exactlyonce.OK, More: true}})
	if w.recovery == nil || !w.recovery.More {
		t.Fatalf("%+v", w.recovery)
	}
	m.wasRecovered(w.recovery)
	if w = s.later(0); len(w.requests) != 1 || w.requests[0].Kind != exactlyonce.Read || m.begun() {
		t.Fatalf("%+v, begun %v", w.requests, m.begun())
	}
	s.later(time.Second) // it takes its time
	s.coordinate(w)
	if !m.begun() || m.keepAt.Sub(m.now) != m.cfg.keepAlive {
		t.Errorf("begun %v, kept alive at %v", m.begun(), m.keepAt)
	}
}

func TestATopicMayNotBeInATransaction(t *testing.T) {
	for code, blocks := range map[sarama.KError]bool{
		sarama.ErrTopicAuthorizationFailed: true, sarama.ErrInvalidTopic: true, sarama.ErrUnknownTopicOrPartition: false,
	} {
		s := newOnceStage(t, 1)
		w := s.put(newRow("t", "k", "v"))
		if len(w.requests) != 1 || w.requests[0].Kind != exactlyonce.Add {
			t.Fatalf("%+v", w.requests)
		}
		refused := map[topicPartition]sarama.KError{{"t", 0}: code, {"t", 1}: code, {"gone", 0}: code}
		w = s.coordinate(s.reply(w.requests[0], answered{
			answer: exactlyonce.Answer{Class: exactlyonce.Refused, Refused: []exactlyonce.Partition{{Topic: "t"}}}, refused: refused,
		}))
		if !blocks {
			q := s.m.topics["t"].queues[0]
			if len(w.outcomes) > 0 || q.state != queueWaiting || !errors.Is(q.err, code) {
				t.Errorf("%v: %+v, state %d, %v", code, w.outcomes, q.state, q.err)
			}
			continue
		}
		s.outcome(w, outbox.Withdrawn, code)
		if code == sarama.ErrTopicAuthorizationFailed && !strings.Contains(w.outcomes[0].Err.Error(), "grant WRITE") {
			t.Error(w.outcomes[0].Err)
		}
	}
}

// begun begins a transaction with these rows, and returns its batches, which are on their way.
func (s *onceStage) begun(rows ...*outbox.Row) (b, journal *batch) {
	s.Helper()
	return s.batches(s.coordinate(s.put(rows...)))
}

func TestAnswersInATransaction(t *testing.T) {
	s := newOnceStage(t, 1)
	b, journal := s.begun(newRow("t", "k", "v"))
	w := s.answer(b, reply{err: errReset, unsent: true, leader: "other"})
	if q := b.queue; len(w.send) > 0 || q.state != queueWaiting || q.leader != "other" || b.request.Batch.Seq != 0 {
		t.Fatalf("state %d, leader %q", q.state, q.leader)
	}
	b = s.sent(s.later(backoffMin))
	s.answer(journal, reply{offset: 7})
	if len(s.m.failing) != 1 || journal.queue.inFlight != nil {
		t.Fatalf("failing %v, the journal has %v", s.m.failing, journal.queue.inFlight)
	}
	stale := *b
	s.answer(&stale, reply{code: sarama.ErrTopicAuthorizationFailed, offset: -1}) // of another transaction
	w = s.coordinate(s.answer(b, reply{}))
	s.outcome(w, outbox.Delivered, nil)
	if len(w.ends) != 1 || w.ends[0].Rows != 1 || w.ends[0].took < backoffMin || len(s.m.waiting)+len(s.m.failing) > 0 {
		t.Errorf("ends %+v, waiting %v, failing %v", w.ends, s.m.waiting, s.m.failing)
	}
}

func TestATopicThatTakesNoRecordOfOurs(t *testing.T) {
	s := newOnceStage(t, 1)
	b, _ := s.begun(newRow("t", "k", "v"))
	s.coordinate(s.answer(b, reply{code: sarama.ErrTopicAuthorizationFailed, offset: -1}))
	if !s.m.topicBlocked("t") {
		t.Fatal("it is not blocked")
	}
	if top := s.m.topics["t"]; !strings.Contains(top.err.Error(), "grant WRITE") {
		t.Error(top.err)
	}

	s = newOnceStage(t, 1)
	_, journal := s.begun(newRow("t", "k", "v"))
	s.coordinate(s.answer(journal, reply{code: sarama.ErrTopicAuthorizationFailed, offset: -1}))
	if s.m.topicBlocked("t") || s.m.tx.journal.state == topicBlocked {
		t.Error("the journal is blocked")
	}
}

func TestWhatATransactionLearnsOfSizes(t *testing.T) {
	for code, learns := range map[sarama.KError]bool{sarama.ErrMessageSizeTooLarge: true, sarama.ErrMessageSetSizeTooLarge: true, sarama.ErrInvalidRecord: false} {
		s := newOnceStage(t, 1)
		b, _ := s.begun(rowsOf("t", "k", "v", 2)...)
		s.answer(b, reply{code: code, offset: -1})
		if got := s.m.topics["t"].maxBytes; got != map[bool]int{true: b.bytes / 2}[learns] {
			t.Errorf("%v: %d bytes of %d", code, got, b.bytes)
		}
	}
	s := newOnceStage(t, 1)
	b, _ := s.begun(rowsOf("t", "k", "v", 2)...)
	s.answer(b, reply{})
	if got := s.m.topics["t"].accepted; got != b.bytes {
		t.Errorf("%d bytes were accepted, of %d", got, b.bytes)
	}
	if !s.m.ackedAt.Equal(s.m.now) {
		t.Error("nothing was acknowledged")
	}
}

// A transaction goes on as long as something of it is answered.
func TestATransactionIsGivenUp(t *testing.T) {
	s := newOnceStage(t, 1)
	w := s.put(newRow("t", "k", "v"))
	begin := s.m.now
	if at := s.m.next(); at.Sub(begin) != stuckAfter {
		t.Fatalf("it is looked at after %v", at.Sub(begin))
	}
	s.later(stuckAfter - time.Second)
	b, journal := s.batches(s.coordinate(s.reply(w.requests[0], answered{answer: exactlyonce.Answer{Class: exactlyonce.OK}})))
	s.later(stuckAfter - time.Second)
	s.answer(journal, reply{offset: 1})
	if w = s.later(stuckAfter - time.Millisecond); len(w.requests) > 0 {
		t.Fatalf("too soon: %+v", w.requests[0])
	}
	if w = s.later(time.Millisecond); len(w.requests) != 1 || w.requests[0].Kind != exactlyonce.Abort {
		t.Fatalf("%+v", w.requests)
	}
	w = s.coordinate(w)
	if len(w.ends) != 1 || w.ends[0].Aborted != exactlyonce.Stuck || len(w.send) != 2 {
		t.Errorf("ends %+v, sent %v", w.ends, w.send)
	}
	s.answer(b, reply{}) // means nothing any more
}

// Answers that say nothing of the coordinator's health do not end its trouble.
func TestTroubleOfTheCoordinator(t *testing.T) {
	s := newOnceStage(t, 1)
	w := s.put(newRow("t", "k", "v"))
	s.m.idTrouble(errDark)
	w = s.reply(w.requests[0], answered{answer: exactlyonce.Answer{Class: exactlyonce.Again}})
	if _, err := s.m.trouble(); !errors.Is(err, errDark) {
		t.Fatal(err)
	}
	s.coordinate(w)
	if _, err := s.m.trouble(); err != nil {
		t.Error(err)
	}
}

// A coordinator that takes its time to end a transaction is waited for. The cluster counts as unusable when that lasts.
func TestASlowCoordinatorIsWaitedFor(t *testing.T) {
	for _, err := range []error{inWords(sarama.ErrConcurrentTransactions), fmt.Errorf("t: %w", errNoEnd)} {
		s := newOnceStage(t, 1)
		w := s.put(newRow("t", "k", "v"))
		for range 9 {
			s.m.idTrouble(err)
			if w := s.later(time.Second); len(w.states) > 0 {
				t.Errorf("%v is told as %+v", err, w.states)
			}
		}
		s.coordinate(s.reply(w.requests[0], answered{answer: exactlyonce.Answer{Class: exactlyonce.OK}}))
		s.m.idTrouble(err)
		if due := s.m.next(); due.After(s.m.now.Add(slowEnd + time.Second)) {
			t.Errorf("it looks again after %v only", due.Sub(s.m.now))
		}
		if w := s.later(slowEnd + time.Second); len(w.states) != 1 || w.states[0].Usable || !errors.Is(w.states[0].Err, err) {
			t.Errorf("after %v: %+v, want the cluster unusable for %v", slowEnd, w.states, err)
		}
	}
}

func TestASupersededSinkEnds(t *testing.T) {
	s := newOnceStage(t, 1)
	s.later(time.Hour - time.Millisecond)
	if at := s.m.next(); at.Sub(s.m.now) > time.Millisecond {
		t.Fatalf("kept alive after %v", at.Sub(s.m.now))
	}
	w := s.later(time.Millisecond)
	if len(w.requests) != 1 || w.requests[0].Kind != exactlyonce.Init {
		t.Fatalf("%+v", w.requests)
	}
	s.m.wasAnswered(answered{request: w.requests[0], answer: exactlyonce.Answer{Class: exactlyonce.Superseded}})
	if w = s.later(0); !errors.Is(w.fatal, exactlyonce.ErrSuperseded) {
		t.Error(w.fatal)
	}
}

// The rows of all partitions share a transaction, the short queues' first, so that what these
// leave goes to the others.
func TestATransactionsRows(t *testing.T) {
	s := newOnceStage(t, 3)
	var rows []*outbox.Row
	for partition, n := range []int{9, 1, 2} {
		for range n {
			r := newRow("t", fmt.Sprint("k", partition), "v")
			r.Partition = int32(partition)
			rows = append(rows, r)
		}
	}
	s.put(rows...)
	var given []int
	for _, q := range s.m.topics["t"].queues {
		given = append(given, len(q.given))
	}
	if !slices.Equal(given, []int{3, 1, 2}) {
		t.Errorf("given %v", given)
	}
	// About so many bytes: a row that goes over is the last.
	s = newOnceStage(t, 1)
	large := rowsOf("t", "k", "v", 4)
	for _, r := range large {
		r.Value = make([]byte, transactionBytes/2-recordOverhead-len(r.Key))
	}
	s.put(large...)
	if got := len(s.m.topics["t"].queues[0].given); got != 2 {
		t.Errorf("given %d", got)
	}
}

func TestWhatAReplyMeansInATransaction(t *testing.T) {
	for name, c := range map[string]struct {
		r    reply
		want exactlyonce.Class
	}{
		"cannot be encoded":            {reply{err: sarama.PacketEncodingError{Info: "long"}, unsent: true}, exactlyonce.Refused},
		"no answer":                    {reply{err: errReset}, exactlyonce.Silence},
		"acknowledged":                 {reply{}, exactlyonce.OK},
		"appended, then not leader":    {reply{code: sarama.ErrNotLeaderForPartition, offset: 0}, exactlyonce.Silence},
		"not leader":                   {reply{code: sarama.ErrNotLeaderForPartition, offset: -1}, exactlyonce.Again},
		"damaged":                      {reply{code: sarama.ErrInvalidMessage, offset: -1}, exactlyonce.Again},
		"damaged, and an offset":       {reply{code: sarama.ErrInvalidMessage, offset: 0}, exactlyonce.Silence},
		"acknowledged at offset seven": {reply{offset: 7}, exactlyonce.OK},
	} {
		if got := (&batch{corrupt: 1}).class(c.r); got != c.want {
			t.Errorf("%s: %d, not %d", name, got, c.want)
		}
	}
	b := &batch{}
	for i, want := range []exactlyonce.Class{exactlyonce.Again, exactlyonce.Again, exactlyonce.Refused} {
		if got := b.class(reply{code: sarama.ErrInvalidMessage, offset: -1}); got != want {
			t.Errorf("damaged for the %d. time: %d", i+1, got)
		}
	}
	b = &batch{corrupt: corruptTries - 1}
	if got := b.class(reply{code: sarama.ErrInvalidMessage, offset: 0}); got != exactlyonce.Silence {
		t.Errorf("damaged, and appended: %d", got)
	}
}

// Rows without a key have no order, and a named refusal goes by the broker's word.
func TestRefusedRecordsOfATransaction(t *testing.T) {
	if got := orderOf(newRow("t", "", "v")); got != "" {
		t.Errorf("%q", got)
	}
	s := newOnceStage(t, 1)
	rows := []*outbox.Row{newRow("t", "a", "v"), newRow("t", "b", "v"), newRow("t", "c", "v")}
	b, _ := s.begun(rows...)
	w := s.coordinate(s.answer(b, reply{code: sarama.ErrInvalidRecord, offset: -1, rejected: []int{-1, 0, 3}})) // named in the journal: once more, carefully
	b = w.send[0]
	w = s.answer(b, reply{code: sarama.ErrInvalidRecord, offset: -1, rejected: []int{-1, 0, 3}})
	if len(w.send) != 1 || len(w.send[0].rows) != 2 || w.send[0].rows[0] != rows[1] {
		t.Errorf("sent %v", w.send)
	}
}

// rowIn returns a row that names its partition.
func rowIn(partition int32) *outbox.Row {
	r := newRow("t", fmt.Sprint("k", partition), "v")
	r.Partition = partition
	return r
}

// finish acknowledges the transaction's batches, and answers all that follows.
func (s *onceStage) finish(b, journal *batch) work {
	s.Helper()
	s.answer(b, reply{})
	return s.coordinate(s.answer(journal, reply{offset: int64(len(s.asked))})) // behind those before
}

// A leadership begins as soon as the journal is known, and is over with the journal's last unit:
// nothing more is asked for then.
func TestWhatALeadershipAsks(t *testing.T) {
	s := newOnceStage(t, 1)
	var kinds []string
	for _, r := range s.asked {
		kinds = append(kinds, requestKinds[r.Kind])
	}
	if got := strings.Join(kinds, " "); got != "last init add abort init ends read" {
		t.Error(got)
	}
	m := newMachine("main", s.m.cfg, nil)
	m.now = s.m.now
	m.metadata([]string{"journal"}, s.infos, nil)
	if w := m.take(); len(w.requests) != 1 {
		t.Errorf("%+v", w.requests)
	}
}

// What was found is told, even if a transaction would have been given up meanwhile.
func TestARecoveryIsNotForgotten(t *testing.T) {
	s := newOnceStage(t, 1)
	s.m = newMachine("main", s.m.cfg, nil)
	s.m.now = time.Unix(1_000_000, 0)
	w := s.metadata()
	for w.requests[0].Kind != exactlyonce.Read {
		w = s.reply(w.requests[0], answered{answer: exactlyonce.Answer{Class: exactlyonce.OK}})
	}
	s.m.wasAnswered(answered{request: w.requests[0], answer: exactlyonce.Answer{Class: exactlyonce.OK}})
	if w = s.later(stuckAfter); w.recovery == nil {
		t.Error("it is forgotten")
	}
}

// A batch that waits is not sent again when its transaction was given up.
func TestABatchOfATransactionThatWasGivenUp(t *testing.T) {
	s := newOnceStage(t, 1)
	b, _ := s.begun(newRow("t", "k", "v"))
	s.later(stuckAfter - backoffMin)
	s.answer(b, reply{err: errReset, unsent: true}) // a millisecond later
	w := s.later(backoffMin - time.Millisecond)
	if len(w.requests) != 1 || w.requests[0].Kind != exactlyonce.Abort || b.queue.state != queueWaiting {
		t.Fatalf("%+v, state %d", w.requests, b.queue.state)
	}
	if again := s.later(time.Millisecond); len(again.send) > 0 {
		t.Error("it is sent again")
	}
}

// A partition whose rows are withdrawn has none for the next transaction.
func TestRowsAreWithdrawnBeforeTheirTransaction(t *testing.T) {
	s := newOnceStage(t, 2)
	b, journal := s.begun(rowIn(0))
	second := rowIn(1)
	s.put(second)
	scope := outbox.KeyScope(second)
	s.m.command(outbox.Command{Withdraw: &scope})
	s.finish(b, journal)
	if q := s.m.topics["t"].queues[1]; len(s.m.tx.ready) > 0 || q.offered {
		t.Errorf("ready %v", s.m.tx.ready)
	}
}

// A partition that waits, since it has no leader, holds up no transaction of the others.
func TestAPartitionThatWaitsGivesNoRows(t *testing.T) {
	s := newOnceStage(t, 2)
	b, journal := s.begun(rowIn(0))
	s.put(rowIn(1))
	s.infos["t"] = topicInfo{uuid: sarama.Uuid{2}, leaders: []string{"b", ""}}
	s.metadata()
	s.finish(b, journal)
	if q := s.m.topics["t"].queues[1]; q.state != queueWaiting || len(q.given) > 0 {
		t.Errorf("state %d, given %v", q.state, q.given)
	}
}

// Of partitions with as many rows those come first that got nothing the last time.
func TestPartitionsTakeTurns(t *testing.T) {
	s := newOnceStage(t, 3)
	b, journal := s.begun(rowIn(2))
	s.m.tx.cfg.MaxRows = 1
	s.put(rowIn(0), rowIn(0), rowIn(1), rowIn(1))
	first, second := s.m.topics["t"].queues[0], s.m.topics["t"].queues[1]
	b, journal = s.batches(s.finish(b, journal))
	if len(first.given) != 1 || len(second.given) != 0 {
		t.Fatalf("given %v and %v", first.given, second.given)
	}
	s.put(rowIn(0))
	s.finish(b, journal)
	if len(first.given) != 0 || len(second.given) != 1 {
		t.Errorf("given %v and %v", first.given, second.given)
	}
}

// Records without a key move on when a transaction got some.
func TestRecordsWithoutKeyMoveOnWithTransactions(t *testing.T) {
	s := newOnceStage(t, 2)
	s.put(newRow("t", "", "v"))
	s.put(newRow("t", "", "v"))
	first, second := s.m.topics["t"].queues[0], s.m.topics["t"].queues[1]
	if len(first.given) != 1 || first.rows.len() != 0 || second.rows.len() != 1 {
		t.Errorf("given %d, %d and %d rows wait", len(first.given), first.rows.len(), second.rows.len())
	}
}

// A batch that was not sent is not in doubt: what is refused of it is taken out, and the rest
// goes on in the same transaction. A refusal also shows that the partition is well.
func TestARefusalOfABatchThatWasNotSentBefore(t *testing.T) {
	s := newOnceStage(t, 1)
	b, _ := s.begun(newRow("t", "a", "v"), newRow("t", "b", "v"))
	refused := reply{code: sarama.ErrInvalidRecord, offset: -1, rejected: []int{0}}
	b = s.coordinate(s.answer(b, refused)).send[0] // of a transaction that names its rows when they are there
	s.answer(b, reply{err: errReset, unsent: true})
	b = s.sent(s.later(backoffMin))
	w := s.answer(b, refused)
	if len(w.requests) > 0 || len(s.sent(w).rows) != 1 || len(s.m.failing) > 0 {
		t.Errorf("requests %+v, failing %v", w.requests, s.m.failing)
	}
}

// Nothing is learnt of sizes from an answer that leaves open what became of the batch.
func TestASizeInDoubt(t *testing.T) {
	s := newOnceStage(t, 1)
	b, _ := s.begun(rowsOf("t", "k", "v", 2)...)
	s.answer(b, reply{code: sarama.ErrMessageSizeTooLarge, offset: 0})
	if got := s.m.topics["t"].maxBytes; got != 0 {
		t.Errorf("%d bytes of %d", got, b.bytes)
	}
}

// logTable is a table without state.
var logTable = &outbox.Table{Schema: "public", Name: "log", Mapping: outbox.Mapping{Published: outbox.PublishedNone}}

// Rows of tables without state are named by their place in the WAL, and units say how far they go.
func TestNamesOfRows(t *testing.T) {
	q := &partitionQueue{topic: newTopic("t")}
	r := newRow("t", "k", "v")
	r.Commit = 7
	if got := recordOf(r, q); got.Name != exactlyonce.NameOf(r) || got.Commit != 0 {
		t.Errorf("with state: %q, commit %v", got.Name.ID, got.Commit)
	}
	r.Table = logTable
	if got := recordOf(r, q); got.Name != exactlyonce.NameInLog(r) || got.Commit != 7 {
		t.Errorf("without: %q, commit %v", got.Name.ID, got.Commit)
	}
}

// The rows of a partition that lacks the end of an aborted transaction wait, with the reason, and go on
// when it has it.
func TestAPartitionWithoutAnEnd(t *testing.T) {
	s := newOnceStage(t, 1)
	s.begun(newRow("t", "k", "v"))
	q := s.m.topics["t"].queues[0]
	w := s.later(stuckAfter)
	var told map[string][]int32
	seals := func(ends exactlyonce.Answer) (last work) {
		for n := 0; n < 100; n++ {
			if w.unended != nil {
				told = w.unended
			}
			switch {
			case len(w.requests) == 0:
				return w
			case w.requests[0].Kind == exactlyonce.Ends:
				a := answered{answer: ends}
				if ends.Class == exactlyonce.Again {
					a.missing = map[topicPartition]error{{"t", 0}: errNoEnd}
				}
				w = s.reply(w.requests[0], a)
			default:
				w = s.reply(w.requests[0], answered{answer: exactlyonce.Answer{Class: exactlyonce.OK}})
			}
		}
		s.Fatalf("it asks for ever: %+v", w.requests[0])
		return w
	}
	w = seals(exactlyonce.Answer{Class: exactlyonce.Again, Open: []exactlyonce.Partition{q.ref()}})
	if !s.m.tx.unended[topicPartition{"t", 0}] || len(s.m.tx.unended) != 1 || !slices.Equal(told["t"], []int32{0}) {
		t.Errorf("ends are missing in %v, it is told of %v", s.m.tx.unended, told)
	}
	if q.state != queueWaiting || !errors.Is(q.err, errNoEnd) || q.rows.len() != 1 {
		t.Fatalf("state %d, %v, %d rows", q.state, q.err, q.rows.len())
	}
	w = s.later(revisitEvery)
	w = seals(exactlyonce.Answer{Class: exactlyonce.OK})
	if len(w.send) == 0 {
		w = s.later(backoffMax)
		w = seals(exactlyonce.Answer{Class: exactlyonce.OK})
	}
	b, journal := s.batches(w)
	s.outcome(s.finish(b, journal), outbox.Delivered, nil)
	if q.err != nil || len(s.m.failing) > 0 || len(s.m.tx.unended) > 0 || len(told) > 0 {
		t.Errorf("it still fails: %v, ends are missing in %v, it is told of %v", q.err, s.m.tx.unended, told)
	}
}
