package tablesql

import (
	"errors"
	"fmt"

	"github.com/jackc/pgerrcode"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// WithHint adds to the refusal of a statement on the table, made by the role,
// what ends it. Other errors are returned as they are.
func WithHint(err error, t *outbox.Table, role string) error {
	code := postgres.Code(err)
	if _, already := errors.AsType[*postgres.Error](err); already {
		return err
	}
	if Raised(err) {
		return raised(err, code)
	}
	switch code {
	case pgerrcode.InsufficientPrivilege:
		return postgres.WithHint(err, grants(t, role))
	case pgerrcode.UndefinedTable, pgerrcode.InvalidSchemaName:
		return postgres.WithHint(err, fmt.Sprintf("create table %s, or take it out of the configuration", t))
	}
	return err
}

// raised adds what helps where a function of the table's does not find, or may not
// use, what it names: our sessions have no schema of an application in their path.
func raised(err error, code string) error {
	switch code {
	case pgerrcode.UndefinedTable, pgerrcode.UndefinedFunction, pgerrcode.UndefinedObject, pgerrcode.InvalidSchemaName:
		return postgres.WithHint(err, "a trigger's function, or one that it calls, names this without its schema, and search_path is pg_catalog here: ALTER FUNCTION … SET search_path = …")
	case pgerrcode.InsufficientPrivilege:
		return postgres.WithHint(err, "a trigger's function lacks this privilege: grant it, or make the function SECURITY DEFINER with a search_path of its own")
	}
	return err
}

// grants are the privileges of the role that reads and marks rows of the table.
func grants(t *outbox.Table, role string) string {
	privileges, archive := "SELECT, UPDATE", ""
	if a := t.Mapping.Archive; a.Name != "" {
		archive = fmt.Sprintf("; GRANT USAGE ON SCHEMA %s TO %[3]s; GRANT INSERT ON %[2]s TO %[3]s", sql.Identifier(a.Schema), sql.Identifier(a.Schema, a.Name), sql.Identifier(role))
	}
	if t.Mapping.Published.Removes() || t.Mapping.Retention > 0 || t.Mapping.RetentionUnsent > 0 {
		privileges = "SELECT, UPDATE, DELETE"
	}
	return fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %[3]s; GRANT %[4]s ON %[2]s TO %[3]s",
		sql.Identifier(t.Schema), sql.Identifier(t.Schema, t.Name), sql.Identifier(role), privileges) + archive
}
