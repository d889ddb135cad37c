package tablesql

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

func archivedTable() *outbox.Table {
	return &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID: []string{"id"}, Cluster: outbox.ClusterMapping{Default: "main"}, Topic: outbox.Template{Literals: []string{"orders"}},
		Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "payload"}}, Order: []string{"id"},
		Published: outbox.PublishedArchive, Archive: outbox.ArchiveTable{Schema: "old", Name: "Outbox Archive"},
		Status: outbox.StatusMapping{Column: "status", Pending: []string{"created"}, Sent: "it's done", SentAt: "done_at", LastError: "why", Version: "version"},
	}}
}

// Whatever happens to the statement, a row is complete, and either in the outbox or in the archive.
func TestRowsAreMovedWhole(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE SCHEMA old; CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, gone int, status text, done_at timestamptz, why text, version int, payload bytea, price numeric(6, 2), doubled int GENERATED ALWAYS AS (version * 2) STORED);
		ALTER TABLE outbox DROP gone;
		CREATE TABLE old."Outbox Archive" (archived_at timestamptz NOT NULL DEFAULT now(), payload bytea, price numeric, doubled bigint, why varchar, version int, status text NOT NULL, done_at timestamptz NOT NULL, id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
		ALTER TABLE old."Outbox Archive" ALTER doubled TYPE int, ALTER why TYPE text;
		INSERT INTO outbox (status, why, version, payload, price) SELECT 'created', 'x', 7, convert_to(repeat('long', 1000 * n), 'UTF8'), 1.5 FROM generate_series(1, 6) n;
		INSERT INTO outbox (status) VALUES ('failed')`)
	conn := db.Conn(t)
	load := func() Marking {
		t.Helper()
		r, err := Load(t.Context(), conn, archivedTable())
		if err != nil {
			t.Fatal(err)
		}
		m, err := r.Marking()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := load()
	move := func(sql string, ids string) (moved string, err error) {
		err = Run(t.Context(), conn, Step{SQL: sql, Args: Texts([]byte(ids)), Each: func(row [][]byte) error { moved += string(row[0]); return nil }})
		return moved, err
	}
	where := func(ids string) string {
		return harness.One[string](t, db, `SELECT concat((SELECT count(*) FROM outbox WHERE id = ANY ('`+ids+`')), ' ', (SELECT count(*) FROM old."Outbox Archive" WHERE id = ANY ('`+ids+`')))`)
	}
	if moved, err := move(m.Sent, "{9,1,7}"); err != nil || moved != "2" || where("{1,7}") != "1 1" {
		t.Errorf("moved %q: %v, %s", moved, err, where("{1,7}"))
	}
	if moved, err := move(m.SentFree, "{2}"); err != nil || moved != "1" || where("{2}") != "0 1" {
		t.Errorf("moved %q: %v, %s", moved, err, where("{2}"))
	}
	if n := harness.One[int](t, db, `SELECT count(*) FROM old."Outbox Archive" WHERE status = 'it''s done' AND done_at IS NOT NULL AND why IS NULL AND version = 8 AND doubled = 14 AND price = 1.5 AND length(payload) = 4000 * id`); n != 2 {
		t.Errorf("%d of 2 rows are whole in the archive", n)
	}
	// A row that the archive has already makes the others refused too, and is reported.
	db.Exec(t, `INSERT INTO old."Outbox Archive" (id, status, done_at) OVERRIDING SYSTEM VALUE VALUES (3, '', now())`)
	if _, err := move(m.Sent, "{3,4}"); err == nil || FaultOf(err) != RowRefused || !strings.Contains(err.Error(), `Outbox Archive_pkey`) || where("{3,4}") != "2 1" {
		t.Errorf("%v, %s", err, where("{3,4}"))
	}
	// A row that a trigger drops.
	db.Exec(t, `CREATE FUNCTION old.drops() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF NEW.id = 5 THEN RETURN NULL; END IF; RETURN NEW; END';
		CREATE TRIGGER drops BEFORE INSERT ON old."Outbox Archive" FOR EACH ROW EXECUTE FUNCTION old.drops()`)
	if _, err := move(m.Sent, "{4,5}"); err == nil || FaultOf(err) != RowRefused || !strings.Contains(err.Error(), "the archive old.Outbox Archive did not take each row: a trigger there drops some. Rows missing: 1") || where("{4,5}") != "2 0" {
		t.Errorf("%v, %s", err, where("{4,5}"))
	}
	// A column that the outbox got meanwhile is archived too.
	db.Exec(t, `ALTER TABLE outbox ADD late text DEFAULT 'late'`)
	if _, err := move(m.Sent, "{4}"); err == nil || FaultOf(err) != TableRefused || where("{4}") != "1 0" {
		t.Errorf("%v, %s", err, where("{4}"))
	}
	if _, err := Load(t.Context(), conn, archivedTable()); err == nil || !strings.Contains(err.Error(), `column "late" is missing there): ALTER TABLE "old"."Outbox Archive" ADD "late" text`) {
		t.Error(err)
	}
	db.Exec(t, `ALTER TABLE old."Outbox Archive" ADD late text`)
	if moved, err := move(load().Sent, "{4}"); err != nil || moved != "1" || harness.One[string](t, db, `SELECT late FROM old."Outbox Archive" WHERE id = 4`) != "late" {
		t.Errorf("moved %q: %v", moved, err)
	}
}

// An archive that would lose a part of a row is refused, and named.
func TestArchivesThatDoNotFit(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE SCHEMA old; CREATE TABLE outbox (id bigint PRIMARY KEY, status varchar(20), done_at timestamptz, why text, version int, payload text, price numeric(6, 2))`)
	conn := db.Conn(t)
	const columns = `id bigint, status varchar(20), done_at timestamptz, why text, version int, payload text, price numeric(6, 2)`
	for name, c := range map[string]struct{ ddl, want string }{
		"no table":      {"", "does not exist in this database"},
		"same":          {columns, ""},
		"wider":         {strings.Replace(columns, "(20)", "(30)", 1) + ", more int, most int NOT NULL DEFAULT 1", ""},
		"narrower":      {strings.Replace(columns, "(20)", "(10)", 1), `column "status" holds less there`},
		"rounds":        {strings.Replace(columns, "(6, 2)", "(6, 1)", 1), `column "price" holds less there`},
		"another type":  {strings.Replace(columns, "payload text", "payload jsonb", 1), `column "payload" is jsonb there, and text here`},
		"wants more":    {columns + ", more int NOT NULL", `column "more" must have a value there, and is not here`},
		"makes its own": {strings.Replace(columns, "payload text", "payload text GENERATED ALWAYS AS ('x'::text) STORED", 1), `column "payload" is generated there, and not here): ALTER TABLE "old"."Outbox Archive" ALTER "payload" DROP EXPRESSION`},
		"child":         {`) INHERITS (outbox`, `it inherits from the outbox`},
		"grandchild":    {`) INHERITS (outbox); CREATE TABLE old."Outbox Archive" () INHERITS (child`, `it inherits from the outbox`},
	} {
		db.Exec(t, `DROP TABLE IF EXISTS old."Outbox Archive"; DROP TABLE IF EXISTS child`)
		switch {
		case name == "grandchild":
			db.Exec(t, `CREATE TABLE child (`+c.ddl+`)`)
		case c.ddl != "":
			db.Exec(t, `CREATE TABLE old."Outbox Archive" (`+c.ddl+`)`)
		}
		if _, err := Load(t.Context(), conn, archivedTable()); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An ALTER of one of the two tables while the statement is in use loses nothing of a row.
func TestWhatIsAlteredMeanwhileLosesNothing(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE SCHEMA old`)
	conn := db.Conn(t)
	for name, ddl := range map[string]string{
		"more digits":      `ALTER TABLE outbox ALTER price TYPE numeric(12, 4); UPDATE outbox SET price = 1.2345`,
		"another type":     `ALTER TABLE outbox ALTER version TYPE numeric; UPDATE outbox SET version = 1.5`,
		"finer times":      `ALTER TABLE outbox ALTER done_at TYPE timestamptz`,
		"fewer digits":     `ALTER TABLE old."Outbox Archive" ALTER price TYPE numeric(6, 1)`,
		"generated":        `ALTER TABLE old."Outbox Archive" DROP payload, ADD payload text GENERATED ALWAYS AS ('x'::text) STORED`,
		"unlogged":         `ALTER TABLE old."Outbox Archive" SET UNLOGGED`,
		"child":            `ALTER TABLE old."Outbox Archive" INHERIT outbox`,
		"other archive":    `ALTER TABLE old."Outbox Archive" RENAME TO gone; CREATE TABLE old."Outbox Archive" (LIKE old.gone); ALTER TABLE old."Outbox Archive" ALTER price TYPE numeric(6, 1)`,
		"one more":         `ALTER TABLE outbox ADD late text DEFAULT 'late'`,
		"nothing of these": ``,
	} {
		db.Exec(t, `DROP TABLE IF EXISTS old."Outbox Archive", old.gone; DROP TABLE IF EXISTS outbox;
			CREATE TABLE outbox (id bigint PRIMARY KEY, status varchar(20), done_at timestamptz(0), why text, version int, payload text, price numeric(6, 2));
			CREATE TABLE old."Outbox Archive" (LIKE outbox INCLUDING ALL); INSERT INTO outbox (id, status) VALUES (1, 'created'), (2, 'created')`)
		r, err := Load(t.Context(), conn, archivedTable())
		if err != nil {
			t.Fatal(err)
		}
		m, err := r.Marking()
		if err != nil {
			t.Fatal(err)
		}
		if ddl != "" {
			db.Exec(t, ddl)
		}
		for id, sql := range map[string]string{"1": m.Sent, "2": m.SentFree} {
			err := Run(t.Context(), conn, Step{SQL: sql, Args: Texts([]byte("{" + id + "}"))})
			left := harness.One[int](t, db, `SELECT count(*) FROM ONLY outbox WHERE id = `+id)
			if ddl == "" && (err != nil || left != 0) || ddl != "" && (err == nil || FaultOf(err) != TableRefused || left != 1) {
				t.Errorf("%s: %v, %d rows left", name, err, left)
			}
		}
	}
}
