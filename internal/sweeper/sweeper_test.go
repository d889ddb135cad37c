package sweeper

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

func TestAPageIsInTableOrderThenInOrderOfInsertion(t *testing.T) {
	b := newBench(t, fixture.Plain())
	// One transaction: created_at ties. A hole in an earlier page makes the
	// place in the table disagree with the order of insertion.
	b.db.Exec(t, `INSERT INTO plain (body) SELECT repeat('x', 2000) FROM generate_series(1, 40)`)
	b.db.Exec(t, `DELETE FROM plain`)
	b.db.Exec(t, `VACUUM (TRUNCATE off) plain`)
	b.db.Exec(t, `BEGIN; INSERT INTO plain (key, body) VALUES ('k', 'a'); INSERT INTO plain (key, body) VALUES ('k', 'b');
		INSERT INTO plain (key, body) VALUES ('k', 'c'), ('k', 'd'); COMMIT`)
	b.db.Exec(t, `INSERT INTO plain (key, body, created_at) VALUES ('k', 'first', now() - interval '1 hour')`)
	b.db.Exec(t, `INSERT INTO plain (key, body, status) VALUES ('k', 'later', 'RETRY'), ('k', 'done', 'SENT'), ('k', 'no', 'FAILED')`)
	page := b.sweep(b.everything(100))
	if got := values(page.Rows); got != "first a b c d later" {
		t.Fatal(got)
	}
	if page.More || page.Insert == 0 || page.Snapshot.Xmax == 0 {
		t.Fatalf("%+v", page)
	}
	page = b.sweep(b.everything(2))
	if len(page.Rows) != 2 || !page.More {
		t.Fatalf("%d rows, more %v", len(page.Rows), page.More)
	}
}

// A row that was tried has a new version at the table's end, but the rows of its
// key that tie with it must not overtake it.
func TestARowThatWasTriedKeepsItsPlace(t *testing.T) {
	for _, mapped := range []string{"attempts", "last error"} {
		l := fixture.Plain()
		if mapped != "attempts" {
			l.Table.Mapping.Status.Attempts = ""
		}
		b := newBench(t, l)
		b.db.Exec(t, `INSERT INTO plain (key, body) VALUES ('k', 'a'), ('k', 'b'), ('k', 'c')`)
		b.db.Exec(t, `UPDATE plain SET status = 'SENT' WHERE body = 'a'`)
		b.db.Exec(t, `UPDATE plain SET tries = 1, why = 'no' WHERE body = 'b'`)
		if got := values(b.sweep(b.everything(100)).Rows); got != "b c" {
			t.Fatal(mapped, got)
		}
	}
}

