package demo

import (
	"errors"
	"io"
	"net"
	"testing"
)

func TestGate(t *testing.T) {
	t.Parallel()
	g, err := newGate("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { // an echo
		for {
			c, err := g.Accept()
			if err != nil {
				ended <- err
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	c := echo(t, g)
	addr := g.Addr().String()
	g.shut()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlived the gate")
	}
	if c, err := net.Dial("tcp", addr); err == nil {
		_ = c.Close()
		t.Error("a shut gate takes connections")
	}
	if err := g.open(); err != nil {
		t.Fatal(err)
	}
	echo(t, g)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept ended with %v", err)
	}
}

func echo(t *testing.T, g *gate) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", g.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return c
}
