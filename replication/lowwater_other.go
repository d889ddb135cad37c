//go:build !unix

package replication

import "net"

// lowWater does nothing where sockets have no low-water mark.
func lowWater(net.Conn, int) {}