// What was written by a transaction that runs at the horizon, or in a savepoint of
// it, or since then, is not aged.
func TestRowsFromBeforeTheHorizonAreAged(t *testing.T) {
	b := newBench(t, fixture.Plain())
	b.db.Exec(t, `INSERT INTO plain (body) VALUES ('old'), ('old too'), ('touched')`)
	conn := b.db.Conn(t)
	run := func(sql string) {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	run(`BEGIN; INSERT INTO plain (body) VALUES ('running'); SAVEPOINT a; INSERT INTO plain (body) VALUES ('in a savepoint')`)
	horizon := harness.One[int64](t, b.db, `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint`)
	run(`COMMIT`)
	b.db.Exec(t, `UPDATE plain SET tries = 1 WHERE body = 'touched'`)
	b.db.Exec(t, `INSERT INTO plain (body) VALUES ('new')`)
	aged := func(rows []*outbox.Row) (names []string) {
		for _, r := range rows {
			if r.Aged {
				names = append(names, string(r.Value))
			}
		}
		return names
	}
	req := b.everything(100)
	if got := aged(b.sweep(req).Rows); got != nil {
		t.Errorf("without a horizon %q are aged", got)
	}
	req.Parts[0].Horizon = uint64(horizon)
	if got := aged(b.sweep(req).Rows); !slices.Equal(got, []string{"old", "old too"}) {
		t.Errorf("%q are aged", got)
	}
	b.sweeper.slowFetch = always
	for range 2 { // then by an ID order
		req.Limit = 5
		page := b.sweep(req)
		if got := aged(page.Rows); len(page.Rows) != 5 || !slices.Equal(got, []string{"old", "old too"}) {
			t.Errorf("of %d rows %q are aged", len(page.Rows), got)
		}
	}
	if b.sweeper.idOrders[b.table] == nil {
		t.Error("there is no ID order")
	}
}

func TestAPageEndsWithItsBytes(t *testing.T) {
	b := newBench(t, fixture.Plain())
	b.db.Exec(t, `INSERT INTO plain (key, body) SELECT i, repeat('x', 100000) FROM generate_series(1, 100) i`)
	req := b.everything(1000)
	req.MaxBytes = 1 << 20
	page := b.sweep(req)
	if len(page.Rows) != 11 || !page.More {
		t.Fatalf("%d rows, more %v", len(page.Rows), page.More)
	}
	req.MaxBytes = 1
	if page = b.sweep(req); len(page.Rows) != 1 || !page.More {
		t.Fatalf("%d rows, more %v", len(page.Rows), page.More)
	}
}

func TestRowsAreSweptWhenDue(t *testing.T) {
	b := newBench(t, fixture.Plain())
	b.db.Exec(t, `INSERT INTO plain (body, due) VALUES ('past', now() - interval '1s'), ('never', 'infinity'), ('always', NULL), ('later', '2100-01-02 03:04:05.678901Z')`)
	if got := values(b.sweep(b.everything(9)).Rows); got != "past always" {
		t.Fatal(got)
	}
	found := b.watch(outbox.SweepPart{})
	if want := time.Date(2100, 1, 2, 3, 4, 5, 678901000, time.UTC); len(found.Rows) != 2 || !found.NextDue.Equal(want) {
		t.Fatalf("%d rows, next due %v", len(found.Rows), found.NextDue)
	}
}

func TestWatchSeesWhatIsPastItsGraceAndWritesWAL(t *testing.T) {
	l := fixture.Plain()
	l.Table.Mapping.Grace = time.Minute
	b := newBench(t, l)
	b.db.Exec(t, `INSERT INTO plain (body) VALUES ('young')`)
	found := b.watch(outbox.SweepPart{})
	if len(found.Rows) != 0 || found.Insert == 0 || !found.NextDue.IsZero() {
		t.Fatalf("%+v", found)
	}
	b.db.Exec(t, `INSERT INTO plain (key, body, created_at) VALUES ('o', 'old', now() - interval '61 s'), ('f', 'future', now() + interval '1 year'),
		('x', 'excluded', now() - interval '2 min'), (NULL, 'flight', now() - interval '3 min')`)
	flight := harness.One[string](t, b.db, `SELECT id::text FROM plain WHERE body = 'flight'`)
	part := outbox.SweepPart{ExcludeIDs: []string{flight}, Exclude: []outbox.Scope{{Kind: outbox.ScopeKey, Table: "public.plain", Topic: "events", Key: "x"}}}
	found = b.watch(part)
	b.db.Exec(t, `INSERT INTO plain (key, body, created_at, due) VALUES ('t', 'waited for its time', now() - interval '10 s', now() - interval '1 s'),
		('n', 'did not', now() - interval '1 s', now() - interval '10 s')`)
	found = b.watch(part)
	if got := keys(found.Rows); got != `"o" "t" "f"` {
		t.Fatal(got)
	}
	for _, r := range found.Rows {
		if r.Err != nil || r.Topic != "events" || r.Cluster != "main" || r.ID == "" || r.CreatedAt == 0 || !r.Pending {
			t.Fatalf("%+v", r)
		}
	}
	harness.Eventually(t, 10*time.Second, func() error {
		now, err := outbox.ParseLSN(harness.One[string](t, b.db, `SELECT pg_current_wal_flush_lsn()::text`))
		if err == nil && now <= found.Insert {
			err = fmt.Errorf("WAL ends at %v, not behind %v", now, found.Insert)
		}
		return err
	})
}

func TestCheckSaysWhatBecameOfEachRow(t *testing.T) {
	b := newBench(t, fixture.Plain())
	b.db.Exec(t, `INSERT INTO plain (body, status) VALUES ('p', 'PENDING'), ('r', 'RETRY'), ('s', 'SENT'), ('f', 'FAILED'), ('?', 'ARCHIVED')`)
	conn := b.db.Conn(t)
	var xid uint32
	if _, err := conn.Exec(t.Context(), `BEGIN; INSERT INTO plain (body) VALUES ('open')`); err != nil {
		t.Fatal(err)
	}
	if err := conn.QueryRow(t.Context(), `SELECT (pg_current_xact_id()::text::bigint % 4294967296)`).Scan(&xid); err != nil {
		t.Fatal(err)
	}
	var rows []*outbox.Row
	for _, id := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		rows = append(rows, &outbox.Row{Table: b.table, ID: id})
	}
	rows[5].XID = xid
	want := []outbox.CheckState{
		outbox.CheckPending, outbox.CheckPending, outbox.CheckSettled, outbox.CheckFailed, outbox.CheckSettled,
		outbox.CheckInvisible, outbox.CheckSettled,
	}
	b.checks(rows, want)
	if _, err := conn.Exec(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	want[5] = outbox.CheckSettled
	b.checks(rows, want)
}

func (b *bench) checks(rows []*outbox.Row, want []outbox.CheckState) {
	b.t.Helper()
	answers, err := b.sweeper.Check(b.t.Context(), rows)
	if err != nil {
		b.t.Fatal(err)
	}
	for i, a := range answers {
		if a.Row != rows[i] || a.State != want[i] {
			b.t.Errorf("row %s: state %d, want %d", rows[i].ID, a.State, want[i])
		}
	}
}

func TestFailedRowsOfBlockedKeys(t *testing.T) {
	b := newBench(t, fixture.Plain())
	b.db.Exec(t, `INSERT INTO plain (key, body, status) VALUES ('a', NULL, 'FAILED'), ('a', '2', 'FAILED'), ('b', '3', 'PENDING'), (NULL, '4', 'FAILED'), ('c', '5', 'FAILED')`)
	b.db.Exec(t, `INSERT INTO plain (key, body, status, topic) VALUES ('a', '6', 'FAILED', NULL)`)
	rows, err := b.sweeper.Failed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rows {
		got = append(got, fmt.Sprintf("%s/%s/%s", r.Topic, r.Key, r.ID))
	}
	slices.Sort(got)
	if fmt.Sprint(got) != "[/a/6 events/a/1 events/c/5]" {
		t.Fatal(got)
	}
}

func TestATableThatRefusesHoldsUpNoOther(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, fixture.Plain().DDL)
	missing, there := fixture.Plain().Table, fixture.Plain().Table
	missing.Name = "missing"
	for _, table := range []*outbox.Table{missing, there} {
		table.Mapping.Retention = time.Hour
	}
	b := newBenchOn(t, db, db.DSN, missing, there)
	db.Exec(t, `INSERT INTO plain (key, status, created_at, sent_at) VALUES ('k', 'FAILED', now(), NULL), ('k', 'SENT', now() - interval '2 h', now() - interval '2 h')`)
	var refused *TableError
	rows, err := b.sweeper.Failed(t.Context())
	if !errors.As(err, &refused) || refused.Table != missing || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	if n, _, err := b.sweeper.Retain(t.Context(), missing, nil); !errors.As(err, &refused) || refused.Table != missing || n != 0 {
		t.Fatal(n, err)
	}
	if n, _, err := b.sweeper.Retain(t.Context(), there, nil); err != nil || n != 1 {
		t.Fatal(n, err)
	}
}

