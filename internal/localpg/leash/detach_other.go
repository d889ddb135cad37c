//go:build !unix

package leash

import "os/exec"

// Detach does nothing on systems without process groups.
func Detach(*exec.Cmd) {}
