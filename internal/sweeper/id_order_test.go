package sweeper

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

const (
	always = -time.Hour // the first rows of every page count as late
	never  = time.Hour
)

// Rows of one transaction are swept page by page, while rows are marked, tried, parked and given back. Each
// page has every key's first rows in table order; once all rows are in the ID order, in the order of commits.
func TestAnIDOrderKeepsTheOrderOfKeys(t *testing.T) {
	for seed := range uint64(4) {
		for _, slow := range []time.Duration{never, always} {
			t.Run(fmt.Sprint(seed, slow), func(t *testing.T) {
				t.Parallel()
				agendaRun(t, rand.New(rand.NewPCG(seed, 0)), slow)
			})
		}
	}
}

func agendaRun(t *testing.T, rng *rand.Rand, slow time.Duration) {
	b := newBench(t, fixture.Plain())
	b.sweeper.maxOrderIDs, b.sweeper.slowFetch = 100+rng.IntN(900), slow
	sorting := newBenchOn(t, b.db, b.db.DSN, b.table)
	sorting.sweeper.slowFetch = never
	b.db.Exec(t, `INSERT INTO plain (key, body, created_at) SELECT i, 'before', now() - interval '1 h' FROM generate_series(1, 30) i`)
	b.db.Exec(t, `DO $$ BEGIN FOR n IN 1..20 LOOP INSERT INTO plain (key, body) SELECT i % 100, n || '/' || i FROM generate_series(1, 60) i; END LOOP; END $$`)
	b.db.Exec(t, `INSERT INTO plain (key, body) SELECT i, 'after' FROM generate_series(1, 130) i`)
	flight := map[string]*outbox.Row{}
	parked := map[outbox.Scope]bool{}
	used := 0
	for step := 0; ; step++ {
		req := b.everything(100 + rng.IntN(30))
		if rng.IntN(5) == 0 {
			req.MaxBytes = 5000
		}
		for id := range flight {
			req.Parts[0].ExcludeIDs = append(req.Parts[0].ExcludeIDs, id)
		}
		for s := range parked {
			req.Parts[0].Exclude = append(req.Parts[0].Exclude, s)
		}
		if a := b.sweeper.idOrders[b.table]; a != nil && a.all == (slow == always) {
			used++
		}
		page := b.sweep(req)
		clear(sorting.sweeper.idOrders)
		all := req
		all.Limit, all.MaxBytes = 1_000_000, 0
		want := sorting.sweep(all).Rows
		if len(page.Rows) < min(req.Limit, len(want)) && req.MaxBytes == 0 || len(page.Rows) == 0 && len(want) > 0 {
			t.Fatalf("step %d: %d rows of %d, limit %d", step, len(page.Rows), len(want), req.Limit)
		}
		samePerKey(t, step, page.Rows, want, slow == never)
		if len(page.Rows) == 0 && len(flight) == 0 && len(parked) == 0 {
			break
		}
		for _, r := range page.Rows {
			flight[r.ID] = r
		}
		b.meanwhile(rng, flight, parked, step)
	}
	if used < 3 {
		t.Fatalf("the ID order was used %d times", used)
	}
}

// meanwhile settles much of what is in flight: some first rows of every key. Then, perhaps, one row is tried,
// or all are given back.
func (b *bench) meanwhile(rng *rand.Rand, flight map[string]*outbox.Row, parked map[outbox.Scope]bool, step int) {
	b.t.Helper()
	clear(parked)
	byKey := make(map[string][]*outbox.Row)
	for _, r := range flight {
		byKey[string(r.Key)] = append(byKey[string(r.Key)], r)
	}
	var sent, tried []string
	for _, rows := range byKey {
		slices.SortFunc(rows, func(x, y *outbox.Row) int {
			return cmp.Or(cmp.Compare(x.CreatedAt, y.CreatedAt), cmp.Compare(len(x.ID), len(y.ID)), cmp.Compare(x.ID, y.ID))
		})
		n := min(len(rows), rng.IntN(4))
		for _, r := range rows[:n] {
			sent = append(sent, r.ID)
			delete(flight, r.ID)
		}
		if n == len(rows) || rng.IntN(10) > 0 {
			continue
		}
		if step < 30 && rng.IntN(2) == 0 { // its key waits for a moment
			tried = append(tried, rows[n].ID)
			parked[outbox.KeyScope(rows[n])] = true
		}
		for _, r := range rows[n:] {
			delete(flight, r.ID)
		}
	}
	b.db.Exec(b.t, `UPDATE plain SET tries = tries + 1 WHERE id = ANY($1::text[]::bigint[]) AND status = 'PENDING'`, tried)
	b.db.Exec(b.t, `UPDATE plain SET status = 'SENT' WHERE id = ANY($1::text[]::bigint[])`, sent)
	if step < 20 {
		b.db.Exec(b.t, `INSERT INTO plain (key, body, created_at) VALUES (7, 'late', now() - interval '30 min')`)
		b.db.Exec(b.t, `INSERT INTO plain (key, body) VALUES (7, 'new')`)
	}
}

