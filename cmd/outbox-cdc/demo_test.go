//go:build !nodemo

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// runDemo runs the command as a user would, with the real stream, and returns its summary.
func runDemo(t *testing.T, args ...string) map[string]any {
	t.Helper()
	var out, errs bytes.Buffer
	code := execute(append([]string{"demo", "--json", "--log-level", "warn", "--log-format", "console"}, args...), streams{out: &out, err: &errs})
	if code != exitOK {
		t.Fatalf("exit code %d: %s%s", code, out.String(), errs.String())
	}
	if lines := strings.Count(out.String(), "\n"); lines != 1 {
		t.Errorf("%d lines of output, want one object:\n%s", lines, out.String())
	}
	var summary map[string]any
	if err := json.Unmarshal(out.Bytes(), &summary); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	return summary
}

func TestDemo(t *testing.T) {
	for name, args := range map[string][]string{
		"as fast as it goes": {"--rows", "3000"},
		"an outage":          {"--rows", "3000", "--rate", "1500", "--outage", "1500ms"},
		"the slot lost":      {"--rows", "3000", "--rate", "1500", "--lose-slot"},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "the slot lost" {
				t.Skip("one is enough here")
			}
			s := runDemo(t, args...)
			for key, want := range map[string]float64{
				"inserted": 3000, "published": 3000, "sent": 3000, "failed": 0, "lost": 0, "duplicates": 0, "out_of_order": 0,
			} {
				if s[key] != want {
					t.Errorf("%s is %v, want %v", key, s[key], want)
				}
			}
		})
	}
}

func TestDemoOnGivenServers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	cluster, db := harness.Kafka(t), harness.Postgres(t)
	s := runDemo(t, "--rows", "2000", "--brokers", strings.Join(cluster.Addrs, ","), "--postgres", db.DSN)
	if s["published"] != 2000.0 || s["sent"] != 2000.0 || s["postgres"] != db.Server.Version() {
		t.Errorf("%v", s)
	}
	if n := harness.One[int](t, db, "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'outbox_cdc%'"); n != 0 {
		t.Errorf("%d schemas are left", n)
	}
	t.Log(s["kafka"], s["latency_ms"])
}

// The stream is a process of its own, which is killed. The checker reads committed records.
func TestDemoExactlyOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	cluster, db := harness.Kafka(t), harness.Postgres(t)
	args := []string{"demo", "--exactly-once", "--rows", "4000", "--rate", "1000", "--brokers", strings.Join(cluster.Addrs, ","), "--postgres", db.DSN}
	out, err := exec.Command(harness.Binary(t), args...).CombinedOutput() // #nosec G204 -- the test's own program
	if kills := bytes.Count(out, []byte("the stream was killed")); err != nil || kills != 2 {
		t.Errorf("%v, %d kills:\n%s", err, kills, out)
	}
	if n := harness.One[int](t, db, "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'outbox_cdc%'"); n != 0 {
		t.Errorf("%d schemas are left", n)
	}
	harness.Eventually(t, 10*time.Second, func() error {
		if topics := cluster.Topics(t); len(topics) > 0 {
			return fmt.Errorf("left behind: %v", topics)
		}
		return nil
	})
}

func TestDemoSummaryHasTheseKeys(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	s := runDemo(t, "--rows", "100")
	keys := slices.Sorted(maps.Keys(s))
	want := strings.Fields("duplicates failed inserted kafka latency_ms lost out_of_order postgres published rows_per_second seconds sent")
	if !slices.Equal(keys, want) {
		t.Errorf("keys %v, want %v", keys, want)
	}
	latency, _ := s["latency_ms"].(map[string]any)
	if keys := slices.Sorted(maps.Keys(latency)); !slices.Equal(keys, []string{"p50", "p99"}) {
		t.Errorf("keys of latency_ms: %v", keys)
	}
}

func TestDemoRefusesNonsense(t *testing.T) {
	for _, args := range [][]string{{"--rows", "-1"}, {"--outage", "1s", "--brokers", "localhost:9"}, {"--exactly-once"}, {"extra"}, {"--duration", "soon"}} {
		var out, errs bytes.Buffer
		if code := execute(append([]string{"demo"}, args...), streams{out: &out, err: &errs}); code == exitOK || errs.Len() == 0 {
			t.Errorf("demo %v: exit code %d, said %q", args, code, errs.String())
		}
	}
}
