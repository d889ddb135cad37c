package tablesql

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// Statements and package mapping agree on what time a value is, and whether it has come, at any moment: around the changes of
// clocks, too.
func TestTimesInStatementsAreThoseOfTheMapping(t *testing.T) {
	db := harness.Postgres(t)
	conn := db.Conn(t)
	spring, autumn := time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC), time.Date(2026, 10, 25, 1, 0, 0, 0, time.UTC)
	for i, c := range []struct {
		sqlType string
		times   outbox.Mapping
		value   string // of $1, the seconds around a change
	}{
		{"timestamp", outbox.Mapping{Zone: location(t, "Europe/Berlin")}, "to_timestamp($1) AT TIME ZONE 'UTC' + interval '1 hour'"},
		{"timestamp", outbox.Mapping{}, "to_timestamp($1) AT TIME ZONE 'UTC'"},
		{"timestamptz", outbox.Mapping{Zone: location(t, "Europe/Berlin"), Epoch: time.Second}, "to_timestamp($1)"},
		{"integer", outbox.Mapping{Epoch: time.Second}, "$1"},
		{"bigint", outbox.Mapping{Epoch: time.Millisecond}, "$1 * 1000 + 1"},
		{"bigint", outbox.Mapping{Epoch: time.Microsecond}, "$1 * 1000000 + 1"},
		{"numeric", outbox.Mapping{Epoch: time.Second}, "$1 + 0.25"},
		{"numeric", outbox.Mapping{Epoch: time.Millisecond}, "$1 * 1000 + 0.125"},
	} {
		name := fmt.Sprintf("times%d", i)
		db.Exec(t, fmt.Sprintf("CREATE TABLE %s (id bigint PRIMARY KEY, at %s, sent %[2]s, touched %[2]s)", name, c.sqlType))
		for n, change := range []time.Time{spring, autumn} {
			db.Exec(t, fmt.Sprintf("INSERT INTO %s SELECT %d + i, %s FROM generate_series(-15, 15) i", name, n*100+50, strings.ReplaceAll(c.value, "$1", fmt.Sprintf("(%d + i::bigint * 600)", change.Unix()))))
		}
		m := c.times
		m.ID, m.Topic, m.Payload.Expr, m.Cluster.Default = []string{"id"}, outbox.Template{Literals: []string{"t"}}, outbox.Expr{Column: "id"}, "main"
		m.AvailableAfter, m.CreatedAt, m.Order, m.Published = []string{"at"}, "at", []string{"id"}, outbox.PublishedStatus
		m.Status = outbox.StatusMapping{SentAt: "sent", TouchedAt: "touched"}
		r, err := Load(t.Context(), conn, &outbox.Table{Schema: "public", Name: name, Mapping: m})
		if err != nil {
			t.Fatal(err)
		}
		at := everyTime(t, r, func(step Step) {
			if err := Run(t.Context(), conn, Reading(time.Minute).Step(nil), step); err != nil {
				t.Fatal(err, step.SQL)
			}
		})
		for _, moment := range []time.Time{spring, autumn} {
			for minutes := -125; minutes <= 125; minutes += 25 {
				for _, operator := range []string{"<", "<=", ">", ">="} {
					moment := moment.Add(time.Duration(minutes)*time.Minute + 125*time.Millisecond)
					found := map[string]bool{}
					step := Step{SQL: "SELECT id FROM " + r.Name() + " AS t WHERE " + r.when("at", operator, "'"+moment.Format(time.RFC3339Nano)+"'::timestamptz"), Each: func(row [][]byte) error {
						found[string(row[0])] = true
						return nil
					}}
					if err := Run(t.Context(), conn, Reading(time.Minute).Step(nil), step); err != nil {
						t.Fatal(err, step.SQL)
					}
					for id, micros := range at {
						want := map[string]bool{"<": micros < moment.UnixMicro(), "<=": micros <= moment.UnixMicro(), ">": micros > moment.UnixMicro(), ">=": micros >= moment.UnixMicro()}[operator]
						if found[id] != want {
							t.Fatalf("%s of %s %+v: id %s, %s, %s %s: %t", name, c.sqlType, c.times, id, time.UnixMicro(micros).UTC(), operator, moment, found[id])
						}
					}
				}
			}
		}
	}
}

