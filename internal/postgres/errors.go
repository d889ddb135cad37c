package postgres

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Error says what failed at the database, why, and what to do.
type Error struct {
	// Permanent says that waiting does not help: a person has to act. The call may still be repeated, at long
	// intervals.
	Permanent bool
	What      string // the activity and its object; empty if Err has them
	Hint      string // what to do; empty if only time helps
	Err       error  // the server's error, the network's, or a sentinel of the caller's package
}

func (e *Error) Error() string {
	text := e.Err.Error()
	if e.What != "" {
		text = e.What + ": " + text
	}
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// WithHint adds what to do to an error.
func WithHint(err error, hint string) error { return &Error{Err: err, Hint: hint} }

// Permanent reports whether only a person can fix the cause of an error.
func Permanent(err error) bool {
	for {
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Permanent {
			return ok
		}
		err = e.Err // the error that the hint was added to
	}
}

// ServerError returns the server's own error in err. nil: the server did not answer, or something else
// failed.
func ServerError(err error) *pgconn.PgError {
	e, _ := errors.AsType[*pgconn.PgError](err)
	return e
}

// Code returns the SQLSTATE of the server's error (package pgerrcode names them); "" if the error is not the
// server's. https://www.postgresql.org/docs/current/errcodes-appendix.html
func Code(err error) string {
	if e := ServerError(err); e != nil {
		return e.Code
	}
	return ""
}

// HasCode reports whether the error is the server's and has one of the SQLSTATEs.
func HasCode(err error, codes ...string) bool {
	code := Code(err)
	return code != "" && slices.Contains(codes, code)
}

// Unreachable reports whether the server could not be asked: it does not answer, or it accepts no sessions.
func Unreachable(err error) bool {
	if code := Code(err); code != "" {
		return pgerrcode.IsConnectionException(code) || pgerrcode.IsInvalidAuthorizationSpecification(code) || code == pgerrcode.InvalidCatalogName ||
			pgerrcode.IsOperatorIntervention(code) && code != pgerrcode.QueryCanceled || code == pgerrcode.TooManyConnections
	}
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[net.Error](err)
	return connecting || network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// Away reports whether no server answers, or the server is starting or stopping.
func Away(err error) bool {
	return Unreachable(err) && (Code(err) == "" || HasCode(err, pgerrcode.AdminShutdown, pgerrcode.CrashShutdown, pgerrcode.CannotConnectNow))
}

// ServerWide returns the reason if the server refuses everybody, whatever they ask; otherwise "".
func ServerWide(err error) string {
	if Away(err) {
		return "the database cannot be reached"
	}
	switch Code(err) {
	case pgerrcode.ReadOnlySQLTransaction:
		return "the server is read-only"
	case pgerrcode.DiskFull:
		return "the server's disk is full"
	}
	return ""
}

// passwordError is why the configured source of a password gave none.
type passwordError struct {
	role string
	err  error
}

func (e *passwordError) Error() string {
	return "read the password of role " + e.role + ": " + e.err.Error()
}
func (e *passwordError) Unwrap() error { return e.err }

// LoginRefused returns what to do about a login that the server refuses, or about a password that cannot be
// read; "" for any other error.
func LoginRefused(err error, user string) (hint string) {
	if p, ok := errors.AsType[*passwordError](err); ok && (errors.Is(p.err, fs.ErrNotExist) || errors.Is(p.err, fs.ErrPermission)) {
		return "have it there, readable for the user that runs outbox-cdc"
	}
	switch Code(err) {
	case pgerrcode.InvalidPassword:
		return "correct the password in the dsn, or: ALTER ROLE " + sql.Identifier(user) + " PASSWORD '…';"
	case pgerrcode.InvalidAuthorizationSpecification:
		return "create role " + sql.Identifier(user) + " with LOGIN, and allow its connection in pg_hba.conf"
	case pgerrcode.InvalidCatalogName:
		return "correct the database's name in the dsn, or create it"
	}
	return ""
}

// WithoutSettings returns why a connection failed. The driver's own text repeats the connection's settings.
func WithoutSettings(err error) error {
	if server := ServerError(err); server != nil {
		return server
	}
	if c, ok := errors.AsType[*pgconn.ConnectError](err); ok && c.Unwrap() != nil {
		return &unconnected{c.Unwrap()}
	}
	if p, ok := errors.AsType[*pgconn.ParseConfigError](err); ok && p.Unwrap() != nil {
		return p.Unwrap()
	}
	return err
}

// unconnected is why a connection failed. The driver tries with TLS and without, or the reverse, at every
// address. Its text has a line for each try.
type unconnected struct{ err error }

func (u *unconnected) Unwrap() error { return u.err }

func (u *unconnected) Error() string { return strings.Join(u.reasons(), "; ") }

const noTLS = "server refused TLS connection"

// reasons returns each reason once. A lack of TLS counts only if there is no other reason.
func (u *unconnected) reasons() []string {
	var all []string
	for _, line := range strings.Split(u.err.Error(), "\n") {
		line = standby.ReplaceAllString(strings.TrimSpace(line), "${1} is a standby, which takes no writes")
		line = dialled.ReplaceAllString(line, "")
		if line != "" && !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	told := slices.DeleteFunc(slices.Clone(all), func(r string) bool { return strings.HasSuffix(r, noTLS) })
	if len(told) > 0 {
		return told
	}
	return all
}

// NoTLS reports whether a connection failed because servers answered, but none supports TLS.
func NoTLS(err error) bool {
	c, ok := errors.AsType[*pgconn.ConnectError](err)
	return ok && c.Unwrap() != nil && strings.HasSuffix((&unconnected{c.Unwrap()}).Error(), noTLS)
}

var (
	// dialled matches the driver's words before the text of the network (which has the address) or of the
	// server.
	dialled = regexp.MustCompile(`^\S+ \([^()]*\): (dial error: |server error: |failed SASL auth: )?`)
	// standby matches the driver's words if target_session_attrs asks for a server that accepts writes.
	standby = regexp.MustCompile(`^(\S+) \([^()]*\): ValidateConnect failed: read only connection$`)
)

// Text returns an error's text for people. The driver's lines about a failed connection become one line, with
// each reason once.
func Text(err error) string {
	text := err.Error()
	if c, ok := errors.AsType[*pgconn.ConnectError](err); ok && c.Unwrap() != nil {
		to := fmt.Sprintf("cannot connect as %s to database %s: ", c.Config.User, c.Config.Database)
		text = strings.Replace(text, c.Error(), to+(&unconnected{c.Unwrap()}).Error(), 1)
	}
	return text
}
