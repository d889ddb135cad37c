package sweeper

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// Partitions returns, for each leaf partition ("schema.name"), the configured table that it belongs to.
func (s *Sweeper) Partitions(ctx context.Context) (map[string]*outbox.Table, error) {
	leaves := make(map[string]*outbox.Table)
	err := s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		for _, t := range s.cfg.Tables {
			err := s.send(ctx, conn, tablesql.Step{
				SQL:  leavesByNameSQL,
				Args: tablesql.Texts([]byte(t.Schema), []byte(t.Name)),
				Each: func(row [][]byte) error {
					leaves[string(row[0])+"."+string(row[1])] = t
					return nil
				},
			})
			if err != nil {
				return fmt.Errorf("reading the partitions of table %s: %w", t, err)
			}
		}
		return nil
	})
	return leaves, err
}

// Enums returns the OIDs of the types that are enums, or domains over an enum.
func (s *Sweeper) Enums(ctx context.Context) (map[uint32]bool, error) {
	enums := make(map[uint32]bool)
	err := s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return s.send(ctx, conn, tablesql.Step{SQL: enumsSQL, Each: func(row [][]byte) error {
			oid, err := strconv.ParseUint(string(row[0]), 10, 32)
			enums[uint32(oid)] = true
			return err
		}})
	})
	if err != nil {
		return nil, fmt.Errorf("reading which types are enums: %w", err)
	}
	return enums, nil
}

const enumsSQL = `
WITH RECURSIVE enum AS (
    SELECT oid FROM pg_catalog.pg_type WHERE typtype = 'e'
  UNION ALL
    SELECT d.oid FROM pg_catalog.pg_type d JOIN enum e ON d.typbasetype = e.oid WHERE d.typtype = 'd'
)
SELECT oid FROM enum`

// The partitions are read from the catalogue. pg_partition_tree would open them, and so wait for locks on
// them.
const leavesByNameSQL = `
WITH RECURSIVE tree AS (
    SELECT root.oid FROM pg_catalog.pg_class root JOIN pg_catalog.pg_namespace n ON n.oid = root.relnamespace
    WHERE n.nspname = $1 AND root.relname = $2 AND root.relkind = 'p'
  UNION ALL
    SELECT i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid AND NOT i.inhdetachpending
)
SELECT n.nspname, c.relname
FROM tree
JOIN pg_catalog.pg_class c ON c.oid = tree.oid AND c.relkind <> 'p'
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace`
