package demo

import (
	"fmt"
	"net"
	"sync"
)

// gate is the in-process broker's listener. Shut, it is as if the broker were
// gone: connections break and new ones are refused.
type gate struct {
	addr string

	mu      sync.Mutex
	changed *sync.Cond
	real    net.Listener // nil while shut
	closed  bool
	conns   map[net.Conn]struct{}
}

func newGate(network, address string) (*gate, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	g := &gate{addr: l.Addr().String(), real: l, conns: map[net.Conn]struct{}{}}
	g.changed = sync.NewCond(&g.mu)
	return g, nil
}

// shut takes the broker away.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.real != nil {
		_ = g.real.Close()
		g.real = nil
	}
	for c := range g.conns {
		_ = c.Close()
	}
	clear(g.conns)
}

// open brings it back, on the same port.
func (g *gate) open() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.real != nil {
		return nil
	}
	l, err := net.Listen("tcp", g.addr)
	if err != nil {
		return fmt.Errorf("bringing the in-process Kafka back: %w", err)
	}
	g.real = l
	g.changed.Broadcast()
	return nil
}

// Accept waits through the time when the gate is shut.
func (g *gate) Accept() (net.Conn, error) {
	for {
		l, err := g.listener()
		if err != nil {
			return nil, err
		}
		conn, err := l.Accept()
		if err != nil {
			if g.current(l) {
				return nil, err
			}
			continue // shut meanwhile
		}
		if kept := g.keep(conn, l); kept != nil {
			return kept, nil
		}
	}
}

func (g *gate) listener() (net.Listener, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.real == nil && !g.closed {
		g.changed.Wait()
	}
	if g.closed {
		return nil, net.ErrClosed
	}
	return g.real, nil
}

func (g *gate) current(l net.Listener) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.real == l
}

// keep notes a connection, unless the gate was shut while it came.
func (g *gate) keep(conn net.Conn, from net.Listener) net.Conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.real != from {
		_ = conn.Close()
		return nil
	}
	g.conns[conn] = struct{}{}
	return &gateConn{conn, g}
}

// Close ends the listener for good.
func (g *gate) Close() error {
	g.shut()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.changed.Broadcast()
	return nil
}

// Addr is where the broker listens when the gate is open.
func (g *gate) Addr() net.Addr {
	a, err := net.ResolveTCPAddr("tcp", g.addr)
	if err != nil {
		return &net.TCPAddr{}
	}
	return a
}

// gateConn forgets itself when it is closed.
type gateConn struct {
	net.Conn
	gate *gate
}

func (c *gateConn) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.conns, c.Conn)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}
