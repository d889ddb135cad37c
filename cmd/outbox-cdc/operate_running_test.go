package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// An operator acts while the stream runs: a FAILED row is requeued and a SENT row is replayed, by the
// stream's own role. Both are published once more.
func TestOperatingOnARunningStream(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the program")
	}
	db, kafka, c := ends(t, `http: {listen: "off"}`)
	rewrite(t, c, "profile: native", "profile: native, grace: 100ms")
	rewrite(t, c, "name: orders", "name: orders\n    watch_interval: 200ms")
	command(t, 0, "init", "-c", c, "--native-table")
	db.Exec(t, `INSERT INTO outbox (topic, key, payload, status, attempts) VALUES ('orders', 'a', 'failed before', 'FAILED', 10)`)
	run := startRun(t, c)
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'a', 'sent')`)
	kafka.AwaitRecords(t, "orders", 1, patience)
	sent := func(n int) {
		t.Helper()
		harness.Eventually(t, patience, func() error {
			if got := harness.One[int](t, db, "SELECT count(*) FROM outbox WHERE status = 'SENT'"); got != n {
				return fmt.Errorf("%d rows are SENT\n%s", got, run.text())
			}
			return nil
		})
	}
	sent(1)
	out, _ := command(t, 0, "failed", "requeue", "-c", c, "--all", "--yes", "--log-format", "json")
	mustHave(t, out, "requeued: 1", "order: of 1 of them")
	kafka.AwaitRecords(t, "orders", 2, patience)
	sent(2)
	command(t, 0, "replay", "-c", c, "--id", "2", "--yes", "--log-format", "json")
	records := kafka.AwaitRecords(t, "orders", 3, patience)
	sent(2)
	for i, want := range []string{"sent", "failed before", "sent"} {
		if string(records[i].Value) != want {
			t.Errorf("record %d is %q, want %q", i, records[i].Value, want)
		}
	}
	run.stop(t)
}

// A stream is first swept by command, although it has a slot, and then streamed. Nothing is lost or doubled.
func TestSweepThenRun(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the program")
	}
	db, kafka, c := ends(t, `http: {listen: "off"}`)
	command(t, 0, "init", "-c", c, "--native-table")
	insert := func(n int) {
		db.Exec(t, "INSERT INTO outbox (topic, key, payload) SELECT 'orders', (i % 5)::text, 'x' FROM generate_series(1, $1::int) i", n)
	}
	insert(300)
	if r := decoded[struct{ Streams []swept }](t, "sweep", "--once", "-c", c, "--log-level", "error").Streams[0]; r.Published != 300 {
		t.Errorf("%+v", r)
	}
	insert(200)
	run := startRun(t, c)
	harness.Eventually(t, patience, func() error {
		if n := harness.One[int](t, db, "SELECT count(*) FROM outbox WHERE status = 'SENT'"); n != 500 {
			return fmt.Errorf("%d are SENT\n%s", n, run.text())
		}
		if n := harness.One[int](t, db, "SELECT count(*) FROM outbox_cdc.park"); n != 0 {
			return fmt.Errorf("%d parks are left", n)
		}
		return nil
	})
	_, e := command(t, exitPermanent, "sweep", "--once", "-c", c, "--log-level", "error")
	mustHave(t, e, "a process leads the stream")
	insert(100)
	kafka.AwaitRecords(t, "orders", 600, patience)
	run.stop(t)
	if n := kafka.Count(t, "orders"); n != 600 {
		t.Errorf("%d records of 600 rows", n)
	}
}

// Over TLS, the process has to present the certificate of the configuration.
func TestAskingOverTLS(t *testing.T) {
	certFile, keyFile := certificatePair(t)
	otherCert, _ := certificatePair(t)
	serve := admin.Config{
		Listen: "127.0.0.1:0", Metrics: http.NotFoundHandler(), CertFile: certFile, KeyFile: keyFile,
		Auth:    admin.Auth{Users: []admin.User{{Role: admin.Viewer, Password: config.NewCredential("hunter2").Read}}},
		Streams: []admin.Stream{{Name: "orders", Report: func() status.Stream { return status.Stream{Name: "orders", Mode: status.ModeStream} }}},
	}
	server, err := admin.Listen(serve)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	ask := func(cert string) (*status.Report, error) {
		p, err := newProcess(&config.HTTP{
			Listen: server.Address(), TLS: &config.HTTPTLS{CertFile: config.Path(cert)}, Auth: &config.HTTPAuth{Token: config.NewCredential("hunter2")},
		}, "")
		if err != nil {
			t.Fatal(err)
		}
		return p.status(t.Context())
	}
	if r, err := ask(certFile); err != nil || len(r.Streams) != 1 || r.Streams[0].Mode != status.ModeStream {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := ask(otherCert); err == nil {
		t.Error("another certificate was accepted")
	} else {
		mustHave(t, err.Error(), "another certificate than http.tls.cert_file has")
	}
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// certificatePair writes a certificate that names no host, and its key.
func certificatePair(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}
