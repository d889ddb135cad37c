package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/internal/transport"
)

// This file asks the running process over HTTP.

const (
	askTimeout  = 3 * time.Second
	answerBytes = 8 << 20
)

// process is the address of the running process, and how to ask it.
type process struct {
	url    string
	auth   *config.HTTPAuth
	client *http.Client
}

// newProcess returns the process at the given address (a URL, or host:port), or else the one with this
// configuration.
func newProcess(h *config.HTTP, address string) (*process, error) {
	p := &process{auth: h.Auth}
	encrypted := &tls.Config{MinVersion: tls.VersionTLS12}
	scheme := "http"
	if h.TLS != nil {
		scheme = "https"
		own, err := os.ReadFile(string(h.TLS.CertFile))
		if err != nil {
			return nil, fmt.Errorf("read http.tls.cert_file: %w", err)
		}
		trust(encrypted, own, address == "")
	}
	p.client = transport.NewClient(encrypted, h.Auth == nil || h.AllowPlaintext)
	p.client.Timeout = askTimeout
	var err error
	if p.url, err = processURL(h.Listen, scheme, address); err != nil {
		return nil, err
	}
	if u, err := url.Parse(p.url); err == nil && u.Scheme == "http" && h.Auth != nil && !h.AllowPlaintext && !transport.Loopback(u.Hostname()) {
		return nil, usage("the credentials of http.auth would go to %s in plain text: write https://%s, or http.allow_plaintext: true in the configuration", p.url, u.Host)
	}
	return p, nil
}

// trust makes the client accept, from the process on this machine, only the certificate of the configuration,
// for whatever host it was issued. For another machine, that certificate is an additional trusted root, and
// the usual rules apply.
func trust(c *tls.Config, own []byte, here bool) {
	if !here {
		if roots, err := x509.SystemCertPool(); err == nil && roots.AppendCertsFromPEM(own) {
			c.RootCAs = roots
		}
		return
	}
	block, _ := pem.Decode(own)
	c.InsecureSkipVerify = true // the whole certificate is compared instead
	c.VerifyConnection = func(s tls.ConnectionState) error {
		if block == nil || len(s.PeerCertificates) == 0 || !bytes.Equal(s.PeerCertificates[0].Raw, block.Bytes) {
			return errors.New("the process shows another certificate than http.tls.cert_file has")
		}
		return nil
	}
}

// processURL returns the URL at which a process with this configuration answers on this machine.
func processURL(listen, scheme, address string) (string, error) {
	if u, err := url.Parse(address); err == nil && u.Scheme != "" && u.Host != "" {
		return u.Scheme + "://" + u.Host, nil
	}
	if address != "" {
		listen = address
	}
	if listen == "off" {
		return "", errors.New("http.listen is off, so a process cannot be asked")
	}
	host, port, err := net.SplitHostPort(listen)
	switch {
	case err != nil:
		return "", usage("%q is not an address: write host:port or http://host:port", listen)
	case port == "0":
		return "", errors.New("http.listen chooses any free port, so a process cannot be found: name it with --address")
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port), nil
}

// status requests GET /api/v1/status.
func (p *process) status(ctx context.Context) (*status.Report, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/status", nil)
	if err != nil {
		return nil, err
	}
	if err := p.login(ctx, r); err != nil {
		return nil, err
	}
	res, err := p.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("no process answers: %w", errors.Unwrap(err)) // without the URL that the client adds
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusUnauthorized:
		return nil, fmt.Errorf("the process at %s refuses the credentials of http.auth", p.url)
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers %s: it is no outbox-cdc, or an older one", p.url, res.Status)
	}
	var report status.Report
	if err := json.NewDecoder(io.LimitReader(res.Body, answerBytes)).Decode(&report); err != nil {
		return nil, fmt.Errorf("%s does not answer as outbox-cdc does: %w", p.url, err)
	}
	report.Process = p.url
	return &report, nil
}

// login adds the credentials with the most rights, because details are for viewers.
func (p *process) login(ctx context.Context, r *http.Request) error {
	if p.auth == nil {
		return nil
	}
	if err := p.trusted(r.URL); err != nil {
		return err
	}
	// Of several credentials with the most rights, the first is used.
	best := slices.MaxFunc(p.auth.Everybody(), func(a, b *config.HTTPUser) int { return cmp.Compare(roles[a.Role], roles[b.Role]) })
	text, err := secretOf(best).Read(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("http.auth: %w", err)
	case best.Username == "":
		r.Header.Set("Authorization", "Bearer "+text)
	default:
		r.SetBasicAuth(best.Username, text)
	}
	return nil
}

// trusted returns an error if a password would be sent to a process of another user that has the port on this
// machine. With TLS, the certificate shows whose process it is. Plain text to another machine was permitted
// by the configuration.
func (p *process) trusted(at *url.URL) error {
	if at.Scheme == "https" || !transport.Loopback(at.Hostname()) {
		return nil
	}
	stranger, err := strangerAt(at.Port())
	switch {
	case err != nil:
		return fmt.Errorf("%s is not asked, since nothing tells who would get the password of http.auth (%w): set http.tls", p.url, err)
	case stranger != "":
		return fmt.Errorf("%s is not asked: user %s has the port, and would get the password of http.auth; run this as that user, or set http.tls", p.url, stranger)
	}
	return nil
}

var roles = map[string]admin.Role{config.RoleMetrics: admin.Metrics, config.RoleViewer: admin.Viewer, config.RoleOperator: admin.Operator}

// secretOf returns the user's password, or the token of a user without a name.
func secretOf(u *config.HTTPUser) *config.Credential {
	if u.Username == "" {
		return u.Token
	}
	return u.Password
}
