package admin

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// connections bounds the number of open connections, because they use file descriptors that the database and
// the brokers need. A client that opens many connections and sends nothing must not keep others out. So a new
// connection replaces the idle one that has been idle longest; if the new one's address already has its
// share, it replaces one of that address. If all connections are busy, it replaces one of the address with
// the most connections, unless its own address has as many.
type connections struct {
	mu   sync.Mutex
	all  map[net.Conn]*held
	from map[netip.Prefix]int
	tick uint64
}

// held is an open connection.
type held struct {
	from  netip.Prefix
	busy  bool   // a request is in progress
	since uint64 // when busy changed last, in ticks
}

// Bounds of connections. A single address gets at most a fraction of them.
const (
	maxConnections = 512
	maxOfOne       = 128
)

func newConnections() *connections {
	return &connections{all: map[net.Conn]*held{}, from: map[netip.Prefix]int{}}
}

// changed is the ConnState hook of http.Server.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tick++
	switch state {
	case http.StateNew:
		from := origin(conn.RemoteAddr().String())
		if c.from[from] >= maxOfOne && !c.closeIdlest(func(h *held) bool { return h.from == from }) ||
			len(c.all) >= maxConnections && !c.closeIdlest(func(*held) bool { return true }) && !c.closeOfMany(from) {
			cut(conn)
			return
		}
		c.all[conn] = &held{from: from, since: c.tick}
		c.from[from]++
	case http.StateActive, http.StateIdle:
		if h := c.all[conn]; h != nil {
			h.busy, h.since = state == http.StateActive, c.tick
		}
	case http.StateClosed, http.StateHijacked:
		c.drop(conn)
	}
}

// closeIdlest closes the connection that has been idle longest among those that match, if there is one.
func (c *connections) closeIdlest(among func(*held) bool) bool {
	var idlest net.Conn
	for conn, h := range c.all {
		if !h.busy && among(h) && (idlest == nil || h.since < c.all[idlest].since) {
			idlest = conn
		}
	}
	if idlest == nil {
		return false
	}
	c.drop(idlest)
	cut(idlest)
	return true
}

// closeOfMany closes the connection that has been busy longest at the address with the most connections, if
// that address has more than the newcomer's address will have.
func (c *connections) closeOfMany(newcomer netip.Prefix) bool {
	most := newcomer
	for from, n := range c.from {
		if n > c.from[most] {
			most = from
		}
	}
	if c.from[most] <= c.from[newcomer]+1 {
		return false
	}
	var longest net.Conn
	for conn, h := range c.all {
		if h.from == most && (longest == nil || h.since < c.all[longest].since) {
			longest = conn
		}
	}
	c.drop(longest)
	cut(longest)
	return true
}

func (c *connections) drop(conn net.Conn) {
	h := c.all[conn]
	if h == nil {
		return
	}
	delete(c.all, conn)
	if c.from[h.from]--; c.from[h.from] <= 0 {
		delete(c.from, h.from)
	}
}

// cut closes a connection without the closing message of TLS, which could wait for the other side.
func cut(conn net.Conn) {
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	_ = conn.Close()
}
