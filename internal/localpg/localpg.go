// Package localpg starts private PostgreSQL servers for the demo and the tests. Each has its own data folder
// and its own port on 127.0.0.1, with logical decoding on and durability off. The package uses a server that
// is installed on the machine, or downloads one. It works as root: the server then runs under another uid. It
// leaves neither process nor folder behind, even if the process that started it is killed. It never touches a
// server or a folder that it did not make, and does not know outbox tables.
package localpg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/wait"
)

// Options describe the wanted server. The zero value is useful.
type Options struct {
	// Version is a major version such as "17" (installed, or else downloaded), or a full version such as
	// "17.11.0" (always downloaded). Empty: the newest installed version, or the newest known one if none is
	// installed.
	Version string
	// Settings are settings for postgresql.conf. They come after the package's own (wal_level=logical,
	// fsync=off, small buffers), so they take precedence. The package quotes the values.
	Settings map[string]string
	// Dir is the folder for the server. It is made if it is missing; an existing data folder in it is used
	// again, and Close leaves it. Empty: a private folder, which Close removes.
	Dir string
	// TemplateDir keeps fresh data folders from initdb for the next process, which then starts in a tenth of
	// the time. It is meant for tests. Empty: nothing is kept.
	TemplateDir string
	// CopyOf starts the server on a copy of another server's data folder. The other server must be stopped.
	// Replication slots are not copied.
	CopyOf *Server
	// Standby starts the server as a hot standby that follows the server in primary_conninfo.
	Standby bool
}

// Server is one PostgreSQL server. Any goroutine may call its methods.
type Server struct {
	install  installation
	dir      string // holds data, log and socket
	port     int
	password string
	keepDir  bool
	tied     string // folder of the pid file for the watcher, wherever dir is

	mu sync.Mutex // guards the fields below
	// running is nil while the server is stopped.
	running *process
	closed  bool
	settled bool // it has run, so others know its port
}

// Mode is a way to stop a server.
// https://www.postgresql.org/docs/current/server-shutdown.html
type Mode string

// The modes of stopping.
const (
	Smart     Mode = "smart"     // waits for every client to leave
	Fast      Mode = "fast"      // ends sessions, writes a checkpoint, waits for walsender clients
	Immediate Mode = "immediate" // no checkpoint: recovery runs at the next start
)

const superuser = "postgres"

// startTimeout bounds a start if the context has no deadline.
const startTimeout = 60 * time.Second

// Start makes and starts a server, and returns when it accepts connections.
func Start(ctx context.Context, o Options) (*Server, error) {
	inst, err := findInstallation(ctx, o.Version)
	if err != nil {
		return nil, fmt.Errorf("localpg: finding PostgreSQL: %w", err)
	}
	s, err := prepare(ctx, inst, o)
	if err != nil {
		return nil, fmt.Errorf("localpg: making a PostgreSQL %s data folder: %w", inst.version, err)
	}
	for {
		err := s.Resume(ctx)
		if err == nil {
			return s, nil
		}
		if errors.Is(err, errPortTaken) {
			if s.port, err = FreePort(); err == nil {
				err = s.configure(o)
			}
			if err == nil {
				continue
			}
		}
		return nil, errors.Join(err, s.Close())
	}
}

// errPortTaken: another process took the port before our first start.
var errPortTaken = errors.New("the port was taken meanwhile")

// DSN returns a connection string to a database for the superuser, over TCP.
func (s *Server) DSN(database string) string {
	return s.DSNAs(database, superuser, s.password)
}

// DSNAs returns DSN for another role.
func (s *Server) DSNAs(database, role, password string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(role, password),
		Host: s.Addr(), Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Addr returns the address that the server listens on, as host:port. It never changes.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Port returns the TCP port on 127.0.0.1.
func (s *Server) Port() int { return s.port }

// PID returns the process ID of the main process; 0 while the server is stopped.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return 0
	}
	return s.running.pid()
}

// Version returns the server's version, for example 15.18.
func (s *Server) Version() string { return s.install.version }

// DataDir returns the server's data folder.
func (s *Server) DataDir() string { return filepath.Join(s.dir, "data") }

