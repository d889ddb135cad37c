package replication

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// fakeWalsender answers like a server up to START_REPLICATION, and then does what the test wants.
type fakeWalsender struct {
	t    *testing.T
	addr string
}

// fake starts a fakeWalsender. It calls streaming with the connection after CopyBoth.
func fake(t *testing.T, streaming func(net.Conn)) *fakeWalsender {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serve(conn, streaming)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-done })
	return &fakeWalsender{t: t, addr: listener.Addr().String()}
}

// serve implements the necessary part of the protocol. An error closes the connection, which the test
// notices.
func serve(conn net.Conn, streaming func(net.Conn)) {
	_ = conn.SetDeadline(time.Now().Add(patience))
	backend := pgproto3.NewBackend(conn, conn)
	if _, err := backend.ReceiveStartupMessage(); err != nil {
		return
	}
	backend.Send(&pgproto3.AuthenticationOk{})
	backend.Send(&pgproto3.BackendKeyData{ProcessID: 7, SecretKey: []byte{1, 2, 3, 4}})
	backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for backend.Flush() == nil {
		message, err := backend.Receive()
		query, isQuery := message.(*pgproto3.Query)
		if err != nil || !isQuery {
			return
		}
		if strings.HasPrefix(query.String, "START_REPLICATION") {
			backend.Send(&pgproto3.CopyBothResponse{})
			_ = backend.Flush()
			streaming(conn)
			return
		}
		answer(backend, query.String)
	}
}

// answer sends "true" for the question for the lock, and "1" for all other questions.
func answer(backend *pgproto3.Backend, query string) {
	value := "1"
	if strings.Contains(query, "pg_try_advisory_lock") {
		value = "true"
	}
	backend.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("a"), DataTypeOID: 25}}})
	backend.Send(&pgproto3.DataRow{Values: [][]byte{[]byte(value)}})
	backend.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
	backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
}

func (f *fakeWalsender) stream(cfg Config) *Conn {
	f.t.Helper()
	cfg.DSN = "postgres://u:p@" + f.addr + "/d?sslmode=disable"
	cfg.Slot, cfg.Publication = "ob", "pub"
	c, err := Lead(f.t.Context(), cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(c.Kill)
	if err := c.Start(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	return c
}

func message(kind byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4)), body...)
}

func walData(at uint64, data []byte) []byte {
	body := binary.BigEndian.AppendUint64([]byte{'w'}, at)
	body = binary.BigEndian.AppendUint64(body, at)
	body = binary.BigEndian.AppendUint64(body, 0)
	return message('d', append(body, data...))
}

// Whatever a server sends, the result is an error of the right kind and a closed connection, and nothing
// panics.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sends []byte
		want  error
	}{
		"end":                   {nil, ErrClosed},
		"truncated header":      {[]byte{'d', 0, 0}, ErrClosed},
		"truncated frame":       {walData(1, make([]byte, 100))[:60], ErrClosed},
		"negative length":       {[]byte{'d', 0xff, 0xff, 0xff, 0xff}, ErrFrameTooLarge},
		"length too short":      {[]byte{'d', 0, 0, 0, 3}, ErrProtocol},
		"too large":             {binary.BigEndian.AppendUint32([]byte{'N'}, 2<<20), ErrFrameTooLarge},
		"too large for a row":   {walData(1, append([]byte{'M'}, make([]byte, 2<<20)...)), ErrFrameTooLarge},
		"a value out of bounds": {walData(1, append([]byte("I\x00\x00\x00\x01N\x00\x01t\xff\xff\xff\xff"), make([]byte, 2<<20)...)), ErrProtocol},
		"unknown type":          {message('?', []byte("x")), ErrProtocol},
		"row outside a query":   {message('D', []byte{0, 0}), ErrProtocol},
		"empty copy data":       {message('d', nil), ErrProtocol},
		"unknown copy data":     {message('d', []byte("zzz")), ErrProtocol},
		"short WAL header":      {message('d', make([]byte, 24)), ErrProtocol},
		"short WAL data":        {message('d', append([]byte{'w'}, make([]byte, 20)...)), ErrProtocol},
		"short keepalive":       {message('d', append([]byte{'k'}, make([]byte, 16)...)), ErrProtocol},
		"long keepalive":        {message('d', append([]byte{'k'}, make([]byte, 18)...)), ErrProtocol},
		"broken error":          {message('E', []byte{'S', 'x'}), ErrClosed},
		"empty error":           {message('E', []byte{0}), ErrClosed},
		"broken notice":         {message('N', []byte{'S', 'x'}), ErrProtocol},
		"shutdown":              {message('E', []byte("SFATAL\x00VFATAL\x00C57P01\x00Mbye\x00\x00")), ErrShutdown},
		"error in decoding":     {message('E', []byte("SERROR\x00VERROR\x00C42704\x00Mgone\x00\x00")), ErrPublicationGone},
		"error, nothing behind": {message('E', []byte("SERROR\x00VERROR\x00CXX000\x00Mbad\x00\x00")), ErrUnreadable},
		"copy done":             {message('c', nil), ErrShutdown},
		"command complete":      {message('C', []byte("COPY 0\x00")), ErrShutdown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := fake(t, func(conn net.Conn) { _, _ = conn.Write(c.sends) })
			conn := server.stream(Config{MaxFrame: 1 << 20, SenderTimeout: time.Second})
			err := failing(t, conn)
			if !errors.Is(err, c.want) || !errors.Is(err, ErrClosed) {
				t.Errorf("%v is not %v", err, c.want)
			}
			if conn.frames != nil {
				t.Error("still streaming")
			}
			// Another session of this very process may still hold the lock. PID must be the one from
			// pg_backend_pid(), not the 7 from the connection's start, which a pooler would invent.
			if got := conn.PID(); got != 1 {
				t.Errorf("process %d, want 1", got)
			}
			if err := conn.SendStatus(1); !errors.Is(err, ErrClosed) {
				t.Errorf("status: %v", err)
			}
		})
	}
}

