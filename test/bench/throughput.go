package bench

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// sample is one round's measurement of one line.
type sample struct {
	value     float64
	reference *float64
	cpu       CPU
	peak      *float64 // MiB
	wal       *float64 // bytes per row
	note      string
}

// over is a sample with what it is held against.
func (s sample) over(reference float64) sample {
	s.reference = &reference
	return s
}

func (s sample) ratio() *float64 {
	if s.reference == nil || *s.reference == 0 {
		return nil
	}
	return new(s.value / *s.reference)
}

// deliver has the program deliver all rows of a world and gives rows per
// second: from when it leads until the last row is acknowledged, or marked
// where the table is written to. The topic is judged afterwards.
func (b *bench) deliver(w *world) sample {
	t := w.t
	t.Helper()
	cpu := b.cpu(0)
	wal := harness.One[string](t, w.dbs[0], `SELECT pg_current_wal_insert_lsn()::text`)
	p := w.run()
	began := p.leading()
	w.delivered(p, b.patience(w.job))
	took := time.Since(began)
	s := sample{value: float64(w.job.rows) / took.Seconds(), cpu: b.cpu(p.PID()).since(cpu)}
	if peak, err := peakOf(p.PID()); err == nil {
		s.peak = &peak
	}
	written := harness.One[float64](t, w.dbs[0], `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::text::pg_lsn)::float8`, wal)
	s.wal = new(written / float64(w.job.rows))
	w.tookTheWay(p)
	p.Stop(30 * time.Second)
	w.judge()
	return s
}

// delivered waits until the program has counted every row as acknowledged, or as
// marked where the table is written to; judge holds it against the truth.
func (w *world) delivered(p *program, within time.Duration) {
	w.t.Helper()
	count := "outbox_cdc_rows_marked_total"
	if w.job.layout.config["published"] == "none" {
		count = "outbox_cdc_rows_published_total"
	}
	p.reaches(within, count, float64(w.job.rows))
}

// tookTheWay fails the round where rows did not come the way that is measured:
// from the slot, or from the table after the slot was lost.
func (w *world) tookTheWay(p *program) {
	w.t.Helper()
	swept, err := p.metric("outbox_cdc_rows_swept_total")
	if err != nil {
		w.t.Fatal(err)
	}
	if lost := w.slotLost; lost == (int(swept) < w.job.rows/2) {
		w.t.Fatalf("the run does not count: %.0f rows of %d were swept; outbox-cdc said:\n%s", swept, w.job.rows, p.Tail(40))
	}
}

// judge fails the round where the topic does not hold every row once and in
// order per key, or a row is not marked.
func (w *world) judge() {
	w.t.Helper()
	judgeTopic(w.t, w.kafka, w.topic, newJudge(w.job.rows, w.job.keys))
	for _, db := range w.dbs {
		for _, table := range w.tables {
			var left int
			switch {
			case w.job.layout.status != "":
				left = harness.One[int](w.t, db, fmt.Sprintf(`SELECT count(*) FROM %s WHERE %s <> 'SENT'`, table, w.job.layout.status))
			case w.job.layout.config["published"] == "delete":
				left = harness.One[int](w.t, db, `SELECT count(*) FROM `+table)
			}
			if left > 0 {
				w.t.Fatalf("the run does not count: %d rows of %s are not marked", left, table)
			}
		}
	}
}

// streamed is a whole run of a job: insert, then deliver.
func (b *bench) streamed(t *testing.T, j job) sample {
	w := b.newWorld(t, j)
	w.prime()
	w.fill()
	return b.deliver(w)
}

// swept is a run in which the slot is lost before the program starts.
func (b *bench) swept(t *testing.T, j job) sample {
	w := b.newWorld(t, j)
	w.slotLost = true
	w.fill()
	w.dbs[0].Exec(t, `SELECT pg_drop_replication_slot($1)`, slotOf(w.dbs[0]))
	return b.deliver(w)
}

// decoded is B1: the program, the server's own decoding of the same rows, and
// pg_recvlogical where it is installed.
func (b *bench) decoded(t *testing.T, rows int) []sample {
	w := b.newWorld(t, standard(unmarked(), rows))
	w.prime()
	db := w.dbs[0]
	for _, slot := range []string{"ref_", "recv_"} {
		db.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, slot+slotOf(db))
	}
	w.fill()
	s := b.deliver(w)
	began := time.Now()
	harness.One[int](t, db, `SELECT count(*) FROM pg_logical_slot_get_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', 'outbox')`, "ref_"+slotOf(db))
	byServer := float64(rows) / time.Since(began).Seconds()
	received, err := recvlogical(t, db, "recv_"+slotOf(db))
	if err != nil {
		return []sample{s.over(byServer), {value: s.value, note: err.Error()}}
	}
	return []sample{s.over(byServer), {value: s.value, reference: new(float64(rows) / received.Seconds())}}
}

// recvlogical is how long pg_recvlogical takes for all that a slot has.
func recvlogical(t *testing.T, db *harness.DB, slot string) (time.Duration, error) {
	binary, err := db.Server.Binary("pg_recvlogical")
	if err != nil {
		if binary, err = exec.LookPath("pg_recvlogical"); err != nil {
			return 0, fmt.Errorf("no reference: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	end := harness.One[string](t, db, `SELECT pg_current_wal_lsn()::text`)
	began := time.Now()
	out, err := exec.CommandContext(ctx, binary, "-d", db.DSN, "--slot", slot, "--start", "--endpos", end, "--no-loop",
		"-f", "/dev/null", "-o", "proto_version=1", "-o", "publication_names=outbox").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("no reference: pg_recvlogical: %w: %s", err, out)
	}
	return time.Since(began), nil
}

// markedBare is B2's reference: the same rows marked by unnest UPDATEs of 1000
// on one connection, with nothing else running.
func (b *bench) markedBare(t *testing.T, rows int) float64 {
	w := b.newWorld(t, standard(im2be(), rows))
	w.fill()
	conn := w.dbs[0].Conn(t)
	var first, second []pgtype.UUID
	found, err := conn.Query(t.Context(), `SELECT aggregate_id, event_id FROM outbox0 ORDER BY created_at`)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	for found.Next() {
		var a, e pgtype.UUID
		if err := found.Scan(&a, &e); err != nil {
			t.Fatal(err)
		}
		first, second = append(first, a), append(second, e)
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for from := 0; from < rows; from += 1000 {
		to := min(from+1000, rows)
		_, err := conn.Exec(t.Context(), `UPDATE outbox0 o SET status = 'SENT', sent_at = now(), last_error = NULL, record_version = record_version + 1
			FROM unnest($1::uuid[], $2::uuid[]) u(a, e) WHERE o.aggregate_id = u.a AND o.event_id = u.e AND o.status = 'PENDING'`, first[from:to], second[from:to])
		if err != nil {
			t.Fatal(err)
		}
	}
	return float64(rows) / time.Since(began).Seconds()
}
