package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// Three brokers, a topic with three replicas of which two must be in sync, and
// applications that write all the time. Brokers are killed and not waited for, so
// each answer may be lost; the producer finds out what landed, so nothing is
// published twice. One cluster starts for all of these tests.
func TestThreeBrokers(t *testing.T) {
	if testing.Short() {
		t.Skip("not in the short form")
	}
	k := harness.PrivateKafka(t, harness.KafkaOptions{Brokers: 3, Settings: map[string]string{
		// A killed broker is missed sooner than by the 9 s that are usual; one on a
		// slow machine must not be, when it starts next to the others.
		"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "500",
	}})

	// Every partition gets another leader, again and again: what is on its way to
	// the former one is refused, and is sent to the next.
	t.Run("leaders move", func(t *testing.T) {
		r := replicate(t, k)
		for range scaled(3, 30) {
			k.MoveLeaders(t, r.topic)
			r.goesOn()
			r.sentIsThere()
		}
		r.judged()
	})

	// A broker is killed, its partitions get other leaders, and it comes back. What
	// is SENT is with those that are left: acks=all. Without the first broker, the
	// only controller, nobody is elected: its partitions wait until it is back.
	t.Run("a broker is killed", func(t *testing.T) {
		r := replicate(t, k)
		for _, victim := range scaled([]int{2}, []int{1, 0, 2, 1, 0, 2}) {
			k.Nodes[victim].Kill()
			if victim != 0 {
				r.goesOn()
				r.sentIsThere()
			}
			k.Nodes[victim].Start(t)
			k.AwaitInSync(t, r.topic, 3, 60*time.Second)
			r.goesOn()
		}
		r.judged()
	})

	// With one broker of three the topic takes nothing: the broker that is left says
	// that too few replicas are in sync. Nothing is SENT, nobody is charged, the
	// program holds and says why, and goes on by itself when they are back.
	t.Run("two of three are away", func(t *testing.T) {
		r := replicate(t, k)
		k.Nodes[1].Kill()
		k.Nodes[2].Kill()
		k.AwaitInSync(t, r.topic, 1, 60*time.Second)
		r.holds("there are fewer in-sync replicas than required")
		sent := r.quiet()
		r.load.wrote(scaled(500, 5000), 2*time.Minute)
		waitUntil(t, time.Now().Add(scaled(3*time.Second, time.Minute)))
		if now := r.mustCount()[history.Sent]; now != sent {
			t.Errorf("%d rows became SENT with too few replicas in sync", now-sent)
		}
		r.holds("there are fewer in-sync replicas than required")
		r.nobodyCharged()
		k.Start(t, k.Nodes[1], k.Nodes[2])
		r.recovers(sent)
		k.AwaitInSync(t, r.topic, 3, 60*time.Second)
		r.judged()
	})

	// All three are killed at once, and started again.
	t.Run("all are killed", func(t *testing.T) {
		onlyLong(t)
		r := replicate(t, k)
		for range 3 {
			sent := r.mustCount()[history.Sent]
			for _, n := range k.Nodes {
				n.Kill()
			}
			r.holds("")
			r.load.wrote(500, 60*time.Second)
			k.Start(t, k.Nodes...)
			r.recovers(sent)
			k.AwaitInSync(t, r.topic, 3, 60*time.Second)
			r.goesOn()
			r.sentIsThere()
		}
		r.judged()
	})

	// One after another is stopped and started, the next when all are in sync again.
	t.Run("a rolling restart", func(t *testing.T) {
		onlyLong(t)
		r := replicate(t, k)
		for range 2 {
			for _, n := range k.Nodes {
				n.Stop()
				n.Start(t)
				k.AwaitInSync(t, r.topic, 3, 60*time.Second)
				r.goesOn()
				r.sentIsThere()
			}
		}
		r.judged()
	})
}

// replicated is a world with a topic of three replicas, the program, and writers
// at work.
type replicated struct {
	*world
	p    *process
	load *writers
}

