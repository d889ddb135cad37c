package bench

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// TestBench is make bench. The environment says what to measure: see
// docs/internals/performance.md.
func TestBench(t *testing.T) {
	if os.Getenv("OUTBOX_BENCH") != "1" {
		t.Skip("only by make bench")
	}
	b := &bench{
		t: t, rows: setting(t, "BENCH_ROWS", 1_000_000), rounds: setting(t, "BENCH_ROUNDS", 3),
		warmUp: setting(t, "BENCH_WARM_UP", 1) == 1, fake: os.Getenv("BENCH_KAFKA") == "kfake",
		idleFor: time.Duration(setting(t, "BENCH_IDLE_SECONDS", 30)) * time.Second,
		outage:  time.Duration(setting(t, "BENCH_OUTAGE_SECONDS", 10)) * time.Second,
		repeats: setting(t, "BENCH_REPEATS", 2),
	}
	some, err := chosen(os.Getenv("BENCH_ONLY"))
	if err != nil {
		t.Fatal(err)
	}
	if !b.fake {
		t.Setenv(harness.EnvKafka, "required") // with KAFKA=kfake there is another way
	}
	b.postgres() // here, since a bar's own test must not end this one
	b.kafka()
	for _, a := range some {
		t.Run(a.name, func(t *testing.T) { b.measure(t, a) })
	}
	b.describe()
	writeTable(os.Stdout, b.results)
	if path := os.Getenv("BENCH_OUT"); path != "" {
		if err := writeJSON(path, b.results); err != nil {
			t.Error(err)
		}
	}
}

// TestBenchPeers is make bench-peers.
func TestBenchPeers(t *testing.T) {
	if os.Getenv("OUTBOX_BENCH") != "peers" {
		t.Skip("only by make bench-peers")
	}
	t.Setenv(harness.EnvKafka, "required")
	n := &tournament{found: map[string]map[string][]float64{}, bench: &bench{
		t: t, rows: setting(t, "BENCH_ROWS", 1_000_000), rounds: setting(t, "BENCH_ROUNDS", 3), repeats: setting(t, "BENCH_REPEATS", 1),
		lasting: time.Duration(setting(t, "BENCH_SECONDS", 20)) * time.Second,
	}}
	n.postgres()
	n.kafka()
	all := relays(t)
	for _, r := range all {
		if only := os.Getenv("BENCH_ONLY"); only == "" || strings.Contains(strings.ToLower(r.name), strings.ToLower(only)) {
			n.relays = append(n.relays, r)
		}
	}
	n.run(t)
	report := n.finish()
	report.print(os.Stdout)
	if path := os.Getenv("BENCH_OUT"); path != "" {
		if err := report.write(path); err != nil {
			t.Error(err)
		}
	}
}

// setting is a whole number of the environment.
func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s is %q, not a number", name, text)
	}
	return n
}