func TestSilentServerIsLeft(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	server := fake(t, func(conn net.Conn) {
		status := make([]byte, 39)
		for {
			if _, err := io.ReadFull(conn, status); err != nil {
				return
			}
			if status[38] == 1 { // an answer is requested
				select {
				case asked <- struct{}{}:
				default:
				}
			}
		}
	})
	c := server.stream(Config{SenderTimeout: 400 * time.Millisecond})
	began := time.Now()
	for {
		_, err := c.Receive(time.Now().Add(50 * time.Millisecond))
		if err == nil {
			err = c.SendStatus(1)
		}
		if errors.Is(err, ErrSilent) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if time.Since(began) > patience {
			t.Fatal("the silence is borne for ever")
		}
	}
	select {
	case <-asked:
	default:
		t.Error("no answer was asked for")
	}
}

// Frames that arrive byte by byte, with a timeout after each piece, are complete.
func TestSlowFramesComeOutWhole(t *testing.T) {
	t.Parallel()
	payload := bytes.Repeat([]byte("abcdefghij"), 30)
	step := make(chan int)
	server := fake(t, func(conn net.Conn) {
		stream := bytes.Repeat(walData(9, payload), 3)
		for n := range step {
			_, _ = conn.Write(stream[:n])
			stream = stream[n:]
		}
	})
	c := server.stream(Config{ReadBuffer: 64})
	whole := len(walData(9, payload))
	for _, n := range []int{1, 4, 1, 20, whole - 27, 1, whole - 1, whole} {
		step <- n
		for {
			m, err := c.Receive(time.Now().Add(10 * time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			if m.Kind == Idle {
				break
			}
			if !bytes.Equal(m.Data, payload) || m.WALStart != 9 {
				t.Fatalf("frame %+v", m)
			}
			whole = 0
		}
	}
	close(step)
	if whole != 0 {
		t.Error("no frame came out")
	}
}

// A false length costs no memory. A long frame takes only its own length, and that memory is released
// afterwards.
func TestLongFramesAreBounded(t *testing.T) {
	t.Parallel()
	const long = 32 << 20
	sent := make(chan struct{})
	server := fake(t, func(conn net.Conn) {
		_, _ = conn.Write(walData(1, make([]byte, long)))
		_, _ = conn.Write(walData(2, []byte("x")))
		_, _ = conn.Write(binary.BigEndian.AppendUint32([]byte{'d'}, 200<<20))
		_, _ = conn.Write(make([]byte, 100))
		<-sent
	})
	defer close(sent)
	c := server.stream(Config{ReadBuffer: 1 << 16, MaxFrame: 256 << 20})
	for _, want := range []int{long, 1} {
		for {
			m, err := c.Receive(time.Now().Add(100 * time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			if m.Kind == Data {
				if len(m.Data) != want {
					t.Fatalf("%d bytes, want %d", len(m.Data), want)
				}
				break
			}
		}
	}
	if m, err := c.Receive(time.Now().Add(50 * time.Millisecond)); err != nil || m.Kind != Idle {
		t.Fatalf("%+v, %v", m, err)
	}
	if got := len(c.frames.buf); got > 1<<19 {
		t.Errorf("the buffer holds %d bytes", got)
	}
	runtime.KeepAlive(c)
}

// Statuses are sent while nobody reads, however much the server sends.
func TestStatusGoesOutWhileNothingIsRead(t *testing.T) {
	t.Parallel()
	got := make(chan []byte, 1)
	server := fake(t, func(conn net.Conn) {
		go func() {
			chunk := bytes.Repeat(walData(3, make([]byte, 1000)), 64)
			for {
				if _, err := conn.Write(chunk); err != nil {
					return
				}
			}
		}()
		status := make([]byte, 39)
		for {
			if _, err := io.ReadFull(conn, status); err != nil {
				return
			}
			select {
			case got <- bytes.Clone(status):
			default:
			}
		}
	})
	c := server.stream(Config{})
	for range 10_000 {
		if err := c.SendStatus(0x55); err != nil {
			t.Fatal(err)
		}
	}
	if status := <-got; status[0] != 'd' || status[5] != 'r' || status[21] != 0x55 || status[13] != 0x55 || status[29] != 0x55 {
		t.Errorf("status %x", status)
	}
	if m, err := c.Receive(time.Now().Add(time.Second)); err != nil || m.Kind != Data {
		t.Errorf("%+v, %v", m, err)
	}
	if !c.Buffered() {
		t.Error("more is here, and Buffered says no")
	}
}

func FuzzInspection(f *testing.F) {
	f.Add("1\t0/1528C18\tno recovery target specified\n")
	f.Add("2\t0/1")
	f.Fuzz(func(_ *testing.T, text string) {
		_, _ = parseHistory(text)
		_ = Damage(text, text+" x")
		_ = Damage(text, "1 5 7=9")
		_ = Damage("1 5 7=9", text)
	})
}