// everyTime reads the table's times, and compares what statements say of them.
func everyTime(t *testing.T, r *Relation, run func(Step)) map[string]int64 {
	t.Helper()
	plan, err := mapping.Compile(r.Charset, r.Table, r.MappingColumns())
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int64{}
	var rows []*outbox.Row
	var columns []string
	for _, i := range plan.Wanted() {
		columns = append(columns, Ref(r.Columns[i].Name))
	}
	k := r.clock("at")
	columns = append(columns, k.micros("t.at", 0), r.moment("at"))
	run(Step{SQL: "SELECT " + strings.Join(columns, ", ") + " FROM " + r.Name() + " AS t", Each: func(row [][]byte) error {
		values := make([]mapping.Value, len(plan.Wanted()))
		for i := range values {
			if values[i] = (mapping.Value{Format: mapping.Null}); row[i] != nil {
				values[i] = mapping.Value{Format: mapping.Text, Data: row[i]}
			}
		}
		made := plan.Row(values, new(mapping.Arena))
		if made.Err != nil {
			t.Fatal(made.Err)
		}
		theirs := row[len(values):]
		if want := time.UnixMicro(made.AvailableAt).UTC().Format("2006-01-02T15:04:05.000000Z"); string(theirs[0]) != fmt.Sprint(made.AvailableAt) || string(theirs[1]) != want {
			t.Errorf("%s is %s, %s to statements, and %s to the mapping", row[1], theirs[0], theirs[1], want)
		}
		at[made.ID], rows = made.AvailableAt, append(rows, made)
		return nil
	}})
	// Each row is found by its time of creation, and by no other.
	for i, want := range []string{fmt.Sprint(len(rows)), "0"} {
		p, err := r.RowArrays(len(rows), func(at int) *outbox.Row {
			row := *rows[at]
			row.CreatedAt += int64(i) * 1_000_000
			return &row
		})
		if err != nil {
			t.Fatal(err)
		}
		run(Step{SQL: "SELECT count(*) FROM " + r.rowList() + " JOIN " + r.Name() + " AS t ON " + r.sameRow(), Args: p, Each: func(row [][]byte) error {
			if string(row[0]) != want {
				t.Errorf("%s: found %s rows by their times, want %s", r.Table, row[0], want)
			}
			return nil
		}})
	}
	return at
}

// What is written into a column is now, as the column has its times.
func TestTimesAreWrittenAsTheyAreRead(t *testing.T) {
	db := harness.Postgres(t)
	conn := db.Conn(t)
	for i, c := range []struct {
		sqlType string
		times   outbox.Mapping
		now     string
	}{
		{"timestamp", outbox.Mapping{Zone: location(t, "Asia/Kolkata")}, "clock_timestamp() AT TIME ZONE 'Asia/Kolkata'"},
		{"timestamp", outbox.Mapping{}, "clock_timestamp() AT TIME ZONE 'UTC'"},
		{"integer", outbox.Mapping{Epoch: time.Second}, "extract(epoch FROM clock_timestamp())"},
		{"bigint", outbox.Mapping{Epoch: time.Millisecond}, "extract(epoch FROM clock_timestamp()) * 1000"},
		{"numeric", outbox.Mapping{Epoch: time.Microsecond}, "extract(epoch FROM clock_timestamp()) * 1000000"},
	} {
		name := fmt.Sprintf("written%d", i)
		db.Exec(t, fmt.Sprintf("CREATE TABLE %s (id bigint PRIMARY KEY, body text, tries int, sent %s, failed %[2]s, touched %[2]s, expires %[2]s)", name, c.sqlType))
		db.Exec(t, "INSERT INTO "+name+" VALUES (1, 'x', 1), (2, 'x', 9)")
		m := c.times
		m.ID, m.Topic, m.Payload.Expr, m.Order, m.Published = []string{"id"}, outbox.Template{Literals: []string{"t"}}, outbox.Expr{Column: "body"}, []string{"id"}, outbox.PublishedStatus
		m.Status = outbox.StatusMapping{SentAt: "sent", FailedAt: "failed", TouchedAt: "touched", ExpiresAt: "expires", ExpiresAfter: time.Hour, Attempts: "tries", MaxAttempts: 10}
		r, err := Load(t.Context(), conn, &outbox.Table{Schema: "public", Name: name, Mapping: m})
		if err != nil {
			t.Fatal(err)
		}
		marking, err := r.Marking()
		if err != nil {
			t.Fatal(err)
		}
		sent, _ := r.RowArrays(1, func(int) *outbox.Row { return &outbox.Row{ID: "1"} })
		attempt, _ := r.AttemptArrays(1, func(int) Attempt { return Attempt{Row: &outbox.Row{ID: "2"}, Reason: "no", Expected: 9} })
		check := Step{
			SQL: fmt.Sprintf(`SELECT (SELECT bool_and(v <= %[2]s AND v > %[3]s) FROM (SELECT unnest(ARRAY[sent, failed, touched]) v) v) IS NOT FALSE, num_nonnulls(sent, failed, touched, expires), expires > %[2]s
				FROM public.%[1]s ORDER BY id`, name, c.now, strings.ReplaceAll(c.now, "clock_timestamp()", "(clock_timestamp() - interval '5 minutes')")),
			Each: func() func(row [][]byte) error {
				want := []string{"3 t", "2 "} // sent, touched, expires; failed, touched
				return func(row [][]byte) error {
					if got := string(row[1]) + " " + string(row[2]); string(row[0]) != "t" || got != want[0] {
						t.Errorf("%s of %s: %s %s, want t %s", name, c.sqlType, row[0], got, want[0])
					}
					want = want[1:]
					return nil
				}
			}(),
		}
		if err := Run(t.Context(), conn, Settings{}.Step(nil), Step{SQL: marking.Sent, Args: sent}, Step{SQL: marking.Attempt, Args: attempt}, check); err != nil {
			t.Fatal(name, err)
		}
	}
}

// A zone that the server does not know is refused before anything is published.
func TestZoneThatTheServerLacks(t *testing.T) {
	l := fixture.Plain()
	db := harness.Postgres(t)
	db.Exec(t, l.DDL)
	l.Table.Mapping.Zone = time.FixedZone("Mars/Olympus_Mons", 60)
	var unusable *MappingError
	if _, err := Load(t.Context(), db.Conn(t), l.Table); !errors.As(err, &unusable) || !strings.Contains(err.Error(), "time_zone Mars/Olympus_Mons") {
		t.Error(err)
	}
}
