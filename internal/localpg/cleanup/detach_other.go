//go:build !unix

package cleanup

import "os/exec"

// Detach does nothing on systems without process groups.
func Detach(*exec.Cmd) {}
