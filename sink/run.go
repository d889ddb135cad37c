package sink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// event is one thing that has happened. Exactly one of batch, answer, started, jobDone, trouble, answered,
// recovered and fatal is set; reply belongs to batch.
type event struct {
	batch *batch
	reply reply
	// throttle is how long the broker asks us to wait. One event of a response has it.
	throttle time.Duration
	answer   *metadataAnswer
	started  *started
	jobDone  *producerIDResult
	trouble  error
	fatal    error

	answered  *answered
	recovered *exactlyonce.Recovery
}

// metadataAnswer is the answer to a metadataRequest.
type metadataAnswer struct {
	asked *metadataRequest
	infos map[string]topicInfo
	err   error
}

type started struct {
	id      producer
	fencing bool
}

// driver is the state of one Run: the machine, and the goroutines that carry out what it decides.
type driver struct {
	sink   *Sink
	m      *machine
	group  sync.WaitGroup
	ctx    context.Context // the life of one Run
	events *mailbox.Mailbox[event]
	asks   *mailbox.Mailbox[*metadataRequest]
	jobs   *mailbox.Mailbox[*producerIDJob]
	conns  map[string]*brokerConn
	net    *network
}

// Run produces until ctx ends, and returns ctx's error. Rows that have no outcome then get none. Run
// returns an error that is ErrFenced if another process took over. It may be called once for each Sink.
func (s *Sink) Run(ctx context.Context) error {
	life, cancel := context.WithCancel(ctx)
	d := &driver{
		sink: s, m: newMachine(s.cfg.Cluster, s.cfg.machine(), s.cfg.Topics), ctx: life,
		events: mailbox.New[event](), asks: mailbox.New[*metadataRequest](), jobs: mailbox.New[*producerIDJob](),
		conns: map[string]*brokerConn{},
		net:   newNetwork(life, s.conf, s.cfg, s.conf.Net.ReadTimeout),
	}
	newMetadataClient := func(timeout time.Duration) *metadataClient {
		return &metadataClient{net: newNetwork(life, s.conf, s.cfg, timeout), bootstrap: s.cfg.Brokers}
	}
	client := newMetadataClient(metadataTimeout)
	d.group.Go(func() { d.metadata(client) })
	o := &producerIDClient{sink: s, net: newNetwork(life, s.conf, s.cfg, coordinatorTimeout), metadata: newMetadataClient(coordinatorTimeout), jobs: d.jobs, events: d.events}
	d.group.Go(func() { o.run(life) })
	err := d.loop() // a connection to a broker starts when it is first needed
	cancel()
	d.group.Wait()
	return err
}

// metadata answers the requests for metadata. Of several that wait, it answers only the newest.
func (d *driver) metadata(s *metadataClient) {
	defer s.close()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-d.asks.Ready():
		}
		asks := d.asks.Take(nil)
		if len(asks) == 0 {
			continue
		}
		ask := asks[len(asks)-1]
		infos, err := s.ask(d.ctx, ask)
		d.events.Put(event{answer: &metadataAnswer{ask, infos, err}})
	}
}

// loop feeds the machine and carries out what it decides. Only this goroutine uses the machine.
func (d *driver) loop() error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var commands []outbox.Command
	var events []event
	var leaving chan<- *outbox.Fences
	for {
		now := time.Now()
		d.m.now, d.m.closed = now, d.sink.cfg.late(now)
		if taken := d.events.Take(events); taken != nil {
			for i := range taken {
				if err := d.handle(&taken[i]); err != nil {
					return err
				}
			}
			events = taken
		}
		if taken := d.sink.inbox.Take(commands); taken != nil {
			for i := range taken {
				d.m.command(taken[i])
			}
			commands = taken
		}
		d.m.tick(now)
		w := d.m.take()
		d.carryOut(w)
		if w.fatal != nil {
			return fmt.Errorf("kafka cluster %s: %w", d.m.cluster, w.fatal)
		}
		if leaving != nil && !d.m.jobOut {
			leaving <- d.m.leave()
			<-d.ctx.Done() // the machine's later decisions would be missing from what was left
			return d.ctx.Err()
		}
		if next := d.m.next(); !next.IsZero() {
			timer.Reset(max(0, time.Until(next)))
		} else {
			timer.Stop()
		}
		select {
		case <-d.ctx.Done():
			return d.ctx.Err()
		case <-d.events.Ready():
		case <-d.sink.inbox.Ready():
		case leaving = <-d.sink.leaving:
		case <-timer.C:
		}
	}
}

