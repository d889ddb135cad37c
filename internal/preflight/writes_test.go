package preflight

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// What a table does not take is told before the first row is published, whether the table has rows
// or not, and nothing is written to tell it.
func TestWhatATableDoesNotTakeIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		ddl    string // after the table's own
		change func(m *outbox.Mapping)
		want   []string // lines; none: nothing is found
	}{
		"as it is":                  {},
		"no NULL, where '' will do": {ddl: "ALTER TABLE plain ALTER why SET DEFAULT '', ALTER why SET NOT NULL"},
		"a check": {ddl: "ALTER TABLE plain ADD CONSTRAINT terminal CHECK (status <> 'SENT' OR key IS NOT NULL)", want: []string{
			`false marking a row that was sent would be refused: by the constraint "terminal" on status, key, CHECK (((status <> 'SENT'::text) OR (key IS NOT NULL))): ALTER TABLE "public"."plain" DROP CONSTRAINT "terminal"`,
		}},
		"a check that rows keep": {ddl: `ALTER TABLE plain ADD CONSTRAINT terminal CHECK (status <> 'SENT' OR key IS NOT NULL); INSERT INTO plain (key) VALUES ('k')`},
		"a check that some rows break": {
			ddl:  `ALTER TABLE plain ADD CONSTRAINT terminal CHECK (status <> 'SENT' OR key IS NOT NULL); INSERT INTO plain (key) VALUES ('k'), (NULL)`,
			want: []string{`false marking a row that was sent would be refused: by the constraint "terminal" on status, key, CHECK (((status <> 'SENT'::text) OR (key IS NOT NULL))), of 1 of 2 rows`},
		},
		"a check of what we write": {ddl: "ALTER TABLE plain ADD CONSTRAINT few CHECK (tries < 3)", want: []string{
			`true giving a row up after its last attempt would be refused: by the constraint "few" on tries, CHECK ((tries < 3))`,
		}},
		"a check of two that we write": {ddl: "ALTER TABLE plain ADD CONSTRAINT ended CHECK ((status IN ('SENT', 'FAILED')) = (sent_at IS NOT NULL)); INSERT INTO plain (key) VALUES ('k')", want: []string{
			`true giving a row up after its last attempt would be refused: by the constraint "ended" on status, sent_at`,
		}},
		"one that does not hold for rows without us": {ddl: "ALTER TABLE plain ADD CHECK (body IS NOT NULL OR key IS NOT NULL OR status = 'x')"},
		"a trigger": {
			ddl: `CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.tries = 0; RETURN NEW; END$$;
			CREATE TRIGGER resets BEFORE UPDATE ON plain FOR EACH ROW EXECUTE FUNCTION f(); ALTER TABLE plain ADD CONSTRAINT few CHECK (tries < 3)`,
			want: []string{`false giving a row up after its last attempt would be refused: by the constraint "few" on tries, CHECK ((tries < 3)) (unless the trigger resets changes it before)`},
		},
		"a domain": {ddl: "CREATE DOMAIN state AS text CHECK (VALUE IN ('PENDING', 'RETRY', 'SENT', 'ARCHIVED')); ALTER TABLE plain ALTER status DROP DEFAULT, ALTER status TYPE state", want: []string{
			`true giving a row up after its last attempt would be refused: column "status" is public.state: value for domain public.state violates check constraint "state_check"`,
		}},
		"a length": {
			ddl:    "ALTER TABLE plain ALTER status DROP DEFAULT, ALTER status TYPE varchar(7); ALTER TABLE plain ALTER status SET DEFAULT 'PENDING'",
			change: func(m *outbox.Mapping) { m.Status.Failed, m.Status.Pending = "GIVEN UP", []string{"PENDING"} }, want: []string{
				`true giving a row up after its last attempt would be refused: column "status" is character varying(7): ALTER TABLE "public"."plain" ALTER "status" TYPE text`,
			},
		},
		"an identity":      {ddl: "ALTER TABLE plain ADD ver bigint GENERATED ALWAYS AS IDENTITY", change: func(m *outbox.Mapping) { m.Status.Version = "ver" }, want: []string{`true marking a row that was sent, noting a failed attempt, giving a row up after its last attempt would be refused: column "ver" can only be updated to DEFAULT`}},
		"a generated time": {ddl: "ALTER TABLE plain ADD done timestamptz GENERATED ALWAYS AS (due) STORED", change: func(m *outbox.Mapping) { m.Status.SentAt = "done" }, want: []string{`true marking a row that was sent would be refused: column "done" can only be updated to DEFAULT`}},
		"a foreign key": {ddl: `CREATE TABLE states (code text PRIMARY KEY); INSERT INTO states VALUES ('PENDING'), ('RETRY'), ('SENT'), ('ARCHIVED');
			ALTER TABLE plain ADD CONSTRAINT known FOREIGN KEY (status) REFERENCES states`, want: []string{
			`true giving a row up after its last attempt would be refused: by the constraint "known" on status, FOREIGN KEY (status) REFERENCES public.states(code)`,
		}},
		"operators": {ddl: "ALTER TABLE plain ADD CONSTRAINT open CHECK (status <> 'PENDING' OR tries > 0)", want: []string{
			"false `failed requeue`, `replay` would be refused: by the constraint \"open\" on status, tries",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l, db := fixture.Plain(), harness.Postgres(t)
			if c.change != nil {
				c.change(&l.Table.Mapping)
			}
			db.Exec(t, l.DDL+"CREATE INDEX ON plain (due, created_at) WHERE status IN ('PENDING', 'RETRY');"+c.ddl)
			r, _, err := inspected(t, db.DSN, l.Table)
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for _, f := range r.Findings {
				if f.About == AboutWrite {
					lines = append(lines, map[bool]string{true: "true ", false: "false "}[f.Fatal]+f.Problem+": "+f.Hint)
				}
			}
			got := strings.Join(lines, "\n")
			if len(c.want) == 0 && got != "" {
				t.Errorf("%s", got)
			}
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("%s\nwant %s", got, want)
				}
			}
		})
	}
}

// A slow constraint, like a table that begins with emptied pages, hides nothing else about the table.
func TestAConstraintThatTakesItsTime(t *testing.T) {
	l, db := fixture.Plain(), harness.Postgres(t)
	db.Exec(t, l.DDL+`CREATE INDEX ON plain (due, created_at) WHERE status IN ('PENDING', 'RETRY'); INSERT INTO plain (key) VALUES ('k');
		CREATE FUNCTION slow(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS 'BEGIN PERFORM pg_sleep(600); RETURN true; END';
		ALTER TABLE plain ADD CHECK (slow(status)) NOT VALID`)
	r, _, err := inspected(t, db.DSN, l.Table)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.Unevaluated, "statement timeout") || r.Relation == nil {
		t.Errorf("unevaluated: %q, %+v", r.Unevaluated, r.Findings)
	}
}
