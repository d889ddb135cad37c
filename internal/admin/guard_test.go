package admin

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

func fixed(secret string) Secret {
	return func(context.Context) (string, error) { return secret, nil }
}

var everyone = Auth{Users: []User{
	{Role: Metrics, Password: fixed("scrape-scrape-scrape")},
	{Role: Viewer, Password: fixed("viewer-viewer-viewer")},
	{Role: Viewer, Name: "support", Password: fixed("looking")},
	{Role: Operator, Name: "ops", Password: fixed("pass:word")},
}}

func bearer(s string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+s) }
}

func basic(u, p string) func(*http.Request) { return func(r *http.Request) { r.SetBasicAuth(u, p) } }

func TestWhoMayAsk(t *testing.T) {
	nothing := func(*http.Request) {}
	token := Auth{Users: []User{{Role: Viewer, Password: fixed("x")}}}
	name := Auth{Users: []User{{Role: Operator, Name: "ops", Password: fixed("x")}}}
	for what, c := range map[string]struct {
		auth   Auth
		listen string
		method string
		path   string
		with   func(*http.Request)
		want   int
	}{
		"nothing is asked for":           {Auth{}, "", "GET", "/metrics", nothing, 200},
		"nor for the page on loopback":   {Auth{}, "", "GET", "/failed", nothing, 200},
		"but elsewhere":                  {Auth{}, ":9187", "GET", "/failed", nothing, 403},
		"where metrics are open":         {Auth{}, ":9187", "GET", "/metrics", nothing, 200},
		"nobody acts without a name":     {Auth{}, "", "POST", "/failed/act", nothing, 403},
		"no credentials":                 {everyone, "", "GET", "/metrics", nothing, 401},
		"no credentials for status":      {everyone, "", "GET", "/api/v1/status", nothing, 401},
		"none for what is not there":     {everyone, "", "GET", "/other", nothing, 401},
		"health needs none":              {everyone, "", "GET", "/healthz", nothing, 200},
		"readiness needs none":           {everyone, "", "GET", "/readyz", nothing, 200},
		"health with wrong ones":         {everyone, "", "GET", "/healthz", bearer("x"), 200},
		"the scraper's token":            {everyone, "", "GET", "/metrics", bearer("scrape-scrape-scrape"), 200},
		"the scraper's for status":       {everyone, "", "GET", "/api/v1/status", bearer("scrape-scrape-scrape"), 200},
		"the scraper's for the page":     {everyone, "", "GET", "/failed", bearer("scrape-scrape-scrape"), 403},
		"the scraper's for an act":       {everyone, "", "POST", "/failed/act", bearer("scrape-scrape-scrape"), 403},
		"the viewer's for the page":      {everyone, "", "GET", "/failed", bearer("viewer-viewer-viewer"), 200},
		"the viewer's for an act":        {everyone, "", "POST", "/failed/act", bearer("viewer-viewer-viewer"), 403},
		"a named viewer's for an act":    {everyone, "", "POST", "/failed/act", basic("support", "looking"), 403},
		"a named viewer's":               {everyone, "", "GET", "/failed", basic("support", "looking"), 200},
		"the operator's":                 {everyone, "", "POST", "/failed/act", basic("ops", "pass:word"), 200},
		"another method is an act":       {everyone, "", "DELETE", "/failed", bearer("viewer-viewer-viewer"), 403},
		"another token":                  {everyone, "", "GET", "/metrics", bearer("scrape-scrape-scrape "), 401},
		"an empty token":                 {everyone, "", "GET", "/metrics", bearer(""), 401},
		"another password":               {everyone, "", "GET", "/metrics", basic("ops", "pass"), 401},
		"another's password":             {everyone, "", "GET", "/metrics", basic("support", "pass:word"), 401},
		"no name":                        {everyone, "", "GET", "/metrics", basic("", "pass:word"), 401},
		"a token as a password":          {everyone, "", "GET", "/metrics", basic("", "viewer-viewer-viewer"), 401},
		"no empty name with a token":     {token, "", "GET", "/metrics", basic("", ""), 401},
		"no empty token with a name":     {name, "", "GET", "/metrics", bearer(""), 401},
		"the password as the token":      {name, "", "GET", "/metrics", bearer("x"), 401},
		"the token in the wrong place":   {token, "", "GET", "/metrics?token=x", nothing, 401},
		"a scheme that is none of these": {token, "", "GET", "/metrics", func(r *http.Request) { r.Header.Set("Authorization", "x") }, 401},
	} {
		ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		h := handler(t, Config{Listen: c.listen, Metrics: ok, Page: ok, Auth: c.auth})
		r := request(c.method, c.path)
		c.with(r)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s: %d, want %d", what, w.Code, c.want)
		}
		if w.Code == 401 && (w.Header().Get("WWW-Authenticate") == "" || !strings.Contains(w.Body.String(), "http.auth") || strings.Contains(w.Body.String(), "pass:word")) {
			t.Errorf("%s: %v %s", what, w.Header(), w.Body)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: no nosniff", what)
		}
	}
}

