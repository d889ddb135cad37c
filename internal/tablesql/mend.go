package tablesql

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// mended is a refusal with what ends it.
type mended struct {
	error
	mend string
}

func (m *mended) Error() string { return m.error.Error() + " (" + m.mend + ")" }
func (m *mended) Unwrap() error { return m.error }

// Mended adds to the refusal of a statement on the table, made by the role,
// what ends it. Other errors are returned as they are.
func Mended(err error, t *outbox.Table, role string) error {
	var server *pgconn.PgError
	var already *mended
	if !errors.As(err, &server) || errors.As(err, &already) {
		return err
	}
	switch server.Code {
	case "42501": // insufficient_privilege
		return &mended{err, grants(t, role)}
	case "42P01", "3F000": // undefined_table, invalid_schema_name
		return &mended{err, fmt.Sprintf("create table %s, or take it out of the configuration", t)}
	}
	return err
}

// grants are the privileges of whoever reads and marks rows of the table.
func grants(t *outbox.Table, role string) string {
	privileges := "SELECT, UPDATE"
	if t.Mapping.Published == outbox.PublishedDelete || t.Mapping.Retention > 0 || t.Mapping.RetentionUnsent > 0 {
		privileges = "SELECT, UPDATE, DELETE"
	}
	return fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %[3]s; GRANT %[4]s ON %[2]s TO %[3]s",
		sql.Identifier(t.Schema), sql.Identifier(t.Schema, t.Name), sql.Identifier(role), privileges)
}
