package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// The names of the database and of the broker lead to other addresses while the program
// runs, as when their servers are replaced. The former addresses answer nothing from then on, and
// close no connection. The program gets to the new ones by itself.
func TestNamesLeadToOtherAddresses(t *testing.T) {
	t.Parallel() // it mostly waits
	const dbName, brokerName = "db.outbox.test", "broker.outbox.test"
	names := newNames(t, dbName, brokerName)
	k := harness.PrivateKafka(t, harness.KafkaOptions{Proxied: true, Host: brokerName})
	w := newWorld(t, surroundings{kafka: k, partitions: 2})
	w.small()
	through, db := w.db.Proxied(t)
	w.stream["postgres"] = fields{"dsn": strings.Replace(through.DSN, "127.0.0.1", dbName, 1), "wal_sender_timeout": "3s", "allow_plaintext": true}
	w.cluster["brokers"] = []string{strings.Replace(k.Addrs[0], "127.0.0.1", brokerName, 1)}
	p := &process{harness.Start(t, names.command(harness.Binary(t, "failpoints"), "run", "--config", w.file(), "--log-format", "json", "--log-level", "debug")), t}
	t.Cleanup(func() {
		if t.Failed() {
			w.sessions()
			p.dump()
		}
	})
	p.streaming()
	load := w.write(steady())
	load.wrote(200, 30*time.Second)
	moves := 0
	for _, host := range []string{"127.0.0.2", "127.0.0.3"} {
		moves++
		before := []*harness.Proxy{db, k.Proxies[0]}
		db, k.Proxies[0] = db.Moved(t, host), k.Proxies[0].Moved(t, host)
		names.lead(host)
		for _, former := range before {
			former.Silence(harness.Requests, harness.Replies)
		}
		load.wrote(100, 30*time.Second)
		w.recovered()
		p.streaming()
	}
	load.stop()
	w.settled(60 * time.Second)
	p.stop()
	w.judge(history.Rules{Duplicates: moves * window})
}

// names are names that lead to an address, for processes of the test's alone: they see
// another /etc/hosts.
type names struct {
	t    *testing.T
	file string
	all  []string
}

func newNames(t *testing.T, all ...string) *names {
	t.Helper()
	n := &names{t, filepath.Join(t.TempDir(), "hosts"), all}
	n.lead("127.0.0.1")
	if out, err := n.command("true").CombinedOutput(); err != nil {
		t.Skipf("NOT TRIED: names that lead elsewhere need the right to mount a file: %v: %s", err, out)
	}
	return n
}

// lead has the names lead to an address from now on.
func (n *names) lead(host string) {
	n.t.Helper()
	text := fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", host, strings.Join(n.all, " "))
	if err := os.WriteFile(n.file, []byte(text), 0o600); err != nil { // in place: a new file would not be the one that is mounted
		n.t.Fatal(err)
	}
}

// command returns a program that sees the names.
func (n *names) command(program string, args ...string) *exec.Cmd {
	script := `mount --bind "$0" /etc/hosts && exec "$@"`
	return exec.Command("unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c", script, n.file, program}, args...)...)
}
