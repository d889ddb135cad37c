package pipeline

import (
	"maps"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/failpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/loglimit"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// This file tells metrics and log what the driver passes on.

// observer passes a sink's own events on to the metrics.
type observer struct {
	*telling
	cluster string
}

// Produced implements sink.Observer.
func (o observer) Produced(topic string, rows, bytes int, took time.Duration) {
	o.metrics.Produced(o.cluster, topic, rows, bytes, took)
}

// Retried implements sink.Observer.
func (o observer) Retried(_ string, err error) {
	o.metrics.Retried(o.cluster, sink.ErrorClass(err))
}

// Throttled implements sink.Observer.
func (o observer) Throttled(d time.Duration) { o.metrics.Throttled(o.cluster, d) }

// Unended implements sink.Observer.
func (o observer) Unended(partitions map[string][]int32) {
	o.metrics.Unended(o.cluster, partitions)
}

// Transacted implements sink.Observer.
func (o observer) Transacted(aborted string, _ int, took time.Duration) {
	o.metrics.Transacted(o.cluster, aborted, took)
	if aborted != "" {
		o.tracker.aborted(o.cluster, aborted, time.Now())
		o.log.Warn().Ctx(loglimit.About(o.cluster)).Str("cluster", o.cluster).Str("cause", status.AbortText(aborted)).
			Msg("a Kafka transaction was aborted: its rows go into the next one")
	}
}

func (d *driver) outcome(o outbox.Outcome) {
	if o.Class == outbox.TakenOut || o.Class == outbox.Stale { // neither sent nor refused
		d.core.Outcome(o)
		return
	}
	if o.Class == outbox.Delivered && failpoint.Here(failpoint.AfterAck) != nil {
		d.wal.kill()
	}
	now := time.Now()
	d.metrics.Outcome(o, now)
	d.tracker.outcome(&o, now)
	d.traces.Outcome(o, now)
	if o.Class == outbox.Refused {
		for _, r := range o.Rows {
			d.log.Warn().Ctx(loglimit.About(r.Table.String())).Err(o.Err).Stringer("table", r.Table).Strs("id", outbox.SplitID(r.ID)).Str("topic", outbox.Shown(r.Topic)).
				Msg("Kafka refused the row")
		}
	}
	if d.once != nil {
		d.once.stateless.delivered(o.Unit)
	}
	d.core.Outcome(o)
}

func (d *driver) clusterState(s outbox.ClusterState) {
	if s.Topics != nil {
		d.core.Topics(s.Cluster, s.Topics)
		return
	}
	d.metrics.Cluster(s)
	d.tracker.cluster(s)
	if s.Usable {
		d.log.Info().Str("cluster", s.Cluster).Msg("the Kafka cluster can be used")
	} else {
		d.log.Error().Err(s.Err).Str("cluster", s.Cluster).Msg("the Kafka cluster cannot be used: its rows wait")
	}
	d.core.Cluster(s)
}

func (d *driver) swept(page outbox.Page) {
	for cause, rows := range d.core.Causes(page.Rows) {
		d.metrics.Swept(cause, rows)
	}
	_, inFlight, _ := d.core.Memory()
	d.core.Swept(page)
	d.oneShot.page(len(page.Rows), page.More, inFlight)
}

// gauges sets the gauges of what the Core holds, once a second.
func (d *driver) gauges(now time.Time) {
	if now.Sub(d.gauged) < time.Second {
		return
	}
	d.gauged = now
	rows, inFlight, bytes := d.core.Memory()
	d.metrics.Memory(rows, inFlight, bytes)
	if n := d.core.ParkChanges(); n != d.parksShown || n == 0 {
		parks := d.core.Parks()
		d.metrics.Parks(parks)
		d.tracker.parked(parks)
		d.parksShown = n
	}
	d.topicEvents = 0
	d.tracker.sample(inFlight, d.metrics)
	d.oneShot.progress(now, inFlight)
	d.metrics.Confirmed(uint64(d.core.Confirm()), now)
	marks := d.updater.Stats()
	d.metrics.MarkStats(marks.Waiting, marks.Repeated, marks.Locked)
	for name, s := range d.sinks {
		switch f := s.Fencing(); f {
		case sink.FencingOn, sink.FencingRefused:
			d.metrics.Fenced(name, f == sink.FencingOn)
			d.tracker.fencing(name, f)
		case sink.FencingOff:
			d.tracker.fencing(name, f)
		}
	}
}

func (d *driver) note(n checkpoint.Note) {
	log := d.log
	switch n.Kind {
	case checkpoint.NoteMode:
		if err := failpoint.Here(failpoint.ModeChange); err != nil {
			d.end(err)
		}
		mode := string(n.Mode)
		switch n.Mode {
		case outbox.ModeStandby: // the connection has ended, and it is not known whether another process leads
			mode = status.ModeStarting
		case outbox.ModeStream, outbox.ModeHold: // if the slot is damaged from here on, that is a loss
			d.noSlotYet = false
		}
		d.metrics.Mode(mode)
		d.tracker.recordEvent("mode", status.Words(mode))
		log.Info().Str("mode", mode).Msg("mode")
	case checkpoint.NoteParked:
		d.metrics.Parked(&n.Park)
		if d.shows(&n.Park) {
			d.tracker.recordEvent("park", "parked "+n.Park.Scope.String()+": "+n.Park.Reason)
		}
		d.parkLine(min(parkLevel(&n.Park, d.noSlotYet), d.news(&n.Park)), &n.Park).Str("cause", string(n.Park.Cause)).Str("reason", n.Park.Reason).Msg(parkedText(n.Park.Cause))
	case checkpoint.NoteUnparked:
		maps.DeleteFunc(d.told, func(about parkedFor, _ string) bool { return about.scope == n.Park.Scope.String() })
		d.metrics.HandedBack(&n.Park)
		if d.shows(&n.Park) {
			d.tracker.recordEvent("park", "handed back to the stream: "+n.Park.Scope.String())
		}
		d.parkLine(min(zerolog.InfoLevel, parkLevel(&n.Park, d.noSlotYet)), &n.Park).Msg("handed back to the stream")
	case checkpoint.NoteMissed:
		d.metrics.Missed(n.Cause, n.N)
		log.Info().Int("rows", n.N).Str("cause", string(n.Cause)).Msg("found pending rows that the stream does not carry")
	case checkpoint.NoteUnfit:
		log.Warn().Ctx(loglimit.About(n.Row.Table.String())).Str("error", n.Reason).Stringer("table", n.Row.Table).Strs("id", outbox.SplitID(n.Row.ID)).
			Msg("the row cannot become a record: its key waits")
	case checkpoint.NoteFailed:
		log.Error().Ctx(loglimit.About(n.Row.Table.String())).Stringer("table", n.Row.Table).Strs("id", outbox.SplitID(n.Row.ID)).Str("topic", outbox.Shown(n.Row.Topic)).
			Str("reason", n.Reason).Msg("the row is FAILED: its tries are used up")
	case checkpoint.NoteStalled:
		log.Error().Ctx(loglimit.About(n.Row.Table.String())).Stringer("table", n.Row.Table).Strs("id", outbox.SplitID(n.Row.ID)).Str("topic", outbox.Shown(n.Row.Topic)).
			Str("reason", n.Reason).Msg("the stream waits for a refused row: its table keeps no state, so it cannot be passed over")
	}
}

// shows reports whether a park is an event worth showing to people. Parks of single keys are too frequent.
// There may be very many topics, so their number per second is limited.
func (d *driver) shows(p *outbox.Park) bool {
	const eventsASecond = 10
	if p.Scope.Kind == outbox.ScopeTopic {
		d.topicEvents++
		return d.topicEvents <= eventsASecond
	}
	return p.Scope.Kind < outbox.ScopeKey
}

// parkLevel returns the log level for a park. Parks of single keys are too frequent, and the log already has
// each row that Kafka refused or that cannot become a record. But only parks tell of rows that cannot be marked. The sink logs errors of
// topics. A stream that nobody led before has no slot yet, which is no fault.
func parkLevel(p *outbox.Park, noSlotYet bool) zerolog.Level {
	switch {
	case p.Scope.Kind >= outbox.ScopeKey && p.Cause != outbox.CauseWriteBack:
		return zerolog.DebugLevel
	case noSlotYet && p.Cause == outbox.CauseSlot, p.Scope.Kind == outbox.ScopeTopic && p.Cause == outbox.CauseTopic:
		return zerolog.InfoLevel
	}
	return zerolog.WarnLevel
}

// parkedFor identifies a park of a stream or a table, by scope and cause.
type parkedFor struct {
	scope string
	cause outbox.Cause
}

// news returns the highest log level for a park. A stream or table that is parked again for the same reason,
// as by each connection, is no news until it is handed back.
func (d *driver) news(p *outbox.Park) zerolog.Level {
	if p.Scope.Kind > outbox.ScopeTable {
		return zerolog.WarnLevel
	}
	about := parkedFor{p.Scope.String(), p.Cause}
	before, known := d.told[about]
	again := false // the same reason was logged for another cause
	for other, reason := range d.told {
		again = again || other.scope == about.scope && reason == p.Reason
	}
	d.told[about] = p.Reason
	switch {
	case d.followsFromRename(p), d.follows(p):
		return zerolog.InfoLevel
	case !known && !again:
		return zerolog.WarnLevel
	case before != p.Reason:
		return zerolog.InfoLevel
	}
	return zerolog.DebugLevel
}

// parkLine begins a log line about a park. Topics and keys come from rows, so the limit for repeated lines is
// kept per table and cause, and not per topic or key.
func (d *driver) parkLine(level zerolog.Level, p *outbox.Park) *zerolog.Event {
	about := p.Scope.String()
	if p.Scope.Kind >= outbox.ScopeTopic {
		about = strings.TrimSpace("parks of a " + p.Scope.Kind.String() + ", cause " + string(p.Cause) + " " + p.Scope.Table)
	}
	return d.log.WithLevel(level).Ctx(loglimit.About(about)).Stringer("scope", p.Scope)
}

// parkedText returns what happens to a park's rows.
func parkedText(cause outbox.Cause) string {
	if cause == outbox.CausePaused {
		return "paused: its rows stay pending until outbox-cdc resume"
	}
	return "parked: left to the sweeper"
}
