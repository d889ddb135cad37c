package security

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// rotation is a world whose servers want a certificate and a password, which are in
// files, while rows come all the time.
type rotation struct {
	*world
	run   *harness.Process
	files string // the program's
	node  string // the broker's
}

// TestCredentialsChangeUnderLoad: passwords, client certificates and authorities of both
// servers are replaced, the old ones are refused, and every connection is cut. What is in the
// files counts from the next connection on, and nothing is lost.
func TestCredentialsChangeUnderLoad(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("not in the short form")
	}
	r := newRotation(t)
	rows := r.load()
	r.sentAgain("at first", time.Now())

	r.db.Exec(t, `ALTER ROLE cdc PASSWORD 'second'`)
	r.cut()
	r.run.Await(time.Minute, "password authentication failed")
	r.write("postgres", "second")
	r.sentAgain("PostgreSQL's password", time.Now())

	next := harness.NewAuthority(t)
	r.db.TrustsOnly(t, next, "cdc")
	r.cut()
	r.run.Await(time.Minute, "certificate signed by unknown authority")
	r.own("postgres", next)
	r.sentAgain("PostgreSQL's certificates", time.Now())

	r.kafkaUser("second")
	r.kafkaTrusts(next)
	r.kafka.Nodes[0].Kill()
	r.kafka.Nodes[0].Start(t)
	r.run.Await(time.Minute, "tls.ca_file")
	r.own("kafka", next)
	harness.Eventually(t, time.Minute, func() error { // what is kept is asked for again once it was refused
		if times := len(r.read(filepath.Join(r.files, "asked"))); times < 2*len("x\n") {
			return fmt.Errorf("the password was asked for %d times", times/2)
		}
		return nil
	})
	r.write("kafka", "second")
	r.sentAgain("Kafka's certificates and password", time.Now())

	n := rows()
	harness.Eventually(t, time.Minute, func() error {
		if left := harness.One[int](t, r.db, `SELECT count(*) FROM outbox WHERE status <> 'SENT'`); left > 0 {
			return fmt.Errorf("%d of %d rows are not SENT", left, n)
		}
		return nil
	})
	r.stopped(r.run)
	seen, last := map[string]bool{}, -1
	for _, record := range r.kafka.Records(t, r.topic) {
		value := string(record.Value)
		if seen[value] {
			continue // its acknowledgement was lost
		}
		seen[value] = true
		var i int
		if _, err := fmt.Sscan(value, &i); err != nil || i <= last {
			t.Fatalf("%s after %d: %v", value, last, err)
		}
		last = i
	}
	if len(seen) != n {
		t.Errorf("%d of %d rows are in Kafka", len(seen), n)
	}
}

func newRotation(t *testing.T) *rotation {
	first := harness.NewAuthority(t)
	r := &rotation{world: &world{t: t}, files: t.TempDir(), node: t.TempDir()}
	db := harness.PrivatePostgres(t, localpg.Options{})
	r.world = worldOn(t, db)
	r.kafkaTrusts(first)
	const safe = "listener.name.safe."
	r.kafka = harness.PrivateKafka(t, harness.KafkaOptions{
		Listeners: []harness.Listener{{Name: "SAFE", Protocol: "SASL_SSL"}},
		Settings: map[string]string{
			"sasl.enabled.mechanisms": "SCRAM-SHA-512", safe + "scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
			safe + "ssl.keystore.type": "PEM", safe + "ssl.keystore.location": filepath.Join(r.node, "own.pem"),
			safe + "ssl.truststore.type": "PEM", safe + "ssl.truststore.location": filepath.Join(r.node, "ca.pem"), safe + "ssl.client.auth": "required",
		},
	})
	r.topic = r.kafka.Topic(t, 1)
	r.kafkaUser("first")
	r.db.TrustsOnly(t, first, "cdc")
	for _, server := range []string{"postgres", "kafka"} {
		r.own(server, first)
		r.write(server, "first")
	}
	r.must("init", "--native-table") // as a superuser over the ordinary way
	db.Exec(t, `CREATE ROLE cdc SUPERUSER REPLICATION LOGIN PASSWORD 'first'`)
	path := func(name string) string { return filepath.Join(r.files, name) }
	r.stream["postgres"] = fields{
		"dsn": fmt.Sprintf("host=127.0.0.1 port=%d dbname=%s user=cdc sslmode=verify-full sslrootcert=%s sslcert=%s sslkey=%s",
			db.Server.Port(), db.Name, path("postgres-ca.pem"), path("postgres.pem"), path("postgres.key")),
		"password": fields{"file": path("postgres-password")}, "wal_sender_timeout": "3s",
	}
	r.cluster["brokers"] = r.kafka.AddrsOf("SAFE")
	r.cluster["tls"] = fields{"ca_file": path("kafka-ca.pem"), "cert_file": path("kafka.pem"), "key_file": path("kafka.key")}
	r.cluster["sasl"] = fields{ // kept for an hour, and not when it is refused
		"mechanism": "SCRAM-SHA-512", "username": "cdc", "password": fields{
			"command": []string{"sh", "-c", "echo x >>" + path("asked") + "; cat " + path("kafka-password")}, "cache": "1h",
		},
	}
	r.run = r.world.run()
	return r
}