// handle passes one event to the machine.
func (d *driver) handle(e *event) error {
	switch {
	case e.batch != nil:
		d.observe(e.batch, e.reply)
		if o := d.sink.cfg.Observer; o != nil && e.throttle > 0 {
			o.Throttled(e.throttle)
		}
		d.m.produced(e.batch, e.reply)
	case e.answer != nil && e.answer.asked.all:
		d.m.listed(e.answer.infos, e.answer.err)
	case e.answer != nil:
		d.m.metadata(e.answer.asked.topics, e.answer.infos, e.answer.err)
	case e.started != nil:
		d.m.started(e.started.id, e.started.fencing)
	case e.jobDone != nil:
		d.m.jobDone(*e.jobDone)
	case e.trouble != nil:
		d.m.idTrouble(e.trouble)
	case e.fatal != nil:
		return e.fatal
	case e.answered != nil:
		d.m.wasAnswered(*e.answered)
	case e.recovered != nil:
		d.m.wasRecovered(e.recovered)
	}
	return nil
}

// observe tells the observer about a reply before the machine acts on it.
func (d *driver) observe(b *batch, r reply) {
	o := d.sink.cfg.Observer
	switch {
	case o == nil || errors.Is(r.err, errLate) || d.m.isJournal(b.queue.topic.name):
	case r.err == nil && r.code == 0:
		o.Produced(b.queue.topic.name, len(b.rows), b.bytes, d.m.now.Sub(b.sent))
	default:
		o.Retried(b.queue.topic.name, r.cause(b.queue))
	}
}

// carryOut carries out what the machine decided.
func (d *driver) carryOut(w work) {
	for _, n := range w.notes {
		d.sink.cfg.Log.Warn().Str("topic", n.topic).Err(n.err).Msg(n.text)
	}
	d.sink.outcomes.Put(w.outcomes...)
	d.sink.states.Put(w.states...)
	if w.ask != nil {
		d.asks.Put(w.ask)
	}
	if w.job != nil {
		d.jobs.Put(w.job)
	}
	for _, r := range w.requests {
		d.jobs.Put(&producerIDJob{request: r, leaders: d.m.leadersOf(r)})
	}
	for _, e := range w.ends {
		if o := d.sink.cfg.Observer; o != nil {
			o.Transacted(string(e.Aborted), e.Rows, e.took)
		}
	}
	if o := d.sink.cfg.Observer; o != nil && w.unended != nil {
		o.Unended(w.unended)
	}
	if w.recovery != nil {
		found, journal := w.recovery, d.m.tx.journal.uuid.String()
		d.group.Go(func() {
			err := d.sink.cfg.Transactions.Recover(d.ctx, journal, found)
			if err != nil {
				found = nil
			}
			d.events.Put(event{fatal: err, recovered: found})
		})
	}
	d.dispatch(w.send)
}

// dispatch hands the batches to the connections of their leaders. Batches of one leader are handed over
// together, so that they can share a request.
func (d *driver) dispatch(batches []*batch) {
	for len(batches) > 0 {
		leader := batches[0].queue.leader
		same, rest := batches[:0:0], batches[:0]
		for _, b := range batches {
			if b.queue.leader == leader {
				same = append(same, b)
			} else {
				rest = append(rest, b)
			}
		}
		if d.conns[leader] == nil {
			bc := d.sink.newBrokerConn(leader, d.net, d.events)
			d.conns[leader] = bc
			d.group.Go(func() { bc.run(d.ctx) })
		}
		d.conns[leader].jobs.Put(same...)
		batches = rest
	}
}
