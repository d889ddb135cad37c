// Package packages tests what is released: that a commit decides its bytes, what
// the packages hold, and that one can be installed, run, upgraded and removed.
package packages

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// built clones the commit into a folder of its own and makes its packages there.
func built(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "checkout")
	run(t, ".", "git", "clone", "-q", "../..", dir)
	run(t, dir, "make", "packages", "VERSION=1.2.3")
	return dir
}

// contents are the bytes of every file below some folders.
func contents(t *testing.T, root string, folders ...string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			name, _ := filepath.Rel(root, path)
			all[name], err = os.ReadFile(path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func one(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: found %v, %v", pattern, found, err)
	}
	return found[0]
}

func TestPackages(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program twice")
	}
	dir := built(t)
	t.Run("the same commit makes the same bytes", func(t *testing.T) { reproducible(t, dir, built(t)) })
	t.Run("static", func(t *testing.T) { static(t, dir) })
	t.Run("bill of materials", func(t *testing.T) { bill(t, dir) })
	t.Run("deb", func(t *testing.T) { deb(t, dir) })
	t.Run("rpm", func(t *testing.T) { rpm(t, dir) })
	t.Run("unit", unit)
	t.Run("install, run, upgrade, remove", func(t *testing.T) { install(t, dir) })
}

func reproducible(t *testing.T, a, b string) {
	first, second := contents(t, a, "build", "dist"), contents(t, b, "build", "dist")
	if len(first) < 10 || len(first) != len(second) {
		t.Fatalf("%d and %d files", len(first), len(second))
	}
	for name, bytes1 := range first {
		if !bytes.Equal(bytes1, second[name]) {
			t.Errorf("%s differs", name)
		}
	}
}

func static(t *testing.T, dir string) {
	program := filepath.Join(dir, "build/host/outbox-cdc")
	if runtime.GOOS == "linux" {
		if out, err := exec.Command("ldd", program).CombinedOutput(); err == nil {
			t.Errorf("it needs libraries:\n%s", out)
		}
	}
	commit := strings.TrimSpace(run(t, dir, "git", "rev-parse", "HEAD"))
	if out := run(t, dir, program, "version"); !strings.Contains(out, "outbox-cdc 1.2.3 (commit "+commit+" of 20") {
		t.Errorf("version: %s", out)
	}
}

// bill looks for one library that is linked in, and one that only tests use.
func bill(t *testing.T, dir string) {
	folder := filepath.Join(dir, "build/sbom/linux-"+runtime.GOARCH)
	text, err := os.ReadFile(filepath.Join(folder, "sbom.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat  string
		Components []struct {
			Name     string
			Licenses []struct{ License struct{ ID string } }
		}
	}
	if err := json.Unmarshal(text, &bom); err != nil || bom.BOMFormat != "CycloneDX" {
		t.Fatalf("%v, %q", err, bom.BOMFormat)
	}
	licences := map[string]string{}
	for _, c := range bom.Components {
		licences[c.Name] = c.Licenses[0].License.ID
	}
	if licences["github.com/jackc/pgx/v5"] != "MIT" || licences["std"] != "BSD-3-Clause" {
		t.Errorf("licences: %v", licences)
	}
	if _, there := licences["go.uber.org/goleak"]; there {
		t.Error("what only tests use is in the bill")
	}
	texts, err := os.ReadFile(filepath.Join(folder, "THIRD-PARTY-LICENSES"))
	if err != nil || !bytes.Contains(texts, []byte("==== github.com/jackc/pgx/v5 ")) {
		t.Errorf("%v; %d bytes of licences", err, len(texts))
	}
}

func deb(t *testing.T, dir string) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("dpkg-deb is missing")
	}
	file := one(t, filepath.Join(dir, "dist/*.deb"))
	list := run(t, dir, "dpkg-deb", "--contents", file)
	for _, want := range []string{
		"-rwxr-xr-x root/root", "./usr/bin/outbox-cdc\n",
		"drwxr-x--- root/outbox-cdc", "-rw-r----- root/outbox-cdc",
		"./etc/outbox-cdc/outbox-cdc.yaml\n", "./etc/outbox-cdc/environment\n",
		"./usr/lib/systemd/system/outbox-cdc.service\n", "./usr/lib/sysusers.d/outbox-cdc.conf\n",
		"./usr/share/man/man1/outbox-cdc-run.1.gz\n", "./usr/share/bash-completion/completions/outbox-cdc\n",
		"./usr/share/doc/outbox-cdc/sbom.cdx.json\n", "./usr/share/doc/outbox-cdc/THIRD-PARTY-LICENSES\n",
	} {
		if !strings.Contains(list, want) {
			t.Errorf("%q is not in\n%s", want, list)
		}
	}
	if got := run(t, dir, "dpkg-deb", "--info", file, "conffiles"); got != "/etc/outbox-cdc/outbox-cdc.yaml\n/etc/outbox-cdc/environment\n" {
		t.Errorf("conffiles: %q", got)
	}
}