func TestWhoAsks(t *testing.T) {
	var who string
	var may bool
	page := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { who, may = NameOf(r), MayAct(r) })
	h := handler(t, Config{Metrics: page, Page: page, Auth: everyone})
	for want, with := range map[string]func(*http.Request){
		"the holder of a token false": bearer("viewer-viewer-viewer"), "support false": basic("support", "looking"), "ops true": basic("ops", "pass:word"),
	} {
		r := request(http.MethodGet, "/")
		with(r)
		h.ServeHTTP(httptest.NewRecorder(), r)
		if got := fmt.Sprint(who, " ", may); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	handler(t, Config{Metrics: page, Page: page}).ServeHTTP(httptest.NewRecorder(), request(http.MethodGet, "/"))
	if who != "anybody" || may {
		t.Error(who, may)
	}
}

// Under a host name that another site may have pointed here, clients without credentials get nothing. Under
// IP addresses, which probes use, they do.
func TestByWhichName(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	own, _ := os.Hostname()
	for _, c := range []struct {
		host string
		auth bool
		path string
		want int
	}{
		{"127.0.0.1:9187", false, "/metrics", 200},
		{"10.1.2.3:9187", false, "/readyz", 200},
		{"[fe80::1]:9187", false, "/metrics", 200},
		{"[::1]", false, "/metrics", 200},
		{"localhost", false, "/metrics", 200},
		{strings.ToUpper(own) + ":9187", false, "/metrics", 200},
		{"cdc.example.:9187", false, "/metrics", 200},
		{"CDC.example", false, "/metrics", 200},
		{"", false, "/metrics", 200},
		{"evil.example:9187", false, "/metrics", 421},
		{"evil.example:9187", false, "/readyz", 421},
		{"evil.example:9187", false, "/healthz", 421},
		{"evil.example:9187", false, "/api/v1/status", 421},
		{"evil.example:9187", false, "/failed", 421},
		{"127.0.0.1.evil.example", false, "/metrics", 421},
		{"localhost.evil.example", false, "/metrics", 421},
		{"evil.example:9187", true, "/metrics", 200},
	} {
		h := handler(t, Config{Metrics: ok, Page: ok, Hosts: []string{"cdc.example"}})
		if c.auth {
			h = handler(t, Config{Metrics: ok, Page: ok, Auth: everyone})
		}
		r := request(http.MethodGet, c.path)
		r.Host = c.host
		if c.auth {
			basic("ops", "pass:word")(r)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%q %s: %d, want %d", c.host, c.path, w.Code, c.want)
		}
	}
	// A browser is asked for credentials under any name, because that reveals nothing.
	r := request(http.MethodGet, "/")
	r.Host = "outbox.example"
	w := httptest.NewRecorder()
	handler(t, Config{Metrics: ok, Page: ok, Auth: everyone}).ServeHTTP(w, r)
	if w.Code != 401 {
		t.Error(w.Code)
	}
}

