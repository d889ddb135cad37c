package integration

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// The configuration is edited, and broken, while the program runs, and SIGHUP asks
// to read it: the program goes on with what it has read, and says so.
func TestTheConfigurationIsBrokenWhileItRuns(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	p := w.run().streaming()
	if err := os.WriteFile(filepath.Join(w.dir, "outbox-cdc.yaml"), []byte("streams: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p.Signal(syscall.SIGHUP)
		p.Await(10*time.Second, "SIGHUP: the configuration is read at the start only")
	}
	w.puts("outbox", "1")
	w.settled(30 * time.Second)
	p.stop()
	if got := w.values(); got != "1" {
		t.Errorf("published: %s", got)
	}
}

// The connection string leads to a standby: that is said, by run and by check, and
// nothing is published. As soon as the server is the primary it goes on by itself.
func TestTheConnectionLeadsToAStandby(t *testing.T) {
	t.Parallel() // it mostly waits
	pair := harness.PrivatePair(t, nil)
	w := newWorld(t, surroundings{db: pair.Primary})
	w.serve()
	pair.CaughtUp(t)
	w.stream["postgres"] = fields{"dsn": pair.Standby.DSN, "wal_sender_timeout": "3s"}
	w.puts("outbox", "1")
	p := w.run()
	p.Await(30*time.Second, "the stream does not work", "the server is read-only: point the dsn to the primary")
	p.readyz(http.StatusServiceUnavailable, "the server is read-only")
	if out, err := w.command("check", "--config", w.file()); exitCode(err) != 3 || !strings.Contains(out, "standby") {
		t.Errorf("check: %v\n%s", err, out)
	}
	pair.CaughtUp(t)
	pair.Primary.Server.Kill()
	promoted := *w.db
	promoted.DSN, promoted.Server = pair.Standby.DSN, pair.Standby.Server
	w.db = &promoted
	w.db.Exec(t, `SELECT pg_promote()`)
	p.streaming()
	w.settled(60 * time.Second)
	p.stop()
	if got := w.values(); got != "1" {
		t.Errorf("published: %s", got)
	}
}

// A broker advertises an address that nobody answers at: the error names it, and
// what to correct. Rows wait and are charged nothing.
func TestABrokerAdvertisesAWrongAddress(t *testing.T) {
	t.Parallel() // it mostly waits
	k := harness.PrivateKafka(t, harness.KafkaOptions{Proxied: true})
	w := newWorld(t, surroundings{kafka: k})
	k.Proxies[0].Refuse() // what clients are told to connect to
	w.cluster["brokers"] = []string{k.Nodes[0].Addr("PROXIED")}
	w.serve()
	p := w.run().streaming()
	w.puts("outbox", "1")
	p.Await(30*time.Second, "the Kafka cluster cannot be used", k.Addrs[0])
	harness.Eventually(t, 30*time.Second, func() error {
		if p.logged("no broker can be reached at the address that it advertises") == 0 {
			return errors.New("it is not said that brokers advertise another address")
		}
		return nil
	})
	p.readyz(http.StatusServiceUnavailable, "Kafka")
	if out, err := w.command("check", "--config", w.file()); exitCode(err) == 0 || !strings.Contains(out, "advertised.listeners") {
		t.Errorf("check: %v\n%s", err, out)
	}
	k.Proxies[0].Allow()
	w.settled(60 * time.Second)
	if n := harness.One[int](t, w.db, `SELECT max(attempts) FROM outbox`); n != 0 {
		t.Errorf("the row was charged %d attempts", n)
	}
	p.stop()
}

// Brokers without transactions, of an old protocol: rows are published in order, a row
// that Kafka refuses is found, and it is said that former leaders are not fenced.
func TestBrokersWithoutTransactions(t *testing.T) {
	t.Parallel() // it mostly waits
	k := harness.PrivateKafka(t, harness.KafkaOptions{Proxied: true})
	w := newWorld(t, surroundings{kafka: k, partitions: 3})
	limited := k.Limit(t, harness.Limits{Versions: harness.EventHubs()})
	w.serve()
	p := w.run()
	p.Await(30*time.Second, "NOT FENCED: the brokers have no transactions")
	w.writeRows(steady(), 300)
	w.settled(60 * time.Second)
	harness.Eventually(t, 30*time.Second, func() error {
		_, metrics, err := p.page("/metrics")
		if err == nil && !strings.Contains(metrics, `outbox_cdc_kafka_fenced{cluster="main",stream="s"} 0`) {
			err = errors.New("no metric says that former leaders are not fenced")
		}
		return err
	})
	if _, out, err := p.page("/api/v1/status"); err != nil || !strings.Contains(out, `"fencing": "refused"`) {
		t.Errorf("status: %v\n%s", err, out)
	}
	if out, _ := w.command("check", "--config", w.file()); !strings.Contains(out, "an old protocol") || !strings.Contains(out, "fencing: off") {
		t.Errorf("check:\n%s", out)
	}
	p.Kill()

	w.cluster["fencing"] = "off"
	p = w.run().streaming()
	w.writeRows(steady(), 300)
	w.settled(60 * time.Second)
	if _, metrics, err := p.page("/metrics"); err != nil || strings.Contains(metrics, "outbox_cdc_kafka_fenced{") || p.logged("NOT FENCED") > 0 {
		t.Errorf("with fencing: off it is still complained: %v", err)
	}
	p.stop()
	w.judge(history.Rules{})
	if n := limited.Unknown.Load(); n > 0 {
		t.Errorf("%d requests that the brokers do not know", n)
	}
}

// The disk of the table is full: rows are published and cannot be marked. They are
// published once, and marked when there is room.
func TestTheDiskOfTheTableIsFull(t *testing.T) {
	t.Parallel() // it mostly waits
	db := harness.PrivatePostgres(t, localpg.Options{})
	disk := tablespace(t, db.Server)
	w := newWorld(t, surroundings{db: db})
	w.db.Exec(t, `CREATE TABLESPACE small LOCATION '`+filepath.Join(disk, "space")+`'`)
	w.db.Exec(t, `ALTER TABLE outbox SET TABLESPACE small`)
	p := w.run().streaming()
	// The rows fill the last page, so that their marks need another one.
	w.db.Exec(t, `CREATE FUNCTION public.pause() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_catalog.pg_advisory_xact_lock_shared(1); RETURN NEW; END $$;
		CREATE TRIGGER pause BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION public.pause()`)
	lock := w.db.Conn(t)
	if _, err := lock.Exec(t.Context(), `SELECT pg_advisory_lock(1)`); err != nil {
		t.Fatal(err)
	}
	const rows = 200
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT $1, 'k' || n, convert_to(repeat('x', 500), 'UTF8') FROM generate_series(1, 200) n`, w.topic)
	w.kafka.AwaitRecords(t, w.topic, 1, 30*time.Second)
	filler := fill(t, disk)
	if _, err := lock.Exec(t.Context(), `SELECT pg_advisory_unlock(1)`); err != nil {
		t.Fatal(err)
	}
	p.Await(30*time.Second, "could not extend file")
	waitUntil(t, time.Now().Add(2*time.Second)) // does it publish again?
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	w.settled(60 * time.Second)
	harness.Eventually(t, 60*time.Second, func() error {
		n, err := harness.TryOne[int](t.Context(), w.db, `SELECT count(*) FROM outbox_cdc.park`)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d scopes are parked", n)
		}
		return err
	})
	p.stop()
	if n := len(w.kafka.Records(t, w.topic)); n != rows {
		t.Errorf("%d records of %d rows", n, rows)
	}
}

// tablespace mounts a small file system with a folder that belongs to the server.
func tablespace(t *testing.T, s *localpg.Server) string {
	t.Helper()
	info, err := os.Stat(s.DataDir())
	if err != nil {
		t.Fatal(err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("no owner of the data folder")
	}
	disk, err := os.MkdirTemp("", "outbox-cdc-disk-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(disk) })
	if err := syscall.Mount("outbox-cdc", disk, "tmpfs", 0, "size=2097152,mode=0755"); err != nil {
		t.Skipf("NOT TRIED: a full disk needs the right to mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		s.Kill()
		_ = syscall.Unmount(disk, syscall.MNT_DETACH)
	})
	space := filepath.Join(disk, "space")
	if err := errors.Join(os.Mkdir(space, 0o700), os.Chown(space, int(owner.Uid), int(owner.Gid))); err != nil {
		t.Fatal(err)
	}
	return disk
}

// The server has no connection left for the role that marks: rows wait for their
// marks, are published once, and the log names the limit.
func TestTooManyConnections(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{noInit: true})
	writer, _ := w.roles()
	w.db.Exec(t, `ALTER ROLE `+writer+` CONNECTION LIMIT 0`)
	p := w.run()
	p.Await(30*time.Second, "too many connections for role")
	w.db.Exec(t, `ALTER ROLE `+writer+` CONNECTION LIMIT -1`)
	p.streaming()
	w.puts("outbox", "1")
	w.settled(60 * time.Second)
	w.db.Exec(t, `ALTER ROLE `+writer+` CONNECTION LIMIT 0`)
	w.db.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1`, strings.Trim(writer, `"`))
	w.puts("outbox", "2")
	p.Await(30*time.Second, "too many connections for role")
	w.db.Exec(t, `ALTER ROLE `+writer+` CONNECTION LIMIT -1`)
	w.settled(60 * time.Second)
	p.stop()
	if got := w.values(); got != "1 2" {
		t.Errorf("published: %s", got)
	}
}

