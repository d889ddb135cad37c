package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// relay is a program that publishes the rows of a world's table: ours, or a
// peer. All have the same table, rows, broker and machine.
type relay struct {
	name          string
	version       string
	configuration string // where it is kept
	layout        layout
	marks         bool   // it writes SENT back
	missing       string // why it cannot be run here
	prepare       func(w *world)
	command       func(w *world) *exec.Cmd
}

// relays of the comparison.
func relays(t *testing.T) []*relay {
	return []*relay{ours("outbox-cdc, published: none", unmarked(), false), ours("outbox-cdc, SENT written back", im2be(), true), debezium(t), goPqCdcKafka(t)}
}

func ours(name string, l layout, marks bool) *relay {
	return &relay{
		name: name, version: revision(), configuration: "test/bench/world.go", layout: l, marks: marks,
		prepare: (*world).initialize,
		command: func(w *world) *exec.Cmd {
			return exec.Command(harness.Binary(w.t), "run", "--config", w.file, "--log-format", "json")
		},
	}
}

// debezium is the connector with the outbox event router in Kafka Connect, as
// Kafka's own script starts it.
func debezium(t *testing.T) *relay {
	const folder = "peers/debezium"
	pom := filepath.Join("..", "takeover", "router", "pom.xml")
	jars := harness.Jars(t, pom)
	return &relay{
		name: "Debezium with the outbox router", version: versionIn(jars, "debezium-connector-postgres-"), configuration: "test/bench/" + folder, layout: unmarked(),
		prepare: func(w *world) {
			w.dbs[0].Exec(w.t, `CREATE PUBLICATION outbox FOR TABLE outbox0 WITH (publish = 'insert')`)
			for _, name := range []string{"worker.properties", "connector.properties"} {
				w.fillIn(filepath.Join(filepath.FromSlash(folder), name), name)
			}
		},
		command: func(w *world) *exec.Cmd {
			return exec.Command("java", "-Xms256M", "-Xmx2G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
				"-cp", filepath.Join(jars, "*"), "org.apache.kafka.connect.cli.ConnectStandalone", filepath.Join(w.dir, "worker.properties"), filepath.Join(w.dir, "connector.properties"))
		},
	}
}

// versionIn is the version of the jar whose name begins so.
func versionIn(jars, name string) string {
	found, _ := filepath.Glob(filepath.Join(jars, name+"*.jar")) // the pattern is right
	if len(found) == 0 {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), name), ".jar")
}

// goPqCdcKafka builds a connector of that library, in a module of its own.
func goPqCdcKafka(t *testing.T) *relay {
	const folder, library = "peers/go-pq-cdc-kafka/module", "github.com/Trendyol/go-pq-cdc-kafka"
	r := &relay{name: "go-pq-cdc-kafka", configuration: "test/bench/" + folder, layout: unmarked(), prepare: func(*world) {}}
	dir := t.TempDir()
	run := func(args ...string) string {
		if r.missing != "" {
			return ""
		}
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			r.missing = "`go " + args[0] + "` of its module failed"
			t.Logf("%s: %s: %v: %s", r.name, r.missing, err, bytes.TrimSpace(out))
		}
		return string(bytes.TrimSpace(out))
	}
	if err := os.CopyFS(dir, os.DirFS(filepath.FromSlash(folder))); err != nil {
		t.Fatal(err)
	}
	version := "latest"
	if v := os.Getenv("BENCH_GO_PQ_CDC_KAFKA"); v != "" {
		version = v
	}
	run("get", library+"@"+version)
	run("mod", "tidy")
	run("build", "-o", "relay", ".")
	r.version = run("list", "-m", "-f", "{{.Version}}", library)
	r.command = func(w *world) *exec.Cmd {
		cmd := exec.Command(filepath.Join(dir, "relay"))
		cmd.Env = os.Environ()
		for name, value := range map[string]string{
			"HOST": "Host", "POSTGRES_PORT": "PostgresPort", "USER": "User", "PASSWORD": "Password", "DATABASE": "Database", "SLOT": "Slot", "PORT": "Port", "KAFKA": "Kafka",
		} {
			cmd.Env = append(cmd.Env, "PEER_"+name+"="+w.facts()[value])
		}
		return cmd
	}
	return r
}

// facts are what a peer has to be told about a world.
func (w *world) facts() map[string]string {
	c, err := pgx.ParseConfig(w.dbs[0].DSN)
	if err != nil {
		w.t.Fatal(err)
	}
	password := c.Password
	if password == "" {
		password = "any" // the server trusts, and some relays want one
	}
	_, port, _ := strings.Cut(w.listen, ":")
	return map[string]string{
		"Host": c.Host, "PostgresPort": fmt.Sprint(c.Port), "User": c.User, "Password": password, "Database": c.Database,
		"Slot": slotOf(w.dbs[0]), "Kafka": w.kafka.Addrs[0], "Port": port, "Dir": w.dir,
	}
}

