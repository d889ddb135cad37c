package shedlock

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

var columns = []string{"name", "lock_until", "locked_at", "locked_by"}

type table struct {
	sql.ShedLockStatements
	lock  outbox.ShedLock
	role  string
	zoned bool
	chars int // characters that locked_by holds; 0: no limit
	// rounding is by how much lock_until may be earlier than it was set to.
	rounding time.Duration
}

// refusal is an error that lasts until somebody acts.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// Refused reports whether an error lasts until somebody acts.
func Refused(err error) bool { return errors.As(err, new(*refusal)) }

// readTable reads the result of sql.ShedLockColumns.
func readTable(lock outbox.ShedLock, role string, rows pgx.Rows) (*table, error) {
	t := &table{lock: lock, role: role}
	var found []string
	var zoned int
	allowed := true
	var name string
	var zone, may bool
	var chars, decimals int
	_, err := pgx.ForEachRow(rows, []any{&name, &zone, &chars, &decimals, &may}, func() error {
		found = append(found, name)
		allowed = allowed && may
		if zone {
			zoned++
		}
		switch name {
		case "locked_by":
			t.chars = chars
		case "lock_until": // half of the last decimal of a second
			t.rounding = time.Second / 2
			for range decimals {
				t.rounding /= 10
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking at lock table %s: %w", t, err)
	}
	if err := t.check(found, zoned, allowed); err != nil {
		return nil, &refusal{err}
	}
	t.zoned = zoned > 0
	t.ShedLockStatements = sql.ShedLock(lock.Schema, lock.Table, t.zoned)
	return t, nil
}

func (t *table) String() string { return t.lock.Schema + "." + t.lock.Table }

// check returns what is wrong with a table that has the found columns.
func (t *table) check(found []string, zoned int, allowed bool) error {
	missing := slices.DeleteFunc(slices.Clone(columns), func(c string) bool { return slices.Contains(found, c) })
	switch {
	case len(found) == 0:
		return fmt.Errorf("lock table %s does not exist, or role %s may not see it: name the application's ShedLock table in the configuration, or take its lock out", t, t.role)
	case len(missing) > 0:
		return fmt.Errorf("lock table %s has no column %s: it is not a ShedLock table as its documentation has it", t, strings.Join(missing, ", "))
	case zoned == 1:
		return fmt.Errorf("lock table %s keeps one of lock_until and locked_at with a time zone and one without: make both alike", t)
	case !allowed:
		return t.forbidden()
	}
	return nil
}

func (t *table) forbidden() error {
	return fmt.Errorf("role %[1]s may not use lock table %[2]s: GRANT USAGE ON SCHEMA %[3]s TO %[4]s; GRANT SELECT, INSERT, UPDATE ON %[5]s TO %[4]s",
		t.role, t, sql.Identifier(t.lock.Schema), sql.Identifier(t.role), sql.Identifier(t.lock.Schema, t.lock.Table))
}

// withHint adds to a server's error what to do about it.
func (t *table) withHint(err error, name string) error {
	switch postgres.Code(err) {
	case pgerrcode.InsufficientPrivilege:
		return &refusal{fmt.Errorf("%w (%w)", t.forbidden(), err)}
	case pgerrcode.InvalidColumnReference: // there is no unique index for ON CONFLICT
		return &refusal{fmt.Errorf("lock table %s has no unique index on its column name alone, as ShedLock needs it: %w", t, err)}
	case pgerrcode.UndefinedTable, pgerrcode.UndefinedColumn, pgerrcode.InvalidSchemaName, pgerrcode.StringDataRightTruncationDataException:
		return &refusal{fmt.Errorf("lock %s: %w", name, err)}
	}
	return fmt.Errorf("lock %s: %w", name, err)
}

// fit cuts the front of a holder's name so that it fits the column. The end tells it from other holders.
func (t *table) fit(holder string) string {
	for t.chars > 0 && utf8.RuneCountInString(holder) > t.chars {
		_, size := utf8.DecodeRuneInString(holder)
		holder = holder[size:]
	}
	return holder
}

// row is what the table says of a lock that somebody else holds. Anybody may have written it.
type row struct {
	by             *string
	remaining, age *float64 // seconds
}

// holderMax is how many characters of a holder's name are shown.
const holderMax = 255

// holding converts the row to a Holding.
func (r *row) holding(lock outbox.ShedLock, now time.Time) Holding {
	h := Holding{Lock: lock, By: "somebody without a name"}
	if r.by != nil && *r.by != "" {
		h.By = printable(*r.by)
	}
	if r.remaining != nil && *r.remaining < forever.Seconds() {
		h.Until = now.Add(seconds(*r.remaining))
	}
	return h
}

// forever is longer than any lock is meant to be held.
const forever = 100 * 365 * 24 * time.Hour

// seconds returns a duration, limited to what a Duration can hold.
func seconds(s float64) time.Duration {
	if math.IsNaN(s) {
		return 0
	}
	return time.Duration(max(-forever.Seconds(), min(forever.Seconds(), s)) * float64(time.Second))
}

func printable(s string) string {
	s = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return utf8.RuneError
		}
		return c
	}, s)
	if runes := []rune(s); len(runes) > holderMax {
		return string(runes[:holderMax])
	}
	return s
}

// skew is by how much a lock may seem to be taken in the future: applications' clocks differ a little from
// the database's.
const skew = time.Minute

// suspicion returns what is wrong with a row; "" if nothing is.
func (r *row) suspicion() string {
	switch {
	case r.remaining == nil:
		return "the lock's lock_until is NULL, so that nobody can ever take it: set it to a time that has passed"
	case *r.remaining >= forever.Seconds():
		return "the lock is held for ever (lock_until): set it to a time that has passed once its holder has gone"
	case r.age != nil && *r.age < -skew.Seconds():
		return fmt.Sprintf("the lock was taken %v in the future by the database's clock in UTC: the application's lock provider must use usingDbTime() or withTimeZone(UTC), "+
			"or its clock is wrong; as it is, it and outbox-cdc would not respect one another's lock", -seconds(*r.age).Round(time.Second))
	}
	return ""
}
