package bench

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// bench is one run of the bench.
type bench struct {
	t       *testing.T
	rows    int
	rounds  int
	warmUp  bool
	fake    bool          // KAFKA=kfake
	idleFor time.Duration // of B8
	outage  time.Duration // of B10
	repeats int           // of a round that was not quiet
	lasting time.Duration // of the peers' latencies, each rate

	server  *localpg.Server  // once it was needed
	cluster *harness.Cluster // the same
	why     string           // the bar under way cannot be measured
	results []Result
	// marked are B2's rounds, which B6 is held against; at is the round's index.
	marked []sample
	at     int

	calibrated *Calibration // at last
	fastest    float64      // CPU loop of the run
}

// postgresSettings are for a server with commits that last, and no checkpoints
// in the middle of a round.
var postgresSettings = map[string]string{
	"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on",
	"shared_buffers": "256MB", "max_wal_size": "8GB", "checkpoint_timeout": "30min",
	"max_connections": "200", "max_replication_slots": "40", "max_wal_senders": "40",
}

// postgres is the bench's server.
func (b *bench) postgres() *localpg.Server {
	if b.server == nil {
		b.server = harness.PrivatePostgres(b.t, localpg.Options{Settings: postgresSettings}).Server
	}
	return b.server
}

// kafka is the bench's cluster: one real broker, or kfake where it was asked
// for.
func (b *bench) kafka() *harness.Cluster {
	switch {
	case b.cluster != nil:
	case b.fake:
		b.cluster = harness.Kfake(b.t)
	default:
		b.cluster = harness.PrivateKafka(b.t, harness.KafkaOptions{Optimized: true, Settings: map[string]string{"log.segment.delete.delay.ms": "1000"}})
	}
	return b.cluster
}

// patience is how long a delivery may take: far longer than it should.
func (b *bench) patience(j job) time.Duration {
	return time.Minute + time.Duration(j.rows)*time.Millisecond + time.Duration(j.rows*j.bytes/1_000_000)*time.Second
}

// cpu of all parts so far; pid is outbox-cdc's, 0: not started.
func (b *bench) cpu(pid int) CPU {
	of := func(pid int) *float64 {
		if pid == 0 {
			return nil
		}
		seconds, err := cpuOf(pid)
		if err != nil {
			return nil // no /proc here
		}
		return &seconds
	}
	c := CPU{OutboxCDC: of(pid), Postgres: of(b.postgres().PID())}
	if k := b.kafka(); k.Real {
		c.Kafka = of(k.Nodes[0].PID())
	}
	return c
}

// since is what was used after before. outbox-cdc had not begun then.
func (c CPU) since(before CPU) CPU {
	less := func(now, then *float64) *float64 {
		if now == nil || then == nil {
			return now
		}
		return new(*now - *then)
	}
	return CPU{OutboxCDC: less(c.OutboxCDC, before.OutboxCDC), Postgres: less(c.Postgres, before.Postgres), Kafka: less(c.Kafka, before.Kafka)}
}

// cannot ends a bar that cannot be measured here.
func (b *bench) cannot(t *testing.T, why string) {
	t.Helper()
	b.why = why
	t.Skip(why)
}

// measure runs a bar's rounds after a smaller one to warm up, and keeps what
// came of it. A round that was not quiet is repeated.
func (b *bench) measure(t *testing.T, a bar) {
	b.why = ""
	if b.warmUp && !a.once {
		t.Run("warm-up", func(t *testing.T) { a.round(b, t, max(1000, b.rows/10)) })
		b.calibrated = nil
	}
	rounds := b.rounds
	if a.once {
		rounds = 1
	}
	var measured [][]sample
	var conditions []Conditions
	for b.at = 0; b.at < rounds && b.why == ""; b.at++ {
		got, c := b.round(t, a)
		for try := 0; try < b.repeats && c.Noise != "" && b.why == ""; try++ {
			got, c = b.round(t, a)
		}
		if len(got) == len(a.lines) {
			measured, conditions = append(measured, got), append(conditions, c)
		}
	}
	for i, l := range a.lines {
		var column []sample
		for _, round := range measured {
			column = append(column, round[i])
		}
		if a.name == "B2" {
			b.marked = column
		}
		r := summary(a.name, l, column)
		r.Conditions = slices.Clone(conditions)
		if len(column) < rounds {
			r.Value, r.OK, r.Note = nil, nil, "not measured: "+b.why
		}
		b.results = append(b.results, r)
	}
}

