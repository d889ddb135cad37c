package tablesql

import (
	"context"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// RelationCache keeps what is made of each table's Relation until it is forgotten. It may
// be used by any number of goroutines.
type RelationCache[T any] struct {
	tables []*outbox.Table
	make   func(*Relation) (T, error)

	mu   sync.Mutex // guards made
	made map[*outbox.Table]T
}

// NewRelationCache expects to be asked for these tables, and perhaps for others.
func NewRelationCache[T any](tables []*outbox.Table, of func(*Relation) (T, error)) *RelationCache[T] {
	return &RelationCache[T]{tables: tables, make: of, made: make(map[*outbox.Table]T)}
}

// Get gives what is kept of a table. If that is nothing, it reads the catalogue, in one
// round trip for all tables that are missing: fifty lookups one by one would keep a
// start's first rows waiting. The connection must be outside of a transaction.
func (k *RelationCache[T]) Get(ctx context.Context, conn *pgx.Conn, t *outbox.Table) (T, error) {
	made, ok := k.Known(t)
	if ok {
		return made, nil
	}
	k.mu.Lock()
	missing := slices.DeleteFunc(slices.Clone(k.tables), func(other *outbox.Table) bool {
		_, ok := k.made[other]
		return ok || other == t
	})
	k.mu.Unlock()
	missing = append(missing, t)
	all, err := loadAll(ctx, conn, missing)
	if err != nil {
		return made, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, l := range all {
		var of T
		if err = l.Err; err == nil {
			of, err = k.make(l.Relation)
		}
		switch {
		case err == nil:
			k.made[missing[i]] = of
		case missing[i] == t: // of another table it is told when that is asked for
			return made, err
		}
	}
	return k.made[t], nil
}

// Known is Get without asking the server; false: nothing is kept.
func (k *RelationCache[T]) Known(t *outbox.Table) (T, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	made, ok := k.made[t]
	return made, ok
}

// Forget drops what is kept of a table, because DDL made it out of date, and says
// whether anything was.
func (k *RelationCache[T]) Forget(t *outbox.Table) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.made[t]
	delete(k.made, t)
	return ok
}
