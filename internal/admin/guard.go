package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/transport"
)

// guard checks every request first: it identifies the client, and refuses what the client may not do.
type guard struct {
	next   http.Handler
	users  []*user
	open   Role // role of clients without credentials
	hosts  map[string]bool
	logins *logins
	tls    bool
	// tell is called for each refused login.
	tell func(r *http.Request, user string)
	now  func() time.Time
}

// Role is what a client may do. Each role may do what the roles before it may.
type Role int

// The roles.
const (
	Nobody   Role = iota // only health
	Metrics              // metrics, and the status without keys of rows
	Viewer               // everything that only reads
	Operator             // may also change rows, pause and resume
)

// Auth says who may request what. Without users, everybody may read; keys of rows and reasons are then shown
// only on a loopback address.
type Auth struct{ Users []User }

// User is one credential: a name and a password, or a token.
type User struct {
	Role     Role
	Name     string // for basic authentication; empty: Password is a token
	Password Secret // or the bearer token
}

// Secret returns a secret as it is now.
type Secret func(context.Context) (string, error)

// asker is the client of a request. It is in the request's context.
type asker struct {
	role Role
	name string
}

type askerKey struct{}

func asking(r *http.Request) asker {
	a, _ := r.Context().Value(askerKey{}).(asker)
	return a
}

// NameOf returns the client's name for the log.
func NameOf(r *http.Request) string { return asking(r).name }

// MayAct reports whether the client may change rows.
func MayAct(r *http.Request) bool { return asking(r).role >= Operator }

// details reports whether the client may see reasons (which name roles and hosts) and keys of rows.
func details(r *http.Request) bool { return asking(r).role >= Viewer }

const bodyBytes = 64 << 10

func newGuard(cfg *Config, next http.Handler, now func() time.Time) (*guard, error) {
	g := &guard{
		next: http.MaxBytesHandler(next, bodyBytes), hosts: hosts(cfg.Hosts), logins: newLogins(now),
		tls: cfg.CertFile != "", tell: cfg.refused, now: now,
	}
	switch {
	case len(cfg.Auth.Users) > 0:
	case transport.LoopbackAddress(cfg.Listen):
		g.open = Viewer
	default:
		g.open = Metrics
	}
	for _, u := range cfg.Auth.Users {
		one := &user{User: u, log: cfg.Log}
		if err := one.refresh(now()); err != nil {
			return nil, fmt.Errorf("http.auth: %w", err)
		}
		g.users = append(g.users, one)
	}
	return g, nil
}

// ServeHTTP implements http.Handler.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if g.tls {
		w.Header().Set("Strict-Transport-Security", "max-age=31536000")
	}
	who, is := g.identify(r)
	needed := need(r)
	if who.role < needed || needed < Operator {
		withoutBody(w, r)
	}
	switch {
	case who.role >= needed && is != known && !g.named(r.Host):
		refuse(w, http.StatusMisdirectedRequest, fmt.Sprintf("this process does not answer to the name %.100q without credentials: ask by address, or add the name to http.hosts of the configuration", r.Host))
	case who.role >= needed:
		g.next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), askerKey{}, who)))
	case is == tooMany:
		w.Header().Set("Retry-After", "10")
		refuse(w, http.StatusTooManyRequests, "too many wrong credentials came from this address: wait a few seconds")
	case is == known:
		refuse(w, http.StatusForbidden, "these credentials are of a role that may not do this (http.auth of the configuration)")
	case len(g.users) == 0:
		refuse(w, http.StatusForbidden, "nobody may do this without http.auth of the configuration")
	default:
		w.Header().Add("WWW-Authenticate", `Bearer realm="outbox-cdc"`)
		if slices.ContainsFunc(g.users, func(u *user) bool { return u.Name != "" }) {
			w.Header().Add("WWW-Authenticate", `Basic realm="outbox-cdc", charset="UTF-8"`)
		}
		refuse(w, http.StatusUnauthorized, "credentials are missing or wrong (http.auth of the configuration)")
	}
}

// withoutBody keeps the server from waiting for a request body that nobody reads. Otherwise it would read and
// discard the body, for as long as a request may take, before it responds.
func withoutBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // not every ResponseWriter supports it
	}
}

func refuse(w http.ResponseWriter, code int, why string) {
	answer(w, code, map[string]string{"error": why})
}

