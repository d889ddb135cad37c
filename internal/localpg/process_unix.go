//go:build unix

package localpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg/cleanup"
)

var stopSignals = map[Mode]syscall.Signal{
	Smart: syscall.SIGTERM, Fast: syscall.SIGINT, Immediate: syscall.SIGQUIT,
}

// process is a running postgres. Only its method wait waits for it; wait then closes done.
type process struct {
	cmd     *exec.Cmd
	pidFile string
	done    chan struct{}
	err     error // how it ended; valid once done is closed
}

// spawn starts postgres in a process group of its own, so that Ctrl-C in a terminal reaches only our process.
func (s *Server) spawn() (*process, error) {
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(s.install.bin, "postgres"), "-D", s.DataDir())
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir, serverEnv(), log, log
	asServerUser(cmd)
	cleanup.Detach(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("running %s: %w", cmd.Path, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	if p.pidFile, err = cleanup.Tie(s.tied, p.pid(), "QUIT"); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	go p.wait()
	return p, nil
}

// wait is a named function so that tests that look for leaks can recognise it.
func (p *process) wait() {
	if p.err = p.cmd.Wait(); p.err == nil {
		p.err = errors.New("exit status 0")
	}
	_ = os.Remove(p.pidFile) // it may be gone with the folder
	close(p.done)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

func (p *process) kill() {
	_ = p.signal(syscall.SIGKILL) // fails only if the process has ended
	<-p.done
}

// end stops the server at once, by force if necessary.
func (p *process) end() {
	_ = p.signal(syscall.SIGQUIT)
	_ = p.signal(syscall.SIGCONT)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		p.kill()
	}
}

// serverUser is the uid that servers run under if we are root, because postgres refuses to run as root. The
// uid must have a name.
var serverUser = sync.OnceValue(func() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	return nil
})

func serverUID() int {
	if c := serverUser(); c != nil {
		return int(c.Uid)
	}
	return os.Getuid()
}

func asServerUser(cmd *exec.Cmd) {
	if c := serverUser(); c != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c}
	}
}

// handOver gives a folder and everything in it to the server's uid.
func handOver(dir string) error {
	c := serverUser()
	if c == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(c.Uid), int(c.Gid))
	})
}
