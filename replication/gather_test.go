//go:build unix

package replication

import (
	"bytes"
	"encoding/binary"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestPaceGathersOnlyWhileBehind(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	var p pace
	// Near the end of the WAL: a small read every millisecond.
	for range 100 {
		if wait := p.before(at); wait != 0 {
			t.Fatalf("a pause of %v near the tip", wait)
		}
		at = at.Add(time.Millisecond)
		p.after(at, 400, false)
	}
	// During a catch-up: 20 KiB every 100 µs.
	for range 200 {
		at = at.Add(100 * time.Microsecond)
		p.after(at, 20<<10, false)
	}
	if wait := p.before(at); wait != gatherPause {
		t.Errorf("pause %v while catching up, want %v", wait, gatherPause)
	}
	if wait := p.before(at.Add(1500 * time.Microsecond)); wait != 500*time.Microsecond {
		t.Errorf("pause %v after 1.5 ms of work", wait)
	}
	p.after(at, gatherEnough, false)
	if wait := p.before(at); wait != 0 {
		t.Errorf("pause %v after a long read", wait)
	}
	// Quiet again.
	p.after(at.Add(time.Second), 100, false)
	if wait := p.before(at.Add(time.Second)); wait != 0 {
		t.Errorf("pause %v after a quiet second", wait)
	}
	// Far from the end of the WAL, the longer pause comes after a pause that brought little, and again after
	// the bytes it gathered have been read.
	p = pace{far: true, lastRead: at}
	for i, c := range []struct {
		n    int
		want time.Duration
	}{{100, gatherPause}, {100, farPause}, {gatherEnough, 0}, {gatherEnough, 0}, {100, gatherPause}, {gatherEnough, 0}, {100, gatherPause}, {100, farPause}} {
		p.after(at, c.n, false)
		if wait := p.before(at); wait != c.want {
			t.Errorf("read %d: pause %v, want %v", i, wait, c.want)
		}
	}
}

// dialled returns the two ends of a connection; the first one gathers.
func dialled(t *testing.T, network, address string) (*gatherConn, net.Conn) {
	t.Helper()
	server, err := (&net.ListenConfig{}).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	d := dialer{dial: defaultDial}
	if _, err := d.dialGathering(t.Context(), network, server.Addr().String()); err != nil {
		t.Fatal(err)
	}
	other, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = d.last.Close(), other.Close() })
	return d.last, other
}

// Far behind the end of the WAL, bytes that arrive one by one are read together over TCP. Over a Unix-domain
// socket, which is soon full, they are read as they come.
func TestBytesGatherOverTCPOnly(t *testing.T) {
	t.Parallel()
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		conn, other := dialled(t, network, address)
		if want := network == "tcp"; conn.pauses != want {
			t.Errorf("%s: pauses %v", network, conn.pauses)
		}
		conn.pace.far = true
		got := make([]byte, 4)
		for i := range 10 { // each read but the first follows a short one
			if _, err := other.Write([]byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
			if n, err := conn.Read(got); n != 1 || err != nil || got[0] != byte(i) {
				t.Fatalf("%s: read %d bytes, %v", network, n, err)
			}
		}
		if mark := option(t, conn.Conn, syscall.SO_RCVLOWAT); mark != 1 {
			t.Errorf("%s: the next byte wakes nobody before there are %d", network, mark)
		}
	}
}

// The receive buffer must have no fixed size, large or small: a stream that does not read for a while would
// then lose its connection (dialGathering says why). TestDelaysOnTheHotPath of test/integration shows this
// with 96 KiB; with 4 MiB it takes a longer wait.
func TestTheReceiveBufferIsTheKernels(t *testing.T) {
	t.Parallel()
	conn, server := dialled(t, "tcp", "127.0.0.1:0")
	ours, kernels := option(t, conn.Conn, syscall.SO_RCVBUF), option(t, server, syscall.SO_RCVBUF)
	if ours != kernels {
		t.Errorf("the receive buffer has %d bytes, the kernel's own choice is %d", ours, kernels)
	}
}

// endless is a connection on which the same message comes again and again.
type endless struct {
	net.Conn
	message []byte
}

func (e *endless) Read(p []byte) (n int, err error) {
	for len(p)-n >= len(e.message) {
		n += copy(p[n:], e.message)
	}
	return n, nil
}

func (e *endless) SetReadDeadline(time.Time) error { return nil }

// A row needs no allocation between the socket and the decoder.
func TestReceivingAllocatesNothingPerRow(t *testing.T) {
	body := append([]byte{'w'}, make([]byte, 24)...)
	body = append(append(body, 'I'), bytes.Repeat([]byte("x"), 300)...)
	message := binary.BigEndian.AppendUint32([]byte{'d'}, uint32(len(body)+4))
	conn := &endless{message: append(message, body...)}
	c := &Conn{cfg: Config{Slot: "s"}.withDefaults(), socket: &gatherConn{Conn: conn}}
	c.frames = newFrames(conn, c.cfg.ReadBuffer, c.cfg.MaxFrame)
	deadline := time.Now().Add(time.Hour)
	receive := func() {
		if m, err := c.Receive(deadline); err != nil || m.Kind != Data || len(m.Data) != 301 {
			t.Fatalf("%+v, %v", m, err)
		}
	}
	receive() // allocates the buffer
	if n := testing.AllocsPerRun(10_000, receive); n > 0 {
		t.Errorf("%v allocations per row", n)
	}
}

// option reads an option of a socket.
func option(t *testing.T, conn net.Conn, name int) (value int) {
	t.Helper()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if controlErr := raw.Control(func(fd uintptr) {
		value, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, name)
	}); controlErr != nil || err != nil {
		t.Fatal(controlErr, err)
	}
	return value
}