func replicate(t *testing.T, k *harness.Cluster) *replicated {
	t.Helper()
	k.Start(t, k.Down()...) // a test that failed may have left some
	w := newWorld(t, surroundings{kafka: k, partitions: 6})
	k.ConfigureTopic(t, w.topic, map[string]string{"min.insync.replicas": "2"})
	k.AwaitInSync(t, w.topic, 3, 60*time.Second)
	w.serve()
	r := &replicated{world: w, p: w.run().streaming(), load: w.write(steady())}
	harness.Eventually(t, 60*time.Second, func() error {
		if r.p.metric("outbox_cdc_mode", `mode="stream"`) != 1 {
			return errors.New("the rows from before the slot are still swept")
		}
		return nil
	})
	r.goesOn()
	return r
}

// goesOn waits until all that was written up to now is SENT, whatever partition it
// went to, rows from after the last fault among it.
func (r *replicated) goesOn() {
	r.t.Helper()
	r.load.wrote(100, 60*time.Second)
	now := harness.One[time.Time](r.t, r.db, `SELECT clock_timestamp()`)
	harness.Eventually(r.t, 60*time.Second, func() error {
		n, err := harness.TryOne[int](r.t.Context(), r.db, `SELECT count(*) FROM outbox WHERE status = 'PENDING' AND created_at <= $1`, now)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d rows wait", n)
		}
		return err
	})
}

// holds waits until the program holds, says of the cluster that it cannot be used,
// and why.
func (r *replicated) holds(why string) {
	r.t.Helper()
	harness.Eventually(r.t, 60*time.Second, func() error {
		if r.p.metric("outbox_cdc_mode", `mode="hold"`) != 1 || r.p.metric("outbox_cdc_kafka_usable") != 0 {
			return errors.New("the program does not hold")
		}
		_, text, err := r.p.page("/api/v1/status")
		if err == nil && !strings.Contains(text, why) {
			err = fmt.Errorf("the program does not say %q: %s", why, text)
		}
		return err
	})
}

// recovers waits until more than so many rows are SENT, the brokers being back.
func (r *replicated) recovers(sent int) {
	r.t.Helper()
	up := time.Now()
	r.sentBeyond(sent, 60*time.Second)
	r.recovery = max(r.recovery, time.Since(up))
}

// quiet waits until nothing becomes SENT any more, and gives how many rows are.
func (r *replicated) quiet() (sent int) {
	r.t.Helper()
	still := 0
	harness.Eventually(r.t, 30*time.Second, func() error {
		now := r.mustCount()[history.Sent]
		if still++; now != sent {
			sent, still = now, 0
		}
		if still < 20 { // looks, about two seconds
			return fmt.Errorf("%d rows are SENT, and that changes", sent)
		}
		return nil
	})
	return sent
}

// sentIsThere expects every row that is SENT by now in the log of the topic.
func (r *replicated) sentIsThere() {
	r.t.Helper()
	var sent []string
	err := r.query(`SELECT split_part(convert_from(payload, 'UTF8'), '|', 1) FROM outbox WHERE status = 'SENT'`, func(rows pgx.Rows) error {
		var ref string
		err := rows.Scan(&ref)
		sent = append(sent, ref)
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	there := map[string]bool{}
	read := r.kafka.Records
	if r.records != nil {
		read = r.records
	}
	for _, record := range read(r.t, r.topic) {
		there[r.record(record).Ref] = true
	}
	if missing := slices.DeleteFunc(sent, func(ref string) bool { return there[ref] }); len(missing) > 0 {
		r.t.Errorf("%d rows are SENT and not in the log, %s among them", len(missing), missing[0])
	}
}

// judged ends the run and judges it: nothing is published twice, nobody is charged.
// Where the test measured no recovery, it is the longest that a row had to wait.
func (r *replicated) judged() {
	r.t.Helper()
	r.load.stop()
	r.settled(60 * time.Second)
	r.p.stop()
	if r.recovery == 0 {
		waited := harness.One[float64](r.t, r.db, `SELECT max(extract(epoch FROM sent_at - created_at))::float8 FROM outbox`)
		r.recovery = time.Duration(waited * float64(time.Second))
	}
	r.judge(history.Rules{})
	r.nobodyCharged()
}
