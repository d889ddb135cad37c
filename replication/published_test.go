package replication

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// Our list from the catalogues equals pg_publication_tables, for every kind of publication and table.
func TestPublishedIsWhatTheServerLists(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	version := harness.One[int](t, db, `SELECT current_setting('server_version_num')::int`) / 10_000
	if version < 15 {
		t.Skip("the view is read itself: it opens no table")
	}
	db.Exec(t, `CREATE SCHEMA s; CREATE SCHEMA other;
		CREATE TABLE s.plain (a int PRIMARY KEY, gone int, b text, made int GENERATED ALWAYS AS (a + 1) STORED);
		ALTER TABLE s.plain DROP COLUMN gone;
		CREATE UNLOGGED TABLE s.unlogged (a int);
		CREATE VIEW s.seen AS SELECT 1 AS one;
		CREATE TABLE s.parts (a int, b text) PARTITION BY RANGE (a);
		CREATE TABLE s.parts1 PARTITION OF s.parts FOR VALUES FROM (0) TO (10);
		CREATE TABLE other.parts2 PARTITION OF s.parts FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (a);
		CREATE TABLE other.parts21 PARTITION OF other.parts2 FOR VALUES FROM (10) TO (15);
		CREATE TABLE other.heir (c int) INHERITS (s.plain)`)
	for _, with := range []string{"false", "true"} {
		for name, of := range map[string]string{
			"none": "", "all": "FOR ALL TABLES", "named": "FOR TABLE s.plain, s.parts", "narrow": "FOR TABLE ONLY s.plain (a) WHERE (a > 1)",
			"split": "FOR TABLE s.parts1 (a) WHERE (a > 1), other.parts21 WHERE (a > 2)", "under": "FOR TABLE other.parts2, other.parts21, s.plain WHERE (a > 7)", "schema": "FOR TABLES IN SCHEMA s",
			"leaves": "FOR TABLES IN SCHEMA other", "mixed": "FOR TABLE s.parts, s.parts1, TABLES IN SCHEMA other",
			"both": "FOR TABLE s.plain WHERE (a > 1), TABLES IN SCHEMA s",
		} {
			db.Exec(t, `CREATE PUBLICATION `+name+`_`+with+` `+of+` WITH (publish_via_partition_root = `+with+`)`)
		}
	}
	if version >= 19 {
		for _, with := range []string{"false", "true"} {
			db.Exec(t, `CREATE PUBLICATION except_`+with+` FOR ALL TABLES EXCEPT (TABLE ONLY s.plain, s.parts) WITH (publish_via_partition_root = `+with+`)`)
		}
	}
	if version >= 18 {
		db.Exec(t, `CREATE PUBLICATION generated FOR ALL TABLES WITH (publish_generated_columns = stored)`)
	}
	const listed = `SELECT coalesce(string_agg(concat_ws(' ', pubname, relid::regclass, attnames, rowfilter), E'\n' ORDER BY pubname, relid::regclass::text), '') FROM published`
	got := harness.One[string](t, db, sql.WithPublished(version, listed))
	want := harness.One[string](t, db, sql.WithPublished(0, listed))
	if version == 15 { // its view lists generated columns, but the server does not publish them
		want = strings.ReplaceAll(want, `, "made"`, "")
	}
	if got != want || want == "" {
		t.Errorf("taken from the catalogues:\n%s\n\nlisted by the server:\n%s", got, want)
	}
	// Even with thousands of tables, a reader's statement only reads its own tables.
	conn := db.Conn(t)
	rows, err := conn.Query(t.Context(), "EXPLAIN "+sql.WithPublished(version, `SELECT attnames, rowfilter FROM published WHERE relid = 's.plain'::regclass`))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if text := strings.Join(plan, "\n"); err != nil || !strings.Contains(text, "pg_class_oid_index") || strings.Contains(text, "CTE published") {
		t.Errorf("all that is published is asked for (%v):\n%s", err, text)
	}
}

// A locked partition, or a locked table of another stream, does not delay an inspection.
func TestInspectionWaitsForNoLock(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Exec(t, `CREATE TABLE parts (LIKE outbox) PARTITION BY RANGE (id)`)
	b.Exec(t, `CREATE TABLE parts1 PARTITION OF parts FOR VALUES FROM (0) TO (10)`)
	b.Exec(t, `CREATE TABLE another (id int PRIMARY KEY)`)
	b.init(t)
	b.Exec(t, `ALTER PUBLICATION `+b.cfg.Publication+` ADD TABLE parts, another`)
	filters := harness.One[int](t, b.DB, `SELECT current_setting('server_version_num')::int`) >= 15_00_00
	if filters {
		b.Exec(t, `ALTER PUBLICATION `+b.cfg.Publication+` SET TABLE outbox WHERE (id > 0), parts, another`)
	}
	lock := b.Conn(t)
	if _, err := lock.Exec(t.Context(), `BEGIN; LOCK TABLE outbox, parts, another`); err != nil {
		t.Fatal(err)
	}
	steps, err := addTableSteps(&State{
		Publication: Publication{Exists: true, Ours: true}, Tables: []TableState{{Table: b.cfg.Tables[0], Exists: true, Kind: "r"}},
	}, &b.cfg, "'"+b.cfg.Publication+"'")
	if err != nil || len(steps) != 1 {
		t.Fatal(steps, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if left, err := Pending(ctx, b.Conn(t).PgConn(), steps); err != nil || len(left) != 0 {
		t.Errorf("what is done already: %+v, %v", left, err)
	}
	c := b.lead(t)
	began := time.Now()
	s, err := c.Inspect(t.Context())
	if err != nil || !s.Tables[0].Published {
		t.Fatalf("%+v, %v, after %s", s.Tables, err, time.Since(began))
	}
	if filters && !strings.Contains(s.Tables[0].RowFilter, "locked") {
		t.Errorf("row filter %q", s.Tables[0].RowFilter)
	}
	c.cfg.Tables = append(c.cfg.Tables, &outbox.Table{Schema: "public", Name: "parts"})
	if s, err = c.Inspect(t.Context()); err != nil || s.Tables[1].PublishedPartitions == 0 && !s.Tables[1].Published {
		t.Errorf("%+v, %v", s.Tables, err)
	}
}
