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

// This file has the SQL that makes numbers of times. PostgreSQL's times reach from 4714 BC to the year
// 294276, and to infinity in both directions. Microseconds since 1970 cannot hold the last 30 years of that.
// The interval now() minus a time cannot hold infinity (before PostgreSQL 17), nor every distant time. But
// the time of one row must not make a statement fail that covers other rows too.
//
// A column's time may also be local, or a number since 1970. How such a time is compared, written and printed
// is decided here alone. Package mapping reads times in the same way.

// clock says how a column stores times. The zero value: with a zone, or in UTC.
type clock struct {
	zone  string // SQL literal of the zone, for local times
	unit  int64  // microseconds per unit, for numbers
	whole bool   // the number is an integer
}

// clock returns the clock of a column that is mapped as a time.
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

// zoneKnown checks whether the server knows the mapping's time zone. If it does not, rows would be published,
// but every mark that writes a time would fail.
func (r *Relation) zoneKnown(ctx context.Context, conn *pgx.Conn) (unknown, err error) {
	name := r.Table.Mapping.Zone.String()
	err = Run(ctx, conn, Step{SQL: "SELECT now() AT TIME ZONE " + sql.Literal(name)})
	if server := postgres.ServerError(err); server != nil && server.Code == pgerrcode.InvalidParameterValue {
		return r.unfit("has the time_zone "+name+", which this server does not know", "take another of its names (SELECT name FROM pg_timezone_names), or install what the server lacks (on Debian: tzdata-legacy)"), nil
	}
	return nil, err
}

// same reports whether the server can compare the values with now() directly.
func (k clock) same() bool { return k == clock{} }

// instant returns a value as a timestamptz. Only the years 1 to 9999 are treated as local, as in package
// mapping: times at the ends of the calendar would be shifted out of range.
func (k clock) instant(at string) string {
	if k.zone == "" {
		return at
	}
	return fmt.Sprintf("(CASE WHEN %[1]s >= '0001-01-01' AND %[1]s < '10000-01-01' THEN %[1]s AT TIME ZONE %[2]s ELSE %[1]s AT TIME ZONE 'UTC' END)", at, k.zone)
}

// epoch returns a value in microseconds since 1970, as a numeric, which can hold every time.
func (k clock) epoch(at string) string {
	switch k.unit {
	case 0:
		return "extract(epoch FROM " + k.instant(at) + ") * 1000000"
	case 1:
		return "trunc((" + at + ")::numeric)"
	}
	return fmt.Sprintf("trunc((%s)::numeric * %d)", at, k.unit)
}

// of returns the expression that stores a moment (a timestamptz) in the column.
func (k clock) of(moment string) string {
	switch {
	case k.zone != "":
		return "(" + moment + ") AT TIME ZONE " + k.zone
	case k.unit != 0:
		return fmt.Sprintf("floor(extract(epoch FROM %s) * %d)", moment, time.Second.Microseconds()/k.unit)
	}
	return moment
}

// overlap is the longest time for which a zone's clocks may show the same times twice.
const overlap = "interval '2 hours'"

// when compares a value with a moment in a way that an index on the column serves. For a local time the first
// term serves the index, and the second one decides, because clocks are put back.
func (k clock) when(at, operator, moment string) string {
	switch {
	case k.whole: // a bigint, because an index on integers cannot serve a numeric
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

// later returns the condition that a column's time is after another column's.
func (r *Relation) later(column, other string) string {
	k, than := r.clock(column), r.clock(other)
	if r.Column(column).OID == r.Column(other).OID || k.same() && than.same() {
		return Ref(column) + " > " + Ref(other)
	}
	return k.epoch(Ref(column)) + " > " + than.epoch(Ref(other))
}

// set stores a moment in a column. If no column is mapped, it sets nothing.
func (r *Relation) set(column, moment string) assignment {
	return assignment{column, r.clock(column).of(moment)}
}

// micros returns a value in microseconds since 1970, plus a few, as a bigint. A value out of range becomes
// the greatest or the least bigint.
func (k clock) micros(at string, add int) string {
	return fmt.Sprintf("least(greatest(%s + %d, %d), %d)::bigint", k.epoch(at), add, int64(math.MinInt64+1), int64(math.MaxInt64))
}

// longestAge bounds ages, in microseconds: a time.Duration can hold 292 years.
const longestAge = int64(math.MaxInt64 / time.Microsecond)

// age returns how long ago a time was, in microseconds by the database's clock, as a bigint. It is negative
// for a time in the future, and at most 292 years.
func (k clock) age(at string) string {
	return fmt.Sprintf("least(greatest(extract(epoch FROM clock_timestamp()) * 1000000 - %s, -%[2]d), %[2]d)::bigint", k.epoch(at), longestAge)
}

// age returns how long ago the row was created; NULL if no column says.
func (r *Relation) age() string {
	created := r.Table.Mapping.CreatedAt
	if created == "" {
		return "NULL"
	}
	return r.clock(created).age(Ref(created))
}

// moment prints a column's time in RFC 3339. Infinity, and a number that is no valid time, are printed as
// they are.
func (r *Relation) moment(column string) string {
	if column == "" {
		return "NULL"
	}
	return printedTime(r.timestamp(column), Ref(column))
}

// timestamp returns a column's time as a timestamptz. A number before 1970 or after the year 9999 becomes
// infinity.
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
