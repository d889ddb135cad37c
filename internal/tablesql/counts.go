package tablesql

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// This file counts a table's rows by their state, up to a bound.

// MaxCounted is the largest number of rows that a count counts, which bounds its cost.
const MaxCounted = 100_000

// PendingCount says how many rows of a table wait to be published.
type PendingCount struct {
	Rows   int64
	Capped bool          // there are more than Rows
	Ready  int64         // how many of these are due
	Oldest time.Duration // age of the oldest row in Ready; 0: there is none, or no column has the creation time
	NoID   int64         // how many of Rows have an id that is NULL or too long to be read
}

// CountPending counts pending rows, due or not. byTime: DueIndexed has found indexes for it.
func (r *Relation) CountPending(byTime bool, into *PendingCount) Step {
	from := " FROM " + r.Name() + " AS t WHERE " + r.ourPending()
	oldest, column := "NULL", "1"
	at := r.Table.Mapping.CreatedAt
	if at != "" {
		column = Ref(at)
	}
	due, ready := r.dueFrom(column, byTime), "NULL" // NULL: all of them are due
	if r.due() != "" {
		ready = counted(due)
	}
	if at != "" {
		known := " > '-infinity'"
		if r.clock(at).unit != 0 {
			known = " IS NOT NULL"
		}
		oldest = "(SELECT " + r.age() + due + " AND " + Ref(at) + known + " ORDER BY " + Ref(at) + " LIMIT 1)"
	}
	noID := "false"
	if short := r.shortIDs(); short != "" {
		noID = "(" + short + ") IS NOT TRUE"
	}
	return Step{Each: into.read, SQL: fmt.Sprintf("SELECT p.n, %s, %s, p.bad FROM (SELECT count(*) AS n, count(*) FILTER (WHERE bad) AS bad FROM (SELECT %s AS bad%s LIMIT %d) AS counted) AS p",
		oldest, ready, noID, from, MaxCounted+1)}
}

func (p *PendingCount) read(row [][]byte) (err error) {
	*p = PendingCount{}
	if p.Rows, p.Capped, err = readCount(row[0]); err != nil {
		return err
	}
	p.Ready = p.Rows
	if row[2] != nil {
		if p.Ready, _, err = readCount(row[2]); err != nil {
			return err
		}
	}
	if p.NoID, _, err = readCount(row[3]); err != nil {
		return err
	}
	p.Oldest, err = readAge(row[1])
	return err
}

// FailedCount says how many rows of a table are FAILED.
type FailedCount struct {
	Kept   bool // the mapping has a FAILED state
	Rows   int64
	Capped bool // there are more than Rows
	// Resend is the number of failed rows that are to be sent again. They are PENDING, and Rows does not
	// include them.
	Resend int64
}

// CountFailed counts FAILED rows. Without a fitting index it reads the whole table.
func (r *Relation) CountFailed(into *FailedCount) Step {
	*into = FailedCount{Kept: r.Table.Stateful() && r.failed() != "false"}
	from := " FROM " + r.Name() + " AS t WHERE "
	resend := "0"
	if m := &r.Table.Mapping.Status; m.Resend != "" && m.FailedAt != "" {
		resend = counted(from + r.ofOurs(Ref(m.FailedAt)+" IS NOT NULL AND "+Ref(m.Resend)))
	}
	return Step{SQL: "SELECT " + counted(from+r.ourFailed()) + ", " + resend, Each: func(row [][]byte) (err error) {
		if into.Rows, into.Capped, err = readCount(row[0]); err == nil {
			into.Resend, _, err = readCount(row[1])
		}
		return err
	}}
}

// NeverReadyCount says how many pending rows nobody will send as they are: their writer has them without a
// deadline, or their writer column is NULL.
type NeverReadyCount struct {
	Rows   int64
	Capped bool          // there are more than Rows
	Oldest time.Duration // age of the oldest row; 0: there is none, or no column has the creation time
	Sample string        // id of the oldest row, its columns joined by ", ", and cut
}

// sampleCharacters is how many characters of each id column Sample shows.
const sampleCharacters = 250

// CountNeverReady counts such rows once they are older than their grace: a row may be in this state for a
// moment while its writer sends it. The mapping must have a writer column.
func (r *Relation) CountNeverReady(into *NeverReadyCount) Step {
	var params Params
	from := " FROM " + r.Name() + " AS t WHERE " + conjunction(r.neverDue(), r.older(&params, r.Table.Mapping.Grace))
	read := func(row [][]byte) (err error) {
		*into = NeverReadyCount{}
		if into.Rows, into.Capped, err = readCount(row[0]); err != nil {
			return err
		}
		if into.Oldest, err = readAge(row[1]); err != nil {
			return err
		}
		parts, err := r.readID(row[2:])
		into.Sample = strings.Join(parts, ", ")
		return err
	}
	return Step{
		SQL:  "SELECT " + counted(from) + ", " + r.age() + ", " + strings.Join(r.shownIDs(sampleCharacters), ", ") + from + r.inOrder(1),
		Args: params, Each: read,
	}
}

// counted returns an expression that counts rows, up to MaxCounted and one more.
func counted(from string) string {
	return fmt.Sprintf("(SELECT count(*) FROM (SELECT 1%s LIMIT %d) AS counted)", from, MaxCounted+1)
}

func readCount(text []byte) (rows int64, capped bool, err error) {
	n, err := Count(text)
	return min(n, MaxCounted), n > MaxCounted, err
}

// readAge reads an age in microseconds. NULL and a negative age give 0.
func readAge(text []byte) (time.Duration, error) {
	if text == nil {
		return 0, nil
	}
	micros, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading an age: %w", err)
	}
	return max(0, time.Duration(micros)*time.Microsecond), nil
}
