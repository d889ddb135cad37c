package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Confined makes a program run in a cgroup with so much memory: the kernel ends it if it takes more.
// If no cgroup can be made, it returns the command as it was, and why. Then the caller judges by
// Process.Peak.
func Confined(t testing.TB, cmd *exec.Cmd, bytes int64) (*exec.Cmd, error) {
	t.Helper()
	root, limit := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil { // version 2
		root, limit = "/sys/fs/cgroup", "memory.max"
		_ = os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory"), 0) // the limit is missing then
	}
	group := filepath.Join(root, fmt.Sprintf("outbox-cdc-test-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-")))
	if err := os.Mkdir(group, 0o750); err != nil {
		return cmd, err
	}
	t.Cleanup(func() { _ = os.Remove(group) })
	// #nosec G306 -- the kernel's own file
	if err := os.WriteFile(filepath.Join(group, limit), []byte(strconv.FormatInt(bytes, 10)), 0o644); err != nil {
		return cmd, err
	}
	confined := exec.Command("sh", append([]string{"-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(group, "cgroup.procs"), cmd.Path}, cmd.Args[1:]...)...)
	confined.Env = cmd.Env
	return confined, nil
}
