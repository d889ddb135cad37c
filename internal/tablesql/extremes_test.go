package tablesql

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// ends are the ends of what PostgreSQL and an int64 take for a time.
var ends = []string{
	"-infinity", "4713-01-01 00:00:00 BC", "1970-01-01 00:00:00", "294246-12-31 23:59:59.999999", "294247-01-10 04:00:54.775807",
	"294276-12-31 23:59:59.999999", "infinity",
}

// No time in a row makes a statement fail that is about other rows, too.
func TestStatementsTakeEveryTime(t *testing.T) {
	for _, sqlType := range []string{"timestamptz", "timestamp"} {
		for _, end := range ends {
			t.Run(sqlType+" "+end, func(t *testing.T) { everyStatement(t, sqlType, end, outbox.Mapping{}) })
		}
	}
	for _, zone := range []string{"Pacific/Kiritimati", "Pacific/Pago_Pago"} {
		for _, end := range ends {
			t.Run(zone+" "+end, func(t *testing.T) { everyStatement(t, "timestamp", end, outbox.Mapping{Zone: location(t, zone)}) })
		}
	}
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		for sqlType, ends := range map[string][]string{
			"integer": {"-2147483648", "2147483647"}, "bigint": {"-9223372036854775808", "0", "9223372036854775807"},
			"numeric": {"-Infinity", "-1e100", "0.5", "1e100", "Infinity", "NaN"},
		} {
			for _, end := range ends {
				t.Run(fmt.Sprint(sqlType, unit, end), func(t *testing.T) { everyStatement(t, sqlType, end, outbox.Mapping{Epoch: unit}) })
			}
		}
	}
}

func location(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func everyStatement(t *testing.T, sqlType, end string, times outbox.Mapping) {
	db := harness.Postgres(t)
	db.Exec(t, fmt.Sprintf(`CREATE TABLE outbox (id bigint PRIMARY KEY, topic text DEFAULT 'x', key text, body text, status text DEFAULT 'PENDING',
		created %[1]s, due %[1]s, until %[1]s, mine boolean DEFAULT false, sent %[1]s, tries int)`, sqlType))
	db.Exec(t, fmt.Sprintf(`INSERT INTO outbox (id, created, due, until, mine, sent, status)
		SELECT n, x.t, x.t, x.t, n %% 2 = 0, x.t, (ARRAY['PENDING', 'SENT', 'FAILED', 'TAKEN'])[n / 2 + 1]
		FROM generate_series(0, 7) n, (SELECT '%s'::%s) AS x(t)`, end, sqlType))
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID: []string{"id"}, Topic: outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{{Column: "topic"}}}, Key: &outbox.Expr{Column: "key"},
		Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "body"}}, CreatedAt: "created", AvailableAfter: []string{"due", "until"}, Order: []string{"created"},
		Published: outbox.PublishedStatus, Writer: outbox.WriterMapping{Column: "mine", Until: "until"},
		Status: outbox.StatusMapping{
			Column: "status", Pending: []string{"PENDING"}, Sent: "SENT", Failed: "FAILED", Processing: "TAKEN",
			SentAt: "sent", Attempts: "tries", MaxAttempts: 3,
		},
		Zone: times.Zone, Epoch: times.Epoch,
	}}
	conn := db.Conn(t)
	r, err := Load(t.Context(), conn, table)
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range timely(t, r) {
		if err := Run(t.Context(), conn, step); err != nil {
			t.Errorf("statement %d: %v\n%s", i, err, step.SQL)
		}
	}
}

