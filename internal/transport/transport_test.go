package transport

import (
	"net"
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

func TestStay(t *testing.T) {
	own, err := net.InterfaceAddrs()
	if err != nil || len(own) == 0 {
		t.Fatal(own, err)
	}
	stays := map[string]bool{"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "192.0.2.1:1": false, "[2001:db8::1]:1": false, "[::ffff:192.0.2.1]:1": false, "unknown": false}
	for _, a := range own {
		if n, ok := a.(*net.IPNet); ok {
			stays[net.JoinHostPort(n.IP.String(), "1")] = true
		}
	}
	for address, want := range stays {
		if got := Stay("tcp", address, nil) == nil; got != want {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
	}
}
