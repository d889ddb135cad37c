package pipeline

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
)

// Waits between two tries to lead.
const (
	retryMin  = 250 * time.Millisecond
	retryMax  = 15 * time.Second
	goodAfter = 30 * time.Second // a term that lasted this long resets the wait
	// claimedPause: the other stream may be this one's earlier name, about to stop.
	claimedPause = 2 * time.Second
)

// Stream runs one stream.
type Stream struct {
	*telling
	cfg      Config
	store    *store
	lead     *leadership
	learned  learned
	watchdog watchdog
	locks    locks
	// judgedRights: the role's rights were looked at, by the goroutine of Run.
	judgedRights bool
	// recount asks for the failed rows to be counted.
	recount chan struct{}
}

// New prepares a stream. It connects nowhere.
func New(cfg Config) *Stream {
	cfg.Core.Shadow, cfg.Core.HeldFor = cfg.Shadow, heldFor
	if cfg.TimelineGuard == nil {
		cfg.TimelineGuard = &TimelineGuard{}
	}
	if cfg.Once != nil && !cfg.Shadow {
		cfg.Metrics.ExactlyOnce(slices.Collect(maps.Keys(cfg.Once.Journals)), exactlyonce.Causes())
	}
	s := &Stream{
		telling: newTelling(cfg.Log, cfg.Metrics, cfg.Traces), cfg: cfg,
		store:   &store{db: postgres.On(cfg.Pool), Store: statestore.New(statestore.Config{DB: cfg.Pool, Stream: cfg.Name})},
		recount: make(chan struct{}, 1), locks: newLocks(&cfg), watchdog: watchdog{since: time.Now()},
	}
	s.lead = &leadership{cfg: &s.cfg, store: s.store}
	return s
}

// errUnasked: a term has ended, and neither an error nor a stop is known that ended it.
var errUnasked = errors.New("its work ended without an error, though nobody had asked it to stop")

// Run leads whenever it can, until ctx ends: then it drains within the
// configured time and returns nil. Errors are logged and retried with growing
// waits; one that only a person can fix is retried at the slowest pace, and
// said once.
func (s *Stream) Run(ctx context.Context) error {
	waits := growing(retryMin, retryMax)
	for {
		began := time.Now()
		err := s.term(ctx)
		if errors.Is(err, exactlyonce.ErrJournal) { // it was deleted, truncated or replaced
			err = &postgres.Error{
				Permanent: true, What: "deliver exactly once", Err: err,
				Hint: "if its topic was deleted or truncated, stop the process and run outbox-cdc journal reset --stream " + s.cfg.Name + ", after which rows that are not marked yet are published once more",
			}
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // stopping: what a stop interrupts is no failure
		}
		if err == nil {
			err = errUnasked
		}
		if time.Since(began) > goodAfter {
			waits.Reset()
		}
		pause := waits.NextBackOff()
		switch {
		case errors.Is(err, statestore.ErrClaimed):
			pause = claimedPause
		case postgres.Permanent(err), errors.Is(err, errForeign):
			pause = retryMax
		}
		switch {
		case errors.Is(err, statestore.ErrFenced), errors.Is(err, errSuperseded), errors.Is(err, exactlyonce.ErrSuperseded):
			s.log.Warn().Err(err).Msg("another process took the lead while this one stood still or was cut off: it waits as a standby now")
		case errors.Is(err, errMoved): // as it should, whatever was asked meanwhile
			s.log.Info().Msg(textFrom(err, errMoved))
		case errors.Is(err, errNewTerm):
			s.log.Info().Msg(textFrom(err, errNewTerm))
		default:
			s.metrics.LeadLost()
			s.tracker.leadLost()
			s.report(err, pause)
		}
		if wait.Sleep(ctx, pause) != nil {
			return nil //nolint:nilerr // stopping
		}
	}
}

// textFrom is an error's text from where its cause begins.
func textFrom(err, cause error) string {
	_, further, _ := strings.Cut(err.Error(), cause.Error())
	return cause.Error() + further
}
