package admin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

func TestWhoMayAsk(t *testing.T) {
	both := Auth{Token: "s3cret", Username: "ops", Password: "pass:word"}
	bearer := func(s string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+s) }
	}
	basic := func(u, p string) func(*http.Request) { return func(r *http.Request) { r.SetBasicAuth(u, p) } }
	none := func(*http.Request) {}
	for name, c := range map[string]struct {
		auth Auth
		path string
		with func(*http.Request)
		want int
	}{
		"nothing is asked for":         {Auth{}, "/metrics", none, 200},
		"no credentials":               {both, "/metrics", none, 401},
		"no credentials for status":    {both, "/api/v1/status", none, 401},
		"none for what is not there":   {both, "/other", none, 401},
		"health needs none":            {both, "/healthz", none, 200},
		"readiness needs none":         {both, "/readyz", none, 200},
		"the token":                    {both, "/metrics", bearer("s3cret"), 200},
		"another token":                {both, "/metrics", bearer("s3cret "), 401},
		"an empty token":               {both, "/metrics", bearer(""), 401},
		"name and password":            {both, "/metrics", basic("ops", "pass:word"), 200},
		"another password":             {both, "/metrics", basic("ops", "pass"), 401},
		"another name":                 {both, "/metrics", basic("", "pass:word"), 401},
		"no empty name with a token":   {Auth{Token: "x"}, "/metrics", basic("", ""), 401},
		"no empty token with a name":   {Auth{Username: "ops", Password: "x"}, "/metrics", bearer(""), 401},
		"the password as the token":    {Auth{Username: "ops", Password: "x"}, "/metrics", bearer("x"), 401},
		"the token in the wrong place": {both, "/metrics?token=s3cret", none, 401},
	} {
		h := Handler(Config{Metrics: http.NotFoundHandler(), Auth: c.auth}, time.Now)
		if c.path == "/metrics" {
			c.path = "/"
		}
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		c.with(r)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s: %d, want %d", name, w.Code, c.want)
		}
		if w.Code == 401 && (w.Header().Get("WWW-Authenticate") == "" || !strings.Contains(w.Body.String(), "http.auth") || strings.Contains(w.Body.String(), "s3cret")) {
			t.Errorf("%s: %v %s", name, w.Header(), w.Body)
		}
	}
}

func TestWhoAsks(t *testing.T) {
	auth := Auth{Token: "s3cret", Username: "ops", Password: "x"}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if got := (&Auth{}).Who(r); got != "anybody" {
		t.Error(got)
	}
	r.Header.Set("Authorization", "Bearer s3cret")
	if got := auth.Who(r); got != "whoever has the token" {
		t.Error(got)
	}
	r.SetBasicAuth("ops", "x")
	if got := auth.Who(r); got != "ops" {
		t.Error(got)
	}
}

// The page is behind the credentials, and takes none of the other paths.
func TestPageIsServed(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("page " + r.URL.Path)) })
	h := Handler(Config{Metrics: http.NotFoundHandler(), Page: page, Auth: Auth{Username: "ops", Password: "x"}}, time.Now)
	for path, want := range map[string]string{"/": "page /", "/slots": "page /slots", "/api/v1/slots": "page /api/v1/slots", "/api/v1/status": `"streams"`, "/healthz": "ok"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if path != "/healthz" && w.Code != http.StatusUnauthorized {
			t.Errorf("%s without credentials: %d", path, w.Code)
		}
		r.SetBasicAuth("ops", "x")
		w = httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestStatus(t *testing.T) {
	good := stream("good", metrics.Status{Mode: "standby"}, "")
	good.Report = func() status.Stream { return status.Stream{Name: "good", Mode: status.ModeStandby} }
	other := stream("other", metrics.Status{}, "")
	other.Report = func() status.Stream { return status.Stream{Name: "other"} }
	h := Handler(Config{Metrics: http.NotFoundHandler(), Streams: []Stream{good, other}, Version: "1.2.3"}, func() time.Time { return noon })
	code, body := get(t, h, "/api/v1/status")
	var r status.Report
	if err := json.Unmarshal([]byte(body), &r); err != nil || code != 200 || len(r.Streams) != 2 || r.Version != "1.2.3" || !r.At.Equal(noon) || r.Streams[0].Mode != "standby" {
		t.Errorf("%d %v %s", code, err, body)
	}
	if code, body := get(t, h, "/api/v1/status?stream=other"); code != 200 || strings.Contains(body, "good") {
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
	if res.StatusCode != 200 {
		t.Error(res.Status)
	}
	_, err = Listen(Config{Listen: "127.0.0.1:0", Metrics: http.NotFoundHandler(), CertFile: certFile, KeyFile: certFile})
	if err == nil || !strings.Contains(err.Error(), "http.tls") {
		t.Error(err)
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
