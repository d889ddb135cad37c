package config

import (
	"fmt"
	"net/url"

	"github.com/outbox-cdc/outbox-cdc/internal/transport"
)

func checkHTTP(b *binder, h *HTTP) {
	if h.Listen != "off" && !b.hasProblem("http.listen") && !isAddress(h.Listen, true) {
		b.complain("http.listen", fmt.Sprintf("%q is not an address", h.Listen), "write host:port, for example 127.0.0.1:9187, or off")
	}
	if u, err := url.Parse(h.Dashboard); h.Dashboard != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
		b.complain("http.dashboard", fmt.Sprintf("%q is not an address of the web", h.Dashboard), "write it as a browser shows it, for example https://grafana.example/d/outbox-cdc")
	}
	if h.TLS != nil {
		checkFile(b, "http.tls.cert_file", h.TLS.CertFile)
		checkFile(b, "http.tls.key_file", h.TLS.KeyFile)
	}
	if h.Auth != nil {
		checkAuth(b, h.Auth)
	}
	if h.Listen != "off" && !b.hasProblem("http.listen") && !transport.LoopbackAddress(h.Listen) {
		checkExposed(b, h)
	}
}

// checkExposed checks what an address needs that other machines can reach.
func checkExposed(b *binder, h *HTTP) {
	if h.Auth == nil {
		open := fmt.Sprintf("true is open to everybody who reaches http.listen (%s)", h.Listen)
		if h.Page {
			b.complain("http.page", open, "write auth: {users: [{role: operator, username: …, password: …}]}, or listen: 127.0.0.1:9187")
		} else if h.ShowPayloads {
			b.complain("http.show_payloads", open, "write auth, or listen: 127.0.0.1:9187")
		}
		return
	}
	if h.TLS == nil && !h.AllowPlaintext {
		b.complain("http.auth", fmt.Sprintf("its credentials would go over %s in plain text", h.Listen),
			"write http.tls: {cert_file: …, key_file: …}; or http.allow_plaintext: true where a proxy or the network encrypts; or listen on 127.0.0.1")
	}
	checkLength(b, "http.auth", h.Auth.Token, h.Auth.Password)
	for i, u := range h.Auth.Users {
		if u != nil {
			checkLength(b, fmt.Sprintf("http.auth.users[%d]", i), u.Token, u.Password)
		}
	}
}

// Minimum lengths of secrets that can be guessed over the network.
const (
	leastToken    = 16
	leastPassword = 8
)

func checkLength(b *binder, at string, token, password *Credential) {
	if text, fixed := token.Static(); token.Given() && fixed && len(text) < leastToken {
		b.complain(at+".token", fmt.Sprintf("has fewer than %d characters", leastToken), "make a longer one, for example with openssl rand -hex 20")
	}
	if text, fixed := password.Static(); password.Given() && fixed && len(text) < leastPassword {
		b.complain(at+".password", fmt.Sprintf("has fewer than %d characters", leastPassword), "choose a longer one")
	}
}

func checkAuth(b *binder, a *HTTPAuth) {
	if (a.Username == "") == a.Password.Given() {
		b.complain("http.auth", "one of username and password alone", "write both, or neither and a token")
	}
	if len(a.Everybody()) == 0 && !a.Password.Given() {
		b.complain("http.auth", "has no credentials", "write users, token, or username and password; leave auth out to let everybody in")
	}
	names := map[string]bool{a.Username: true}
	for i, u := range a.Users {
		if u == nil {
			continue
		}
		at := fmt.Sprintf("http.auth.users[%d]", i)
		named := u.Username != "" && u.Password.Given()
		switch {
		case b.hasProblem(at):
		case u.Username != "" && names[u.Username]:
			b.complain(at+".username", fmt.Sprintf("%q is there twice", u.Username), "give each user a name of its own")
		case (u.Username != "") != u.Password.Given() || named == u.Token.Given():
			b.complain(at, "has not exactly one of a token, and a username with its password", "write {role: metrics, token: …} or {role: viewer, username: …, password: …}")
		case u.Role == RoleOperator && !named:
			b.complain(at, "an operator without a name", "write username and password: the log says who changed rows")
		}
		names[u.Username] = true
	}
}
