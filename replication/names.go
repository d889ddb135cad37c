package replication

import (
	"errors"
	"fmt"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

func quoteTable(t *outbox.Table) string { return sql.Identifier(t.Schema, t.Name) }

// checkSlotName applies PostgreSQL's own rule for slot names.
// https://www.postgresql.org/docs/current/warm-standby.html#STREAMING-REPLICATION-SLOTS
func checkSlotName(slot string) error {
	foreign := func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789_", r)
	}
	if slot == "" || len(slot) > 63 || strings.ContainsFunc(slot, foreign) {
		return &postgres.Error{
			Permanent: true, What: fmt.Sprintf("use slot %q", slot),
			Err:  errors.New("not a slot name"),
			Hint: "a slot name has 1 to 63 lower-case letters, digits and underscores",
		}
	}
	return nil
}
