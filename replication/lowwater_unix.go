//go:build unix

package replication

import (
	"net"
	"syscall"
)

// lowWater sets how many bytes have to lie in the socket before the kernel says
// that it can be read (SO_RCVLOWAT, socket(7)). Best effort: what lies there can
// be read whatever it says, so the mark only spares wake-ups.
func lowWater(conn net.Conn, bytes int) {
	s, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, bytes)
	})
}
