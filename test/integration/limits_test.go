package integration

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// catchUp returns a load that writes a backlog as fast as possible.
func catchUp() load {
	return load{writers: 4, keys: 40, inserts: 5, rows: 20, pad: 120}
}

// What has waited is published no faster than limits.rows_per_second lets it, in
// order, and the connection is kept meanwhile. The first half comes through the
// WAL, the second, after the loss of the slot, through the sweeper.
func TestRowsPerSecond(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 3})
	w.serve()
	w.stream["limits"] = fields{"rows_per_second": 500}
	w.runOnce()
	var p *process
	for i, before := range []string{`SELECT 1`, `SELECT pg_drop_replication_slot('` + fmt.Sprint(w.stream["slot"]) + `')`} {
		w.writeRows(catchUp(), scaled(2500, 10_000))
		counts, err := w.counts()
		if err != nil {
			t.Fatal(err)
		}
		w.db.Exec(t, before)
		began := time.Now()
		p = w.run()
		w.settled(time.Minute)
		// What comes at once is a quarter of a second's rows, of each of the two ways.
		least := time.Duration(counts[history.Pending]-250) * time.Second / 500
		if took := time.Since(began); took < least {
			t.Errorf("round %d: %d rows took %v, at least %v were to be expected", i, counts[history.Pending], took, least)
		}
		if got := p.metric("outbox_cdc_limit_rows_per_second", `reason="configured"`); got != 500 {
			t.Errorf("the limit that is told is %v", got)
		}
		// The sweep can be done before the slot is connected to.
		if n := p.streaming().metric("outbox_cdc_replication_connections_total"); n != 1 {
			t.Errorf("%v replication connections", n)
		}
		p.stop()
	}
	if n := p.logged("limits.rows_per_second"); n != 1 {
		t.Errorf("the limit is logged %d times", n)
	}
	w.judge(history.Rules{})
}

// A standby stops replaying during a catch-up: the stream slows down, but goes
// on, and it becomes faster again when the standby is.
func TestAStandbyFallsBehindDuringACatchUp(t *testing.T) {
	t.Parallel() // it mostly waits
	pair := harness.PrivatePair(t, nil)
	w := newWorld(t, surroundings{db: pair.Primary, partitions: 3})
	w.serve()
	w.stream["limits"] = fields{"rows_per_second": 2000}
	w.runOnce()
	pair.Standby.Exec(t, `SELECT pg_wal_replay_pause()`)
	for range 20 { // a backlog of rows with others' WAL in between
		w.writeRows(catchUp(), 400)
		w.db.Exec(t, `SELECT pg_logical_emit_message(false, 'filler', repeat('x', 5 << 20))`)
	}
	p := w.run().streaming()
	limit := func(reason string) float64 {
		return p.metric("outbox_cdc_limit_rows_per_second", `reason="`+reason+`"`)
	}
	low := 0.0
	harness.Eventually(t, 30*time.Second, func() error {
		if low = limit("standby_lag"); low == 0 || low > 1000 {
			return fmt.Errorf("the limit for the standby's sake is %v", low)
		}
		return nil
	})
	p.Await(10*time.Second, "rows are taken more slowly", "standby")
	pair.Standby.Exec(t, `SELECT pg_wal_replay_resume()`)
	harness.Eventually(t, 30*time.Second, func() error {
		if limit("standby_lag") > 0 || limit("recovering") == 0 && limit("configured") == 0 {
			return errors.New("the limit does not rise again")
		}
		return nil
	})
	w.settled(time.Minute)
	harness.Eventually(t, 20*time.Second, func() error {
		if got := limit("configured"); got != 2000 {
			return fmt.Errorf("with nothing to catch up with the limit is %v", got)
		}
		return nil
	})
	p.stop()
	w.judge(history.Rules{})
}