// load inserts rows until the function is called, which says how many there are.
func (r *rotation) load() (end func() int) {
	ctx, stop := context.WithCancel(r.t.Context())
	r.t.Cleanup(stop)
	conn, n := r.db.Conn(r.t), make(chan int, 1)
	go func() {
		for i := 0; ; i++ {
			if ctx.Err() != nil {
				n <- i
				return
			}
			if _, err := conn.Exec(r.t.Context(), `INSERT INTO outbox (topic, key, payload) VALUES ($1, 'k', $2)`, r.topic, fmt.Appendf(nil, "%d", i)); err != nil {
				r.t.Error(err)
				n <- i
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return func() int { stop(); return <-n }
}

// sentAgain waits until a row that is inserted from now on is SENT.
func (r *rotation) sentAgain(what string, since time.Time) {
	r.t.Helper()
	last := harness.One[int64](r.t, r.db, `SELECT coalesce(max(id), 0) FROM outbox`)
	harness.Eventually(r.t, time.Minute, func() error {
		if !harness.One[bool](r.t, r.db, `SELECT EXISTS (SELECT FROM outbox WHERE id > $1 AND status = 'SENT')`, last) {
			return fmt.Errorf("%s: no new row is SENT", what)
		}
		return nil
	})
	r.t.Logf("%s: rows are SENT %s after the files were replaced", what, time.Since(since).Round(time.Millisecond))
}

// cut ends the program's sessions at the database.
func (r *rotation) cut() {
	r.t.Helper()
	r.db.Exec(r.t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'cdc'`)
}

func (r *rotation) write(server, password string) {
	r.t.Helper()
	r.copy(filepath.Join(r.files, server+"-password"), []byte(password+"\n"))
}

// own gives the program a certificate of the authority, and the authority.
func (r *rotation) own(server string, a *harness.Authority) {
	r.t.Helper()
	cert, key := a.Issue("client")
	r.copy(filepath.Join(r.files, server+"-ca.pem"), r.read(a.File))
	r.copy(filepath.Join(r.files, server+".pem"), r.read(cert))
	r.copy(filepath.Join(r.files, server+".key"), r.read(key))
}

// kafkaTrusts gives the broker a certificate and an authority for its next start.
func (r *rotation) kafkaTrusts(a *harness.Authority) {
	r.t.Helper()
	cert, key := a.Issue("broker")
	r.copy(filepath.Join(r.node, "own.pem"), append(r.read(key), r.read(cert)...))
	r.copy(filepath.Join(r.node, "ca.pem"), r.read(a.File))
}

func (r *rotation) kafkaUser(password string) {
	r.t.Helper()
	r.kafka.Admin(r.t, func(a sarama.ClusterAdmin) error {
		_, err := a.UpsertUserScramCredentials([]sarama.AlterUserScramCredentialsUpsert{{
			Name: "cdc", Mechanism: sarama.SCRAM_MECHANISM_SHA_512, Iterations: 4096, Salt: []byte(password), Password: []byte(password),
		}})
		return err
	})
}

func (r *rotation) read(path string) []byte {
	r.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// copy replaces a file at once, as those do who rotate secrets.
func (r *rotation) copy(path string, b []byte) {
	r.t.Helper()
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		r.t.Fatal(err)
	}
}