// timely are the statements that take times of rows.
func timely(t *testing.T, r *Relation) []Step {
	var steps []Step
	add := func(step Step, err error) {
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step)
	}
	plain := func(sql string, err error) { add(Step{SQL: sql}, err) }
	for _, step := range r.NextDue(func(time.Time) {}) {
		add(step, nil)
	}
	add(r.Backlog(100, &Backlog{}), nil)
	add(r.Processing(100, func(string, string) {}))
	from := " FROM " + r.Name() + " AS t WHERE "
	plain("SELECT "+r.age()+from+r.ourPending()+" AND "+r.due(), nil)
	plain("SELECT 1"+from+r.neverDue(), nil)
	plain("SELECT 1"+from+r.scheduled()+" ORDER BY "+strings.Join(r.order(), ", "), nil)
	var p Params
	older := r.older(&p, time.Hour)
	add(Step{SQL: "SELECT 1" + from + older, Args: p}, nil)
	for _, state := range []RowState{RowsPending, RowsFailed, RowsSent, RowsAny} {
		filter := &Filter{State: state, Since: time.Unix(0, 0), Until: time.Now()}
		add(r.Counting(filter, 10))
		add(r.PickIDs(&Filter{State: state}, 10, func(string) {}))
		add(r.Listing(&Filter{State: state}, List{Limit: 10, Characters: 100}, func(*Listed) error { return nil }))
	}
	over, _, err := r.Overtaken([]string{"0", "1"}, func(string) {})
	add(over, err)
	for _, removal := range []func() (*Removal, error){
		func() (*Removal, error) { return r.Expired(time.Hour) },
		func() (*Removal, error) { return r.ExpiredUnsent(time.Hour, nil) },
	} {
		m, err := removal()
		if err != nil {
			t.Fatal(err)
		}
		add(m.Find(10, func(string) {}), nil)
		add(m.Delete([]string{"0", "1"}, nil))
	}
	return steps
}

// Counters at their greatest refuse no mark, and a version is another one after
// every mark.
func TestCountersAtTheirGreatest(t *testing.T) {
	for sqlType, greatest := range map[string]string{"smallint": "32767", "int": "2147483647", "bigint": "9223372036854775807"} {
		t.Run(sqlType, func(t *testing.T) {
			l := fixture.Im2be()
			db := harness.Postgres(t)
			db.Exec(t, l.DDL)
			db.Exec(t, fmt.Sprintf(`ALTER TABLE outbox ALTER version TYPE %[1]s, ALTER retries TYPE %[1]s`, sqlType))
			db.Exec(t, fmt.Sprintf(`INSERT INTO outbox (aggregate_id, event_id, topic, payload_bytes, version, retries)
				SELECT gen_random_uuid(), gen_random_uuid(), 'x', '', %s, %[1]s FROM generate_series(1, 4)`, greatest))
			counters(t, db, l.Table, greatest)
		})
	}
}

// A counter that may be NaN is refused by name.
func TestCountersAreWholeNumbers(t *testing.T) {
	l := fixture.Im2be()
	for _, column := range []string{"version", "retries"} {
		db := harness.Postgres(t)
		db.Exec(t, l.DDL)
		db.Exec(t, "ALTER TABLE outbox ALTER "+column+" TYPE numeric")
		var unusable *MappingError
		if _, err := Load(t.Context(), db.Conn(t), l.Table); !errors.As(err, &unusable) || !strings.Contains(err.Error(), strconv.Quote(column)) {
			t.Errorf("%s: %v", column, err)
		}
	}
}

