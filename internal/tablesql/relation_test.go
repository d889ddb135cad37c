package tablesql

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

var awkward = []string{"", "plain", "it's", `back\slash`, `"quoted"`, "{a,b}", "NULL", "null", "ü€𝄞", " \t\n ", `\'; DROP TABLE x; --`, "$1", "%s"}

// Whatever is quoted or bound comes back as it was.
func TestValuesSurviveTheServer(t *testing.T) {
	db := harness.Postgres(t)
	conn := db.Conn(t)
	for _, setting := range []string{"standard_conforming_strings = on", "standard_conforming_strings = off"} {
		if !db.Accepts(t, setting) {
			continue
		}
		if _, err := conn.Exec(t.Context(), "SET "+setting); err != nil {
			t.Fatal(err)
		}
		var params Params
		var array Array
		literals := make([]string, len(awkward))
		for i, v := range awkward {
			array.Add(v)
			literals[i] = sql.Literal(v) + "::text"
		}
		sql := "SELECT a.v, b.v FROM unnest(" + params.BindArray(&array, "text") + ") WITH ORDINALITY a(v, n) JOIN unnest(ARRAY[" +
			strings.Join(literals, ", ") + "]) WITH ORDINALITY b(v, n) USING (n) ORDER BY n"
		n := 0
		err := Run(t.Context(), conn, Step{SQL: sql, Args: params, Each: func(row [][]byte) error {
			if string(row[0]) != awkward[n] || string(row[1]) != awkward[n] {
				t.Errorf("%q came back as %q bound and %q quoted", awkward[n], row[0], row[1])
			}
			n++
			return nil
		}})
		if err != nil || n != len(awkward) {
			t.Fatal(n, err)
		}
	}
}

func TestFaultsByState(t *testing.T) {
	for code, want := range map[string]Fault{
		"40001": Passing, "40P01": Passing, "55P03": Locked, "57014": Passing, "57P01": Passing, "57P03": Passing, "53300": Passing,
		"53100": Passing, "08006": Passing, "25006": Passing, "26000": Passing, "28P01": Passing, "55000": Passing, "58030": Passing,
		"42501": TableRefused, "42P01": TableRefused, "42703": TableRefused, "42804": TableRefused, "0A000": TableRefused, "3F000": TableRefused,
		"23514": RowRefused, "P0001": RowRefused, "22001": RowRefused, "22P02": RowRefused, "XX001": RowRefused, "27000": RowRefused,
	} {
		err := fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code})
		if got := FaultOf(err); got != want {
			t.Errorf("%s: %d, want %d", code, got, want)
		}
	}
	where := "PL/pgSQL-Funktion audit() Zeile 1 bei SQL-Anweisung"
	for file, exhausted := range map[string]bool{"md.c": true, "pl_exec.c": false} {
		if Exhausted(&pgconn.PgError{Code: "53100", Where: where, File: file}) != exhausted {
			t.Errorf("exhausted by an error of %s: %v", file, !exhausted)
		}
	}
	if Exhausted(&pgconn.PgError{Code: "40001", Where: where, File: "md.c"}) || Exhausted(io.ErrUnexpectedEOF) {
		t.Error("exhausted by other errors")
	}
	if err := (&pgconn.PgError{Code: "42P01", Where: where}); !Raised(err) || FaultOf(err) != RowRefused {
		t.Error("a trigger's function that does not find a table, as a server tells in German")
	}
	if Raised(&pgconn.PgError{Code: "55P03", Where: "while locking tuple (0,1) in relation \"outbox\""}) {
		t.Error("a row that is locked")
	}
	if FaultOf(&pgconn.PgError{Code: "0A000", Routine: "RevalidateCachedQuery"}) != Passing {
		t.Error("a prepared statement whose result has another type")
	}
	if FaultOf(io.ErrUnexpectedEOF) != Passing || FaultOf(&MappingError{Table: &outbox.Table{}}) != TableRefused {
		t.Error("errors that are not the server's")
	}
}

func TestOnlyTheServersErrorSaysThatNothingWasCommitted(t *testing.T) {
	for err, want := range map[error]bool{
		io.ErrUnexpectedEOF: true,
		&pgconn.PgError{Code: "23514", SeverityUnlocalized: "ERROR", Severity: "FEHLER"}: false,
		&pgconn.PgError{Code: "57P01", SeverityUnlocalized: "FATAL", Severity: "SCHWER"}: true,
	} {
		if Unknown(err) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
	if Unknown(nil) {
		t.Error("no error")
	}
}

func TestReasons(t *testing.T) {
	r := &Relation{Table: fixture.Im2be().Table, Columns: []Column{{Name: "last_error", OID: oidVarchar, MaxChars: 5}}}
	for in, want := range map[string]string{
		"": "", "short": "short", "longer": "longe", "ünïcödé": "ünïcö", "a\x00b": "ab", "\xff\xfe": "\uFFFD", "日本語日本語": "日本語日本",
	} {
		got := r.Reason(in)
		if got != want || !utf8.ValidString(got) {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestIDsOfAnotherMappingAreRefusedNotRepeated(t *testing.T) {
	r := &Relation{Table: fixture.Im2be().Table}
	for _, id := range []string{"one", "one\x00two\x00three", ""} {
		err := r.bindIDs(new(Params), 1, func(int) string { return id })
		var unusable *MappingError
		if !errors.As(err, &unusable) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestMappingsThatCannotBeWritten(t *testing.T) {
	l := fixture.Im2be()
	l.Table.Mapping.Status.Sent, l.Table.Mapping.Status.SentAt = "", ""
	db := harness.Postgres(t)
	db.Exec(t, l.DDL)
	r, err := Load(t.Context(), db.Conn(t), l.Table)
	if err != nil {
		t.Fatal(err)
	}
	var unusable *MappingError
	if _, err := r.Marking(); !errors.As(err, &unusable) {
		t.Fatal(err)
	}
	l.Table.Mapping.ID = nil
	if _, err := Load(t.Context(), db.Conn(t), l.Table); !errors.As(err, &unusable) {
		t.Fatal(err)
	}
	view := *l.Table
	view.Name = "seen"
	db.Exec(t, `CREATE VIEW seen AS SELECT * FROM outbox`)
	if _, err := Load(t.Context(), db.Conn(t), &view); !errors.As(err, &unusable) || !strings.Contains(err.Error(), "no table") {
		t.Fatal(err)
	}
}

// Statements leave the package whole: what others would put together from pieces could be
// wrong in each of them. The text that a Relation gives away is a name, or for people.
func TestStatementsGoOutWhole(t *testing.T) {
	text := map[string]bool{"Name": true, "Reason": true, "SweepIndex": true, "DueIndex": true, "TimeOf": true, "Rising": true, "Unzoned": true}
	r := reflect.TypeFor[*Relation]()
	for m := range r.Methods() {
		for result := range m.Type.Outs() {
			if kind := strings.TrimPrefix(result.String(), "[]"); kind == "string" && !text[m.Name] {
				t.Errorf("%s returns %s: return a Step", m.Name, result)
			}
		}
	}
}
