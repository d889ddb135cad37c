package security

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// forger stands between the program and the server, and puts keepalives of its own into the stream.
type forger struct {
	t        *testing.T
	listener net.Listener
	server   string

	mu     sync.Mutex // held, nothing goes to the program
	client net.Conn   // streams
	open   sync.WaitGroup
}

func newForger(t *testing.T, server string) *forger {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forger{t: t, listener: listener, server: server}
	f.open.Go(f.serve)
	t.Cleanup(func() { _ = listener.Close(); f.open.Wait() })
	return f
}

func (f *forger) serve() {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", f.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		f.open.Go(func() {
			_, _ = io.Copy(server, client) // its end ends the connection, which the test sees
			_ = server.Close()
		})
		f.open.Go(func() {
			defer client.Close()
			f.replies(bufio.NewReader(server), client)
		})
	}
}

// replies passes the server's messages on, each in one piece.
func (f *forger) replies(server io.Reader, client net.Conn) {
	for {
		head := make([]byte, 5)
		if _, err := io.ReadFull(server, head); err != nil {
			return
		}
		message := make([]byte, 1+binary.BigEndian.Uint32(head[1:]))
		copy(message, head)
		if _, err := io.ReadFull(server, message[5:]); err != nil {
			return
		}
		f.mu.Lock()
		_, err := client.Write(message)
		if head[0] == 'W' {
			f.client = client
		}
		f.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// say puts a message into the stream. The caller holds the lock.
func (f *forger) say(message []byte) {
	f.t.Helper()
	whole := binary.BigEndian.AppendUint32([]byte{'d'}, uint32(4+len(message)))
	if _, err := f.client.Write(append(whole, message...)); err != nil {
		f.t.Errorf("forging a message: %v", err)
	}
}

// numbers returns what follows a message's letter.
func numbers(letter byte, all ...uint64) []byte {
	message := []byte{letter}
	for _, n := range all {
		message = binary.BigEndian.AppendUint64(message, n)
	}
	return message
}

// keepalive says that everything below a position was sent.
func (f *forger) keepalive(at uint64) { f.say(append(numbers('k', at, 0), 1)) }

// transaction makes up one without a row, which commits at a position.
func (f *forger) transaction(at uint64) {
	begin := append(numbers('B', at, 0), 0, 0, 0, 9)
	commit := append([]byte{'C', 0}, numbers(0, at, at+8, 0)[1:]...)
	for _, message := range [][]byte{begin, commit} {
		f.say(append(numbers('w', at, at, 0), message...))
	}
}

// forged returns a world whose stream comes through a forger.
func forged(t *testing.T) (*world, *forger) {
	t.Helper()
	w := newWorld(t)
	f := newForger(t, w.db.Server.Addr())
	through := strings.Replace(w.db.DSN, w.db.Server.Addr(), f.listener.Addr().String(), 1)
	w.stream["postgres"] = fields{"dsn": w.db.DSN, "replication_dsn": through, "wal_sender_timeout": "3s"}
	return w, f
}

// position is one of pg_replication_slots or of a function, as a number.
func (w *world) position(of string) uint64 {
	w.t.Helper()
	return uint64(harness.One[int64](w.t, w.db, `SELECT (`+of+` - '0/0'::pg_lsn)::bigint`))
}

func (w *world) confirmed() uint64 {
	w.t.Helper()
	return w.position(fmt.Sprintf(`(SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'slot_%s')`, w.db.Name))
}

// A keepalive that lies ahead of the WAL, or goes back, does not move the slot. What is written later comes through the
// stream, and keepalives of the server itself move the slot on.
func TestAKeepaliveAheadOfTheWALConfirmsNothing(t *testing.T) {
	t.Parallel()
	w, f := forged(t)
	p := w.run()
	p.Await(30*time.Second, "handed back to the stream") // what is swept would come by the WAL later
	w.insertRows("before", 10)
	w.allSent("before", 10)
	for range 3 {
		f.mu.Lock()
		ahead := w.position("pg_current_wal_insert_lsn()") + 1<<32
		f.keepalive(1)
		f.keepalive(ahead)
		f.client = nil
		f.mu.Unlock()
		p.Await(30*time.Second, "the replication connection ended", "has sent everything up to", "but the WAL ends at")
		harness.Eventually(t, 30*time.Second, func() error {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.client == nil {
				return fmt.Errorf("the stream has not begun again")
			}
			return nil
		})
		if at := w.confirmed(); at >= ahead {
			t.Fatalf("the slot is at %x, the lie was %x", at, ahead)
		}
	}
	w.insertRows("after", 10)
	w.allSent("after", 10)
	at := w.position("pg_current_wal_insert_lsn()")
	harness.Eventually(t, time.Minute, func() error {
		if now := w.confirmed(); now < at {
			return fmt.Errorf("the slot of an idle stream is at %x, want %x", now, at)
		}
		return nil
	})
	w.stopped(p)
}

// A keepalive says that everything was sent, and then a row comes that was committed before: others may have been
// left out. The stream is swept, and no row is lost.
func TestAKeepaliveBehindWhichRowsComeIsNotBelieved(t *testing.T) {
	t.Parallel()
	w, f := forged(t)
	p := w.run()
	p.Await(30*time.Second, "handed back to the stream") // what is swept would come by the WAL later
	w.insertRows("before", 10)
	w.allSent("before", 10)
	f.mu.Lock()
	w.insertRows("hidden", 10)
	f.keepalive(w.position("pg_current_wal_insert_lsn()"))
	f.mu.Unlock()
	p.Await(30*time.Second, "the replication connection ended", "the server said before that it had sent everything up to")
	w.allSent("hidden", 10)
	w.insertRows("after", 10)
	w.allSent("after", 10)
	w.awaitCount(`SELECT count(*) FROM outbox_cdc.park`, 0)
	w.stopped(p)
}

// A transaction is made up that commits ahead of the WAL, so the slot is confirmed up to there. The next true one shows that. No row
// is lost, and the slot is made again.
func TestAMadeUpTransactionAheadOfTheWALLosesNoRow(t *testing.T) {
	t.Parallel()
	w, f := forged(t)
	p := w.run()
	p.Await(30*time.Second, "handed back to the stream") // what is swept would come by the WAL later
	w.insertRows("before", 10)
	w.allSent("before", 10)
	ahead := w.position("pg_current_wal_insert_lsn()") + 1<<32
	f.mu.Lock()
	f.transaction(ahead)
	f.mu.Unlock()
	harness.Eventually(t, 30*time.Second, func() error {
		if at := w.confirmed(); at < ahead {
			return fmt.Errorf("the slot is at %x, the lie is %x", at, ahead)
		}
		return nil
	})
	w.insertRows("after", 10)
	p.Await(30*time.Second, "the replication connection ended", "the server said before that it had sent everything up to")
	p.Await(30*time.Second, "or the server named a position that its WAL does not have")
	w.allSent("after", 10)
	harness.Eventually(t, time.Minute, func() error {
		at, err := harness.TryOne[bool](t.Context(), w.db, `SELECT confirmed_flush_lsn <= pg_current_wal_insert_lsn() FROM pg_replication_slots WHERE slot_name = $1`, "slot_"+w.db.Name)
		if err == nil && !at {
			err = fmt.Errorf("the slot is still ahead of the WAL")
		}
		return err
	})
	w.awaitCount(`SELECT count(*) FROM outbox_cdc.park`, 0)
	w.insertRows("last", 10)
	w.allSent("last", 10)
	w.stopped(p)
}
