package takeover

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

const inboxEvents, accounts = 240, 7

// The consumers of examples/consumers, killed in the middle of their work, have applied
// every event once, whatever the topic has twice.
func TestConsumersApplyEachEventOnce(t *testing.T) {
	t.Parallel()
	kafka := broker(t)
	programs := map[string]func(*testing.T) *exec.Cmd{
		"Go": func(t *testing.T) *exec.Cmd {
			out := filepath.Join(t.TempDir(), "consumer")
			if text, err := exec.Command("go", "build", "-o", out, "../../examples/consumers/go").CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			return exec.Command(out)
		},
		"Java": func(t *testing.T) *exec.Cmd {
			classes := harness.Classes(t, harness.Jars(t, filepath.Join("relay", "pom.xml")), "../../examples/consumers/java/Consumer.java")
			return exec.Command("java", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classes, "Consumer")
		},
	}
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := kafka.Topic(t, 3)
			w := emptyWorld(t, outboxOf{}, kafka, topic)
			w.inbox()
			w.eventsTwice()
			cmd := program(t)
			kills := 2
			if os.Getenv("OUTBOX_TEST_LONG") != "" {
				kills = 11
			}
			for n := range kills {
				p := w.consumer(cmd)
				w.applied((n + 1) * inboxEvents / (kills + 1))
				p.Kill()
			}
			w.consumer(cmd)
			w.applied(inboxEvents + accounts)
			for account := range accounts {
				want := 0
				for n := account; n < inboxEvents; n += accounts {
					want += n
				}
				if got := harness.One[int](t, w.db, fmt.Sprintf(`SELECT balance::int FROM account WHERE id = 'account-%d'`, account)); got != want {
					t.Errorf("account %d has %d after events of %d", account, got, want)
				}
			}
		})
	}
}

// inbox makes the consumer's tables. A change takes some milliseconds, or a kill came too late.
func (w *world) inbox() {
	w.t.Helper()
	inbox, err := os.ReadFile("../../examples/consumers/inbox.sql")
	if err != nil {
		w.t.Fatal(err)
	}
	w.db.Exec(w.t, string(inbox))
	w.db.Exec(w.t, `CREATE TABLE account (id text PRIMARY KEY, balance bigint NOT NULL)`)
	w.db.Exec(w.t, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_catalog.pg_sleep(0.005); RETURN NEW; END $$`)
	w.db.Exec(w.t, `CREATE TRIGGER slow BEFORE INSERT OR UPDATE ON account FOR EACH ROW EXECUTE FUNCTION slow()`)
}

// eventsTwice produces all events, each third of them with an earlier one again, then a
// transaction that is aborted, and an event of each account that ends it.
func (w *world) eventsTwice() {
	w.t.Helper()
	event := func(id string, account, value int) *kgo.Record {
		return &kgo.Record{
			Topic: w.topic, Key: fmt.Appendf(nil, "account-%d", account), Value: fmt.Append(nil, value),
			Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte(id)}},
		}
	}
	var records, aborted, last []*kgo.Record
	for n := range inboxEvents {
		records = append(records, event(fmt.Sprint(n), n%accounts, n))
		if earlier := n - 9; n%3 == 0 && earlier >= 0 {
			records = append(records, event(fmt.Sprint(earlier), earlier%accounts, earlier))
		}
	}
	for account := range accounts {
		aborted = append(aborted, event(fmt.Sprint("aborted-", account), account, 1000))
		last = append(last, event(fmt.Sprint("last-", account), account, 0))
	}
	w.produce(records, kgo.TryCommit)
	w.produce(aborted, kgo.TryAbort)
	w.produce(last, kgo.TryCommit)
}

func (w *world) produce(records []*kgo.Record, end kgo.TransactionEndTry) {
	w.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(w.kafka.Addrs...), kgo.TransactionalID(w.topic), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		w.t.Fatal(err)
	}
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		w.t.Fatal(err)
	}
	if err := client.ProduceSync(w.t.Context(), records...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
	if err := client.EndTransaction(w.t.Context(), end); err != nil {
		w.t.Fatal(err)
	}
}

// consumer starts the program once more.
func (w *world) consumer(cmd *exec.Cmd) *harness.Process {
	w.t.Helper()
	again := exec.Command(cmd.Path, cmd.Args[1:]...)
	again.Env = append(os.Environ(), "DATABASE_URL="+w.db.Own(), "JDBC_URL="+w.jdbcURL(), "KAFKA_BROKERS="+strings.Join(w.kafka.Addrs, ","),
		"TOPIC="+w.topic, "GROUP="+w.topic, "INSTANCE=1")
	return harness.Start(w.t, again)
}

// applied waits until so many events are in the inbox.
func (w *world) applied(events int) {
	w.t.Helper()
	harness.Eventually(w.t, time.Minute, func() error {
		if n := harness.One[int](w.t, w.db, `SELECT count(*)::int FROM inbox`); n < events {
			return fmt.Errorf("%d of %d events are applied", n, events)
		}
		return nil
	})
}

// What docs/consumers.md shows of the examples is in them.
func TestConsumersPageShowsTheExamples(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/consumers.md")
	if err != nil {
		t.Fatal(err)
	}
	for language, file := range map[string]string{"go": "go/main.go", "sql": "inbox.sql"} {
		source, err := os.ReadFile(filepath.Join("../../examples/consumers", file))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(page), "```"+language+"\n")
		shown, _, ok := strings.Cut(rest, "```")
		if !ok || !strings.Contains(string(source), shown) {
			t.Errorf("examples/consumers/%s has no such text:\n%s", file, shown)
		}
	}
}
