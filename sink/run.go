package sink

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// event is one thing that happened: exactly one of batch, answer, started,
// owned, trouble and fatal is set.
type event struct {
	batch   *batch
	reply   reply
	answer  *answer
	started *started
	owned   *owned
	trouble error
	fatal   error
}

// answer is the scout's to asking.
type answer struct {
	asked *asking
	infos map[string]topicInfo
	err   error
}

type started struct {
	id      identity
	fencing bool
}

// driver is one Run: the machine and those that work for it.
type driver struct {
	sink   *Sink
	m      *machine
	group  *errgroup.Group
	ctx    context.Context // the life of one Run
	events *mailbox.Mailbox[event]
	asks   *mailbox.Mailbox[*asking]
	jobs   *mailbox.Mailbox[*ownership]
	links  map[string]*link
	net    *network
}

// Run produces until ctx ends, and returns its error; rows without an outcome
// then have none. It returns an error that is ErrFenced when another process
// took over. Run a Sink once.
func (s *Sink) Run(ctx context.Context) error {
	life, cancel := context.WithCancel(ctx)
	group, life := errgroup.WithContext(life)
	d := &driver{
		sink: s, m: newMachine(s.cfg.Cluster, s.cfg.machine(), s.cfg.Topics), group: group, ctx: life,
		events: mailbox.New[event](), asks: mailbox.New[*asking](), jobs: mailbox.New[*ownership](),
		links: map[string]*link{},
		net:   newNetwork(life, s.conf, s.cfg.SASL, s.conf.Net.ReadTimeout),
	}
	d.start()
	err := d.loop()
	cancel()
	return errors.Join(err, group.Wait())
}

// start starts the scout and the owner; links start when they are needed.
func (d *driver) start() {
	s := d.sink
	newScout := func(timeout time.Duration) *scout {
		return &scout{net: newNetwork(d.ctx, s.conf, s.cfg.SASL, timeout), cluster: s.cfg.Cluster, bootstrap: s.cfg.Brokers}
	}
	sc := newScout(scoutTimeout)
	d.group.Go(func() error { return d.scout(sc) })
	o := &owner{sink: s, net: newNetwork(d.ctx, s.conf, s.cfg.SASL, ownerTimeout), scout: newScout(ownerTimeout), jobs: d.jobs, events: d.events}
	d.group.Go(func() error { return o.run(d.ctx) })
}

// scout answers requests for metadata, only ever the newest.
func (d *driver) scout(s *scout) error {
	defer s.close()
	for {
		select {
		case <-d.ctx.Done():
			return nil
		case <-d.asks.Ready():
		}
		asks := d.asks.Take(nil)
		if len(asks) == 0 {
			continue
		}
		ask := asks[len(asks)-1]
		infos, err := s.ask(d.ctx, ask)
		d.events.Put(event{answer: &answer{ask, infos, err}})
	}
}

// loop feeds the machine and carries out what it decides. It owns the machine.
func (d *driver) loop() error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var commands []outbox.Command
	var events []event
	for {
		now := time.Now()
		d.m.now, d.m.closed = now, d.sink.cfg.late(now)
		if taken := d.events.Take(events); taken != nil {
			for i := range taken {
				if err := d.happened(&taken[i]); err != nil {
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
		d.carryOut(d.m.take())
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
		case <-timer.C:
		}
	}
}

// happened feeds one event.
func (d *driver) happened(e *event) error {
	switch {
	case e.batch != nil:
		d.observe(e.batch, e.reply)
		d.m.produced(e.batch, e.reply)
	case e.answer != nil && e.answer.asked.all:
		d.m.listed(e.answer.infos, e.answer.err)
	case e.answer != nil:
		d.m.metadata(e.answer.asked.topics, e.answer.infos, e.answer.err)
	case e.started != nil:
		d.m.started(e.started.id, e.started.fencing)
	case e.owned != nil:
		d.m.owned(*e.owned)
	case e.trouble != nil:
		d.m.ownTrouble(e.trouble)
	case e.fatal != nil:
		return e.fatal
	}
	return nil
}

// observe tells the observer of a reply before the machine acts on it.
func (d *driver) observe(b *batch, r reply) {
	o := d.sink.cfg.Observer
	switch {
	case o == nil || errors.Is(r.err, errLate):
	case r.err == nil && r.code == 0:
		o.Produced(b.lane.topic.name, len(b.rows), b.bytes, d.m.now.Sub(b.sent))
	default:
		o.Retried(b.lane.topic.name, r.cause(b.lane))
	}
}

// carryOut does what the machine decided.
func (d *driver) carryOut(w work) {
	for _, n := range w.notes {
		d.sink.cfg.Log.Warn().Str("topic", n.topic).Err(n.err).Msg(n.text)
	}
	d.sink.outcomes.Put(w.outcomes...)
	d.sink.states.Put(w.states...)
	if w.ask != nil {
		d.asks.Put(w.ask)
	}
	if w.own != nil {
		d.jobs.Put(w.own)
	}
	d.dispatch(w.send)
}

// dispatch hands batches to their leaders' links, each link's together so that
// they can share a request.
func (d *driver) dispatch(batches []*batch) {
	for len(batches) > 0 {
		leader := batches[0].lane.leader
		same, rest := batches[:0:0], batches[:0]
		for _, b := range batches {
			if b.lane.leader == leader {
				same = append(same, b)
			} else {
				rest = append(rest, b)
			}
		}
		d.link(leader).jobs.Put(same...)
		batches = rest
	}
}

// link returns the link to a broker, and starts it when it is new.
func (d *driver) link(addr string) *link {
	if l := d.links[addr]; l != nil {
		return l
	}
	l := d.sink.newLink(addr, d.net, d.events)
	d.links[addr] = l
	d.group.Go(func() error { return l.run(d.ctx) })
	return l
}