// The process has little memory, and a backlog of many times as much: it delivers
// all of it, in the memory that it was given.
func TestALittleMemory(t *testing.T) {
	w := newWorld(t, surroundings{})
	const rows = 300
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT $1, 'k' || n % 10, convert_to(repeat('x', 500000), 'UTF8') FROM generate_series(1, $2::int) n`, w.topic, rows)
	p := w.runInALittleMemory()
	w.settled(2 * time.Minute)
	p.keptALittleMemory()
	p.stop()
	if n := len(w.kafka.Records(t, w.topic)); n != rows {
		t.Errorf("%d records of %d rows", n, rows)
	}
}

func (w *world) runInALittleMemory() *process {
	w.t.Helper()
	w.stream["memory"] = fields{"bytes": "8MiB"}
	cmd := exec.Command("bash", "-c", fmt.Sprintf("ulimit -v %d; exec %s run --config %s --log-format json", 2<<20, harness.Binary(w.t, "failpoints"), w.file()))
	cmd.Env = append(os.Environ(), "GOMEMLIMIT=48MiB")
	p := &process{harness.Start(w.t, cmd), w.t}
	return p.streaming()
}

func (p *process) keptALittleMemory() {
	p.t.Helper()
	const mib = 150
	if n := p.Peak() >> 20; n > mib {
		p.t.Errorf("its memory was %d MiB", n)
	} else {
		p.t.Logf("its memory was %d MiB", n)
	}
}

// Rows that the application makes a thousand times as long while Kafka is away are looked at a few at a time.
func TestRowsThatGrowInAnOutage(t *testing.T) {
	t.Parallel() // it mostly waits
	k := harness.PrivateKafka(t, harness.KafkaOptions{})
	w := newWorld(t, surroundings{kafka: k})
	const rows, bytes = 300, 900_000
	p := w.runInALittleMemory()
	p.Await(30*time.Second, "handed back to the stream")
	k.Nodes[0].Stop()
	insert := func(keys, n int) {
		w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT $1, 'k' || n % $2, 'short' FROM generate_series(1, $3::int) n`, w.topic, keys, n)
	}
	insert(1, 1) // it may be on its way
	p.Await(60*time.Second, "the Kafka cluster cannot be used")
	insert(10, rows)
	waitUntil(t, time.Now().Add(6*time.Second)) // shorter outages are none
	w.db.Exec(t, `UPDATE outbox SET payload = convert_to(repeat('x', $1), 'UTF8')`, bytes)
	k.Nodes[0].Start(t)
	w.settled(2 * time.Minute)
	p.keptALittleMemory()
	if n := p.logged("parked: left to the sweeper", `"scope":"key`); n > 0 {
		t.Errorf("%d keys were parked", n)
	}
	p.stop()
	long := 0
	for _, r := range k.Records(t, w.topic) {
		if len(r.Value) == bytes {
			long++
		}
	}
	if long < rows || long > rows+1 {
		t.Errorf("%d long records of %d rows", long, rows)
	}
}
