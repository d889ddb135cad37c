package transport

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// This file sends secrets over HTTP: only to the configured host, and unencrypted only within this machine.

// NewClient makes a client for requests that carry a secret. It refuses redirects. Unless allowPlaintext is
// set, it sends unencrypted requests only to this machine, even if a name leads elsewhere.
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

// byScheme sends unencrypted and encrypted requests in different ways.
type byScheme struct{ plain, secure http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b byScheme) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "https" {
		return b.secure.RoundTrip(r)
	}
	return b.plain.RoundTrip(r)
}

// Proxy is http.ProxyFromEnvironment for clients of other libraries. Such a client calls it for every
// request. Proxy refuses requests that follow a redirect.
func Proxy(r *http.Request) (*url.URL, error) {
	if r.Response != nil {
		return nil, redirected(r.URL)
	}
	return http.ProxyFromEnvironment(r)
}

func redirected(to *url.URL) error {
	return fmt.Errorf("it redirects to %s://%s, and our secret does not follow: write the address where it leads", to.Scheme, to.Host)
}
