package packages

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// machine is a copy of this one with a systemd of its own, thrown away with the
// test. The person who follows the page on it is no root, and may use sudo.
type machine struct {
	t   *testing.T
	pid string // of its first process
	// env is the person's.
	env []string
}

const (
	person = "somebody"
	home   = "/home/" + person
)

func boot(t *testing.T) *machine {
	t.Helper()
	if os.Getuid() != 0 {
		lacking(t, "only root can make a copy of the machine")
	}
	needs(t, "unshare", "nsenter", "runuser", "sudo", "apt", "systemctl", "/lib/systemd/systemd")
	cgroup := filepath.Join(hierarchy(), fmt.Sprintf("outbox-cdc-test-%d", os.Getpid()))
	t.Cleanup(func() { removeCgroup(t, cgroup) })
	p := harness.Start(t, exec.Command("sh", "testdata/boot.sh", t.TempDir(), cgroup))
	var said []string
	harness.Eventually(t, time.Minute, func() error {
		select {
		case <-p.Done():
			return nil
		default:
		}
		if said = p.Said("machine "); said == nil {
			return errors.New("no copy of the machine yet")
		}
		return nil
	})
	if said == nil {
		lacking(t, "this machine cannot be copied: "+p.Tail(3))
	}
	m := &machine{t: t, pid: strings.TrimPrefix(said[0], "machine ")}
	harness.Eventually(t, 2*time.Minute, func() error {
		out, err := m.command("systemctl", "is-active", "basic.target").CombinedOutput()
		if err != nil {
			return fmt.Errorf("basic.target: %s", out)
		}
		return nil
	})
	m.root("useradd --create-home " + person + " && echo '" + person + " ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/" + person)
	m.root("rm -f /var/lib/man-db/auto-update") // or every page of the machine is read for its index
	t.Cleanup(func() {
		if t.Failed() {
			journal, _ := m.command("journalctl", "--no-pager", "--lines=60", "--unit=outbox-cdc").CombinedOutput()
			t.Logf("the service's journal:\n%s", journal)
		}
	})
	return m
}

// hierarchy is where systemd has its cgroups.
func hierarchy() string {
	const v1 = "/sys/fs/cgroup/systemd"
	if _, err := os.Stat(v1); err == nil {
		return v1
	}
	return "/sys/fs/cgroup"
}

// removeCgroup waits for the last processes of a machine that was ended.
func removeCgroup(t *testing.T, root string) {
	deadline := time.After(20 * time.Second)
	for {
		var dirs []string
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error { // gone meanwhile: as wanted
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		slices.Reverse(dirs)
		for _, dir := range dirs {
			_ = os.Remove(dir) // the next look says whether it did
		}
		if _, err := os.Stat(root); err != nil {
			return
		}
		select {
		case <-deadline:
			t.Errorf("%s is left behind", root)
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// command is one on the machine, as root.
func (m *machine) command(args ...string) *exec.Cmd {
	all := append([]string{"--target", m.pid, "--mount", "--pid", "--ipc", "--root", "--wd", "--"}, args...)
	cmd := exec.Command("nsenter", all...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + home, "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}, m.env...)
	return cmd
}

// root runs a script as root.
func (m *machine) root(script string) string {
	m.t.Helper()
	return m.finish(script, m.command("sh", "-ec", script))
}

// follow runs a script as the person, who says yes to every question.
func (m *machine) follow(script string) string {
	m.t.Helper()
	return m.finish(script, m.command("runuser", "-u", person, "--", "sh", "-ec", "cd "+home+"\n"+script))
}

func (m *machine) finish(script string, cmd *exec.Cmd) string {
	m.t.Helper()
	cmd.Stdin = strings.NewReader(strings.Repeat("y\n", 20))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		m.t.Fatalf("%v\n%s\n%s", err, script, out.String())
	}
	return out.String()
}

// put copies a file to the person's home.
func (m *machine) put(file string) {
	m.t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		m.t.Fatal(err)
	}
	m.write(home+"/"+filepath.Base(file), string(content), 0o644)
}

func (m *machine) write(path, content string, mode fs.FileMode) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join("/proc", m.pid, "root", path), []byte(content), mode); err != nil {
		m.t.Fatal(err)
	}
}

// shown is a property of the service, as systemd has it.
func (m *machine) shown(property string) string {
	m.t.Helper()
	return strings.TrimSpace(m.root("systemctl show --value --property=" + property + " outbox-cdc"))
}
