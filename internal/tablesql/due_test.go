package tablesql

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// waiting returns a table in which most rows wait for their time.
func waiting(t *testing.T, due string) (*pgx.Conn, *Relation) {
	t.Helper()
	return waitingBy(t, due, "", outbox.Mapping{})
}

// waitingBy returns the same with the times in columns of another type, as the mapping says.
func waitingBy(t *testing.T, due, alter string, times outbox.Mapping) (*pgx.Conn, *Relation) {
	t.Helper()
	l := fixture.Plain()
	l.Table.Mapping.Zone, l.Table.Mapping.Epoch = times.Zone, times.Epoch
	l.Table.Mapping.Status.Pending = []string{"PENDING"}
	l.DDL = strings.Replace(l.DDL, "(status, created_at)", "(due, created_at) WHERE status = 'PENDING'", 1)
	l.DDL = strings.Replace(l.DDL, "due timestamptz", "due timestamptz"+due, 1)
	db := harness.Postgres(t)
	db.Exec(t, l.DDL)
	// There are due rows with and without a time, before and after 20,000 rows that wait, and after them sent
	// rows.
	db.Exec(t, `INSERT INTO plain (topic, key, created_at, due, status)
		SELECT 'orders', 'k' || i % 100, '2026-01-01'::timestamptz + i * interval '1 s',
			CASE WHEN i % 1000 = 0 THEN now() - i * interval '1 s' WHEN i % 1000 = 1 AND $1 THEN NULL WHEN i > 20000 THEN now() ELSE now() + i * interval '1 h' END,
			CASE WHEN i > 20000 AND i % 1000 > 1 THEN 'SENT' ELSE 'PENDING' END FROM generate_series(1, 40000) i`, due == "")
	if alter != "" {
		db.Exec(t, "ALTER TABLE plain "+alter)
	}
	db.Exec(t, `VACUUM plain`) // an index serves whatever the statistics say
	conn := db.Conn(t)
	r, err := Load(t.Context(), conn, l.Table)
	if err != nil {
		t.Fatal(err)
	}
	indexed := false
	if err := Run(t.Context(), conn, append([]Step{Reading(time.Minute).Step(nil)}, r.DueIndexed(&indexed)...)...); err != nil || !indexed {
		t.Fatal(indexed, err)
	}
	return conn, r
}

// questions returns the periodic queries on the table.
func questions(t *testing.T, r *Relation, byTime bool, found func(row [][]byte) error) map[string]Step {
	t.Helper()
	page := func(limit int, also func(q *PageQuery)) Step {
		columns, _ := r.idList()
		q := r.Page(Selected{list: columns, refs: []string{Ref("id")}}, limit)
		if byTime {
			q.ByTime()
		}
		also(q)
		step, _ := q.Step(found)
		return step
	}
	keys := []outbox.Scope{
		{Kind: outbox.ScopeKey, Table: r.Table.String(), Topic: "orders", Key: "k0"},
		{Kind: outbox.ScopeKey, Table: r.Table.String(), Topic: "orders", Key: "k7"},
	}
	return map[string]Step{
		"watch":          page(1000, func(q *PageQuery) { q.AnyOrder(); q.Missed() }),
		"page":           page(1000, func(*PageQuery) {}),
		"part of a page": page(30, func(*PageQuery) {}),
		"page of keys":   page(1000, func(q *PageQuery) { q.Include(keys) }),
		"page but keys":  page(1000, func(q *PageQuery) { q.Exclude(keys, []string{"1000"}) }),
		"next due":       r.NextDue(func(time.Time) {})[0],
		"due":            {SQL: "SELECT count(*), min(created_at)" + r.dueFrom(Ref("created_at"), byTime), Each: found},
	}
}

// Rows that wait for their time cost nothing: the buffers that are read depend on the due rows only. Buffers
// are counted because they do not depend on the machine's speed.
func TestCostOfRowsThatWait(t *testing.T) {
	for _, due := range []string{"", " NOT NULL"} {
		conn, r := waiting(t, due)
		costOfRowsThatWait(t, due, conn, r)
	}
	conn, r := waitingBy(t, "", "ALTER due TYPE timestamp USING due AT TIME ZONE 'America/New_York'", outbox.Mapping{Zone: location(t, "America/New_York")})
	costOfRowsThatWait(t, "", conn, r)
	conn, r = waitingBy(t, "", "ALTER due TYPE bigint USING extract(epoch FROM due) * 1000", outbox.Mapping{Epoch: time.Millisecond})
	costOfRowsThatWait(t, "", conn, r)
}

func costOfRowsThatWait(t *testing.T, due string, conn *pgx.Conn, r *Relation) {
	t.Helper()
	for name, step := range questions(t, r, true, nil) {
		if due != "" && strings.Contains(name, "page") {
			continue // read in table order, over the rows that wait
		}
		var plan string
		step.SQL = "EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT json) " + step.SQL
		step.Each = func(row [][]byte) error { plan += string(row[0]); return nil }
		if err := Run(t.Context(), conn, Reading(time.Minute).Step(nil), step); err != nil {
			t.Fatal(name, err)
		}
		var explained []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		if err := json.Unmarshal([]byte(plan), &explained); err != nil {
			t.Fatal(err)
		}
		if n := explained[0].Plan.Hit + explained[0].Plan.Read; n > 150 {
			t.Errorf("%s%s read %d buffers:\n%s", name, due, n, plan)
		}
	}
}

// Both ways give the same rows, and, except for the watch, in the same order.
func TestDueRowsByTimeAreTheSame(t *testing.T) {
	for _, due := range []string{"", " NOT NULL"} {
		conn, r := waiting(t, due)
		answers := func(byTime bool) map[string][]string {
			given := map[string][]string{}
			name := ""
			all := questions(t, r, byTime, func(row [][]byte) error {
				given[name] = append(given[name], string(row[0]))
				return nil
			})
			for _, name = range []string{"watch", "page", "part of a page", "page of keys", "page but keys", "due"} {
				if err := Run(t.Context(), conn, Reading(time.Minute).Step(nil), all[name]); err != nil {
					t.Fatal(name, err)
				}
			}
			slices.Sort(given["watch"])
			return given
		}
		want, got := answers(false), answers(true)
		for name := range want {
			if len(want[name]) == 0 || !slices.Equal(got[name], want[name]) {
				t.Errorf("%s%s: %v\nwant %v", name, due, got[name], want[name])
			}
		}
		var plain, timed PendingCount
		if err := Run(t.Context(), conn, r.CountPending(false, &plain), r.CountPending(true, &timed)); err != nil {
			t.Fatal(err)
		}
		if timed.Oldest, plain.Oldest = timed.Oldest.Round(time.Minute), plain.Oldest.Round(time.Minute); timed != plain || plain.Ready == 0 {
			t.Error(fmt.Sprintf("%+v", timed), plain)
		}
	}
}