// What is known of every table that refuses is read again, not of the first one only.
func TestFailedRowsAreReadAfterTablesChanged(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, fixture.Plain().DDL)
	db.Exec(t, `CREATE TABLE other (LIKE plain INCLUDING ALL)`)
	one, other := fixture.Plain().Table, fixture.Plain().Table
	other.Name = "other"
	one.Mapping.MaxRowBytes, other.Mapping.MaxRowBytes = 1000, 1000 // long keys are not read
	b := newBenchOn(t, db, db.DSN, one, other)
	for _, name := range []string{"plain", "other"} {
		db.Exec(t, `INSERT INTO `+name+` (key, status) VALUES (gen_random_uuid()::text, 'FAILED')`)
	}
	for _, change := range []string{``, `ALTER TABLE plain ALTER key TYPE uuid USING key::uuid; ALTER TABLE other ALTER key TYPE uuid USING key::uuid`} {
		db.Exec(t, change)
		if rows, err := b.sweeper.Failed(t.Context()); err != nil || len(rows) != 2 {
			t.Errorf("after %q: %d rows, %v", change, len(rows), err)
		}
	}
}

// A table that is known to be locked is not waited for once more.
func TestATableKnownToBeLockedIsNotAsked(t *testing.T) {
	b := newBench(t, fixture.Plain())
	lock := b.db.Conn(t)
	if _, err := lock.Exec(t.Context(), `BEGIN; LOCK TABLE plain`); err != nil {
		t.Fatal(err)
	}
	locked, err := b.sweeper.Unusable(t.Context(), nil)
	if err != nil || len(locked) != 1 || !locked[0].Locked() {
		t.Fatal(locked, err)
	}
	if again, err := b.sweeper.Unusable(t.Context(), locked); err != nil || len(again) != 0 {
		t.Error(again, err)
	}
}