// need returns the lowest role that a request needs. Health is for everybody, since probes carry no
// credentials; details are left out of it.
func need(r *http.Request) Role {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return Operator
	case r.URL.Path == "/healthz", r.URL.Path == "/readyz":
		return Nobody
	case r.URL.Path == "/metrics", r.URL.Path == "/api/v1/status":
		return Metrics
	}
	return Viewer
}

// ---- who asks ----

// standing is the result of checking a request's credentials.
type standing int

const (
	none    standing = iota // there are none, or they are wrong
	known                   // they belong to a user
	tooMany                 // they were not checked: too many tries
)

// identify compares credentials in constant time. Wrong credentials use up one try of the address, which it
// gets back after a while.
func (g *guard) identify(r *http.Request) (asker, standing) {
	stranger := asker{g.open, "anybody"}
	name, text, given := credentials(r)
	if !given || len(g.users) == 0 {
		return stranger, none
	}
	claimed := g.claimed(name)
	if !g.logins.begin(r.RemoteAddr, claimed) {
		g.tell(r, g.label(claimed))
		return stranger, tooMany
	}
	for _, u := range g.users {
		if u.is(name, text, g.now()) {
			g.logins.succeeded(r.RemoteAddr, claimed)
			return asker{u.Role, u.label()}, known
		}
	}
	g.tell(r, g.label(claimed))
	return stranger, none
}

// credentials returns the credentials of a request. A token has no name.
func credentials(r *http.Request) (name, text string, given bool) {
	if name, text, given = r.BasicAuth(); given && name != "" {
		return name, text, true
	}
	text, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return "", text, given || bearer
}

// Values of claimed that are not the index of a user.
const (
	unknownName = -1
	anyToken    = -2
)

// claimed returns which user a login is for: the user's index, or one value for all unknown names. Tries are
// counted by it, so that wrong tries for one user do not lock out the others behind the same proxy.
func (g *guard) claimed(name string) int {
	if name == "" {
		return anyToken
	}
	return slices.IndexFunc(g.users, func(u *user) bool { return u.Name == name }) // or unknownName
}

// label returns who a login claims to be, for the log. It is never what was typed, which may be a password in
// the wrong field.
func (g *guard) label(claimed int) string {
	switch claimed {
	case anyToken:
		return "a token"
	case unknownName:
		return "an unknown name"
	}
	return g.users[claimed].Name
}

// user is a User whose secret is read again at intervals, so that it can be changed while the process runs.
type user struct {
	User
	log zerolog.Logger

	mu     sync.Mutex
	secret [sha256.Size]byte
	asked  time.Time
}

// askAgain is how old a secret may be. If it cannot be read again, the old one stays valid.
const askAgain = time.Minute

func (u *user) is(name, text string, now time.Time) bool {
	u.mu.Lock()
	due := now.Sub(u.asked) >= askAgain
	u.mu.Unlock()
	if due {
		if err := u.refresh(now); err != nil {
			u.log.Warn().Err(err).Str("user", u.label()).Msg("could not read a password of http.auth: the previous one stays valid; retrying at a login in 1m")
		}
	}
	u.mu.Lock()
	ours := u.secret
	u.mu.Unlock()
	given := sha256.Sum256([]byte(text))
	right := subtle.ConstantTimeCompare(given[:], ours[:]) == 1
	return same(name, u.Name) && right && text != ""
}

// refresh reads the secret. Other requests use the old one meanwhile.
func (u *user) refresh(now time.Time) error {
	u.mu.Lock()
	u.asked = now
	u.mu.Unlock()
	text, err := u.Password(context.Background())
	if err == nil && text == "" {
		err = fmt.Errorf("the secret of %s is empty", u.label())
	}
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.secret = sha256.Sum256([]byte(text))
	return nil
}

func (u *user) label() string {
	if u.Name != "" {
		return u.Name
	}
	return "the holder of a token"
}

func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// ---- by which name ----

// hosts returns our own host names, apart from IP addresses. A browser can be made to believe that another
// site's name leads here (DNS rebinding); it would then show our responses to that site. This is impossible
// with an IP address, and with these names.
func hosts(configured []string) map[string]bool {
	all := map[string]bool{"localhost": true, "": true} // HTTP/1.0 sends no name, but no browser uses it
	if own, err := os.Hostname(); err == nil {
		all[strings.ToLower(own)] = true
	}
	for _, name := range configured {
		all[strings.ToLower(strings.TrimSuffix(name, "."))] = true
	}
	return all
}

func (g *guard) named(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	return net.ParseIP(host) != nil || g.hosts[strings.ToLower(strings.TrimSuffix(host, "."))]
}
