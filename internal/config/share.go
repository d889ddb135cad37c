package config

import (
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// checkShare resolves a table's share, or reports problems.
func checkShare(b *binder, t *Table, at string) {
	s := t.Share
	if s == nil || b.hasProblem(at) {
		return
	}
	complain := func(found, hint string) { b.complain(at, found, hint) }
	switch m := &t.Outbox.Mapping; {
	case s.Part > s.Of:
		complain(fmt.Sprintf("there is no part %d of %d", s.Part, s.Of), "write a part from 1 to of")
	case !t.Outbox.Stateful():
		complain("a share of a table that keeps no state (published: none)", "split such a table by publications of your own: nothing tells whose row one is after the slot is lost")
	case m.Key != nil && !m.Key.Plain():
		complain("a share is by the key's column, and the key is more than a column", "map a column as the key, or stream the table once")
	case m.ShedLock.Name != "":
		complain("a share cannot be combined with shedlock: one stream would hold the lock, and the others wait for it", "stream the table once while its relay is there, or stop the relay")
	case len(m.ID) == 0: // reported already
	default:
		t.Outbox.Share = outbox.Share{Part: s.Part, Of: s.Of}
	}
}

// addTable records a stream's table, and reports rows that two streams would publish.
func (d *duplicates) addTable(s *Stream, t *Table, server, at string) {
	const hint = "list each table once: two streams of one table would publish it twice, unless each has a share of its own"
	name, share := t.Outbox.String(), t.Outbox.Share
	table := "table " + server + "/" + s.Postgres.Database + " " + name
	split := ""
	if share.Of > 0 {
		split = fmt.Sprintf("%d parts by %s", share.Of, t.Outbox.ShareColumn())
	}
	switch earlier := d.splits[table]; {
	case share.Of == 0 && earlier != "":
		d.b.complain(at+".table", fmt.Sprintf("takes every row of the table %s, which other streams share in %s", name, earlier), hint)
	case share.Of == 0 || d.first[table] != "":
		d.add(table, at+".table", "the table "+name, hint)
	case earlier != "" && earlier != split:
		d.b.complain(at+".share", fmt.Sprintf("splits the table %s into %s, another stream into %s", name, split, earlier), "split it in the same way everywhere, or rows are published twice, or never")
	default:
		d.splits[table] = split
		d.add(s.Name+" "+table, at+".table", "the table "+name+" in this stream", "give each part a stream and a slot of its own")
		d.add(share.String()+" "+table, at+".share", fmt.Sprintf("%s of the table %s", share, name), "give each stream another part")
	}
}
