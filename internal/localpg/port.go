package localpg

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports of servers that come and go are taken from below the range that the
// kernel gives to outgoing connections (32768 and up on Linux, 49152 on macOS).
// There, while a server is down, its port may be given to a client; and a
// client that keeps dialling a free port there is connected to itself
// some day.
const (
	firstPort = 15_000
	lastPort  = 32_000
)

// FreePort finds a TCP port on 127.0.0.1 that nobody listens on. Nothing keeps
// it free.
func FreePort() (int, error) {
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue // taken
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("no free port found between %d and %d", firstPort, lastPort)
}
