package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/admin/page"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/loglimit"
	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
)

func runCommand(io streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "run",
		Short: "Stream until stopped",
		Long: `Streams every stream of the configuration until SIGINT or SIGTERM. The streams are isolated: one
that fails is retried with growing waits, says why in the log, in /readyz and in the metrics, and
leaves the others running. Where another process leads a stream, this one waits as a standby.

The first SIGINT or SIGTERM stops reading, waits (at most drain_timeout) until what was sent is
acknowledged, marked and confirmed, and exits with 0: a clean stop makes no duplicates. If
drain_timeout runs out, a warning says what the next start does, and the exit code is 0, too. A
second signal stops at once; then the last rows may be published again.

Logs go to standard error. Metrics and health are on http.listen (127.0.0.1:9187). Spans go to the
OpenTelemetry collector of OTEL_EXPORTER_OTLP_ENDPOINT, where that is set.`,
		Example: `  outbox-cdc run --config outbox-cdc.yaml
  outbox-cdc run --config /etc/outbox-cdc/outbox-cdc.yaml --log-format json --log-level debug`,
	}
	file, logs := configFlag(c), addLogFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		log, err := logs.logger(io.err)
		if err != nil {
			return err
		}
		if os.Getenv(adminVariable) != "" {
			return usage("%s is set, and run needs no administrator: take it out of the environment (it is for init, destroy, slots and check --fix)", adminVariable)
		}
		cfg, err := config.Load(*file)
		if err != nil {
			return err
		}
		return runAll(c.Context(), cfg, log)
	}
	return c
}

// runAll serves HTTP next to the streams. HTTP goes on while they drain, so that the drain can be watched.
func runAll(ctx context.Context, cfg *config.Config, log zerolog.Logger) error {
	v, commit := build()
	signal.Ignore(syscall.SIGPIPE) // the reader of the log may go away
	logSignals(ctx, log)
	tellHangups(context.WithoutCancel(ctx), log) // works during the drain too
	limitMemory(cfg)
	limitProcessors(cfg)
	limit := loglimit.New(repeatsPerMinute, time.Minute)
	log = log.Hook(limit)
	registry := metrics.New(v, commit)
	registry.Configuration(cfg.Hash())
	for _, w := range cfg.Warnings {
		log.Warn().Str("what", w).Msg("a file with secrets can be read by others")
	}
	traces, err := newTraces(ctx, v, log)
	if err != nil {
		return err
	}
	defer stopTraces(traces, log)
	streams, err := prepareStreams(cfg, instruments{registry, traces}, log)
	if err != nil {
		return err
	}
	streams.unproven()
	supervisor, err := newSupervisor(streams.watched, log)
	if err != nil {
		streams.close()
		return err
	}
	server, err := listen(cfg, registry, streams, v, log)
	if err != nil {
		streams.close()
		return err
	}
	log.Info().Str("version", v).Str("commit", commit).Str("config", cfg.File).Int("streams", len(cfg.Streams)).Msg("starting")
	next := []func(context.Context) error{
		func(serving context.Context) error {
			supervisor.run(ctx, serving)
			return nil
		},
		func(serving context.Context) error { return limit.Report(serving, log) },
		func(serving context.Context) error {
			streams.proveAll(serving, cfg, log)
			return nil
		},
	}
	if server != nil {
		log.Info().Str("address", server.Address()).Bool("page", cfg.HTTP.Page).Msg("serving /metrics, /healthz, /readyz and /api/v1/status")
		next = append(next, server.Run)
	}
	if err := wait.While(context.WithoutCancel(ctx), func(context.Context) error { return streams.run(ctx) }, next...); err != nil {
		return err
	}
	log.Info().Msg("stopped")
	return nil
}

// repeatsPerMinute is how many warnings or errors with the same text about the same subject are logged per
// minute. Further ones are counted.
const repeatsPerMinute = 10

// newTraces sends spans to the collector that the environment names; nil: traces are off. A failure to send
// is logged and has no other effect.
func newTraces(ctx context.Context, version string, log zerolog.Logger) (*tracing.Provider, error) {
	traces, err := tracing.New(ctx, version)
	if err != nil {
		return nil, err
	}
	if traces != nil {
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
			log.Warn().Err(err).Msg("spans could not be sent to the collector")
		}))
		log.Info().Msg("sending spans to the collector of OTEL_EXPORTER_OTLP_ENDPOINT")
	}
	return traces, nil
}

// stopTraces sends the last spans. It takes two seconds at most.
func stopTraces(traces *tracing.Provider, log zerolog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := traces.Shutdown(ctx); err != nil {
		log.Warn().Err(err).Msg("spans could not be sent to the collector")
	}
}

