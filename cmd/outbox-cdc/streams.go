package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/pipeline"
	"github.com/outbox-cdc/outbox-cdc/internal/preflight"
	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
)

// prepared are the streams of a process, complete but not connected yet.
type prepared struct {
	streams []*pipeline.Stream
	watched []supervised
	proofs  []*proof
	pools   []*pgxpool.Pool
}

// instruments are what a process is observed by; traces may be nil.
type instruments struct {
	metrics *metrics.Registry
	traces  *tracing.Provider
}

func prepareStreams(cfg *config.Config, seen instruments, log zerolog.Logger) (*prepared, error) {
	p := &prepared{}
	for _, s := range cfg.Streams {
		if err := p.add(cfg, s, seen, log.With().Str("stream", s.Name).Logger()); err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

func (p *prepared) add(cfg *config.Config, s *config.Stream, seen instruments, log zerolog.Logger) error {
	guard := &pipeline.TimelineGuard{}
	pool, err := openPool(s, guard.Admit)
	if err != nil {
		return err
	}
	p.pools = append(p.pools, pool)
	m := seen.metrics.Stream(s.Name, s.OutboxTables(), uint64(s.WALBudget))
	m.Limits(s.Memory.Rows, int(s.Memory.Bytes))
	proof := &proof{}
	proof.lacks("")
	p.proofs = append(p.proofs, proof)
	stream := pipeline.New(pipeline.Config{
		Name:              s.Name,
		Tables:            s.OutboxTables(),
		Pool:              pool,
		TimelineGuard:     guard,
		Replication:       replicationConfig(s),
		Sinks:             sinkConfigs(cfg, s, log),
		Core:              coreConfig(s),
		Once:              onceConfig(cfg, s),
		Limits:            pipeline.Limits{RowsPerSecond: s.Limits.RowsPerSecond, BackOff: s.Limits.BackOff},
		MarkConnections:   s.Mark.Connections,
		MarkRows:          s.Mark.BatchRows,
		HeartbeatInterval: s.HeartbeatInterval,
		DrainTimeout:      s.DrainTimeout,
		KeepSlot:          !s.GiveUpSlot,
		Shadow:            s.Shadow(),
		Silence:           3 * s.Postgres.WALSenderTimeout, // signs of life come within half of the timeout
		Unproven:          proof.missing,
		Metrics:           m,
		Traces:            seen.traces.Stream(s.Name),
		Log:               log,
	})
	m.Findings(stream.Status)
	p.streams = append(p.streams, stream)
	p.watched = append(p.watched, supervised{halted: stream.Halted, Stream: admin.Stream{
		Name: s.Name, Status: m.Status, Report: stream.Status,
	}})
	return nil
}

// run runs every stream until ctx ends and all streams have drained. A stream that fails tries again by
// itself and does not affect the others.
func (p *prepared) run(ctx context.Context) error {
	defer p.close()
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range p.streams {
		group.Go(func() error { return s.Run(ctx) })
	}
	return group.Wait()
}

func (p *prepared) close() {
	for _, pool := range p.pools {
		pool.Close()
	}
}

// openPool makes the pool for reading and marking rows. admit, if not nil, checks new connections.
func openPool(s *config.Stream, admit func(context.Context, *pgx.Conn) error) (*pgxpool.Pool, error) {
	pool, err := marker(s, "outbox-cdc/"+s.Name).Pool(func(c *pgxpool.Config) {
		c.AfterConnect = admit
		c.MaxConns = int32(poolConnections(s))
	})
	if err != nil {
		return nil, fmt.Errorf("stream %s: postgres.dsn: %w", s.Name, err)
	}
	return pool, nil
}

// proof records whether a stream has been seen able to work since the process started. Without it, a standby
// would not notice that its brokers, topics, tables or privileges are wrong.
type proof struct {
	lacking atomic.Pointer[string] // empty: nothing is lacking
}

func (p *proof) lacks(reason string) { p.lacking.Store(&reason) }

// missing returns what the stream lacks for its work, or "".
func (p *proof) missing() string { return *p.lacking.Load() }

// Pauses after a look that failed.
const (
	proveFirst = time.Second
	proveLast  = 30 * time.Second
)

// prove looks repeatedly until the stream is seen able to work.
func (p *proof) prove(ctx context.Context, s preflight.Stream, log zerolog.Logger) {
	if s.Shadow {
		s.Kafka, s.Once = nil, nil
	}
	said, told := "", map[[2]string]bool{}
	for pause := proveFirst; ; pause = min(2*pause, proveLast) {
		reason, differences, err := preflight.Prove(ctx, &s, preflight.Options{})
		if ctx.Err() != nil {
			return
		}
		p.lacks(reason)
		told = tellDifferences(differences, told, log)
		if err != nil {
			log.Debug().Err(err).Msg("the tables could not be compared with their mappings")
		}
		if reason == "" {
			log.Debug().Msg("ready to do its work")
			return
		}
		if reason != said {
			level := zerolog.WarnLevel
			if slices.ContainsFunc(differences, func(d preflight.Difference) bool { return d.Fatal }) { // these are already logged
				level = zerolog.InfoLevel
			}
			log.WithLevel(level).Str("reason", reason).Msg("not ready: the stream could not do its work")
		}
		said = reason
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// tellDifferences logs every difference that keeps rows of a table from being published and was not logged at
// the previous look. It returns the differences of this look. It has no other effect: the stream itself parks
// tables that cannot be streamed.
func tellDifferences(found []preflight.Difference, before map[[2]string]bool, log zerolog.Logger) map[[2]string]bool {
	told := map[[2]string]bool{} // by table and problem
	for _, d := range found {
		about := [2]string{d.Table, d.Problem}
		if d.Fatal && !before[about] {
			log.Error().Str("table", d.Table).Str("problem", d.Problem).Strs("override", d.Override.Lines()).Str("hint", d.Hint).
				Msg("the table does not fit its mapping")
		}
		told[about] = true
	}
	return told
}

// unproven makes all streams count as not yet able to work, until proveAll has looked.
func (p *prepared) unproven() {
	for _, proof := range p.proofs {
		proof.lacks("its database, tables and Kafka clusters have not been looked at yet")
	}
}

// proveAll starts a look at every stream, independently.
func (p *prepared) proveAll(ctx context.Context, cfg *config.Config, log zerolog.Logger) {
	for i, s := range preflightStreams(cfg, cfg.Streams) {
		go p.proofs[i].prove(ctx, s, log.With().Str("stream", s.Name).Logger())
	}
}