// round runs a round of a bar once.
func (b *bench) round(t *testing.T, a bar) (got []sample, c Conditions) {
	name := fmt.Sprint("round ", b.at+1)
	c = b.observed(func() {
		if !t.Run(name, func(t *testing.T) { got = a.round(b, t, b.rows) }) {
			b.why = name + " failed, see its output"
		}
	})
	if c.Noise != "" {
		fmt.Printf("%s, %s was not quiet: %s\n", a.name, name, c.Noise)
	}
	return got, c
}

func allQuiet(rounds []Conditions) bool {
	return !slices.ContainsFunc(rounds, func(c Conditions) bool { return c.Noise != "" })
}

// summary makes a line of its rounds.
func summary(name string, l line, rounds []sample) Result {
	r := Result{Bar: name, What: l.what, Unit: l.unit, Goal: l.goal, Rounds: []float64{}}
	var ratios []float64
	for _, s := range rounds {
		r.Rounds = append(r.Rounds, s.value)
		if ratio := s.ratio(); ratio != nil {
			ratios = append(ratios, *ratio)
		}
		if s.peak != nil {
			r.PeakRSS = new(max(*s.peak, valueOf(r.PeakRSS)))
		}
	}
	if len(rounds) == 0 {
		return r
	}
	r.Value = new(median(r.Rounds))
	for _, s := range rounds {
		if s.value == *r.Value {
			r.Reference, r.CPU, r.WALPerRow, r.Note = s.reference, s.cpu, s.wal, s.note
		}
	}
	if len(ratios) > 0 {
		r.Ratio = new(median(ratios))
	}
	if l.missed != nil {
		r.MissedBy = l.missed(r)
		r.OK = new(r.MissedBy == "")
	}
	return r
}

func valueOf(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

// describe adds to each result where it was measured, and how.
func (b *bench) describe() {
	m, versions, settings := machine(), b.versions(), b.settings()
	for i := range b.results {
		r := &b.results[i]
		r.Machine, r.Versions, r.Settings = m, versions, settings
		for j := range r.Conditions { // a later round may have been faster
			r.Conditions[j].Noise = r.Conditions[j].noise(b.fastest)
		}
		r.Quiet = allQuiet(r.Conditions)
	}
}

func (b *bench) versions() map[string]string {
	versions := map[string]string{"go": runtime.Version(), "outbox-cdc": revision()}
	if b.server != nil {
		versions["postgres"] = b.server.Version()
	}
	switch {
	case b.fake:
		versions["kafka"] = "kfake"
	case b.cluster != nil:
		versions["kafka"] = harness.KafkaVersion()
	}
	return versions
}

func (b *bench) settings() map[string]string {
	settings := map[string]string{"rows": fmt.Sprint(b.rows), "rounds": fmt.Sprint(b.rounds), "payload_bytes": "256", "partitions": "6"}
	for k, v := range postgresSettings {
		settings["postgres."+k] = v
	}
	return settings
}

// machine reads what Linux tells; elsewhere some of it stays empty.
func machine() Machine {
	m := Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU()}
	m.CPU, _ = procText("/proc/cpuinfo", "model name")
	kib, _ := procField("/proc/meminfo", "MemTotal")
	m.GiB = float64(int(kib/1024/1024*10)) / 10
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(text), " ")
	}
	return m
}

// revision is the commit that is measured.
func revision() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--tags").Output()
	if err == nil {
		return strings.TrimSpace(string(out))
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

// chosen are the bars that ONLY names, separated by commas; a name ending in …
// or being the beginning of a longer one (scale, cost) means all of them. Empty:
// all bars, and not what is no bar.
func chosen(only string) ([]bar, error) {
	var some []bar
	if only == "" {
		for _, a := range bars {
			if isBar.MatchString(a.name) {
				some = append(some, a)
			}
		}
		return some, nil
	}
	for _, name := range strings.Split(only, ",") {
		name = strings.TrimSpace(name)
		found := false
		for _, a := range bars {
			if strings.EqualFold(a.name, name) || !isBar.MatchString(a.name) && strings.HasPrefix(a.name, strings.ToLower(name)) {
				some, found = append(some, a), true
			}
		}
		if !found {
			return nil, fmt.Errorf("nothing is measured as %q", name)
		}
	}
	return some, nil
}

var isBar = regexp.MustCompile(`^B\d+$`)
