package postgres

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// A hint, or what was being done, is added to an error: it stays as permanent as it was.
func TestPermanentWhateverIsAdded(t *testing.T) {
	cause := &Error{Permanent: true, What: "make a slot", Err: errors.New("no")}
	for _, err := range []error{cause, WithHint(cause, "do this"), fmt.Errorf("start: %w", &Error{What: "lead", Err: fmt.Errorf("first: %w", cause)})} {
		if !Permanent(err) {
			t.Errorf("%v passes", err)
		}
	}
	for _, err := range []error{nil, errors.New("no"), WithHint(errors.New("no"), "do this")} {
		if Permanent(err) {
			t.Errorf("%v is permanent", err)
		}
	}
}

// Several tries of one connection give each reason once, on one line. A lack of TLS is one only if nothing else was in
// the way.
func TestReasonOfAFailedConnection(t *testing.T) {
	const dsn = "postgres://u:hunter2@127.0.0.1:1/db?connect_timeout=5"
	_, err := pgconn.Connect(t.Context(), dsn)
	text := Text(fmt.Errorf("take the lead: %w", err))
	if want := "take the lead: cannot connect as u to database db: dial tcp 127.0.0.1:1: connect: connection refused"; text != want || !Unreachable(err) {
		t.Errorf("%q, want %q", text, want)
	}
	if text := WithoutSettings(err).Error(); strings.Count(text, "refused") != 1 || strings.Contains(text, "\n") {
		t.Errorf("%q", text)
	}
	for lines, want := range map[string]string{
		"h:1 (h): tls error: server refused TLS connection\nh:1 (h): server error: FATAL: no password":                                     "FATAL: no password",
		"h:1 (h): tls error: server refused TLS connection":                                                                                "tls error: server refused TLS connection",
		"a:1 (a): dial error: x\nb:2 (b): dial error: y":                                                                                   "x; y",
		"a:1 (a): dial error: x\nb:2 (b): tls error: server refused TLS connection\nb:2 (b): ValidateConnect failed: read only connection": "x; b:2 is a standby, which takes no writes",
	} {
		if got := (&unconnected{errors.New(lines)}).Error(); got != want {
			t.Errorf("%q: %q, want %q", lines, got, want)
		}
	}
	for _, err := range []error{errors.New("x"), &pgconn.PgError{Code: "42P01"}, &pgconn.PgError{Code: "57014"}} {
		if Unreachable(err) {
			t.Errorf("%v: the server answered", err)
		}
	}
	for _, code := range []string{"28P01", "3D000", "57P03", "53300", "08006"} {
		if !Unreachable(fmt.Errorf("x: %w", &pgconn.PgError{Code: code})) {
			t.Error(code)
		}
	}
}

// A password's file that is not there, or not for us, needs a person; what a command says may pass.
func TestAPasswordThatCannotBeRead(t *testing.T) {
	for err, want := range map[error]bool{syscall.ENOENT: true, syscall.EACCES: true, errors.New("the vault is away"): false} {
		hint := LoginRefused(fmt.Errorf("connect: %w", &passwordError{"cdc", err}), "cdc")
		if got := hint != ""; got != want {
			t.Errorf("%v: %q", err, hint)
		}
	}
}
