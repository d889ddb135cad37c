package integration

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// sampler measures the slot, the waiting rows and the processes' memory during a whole run, for the verdicts
// on I6, I8 and I9.
type sampler struct {
	w    *world
	conn *pgx.Conn
	// pending asks for the rows that wait.
	pending string

	mu        sync.Mutex
	processes []*harness.Process
	samples   []history.Sample
}

// What a run may need: wal_budget's default, and twenty times the rows in memory.
const (
	sampledBudget = 8 << 30
	sampledMemory = 320 << 20
)

// sampled begins to look, several times a second until the test ends. Processes
// are those that are started later.
func (w *world) sampled() {
	s := &sampler{w: w, pending: samplePending}
	if w.stream["delivery"] == "exactly_once" {
		s.pending += sampleLeft
	}
	w.sampler = s
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	w.t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		ticker := time.NewTicker(250 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			if sample, err := s.look(ctx); err == nil { // else the server is away
				s.mu.Lock()
				s.samples = append(s.samples, sample)
				s.mu.Unlock()
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
		if s.conn != nil {
			_ = s.conn.Close(context.WithoutCancel(ctx))
		}
	}()
}

// runs adds a process to those whose memory is looked at.
func (s *sampler) runs(p *harness.Process) {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.processes = append(s.processes, p)
	}
}

// taken returns the samples that were taken so far.
func (s *sampler) taken() []history.Sample {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.samples[:len(s.samples):len(s.samples)]
}

// judged returns the rules, together with those that hold for every sampled run.
func (s *sampler) judged(r history.Rules) history.Rules {
	if s != nil {
		r.WALBudget, r.Memory = sampledBudget, sampledMemory
	}
	return r
}

const (
	sampleSlot = `SELECT coalesce(max(active_pid), 0), coalesce(max(confirmed_flush_lsn) - '0/0', 0)::bigint,
		coalesce(pg_current_wal_insert_lsn() - min(restart_lsn), 0)::bigint FROM pg_replication_slots WHERE database = current_database()`
	// In one statement, hence one snapshot. Some of the rows are enough.
	samplePending = `SELECT split_part(convert_from(o.payload, 'UTF8'), '|', 1) FROM outbox o WHERE o.status = 'PENDING' AND NOT EXISTS (
		SELECT FROM outbox_cdc.park p WHERE p.kind IN ('stream', 'cluster', 'table') OR p.kind = 'topic' AND p.topic = o.topic
			OR p.kind = 'key' AND p.topic = o.topic AND p.key = convert_to(o.key, 'UTF8') OR p.kind = 'row' AND p.id = ARRAY[o.id::text])`
	// With delivery: exactly_once these are remembered.
	sampleLeft = ` AND NOT EXISTS (SELECT FROM outbox_cdc.tally_left l WHERE l.id = ARRAY[o.id::text])`
	sampleEnd  = `SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint`
)

// look takes one sample. Each query is a transaction of its own, one after the other.
func (s *sampler) look(ctx context.Context) (sample history.Sample, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if s.conn == nil || s.conn.IsClosed() {
		if s.conn, err = pgx.Connect(ctx, s.w.db.Own()); err != nil {
			s.conn = nil
			return sample, err
		}
	}
	if err = s.conn.QueryRow(ctx, sampleSlot).Scan(&sample.PID, &sample.Confirmed, &sample.Retained); err != nil {
		return sample, err
	}
	rows, err := s.conn.Query(ctx, s.pending+" ORDER BY o.id LIMIT 2000")
	if err != nil {
		return sample, err
	}
	if sample.Pending, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return sample, err
	}
	sample.Memory = s.memory()
	return sample, s.conn.QueryRow(ctx, sampleEnd).Scan(&sample.End)
}

// memory returns the most resident memory of a process, or 0 where the system does
// not tell.
func (s *sampler) memory() (most uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.processes {
		select {
		case <-p.Done():
			continue
		default:
		}
		var size, resident uint64 // in pages
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID()))
		if err != nil {
			continue
		}
		if _, err := fmt.Sscan(string(text), &size, &resident); err == nil {
			most = max(most, resident*uint64(os.Getpagesize()))
		}
	}
	return most
}

// This shows that the sampler's queries are correct: they find a slot that was moved past a PENDING row.
func TestASlotMovedPastARowIsFound(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.runOnce()
	w.sampled()
	w.insertNow(w.topic, "k", 1, 10)
	samples := func(n int) {
		from := len(w.sampler.taken())
		harness.Eventually(t, 20*time.Second, func() error {
			if got := len(w.sampler.taken()) - from; got < n {
				return fmt.Errorf("%d samples", got)
			}
			return nil
		})
	}
	samples(2)
	w.db.Exec(t, `SELECT pg_replication_slot_advance(slot_name, pg_current_wal_lsn()) FROM pg_replication_slots WHERE database = current_database()`)
	samples(2)
	found := 0
	for _, v := range history.Check(w.history(), history.Rules{Unfinished: true}) {
		if v.Invariant != "I6" {
			t.Error(v)
		}
		found++
	}
	if found != 1 {
		t.Errorf("%d violations are found", found)
	}
}
