package sweeper

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/outbox"
)

// While rows of one transaction are swept page by page, marked, tried, parked
// and given back, each page has of every key what a sort of everything has first.
func TestAnAgendaKeepsTheOrderOfKeys(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { agendaRun(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func agendaRun(t *testing.T, rng *rand.Rand) {
	b := newBench(t, plain())
	b.sweeper.agendaRows = 100 + rng.IntN(900)
	sorting := newBenchOn(t, b.db, b.db.DSN, b.table)
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
		if a := b.sweeper.agendas[b.table]; a != nil {
			used++
		}
		page := b.sweep(req)
		clear(sorting.sweeper.agendas)
		all := req
		all.Limit, all.MaxBytes = 1_000_000, 0
		want := sorting.sweep(all).Rows
		if len(page.Rows) < min(req.Limit, len(want)) && req.MaxBytes == 0 || len(page.Rows) == 0 && len(want) > 0 {
			t.Fatalf("step %d: %d rows of %d, limit %d", step, len(page.Rows), len(want), req.Limit)
		}
		samePerKey(t, step, page.Rows, want)
		if len(page.Rows) == 0 && len(flight) == 0 && len(parked) == 0 {
			break
		}
		for _, r := range page.Rows {
			flight[r.ID] = r
		}
		b.meanwhile(rng, flight, parked, step)
	}
	if used < 3 {
		t.Fatalf("the agenda was used %d times", used)
	}
}

// meanwhile settles much of what is in flight: of every key some first rows, and
// then perhaps one is tried or all are given back.
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
		if step < 30 && rng.IntN(2) == 0 { // its key waits a moment
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

func samePerKey(t *testing.T, step int, page, all []*outbox.Row) {
	t.Helper()
	byKey := make(map[string][]string)
	for _, r := range all {
		byKey[string(r.Key)] = append(byKey[string(r.Key)], r.ID)
	}
	for _, r := range page {
		queue := byKey[string(r.Key)]
		if len(queue) == 0 || queue[0] != r.ID {
			t.Fatalf("step %d: row %s of key %q comes, but the key's rows are %v", step, r.ID, r.Key, queue)
		}
		byKey[string(r.Key)] = queue[1:]
	}
}
