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

// learned is what the WAL reader's connections have found out. It outlives a term, because a term may end
// with its connection.
type learned struct {
	silence silence
	// remake, if it has a Cause, is why the slot must be made again although it looks sound.
	remake checkpoint.Connected
	// refused is the server's refusal of the last START_REPLICATION, if waiting does not help. The next
	// inspection reports it; the one after that tries again.
	refused *postgres.Error
	// unadded is why tables could not be added to the publication. The next inspection reports it with these
	// tables.
	unadded error
	// warned are the warnings of the last inspection. Each warning is logged once.
	warned []string
	// relations are the tables' OIDs as last read, for an old version of the schema that does not store them.
	// The driver reads them too.
	relations atomic.Pointer[map[string]uint32]
	// gone has the last OID of each table that no longer exists. numbers has the last attribute number of
	// each mapped column, by statestore.NumberOf, even if the column was renamed or dropped.
	gone, numbers map[string]uint32
	// text: the binary form of some column cannot be read, so the WAL has to be read as text.
	text atomic.Bool
}

// sees records which tables are gone, with their former OIDs, which tables are back, and the attribute
// numbers of the columns.
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
			if number == 0 && before[t.Table.String()] == t.OID { // numbers belong to one relation
				number = cmp.Or(known[key], before[key])
			}
			if number != 0 {
				l.numbers[key] = number
			}
		}
	}
}

// stored adds the tables that are gone, and the columns' numbers, to the identity that the database stores.
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

// remembers adds the OIDs that only this process knows, if the database has none.
func (l *learned) remembers(known statestore.Identity) statestore.Identity {
	if last := l.relations.Load(); last != nil && len(known.Relations) == 0 {
		known.Relations = *last
	}
	return known
}

// tableOf returns the name of the stream's table that had this OID when the connection began; "" if none had.
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

// silence distinguishes a dead server from one that is busy printing a row: numbers within a few hundred
// kilobytes of JSON can take minutes, and nothing is sent meanwhile. If such a connection were given up at
// the usual timeout, the next one would fail at the same row. So each connection waits twice as long as the
// one before.
type silence struct {
	at    outbox.LSN // the confirmed position when the last connection ended
	times int        // how many connections in a row ended in silence without confirming more
}

// longestSilence is the longest timeout.
const longestSilence = 15 * time.Minute

func (s *silence) note(err error, confirmed outbox.LSN) {
	if confirmed > s.at || errors.Is(err, errMoved) { // on the new server, positions begin again at a lower one
		*s = silence{at: confirmed}
	}
	if errors.Is(err, replication.ErrSilent) {
		s.times++
	}
}

// timeout returns how long the next connection may be silent.
func (s *silence) timeout(usual time.Duration) time.Duration {
	return min(usual<<min(max(s.times-1, 0), 10), max(usual, longestSilence))
}

// sessions are the PIDs of the server processes of this process's connections. The server may take a while to
// notice that one of these connections is gone.
type sessions map[string]bool

func (s sessions) add(c *replication.Conn) { s[strconv.FormatUint(uint64(c.PID()), 10)] = true }