// fillIn puts a peer's file into the world's folder.
func (w *world) fillIn(path, name string) {
	w.t.Helper()
	page, err := template.ParseFiles(path)
	if err != nil {
		w.t.Fatal(err)
	}
	var text bytes.Buffer
	if err := page.Execute(&text, w.facts()); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.dir, name), text.Bytes(), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// figures are what was measured of a relay, by the measure's name.
type figures map[string]float64

// race is a relay at work in a world of its own.
type race struct {
	b *bench
	t *testing.T
	r *relay
	w *world
	p *harness.Process
}

// primed makes a world, and has the relay publish a few rows in it and stop: a
// slot, and offsets where they are kept elsewhere, are there from then on.
func (b *bench) primed(t *testing.T, r *relay, j job) *race {
	t.Helper()
	j.layout = r.layout
	w := b.place(t, j)
	w.dir = t.TempDir()
	r.prepare(w)
	c := &race{b: b, t: t, r: r, w: w}
	c.start()
	c.streams(2 * time.Minute)
	topic := w.topic
	w.topic = w.kafka.Topic(t, 1)
	w.dbs[0].Exec(t, w.insert("outbox0", "true", "1", "100"))
	await(t, time.Minute, 100*time.Millisecond, func() error {
		if n, err := w.kafka.End(t.Context(), w.topic); err != nil || n < 100 {
			return fmt.Errorf("%s has published %d rows of 100 (%w)", r.name, n, err)
		}
		return nil
	})
	w.topic = topic
	c.stop()
	return c
}

func (c *race) start() {
	c.t.Helper()
	c.p = harness.Start(c.t, c.r.command(c.w))
}

// stop asks the relay to end. Java does so with a code of its own.
func (c *race) stop() {
	c.t.Helper()
	c.p.Signal(syscall.SIGTERM)
	select {
	case <-c.p.Done():
	case <-time.After(30 * time.Second):
		c.p.Kill()
	}
}

// streams waits until the relay reads the database's slot.
func (c *race) streams(within time.Duration) {
	c.t.Helper()
	await(c.t, within, 50*time.Millisecond, func() error {
		n := harness.One[int](c.t, c.w.dbs[0], `SELECT count(*)::int FROM pg_replication_slots s JOIN pg_stat_replication r ON r.pid = s.active_pid
			WHERE r.state = 'streaming' AND s.database = current_database()`)
		if n == 0 {
			return fmt.Errorf("%s does not stream; it said:\n%s", c.r.name, c.p.Tail(20))
		}
		return nil
	})
}

// throughput is rows that wait, as after an outage: from the process's start until
// the last is readable, or marked where the relay does so.
func (b *bench) relayThroughput(t *testing.T, r *relay) figures {
	c := b.primed(t, r, standard(layout{}, b.rows))
	c.w.fill()
	cpu, began := b.cpu(0), time.Now()
	c.start()
	first := c.published(began, 1)
	c.published(began, int64(b.rows))
	if r.marks {
		p := &program{Process: c.p, t: t, address: c.w.listen, began: began}
		p.reaches(b.patience(c.w.job), "outbox_cdc_rows_marked_total", float64(b.rows))
	}
	took := time.Since(began)
	cpu = b.cpu(c.p.PID()).since(cpu)
	peak, _ := peakOf(c.p.PID()) // 0 where there is no /proc
	c.stop()
	judgeTopic(t, c.w.kafka, c.w.topic, newJudge(c.w.job.rows, c.w.job.keys))
	rows, perRow := float64(b.rows), func(seconds *float64) float64 { return valueOf(seconds) / float64(b.rows) * 1e6 }
	return figures{
		"rows_per_s": rows / took.Seconds(), "rows_per_s_steady": rows / (took - first).Seconds(), "peak_mib": peak,
		"relay_cpu_us": perRow(cpu.OutboxCDC), "postgres_cpu_us": perRow(cpu.Postgres), "kafka_cpu_us": perRow(cpu.Kafka),
	}
}

// published waits until the topic has so many records, and says how long it took.
func (c *race) published(began time.Time, n int64) time.Duration {
	c.t.Helper()
	for {
		end, err := c.w.kafka.End(c.t.Context(), c.w.topic)
		took := time.Since(began)
		switch {
		case err == nil && end >= n:
			return took
		case took > c.b.patience(c.w.job):
			c.t.Fatalf("%s: %d of %d rows are in the topic after %v (%v); it said:\n%s", c.r.name, end, n, took, err, c.p.Tail(30))
		}
		until(c.t.Context(), time.Now().Add(nextLook(took, float64(end)/float64(n))))
	}
}

// relayLatency is commit to readable at 200 and 1,000 rows a second.
func (b *bench) relayLatency(t *testing.T, r *relay) figures {
	c := b.primed(t, r, standard(layout{}, b.rows))
	c.start()
	c.streams(2 * time.Minute)
	tr := newTrace()
	follow(t, c.w.kafka, c.w.topic, tr)
	all, next := figures{}, 0
	for _, perSecond := range relayRates {
		n, began := perSecond*int(b.lasting.Seconds()), time.Now()
		c.w.write(t.Context(), tr, next, next+n, perSecond, nil)
		next += n
		await(t, time.Minute, 10*time.Millisecond, tr.complete)
		maps.Copy(all, percentilesOf(perSecond, tr.milliseconds(began.Add(settlingOf(b.lasting)))))
	}
	c.stop()
	return all
}

