package bench

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// logged are statements of a database that the server logged since a place in
// its log, with how long each step (parse, bind, execute) took.
type logged struct {
	took float64 // ms
	step string  // parse, bind, execute, statement
	text string
}

var durationLine = regexp.MustCompile(`@(\S*) LOG: +duration: ([0-9.]+) ms  (\w+)[^:]*: `)

// statements of one database in the server's log. Statements of several lines
// go on in lines that begin with a tab.
func statements(log, database string) (all []logged) {
	for _, entry := range strings.Split(strings.ReplaceAll(log, "\n\t", " "), "\n") {
		m := durationLine.FindStringSubmatch(entry)
		if m == nil || m[1] != database {
			continue
		}
		took, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			continue
		}
		all = append(all, logged{took: took, step: m[3], text: entry[strings.Index(entry, m[0])+len(m[0]):]})
	}
	return all
}

// logStatements has the server log what new sessions of the database do.
func logStatements(t *testing.T, db *harness.DB) {
	t.Helper()
	db.Exec(t, fmt.Sprintf(`ALTER DATABASE %s SET log_min_duration_statement = 0`, db.Name))
}

// emptySweep is B7: sweep --once over a table of ten times as many SENT rows.
func (b *bench) emptySweep(t *testing.T, rows int) []sample {
	j := standard(im2be(), 10*rows)
	w := b.newWorld(t, j)
	db, table := w.dbs[0], w.tables[0]
	conn := db.Conn(t)
	for from := 0; from < j.rows; from += 100_000 {
		to := min(from+100_000, j.rows) - 1
		_, err := conn.Exec(t.Context(), fmt.Sprintf(`INSERT INTO %s (aggregate_id, event_id, topic, payload, status, sent_at)
			SELECT lpad(to_hex(i %% %d), 32, '0')::uuid, gen_random_uuid(), '%s', convert_to(rpad(i || '|', 256, 'x'), 'UTF8'), 'SENT', now()
			FROM generate_series(%d, %d) i`, table, j.keys, w.topic, from, to))
		if err != nil {
			t.Fatal(err)
		}
	}
	db.Exec(t, `VACUUM ANALYZE `+table)
	db.Exec(t, `SELECT pg_drop_replication_slot($1)`, slotOf(db))
	logStatements(t, db)
	scans := func() int {
		return harness.One[int](t, db, `SELECT seq_scan::int FROM pg_stat_user_tables WHERE relname = $1`, table)
	}
	const passes = 5
	var took []float64
	before := scans()
	for range passes {
		at := len(db.Server.Log())
		w.command("sweep", "--once")
		sum := 0.0
		for _, s := range statements(db.Server.Log()[at:], db.Name) {
			if strings.Contains(s.text, table) && strings.Contains(s.text, "PENDING") {
				sum += s.took
			}
		}
		took = append(took, sum)
	}
	s := sample{value: median(took), note: fmt.Sprintf("%d SENT rows; all statements on the table of one sweep --once, by the server's log; slowest of %d passes %.2f ms", j.rows, passes, percentile(took, 1))}
	after := sample{value: float64(scans() - before)}
	return []sample{s, after}
}

// idle is B8.
func (b *bench) idle(t *testing.T, _ int) []sample {
	w := b.newWorld(t, standard(im2be(), 1))
	w.prime()
	db := w.dbs[0]
	logStatements(t, db)
	p := w.run()
	p.ready()
	until(t.Context(), time.Now().Add(3*time.Second)) // what belongs to the start
	cpu, err := cpuOf(p.PID())
	if err != nil {
		b.cannot(t, "CPU times are read from /proc: "+err.Error())
	}
	at, began := len(db.Server.Log()), time.Now()
	until(t.Context(), began.Add(b.idleFor))
	after, err := cpuOf(p.PID())
	if err != nil {
		t.Fatal(err)
	}
	seconds := time.Since(began).Seconds()
	asked := 0
	for _, s := range statements(db.Server.Log()[at:], db.Name) {
		if s.step == "execute" || s.step == "statement" {
			asked++
		}
	}
	p.Stop(30 * time.Second)
	return []sample{
		{value: 100 * (after - cpu) / seconds, note: fmt.Sprintf("over %.0f s", seconds)},
		{value: float64(asked) / seconds},
	}
}

// takeover is B9: the leader is killed, and rows go on.
func (b *bench) takeover(t *testing.T, _ int) []sample {
	return []sample{b.leaderKilled(t, false)}
}