func TestRetentionDeletesOnlyWhatWasSentLongAgo(t *testing.T) {
	l := fixture.Plain()
	l.Table.Mapping.Retention = time.Hour
	b := newBench(t, l)
	b.sweeper.cfg.RetainRows = 3
	b.db.Exec(t, `INSERT INTO plain (body, status, created_at, sent_at)
		SELECT 'old', 'SENT', now() - interval '3 h', now() - interval '2 h' FROM generate_series(1, 10)`)
	b.db.Exec(t, `INSERT INTO plain (body, status, created_at, sent_at) VALUES
		('late', 'SENT', now() - interval '3 h', now()), ('pending', 'PENDING', now() - interval '3 h', now() - interval '3 h'),
		('failed', 'FAILED', now() - interval '3 h', now() - interval '3 h'), ('other', 'ARCHIVED', now() - interval '3 h', now() - interval '3 h')`)
	conn := b.db.Conn(t)
	if _, err := conn.Exec(t.Context(), `BEGIN; SELECT * FROM plain WHERE id = 2 FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if n, _, err := b.sweeper.Retain(t.Context(), b.table, nil); err != nil || n != 9 {
		t.Fatal(n, err)
	}
	left := harness.One[string](t, b.db, `SELECT string_agg(body, ' ' ORDER BY id) FROM plain`)
	if left != "old late pending failed other" {
		t.Fatal(left)
	}
}

// Where no index leads to rows past their retention, each look for them reads the
// whole table.
func TestRetentionLooksForManyPagesAtOnce(t *testing.T) {
	const rows = 3000
	l := fixture.Plain()
	l.Table.Mapping.Retention = time.Hour
	b := newBench(t, l)
	b.sweeper.cfg.RetainRows = 10
	b.db.Exec(t, `DROP INDEX plain_status`)
	b.db.Exec(t, `INSERT INTO plain (status, created_at, sent_at) SELECT 'SENT', now() - interval '3 h', now() - interval '2 h' FROM generate_series(1, $1)`, rows)
	if n, finding, err := b.sweeper.Retain(t.Context(), b.table, nil); err != nil || n != rows || finding <= 0 {
		t.Fatal(n, finding, err)
	}
	b.sweeper.cfg.Pool.Reset() // sessions that end tell what they read
	harness.Eventually(t, 20*time.Second, func() error {
		read := harness.One[int](t, b.db, `SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'plain'`)
		if read > 3*rows {
			t.Fatalf("%d rows were read to find %d", read, rows)
		}
		if read < rows {
			return fmt.Errorf("%d rows were read, as far as is known", read)
		}
		return nil
	})
}

func TestPendingCounts(t *testing.T) {
	b := newBench(t, fixture.Plain())
	p, err := b.sweeper.CountPending(t.Context(), b.table)
	if err != nil || p != (tablesql.PendingCount{}) {
		t.Fatal(p, err)
	}
	b.db.Exec(t, `INSERT INTO plain (body, status, created_at) VALUES ('', 'PENDING', now() - interval '90 s'), ('', 'RETRY', now()), ('', 'SENT', now() - interval '1 h')`)
	p, err = b.sweeper.CountPending(t.Context(), b.table)
	if err != nil || p.Rows != 2 || p.Ready != 2 || p.Capped || p.Oldest < 90*time.Second || p.Oldest > 100*time.Second {
		t.Fatal(p, err)
	}
	// A row whose time has not come waits for nobody.
	b.db.Exec(t, `INSERT INTO plain (body, created_at, due) VALUES ('', now() - interval '1 day', now() + interval '1 h')`)
	if p, err = b.sweeper.CountPending(t.Context(), b.table); err != nil || p.Rows != 3 || p.Ready != 2 || p.Oldest > 100*time.Second {
		t.Fatal(p, err)
	}
	b.db.Exec(t, `INSERT INTO plain (body, status) VALUES ('', 'FAILED'), ('', 'FAILED')`)
	if f, err := b.sweeper.CountFailed(t.Context(), b.table); err != nil || f != (tablesql.FailedCount{Kept: true, Rows: 2}) {
		t.Fatal(f, err)
	}
	b.db.Exec(t, `INSERT INTO plain (body) SELECT '' FROM generate_series(1, 100001)`)
	if p, err = b.sweeper.CountPending(t.Context(), b.table); err != nil || p.Rows != 100_000 || !p.Capped {
		t.Fatal(p, err)
	}
}

// A scope in SQL must cover the very rows that Scope.Contains does, else a
// parked row is published by two or by nobody.
func TestScopesInSQLCoverWhatTheyCoverInMemory(t *testing.T) {
	l := fixture.Plain()
	b := newBench(t, l)
	b.db.Exec(t, `INSERT INTO plain (key, topic, cluster, body, status)
		SELECT (ARRAY['a', 'A', '', 'a b', NULL, E'\\x61', '{"', 'ü', 'NULL'])[1 + floor(random() * 9)],
			(ARRAY['events', 'other', NULL, '', 'no topic!'])[1 + floor(random() * 5)],
			(ARRAY['main', 'other', NULL, '', 'unknown'])[1 + floor(random() * 5)],
			CASE WHEN random() < .9 THEN 'x' END, 'PENDING' FROM generate_series(1, 400)`)
	coverSame(t, b)
}

func TestScopesOfKeysOfEveryType(t *testing.T) {
	for _, c := range []struct{ sqlType, value string }{
		{"uuid", "md5((random() * 9)::int::text)::uuid"},
		{"bigint", "(random() * 9)::bigint - 4"},
		{"smallint", "(random() * 9)::smallint"},
		{"bytea", "decode(lpad(to_hex((random() * 9)::int), 2, '0'), 'hex')"},
		{"numeric", "(ARRAY[1.0, 1.00, 2, 2.50])[1 + floor(random() * 4)]"},
		{"char(5)", "(ARRAY['a', 'ab', ''])[1 + floor(random() * 3)]"},
		{"boolean", "random() < .5"},
		{"jsonb", "jsonb_build_object('a', (random() * 3)::int)"},
		{"json", "json_build_object('a', (random() * 3)::int)"},
		{"inet", "('10.0.0.' || (random() * 5)::int)::inet"},
		{"timestamptz", "timestamptz '2026-01-01' + (random() * 3)::int * interval '1 s'"},
		{`varchar(9) COLLATE "ci"`, "(ARRAY['a', 'A', 'b'])[1 + floor(random() * 3)]"},
		{"mood", "(ARRAY['ok', 'Bad one'])[1 + floor(random() * 2)]::mood"},
		{"posint", "(random() * 9)::int + 1"},
	} {
		t.Run(c.sqlType, func(t *testing.T) {
			t.Parallel()
			l := fixture.Plain()
			l.DDL = `CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
				CREATE TYPE mood AS ENUM ('ok', 'Bad one'); CREATE DOMAIN posint AS int CHECK (VALUE > 0);
				` + strings.Replace(l.DDL, "key text", "key "+c.sqlType, 1)
			b := newBench(t, l)
			b.db.Exec(t, `INSERT INTO plain (key, body) SELECT CASE WHEN random() < .9 THEN `+c.value+` END, 'x' FROM generate_series(1, 60)`)
			coverSame(t, b)
		})
	}
}

func TestScopesOfUUIDKeysAsBytes(t *testing.T) {
	for _, sqlType := range []string{"uuid", "text"} {
		l := fixture.Plain()
		l.Table.Mapping.Key.Encoding = outbox.EncodingUUID
		l.DDL = strings.Replace(l.DDL, "key text", "key "+sqlType, 1)
		b := newBench(t, l)
		b.db.Exec(t, `INSERT INTO plain (key, body) SELECT md5((random() * 9)::int::text)::uuid, 'x' FROM generate_series(1, 60)`)
		if sqlType == "text" {
			b.db.Exec(t, `INSERT INTO plain (key, body) SELECT upper(md5('1')::uuid::text), 'x' FROM generate_series(1, 3)`)
			b.db.Exec(t, `INSERT INTO plain (key, body) VALUES ('nonsense', 'x')`)
		}
		coverSame(t, b)
	}
}

func coverSame(t *testing.T, b *bench) {
	t.Helper()
	all := b.sweep(b.everything(10_000)).Rows
	rng := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		scopes := randomScopes(rng, all)
		covered := func(r *outbox.Row) bool {
			return slices.ContainsFunc(scopes, func(s outbox.Scope) bool { return s.Contains(r) })
		}
		ids := []string{all[rng.IntN(len(all))].ID, all[rng.IntN(len(all))].ID, "99999999", "not a number", "a\x00b"}
		req := b.everything(10_000)
		req.Parts[0].Include, req.Parts[0].ExcludeIDs = scopes, ids
		same(t, scopes, b.sweep(req).Rows, all, func(r *outbox.Row) bool { return covered(r) && !slices.Contains(ids, r.ID) })
		req = b.everything(10_000)
		req.Parts[0].Exclude = scopes
		same(t, scopes, b.sweep(req).Rows, all, func(r *outbox.Row) bool { return !covered(r) })
	}
}

func same(t *testing.T, scopes []outbox.Scope, got, all []*outbox.Row, wanted func(*outbox.Row) bool) {
	t.Helper()
	var want []string
	for _, r := range all {
		if wanted(r) {
			want = append(want, r.ID)
		}
	}
	var have []string
	for _, r := range got {
		have = append(have, r.ID)
	}
	if !slices.Equal(want, have) {
		t.Fatalf("scopes %v: rows %v, want %v", scopes, have, want)
	}
}

func randomScopes(rng *rand.Rand, rows []*outbox.Row) []outbox.Scope {
	var scopes []outbox.Scope
	for range 1 + rng.IntN(4) {
		r := rows[rng.IntN(len(rows))]
		switch rng.IntN(20) {
		case 0:
			scopes = append(scopes, outbox.TopicScope(r.Cluster, r.Topic))
		case 1:
			scopes = append(scopes, outbox.ClusterScope(r.Cluster))
		case 2:
			scopes = append(scopes, outbox.TableScope(r.Table))
		case 3:
			scopes = append(scopes, outbox.Scope{Kind: outbox.ScopeKey, Table: "public.elsewhere", Topic: r.Topic, Key: string(r.Key)})
		case 4:
			scopes = append(scopes, outbox.Scope{Kind: outbox.ScopeKey, Table: r.Table.String(), Topic: r.Topic, Key: "no\x00key\xff"})
		default:
			scopes = append(scopes, outbox.KeyScope(r))
		}
	}
	return scopes
}

func TestATableThatRefusesIsNamed(t *testing.T) {
	b := newBench(t, fixture.Plain())
	b.db.Exec(t, `INSERT INTO plain (body) VALUES ('x')`)
	b.sweep(b.everything(1))
	b.db.Exec(t, `ALTER TABLE plain RENAME COLUMN body TO content`)
	for range 2 {
		_, err := b.sweeper.Sweep(t.Context(), b.everything(1))
		var refused *TableError
		if !errors.As(err, &refused) || refused.Table != b.table || !strings.Contains(err.Error(), "body") {
			t.Fatal(err)
		}
	}
	b.db.Exec(t, `ALTER TABLE plain RENAME COLUMN content TO body`)
	b.sweep(b.everything(1))
	b.db.Exec(t, `ALTER TABLE plain ALTER COLUMN id DROP IDENTITY; ALTER TABLE plain ALTER COLUMN id TYPE text USING 'id' || id`)
	if got := b.sweep(b.everything(1)).Rows[0].ID; got != "id1" {
		t.Fatal(got)
	}
	b.db.Exec(t, `DROP TABLE plain`)
	_, err := b.sweeper.Check(t.Context(), []*outbox.Row{{Table: b.table, ID: "1"}})
	var unusable *tablesql.MappingError
	if !errors.As(err, &unusable) {
		t.Fatal(err)
	}
}

// A prepared look whose result has another type from now on passes with its
// connection; it is no refusal of the table.
func TestAnotherTypeBetweenLooks(t *testing.T) {
	l := fixture.Im2be()
	b := newBench(t, l)
	const id = "00000000-0000-0000-0000-000000000001"
	b.db.Exec(t, `INSERT INTO outbox (aggregate_id, event_id, topic, retries) VALUES ($1, $1, 't', 1)`, id)
	rows, want := []*outbox.Row{{Table: b.table, ID: outbox.JoinID(id, id)}}, []outbox.CheckState{outbox.CheckPending}
	b.checks(rows, want)
	b.db.Exec(t, `ALTER TABLE outbox ALTER COLUMN retries TYPE bigint`)
	_, err := b.sweeper.Check(t.Context(), rows)
	if fault := tablesql.FaultOf(err); err == nil || fault != tablesql.Passing {
		t.Fatalf("fault %d: %v", fault, err)
	}
	b.checks(rows, want)
}

func TestOddNamesAndTimestampsAsState(t *testing.T) {
	l := fixture.Stamps()
	b := newBench(t, l)
	b.db.Exec(t, `INSERT INTO "Odd ""Schema"."out-box" ("the topic", "select", "pay""load", "sent at", "failed at") VALUES
		('t', 'k', '{"a":  1}', NULL, NULL), ('t', 'k', '2', now(), NULL), ('t', 'k', '3', NULL, now()), ('t', 'k', '4', now(), now())`)
	page := b.sweep(b.everything(10))
	if got := values(page.Rows); got != `{"a": 1}` {
		t.Fatal(got)
	}
	rows := []*outbox.Row{{Table: b.table, ID: "1"}, {Table: b.table, ID: "2"}, {Table: b.table, ID: "3"}, {Table: b.table, ID: "4"}}
	b.checks(rows, []outbox.CheckState{outbox.CheckPending, outbox.CheckSettled, outbox.CheckFailed, outbox.CheckSettled})
	failed, err := b.sweeper.Failed(t.Context())
	if err != nil || len(failed) != 1 || failed[0].ID != "3" {
		t.Fatal(failed, err)
	}
}

// Twenty locked tables cost a start little more than one: seconds, where each alone would be
// waited for.
func TestLockedTablesAreWaitedForTogether(t *testing.T) {
	l := fixture.Plain()
	db := harness.Postgres(t)
	db.Exec(t, l.DDL)
	tables, lock := []*outbox.Table{l.Table}, "BEGIN"
	for i := range 20 {
		other := *l.Table
		other.Name = fmt.Sprintf("%s%d", l.Table.Name, i)
		other.Mapping.OnFailed = []outbox.OnFailed{outbox.OnFailedSkip, outbox.OnFailedBlock}[i%2] // those are read
		tables = append(tables, &other)
		db.Exec(t, "CREATE TABLE "+other.Name+" (LIKE "+l.Table.Name+" INCLUDING ALL)")
		lock += "; LOCK TABLE " + other.Name
	}
	b := newBenchOn(t, db, db.DSN, tables...)
	if _, err := db.Conn(t).Exec(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err := b.sweeper.Failed(t.Context())
	var first *TableError
	if !errors.As(err, &first) || !first.Locked() {
		t.Fatal(err)
	}
	unusable, err := b.sweeper.Unusable(t.Context(), nil)
	if err != nil || len(unusable) != 20 {
		t.Errorf("%d tables, %v", len(unusable), err)
	}
	if took := time.Since(began); took > 30*time.Second { // of 90
		t.Errorf("it took %s", took)
	}
}

// A rewrite that is not MVCC-safe, such as the end of REPACK (CONCURRENTLY), is under way when a look and
// a page begin: they see the rows, not the empty table that their snapshot would have.
func TestNoRowIsTakenForGoneByARewrite(t *testing.T) {
	b := newBench(t, native(t))
	b.db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT 't', 'k', '\x00' FROM generate_series(1, 3)`)
	rows := b.sweep(b.everything(10)).Rows
	for name, read := range map[string]func() (int, error){
		"look": func() (n int, err error) {
			answers, err := b.sweeper.Check(t.Context(), rows)
			for _, a := range answers {
				if a.State == outbox.CheckPending {
					n++
				}
			}
			return n, err
		},
		"page": func() (int, error) {
			page, err := b.sweeper.Sweep(t.Context(), b.everything(10))
			return len(page.Rows), err
		},
	} {
		if _, err := read(); err != nil { // statements are prepared from now on
			t.Fatal(err)
		}
		conn := b.db.Conn(t)
		tx, err := conn.Begin(t.Context())
		if err == nil {
			_, err = tx.Exec(t.Context(), `CREATE TEMPORARY TABLE copy ON COMMIT DROP AS TABLE outbox; TRUNCATE outbox; INSERT INTO outbox OVERRIDING SYSTEM VALUE TABLE copy`)
		}
		if err != nil {
			t.Fatal(err)
		}
		var n int
		ended := make(chan error, 1)
		go func() {
			var err error
			n, err = read()
			ended <- err
		}()
		harness.Eventually(t, 2*time.Second, func() error { // before it gives the lock up
			if harness.One[int](t, b.db, `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'outbox'::regclass`) == 0 {
				return errors.New("nobody waits for the table")
			}
			return nil
		})
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil || n != len(rows) || n != 3 {
			t.Errorf("%s: %d of %d rows are seen, %v", name, n, len(rows), err)
		}
	}
}
