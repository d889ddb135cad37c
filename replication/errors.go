package replication

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgerrcode"

	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// The errors that a postgres.Error of this package may wrap. Test for them with errors.Is.
var (
	// ErrClosed: the connection is closed, and the leadership ended with it.
	ErrClosed = errors.New("the replication connection is closed")
	// ErrStopped: Stop was called on this connection, so its walsender does not stream again.
	ErrStopped = errors.New("streaming was stopped on this connection")
	// ErrShutdown: the server is shutting down, or an administrator terminated the session (57P01 to 57P03,
	// or 57P05 after idle_session_timeout). A session whose slot was invalidated ends the same way. The
	// connection is closed.
	ErrShutdown = errors.New("the server ends the session")
	// ErrSilent: the server was asked for an answer and sent nothing in time.
	ErrSilent = errors.New("the server does not answer")
	// ErrLockLost: the session no longer holds the leadership lock. This happens behind a pooler in
	// transaction mode.
	ErrLockLost = errors.New("the leadership lock is not held by this session")
	// ErrSlotActive: another connection streams from the slot (55006).
	ErrSlotActive = errors.New("the slot is in use")
	// ErrSlotGone: the slot does not exist (42704 from START_REPLICATION).
	ErrSlotGone = errors.New("the slot does not exist")
	// ErrSlotUnusable: the slot exists but cannot be read (55000 from START_REPLICATION). Inspect gives the
	// reason.
	ErrSlotUnusable = errors.New("the slot cannot be used")
	// ErrPublicationGone: the publication did not exist when a change in the WAL was made (42704 while
	// streaming). On versions 14 to 17, streaming from this slot ends with this error again each time, until
	// the slot is made again.
	ErrPublicationGone = errors.New("the publication did not exist at this point of the WAL")
	// ErrUnreadable: the server cannot decode its WAL beyond this point: files are missing, data is corrupt,
	// or the output plugin reports an error.
	ErrUnreadable = errors.New("the WAL cannot be read")
	// ErrProtocol: the server sent something that the protocol does not allow.
	ErrProtocol = errors.New("protocol violation")
	// ErrFrameTooLarge: a message is longer than Config.MaxFrame and cannot be shortened.
	ErrFrameTooLarge = errors.New("a message is larger than allowed")
)

// classified is an error of a class (one of the sentinels above) with its cause. errors.Is finds both.
type classified struct{ class, cause error }

func (c *classified) Error() string   { return c.class.Error() + ": " + c.cause.Error() }
func (c *classified) Unwrap() []error { return []error{c.class, c.cause} }

func as(class, cause error) error {
	if cause == nil {
		return class
	}
	return &classified{class, cause}
}

func connectError(what, user string, err error) *postgres.Error {
	e := &postgres.Error{What: what, Err: err}
	if postgres.ServerError(err) != nil {
		e.Permanent, e.Hint = refusal(err, user)
		if shuttingDown(err) {
			e.Err = as(ErrShutdown, err)
		}
		return e
	}
	switch hint := postgres.LoginRefused(err, user); {
	case hint != "":
		e.Permanent, e.Hint = true, hint
	case errors.As(err, new(*tls.CertificateVerificationError)), errors.As(err, new(x509.UnknownAuthorityError)), errors.As(err, new(x509.HostnameError)):
		e.Permanent, e.Hint = true, "correct sslrootcert or the server's certificate"
	case postgres.NoTLS(err):
		e.Permanent, e.Hint = true, "switch ssl on at the server, or set sslmode=disable"
	case errors.Is(err, postgres.ErrShared):
		e.Permanent = true
	}
	return e
}

// refusal judges the server's refusal of a connection: whether a retry is useless (permanent), and what to
// do.
func refusal(err error, user string) (permanent bool, hint string) {
	if hint := postgres.LoginRefused(err, user); hint != "" {
		return true, hint
	}
	switch postgres.Code(err) {
	case pgerrcode.InsufficientPrivilege:
		role := sql.Identifier(user)
		return true, fmt.Sprintf("as a superuser: ALTER ROLE %s REPLICATION; (Amazon RDS and Aurora: GRANT rds_replication TO %s;) and grant it CONNECT on the database", role, role)
	case pgerrcode.ProtocolViolation, pgerrcode.FeatureNotSupported:
		return true, "a connection pooler that knows no replication connections stands in between: connect to PostgreSQL itself, or through PgBouncer 1.23 or later"
	case pgerrcode.UndefinedObject:
		return true, "correct the parameters in the dsn: the server does not know one of them"
	case pgerrcode.TooManyConnections:
		return false, "raise max_wal_senders or max_connections, or end idle replication connections"
	}
	return false, ""
}

func shuttingDown(err error) bool {
	return postgres.HasCode(err, pgerrcode.AdminShutdown, pgerrcode.CrashShutdown, pgerrcode.CannotConnectNow, pgerrcode.IdleSessionTimeout)
}

// startError makes an Error of the server's refusal of START_REPLICATION. The session can still take
// commands.
func startError(slot string, server error) *postgres.Error {
	e := &postgres.Error{What: "start streaming from slot " + slot, Err: server}
	switch {
	case postgres.HasCode(server, pgerrcode.ObjectInUse):
		e.Err = as(ErrSlotActive, server)
		e.Hint = "end the other consumer of the slot, or give this stream a slot of its own"
	case postgres.HasCode(server, pgerrcode.UndefinedObject):
		e.Err = as(ErrSlotGone, server)
	case postgres.HasCode(server, pgerrcode.ObjectNotInPrerequisiteState):
		e.Err = as(ErrSlotUnusable, server)
	case postgres.HasCode(server, pgerrcode.InsufficientPrivilege):
		e.Permanent, e.Hint = true, pluginRefused(server)
		if e.Hint == "" {
			e.Hint = "ALTER ROLE … REPLICATION for the streaming role"
		}
	}
	return e
}

// pluginRefused returns what to do about an error by which the server refuses the output plugin, and "" for
// any other error. The error is recognised by the setting's name in the server's hint, which is not
// translated.
func pluginRefused(err error) string {
	if server := postgres.ServerError(err); server == nil || !strings.Contains(server.Hint, "output_plugin_libraries") {
		return ""
	}
	return allow() + "  -- name every other library there, too"
}

func streamError(slot string, server error) *postgres.Error {
	e := &postgres.Error{What: "stream from slot " + slot, Err: server}
	switch {
	case shuttingDown(server):
		e.Err = as(ErrShutdown, server)
	case postgres.HasCode(server, pgerrcode.UndefinedObject):
		e.Err = as(ErrPublicationGone, server)
		e.Hint = "re-create the publication, then the slot"
	case unreadable(postgres.Code(server)):
		e.Err = as(ErrUnreadable, server)
	}
	return e
}

// unreadable reports whether a decoding error with this SQLSTATE would come back on every retry. Errors
// caused by resources, operators or connections would not.
func unreadable(code string) bool {
	if len(code) != 5 {
		return false
	}
	switch code[:2] { // the SQLSTATE classes of values, states, features, names, limits, configuration files, functions and internal errors
	case "0A", "21", "22", "23", "26", "2B", "34", "38", "39", "42", "54", "F0", "P0", "XX":
		return true
	}
	return code == pgerrcode.UndefinedFile || code == pgerrcode.DuplicateFile
}
