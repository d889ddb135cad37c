package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Authority signs certificates for a test.
type Authority struct {
	Certificate *x509.Certificate
	File        string // of Certificate, PEM

	t   testing.TB
	dir string
	key *ecdsa.PrivateKey
}

// NewAuthority makes an authority whose certificates are valid for an hour.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir()}
	a.key = a.newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Minute),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.Certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.File = a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func (a *Authority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *Authority) write(name, kind string, der []byte) string {
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// Issue writes a certificate and its key, for a name and for 127.0.0.1.
func (a *Authority) Issue(name string) (certFile, keyFile string) {
	a.t.Helper()
	key := a.newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Certificate, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write(name+".pem", "CERTIFICATE", der), a.write(name+".key", "PRIVATE KEY", private)
}

// TrustsOnly gives a private server a certificate of the authority, and makes it ask the role for
// another one, next to its password.
func (db *DB) TrustsOnly(t testing.TB, a *Authority, role string) {
	t.Helper()
	cert, key := a.Issue("server")
	dir := db.Server.DataDir()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	for name, from := range map[string]string{"server.crt": cert, "server.key": key, "root.crt": a.File} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path+".new", b, 0o600), os.Chown(path+".new", int(owner.Uid), int(owner.Gid)), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	rules := fmt.Sprintf("local all,replication all trust\nhostssl all,replication %[1]s 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n"+
		"host all,replication %[1]s 127.0.0.1/32 reject\nhost all,replication all 127.0.0.1/32 scram-sha-256\n", role)
	if err := db.Server.SetHBA(rules); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{`ALTER SYSTEM SET ssl_ca_file = 'root.crt'`, `ALTER SYSTEM SET ssl = on`, `SELECT pg_reload_conf()`} {
		db.Exec(t, statement)
	}
	// The server's main process reads the files some time after the signal.
	Eventually(t, 20*time.Second, func() error {
		c, err := pgx.ParseConfig(fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=verify-full sslrootcert=%s", db.Server.Port(), a.File))
		if err != nil {
			return err
		}
		own, err := pgx.ParseConfig(db.DSN)
		if err != nil {
			return err
		}
		c.Password = own.Password
		conn, err := pgx.ConnectConfig(t.Context(), c)
		if err != nil {
			return err
		}
		return conn.Close(t.Context())
	})
}