func rpm(t *testing.T, dir string) {
	file := one(t, filepath.Join(dir, "dist/*.rpm"))
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Skip("rpm is missing: the .rpm is built and not looked into")
	}
	if got := run(t, dir, "rpm", "-qp", "--configfiles", file); !strings.Contains(got, "/etc/outbox-cdc/outbox-cdc.yaml") {
		t.Errorf("configuration files: %q", got)
	}
}

// unit is judged by systemd's own tools, which need no systemd that runs.
func unit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is missing")
	}
	// docs/install.md states the score, 1.2; the threshold is in tenths.
	run(t, ".", "systemd-analyze", "security", "--offline=yes", "--threshold=13", "../systemd/outbox-cdc.service")
}

// install does it on this machine, as root, so only where it is told to.
func install(t *testing.T, dir string) {
	if os.Getenv("OUTBOX_TEST_PACKAGES") != "install" || os.Getuid() != 0 {
		t.Skip("installs on this machine: OUTBOX_TEST_PACKAGES=install, as root, allows it")
	}
	if _, err := os.Stat("/usr/bin/outbox-cdc"); err == nil {
		t.Fatal("outbox-cdc is installed on this machine already: it would be removed by this test")
	}
	next := filepath.Join(t.TempDir(), "next")
	run(t, "..", "go", "run", "./nfpm", "-binary", filepath.Join(dir, "build/host/outbox-cdc"), "-version", "1.2.4", "-out", next)
	t.Cleanup(func() { _ = exec.Command("dpkg", "--purge", "outbox-cdc").Run() })

	run(t, dir, "dpkg", "--install", one(t, filepath.Join(dir, "dist/*.deb")))
	const config = "/etc/outbox-cdc/outbox-cdc.yaml"
	if got := run(t, dir, "stat", "-c", "%U:%G %a", config); got != "root:outbox-cdc 640\n" {
		t.Errorf("%s: %s", config, got)
	}
	run(t, dir, "runuser", "-u", "outbox-cdc", "--", "outbox-cdc", "config", "validate", "--config", config)
	if _, err := exec.LookPath("systemd-analyze"); err == nil {
		run(t, dir, "systemd-analyze", "verify", "--man=no", "/usr/lib/systemd/system/outbox-cdc.service")
	}
	starts(t)

	changed := []byte("# changed\n" + run(t, dir, "cat", config))
	if err := os.WriteFile(config, changed, 0o640); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "dpkg", "--install", one(t, filepath.Join(next, "*.deb")))
	if got := run(t, dir, "dpkg-query", "--show", "--showformat=${Version}", "outbox-cdc"); got != "1.2.4" {
		t.Errorf("after the upgrade: version %s", got)
	}
	run(t, dir, "dpkg", "--remove", "outbox-cdc")
	if got, err := os.ReadFile(config); err != nil || !bytes.Equal(got, changed) {
		t.Errorf("what was configured is gone after upgrade and removal: %v", err)
	}
	if _, err := os.Stat("/usr/bin/outbox-cdc"); err == nil {
		t.Error("the program is there after its removal")
	}
	run(t, dir, "dpkg", "--purge", "outbox-cdc")
	if _, err := os.Stat(config); err == nil {
		t.Error("the configuration is there after a purge")
	}
}

// starts runs the unit's command as the unit's user, and listens as systemd
// does: where no systemd is the first process, that is as near as one gets.
func starts(t *testing.T) {
	text, err := os.ReadFile("/usr/lib/systemd/system/outbox-cdc.service")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nExecStart=")
	command, _, _ := strings.Cut(rest, "\n")
	path := filepath.Join("/run", "outbox-cdc-test.sock")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	defer socket.Close()
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	service := exec.Command("setpriv", append([]string{"--reuid=outbox-cdc", "--regid=outbox-cdc", "--clear-groups"}, strings.Fields(command)...)...)
	service.Env = append(os.Environ(), "NOTIFY_SOCKET="+path)
	var log bytes.Buffer
	service.Stdout, service.Stderr = &log, &log
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	_ = socket.SetReadDeadline(time.Now().Add(30 * time.Second))
	buffer := make([]byte, 4096)
	for {
		n, err := socket.Read(buffer)
		if err != nil {
			_ = service.Process.Kill()
			_ = service.Wait()
			t.Fatalf("it never said that it is ready: %v\n%s", err, log.String())
		}
		if strings.HasPrefix(string(buffer[:n]), "READY=1") {
			break
		}
	}
	_ = service.Process.Signal(syscall.SIGTERM)
	if err := service.Wait(); err != nil {
		t.Errorf("stopped: %v\n%s", err, log.String())
	}
}
