package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/preflight"
)

// proof is whether a stream has been seen to be able to do its work since the
// process started: a standby would not notice otherwise that
// its brokers, topics, tables or privileges are wrong.
type proof struct {
	lacking atomic.Pointer[string] // empty: it has
}

func (p *proof) lacks(reason string) { p.lacking.Store(&reason) }

// missing is why the stream has not been seen to be able to, or empty.
func (p *proof) missing() string { return *p.lacking.Load() }

// How long after a look in vain the next one comes.
const (
	proveFirst = time.Second
	proveLast  = 30 * time.Second
)

// prove looks until the stream is seen to be able to do its work.
func (p *proof) prove(ctx context.Context, s preflight.Stream, log zerolog.Logger) {
	if s.Shadow {
		s.Kafka, s.Once = nil, nil
	}
	said := ""
	for pause := proveFirst; ; pause = min(2*pause, proveLast) {
		reason := preflight.Prove(ctx, &s, preflight.Options{})
		if ctx.Err() != nil {
			return
		}
		p.lacks(reason)
		if reason == "" {
			log.Debug().Msg("ready to do its work")
			return
		}
		if reason != said {
			log.Warn().Str("reason", reason).Msg("not ready: the stream could not do its work")
		}
		said = reason
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// proveAll looks at every stream on its own.
func (p *prepared) proveAll(ctx context.Context, cfg *config.Config, log zerolog.Logger) {
	streams := preflightStreams(cfg, cfg.Streams)
	for i := range streams {
		go p.proofs[i].prove(ctx, streams[i], log.With().Str("stream", streams[i].Name).Logger())
	}
}
