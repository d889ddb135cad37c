package tablesql

import (
	"fmt"
	"math"
	"time"
)

// PostgreSQL's times reach from 4714 BC to the year 294276, and to infinity both
// ways. Microseconds since 1970 do not hold the last 30 years of that, and now()
// minus a time, an interval, holds neither infinity (before PostgreSQL 17) nor all
// that is far away. What a row says must not make a statement fail that is about
// others, too: so here is how statements get numbers out of times.

// micros is a time in microseconds since 1970, plus a few, as a bigint. What is
// beyond it is the last or the first that it holds.
func micros(at string, add int) string {
	return fmt.Sprintf("least(greatest(extract(epoch FROM %s) * 1000000 + %d, %d), %d)::bigint", at, add, int64(math.MinInt64+1), int64(math.MaxInt64))
}

// longestAge bounds ages: a time.Duration holds 292 years.
const longestAge = int64(math.MaxInt64 / time.Microsecond)

// ageOf is how long ago a time was, in microseconds by the database's clock, as a
// bigint: less than nothing if it is yet to come, and at most 292 years.
func ageOf(at string) string {
	return fmt.Sprintf("least(greatest((extract(epoch FROM clock_timestamp()) - extract(epoch FROM %s)) * 1000000, -%[2]d), %[2]d)::bigint", at, longestAge)
}

// age is ageOf the row's creation, NULL where no column says.
func (r *Relation) age() string {
	if r.Table.Mapping.CreatedAt == "" {
		return "NULL"
	}
	return ageOf(Ref(r.Table.Mapping.CreatedAt))
}
