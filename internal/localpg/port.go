package localpg

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the range that the kernel uses for outgoing connections (32768 and up on Linux,
// 49152 on macOS). A port in that range could be given to a client while its server is down. And a client
// that keeps dialling a free port there may at some time connect to itself.
const (
	firstPort = 15_000
	lastPort  = 32_000
)

// FreePort returns a TCP port on 127.0.0.1 that nobody listens on. The port is not reserved.
func FreePort() (int, error) {
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue // the port is taken
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("no free port found between %d and %d", firstPort, lastPort)
}
