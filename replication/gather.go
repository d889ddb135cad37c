package replication

import (
	"context"
	"net"
	"time"
)

// gatherConn is a net.Conn with a large read buffer. While the stream is far behind the end of the WAL, it
// pauses briefly before a read, so that bytes gather.
//
// A walsender sends each row by itself. A reader that keeps up is woken once per row, and the server's kernel
// transmits one packet per row. Both cost more than decoding the rows. After a pause, many rows are read
// together. A longer pause fills the receive window: from then on the rows join the server's send queue, and
// leave it in large packets. Near the end of the WAL a pause would only add latency, so there is none.
type gatherConn struct {
	net.Conn
	// pauses permits pauses. It is set for TCP, where unread bytes gather while the server goes on sending. A
	// Unix-domain socket holds only some 150 rows, so a pause would stop the server.
	pauses bool
	buf    []byte
	r, w   int
	pace   pace
}

const (
	gatherBuffer = 256 << 10 // bytes of a gatherConn's buffer
	// During a pause the kernel does not wake the reader until gatherMark bytes are in the socket. The kernel
	// makes the receive window at least that large, so a longer pause can fill it.
	gatherMark = 256 << 10
)

// Read serves a large request directly from the socket. Small requests (TLS records, the start of the
// session) go through the buffer.
func (g *gatherConn) Read(p []byte) (int, error) {
	if g.r < g.w {
		n := copy(p, g.buf[g.r:g.w])
		g.r += n
		return n, nil
	}
	if len(p) >= gatherBuffer/4 {
		return g.readPaced(p)
	}
	if g.buf == nil {
		g.buf = make([]byte, gatherBuffer)
	}
	n, err := g.readPaced(g.buf)
	g.r, g.w = 0, n
	if n == 0 {
		return 0, err
	}
	g.r = copy(p, g.buf[:n])
	return g.r, nil
}

// letGo releases the buffer once it is empty: after the session's start, frames reads into a larger one.
func (g *gatherConn) letGo() {
	if g.r == g.w {
		g.buf, g.r, g.w = nil, 0, 0
	}
}

func (g *gatherConn) readPaced(p []byte) (int, error) {
	if wait := g.pace.before(time.Now()); wait > 0 && g.pauses {
		// Each arriving row would wake Go's poller, although nobody reads during the pause. The low-water
		// mark keeps the kernel from doing so.
		lowWater(g.Conn, gatherMark)
		time.Sleep(wait)
		lowWater(g.Conn, 1)
	}
	n, err := g.Conn.Read(p)
	g.pace.after(time.Now(), n, n == len(p))
	return n, err
}

// pace decides whether to pause before a read. It does no I/O.
type pace struct {
	far   bool // the last frame was more than farBytes before the end of the WAL
	rapid bool // the last whole window brought rapidBytes per second

	short    int       // how many reads in a row took all available bytes and got less than gatherEnough
	lastRead time.Time // when the last read returned

	windowStart time.Time
	windowBytes int
}

const (
	gatherPause  = 2 * time.Millisecond
	farPause     = 20 * time.Millisecond
	gatherEnough = 128 << 10 // bytes: a read of at least this size is not short
	paceWindow   = 10 * time.Millisecond
	farBytes     = 4 << 20
	rapidBytes   = 8 << 20 // bytes per second
)

func (p *pace) catchingUp() bool { return p.far || p.rapid }

// before returns how long to pause before the next read.
func (p *pace) before(now time.Time) time.Duration {
	if p.short == 0 || !p.catchingUp() {
		return 0
	}
	pause := gatherPause
	if p.far && p.short > 1 {
		pause = farPause // enough for the server's queue to arrive, over a slower network too
	}
	return max(0, pause-now.Sub(p.lastRead))
}

// after records a read of n bytes. full: the read filled its buffer.
func (p *pace) after(now time.Time, n int, full bool) {
	if full || n >= gatherEnough {
		p.short = 0
	} else {
		p.short++
	}
	p.lastRead = now
	p.windowBytes += n
	if passed := now.Sub(p.windowStart); passed >= paceWindow {
		p.rapid = float64(p.windowBytes) >= rapidBytes*passed.Seconds()
		p.windowStart, p.windowBytes = now, 0
	}
}

// dialer makes gatherConns and remembers the last one, which a successful connect uses.
type dialer struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	last *gatherConn
}

func (d *dialer) dialGathering(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	// The kernel chooses the size of the receive buffer. In a buffer of a fixed size, large or small, small
	// packets use up the memory before the window closes. The kernel then drops packets, among them the
	// answers to our messages. While nobody reads, the server would take us for dead.
	_, pauses := conn.(*net.TCPConn)
	d.last = &gatherConn{Conn: conn, pauses: pauses}
	return d.last, nil
}

// defaultDial connects over TCP with keepalive, so that the kernel notices a dead peer.
func defaultDial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}}
	return d.DialContext(ctx, network, address)
}
