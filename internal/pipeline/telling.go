package pipeline

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/loglimit"
	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// telling is how the parts of a stream report events: to the log, the metrics and the status. Any goroutine
// may use it.
type telling struct {
	log     zerolog.Logger
	metrics *metrics.Stream
	traces  *tracing.Stream
	tracker statusTracker
	// failed is the fault that keeps the stream from working. It is logged once.
	failed atomic.Pointer[failure]
	// renamed maps tables to new names that were logged.
	renamed sync.Map
	// lossTold is the park's reason for the last loss of the slot that was logged.
	lossTold atomic.Pointer[string]
	// following are parks (scope and reason) of the last connection that are consequences of something logged
	// already.
	following atomic.Pointer[[]string]
	// unreachable: the database could not be reached.
	unreachable atomic.Bool
}

func newTelling(log zerolog.Logger, m *metrics.Stream, traces *tracing.Stream) *telling {
	return &telling{log: log, metrics: m, traces: traces, tracker: statusTracker{
		tables: map[string]status.Table{}, kafka: map[string]status.Cluster{},
		tallies: map[string]status.Tally{}, lastAbort: map[string]*status.Abort{}, lastUnit: map[string]uint64{},
	}}
}

// failure is the present fault that keeps a stream from working. since is when the first of an unbroken
// series of faults began.
type failure struct {
	text  string
	since time.Time
}

// fails records the fault, and reports whether the last one was the same.
func (t *telling) fails(text string) bool {
	before, now := t.failed.Load(), &failure{text, time.Now().UTC()}
	if before != nil {
		now.since = before.since
	}
	t.failed.Store(now)
	return before != nil && before.text == text
}

// works records that there is no fault any more.
func (t *telling) works() { t.failed.Store(nil) }

// report logs an error once, and again when its text changes.
func (t *telling) report(err error, pause time.Duration) {
	text := postgres.Text(err)
	t.tracker.recordError("the stream", text, "")
	before, away := t.failed.Load(), t.unreachable.Swap(postgres.Unreachable(err))
	if t.fails(text) {
		return
	}
	level := zerolog.ErrorLevel
	if before != nil && away && postgres.Away(err) { // a server that restarts gives several different errors
		level = zerolog.InfoLevel
	}
	t.log.WithLevel(level).Ctx(loglimit.About(text)).Err(err).Dur("retry_in", pause).Bool("needs_a_person", postgres.Permanent(err)).Msg("the stream does not work")
}

// follow records that a log line already tells of a park.
func (t *telling) follow(s outbox.Scope, reason string) {
	parks := []string{s.String() + ": " + reason}
	if before := t.following.Load(); before != nil {
		parks = slices.Concat(*before, parks)
	}
	t.following.Store(&parks)
}

// follows reports whether a park is the consequence of something logged already.
func (t *telling) follows(p *outbox.Park) bool {
	parks, lost := t.following.Load(), t.lossTold.Load()
	return parks != nil && slices.Contains(*parks, p.Scope.String()+": "+p.Reason) || lost != nil && *lost == p.Reason
}

// tellStandby reports that another process leads.
func (t *telling) tellStandby(h replication.Holder) {
	t.works()
	t.metrics.Standby()
	t.tracker.follows(h)
	if text := h.Intruder(); text != "" {
		t.metrics.LockForeign()
		t.fails(text)
		t.log.Error().Str("leader", h.String()).Str("role", h.Role).Msg(text)
		return
	}
	t.log.Info().Str("leader", h.String()).Msg("waiting as a standby")
}

// watchdog records when a stream's driver last completed a round of its loop. A running driver does so at
// least once a second, otherwise it is stuck.
type watchdog struct {
	since time.Time // monotonic: setting the clock must not look like a halt
	last  atomic.Int64
}

func (t *watchdog) alive(now time.Time) { t.last.Store(max(1, int64(now.Sub(t.since)))) }
func (t *watchdog) idle()               { t.last.Store(0) }

// halted returns how long ago the driver last completed a round; 0: no driver runs.
func (t *watchdog) halted(now time.Time) time.Duration {
	last := t.last.Load()
	if last == 0 {
		return 0
	}
	return max(0, now.Sub(t.since)-time.Duration(last))
}