func counters(t *testing.T, db *harness.DB, table *outbox.Table, greatest string) {
	conn := db.Conn(t)
	r, err := Load(t.Context(), conn, table)
	if err != nil {
		t.Fatal(err)
	}
	marking, err := r.Marking()
	if err != nil {
		t.Fatal(err)
	}
	requeue, err := r.Requeue(RowsFailed)
	if err != nil {
		t.Fatal(err)
	}
	dismiss, err := r.Dismiss("GONE")
	if err != nil {
		t.Fatal(err)
	}
	id := harness.One[string](t, db, `SELECT aggregate_id::text || E'\x01' || event_id::text FROM outbox LIMIT 1`)
	id = strings.ReplaceAll(id, "\x01", "\x00")
	put := func(status string) {
		db.Exec(t, fmt.Sprintf(`UPDATE outbox SET status = '%s', version = %s, retries = %[2]s`, status, greatest))
	}
	mark := func(sql, charge string) Step {
		row := &outbox.Row{ID: id}
		args, err := r.RowArrays(1, func(int) *outbox.Row { return row })
		if charge != "" {
			expected, _ := strconv.ParseInt(charge, 10, 64)
			args, err = r.AttemptArrays(1, func(int) Attempt { return Attempt{row, "no", expected, true} })
		}
		if err != nil {
			t.Fatal(err)
		}
		return Step{SQL: sql, Args: args}
	}
	change := func(c *Change) Step {
		step, err := c.Of([]string{id}, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		return step
	}
	run := func(step Step) {
		t.Helper()
		n := 0
		step.Each = func([][]byte) error { n++; return nil }
		if err := Run(t.Context(), conn, step); err != nil || n != 1 {
			t.Fatalf("%d rows, %v: %s", n, err, step.SQL)
		}
		got := harness.One[string](t, db, `SELECT version || ' ' || retries FROM outbox WHERE version::text <> '`+greatest+`'`)
		if version, attempts, _ := strings.Cut(got, " "); version != "1" || attempts != greatest && attempts != "0" {
			t.Fatalf("version and attempts are %s: %s", got, step.SQL)
		}
	}
	for _, c := range []struct {
		from string
		step Step
	}{
		{"PENDING", mark(marking.Sent, "")},
		{"PENDING", mark(marking.SentFree, "")},
		{"PENDING", mark(marking.Attempt, greatest)},
		{"PENDING", mark(marking.AttemptFree, greatest)},
		{"FAILED", change(requeue)},
		{"FAILED", change(dismiss)},
	} {
		put(c.from)
		run(c.step)
	}
}

// A last error that takes no NULL, by itself or by its domain, is an empty text: neither a mark nor a
// requeue is refused for it.
func TestNullsThatAreRefused(t *testing.T) {
	for name, alter := range map[string]string{
		"column": "ALTER TABLE outbox ALTER last_error SET DEFAULT '', ALTER last_error SET NOT NULL",
		"domain": "CREATE DOMAIN said AS text NOT NULL DEFAULT ''; CREATE DOMAIN words AS said; ALTER TABLE outbox DROP last_error; ALTER TABLE outbox ADD last_error words DEFAULT ''",
	} {
		t.Run(name, func(t *testing.T) {
			l := fixture.Im2be()
			db := harness.Postgres(t)
			db.Exec(t, l.DDL)
			db.Exec(t, alter+"; ALTER TABLE outbox ALTER version TYPE smallint, ALTER retries TYPE smallint")
			db.Exec(t, `INSERT INTO outbox (aggregate_id, event_id, topic, payload_bytes) SELECT gen_random_uuid(), gen_random_uuid(), 'x', '' FROM generate_series(1, 4)`)
			counters(t, db, l.Table, "32767")
			db.Exec(t, `UPDATE outbox SET status = 'PENDING', last_error = 'was refused'`)
			marked(t, db, l.Table)
			if n := harness.One[int](t, db, "SELECT count(*)::int FROM outbox WHERE status = 'SENT' AND last_error = ''"); n != 4 {
				t.Errorf("%d rows of 4 are sent without an error", n)
			}
		})
	}
}

// marked marks each row.
func marked(t *testing.T, db *harness.DB, table *outbox.Table) {
	t.Helper()
	conn := db.Conn(t)
	r, err := Load(t.Context(), conn, table)
	if err != nil {
		t.Fatal(err)
	}
	ids := strings.Split(harness.One[string](t, db, `SELECT string_agg(aggregate_id::text || E'\x01' || event_id::text, ' ') FROM outbox`), " ")
	args, err := r.RowArrays(len(ids), func(i int) *outbox.Row { return &outbox.Row{ID: strings.ReplaceAll(ids[i], "\x01", "\x00")} })
	if err != nil {
		t.Fatal(err)
	}
	marking, err := r.Marking()
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), conn, Step{SQL: marking.Sent, Args: args}); err != nil {
		t.Fatal(err)
	}
}
