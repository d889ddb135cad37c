package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

func inspected(t *testing.T, dsn string, table *outbox.Table) (*Inspection, string, error) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	described, err := tablesql.Describe(t.Context(), conn, []*outbox.Table{table})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Inspect(t.Context(), conn, table, described[0], time.Minute)
	if err != nil {
		return nil, "", err
	}
	var texts []string
	for _, f := range r.Findings {
		texts = append(texts, fmt.Sprintf("%v %s: %s", f.Fatal, f.Problem, f.Hint))
	}
	return r, strings.Join(texts, "\n"), nil
}

func findings(t *testing.T, l fixture.Layout) (*Inspection, string) {
	t.Helper()
	db := harness.Postgres(t)
	db.Exec(t, l.DDL)
	r, found, err := inspected(t, db.DSN, l.Table)
	if err != nil {
		t.Fatal(err)
	}
	return r, found
}

func TestInspectionFindsNothingWrongWithGoodTables(t *testing.T) {
	plain := fixture.Plain()
	plain.DDL += `CREATE INDEX ON plain (due, created_at) WHERE status IN ('PENDING', 'RETRY');`
	for _, l := range []fixture.Layout{fixture.Im2be(), plain, fixture.Deleting(), fixture.Deferred(), fixture.Notification()} {
		r, got := findings(t, l)
		if got != "" || r.Relation.OID == 0 || len(r.Partitions) != 0 {
			t.Errorf("%s: %s %+v", l.Table, got, r)
		}
	}
}

func TestInspectionTakesAPartialIndexForAnIndex(t *testing.T) {
	l := fixture.Plain()
	l.Table.Mapping.Status.Pending = []string{"PENDING"}
	l.DDL = strings.Replace(l.DDL, "(status, created_at)", "(due, created_at) WHERE status = 'PENDING'", 1)
	if _, got := findings(t, l); got != "" {
		t.Fatal(got)
	}
}

func TestInspectionSaysWhatIsWrongAndWhatFixesIt(t *testing.T) {
	generated, said := "STORED", "generated, and before PostgreSQL 18"
	if harness.Postgres(t).Major(t) >= 18 {
		generated, said = "VIRTUAL", "generated and VIRTUAL"
	}
	for name, c := range map[string]struct {
		from, to string
		want     string
	}{
		"unlogged":  {"CREATE TABLE", "CREATE UNLOGGED TABLE", "true the table is unlogged, so its rows are not in the WAL: ALTER TABLE \"public\".\"plain\" SET LOGGED"},
		"no unique": {"PRIMARY KEY", "", "true no unique index makes sure that the id columns \"id\" identify one row"},
		"generated": {"body text", "b text, body text GENERATED ALWAYS AS (b || 'x') " + generated, "true column \"body\" is " + said},
		"nullable":  {"id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "id bigint UNIQUE", "true id column \"id\" may be NULL"},
		"no index":  {"CREATE INDEX plain_status ON plain (status, created_at);", "", "false no index serves the sweep, so each one reads the whole table: CREATE INDEX CONCURRENTLY ON \"public\".\"plain\" (\"due\", \"created_at\") WHERE \"status\" IN ('PENDING', 'RETRY')"},
	} {
		t.Run(name, func(t *testing.T) {
			l := fixture.Plain()
			l.DDL = strings.Replace(l.DDL, c.from, c.to, 1)
			if _, got := findings(t, l); !strings.Contains(got, c.want) {
				t.Fatalf("%s\nwant %s", got, c.want)
			}
		})
	}
}

func TestInspectionTellsWhatCannotBeMapped(t *testing.T) {
	for from, to := range map[string]string{
		"topic text":          "topics text",
		"due timestamptz":     "due text",
		"sent_at timestamptz": "sent_at bool",
	} {
		l := fixture.Plain()
		l.DDL = strings.ReplaceAll(l.DDL, from, to)
		if _, got := findings(t, l); !strings.HasPrefix(got, "true ") {
			t.Errorf("%s: %s", to, got)
		}
	}
	for from, to := range map[string]string{"plain": "fancy", "tries int NOT NULL DEFAULT 0, ": ""} {
		l := fixture.Plain()
		l.DDL = strings.ReplaceAll(l.DDL, from, to)
		db := harness.Postgres(t)
		db.Exec(t, l.DDL)
		_, got, err := inspected(t, db.DSN, l.Table)
		var refused *tablesql.TableError
		if !errors.As(err, &refused) && !strings.HasPrefix(got, "true ") {
			t.Errorf("%s: %s %v", to, got, err)
		}
	}
}

