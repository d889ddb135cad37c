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
	// refused is why the server refused the last start, where waiting does not help: the next look
	// finds it, and the one after that tries again.
	refused *postgres.Error
	// relations are the tables' as last seen, for a schema that has no place for them. The driver reads them, too.
	relations atomic.Pointer[map[string]uint32]
	// gone are the relations that tables were which are not there any more.
	gone map[string]uint32
	// text: a column's binary form is not understood, the WAL has to be text.
	text atomic.Bool
}

// sees notes which of the tables that were these relations are gone, and which are back.
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
}

// stored is what is remembered in the database.
func (l *learned) stored(id statestore.Identity) statestore.Identity {
	relations := map[string]uint32{}
	maps.Copy(relations, id.Relations)
	for name, was := range l.gone {
		relations[statestore.Was(name)] = was
	}
	id.Relations = relations
	return id
}

// remembers adds what only this process knows of where the stream stood.
func (l *learned) remembers(known statestore.Identity) statestore.Identity {
	if last := l.relations.Load(); last != nil && len(known.Relations) == 0 {
		known.Relations = *last
	}
	return known
}

// tableOf is the stream's table that the relation was when the connection began; empty: none.
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

// silence tells a server that is gone from one that prints a row: a few hundred
// kilobytes of JSON may have numbers that take it minutes, in which nothing comes.
// A connection that ends in silence where the one before did would end there for
// ever, so each waits twice as long as the last.
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
