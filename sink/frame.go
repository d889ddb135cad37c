package sink

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/IBM/sarama"
)

// framed looks at the lengths of what a broker answers before sarama does, which
// allocates what the first answers on a connection say (as of 1.61: ApiVersions,
// SaslHandshake), up to 4 GiB. Something else than a broker on the port is enough
// for that: "HTTP" is a length of 1.2 GB.
// https://kafka.apache.org/protocol#protocol_common
type framed struct {
	net.Conn
	header [4]byte // the length of the frame that begins
	have   int     // bytes of header
	left   int     // bytes of the frame that are still to come
	// wrong is set by the first frame that cannot be one; nothing comes or goes
	// after it, so that every request says so.
	wrong atomic.Pointer[notKafka]
}

// notKafka: what answers on the broker's port is none.
type notKafka struct{ length [4]byte }

func (e *notKafka) Error() string {
	return fmt.Sprintf("an answer that begins with %q is none of Kafka's", e.length[:])
}

// Read ends before the first frame that cannot be one.
func (f *framed) Read(p []byte) (int, error) {
	if wrong := f.wrong.Load(); wrong != nil {
		return 0, wrong
	}
	n, err := f.Conn.Read(p)
	good := f.follow(p[:n])
	if wrong := f.wrong.Load(); wrong != nil {
		return good, wrong
	}
	return n, err
}

// Write sends a request, or says what is wrong with the answers.
func (f *framed) Write(p []byte) (int, error) {
	if wrong := f.wrong.Load(); wrong != nil {
		return 0, wrong
	}
	return f.Conn.Write(p)
}

// follow says how much may be handed on.
func (f *framed) follow(data []byte) (good int) {
	for at := 0; at < len(data); {
		if f.left > 0 {
			step := min(f.left, len(data)-at)
			f.left, at = f.left-step, at+step
			continue
		}
		step := copy(f.header[f.have:], data[at:])
		f.have, at = f.have+step, at+step
		if f.have < len(f.header) {
			continue
		}
		length := binary.BigEndian.Uint32(f.header[:])
		// Four bytes of each answer are its correlation id.
		if length < 4 || length > uint32(sarama.MaxResponseSize) {
			f.wrong.Store(&notKafka{f.header})
			return at - step
		}
		f.have, f.left = 0, int(length)
	}
	return len(data)
}
