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
	// Permanent says that waiting does not help: somebody has to act. Even
	// then the same call may be repeated, at a slow pace.
	Permanent bool
	What      string // what was being done, to what; empty where Err says it
	Hint      string // what to do; empty where only time helps
	Err       error  // the server's, the network's, or a sentinel of who made this one
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

// Permanent says whether only a person can fix what an error is about.
func Permanent(err error) bool {
	for {
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Permanent {
			return ok
		}
		err = e.Err // what it was added to
	}
}

// ServerError is the server's own error in err, or nil: it did not answer, or something else failed.
func ServerError(err error) *pgconn.PgError {
	e, _ := errors.AsType[*pgconn.PgError](err)
	return e
}

// Code is the SQLSTATE of the server's error, which package pgerrcode names; empty: it is none of the server's.
// https://www.postgresql.org/docs/current/errcodes-appendix.html
func Code(err error) string {
	if e := ServerError(err); e != nil {
		return e.Code
	}
	return ""
}

// HasCode says whether the error is the server's with one of the SQLSTATEs.
func HasCode(err error, codes ...string) bool {
	code := Code(err)
	return code != "" && slices.Contains(codes, code)
}

// Unreachable says whether an error is that the server could not be asked: nobody answers, or it lets nobody in.
func Unreachable(err error) bool {
	if code := Code(err); code != "" {
		return pgerrcode.IsConnectionException(code) || pgerrcode.IsInvalidAuthorizationSpecification(code) || code == pgerrcode.InvalidCatalogName ||
			pgerrcode.IsOperatorIntervention(code) && code != pgerrcode.QueryCanceled || code == pgerrcode.TooManyConnections
	}
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[net.Error](err)
	return connecting || network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// Away says whether an error is that no server answers, or that it starts or stops.
func Away(err error) bool {
	return Unreachable(err) && (Code(err) == "" || HasCode(err, pgerrcode.AdminShutdown, pgerrcode.CrashShutdown, pgerrcode.CannotConnectNow))
}

// ServerWide is what the server refuses to everybody, whatever they ask; empty: the error is another.
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

// passwordError is why the configuration's source of a password gives none.
type passwordError struct {
	role string
	err  error
}

func (e *passwordError) Error() string {
	return "read the password of role " + e.role + ": " + e.err.Error()
}
func (e *passwordError) Unwrap() error { return e.err }

// LoginRefused says what fixes a server's refusal of a login, or a password that cannot be read; empty: something
// else is wrong.
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

// WithoutSettings is why a connection failed. The driver's own text repeats the
// connection's settings.
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

// unconnected is why a connection failed. The driver tries TLS and then none, or the reverse, each at every address: its text
// has a line for each try.
type unconnected struct{ err error }

func (u *unconnected) Unwrap() error { return u.err }

func (u *unconnected) Error() string { return strings.Join(u.reasons(), "; ") }

const noTLS = "server refused TLS connection"

// reasons are what was in the way, each once. A lack of TLS is one only if nothing else was.
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

// NoTLS says whether a connection failed because servers answered, but none in TLS.
func NoTLS(err error) bool {
	c, ok := errors.AsType[*pgconn.ConnectError](err)
	return ok && c.Unwrap() != nil && strings.HasSuffix((&unconnected{c.Unwrap()}).Error(), noTLS)
}

var (
	// dialled is what the driver says before the text of the network, which names the address, or of the server.
	dialled = regexp.MustCompile(`^\S+ \([^()]*\): (dial error: |server error: |failed SASL auth: )?`)
	// standby is what it says where target_session_attrs asks for one that takes writes.
	standby = regexp.MustCompile(`^(\S+) \([^()]*\): ValidateConnect failed: read only connection$`)
)

// Text is an error for people. The driver's several lines about a failed connection become one, with each reason once.
func Text(err error) string {
	text := err.Error()
	if c, ok := errors.AsType[*pgconn.ConnectError](err); ok && c.Unwrap() != nil {
		to := fmt.Sprintf("cannot connect as %s to database %s: ", c.Config.User, c.Config.Database)
		text = strings.Replace(text, c.Error(), to+(&unconnected{c.Unwrap()}).Error(), 1)
	}
	return text
}