// leaderKilled is how long the rows of a dead leader's standby are not readable. With exactly once,
// what the leader left open holds consumers up until the standby has ended it.
func (b *bench) leaderKilled(t *testing.T, once bool) sample {
	j := standard(im2be(), 1500)
	j.once = once
	w := b.newWorld(t, j)
	w.prime()
	first := w.run()
	first.leading()
	w.listen = freeAddress(t)
	w.configure()
	second := w.run()
	second.Await(30*time.Second, "waiting as a standby")
	tr := newTrace()
	isolation, note := kgo.ReadUncommitted(), ""
	if once {
		isolation, note = kgo.ReadCommitted(), "; no row is there twice"
	}
	follow(t, w.kafka, w.topic, tr, kgo.FetchIsolationLevel(isolation))
	conn, done := w.dbs[0].Conn(t), make(chan struct{})
	go func() {
		defer close(done)
		w.writeSlowly(conn, tr, 100)
	}()
	readable := func(after time.Time) (at time.Time) {
		await(t, time.Minute, 5*time.Millisecond, func() (err error) {
			var ok bool
			if at, ok = tr.receivedAfter(after); !ok {
				err = errors.New("no row that was committed since is readable")
			}
			return err
		})
		return at
	}
	readable(time.Time{})
	first.Kill()
	killed := time.Now()
	at := readable(killed)
	<-done
	await(t, time.Minute, 20*time.Millisecond, tr.complete)
	await(t, time.Minute, 20*time.Millisecond, func() error { // some were the first one's to mark
		if n := oneFloat(w, `SELECT count(*)::float8 FROM `+w.tables[0]+` WHERE status <> 'SENT'`); n > 0 {
			return fmt.Errorf("%.0f rows are not marked", n)
		}
		return nil
	})
	second.Stop(30 * time.Second)
	if once {
		w.judge()
	}
	return sample{value: at.Sub(killed).Seconds(), note: "to the first readable row that was committed after the kill" + note}
}

// brokerBack is B10: the broker is stopped, rows wait, it comes back.
func (b *bench) brokerBack(t *testing.T, _ int) []sample {
	k := b.kafka()
	if !k.Real {
		b.cannot(t, "kfake cannot be stopped and started again")
	}
	w := b.newWorld(t, standard(im2be(), int(b.outage.Seconds())*100+500))
	w.prime()
	p := w.run()
	p.ready()
	tr := newTrace()
	conn, done := w.dbs[0].Conn(t), make(chan struct{})
	go func() {
		defer close(done)
		w.writeSlowly(conn, tr, 100)
	}()
	await(t, 30*time.Second, 20*time.Millisecond, func() error {
		return p.published(0)
	})
	k.Nodes[0].Stop()
	until(t.Context(), time.Now().Add(b.outage))
	k.Nodes[0].Start(t)
	back := time.Now()
	before, err := p.metric("outbox_cdc_rows_published_total")
	if err != nil {
		t.Fatal(err)
	}
	await(t, 2*time.Minute, 10*time.Millisecond, func() error {
		return p.published(before)
	})
	took := time.Since(back).Seconds()
	<-done
	w.delivered(p, 2*time.Minute)
	failed := harness.One[int](t, w.dbs[0], `SELECT count(*) FROM `+w.tables[0]+` WHERE status = 'FAILED'`)
	p.Stop(30 * time.Second)
	w.judge()
	return []sample{{value: took, note: fmt.Sprintf("after %v, since the broker answers; every row is in the topic once and in order", b.outage)}, {value: float64(failed)}}
}

// published is nil when more rows were acknowledged than before.
func (p *program) published(before float64) error {
	now, err := p.metric("outbox_cdc_rows_published_total")
	if err == nil && now <= before {
		err = errors.New("nothing was published")
	}
	return err
}

// startUp is B12.
func (b *bench) startUp(t *testing.T, _ int) []sample {
	w := b.newWorld(t, standard(im2be(), 1))
	w.prime()
	p := w.run()
	took := p.ready().Sub(p.began).Seconds()
	s := sample{value: took}
	if peak, err := peakOf(p.PID()); err == nil {
		s.peak = &peak
	}
	p.Stop(30 * time.Second)
	return []sample{s}
}

// writeSlowly commits all rows one by one at a rate; it is for a goroutine of
// its own.
func (w *world) writeSlowly(conn *pgx.Conn, tr *trace, perSecond int) {
	began := time.Now()
	for i := range w.job.rows {
		if !until(w.t.Context(), began.Add(time.Duration(i)*time.Second/time.Duration(perSecond))) {
			return
		}
		sql := w.insert(w.tables[0], "true", strconv.Itoa(i), strconv.Itoa(i))
		if _, err := conn.Exec(w.t.Context(), sql); err != nil {
			w.t.Errorf("writing row %d: %v", i, err)
			return
		}
		tr.begin(i, time.Now())
	}
}