// listen opens the address http.listen before anything is started. It returns nil if nothing is to be served.
func listen(cfg *config.Config, registry *metrics.Registry, streams *prepared, version string, log zerolog.Logger) (*admin.Server, error) {
	if cfg.HTTP.Listen == "off" {
		return nil, nil
	}
	serve := admin.Config{
		Listen: cfg.HTTP.Listen, Metrics: registry.Handler(), Version: version,
		Hosts: cfg.HTTP.Hosts, Refused: registry.RefusedLogin, Log: log,
	}
	for _, w := range streams.watched {
		serve.Streams = append(serve.Streams, w.Stream)
	}
	if cfg.HTTP.Auth != nil {
		for _, u := range cfg.HTTP.Auth.Everybody() {
			serve.Auth.Users = append(serve.Auth.Users, admin.User{Role: roles[u.Role], Name: u.Username, Password: secretOf(u).Read})
		}
	}
	if t := cfg.HTTP.TLS; t != nil {
		serve.CertFile, serve.KeyFile = string(t.CertFile), string(t.KeyFile)
	}
	if cfg.HTTP.Page {
		shown, err := newPage(cfg, streams, version, log)
		if err != nil {
			return nil, err
		}
		serve.Page, serve.Stopping = shown, shown.Close
	}
	return admin.Listen(serve)
}

// limitMemory makes the garbage collector run earlier if the process would grow beyond what its rows need.
// Rows are most of the live memory, and by default the collector lets the heap double. A GOMEMLIMIT in the
// environment takes precedence.
func limitMemory(cfg *config.Config) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit(cfg))
	}
}

// memoryLimit returns what the process needs, in bytes.
func memoryLimit(cfg *config.Config) int64 {
	const (
		base  = 24 << 20  // the program, its connections and their buffers
		table = 128 << 10 // a table's statements on each connection, and its metrics
	)
	limit := int64(base)
	for _, s := range cfg.Streams {
		limit += int64(s.Memory.Bytes)/4*5 + int64(len(s.Tables)-1)*table
	}
	return limit
}

// limitProcessors gives Go's scheduler one processor per stream if the machine has more. A stream keeps at
// most one processor busy, and near the end of the WAL a second one would only wake threads that find nothing
// to do. A GOMAXPROCS in the environment takes precedence. https://pkg.go.dev/runtime#GOMAXPROCS
func limitProcessors(cfg *config.Config) {
	if os.Getenv("GOMAXPROCS") == "" && len(cfg.Streams) < runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(len(cfg.Streams))
	}
}

// newPage makes the operator's page with the data that it shows.
func newPage(cfg *config.Config, p *prepared, version string, log zerolog.Logger) (*page.Page, error) {
	shown := page.Config{
		Version: version, ShowPayloads: cfg.HTTP.ShowPayloads, Dashboard: cfg.HTTP.Dashboard, MayAct: admin.MayAct, Who: admin.NameOf, Log: log,
		Slots: func(ctx context.Context) ([]page.Server, error) { return pageSlots(ctx, cfg), nil },
	}
	for i, s := range cfg.Streams {
		text, err := cfg.InForce(s)
		if err != nil {
			return nil, err
		}
		shown.Streams = append(shown.Streams, page.Stream{
			Name: s.Name, Report: p.streams[i].Status, Activity: p.streams[i].Activity, Tables: s.OutboxTables(),
			Database:      fmt.Sprintf("%s@%s/%s", s.Postgres.User, serverOf(s), s.Postgres.Database),
			Configuration: text,
			Found:         func(t *outbox.Table) time.Duration { return s.WatchInterval + t.Mapping.Grace },
			Changed:       p.streams[i].Recount,
			Pauses:        pagePauses(s),
			Parks:         func(ctx context.Context, conn *pgx.Conn) ([]outbox.Park, error) { return parksOf(ctx, conn, s.Name) },
			Connect:       func(ctx context.Context) (*pgx.Conn, error) { return connectOperator(ctx, s) },
		})
	}
	return page.New(shown)
}

// pageSlots reads the slots of every server. A server's error is shown next to it.
func pageSlots(ctx context.Context, cfg *config.Config) []page.Server {
	asItself := func(a postgres.Access) postgres.Access { return a } // the page never acts as an administrator
	var all []page.Server
	for _, server := range serversOf(cfg, cfg.Streams) {
		var notes bytes.Buffer
		if err := server.look(ctx, asItself, streams{out: io.Discard, err: &notes}); err != nil {
			fmt.Fprintln(&notes, err)
		}
		all = append(all, page.Server{Server: server.Server, Slots: server.Slots, Error: strings.TrimSpace(notes.String())})
	}
	return all
}
