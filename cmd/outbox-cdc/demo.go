//go:build !nodemo

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/goccy/go-yaml"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/demo"
	"github.com/outbox-cdc/outbox-cdc/internal/localpg/cleanup"
	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
)

func demoCommand(io streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole thing, with nothing installed and nothing configured",
		Long: `Starts a private PostgreSQL (the newest one installed, otherwise one is fetched) and an in-process
Kafka, creates an outbox table, inserts orders into it as an application would, streams them, and
checks with a consumer of its own what comes out: lost, duplicated, out of order. Nothing is left
behind.

The operator's page (docs/page.md) shows it too, at an address that is printed.

PENDING rows, latency (from COMMIT to the consumer) and the WAL that the slot holds back are shown
while it runs. Exit code 1: something was lost, duplicated, out of order or not SENT.`,
		Example: `  outbox-cdc demo
  outbox-cdc demo --rows 200000 --json
  outbox-cdc demo --rate 2000 --duration 30s --outage 8s
  outbox-cdc demo --lose-slot
  outbox-cdc demo --serve --duration 1h --outage 1m
  outbox-cdc demo --exactly-once --brokers localhost:9092
  outbox-cdc demo --brokers localhost:9092 --postgres postgres://postgres@localhost/postgres`,
	}
	o, logs := demo.Options{Out: raw(io.out)}, addLogFlags(c)
	f := c.Flags()
	f.IntVar(&o.Rows, "rows", 0, "how many `ROWS` to insert; without it, as many as fit into --duration")
	f.IntVar(&o.Rate, "rate", 0, "`ROWS` per second; without it 1000, or with --rows as fast as it goes")
	f.DurationVar(&o.Duration, "duration", 0, "how long to insert; without it 15s, or with --rows until they are in")
	f.DurationVar(&o.Outage, "outage", 0, "take the in-process Kafka away for this long, half way through")
	f.BoolVar(&o.LoseSlot, "lose-slot", false, "drop the replication slot half way through")
	f.BoolVar(&o.ExactlyOnce, "exactly-once", false, "deliver exactly once, and kill the stream twice half way through; takes --brokers")
	f.StringSliceVar(&o.Brokers, "brokers", nil, "a real Kafka instead (`HOST:PORT`, …); a topic is made and deleted")
	f.StringVar(&o.Postgres, "postgres", "", "a real database instead (a connection string); a schema is made and dropped")
	f.BoolVar(&o.Serve, "serve", false, "keep it all up when every row is through, until Ctrl-C: to look at the operator's page")
	f.BoolVar(&o.JSON, "json", false, "print one JSON object at the end and nothing else")
	// Log lines would break the display, so only errors are logged by default.
	_ = f.Lookup("log-level").Value.Set("error")
	f.Lookup("log-level").DefValue = "error"
	c.RunE = func(c *cobra.Command, _ []string) error {
		log, err := logs.logger(io.err)
		if err != nil {
			return err
		}
		o.Live, o.Width = liveDisplay(io.out)
		o.Init = demoInit
		o.Stream = func(ctx, _ context.Context, t demo.Target) error { return demoStream(ctx, t, log) }
		if o.ExactlyOnce {
			o.Stream = func(ctx, kill context.Context, t demo.Target) error { return demoProcess(ctx, kill, t, logs, io.err) }
		}
		return demo.Run(c.Context(), context.Background(), o)
	}
	return c
}

// liveDisplay reports whether lines can be overwritten, and how wide they may be.
func liveDisplay(out io.Writer) (live bool, width int) {
	f, ok := raw(out).(*os.File)
	if !ok || !isTerminal(out) || os.Getenv("TERM") == "dumb" {
		return false, 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	return err == nil && width >= 60, width
}

// demoInit does to the demo's stream what init does. demoStream does what run does.
func demoInit(ctx context.Context, t demo.Target) error {
	cfg, err := demoConfig(t)
	if err != nil {
		return err
	}
	quiet := streams{out: io.Discard, err: io.Discard}
	err = initStream(ctx, cfg.Streams[0], initOptions{}, quiet)
	if err == nil && t.Journal != "" {
		err = initKafka(ctx, cfg, initOptions{kafka: true}, quiet)
	}
	return err
}

func demoStream(ctx context.Context, t demo.Target, log zerolog.Logger) error {
	cfg, err := demoConfig(t)
	if err != nil {
		return err
	}
	v, commit := build()
	registry := metrics.New(v, commit)
	prepared, err := prepareStreams(cfg, instruments{metrics: registry}, log)
	if err != nil {
		return err
	}
	server, err := listen(cfg, registry, prepared, v, log)
	if err != nil {
		prepared.close()
		return err
	}
	var next []func(context.Context) error
	if server != nil {
		t.Serving("http://" + server.Address())
		next = append(next, server.Run)
	}
	return wait.While(context.WithoutCancel(ctx), func(context.Context) error { return prepared.run(ctx) }, next...)
}

// demoProcess runs the stream in a process of its own. The process is killed when kill ends.
func demoProcess(ctx, kill context.Context, t demo.Target, logs *logFlags, stderr io.Writer) (err error) {
	t.Serving = nil
	file, err := demoFile(t)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	folder, err := cleanup.Open("outbox-cdc-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	dir := filepath.Join(folder.Dir, "stream")
	name := filepath.Join(dir, "outbox-cdc.yaml")
	if err = os.Mkdir(dir, 0o700); err == nil {
		err = os.WriteFile(name, file, 0o600)
	}
	if err != nil {
		return err
	}
	c := exec.CommandContext(kill, program, "run", "--config", name, "--log-level", logs.level, "--log-format", logs.format) // #nosec G204 -- this program
	c.Stderr = raw(stderr)
	cleanup.Detach(c)
	if err := c.Start(); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = c.Process.Signal(syscall.SIGTERM) })()
	pid, err := cleanup.Tie(dir, c.Process.Pid, "KILL")
	return errors.Join(err, c.Wait(), os.Remove(pid))
}

// demoConfig returns the demo's configuration. Its file is read like any other.
func demoConfig(t demo.Target) (*config.Config, error) {
	file, err := demoFile(t)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Parse(file, "the demo's configuration", ".")
	if err != nil {
		return nil, fmt.Errorf("the demo's own configuration: %w", err)
	}
	return cfg, nil
}

func demoFile(t demo.Target) ([]byte, error) {
	type object = map[string]any
	served := object{"listen": "off"}
	if t.Serving != nil {
		served = object{"listen": "127.0.0.1:0", "page": true, "show_payloads": true}
	}
	// In a configuration, ${ begins a reference, so it is escaped.
	text := func(s string) string { return strings.ReplaceAll(s, "${", "$${") }
	cluster := object{"brokers": t.Brokers}
	if t.Fencing != "" {
		cluster["fencing"] = t.Fencing
	}
	stream := object{
		"name": t.Stream, "postgres": object{"dsn": text(t.DSN)},
		"slot": t.Slot, "publication": t.Publication,
		"tables": []object{{"table": t.Schema + "." + t.Table, "profile": "native"}},
	}
	if t.Journal != "" {
		stream["delivery"], stream["journal"] = config.ExactlyOnce, object{"topic": t.Journal}
	}
	return yaml.Marshal(object{
		"kafka":   object{"clusters": object{"demo": cluster}},
		"streams": []object{stream},
		"http":    served,
	})
}
