package takeover

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// The libraries themselves, from their package registries: their own migration makes
// the table, and their own relay sends the same rows to the same Kafka as outbox-cdc.
// Each is a program in a folder of its own, with its own list of packages. Where they
// cannot be fetched, the test is skipped.

// watermill builds the program of test/takeover/watermill.
func watermill(t *testing.T) string {
	t.Helper()
	dir, out := "watermill", filepath.Join(t.TempDir(), "watermill")
	for _, args := range [][]string{{"list", "-deps", "."}, {"build", "-o", out, "."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		if text, err := cmd.CombinedOutput(); err != nil && args[0] == "list" {
			t.Skipf("NOT TESTED: the packages of Watermill cannot be fetched: %v\n%s", err, text)
		} else if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	return out
}

var forwarder = outboxOf{profile: "watermill-forwarder", table: "public.watermill_outbox"}

// message is what the application publishes by way of the forwarder.
type message struct {
	UUID, Topic string
	Payload     []byte
	Metadata    map[string]string
}

func messages(topics ...string) []message {
	contents := [][]byte{nil, []byte(`{"b": 1.50, "a": [1, 2]}`), {}, []byte("Überweisung"), []byte("\x00\xff"), []byte(`"quoted \u0041"`), bytes.Repeat([]byte("x"), 100_000)}
	metadata := []map[string]string{{}, nil, {"source": "shop"}, {"Zürich": "<ü>&"}, {"": ""}} // the library has no order of several
	var all []message
	for i := range 24 {
		all = append(all, message{
			UUID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), Topic: topics[i%len(topics)],
			Payload: contents[i%len(contents)], Metadata: metadata[i%len(metadata)],
		})
	}
	return all
}

// Watermill's forwarder and outbox-cdc make the same records of the same envelopes.
func TestParityWithWatermill(t *testing.T) {
	t.Parallel()
	kafka := broker(t)
	program := watermill(t)
	topics := []string{kafka.Topic(t, 1), kafka.Topic(t, 1)}
	all := messages(topics...)
	write := func(w *world, part []message) {
		t.Helper()
		text, err := json.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, "write", w.db.Own())
		cmd.Stdin = bytes.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	sent := func(times int) (records []harness.Record) {
		t.Helper()
		for _, topic := range topics {
			records = append(records, kafka.AwaitRecords(t, topic, times*len(all)/2, time.Minute)...)
		}
		return records
	}
	before := emptyWorld(t, forwarder, kafka, topics[0])
	write(before, all)
	relay := harness.Start(t, exec.Command(program, "relay", before.db.Own(), kafka.Addrs[0]))
	theirs := sent(1)
	relay.Signal(syscall.SIGINT)
	relay.Ended(time.Minute)

	after := emptyWorld(t, forwarder, kafka, topics[0])
	write(after, all[:10])
	p := after.run()
	p.Await(time.Minute, `"message":"streaming"`)
	write(after, all[10:])
	ours := beyondEach(sent(2), theirs)
	p.Stop(30 * time.Second)
	same(t, theirs, ours)
	if n := harness.One[int](t, after.db, `SELECT count(*)::int FROM watermill_outbox`); n > 0 {
		t.Errorf("%d envelopes are left", n)
	}
}

// beyondEach is beyond for the records of several topics.
func beyondEach(all, others []harness.Record) (rest []harness.Record) {
	byTopic := func(records []harness.Record) map[string][]harness.Record {
		parts := map[string][]harness.Record{}
		for _, r := range records {
			parts[r.Topic] = append(parts[r.Topic], r)
		}
		return parts
	}
	known := byTopic(others)
	for topic, records := range byTopic(all) {
		rest = append(rest, beyond(records, known[topic])...)
	}
	return rest
}
