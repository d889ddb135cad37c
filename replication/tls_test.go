package replication

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// tlsServer returns a server with a self-signed certificate.
func tlsServer(t *testing.T) *harness.DB {
	t.Helper()
	db := harness.PrivatePostgres(t, localpg.Options{})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "db"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	owner, err := os.Stat(db.Server.DataDir())
	if err != nil {
		t.Fatal(err)
	}
	uid := owner.Sys().(*syscall.Stat_t)
	for name, block := range map[string]*pem.Block{
		"server.crt": {Type: "CERTIFICATE", Bytes: cert}, "server.key": {Type: "EC PRIVATE KEY", Bytes: der},
	} {
		path := filepath.Join(db.Server.DataDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, int(uid.Uid), int(uid.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	db.Exec(t, `ALTER SYSTEM SET ssl = on`)
	if err := db.Server.Restart(t.Context(), localpg.Fast); err != nil {
		t.Fatal(err)
	}
	return db
}
