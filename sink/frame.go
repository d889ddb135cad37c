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

// sarama takes as much memory as an answer says, and several times that to decode it.
const (
	// longestAnswer has room for the metadata of 350,000 partitions, and for a sentence on each of
	// 100,000 records that a broker refuses.
	longestAnswer = 16 << 20
	// answersAtOnce bounds the answers of a cluster that come at one time, short ones apart. A
	// longer one comes alone.
	answersAtOnce = 16 << 20
	shortAnswer   = 64 << 10
)

// longestFetch: a fetch brings at least one batch, which another producer may have written.
var longestFetch = int(sarama.MaxResponseSize)

// framed looks at the lengths of what a broker answers before sarama does, which
// allocates what the first answers on a connection say (as of 1.61: ApiVersions,
// SaslHandshake), up to 4 GiB. Something else than a broker on the port is enough
// for that: "HTTP" is a length of 1.2 GB.
// https://kafka.apache.org/protocol#protocol_common
type framed struct {
	net.Conn
	most   int     // bytes of a frame
	header [4]byte // the length of the frame that begins
	have   int     // bytes of header
	left   int     // bytes of the frame that are still to come
	// room is what long frames of the cluster share; nil: nothing bounds them.
	room    *semaphore.Weighted
	taken   atomic.Int64  // of room, for the present frame
	patient time.Duration // with others who have the room
	ctx     context.Context
	// wrong is set by the first frame that is refused; nothing comes or goes
	// after it, so that every request says so.
	wrong atomic.Pointer[refusedFrame]
}

// refusedFrame is why a frame is refused.
type refusedFrame struct{ error }

// notKafka: what answers on the broker's port is none.
type notKafka struct{ length [4]byte }

func (e *notKafka) Error() string {
	return fmt.Sprintf("the answer begins with %q, which no Kafka broker sends: is it a broker's port, and is tls as it is there?", e.length[:])
}

// Read ends before the first frame that cannot be one.
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

// Write sends a request, or says what is wrong with the answers.
func (f *framed) Write(p []byte) (int, error) {
	if wrong := f.wrong.Load(); wrong != nil {
		return 0, wrong.error
	}
	return f.Conn.Write(p)
}

// Close gives back the room of a frame that did not come to its end.
func (f *framed) Close() error {
	err := f.Conn.Close()
	f.release()
	return err
}

// follow says how much may be handed on.
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

// admit waits until there is room for a frame, or says why it is refused.
func (f *framed) admit(length uint32) error {
	switch {
	case length < 4 || length > uint32(sarama.MaxResponseSize): // four bytes of each answer are its correlation id
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

// release may be called while the reader runs, by the goroutine that closes.
func (f *framed) release() {
	if n := f.taken.Swap(0); n > 0 {
		f.room.Release(n)
	}
}