// A role with column privileges only can do everything but read the order of
// insertion.
func TestColumnPrivilegesAreFound(t *testing.T) {
	db := harness.PrivatePostgres(t, localpg.Options{})
	l := fixture.Im2be()
	db.Exec(t, l.DDL)
	db.Exec(t, `CREATE ROLE poor LOGIN PASSWORD 'poor'; GRANT USAGE ON SCHEMA public TO poor`)
	dsn := db.Server.DSNAs(db.Name, "poor", "poor")
	_, got, err := inspected(t, dsn, l.Table)
	for _, want := range []string{"true SELECT is missing on", `true UPDATE is missing on "last_error", "retries", "sent_at", "status", "version": GRANT UPDATE ("last_error", "retries", "sent_at", "status", "version") ON "public"."outbox" TO "poor"`} {
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("%s %v\nwant %s", got, err, want)
		}
	}
	db.Exec(t, `GRANT SELECT (aggregate_id, event_id, status, topic, payload_bytes, retries, created_at, sent_at, version, last_error, trace_parent, trace_state),
		UPDATE (status, retries, last_error, sent_at, version) ON outbox TO poor`)
	if _, got, err = inspected(t, dsn, l.Table); err != nil || strings.Contains(got, "true") || !strings.Contains(got, "SELECT is granted on columns only") {
		t.Error(got, err)
	}
}

func TestAnIndexForHeadersIsAdvised(t *testing.T) {
	db, l := harness.Postgres(t), fixture.Deferred()
	db.Exec(t, l.DDL)
	advice := func() (advice []string) {
		r, _, err := inspected(t, db.DSN, l.Table)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Findings {
			if f.About == AboutIndex && strings.Contains(f.Problem, "headers") {
				advice = append(advice, f.Hint)
			}
		}
		return advice
	}
	if got := advice(); got != nil {
		t.Errorf("with the primary key: %q", got)
	}
	db.Exec(t, `ALTER TABLE deferred_message_header DROP CONSTRAINT deferred_message_header_pkey`)
	got := advice()
	if !slices.Equal(got, []string{`CREATE INDEX CONCURRENTLY ON "public"."deferred_message_header" ("deferred_message_id")`}) {
		t.Fatalf("without: %q", got)
	}
	db.Exec(t, got[0])
	if got = advice(); got != nil {
		t.Errorf("after what was advised: %q", got)
	}
}

// The advised index serves tables with rows that wait, partitioned or not.
func TestAnIndexOfTimesIsAdvised(t *testing.T) {
	for name, c := range map[string]struct {
		change func(l *fixture.Layout)
		want   []string
	}{
		"some rows wait": {func(*fixture.Layout) {}, []string{`CREATE INDEX CONCURRENTLY ON "public"."plain" ("due", "created_at") WHERE "status" IN ('PENDING', 'RETRY')`}},
		"all rows wait": {func(l *fixture.Layout) {
			l.DDL = strings.Replace(l.DDL, "due timestamptz", "due timestamptz NOT NULL", 1)
		}, []string{`CREATE INDEX CONCURRENTLY ON "public"."plain" ("due") WHERE "status" IN ('PENDING', 'RETRY')`}},
		"an index of all times": {func(l *fixture.Layout) {
			l.DDL += "CREATE INDEX ON plain (due, created_at);"
		}, []string{`CREATE INDEX CONCURRENTLY ON "public"."plain" ("due", "created_at") WHERE "status" IN ('PENDING', 'RETRY')`}},
		"partitioned": {func(l *fixture.Layout) {
			l.DDL += `ALTER TABLE plain RENAME TO one; ALTER TABLE one ALTER id DROP IDENTITY; CREATE TABLE plain (LIKE one, PRIMARY KEY (id)) PARTITION BY RANGE (id);
				ALTER TABLE plain ATTACH PARTITION one FOR VALUES FROM (0) TO (10); CREATE TABLE two PARTITION OF plain FOR VALUES FROM (10) TO (20);
				CREATE INDEX ON plain (status, created_at);`
		}, []string{
			`CREATE INDEX CONCURRENTLY ON "public"."one" ("due", "created_at") WHERE "status" IN ('PENDING', 'RETRY')`,
			`CREATE INDEX CONCURRENTLY ON "public"."two" ("due", "created_at") WHERE "status" IN ('PENDING', 'RETRY')`,
			`CREATE INDEX ON "public"."plain" ("due", "created_at") WHERE "status" IN ('PENDING', 'RETRY')`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			db, l := harness.Postgres(t), fixture.Plain()
			c.change(&l)
			db.Exec(t, l.DDL)
			advice := func() string {
				r, _, err := inspected(t, db.DSN, l.Table)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range r.Findings {
					if f.About == AboutDue {
						return f.Hint
					}
				}
				return ""
			}
			got := strings.Split(advice(), ";\n")
			if !slices.Equal(got, c.want) {
				t.Fatalf("%q", got)
			}
			for _, statement := range got {
				db.Exec(t, statement)
			}
			if got := advice(); got != "" {
				t.Errorf("after what was advised: %q", got)
			}
			if n := harness.One[int](t, db, `SELECT count(*)::int FROM pg_index i, pg_class c WHERE c.oid = i.indrelid AND c.relname = 'two' AND i.indpred IS NOT NULL`); name == "partitioned" && n != 1 {
				t.Errorf("a partition has %d of the indexes", n)
			}
		})
	}
}
