package tablesql

import (
	"context"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// RelationCache keeps a value that was made of each table's Relation, until it is forgotten. Any number of
// goroutines may use it.
type RelationCache[T any] struct {
	tables []*outbox.Table
	make   func(*Relation) (T, error)

	mu   sync.Mutex // guards made
	made map[*outbox.Table]T
}

// NewRelationCache returns an empty cache for these tables. It also accepts others.
func NewRelationCache[T any](tables []*outbox.Table, of func(*Relation) (T, error)) *RelationCache[T] {
	return &RelationCache[T]{tables: tables, make: of, made: make(map[*outbox.Table]T)}
}

// Get returns the value for a table. If there is none, it reads the catalogue, in one round trip for all
// tables without a value: fifty separate reads would delay the first rows after a start. The connection must
// not be in a transaction.
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
		case missing[i] == t: // the error of another table is returned when that table is asked for
			return made, err
		}
	}
	return k.made[t], nil
}

// Known is Get without a query. It returns false if there is no value.
func (k *RelationCache[T]) Known(t *outbox.Table) (T, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	made, ok := k.made[t]
	return made, ok
}

// Forget discards the value for a table, because DDL made it out of date. It reports whether there was one.
func (k *RelationCache[T]) Forget(t *outbox.Table) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.made[t]
	delete(k.made, t)
	return ok
}
