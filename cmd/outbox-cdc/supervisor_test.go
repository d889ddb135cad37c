package main

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// systemd listens as the real one does: on a datagram socket that NOTIFY_SOCKET names.
func systemd(t *testing.T, watchdogMicros string) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", watchdogMicros)
	t.Setenv("WATCHDOG_PID", "")
	return socket
}

// told reads until a message contains the text, and returns that message.
func told(t *testing.T, socket *net.UnixConn, what string) string {
	t.Helper()
	if err := socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for buffer := make([]byte, 4096); ; {
		n, err := socket.Read(buffer)
		if err != nil {
			t.Fatalf("systemd was never told %q: %v", what, err)
		}
		if message := string(buffer[:n]); strings.Contains(message, what) {
			return message
		}
	}
}

// A process that cannot reach its database counts as started. It says why it does not stream, keeps the
// watchdog satisfied, and says that it stops.
func TestRunTellsSystemd(t *testing.T) {
	socket := systemd(t, "600000")
	run := startRun(t, file(t, "postgres://u@127.0.0.1:1/db", "postgres://u@127.0.0.1:1/db", `http: {listen: "off"}`))
	if first := told(t, socket, "READY=1"); !strings.Contains(first, "STATUS=orders: does not work: ") {
		t.Errorf("told with READY=1: %q", first)
	}
	for range 3 {
		told(t, socket, "WATCHDOG=1")
	}
	if err := run.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	told(t, socket, "STOPPING=1")
	await(t, run.ended, run)
}

// Streams that do not work end as soon as they are asked to.
func TestAStopThatIsOverAtOnceIsTold(t *testing.T) {
	socket := systemd(t, "600000")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		s, err := newSupervisor(nil, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		s.run(over, over)
		told(t, socket, "STOPPING=1")
	}
}

func watched(mode, failing string, halted time.Duration) supervised {
	return supervised{
		Stream: admin.Stream{
			Name:   "orders",
			Status: func() metrics.Status { return metrics.Status{Mode: mode} },
			Report: func() status.Stream { return status.Stream{Error: failing} },
		},
		halted: func(time.Time) time.Duration { return halted },
	}
}

func TestWhatSystemdIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		streams  []supervised
		stopping bool
		want     string
	}{
		"connecting":    {[]supervised{watched("", "", 0)}, false, "STATUS=orders: connecting\nWATCHDOG=1"},
		"streaming":     {[]supervised{watched("stream", "", time.Second)}, false, "READY=1\nSTATUS=orders: stream\nWATCHDOG=1"},
		"standby":       {[]supervised{watched("standby", "", 0)}, false, "READY=1\nSTATUS=orders: standby\nWATCHDOG=1"},
		"one connects":  {[]supervised{watched("stream", "", 0), watched("", "", 0)}, false, "STATUS=orders: stream; orders: connecting\nWATCHDOG=1"},
		"does not work": {[]supervised{watched("", "no\nroute", 0)}, false, "READY=1\nSTATUS=orders: does not work: no route\nWATCHDOG=1"},
		"stuck":         {[]supervised{watched("stream", "", 31*time.Second)}, false, "READY=1\nSTATUS=orders: stream"},
		"stopping":      {[]supervised{watched("stream", "", 0)}, true, "STOPPING=1\nEXTEND_TIMEOUT_USEC=20000000\nSTATUS=draining; orders: stream\nWATCHDOG=1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &supervisor{streams: c.streams, watchdog: time.Minute, log: zerolog.Nop(), stopping: c.stopping}
			if got := s.tell(time.Now()); got != c.want {
				t.Errorf("told %q, want %q", got, c.want)
			}
		})
	}
}

// READY is sent once, the status repeatedly.
func TestReadyIsToldOnce(t *testing.T) {
	s := &supervisor{streams: []supervised{watched("stream", "", 0)}, log: zerolog.Nop()}
	if first := s.tell(time.Now()); first != "READY=1\nSTATUS=orders: stream" {
		t.Errorf("first told %q", first)
	}
	if again := s.tell(time.Now()); again != "STATUS=orders: stream" {
		t.Errorf("then told %q", again)
	}
}

// A stuck driver is reported in the log, because systemd's own message only names the watchdog.
func TestStuckDriverIsLogged(t *testing.T) {
	var log bytes.Buffer
	s := &supervisor{streams: []supervised{watched("stream", "", time.Minute)}, watchdog: time.Minute, log: zerolog.New(&log)}
	s.tell(time.Now())
	if !strings.Contains(log.String(), `"stream":"orders"`) {
		t.Errorf("logged %q", log.String())
	}
}
