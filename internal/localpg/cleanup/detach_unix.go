//go:build unix

package cleanup

import (
	"os/exec"
	"syscall"
)

// Detach puts a command into a process group of its own, so that Ctrl-C in a terminal reaches only the owner.
func Detach(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}
