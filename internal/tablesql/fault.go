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

// Fault says what an error of a statement means for it.
type Fault uint8

// The faults.
const (
	// Passing: of the connection, the server or the moment; the statement is
	// to be repeated.
	Passing Fault = iota + 1
	// Locked: a lock was not to be had in time.
	Locked
	// TableRefused: the statement will fail as long as nobody fixes the table,
	// its privileges or its mapping.
	TableRefused
	// RowRefused: likewise, but one row of several may be the only reason (a
	// constraint, a trigger, a value).
	RowRefused
)

// FaultOf tells by SQLSTATE. An unknown code from the server is a refusal, so
// that people see it: otherwise the statement would be repeated for ever.
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
		return Passing // DDL gave a prepared statement's result another type; a new connection prepares it again
	}
	fault := faultOfCode(server.Code)
	if fault == TableRefused && Raised(err) {
		return RowRefused // whatever the code, other rows may pass
	}
	return fault
}

func faultOfCode(code string) Fault {
	switch code {
	case pgerrcode.LockNotAvailable:
		return Locked
	case pgerrcode.ReadOnlySQLTransaction: // the server is a standby, or was made read-only
		return Passing
	case pgerrcode.InvalidSQLStatementName, pgerrcode.DuplicatePreparedStatement: // prepared statement lost or doubled: a pooler's work
		return Passing
	case pgerrcode.FeatureNotSupported, pgerrcode.ActiveSQLTransaction, pgerrcode.InsufficientPrivilege, pgerrcode.UndefinedTable, pgerrcode.UndefinedColumn, pgerrcode.InvalidSchemaName:
		return TableRefused
	}
	switch code[:2] { // the class, which also has codes that no package names yet
	case "08", "25", "28", "3D", "40", "53", "55", "57", "58":
		// Connection, state of the transaction, login, database, rollback, resources, state of an object, operators, system.
		// Login and database come while connecting: the stream as a whole is affected.
		return Passing
	case "42", "0A", "3F", "54":
		// Syntax, names and privileges; features; schemas; limits of the program.
		return TableRefused
	}
	return RowRefused
}

// Raised says whether the error comes from a function that the statement has not
// called itself: a trigger's, or one behind a constraint or a default. Such a
// function can choose any SQLSTATE, and fail for one row only. The context of an
// error is in the language of lc_messages, but the names of languages are not.
func Raised(err error) bool {
	server := postgres.ServerError(err)
	return server != nil && (strings.Contains(server.Where, "PL/") || strings.Contains(server.Where, "SQL"))
}

// Exhausted says that the server ran out of what all its sessions share, such as disk or
// memory, or cannot use its files. A trigger's statement may have met it, and nothing of the
// row is to blame. A procedural language (pl_exec.c, plpy_elog.c) that raises such a code
// has it from the function.
func Exhausted(err error) bool {
	server := postgres.ServerError(err)
	if server == nil || server.Code == pgerrcode.ConfigurationLimitExceeded || strings.HasPrefix(server.File, "pl") {
		return false
	}
	return pgerrcode.IsInsufficientResources(server.Code) || pgerrcode.IsSystemError(server.Code)
}

// TableError says that the database, or the mapping, refuses what was asked of
// a table. It will go on doing so until somebody fixes it.
type TableError struct {
	Table *outbox.Table
	Err   error
}

func (e *TableError) Error() string {
	name, text := "table "+e.Table.String(), e.Err.Error()
	if strings.HasPrefix(text, name+" ") || strings.HasPrefix(text, name+":") { // of a mapping that does not fit
		return text
	}
	return name + " refuses: " + text
}

// Locked says that somebody has the table locked.
func (e *TableError) Locked() bool { return FaultOf(e.Err) == Locked }

// Unwrap is the database's or the mapping's error.
func (e *TableError) Unwrap() error { return e.Err }

// Refusal turns the error of a statement that reads the table into a TableError, if it is a
// refusal, and returns other errors as they are.
func Refusal(t *outbox.Table, err error) error {
	_, already := errors.AsType[*TableError](err)
	_, mapped := errors.AsType[*mapping.Error](err)
	if !already && (mapped || FaultOf(err) != Passing) { // Locked, too: a reader waits for locks of the whole table only
		return &TableError{Table: t, Err: err}
	}
	return err
}

// Unknown says whether a statement may have been committed in spite of the
// error: the connection broke, or the server ended it, before it answered.
func Unknown(err error) bool {
	if err == nil {
		return false
	}
	server := postgres.ServerError(err)
	return server == nil || cmp.Or(server.SeverityUnlocalized, server.Severity) != "ERROR"
}

// WithHint adds a hint to the refusal of a statement that the role made on the
// table. It returns other errors as they are.
func WithHint(err error, t *outbox.Table, role string) error {
	code := postgres.Code(err)
	if _, already := errors.AsType[*postgres.Error](err); already {
		return err
	}
	if Raised(err) {
		// A function of the table's does not find, or may not use, what it names: our sessions
		// have no schema of an application in their path.
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
