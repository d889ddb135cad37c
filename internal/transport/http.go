package transport

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// This file is how secrets leave over HTTP: to the host that is configured and to no other, and
// unencrypted only within this machine.

// NewClient makes a client whose requests carry a secret. Redirects are refused. Unless
// allowPlaintext, http goes to this machine only, whatever a name leads to.
func NewClient(encrypted *tls.Config, allowPlaintext bool) *http.Client {
	secure := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: encrypted, DisableKeepAlives: true, MaxResponseHeaderBytes: headerBytes, TLSHandshakeTimeout: 10 * time.Second}
	plain := secure.Clone()
	if !allowPlaintext {
		plain.Proxy, plain.DialContext = nil, (&net.Dialer{Control: Stay}).DialContext
	}
	return &http.Client{
		Transport: byScheme{plain, secure}, Timeout: 30 * time.Second,
		CheckRedirect: func(r *http.Request, _ []*http.Request) error { return redirected(r.URL) },
	}
}

const headerBytes = 64 << 10

// byScheme sends what is not encrypted by one of two ways.
type byScheme struct{ plain, secure http.RoundTripper }

// RoundTrip is of http.RoundTripper.
func (b byScheme) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "https" {
		return b.secure.RoundTrip(r)
	}
	return b.plain.RoundTrip(r)
}

// Proxy is http.ProxyFromEnvironment for clients of others: it is asked about every request, and
// refuses those that follow a redirect.
func Proxy(r *http.Request) (*url.URL, error) {
	if r.Response != nil {
		return nil, redirected(r.URL)
	}
	return http.ProxyFromEnvironment(r)
}

func redirected(to *url.URL) error {
	return fmt.Errorf("it redirects to %s://%s, and our secret does not follow: write the address where it leads", to.Scheme, to.Host)
}
