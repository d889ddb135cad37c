package demo

import (
	"fmt"
	"net"
	"sync"
)

// gate is the listener of the in-process broker. When it is shut, the broker seems to be gone: connections
// break, and new ones are refused.
type gate struct {
	addr net.Addr

	mu      sync.Mutex
	changed *sync.Cond
	real    net.Listener // nil while the gate is shut
	closed  bool
	conns   map[net.Conn]struct{}
}

func newGate(network, address string) (*gate, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	g := &gate{addr: l.Addr(), real: l, conns: map[net.Conn]struct{}{}}
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

// open brings the broker back, on the same port.
func (g *gate) open() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.real != nil {
		return nil
	}
	l, err := net.Listen("tcp", g.addr.String())
	if err != nil {
		return fmt.Errorf("bringing the in-process Kafka back: %w", err)
	}
	g.real = l
	g.changed.Broadcast()
	return nil
}

// Accept also waits while the gate is shut.
func (g *gate) Accept() (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for !g.closed {
		from := g.real
		if from == nil {
			g.changed.Wait()
			continue
		}
		g.mu.Unlock()
		conn, err := from.Accept()
		g.mu.Lock()
		switch {
		case g.real == from && err != nil:
			return nil, err
		case g.real == from:
			g.conns[conn] = struct{}{}
			return &gateConn{conn, g}, nil
		case err == nil: // the gate was shut meanwhile
			_ = conn.Close()
		}
	}
	return nil, net.ErrClosed
}

// Close closes the listener for good.
func (g *gate) Close() error {
	g.shut()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.changed.Broadcast()
	return nil
}

// Addr returns the address that the broker listens on when the gate is open.
func (g *gate) Addr() net.Addr { return g.addr }

// gateConn removes itself from the gate when it is closed.
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
