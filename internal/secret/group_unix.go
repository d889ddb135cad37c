//go:build unix

package secret

import (
	"os"
	"os/exec"
	"syscall"
)

// nonBlocking keeps the opening of a FIFO from waiting for its writer.
const nonBlocking = syscall.O_NONBLOCK

// asGroup makes the command end with everything that it started.
func asGroup(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
}

func ownerOf(info os.FileInfo) (uid int, known bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}
