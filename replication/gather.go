package replication

import (
	"context"
	"net"
	"time"
)

// gatherConn is a net.Conn with a large read buffer that, while the WAL is far
// behind, lets bytes gather for a moment before it reads again.
//
// A walsender sends each row by itself. A reader that keeps up with it is
// woken once per row, and the server's kernel transmits a packet per row: that
// costs more than the decoding. After a pause rows are read together; in a longer
// one the receive window fills, and what the server sends from then on only joins
// a queue, to be transmitted at once.
// Near the tip it would only add latency, so there it never pauses.
type gatherConn struct {
	net.Conn
	// pauses: unread bytes gather without stopping the server. In a Unix-domain socket,
	// which holds some 150 rows, they do not.
	pauses bool
	buf    []byte
	r, w   int
	pace   pace
}

const (
	gatherBuffer = 256 << 10 // bytes, of a gatherConn
	// In a pause the kernel is silent until gatherMark bytes are in the socket. It gives
	// the receive window at least that much room, so a longer pause fills it.
	gatherMark = 256 << 10
)

// Read serves large requests straight from the socket and small ones (TLS
// records, the start of the session) through the buffer.
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

// letGo gives up the buffer of the session's start: frames has a larger one.
func (g *gatherConn) letGo() {
	if g.r == g.w {
		g.buf, g.r, g.w = nil, 0, 0
	}
}

func (g *gatherConn) readPaced(p []byte) (int, error) {
	if wait := g.pace.before(time.Now()); wait > 0 && g.pauses {
		// Go's poller is woken by every row that arrives, whether or not somebody
		// reads; so for as long as nobody does, the kernel keeps quiet.
		lowWater(g.Conn, gatherMark)
		time.Sleep(wait)
		lowWater(g.Conn, 1)
	}
	n, err := g.Conn.Read(p)
	g.pace.after(time.Now(), n, n == len(p))
	return n, err
}

// pace decides when to pause before a read. It is pure.
type pace struct {
	far   bool // the last frame was more than farBytes before the end of the WAL
	rapid bool // the last whole window brought rapidBytes per second

	short    int       // so many reads in a row took all there was, and it was little
	lastRead time.Time // when it returned

	windowStart time.Time
	windowBytes int
}

const (
	gatherPause  = 2 * time.Millisecond
	farPause     = 20 * time.Millisecond
	gatherEnough = 128 << 10 // bytes: a read that brought this many is not short
	paceWindow   = 10 * time.Millisecond
	farBytes     = 4 << 20
	rapidBytes   = 8 << 20 // bytes per second
)

func (p *pace) catchingUp() bool { return p.far || p.rapid }

// before says how long to wait before reading.
func (p *pace) before(now time.Time) time.Duration {
	if p.short == 0 || !p.catchingUp() {
		return 0
	}
	pause := gatherPause
	if p.far && p.short > 1 {
		pause = farPause // what was queued at the server has come, over a slower network too
	}
	return max(0, pause-now.Sub(p.lastRead))
}

// after notes what a read brought.
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

// dialer makes gatherConns and remembers the last one, which is the one that
// a successful connect uses.
type dialer struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	last *gatherConn
}

func (d *dialer) dialGathering(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	// The kernel sizes the receive buffer. Small packets fill one of a fixed size,
	// whatever the size, before the window is closed. Then what comes is thrown away,
	// answers to what we send included, and while nobody reads, the server takes us for
	// gone.
	_, pauses := conn.(*net.TCPConn)
	d.last = &gatherConn{Conn: conn, pauses: pauses}
	return d.last, nil
}

// defaultDial keeps an idle connection checked by the kernel.
func defaultDial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}}
	return d.DialContext(ctx, network, address)
}
