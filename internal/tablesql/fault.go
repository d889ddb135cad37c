package tablesql

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgerrcode"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Fault says what an error means for the statement that met it.
type Fault uint8

// The values of Fault.
const (
	// Passing: the error is temporary, of the connection or the server. Repeat the statement.
	Passing Fault = iota + 1
	// Locked: a lock was not granted in time.
	Locked
	// TableRefused: the statement will fail until somebody fixes the table, its privileges or its mapping.
	TableRefused
	// RowRefused: as TableRefused, but a single row may be the cause (by a constraint, a trigger or a value).
	RowRefused
)

// FaultOf classifies an error by its SQLSTATE. A code that it does not know is a refusal, so that people see
// it. Otherwise the statement would be repeated for ever.
// https://www.postgresql.org/docs/current/errcodes-appendix.html
func FaultOf(err error) Fault {
	if _, unusable := errors.AsType[*MappingError](err); unusable {
		return TableRefused
	}
	server := postgres.ServerError(err)
	if server == nil || len(server.Code) != 5 {
		return Passing
	}
	if server.Routine == "RevalidateCachedQuery" {
		return Passing // DDL gave a prepared statement's result another type. A new connection prepares it again
	}
	fault := faultOfCode(server.Code)
	if fault == TableRefused && Raised(err) {
		return RowRefused // whatever the code says, other rows may pass
	}
	return fault
}

func faultOfCode(code string) Fault {
	switch code {
	case pgerrcode.LockNotAvailable:
		return Locked
	case pgerrcode.ReadOnlySQLTransaction: // the server is a standby, or became read-only
		return Passing
	case pgerrcode.InvalidSQLStatementName, pgerrcode.DuplicatePreparedStatement: // a pooler lost or duplicated a prepared statement
		return Passing
	case pgerrcode.FeatureNotSupported, pgerrcode.ActiveSQLTransaction, pgerrcode.InsufficientPrivilege, pgerrcode.UndefinedTable, pgerrcode.UndefinedColumn, pgerrcode.InvalidSchemaName:
		return TableRefused
	}
	switch code[:2] { // the class, which may also have codes that pgerrcode lacks
	case "08", "25", "28", "3D", "40", "53", "55", "57", "58":
		// The classes: connection, transaction state, login, database, rollback, resources, object state,
		// operator, system. Errors of login and database come while connecting, so they concern the stream as
		// a whole.
		return Passing
	case "42", "0A", "3F", "54":
		// The classes: syntax, names and privileges; features; schemas; program limits.
		return TableRefused
	}
	return RowRefused
}

// Raised reports whether the error comes from a function that the statement did not call itself: that of a
// trigger, or one behind a constraint or a default. Such a function can choose any SQLSTATE, and fail for one
// row only. It is recognised by the error's context. That text is translated by lc_messages, but the names of
// languages in it are not.
func Raised(err error) bool {
	server := postgres.ServerError(err)
	return server != nil && (strings.Contains(server.Where, "PL/") || strings.Contains(server.Where, "SQL"))
}

// Exhausted reports whether the server lacks something that all its sessions share, such as disk or memory,
// or cannot use its files. The statement of a trigger may have met this, so the row is not to blame. A
// procedural language (pl_exec.c, plpy_elog.c) that raises such a code has it from the trigger's function.
func Exhausted(err error) bool {
	server := postgres.ServerError(err)
	if server == nil || server.Code == pgerrcode.ConfigurationLimitExceeded || strings.HasPrefix(server.File, "pl") {
		return false
	}
	return pgerrcode.IsInsufficientResources(server.Code) || pgerrcode.IsSystemError(server.Code)
}

// TableError says that the database, or the mapping, refuses a request about a table. The refusal lasts until
// somebody fixes the cause.
type TableError struct {
	Table *outbox.Table
	Err   error
}

func (e *TableError) Error() string {
	name, text := "table "+e.Table.String(), e.Err.Error()
	if strings.HasPrefix(text, name+" ") || strings.HasPrefix(text, name+":") { // the text of a MappingError begins with the table already
		return text
	}
	return name + " refuses: " + text
}

// Locked reports whether another session has the table locked.
func (e *TableError) Locked() bool { return FaultOf(e.Err) == Locked }

// Unwrap returns the error of the database or of the mapping.
func (e *TableError) Unwrap() error { return e.Err }

// Refusal turns a refusal of a statement that reads the table into a TableError. It returns any other error
// unchanged.
func Refusal(t *outbox.Table, err error) error {
	_, already := errors.AsType[*TableError](err)
	_, mapped := errors.AsType[*mapping.Error](err)
	if !already && (mapped || FaultOf(err) != Passing) { // includes Locked: a reader waits only for locks of the whole table
		return &TableError{Table: t, Err: err}
	}
	return err
}

// Unknown reports whether the statement may have been committed in spite of the error: the connection broke,
// or the server ended it, before the answer came.
func Unknown(err error) bool {
	if err == nil {
		return false
	}
	server := postgres.ServerError(err)
	return server == nil || cmp.Or(server.SeverityUnlocalized, server.Severity) != "ERROR"
}

// WithHint adds a hint to the refusal of a statement that the role ran on the table. It returns any other
// error unchanged.
func WithHint(err error, t *outbox.Table, role string) error {
	code := postgres.Code(err)
	if _, already := errors.AsType[*postgres.Error](err); already {
		return err
	}
	if Raised(err) {
		// A function of the table does not find, or may not use, an object that it names: the search_path of
		// our sessions has no schema of an application.
		switch code {
		case pgerrcode.UndefinedTable, pgerrcode.UndefinedFunction, pgerrcode.UndefinedObject, pgerrcode.InvalidSchemaName:
			return postgres.WithHint(err, "a trigger's function, or one that it calls, names this without its schema, and search_path is pg_catalog here: ALTER FUNCTION … SET search_path = …")
		case pgerrcode.InsufficientPrivilege:
			return postgres.WithHint(err, "a trigger's function lacks this privilege: grant it, or make the function SECURITY DEFINER with a search_path of its own")
		}
		return err
	}
	switch code {
	case pgerrcode.InsufficientPrivilege:
		return postgres.WithHint(err, grants(t, role))
	case pgerrcode.UndefinedTable, pgerrcode.InvalidSchemaName:
		return postgres.WithHint(err, fmt.Sprintf("create table %s, or take it out of the configuration", t))
	}
	return err
}

// grants returns the privileges that the role needs to read and mark rows of the table.
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
