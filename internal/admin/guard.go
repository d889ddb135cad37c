package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// Auth is who may ask: whoever knows the token, or the name and password. The
// zero value lets everybody in. Health is told to everybody in any case, since
// probes carry no credentials.
type Auth struct {
	Token              string // Authorization: Bearer …
	Username, Password string // Authorization: Basic …
}

// Required says that anybody is refused.
func (a *Auth) Required() bool { return a.Token != "" || a.Username != "" || a.Password != "" }

// allows compares in a time that does not depend on what is wrong.
func (a *Auth) allows(r *http.Request) bool {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	name, password, basic := r.BasicAuth()
	byToken := same(token, a.Token)
	byName, byPassword := same(name, a.Username), same(password, a.Password)
	return a.Token != "" && bearer && byToken || a.Username != "" && basic && byName && byPassword
}

// Who says whose credentials a request came with that was let in, for the log:
// the name, or that it was the token.
func (a *Auth) Who(r *http.Request) string {
	if name, _, basic := r.BasicAuth(); basic {
		return name
	}
	if a.Required() {
		return "whoever has the token"
	}
	return "anybody"
}

func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// open are the paths that everybody may ask for.
var open = map[string]bool{"/healthz": true, "/readyz": true}

const bodyBytes = 64 << 10

// guard refuses requests without credentials, and bounds their bodies.
func guard(a Auth, next http.Handler) http.Handler {
	next = http.MaxBytesHandler(next, bodyBytes)
	if !a.Required() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if open[r.URL.Path] || a.allows(r) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Add("WWW-Authenticate", `Bearer realm="outbox-cdc"`)
		if a.Username != "" {
			w.Header().Add("WWW-Authenticate", `Basic realm="outbox-cdc", charset="UTF-8"`)
		}
		answer(w, http.StatusUnauthorized, map[string]string{"error": "credentials are missing or wrong (http.auth of the configuration)"})
	})
}

// certificate is a pair of files that may be replaced while the process runs.
type certificate struct {
	certFile, keyFile string

	mu       sync.Mutex
	loaded   *tls.Certificate
	changed  time.Time // of the files that were loaded
	lookedAt time.Time
}

// lookEvery bounds how often the files are looked at.
const lookEvery = 10 * time.Second

// get is the current certificate. A new one that cannot be read (yet) leaves
// the one before in use.
func (c *certificate) get(now time.Time) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loaded != nil && now.Sub(c.lookedAt) < lookEvery {
		return c.loaded, nil
	}
	c.lookedAt = now
	changed, err := newest(c.certFile, c.keyFile)
	if err == nil && c.loaded != nil && changed.Equal(c.changed) {
		return c.loaded, nil
	}
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.LoadX509KeyPair(c.certFile, c.keyFile)
	}
	if err == nil {
		c.loaded, c.changed = &pair, changed
	}
	if c.loaded == nil {
		return nil, fmt.Errorf("read the certificate of http.tls: %w", err)
	}
	return c.loaded, nil
}

func newest(files ...string) (time.Time, error) {
	var at time.Time
	var errs []error
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if info.ModTime().After(at) {
			at = info.ModTime()
		}
	}
	return at, errors.Join(errs...)
}

// tlsConfig serves the certificate of the files; they are read once now, so that
// a mistake is known before anything starts.
func tlsConfig(certFile, keyFile string) (*tls.Config, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile}
	if _, err := c.get(time.Now()); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.get(time.Now()) },
		NextProtos:     []string{"h2", "http/1.1"},
	}, nil
}
