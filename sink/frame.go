package sink

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"golang.org/x/sync/semaphore"
)

// sarama allocates as much memory as an answer's length field says, and several times that to decode the
// answer.
const (
	// longestAnswer is enough for the metadata of 350,000 partitions, or for a sentence on each of 100,000
	// records that a broker refuses. In bytes, like the next two.
	longestAnswer = 16 << 20
	// answersAtOnce bounds the total size of a cluster's answers that are read at the same time. Short
	// answers (shortAnswer) do not count; an answer longer than the bound is read alone.
	answersAtOnce = 16 << 20
	shortAnswer   = 64 << 10
)

// longestFetch is larger than longestAnswer: a fetch returns at least one whole batch, which any producer may
// have written.
var longestFetch = int(sarama.MaxResponseSize)

// framed checks the lengths of a broker's answers before sarama does. For the first answers on a connection
// (ApiVersions and SaslHandshake, as of sarama 1.61), sarama allocates whatever the length says, up to 4
// GiB. Any other server on the port is enough for that: read as a length, "HTTP" is 1.2 GB.
// https://kafka.apache.org/protocol#protocol_common
type framed struct {
	net.Conn
	most   int     // maximum size of a frame, in bytes
	header [4]byte // the length of the frame that begins
	have   int     // how many bytes of header have been read
	left   int     // how many bytes of the frame are still to come
	// room is shared by the long frames of the cluster; nil: they are not bounded together.
	room    *semaphore.Weighted
	taken   atomic.Int64  // the share of room that the present frame has
	patient time.Duration // how long to wait while other frames have the room
	ctx     context.Context
	// wrong is set by the first frame that is refused. Afterwards every read and write fails with it, so
	// that every request reports it.
	wrong atomic.Pointer[refusedFrame]
}

// refusedFrame says why a frame is refused.
type refusedFrame struct{ error }

// notKafka says that the server on the broker's port does not speak Kafka's protocol.
type notKafka struct{ length [4]byte }

func (e *notKafka) Error() string {
	return fmt.Sprintf("the answer begins with %q, which no Kafka broker sends: is it a broker's port, and is tls as it is there?", e.length[:])
}

// Read returns data up to the first frame that is refused.
func (f *framed) Read(p []byte) (int, error) {
	if wrong := f.wrong.Load(); wrong != nil {
		return 0, wrong.error
	}
	n, err := f.Conn.Read(p)
	good := f.follow(p[:n])
	if wrong := f.wrong.Load(); wrong != nil {
		return good, wrong.error
	}
	return n, err
}

// Write sends a request, or returns why a frame was refused.
func (f *framed) Write(p []byte) (int, error) {
	if wrong := f.wrong.Load(); wrong != nil {
		return 0, wrong.error
	}
	return f.Conn.Write(p)
}

// Close also gives back the room of a frame that was not read to its end.
func (f *framed) Close() error {
	err := f.Conn.Close()
	f.release()
	return err
}

// follow keeps track of the frames in the data, and returns how many bytes of it are admitted.
func (f *framed) follow(data []byte) (good int) {
	for at := 0; at < len(data); {
		if f.left > 0 {
			step := min(f.left, len(data)-at)
			f.left, at = f.left-step, at+step
			if f.left == 0 {
				f.release()
			}
			continue
		}
		step := copy(f.header[f.have:], data[at:])
		f.have, at = f.have+step, at+step
		if f.have < len(f.header) {
			continue
		}
		length := binary.BigEndian.Uint32(f.header[:])
		if err := f.admit(length); err != nil {
			f.wrong.Store(&refusedFrame{err})
			return at - step
		}
		f.have, f.left = 0, int(length)
	}
	return len(data)
}

// admit waits until there is room for a frame. It returns an error if the frame is refused.
func (f *framed) admit(length uint32) error {
	switch {
	case length < 4 || length > uint32(sarama.MaxResponseSize): // each answer has a correlation id of four bytes
		return &notKafka{f.header}
	case int(length) > f.most:
		return fmt.Errorf("an answer of %d bytes is refused: at most %d are taken here", length, f.most)
	case length <= shortAnswer || f.room == nil:
		return nil
	}
	ctx, cancel := context.WithTimeout(f.ctx, f.patient)
	defer cancel()
	want := int64(min(length, answersAtOnce))
	if err := f.room.Acquire(ctx, want); err != nil {
		return fmt.Errorf("an answer of %d bytes found no room: other answers of the cluster do not come to their end", length)
	}
	f.taken.Store(want)
	return nil
}

// release gives back the frame's room. The goroutine that closes may call it while the reader runs.
func (f *framed) release() {
	if n := f.taken.Swap(0); n > 0 {
		f.room.Release(n)
	}
}
