//go:build !unix

package replication

import "net"

// lowWater does nothing: sockets have no low-water mark on this platform.
func lowWater(net.Conn, int) {}