// A client that guesses is slowed down and counted. Other users behind the same address, and other addresses,
// are not affected.
func TestGuessing(t *testing.T) {
	now, refused := noon, 0
	var lines bytes.Buffer
	cfg := Config{Listen: "127.0.0.1:1", Metrics: http.NotFoundHandler(), Auth: everyone, Refused: func() { refused++ }, Log: zerolog.New(&lines)}
	h, err := Handler(cfg, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	ask := func(remote string, with func(*http.Request)) int {
		r := request(http.MethodGet, "/api/v1/status")
		r.RemoteAddr = remote
		with(r)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for i := range 300 {
		want := 401
		if i >= mostTries {
			want = 429
		}
		if got := ask("192.0.2.1:999", basic("ops", "guess"+strconv.Itoa(i))); got != want {
			t.Fatalf("guess %d: %d, want %d", i, got, want)
		}
	}
	if refused != 300 || !strings.Contains(lines.String(), `"user":"ops"`) || strings.Contains(lines.String(), "guess") {
		t.Errorf("%d were counted; log:\n%.300s", refused, lines.String())
	}
	for what, c := range map[string]struct {
		remote string
		with   func(*http.Request)
		want   int
	}{
		"the right one from there":      {"192.0.2.1:1000", basic("ops", "pass:word"), 429},
		"the scraper from there":        {"192.0.2.1:1000", bearer("scrape-scrape-scrape"), 200},
		"the right one from elsewhere":  {"192.0.2.2:999", basic("ops", "pass:word"), 200},
		"the same address, mapped":      {"[::ffff:192.0.2.1]:999", basic("ops", "pass:word"), 429},
		"nobody's name is not the user": {"192.0.2.1:1000", basic("nobody", "x"), 401},
	} {
		if got := ask(c.remote, c.with); got != c.want {
			t.Errorf("%s: %d, want %d", what, got, c.want)
		}
	}
	for i := range 20 { // one client, many addresses
		ask("[2001:db8::"+strconv.Itoa(i+1)+"]:1", basic("ops", "x"))
	}
	if got := ask("[2001:db8::ffff]:1", basic("ops", "pass:word")); got != 429 {
		t.Errorf("another address of the same /64: %d", got)
	}
	if got := ask("[2001:db8:0:1::1]:1", basic("ops", "pass:word")); got != 200 {
		t.Errorf("another /64: %d", got)
	}
	now = now.Add(tryEvery)
	if got := ask("192.0.2.1:1", basic("ops", "pass:word")); got != 200 {
		t.Errorf("after a while: %d", got)
	}
}

// Many addresses do not fill the memory and do not lock out others. An address that has used up its tries is
// remembered longer than one that has not.
func TestGuessingFromEverywhere(t *testing.T) {
	l := newLogins(func() time.Time { return noon })
	const guessers = 100
	guesser := func(i int) string { return fmt.Sprintf("172.16.%d.1:1", i) }
	for i := range guessers {
		for range mostTries {
			l.begin(guesser(i), 0)
		}
	}
	for i := range 3 * maxLogins {
		l.begin(fmt.Sprintf("10.%d.%d.1:1", i/256, i%256), 0)
	}
	if len(l.tries) != maxLogins {
		t.Errorf("%d are remembered", len(l.tries))
	}
	if !l.begin("172.17.0.1:1", 0) {
		t.Error("a new address is locked out")
	}
	for i := range guessers {
		if l.begin(guesser(i), 0) {
			t.Errorf("guesser %d is forgotten", i)
		}
	}
}

// A changed secret is used within a minute. If it cannot be read, the previous one stays valid.
func TestSecretsAreAskedForAgain(t *testing.T) {
	now, secret, fails := noon, "first", error(nil)
	var log bytes.Buffer
	cfg := Config{Log: zerolog.New(&log), Listen: "127.0.0.1:1", Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), Auth: Auth{Users: []User{
		{Role: Metrics, Password: func(context.Context) (string, error) { return secret, fails }},
	}}}
	h, err := Handler(cfg, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	ask := func(token string) int {
		r := request(http.MethodGet, "/metrics")
		bearer(token)(r)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	secret = "second"
	if ask("first") != 200 {
		t.Error("asked for too early")
	}
	now = now.Add(askAgain)
	if ask("second") != 200 || ask("first") != 401 {
		t.Error("the new one is not used")
	}
	secret, fails = "", errors.New("away")
	now = now.Add(askAgain)
	if ask("second") != 200 {
		t.Error("a secret that cannot be read ended service")
	}
	if n := strings.Count(log.String(), "could not read a password"); n != 1 || !strings.Contains(log.String(), "away") {
		t.Errorf("%d lines: %s", n, log.String())
	}
	if _, err := Handler(cfg, time.Now); err == nil {
		t.Error("it starts without the secret")
	}
}

// Only viewers see reasons and keys.
func TestDetails(t *testing.T) {
	bad := stream("bad", status.Stream{Reason: "secret_reason", Error: "secret_error", Standbys: []status.Standby{{Name: "secret_host"}}, Parks: status.Parks{Total: 1, Top: []status.ParkGroup{{Example: "secret_key"}}}})
	cfg := Config{Metrics: http.NotFoundHandler(), Streams: []Stream{bad}}
	anybody := func(*http.Request) {}
	for _, c := range []struct {
		listen string
		auth   Auth
		with   func(*http.Request)
		shown  bool
	}{
		{"127.0.0.1:1", Auth{}, anybody, true},
		{":1", Auth{}, anybody, false},
		{"127.0.0.1:1", everyone, bearer("scrape-scrape-scrape"), false},
		{":1", everyone, basic("support", "looking"), true},
	} {
		cfg.Listen, cfg.Auth = c.listen, c.auth
		for _, path := range []string{"/readyz", "/api/v1/status"} {
			r := request(http.MethodGet, path)
			c.with(r)
			w := httptest.NewRecorder()
			handler(t, cfg).ServeHTTP(w, r)
			if w.Code >= 400 && w.Code != 503 || strings.Contains(w.Body.String(), "secret_") != c.shown {
				t.Errorf("%s at %s: %d %s", path, c.listen, w.Code, w.Body)
			}
		}
	}
}

// A client that opens many connections and asks nothing does not keep others out.
func TestIdleConnectionsGiveWay(t *testing.T) {
	s, err := Listen(Config{Listen: "127.0.0.1:0", Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() { stop(); <-ended }()
	for range maxOfOne + 20 {
		conn, err := net.Dial("tcp", s.Address())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: loc") // and no more
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 4 * time.Second} // sooner than headerTimeout
	for range 5 {
		res, err := client.Get("http://" + s.Address() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
}

// The server does not wait for a request body that nobody reads. A client that announces one and does not
// send it keeps no connection busy.
func TestBodiesThatNobodyReads(t *testing.T) {
	for name, auth := range map[string]Auth{"open": {}, "with users": everyone} {
		s, err := Listen(Config{Listen: "127.0.0.1:0", Metrics: http.NotFoundHandler(), Auth: auth})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		for _, head := range []string{"POST /x", "GET /healthz", "GET /metrics", "PUT /healthz"} {
			conn, err := net.Dial("tcp", s.Address())
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(requestTimeout / 2))
			_, _ = io.WriteString(conn, head+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
			if text, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 ") {
				t.Errorf("%s, %s: %q, %v", name, head, text, err)
			}
			_ = conn.Close()
		}
		stop()
		<-ended
	}
}

type fakeConn struct {
	net.Conn
	from   string
	closed bool
}

func (f *fakeConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.from))
}
func (f *fakeConn) Close() error { f.closed = true; return nil }

func TestConnections(t *testing.T) {
	c := newConnections()
	open := func(from string) *fakeConn {
		f := &fakeConn{from: from}
		c.changed(f, http.StateNew)
		return f
	}
	busy, first := open("192.0.2.1:1"), open("192.0.2.1:2")
	c.changed(busy, http.StateActive)
	for range maxOfOne - 2 {
		open("192.0.2.1:3")
	}
	if first.closed {
		t.Error("closed before the bound")
	}
	last := open("192.0.2.1:4")
	if !first.closed || busy.closed || last.closed || c.from[origin("192.0.2.1:1")] != maxOfOne {
		t.Error("not the one that was idle for longest gave way")
	}
	other := open("192.0.2.9:1")
	c.changed(other, http.StateActive)
	for i := range maxConnections {
		f := open(fmt.Sprintf("10.0.%d.%d:1", i/256, i%256))
		c.changed(f, http.StateActive)
	}
	if len(c.all) > maxConnections || other.closed || busy.closed {
		t.Errorf("%d are open", len(c.all))
	}
	if f := open("192.0.2.20:1"); !f.closed {
		t.Error("all are busy, and one more was let in")
	}
	for i := range maxOfOne { // one address takes the place of some
		c.changed(other, http.StateClosed)
		for conn, h := range c.all {
			if h.from != origin("192.0.2.30:1") {
				c.changed(conn, http.StateClosed)
				break
			}
		}
		c.changed(open(fmt.Sprintf("192.0.2.30:%d", i+1)), http.StateActive)
	}
	for i := range maxOfOne - 2 { // and others get places of it, until it has as many
		f := open(fmt.Sprintf("192.0.2.31:%d", i+1))
		c.changed(f, http.StateActive)
		if f.closed != (c.from[origin("192.0.2.30:1")] < c.from[origin("192.0.2.31:1")]) && i < maxOfOne/2-1 {
			t.Fatalf("%d of a crowd, %d: closed: %v", c.from[origin("192.0.2.30:1")], c.from[origin("192.0.2.31:1")], f.closed)
		}
	}
	if crowd := c.from[origin("192.0.2.30:1")]; crowd < maxOfOne/2-1 || crowd > maxOfOne/2+1 || len(c.all) > maxConnections {
		t.Errorf("the crowd has %d of %d", crowd, len(c.all))
	}
	for conn := range c.all {
		c.changed(conn, http.StateClosed)
	}
	if len(c.all)+len(c.from) != 0 {
		t.Error("something is left")
	}
}

// The page is behind the credentials, and takes none of the other paths.
func TestPageIsServed(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("page " + r.URL.Path)) })
	h := handler(t, Config{Metrics: http.NotFoundHandler(), Page: page, Auth: everyone})
	for path, want := range map[string]string{"/": "page /", "/slots": "page /slots", "/api/v1/slots": "page /api/v1/slots", "/api/v1/status": `"streams"`, "/healthz": "ok"} {
		r := request(http.MethodGet, path)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if path != "/healthz" && w.Code != http.StatusUnauthorized {
			t.Errorf("%s without credentials: %d", path, w.Code)
		}
		r.SetBasicAuth("ops", "pass:word")
		w = httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestStatus(t *testing.T) {
	good, other := stream("first", status.Stream{Mode: status.ModeStandby}), stream("other", status.Stream{})
	h := handler(t, Config{Metrics: http.NotFoundHandler(), Streams: []Stream{good, other}, Version: "1.2.3"})
	code, body := get(t, h, "/api/v1/status")
	var r status.Report
	if err := json.Unmarshal([]byte(body), &r); err != nil || code != 200 || len(r.Streams) != 2 || r.Version != "1.2.3" || !r.At.Equal(noon) || r.Streams[0].Mode != "standby" {
		t.Errorf("%d %v %s", code, err, body)
	}
	if code, body := get(t, h, "/api/v1/status?stream=other"); code != 200 || strings.Contains(body, `"first"`) {
		t.Errorf("%d %s", code, body)
	}
	if code, body := get(t, h, "/api/v1/status?stream=none"); code != 404 || !strings.Contains(body, "there is no stream") {
		t.Errorf("%d %s", code, body)
	}
}

// pair writes a certificate for 127.0.0.1 and its key.
func pair(t *testing.T, dir string, serial int64) (certFile, keyFile string, cert *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err = x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certFile, keyFile, cert
}

func TestTLS(t *testing.T) {
	certFile, keyFile, cert := pair(t, t.TempDir(), 1)
	s, err := Listen(Config{Listen: "127.0.0.1:0", Metrics: http.NotFoundHandler(), CertFile: certFile, KeyFile: keyFile})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context()) }()
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	defer client.CloseIdleConnections()
	res, err := client.Get("https://" + s.Address() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 200 || res.Header.Get("Strict-Transport-Security") == "" {
		t.Error(res.Status, res.Header)
	}
	_, err = Listen(Config{Listen: "127.0.0.1:0", Metrics: http.NotFoundHandler(), CertFile: certFile, KeyFile: certFile})
	if err == nil || !strings.Contains(err.Error(), "http.tls") {
		t.Error(err)
	}
}

// HTTP/2 is not spoken, whoever asks for it and how: its many requests and headers at once on each connection would take
// memory without a login. A connection that serves several requests takes none for another's.
func TestHTTP2IsNotSpoken(t *testing.T) {
	certFile, keyFile, cert := pair(t, t.TempDir(), 1)
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	trust := func(protocols ...string) *tls.Config {
		return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, NextProtos: protocols}
	}
	serve := func(cfg Config) string {
		cfg.Listen, cfg.Metrics, cfg.Auth = "127.0.0.1:0", http.NotFoundHandler(), everyone
		s, err := Listen(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		t.Cleanup(func() { stop(); <-ended })
		return s.Address()
	}
	encrypted, plain := serve(Config{CertFile: certFile, KeyFile: keyFile}), serve(Config{})

	if conn, err := tls.Dial("tcp", encrypted, trust("h2")); err == nil {
		t.Errorf("who speaks HTTP/2 only is answered: %q", conn.ConnectionState().NegotiatedProtocol)
		conn.Close()
	}
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for name, dial := range map[string]func() (net.Conn, error){
		"plain":               func() (net.Conn, error) { return net.Dial("tcp", plain) },
		"TLS, another's word": func() (net.Conn, error) { return tls.Dial("tcp", encrypted, trust("http/1.1")) },
		"TLS, no word":        func() (net.Conn, error) { return tls.Dial("tcp", encrypted, trust()) },
	} {
		conn, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(requestTimeout))
		_, _ = io.WriteString(conn, preface) // its end is seen in the answer
		answer, err := io.ReadAll(conn)
		if err != nil && !errors.Is(err, syscall.ECONNRESET) || !bytes.HasPrefix(answer, []byte("HTTP/1.1 ")) {
			t.Errorf("%s: answered %q, %v", name, answer, err)
		}
		conn.Close()
	}

	transport := &http.Transport{TLSClientConfig: trust(), ForceAttemptHTTP2: true, MaxConnsPerHost: 1}
	client := &http.Client{Transport: transport, Timeout: requestTimeout / 2}
	defer client.CloseIdleConnections()
	var reused int
	ask := func(method, path, user string, body io.Reader, want int) {
		t.Helper()
		trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
			if c.Reused {
				reused++
			}
		}}
		r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), method, "https://"+encrypted+path, body)
		if err != nil {
			t.Fatal(err)
		}
		if user != "" {
			r.SetBasicAuth(user, "pass:word")
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if res.ProtoMajor != 1 || res.StatusCode != want {
			t.Errorf("%s %s: %s %s, want %d", method, path, res.Proto, res.Status, want)
		}
	}
	for range 100 {
		endless, end := io.Pipe()
		ask("POST", "/failed/act", "", endless, 401)
		_ = end.Close()
	}
	ask("GET", "/healthz", "", nil, 200)
	ask("GET", "/api/v1/status", "ops", nil, 200)
	ask("GET", "/api/v1/status", "", nil, 401)
	if reused < 2 {
		t.Error("no connection served several requests")
	}
}

// A certificate that was renewed is served; one that is half written is not.
func TestCertificateIsReadAnew(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile, _ := pair(t, dir, 1)
	c := &certificate{certFile: certFile, keyFile: keyFile}
	serial := func(now time.Time) int64 {
		got, err := c.get(now)
		if err != nil {
			t.Fatal(err)
		}
		return got.Leaf.SerialNumber.Int64()
	}
	now := time.Now()
	if serial(now) != 1 {
		t.Fatal("not the first")
	}
	pair(t, dir, 2)
	later := now.Add(time.Hour)
	for _, name := range []string{certFile, keyFile} {
		if err := os.Chtimes(name, later, later); err != nil {
			t.Fatal(err)
		}
	}
	if serial(now.Add(time.Second)) != 1 {
		t.Error("looked too early")
	}
	if serial(now.Add(lookEvery)) != 2 {
		t.Error("the renewed one is not served")
	}
	if err := os.WriteFile(keyFile, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if serial(now.Add(3*lookEvery)) != 2 {
		t.Error("a broken pair ended service")
	}
}