// samePerKey compares a page with all rows in table order. A row must come after the earlier rows of its key.
// Unless strict, it must only come after those of an earlier commit, by their ids.
func samePerKey(t *testing.T, step int, page, all []*outbox.Row, strict bool) {
	t.Helper()
	byKey := make(map[string][]*outbox.Row)
	for _, r := range all {
		byKey[string(r.Key)] = append(byKey[string(r.Key)], r)
	}
	for _, r := range page {
		queue := byKey[string(r.Key)]
		at := slices.IndexFunc(queue, func(q *outbox.Row) bool { return q.ID == r.ID })
		if at < 0 {
			t.Fatalf("step %d: row %s comes, which is not pending", step, r.ID)
		}
		for _, q := range queue[:at] {
			if strict || number(t, q) < number(t, r) {
				t.Fatalf("step %d: row %s of key %q comes before row %s", step, r.ID, r.Key, q.ID)
			}
		}
		byKey[string(r.Key)] = slices.Delete(queue, at, at+1)
	}
}

func number(t *testing.T, r *outbox.Row) int {
	t.Helper()
	n, err := strconv.Atoi(r.ID)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Without a fitting index, each page would read the rows that were sent before it. With one, but with
// statistics from a time without pending rows, each row of the ID order would be searched for among all
// pending rows. Neither happens.
func TestPagesDoNotPassOverOtherRows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		layout fixture.Layout
		before []string
		mark   string
	}{
		{
			"no index", fixture.Plain(),
			[]string{
				`DROP INDEX plain_status`,
				`INSERT INTO plain (key, created_at) SELECT i, now() + i * interval '1 ms' FROM generate_series(1, 20000) i`,
				`ANALYZE plain`,
			},
			`UPDATE plain t SET status = 'SENT' FROM unnest($1::text[]) AS u (id) WHERE t.id = u.id::bigint`,
		},
		{
			"old statistics", fixture.Im2be(),
			[]string{
				`ALTER TABLE outbox SET (autovacuum_enabled = off)`, manySent, `VACUUM ANALYZE outbox`,
				`INSERT INTO outbox (aggregate_id, event_id, topic, payload_bytes, created_at)
					SELECT gen_random_uuid(), gen_random_uuid(), 'orders', 'x', now() + i * interval '1 ms' FROM generate_series(1, 20000) i`,
			},
			`UPDATE outbox t SET status = 'SENT' FROM unnest($1::text[]) AS u (id)
				WHERE (t.aggregate_id, t.event_id) = (split_part(u.id, '/', 1)::uuid, split_part(u.id, '/', 2)::uuid)`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c.layout)
			for _, sql := range c.before {
				b.db.Exec(t, sql)
			}
			b.readsFewRows(t, 20_000, c.mark)
		})
	}
}

// readsFewRows sweeps all rows with ID orders, page by page, and checks how many rows the server has read for
// that.
func (b *bench) readsFewRows(t *testing.T, rows int, mark string) {
	t.Helper()
	const count = `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = $1`
	b.sweeper.slowFetch = always
	conn := b.db.Conn(t)
	if _, err := conn.Exec(t.Context(), `SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off`); err != nil {
		t.Fatal(err)
	}
	before := harness.One[int](t, b.db, count, b.table.Name)
	for swept := 0; swept < rows; {
		page := b.sweep(b.everything(1000))
		if len(page.Rows) == 0 {
			t.Fatalf("a page has no rows after %d", swept)
		}
		swept += len(page.Rows)
		ids := make([]string, len(page.Rows))
		for i, r := range page.Rows {
			ids[i] = strings.Join(outbox.SplitID(r.ID), "/")
		}
		if _, err := conn.Exec(t.Context(), mark, ids); err != nil {
			t.Fatal(err)
		}
	}
	conn.Close(t.Context())
	b.sweeper.cfg.Pool.Reset() // sessions that end tell what they read
	harness.Eventually(t, 20*time.Second, func() error {
		read := harness.One[int](t, b.db, count, b.table.Name) - before
		switch {
		case read > 6*rows:
			t.Fatalf("%d rows were read for %d", read, rows)
		case read < 3*rows: // a page, the ID order, each row by its id
			return fmt.Errorf("%d rows were read, as far as is known", read)
		}
		return nil
	})
}

func TestRowsThatAreLateAreAskedForByAnIDOrder(t *testing.T) {
	b := newBench(t, fixture.Plain())
	b.db.Exec(t, `INSERT INTO plain (key) SELECT i FROM generate_series(1, 10) i`)
	b.sweep(b.everything(1)) // the table's plan is made here
	clear(b.sweeper.idOrders)
	b.sweeper.slowFetch = -time.Minute // so that all rows count as late
	b.sweep(b.everything(5))
	if a := b.sweeper.idOrders[b.table]; a == nil || !a.all {
		t.Fatalf("ID order %+v", a)
	}
}

// All ID orders together have a bounded number of ids.
func TestTablesShareTheRoomForIDOrders(t *testing.T) {
	s := &Sweeper{maxOrderIDs: 100, idOrders: map[*outbox.Table]*idOrder{}}
	for _, want := range []int{100, 50, 33} {
		if got := s.room(); got != want {
			t.Fatalf("room for %d beside %d", got, len(s.idOrders))
		}
		s.putIDOrder(&outbox.Table{}, &idOrder{})
	}
}
