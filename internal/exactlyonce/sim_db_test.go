package exactlyonce

import (
	"maps"
	"slices"
	"strconv"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file is PostgreSQL in the simulation: a table, its WAL, the slot, the tally. Each commit is
// remembered, so that a failover can return to it.

type status uint8

const (
	pending status = iota
	sent
	failed
)

type dbRow struct {
	id       int
	content  string // unique for each row ever inserted
	key      string
	at       Partition
	created  int64
	status   status
	requeues int
	visible  bool
	lsn      int
	xid      uint32
}

func (r *dbRow) record(stateless bool) *Record {
	row := &outbox.Row{ID: strconv.Itoa(r.id), Topic: r.at.Topic, Key: []byte(r.key), Value: []byte(r.content), CreatedAt: r.created}
	rec := &Record{Row: row, At: r.at, Table: "o", Key: r.key, Name: NameOf(row)}
	if stateless {
		row.Commit, row.XID, row.CommitTime = outbox.LSN(r.lsn), r.xid, r.created
		rec.Name, rec.Commit = NameInLog(row), row.Commit
	}
	return rec
}

func (r *dbRow) name() Name { return r.record(false).Name }

type database struct {
	rows      []dbRow
	wal       []dbRow // rows as they were inserted; position n is the n-th row
	nextID    int
	confirmed int // the slot's confirmed position
	saved     int // the same as a crash restores it
	tally     Tally
	position  int // the tally's position, for tables without state
}

func (d *database) clone() *database {
	c := *d
	c.rows, c.wal = slices.Clone(d.rows), slices.Clone(d.wal)
	c.tally.Marked, c.tally.Left = maps.Clone(d.tally.Marked), slices.Clone(d.tally.Left)
	return &c
}

func (d *database) find(id string) *dbRow {
	for i := range d.rows {
		if strconv.Itoa(d.rows[i].id) == id {
			return &d.rows[i]
		}
	}
	return nil
}

// query is a transaction of the relay. The function runs at once or not at all, and returns the answer.
type query func(d *database) any

// markUnit does what the real statement does: it notes each unit behind the head, once.
func (w *world) markUnit(u Placed, how func(d *database, n Name) (Seen, Name)) query {
	return func(d *database) any {
		if _, noted := d.tally.Marked[u.Number]; (noted || u.Number <= d.tally.Head.Number) && !w.off["uniqueUnit"] {
			return d.leftOf(u.Number) // the first try was committed, or another process has noted the unit
		}
		var left []Left
		for _, n := range u.Names {
			seen, now := how(d, n)
			mark, leave := Settle(n, seen, now)
			if mark {
				w.markSent(d, n.ID)
			}
			if leave {
				left = append(left, Left{u.Number, u.Table, n})
			}
		}
		if !w.off["tally"] {
			d.tally.Marked[u.Number] = u.Offset
			d.tally.Left = append(d.tally.Left, left...)
		}
		return left
	}
}

func (d *database) leftOf(unit uint64) []Left {
	var out []Left
	for _, l := range d.tally.Left {
		if l.Unit == unit {
			out = append(out, l)
		}
	}
	return out
}

func (w *world) markSent(d *database, id string) {
	if r := d.find(id); r != nil && r.status == pending {
		r.status = sent
	}
}

// look finds a row by its id, as recovery does. It makes the record and the name again.
func (w *world) look(d *database, n Name) (Seen, Name) {
	r := d.find(n.ID)
	switch {
	case r == nil:
		return Absent, Name{}
	case !r.visible:
		return Absent, Name{}
	case r.status != pending:
		return Settled, Name{}
	case w.locked[r.content]:
		return Locked, Name{}
	case w.off["hash"]:
		return Pending, n
	}
	return Pending, r.name()
}

// markLeft marks rows that were left, and takes them off the list in the same transaction.
func (w *world) markLeft(left []Left, over func(l Left) bool) query {
	return func(d *database) any {
		for _, l := range left {
			i := slices.Index(d.tally.Left, l)
			if i < 0 && !w.off["leftOnce"] {
				continue
			}
			seen, now := w.look(d, l.Name)
			if seen == Absent && over(l) {
				seen = Settled
			}
			mark, leave := Settle(l.Name, seen, now)
			if mark {
				w.markSent(d, l.Name.ID)
			}
			if !leave && i >= 0 {
				d.tally.Left = slices.Delete(d.tally.Left, i, i+1)
			}
		}
		return slices.Clone(d.tally.Left)
	}
}

// advanced returns the last unit before the first gap, as sql/tally_advance.sql finds it.
func advanced(t *Tally) Placed {
	head := t.Head
	for {
		offset, noted := t.Marked[head.Number+1]
		if !noted {
			return head
		}
		head = Placed{Unit: Unit{Number: head.Number + 1}, Offset: offset}
	}
}

// advance moves the head.
func advance(d *database) any {
	d.tally.Head = advanced(&d.tally)
	maps.DeleteFunc(d.tally.Marked, func(n uint64, _ int64) bool { return n <= d.tally.Head.Number })
	return nil
}

func readTally(d *database) any { return d.clone().tally }
