package pipeline

import (
	"cmp"
	"errors"
	"maps"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// learned is what the WAL reader's connections have taught it. It outlives a term, since one may end
// with its connection.
type learned struct {
	silence silence
	// remake is why the slot must be re-created though it looks sound.
	remake checkpoint.Connected
	// refused is why the server refused the last START_REPLICATION, where waiting does not help. The next inspect
	// reports it; the one after that tries again.
	refused *postgres.Error
	// unadded is why the publication still lacks tables. The next inspect says it of them.
	unadded error
	// warned are the last inspect's warnings, each logged once.
	warned []string
	// relations are the tables' OIDs as last seen, for an old schema that does not store them. The driver reads them, too.
	relations atomic.Pointer[map[string]uint32]
	// gone has the last OID of each table that no longer exists, numbers the last number of each mapped column, by
	// statestore.NumberOf, also where it was renamed or dropped.
	gone, numbers map[string]uint32
	// text: a column's binary form is not understood, the WAL has to be text.
	text atomic.Bool
}

// sees notes which tables are gone, with their OIDs from before, and which are back; and the numbers of columns.
func (l *learned) sees(before map[string]uint32, tables []replication.TableState) {
	if l.gone == nil {
		l.gone = map[string]uint32{}
	}
	for i := range tables {
		name := tables[i].Table.String()
		switch was := cmp.Or(before[name], before[statestore.Was(name)]); {
		case tables[i].Exists:
			delete(l.gone, name)
		case was != 0:
			l.gone[name] = was
		}
	}
	known := l.numbers
	l.numbers = map[string]uint32{}
	for i := range tables {
		t := &tables[i]
		for column, number := range t.Numbers {
			key := statestore.NumberOf(t.Table.String(), column)
			if number == 0 && before[t.Table.String()] == t.OID { // numbers are a relation's own
				number = cmp.Or(known[key], before[key])
			}
			if number != 0 {
				l.numbers[key] = number
			}
		}
	}
}

// stored adds the tables that are gone, and the columns' numbers, to what the database remembers.
func (l *learned) stored(id statestore.Identity) statestore.Identity {
	relations := map[string]uint32{}
	maps.Copy(relations, id.Relations)
	maps.Copy(relations, l.numbers)
	for name, was := range l.gone {
		relations[statestore.Was(name)] = was
	}
	id.Relations = relations
	return id
}

// remembers adds the OIDs that only this process remembers.
func (l *learned) remembers(known statestore.Identity) statestore.Identity {
	if last := l.relations.Load(); last != nil && len(known.Relations) == 0 {
		known.Relations = *last
	}
	return known
}

// tableOf is the stream's table that had this OID when the connection began; empty: none.
func (l *learned) tableOf(oid uint32) string {
	if relations := l.relations.Load(); relations != nil {
		for table, of := range *relations {
			if of == oid {
				return table
			}
		}
	}
	return ""
}

// silence tells a server that is gone from one that prints a row: numbers in a few hundred
// kilobytes of JSON may take it minutes, and nothing comes meanwhile. A connection that ended there
// in silence would be followed by others that do, so each waits twice as long as the last.
type silence struct {
	at    outbox.LSN // what was confirmed when the last one ended
	times int        // how many ended in a row without confirming more
}

// longestSilence bounds the timeout.
const longestSilence = 15 * time.Minute

func (s *silence) note(err error, confirmed outbox.LSN) {
	if confirmed > s.at || errors.Is(err, errMoved) { // there positions begin again, below
		*s = silence{at: confirmed}
	}
	if errors.Is(err, replication.ErrSilent) {
		s.times++
	}
}

// timeout is how long the next connection may wait.
func (s *silence) timeout(usual time.Duration) time.Duration {
	return min(usual<<min(max(s.times-1, 0), 10), max(usual, longestSilence))
}

// sessions are the server processes that serve this process's connections. The
// server may take a while to notice that one of them is gone.
type sessions map[string]bool

func (s sessions) add(c *replication.Conn) { s[strconv.FormatUint(uint64(c.PID()), 10)] = true }
