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

// Confined makes a program run in a cgroup with this amount of memory. The kernel ends the program if it
// uses more. If no cgroup can be made, Confined returns the command unchanged, and the reason. Then the
// caller has to check Process.Peak instead.
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