var relayRates = []int{200, 1000}

func percentilesOf(perSecond int, took []float64) figures {
	return figures{fmt.Sprintf("p50_%d_ms", perSecond): percentile(took, 0.5), fmt.Sprintf("p99_%d_ms", perSecond): percentile(took, 0.99)}
}

// kafkaAlone is the same with nothing between producer and consumer.
func (b *bench) kafkaAlone(t *testing.T) figures {
	all := figures{}
	for _, perSecond := range relayRates {
		maps.Copy(all, percentilesOf(perSecond, b.brokerAlone(t, perSecond, b.lasting)))
	}
	return all
}

// The faults: so many kills of the relay and of the broker, while rows are
// written at a rate.
const (
	relayKills, brokerKills = 6, 2
	faultRate               = 200
	recoveredWithin         = time.Minute
)

// relayFaults kills the relay and the broker and drops the slot while rows are
// written. What is readable twice, or never, is counted after each.
func (b *bench) relayFaults(t *testing.T, r *relay) figures {
	c := b.primed(t, r, standard(layout{}, b.rows))
	f := &faults{race: c, tr: newTrace(), found: figures{}}
	follow(t, c.w.kafka, c.w.topic, f.tr)
	c.start()
	c.streams(2 * time.Minute)
	f.during("kills", func() {
		for range relayKills {
			f.pause(2 * time.Second)
			c.p.Kill()
			killed := time.Now()
			c.start()
			f.recovered("kills", killed)
		}
	})
	f.during("brokers", func() {
		for range brokerKills {
			f.pause(2 * time.Second)
			c.w.kafka.Nodes[0].Kill()
			c.w.kafka.Nodes[0].Start(t)
			f.recovered("brokers", time.Now())
		}
	})
	f.during("slot", func() {
		f.pause(time.Second)
		c.p.Kill()
		f.pause(time.Second)
		f.dropSlot()
		f.pause(time.Second)
		began := time.Now()
		c.start()
		f.recovered("slot", began)
	})
	c.stop()
	return f.found
}

// faults are what happens to a relay while rows are written, and what it did.
type faults struct {
	*race
	tr    *trace
	next  int
	took  map[string][]float64
	found figures
}

func (f *faults) pause(d time.Duration) { until(f.t.Context(), time.Now().Add(d)) }

// during has rows written while something happens, waits until the topic has
// them or nothing comes any more, and counts.
func (f *faults) during(name string, happens func()) {
	f.t.Helper()
	copies, lost := f.tr.repeated(), f.tr.missing()
	f.took = map[string][]float64{}
	ctx, stop := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.w.write(ctx, f.tr, f.next, f.next+faultRate*3600, faultRate, nil)
	}()
	happens()
	f.pause(time.Second)
	stop()
	<-done
	f.settle()
	f.next += faultRate * 3600
	f.found[name+"_lost"] = float64(f.tr.missing() - lost)
	f.found[name+"_duplicates"] = float64(f.tr.repeated() - copies)
	if took := f.took[name]; len(took) > 0 {
		f.found[name+"_recovery_s"], f.found[name+"_recovery_max_s"] = median(took), percentile(took, 1)
	}
}

// settle waits until everything is readable, or nothing came for a while.
func (f *faults) settle() {
	const nothingFor = 15 * time.Second
	missing, since := f.tr.missing(), time.Now()
	for missing > 0 && time.Since(since) < nothingFor {
		f.pause(100 * time.Millisecond)
		if now := f.tr.missing(); now != missing {
			missing, since = now, time.Now()
		}
	}
	f.pause(time.Second) // copies come after their row
}

// recovered notes how long it takes until a row is readable that was committed
// after a moment. A relay that ends by itself is started again, as a supervisor does.
func (f *faults) recovered(name string, after time.Time) {
	f.t.Helper()
	for time.Since(after) < recoveredWithin {
		if at, ok := f.tr.receivedAfter(after); ok {
			f.took[name] = append(f.took[name], at.Sub(after).Seconds())
			return
		}
		select {
		case <-f.p.Done():
			f.pause(time.Second)
			f.start()
		default:
			f.pause(10 * time.Millisecond)
		}
	}
	f.t.Logf("%s: after %s, no row was readable within %v; it said:\n%s", f.r.name, name, recoveredWithin, f.p.Tail(30))
	f.found[name+"_failed"]++
}

// dropSlot drops what the relay read from, as a failover to a server without it
// does.
func (f *faults) dropSlot() {
	f.t.Helper()
	await(f.t, 30*time.Second, 100*time.Millisecond, func() error {
		n, err := harness.TryOne[int](f.t.Context(), f.w.dbs[0], `SELECT count(pg_drop_replication_slot(slot_name))::int FROM pg_replication_slots WHERE database = current_database()`)
		if err == nil && n == 0 {
			err = errors.New("there is no slot")
		}
		return err
	})
}
