//go:build unix

package secret

import (
	"os"
	"os/exec"
	"syscall"
)

// nonBlocking makes opening a FIFO return at once, instead of waiting for a writer.
const nonBlocking = syscall.O_NONBLOCK

// asGroup puts the command into a process group of its own, so that everything it started ends with it.
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
