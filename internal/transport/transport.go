// Package transport says how safe a way to a server is, from its settings
// alone. Package config refuses secrets on an open way, package preflight warns
// of what is less than verified, and cmd asks before it sends credentials.
package transport

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// Safety is what somebody between us and a server can do.
type Safety int

// From the worst to the best.
const (
	// Open: read and change everything.
	Open Safety = iota
	// Unverified: the same, after pretending to be the server.
	Unverified
	// Verified: nothing, since the server's certificate and name are checked.
	Verified
	// Local: there is nobody between, since the server is on this machine.
	Local
)

// Loopback says that a host is this machine: a loopback address, localhost, or
// the folder of a Unix socket.
func Loopback(host string) bool {
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || strings.HasPrefix(host, "/") || ip != nil && ip.IsLoopback()
}

// LoopbackAddress is Loopback of host:port. An address without a host is that
// of every interface.
func LoopbackAddress(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && Loopback(host)
}

// ErrOtherMachine refuses a connection that would leave this machine.
var ErrOtherMachine = errors.New("it is on another machine")

// Stay is a Control of net.Dialer, which is asked before it connects: only addresses of this
// machine are dialled. Where a name leads is seen only here.
func Stay(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return ErrOtherMachine
	}
	to := at.Addr().Unmap().WithZone("")
	if to.IsLoopback() || to.IsUnspecified() {
		return nil
	}
	own, _ := net.InterfaceAddrs() // without them only loopback addresses are ours
	for _, a := range own {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == to {
			return nil
		}
	}
	return ErrOtherMachine
}

// Postgres is the least safe way that the settings allow: with sslmode prefer,
// which is the default, that is the one without TLS. It names that way's host.
func Postgres(c *pgconn.Config) (Safety, string) {
	worst, host := postgres(c.Host, c.TLSConfig), c.Host
	for _, f := range c.Fallbacks {
		if s := postgres(f.Host, f.TLSConfig); s < worst {
			worst, host = s, f.Host
		}
	}
	return worst, host
}

func postgres(host string, c *tls.Config) Safety {
	switch {
	case Loopback(host):
		return Local
	case c == nil:
		return Open
	case c.InsecureSkipVerify: // require, and verify-ca, which takes any host's certificate
		return Unverified
	}
	return Verified
}
