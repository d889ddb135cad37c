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

// Pauses between two attempts to lead.
const (
	retryMin  = 250 * time.Millisecond
	retryMax  = 15 * time.Second
	goodAfter = 30 * time.Second // a term that lasted this long resets the pause
	// claimedPause is the pause if another stream has the tables: it may be this stream under its former
	// name, about to stop.
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
	// judgedRights: the role's rights have been checked. Only the goroutine of Run uses it.
	judgedRights bool
	// recount has a value when the FAILED rows are to be counted again.
	recount chan struct{}
}

// New returns a Stream that is ready to run. It makes no connection.
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

// errUnasked: a term ended without an error and without a request to stop.
var errUnasked = errors.New("its work ended without an error, though nobody had asked it to stop")

// Run leads whenever it can, until ctx ends. Then it drains within the configured time and returns nil. After
// an error it logs the error and tries again, with growing pauses. An error that only a person can fix is
// logged once, and tried again with the longest pause.
func (s *Stream) Run(ctx context.Context) error {
	waits := growing(retryMin, retryMax)
	for {
		began := time.Now()
		err := s.term(ctx)
		if errors.Is(err, exactlyonce.ErrJournal) { // the journal was deleted, truncated or replaced
			err = &postgres.Error{
				Permanent: true, What: "deliver exactly once", Err: err,
				Hint: "if its topic was deleted or truncated, stop the process and run outbox-cdc journal reset --stream " + s.cfg.Name + ", after which rows that are not marked yet are published once more",
			}
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // at a stop, an interrupted attempt is no failure
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
		case errors.Is(err, errMoved): // the expected end of the term, whatever else was requested meanwhile
			s.log.Info().Msg(textFrom(err, errMoved))
		case errors.Is(err, errNewTerm):
			s.log.Info().Msg(textFrom(err, errNewTerm))
		default:
			s.metrics.LeadLost()
			s.tracker.leadLost()
			s.report(err, pause)
		}
		if wait.Sleep(ctx, pause) != nil {
			return nil //nolint:nilerr // at a stop
		}
	}
}

// textFrom returns an error's text from the beginning of its cause.
func textFrom(err, cause error) string {
	_, further, _ := strings.Cut(err.Error(), cause.Error())
	return cause.Error() + further
}