// Binary returns the path of one of the server's programs, such as pg_recvlogical. A downloaded server has
// only initdb, pg_ctl and postgres.
func (s *Server) Binary(name string) (string, error) {
	return exec.LookPath(filepath.Join(s.install.bin, name))
}

// Log returns everything that the server has logged.
func (s *Server) Log() string {
	b, err := os.ReadFile(s.logPath())
	if err != nil {
		return "(" + err.Error() + ")"
	}
	return string(b)
}

// SetHBA replaces pg_hba.conf. The change takes effect with pg_reload_conf() or the next start.
// https://www.postgresql.org/docs/current/auth-pg-hba-conf.html
func (s *Server) SetHBA(rules string) error {
	// The file exists and belongs to the server's uid already.
	return os.WriteFile(filepath.Join(s.DataDir(), "pg_hba.conf"), []byte(rules), 0o600)
}

// HBA is the pg_hba.conf that a server starts with. Clients on the socket, which is in our own folder, are
// trusted. All others need a password.
const HBA = "local all,replication all trust\n" +
	"host all,replication all 127.0.0.1/32 scram-sha-256\n"

// Resume starts a stopped or killed server on the same port and data. It tries again while a temporary cause
// prevents the start: children of a killed server that still hold its shared memory, or another process on
// its port.
func (s *Server) Resume(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("localpg: the server is closed")
	}
	if s.running != nil && !s.running.ended() {
		return errors.New("localpg: the server is running already")
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		before := len(s.Log())
		err := s.startOnce(ctx)
		if err == nil {
			s.settled = true
			return nil
		}
		said := s.Log()
		said = said[min(before, len(said)):]
		if !s.settled && strings.Contains(said, "could not bind") {
			return errPortTaken
		}
		passing := strings.Contains(said, "shared memory block") ||
			strings.Contains(said, "could not bind") || strings.Contains(said, "lock file")
		if !passing || wait.Sleep(ctx, 50*time.Millisecond) != nil {
			end := said[max(0, len(said)-2000):]
			return fmt.Errorf("localpg: starting PostgreSQL %s in %s: %w; it logged:\n%s", s.Version(), s.dir, err, end)
		}
	}
}

func (s *Server) startOnce(ctx context.Context) error {
	p, err := s.spawn()
	if err != nil {
		return err
	}
	for !s.ready(p.pid()) {
		select {
		case <-p.done:
			return fmt.Errorf("the server ended: %w", p.err)
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			p.kill()
			return ctx.Err()
		}
	}
	s.running = p
	return nil
}

// ready reports whether the server accepts connections, by what it writes for pg_ctl: the eighth line of
// postmaster.pid. The first line has its pid, because the file of a killed server still says "ready".
// https://github.com/postgres/postgres/blob/master/src/include/utils/pidfile.h
func (s *Server) ready(pid int) bool {
	b, err := os.ReadFile(filepath.Join(s.DataDir(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(b), "\n")
	if len(lines) < 8 || strings.TrimSpace(lines[0]) != strconv.Itoa(pid) {
		return false
	}
	status := strings.TrimSpace(lines[7])
	return status == "ready" || status == "standby"
}

// Stop ends the server and keeps its data, so that Resume can start it again. It waits as long as the mode
// and the context allow.
func (s *Server) Stop(ctx context.Context, mode Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return nil
	}
	if err := s.running.signal(stopSignals[mode]); err != nil {
		return fmt.Errorf("localpg: stopping PostgreSQL: %w", err)
	}
	select {
	case <-s.running.done:
		s.running = nil
		return nil
	case <-ctx.Done():
		return fmt.Errorf("localpg: waiting for a %s stop of PostgreSQL: %w", mode, ctx.Err())
	}
}

// Restart stops the server and starts it again.
func (s *Server) Restart(ctx context.Context, mode Mode) error {
	if err := s.Stop(ctx, mode); err != nil {
		return err
	}
	return s.Resume(ctx)
}

// Kill ends the server's main process with SIGKILL. Its other processes notice and end too. The data stays.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		s.running.kill()
		s.running = nil
	}
}

// Close ends the server at once and removes its folder. It may be called twice.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.running != nil {
		s.running.end()
		s.running = nil
	}
	var err error
	if !s.keepDir {
		err = os.RemoveAll(s.dir)
	}
	return errors.Join(err, shared.leave())
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "log") }
