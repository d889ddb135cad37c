// Package transport judges how safe the way to a server is: from settings, and for Stay from the address dialled. Package config refuses
// secrets on an open way. Package preflight warns of a way that is less than verified. cmd asks before it
// sends credentials.
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

// Safety is what an attacker on the way to a server can do.
type Safety int

// From the worst to the best.
const (
	// Open: the attacker can read and change everything.
	Open Safety = iota
	// Unverified: the attacker can do the same after pretending to be the server.
	Unverified
	// Verified: the attacker can do nothing, because the server's certificate and name are checked.
	Verified
	// Local: the server is on this machine, so no attacker can be in between.
	Local
)

// Loopback reports whether a host is this machine: a loopback address, localhost, or the folder of a Unix
// socket.
func Loopback(host string) bool {
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || strings.HasPrefix(host, "/") || ip != nil && ip.IsLoopback()
}

// LoopbackAddress is Loopback for host:port. An address without a host stands for every interface, so it is
// not loopback.
func LoopbackAddress(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && Loopback(host)
}

// ErrOtherMachine refuses a connection that would leave this machine.
var ErrOtherMachine = errors.New("it is on another machine")

// Stay is a Control function for net.Dialer, which calls it before it connects. It allows only addresses of
// this machine. Only here is it known which address a name leads to.
func Stay(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return ErrOtherMachine
	}
	to := at.Addr().Unmap().WithZone("")
	if to.IsLoopback() || to.IsUnspecified() {
		return nil
	}
	own, _ := net.InterfaceAddrs() // if this fails, only loopback addresses are ours
	for _, a := range own {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == to {
			return nil
		}
	}
	return ErrOtherMachine
}

// Postgres returns the safety of the least safe connection that the settings allow, and its host. With
// sslmode prefer, which is the default, that is a connection without TLS.
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
	case c.InsecureSkipVerify: // sslmode require, or verify-ca, which accepts a certificate for any host
		return Unverified
	}
	return Verified
}
