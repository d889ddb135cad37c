package transport

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestPostgres(t *testing.T) {
	for dsn, want := range map[string]Safety{
		"postgres://u@db/d":                                         Open, // prefer falls back
		"postgres://u@db/d?sslmode=prefer":                          Open,
		"postgres://u@db/d?sslmode=allow":                           Open,
		"postgres://u@db/d?sslmode=disable":                         Open,
		"postgres://u@db/d?sslmode=require":                         Unverified,
		"postgres://u@db/d?sslmode=verify-full":                     Verified,
		"postgres://u@localhost/d":                                  Local,
		"postgres://u@127.0.0.2/d?sslmode=disable":                  Local,
		"postgres://u@[::1]/d?sslmode=disable":                      Local,
		"host=/run/postgresql user=u dbname=d":                      Local,
		"host=localhost,db user=u dbname=d":                         Open,
		"host=localhost,db user=u dbname=d sslmode=verify-full":     Verified,
		"host=db,localhost user=u dbname=d sslmode=require":         Unverified,
		"postgres://u@127.0.0.1.example/d":                          Open,
		"postgres://u@0.0.0.0/d":                                    Open,
		"host=db user=u dbname=d hostaddr=127.0.0.1 sslmode=prefer": Open, // pgx has no hostaddr
	} {
		c, err := pgconn.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := Postgres(c); got != want {
			t.Errorf("%s: %d, want %d", dsn, got, want)
		}
	}
}

func TestLoopbackAddress(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "[::1]:1": true, "localhost:1": true,
		":1": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "localhost.example:1": false, "127.0.0.1.nip.io:1": false,
	} {
		if got := LoopbackAddress(address); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}
