package tablesql

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// PostgreSQL's times reach from 4714 BC to the year 294276, and to infinity both
// ways. Microseconds since 1970 do not hold the last 30 years of that, and now()
// minus a time, an interval, holds neither infinity (before PostgreSQL 17) nor all
// that is far away. One row's time must not fail a statement about other rows, too: so
// here is how statements get numbers out of times.
//
// A column's time may also be local, or a number since 1970. How it is compared, written and printed is decided here
// alone. Package mapping reads the same of it.

// clock is how a column has its times: with a zone, or in UTC, unless one of the two is set.
type clock struct {
	zone  string // a literal; of a local time
	unit  int64  // of a number, in microseconds
	whole bool   // of an integer
}

// clock of a column that is mapped as a time.
func (r *Relation) clock(column string) clock {
	m, c := &r.Table.Mapping, r.Column(column)
	switch {
	case c == nil:
	case c.OID == oidTimestamp && m.Zone != nil:
		return clock{zone: sql.Literal(m.Zone.String())}
	case c.is(oidInt2, oidInt4, oidInt8, oidNumeric) && m.Epoch > 0:
		return clock{unit: m.Epoch.Microseconds(), whole: c.OID != oidNumeric}
	}
	return clock{}
}

// zoneKnown asks whether the server knows the mapping's zone. If not, rows would be published and every mark
// that writes a time would fail.
func (r *Relation) zoneKnown(ctx context.Context, conn *pgx.Conn) (unknown, err error) {
	name := r.Table.Mapping.Zone.String()
	err = Run(ctx, conn, Step{SQL: "SELECT now() AT TIME ZONE " + sql.Literal(name)})
	if server := postgres.ServerError(err); server != nil && server.Code == pgerrcode.InvalidParameterValue {
		return r.unfit("has the time_zone "+name+", which this server does not know", "take another of its names (SELECT name FROM pg_timezone_names), or install what the server lacks (on Debian: tzdata-legacy)"), nil
	}
	return nil, err
}

// same says that the server compares the values with now() as they are.
func (k clock) same() bool { return k == clock{} }

// instant is a value as a timestamptz. Only the years 1 to 9999 are local, as in package mapping: what is at the ends of the
// calendar would be shifted beyond them.
func (k clock) instant(at string) string {
	if k.zone == "" {
		return at
	}
	return fmt.Sprintf("(CASE WHEN %[1]s >= '0001-01-01' AND %[1]s < '10000-01-01' THEN %[1]s AT TIME ZONE %[2]s ELSE %[1]s AT TIME ZONE 'UTC' END)", at, k.zone)
}

// epoch is a value in microseconds since 1970, as a numeric, which holds them all.
func (k clock) epoch(at string) string {
	switch k.unit {
	case 0:
		return "extract(epoch FROM " + k.instant(at) + ") * 1000000"
	case 1:
		return "trunc((" + at + ")::numeric)"
	}
	return fmt.Sprintf("trunc((%s)::numeric * %d)", at, k.unit)
}

// of is a moment, a timestamptz, as it is written into the column.
func (k clock) of(moment string) string {
	switch {
	case k.zone != "":
		return "(" + moment + ") AT TIME ZONE " + k.zone
	case k.unit != 0:
		return fmt.Sprintf("floor(extract(epoch FROM %s) * %d)", moment, time.Second.Microseconds()/k.unit)
	}
	return moment
}

// overlap is for how long a zone's clocks may show the same times twice.
const overlap = "interval '2 hours'"

// when compares a value with a moment, so that an index on the column serves. For a
// local time the first term serves the index; since clocks are changed, the second one decides.
func (k clock) when(at, operator, moment string) string {
	switch {
	case k.whole: // a bigint, since an index on integers serves no numeric
		rounded := map[string]string{"<": "ceil", ">=": "ceil", "<=": "floor", ">": "floor"}[operator]
		return fmt.Sprintf("%s %s %s(extract(epoch FROM %s) * %d)::bigint", at, operator, rounded, moment, time.Second.Microseconds()/k.unit)
	case k.unit != 0:
		return fmt.Sprintf("%s %s extract(epoch FROM %s) * %d", at, operator, moment, time.Second.Microseconds()/k.unit)
	case k.zone == "":
		return at + " " + operator + " " + moment
	}
	near := moment
	if operator[0] == '>' {
		near += " - " + overlap
	}
	return fmt.Sprintf("(%s %s (%s) AT TIME ZONE %s AND %s %[2]s %[6]s)", at, operator, near, k.zone, k.instant(at), moment)
}

// when compares a column's time with a moment.
func (r *Relation) when(column, operator, moment string) string {
	return r.clock(column).when(Ref(column), operator, moment)
}

// later is that a column's time is after another's.
func (r *Relation) later(column, other string) string {
	k, than := r.clock(column), r.clock(other)
	if r.Column(column).OID == r.Column(other).OID || k.same() && than.same() {
		return Ref(column) + " > " + Ref(other)
	}
	return k.epoch(Ref(column)) + " > " + than.epoch(Ref(other))
}

// set writes a moment into a column; none where no column is mapped.
func (r *Relation) set(column, moment string) assignment {
	return assignment{column, r.clock(column).of(moment)}
}

// micros is a value in microseconds since 1970, plus a few, as a bigint: one out of
// its range is its greatest or least.
func (k clock) micros(at string, add int) string {
	return fmt.Sprintf("least(greatest(%s + %d, %d), %d)::bigint", k.epoch(at), add, int64(math.MinInt64+1), int64(math.MaxInt64))
}

// longestAge bounds ages: a time.Duration holds 292 years.
const longestAge = int64(math.MaxInt64 / time.Microsecond)

// age is how long ago a time was, in microseconds by the database's clock, as a
// bigint: negative for a time in the future, and at most 292 years.
func (k clock) age(at string) string {
	return fmt.Sprintf("least(greatest(extract(epoch FROM clock_timestamp()) * 1000000 - %s, -%[2]d), %[2]d)::bigint", k.epoch(at), longestAge)
}

// age is how long ago the row was created, NULL where no column says.
func (r *Relation) age() string {
	created := r.Table.Mapping.CreatedAt
	if created == "" {
		return "NULL"
	}
	return r.clock(created).age(Ref(created))
}

// moment prints a column's time in RFC 3339, and infinity, or a number that no time has, as such.
func (r *Relation) moment(column string) string {
	if column == "" {
		return "NULL"
	}
	return printedTime(r.timestamp(column), Ref(column))
}

// timestamp is a column's time as a timestamptz. A number before 1970, or after the year 9999, is infinity.
func (r *Relation) timestamp(column string) string {
	k, at := r.clock(column), Ref(column)
	if k.unit == 0 {
		return k.instant(at)
	}
	return fmt.Sprintf("CASE WHEN %[1]s > 253402300799 * %[2]d THEN 'infinity' WHEN %[1]s >= 0 THEN to_timestamp(%[1]s::numeric / %[2]d) WHEN %[1]s < 0 THEN '-infinity' END",
		at, time.Second.Microseconds()/k.unit)
}

func printedTime(at, otherwise string) string {
	return "coalesce(to_char((" + at + `)::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), (` + otherwise + ")::text)"
}
