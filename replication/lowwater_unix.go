//go:build unix

package replication

import (
	"net"
	"syscall"
)

// lowWater sets how many bytes must be in the socket before the kernel reports it as readable (SO_RCVLOWAT,
// socket(7)). Errors are ignored: the mark only saves wake-ups, and a read returns whatever has arrived.
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
