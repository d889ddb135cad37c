package packages

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// dist is the folder with what goreleaser made.
func dist(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("OUTBOX_TEST_DIST")
	if dir == "" {
		t.Skip("OUTBOX_TEST_DIST names no folder with a release: make release-snapshot does")
	}
	return dir
}

// unpacked are an archive's files.
func unpacked(t *testing.T, file string) map[string][]byte {
	t.Helper()
	archive, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	plain, err := gzip.NewReader(archive)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for r := tar.NewReader(plain); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Uname != "root" || header.Name == "outbox-cdc" && header.Mode&0o777 != 0o755 {
			t.Errorf("%s: mode %o, of %s", header.Name, header.Mode, header.Uname)
		}
		if all[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// Each platform's archive has the program for it, what is linked into it, and
// the licences of that.
func TestArchives(t *testing.T) {
	dir := dist(t)
	run(t, in(dir, "sha256sum", "--check", "--strict", "--quiet", "checksums.txt"))
	for _, platform := range []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"} {
		t.Run(platform, func(t *testing.T) {
			files := unpacked(t, one(t, filepath.Join(dir, "outbox-cdc_*_"+platform+".tar.gz")))
			for _, name := range []string{
				"LICENSE", "README.md", "CHANGELOG.md", "docs/install.md", "examples/outbox-cdc.yaml", "man/outbox-cdc-run.1.gz",
				"completions/outbox-cdc.bash", "completions/_outbox-cdc", "completions/outbox-cdc.fish", "systemd/outbox-cdc.service",
			} {
				if len(files[name]) == 0 {
					t.Errorf("%s is missing", name)
				}
			}
			judgeBill(t, files["sbom.cdx.json"], files["THIRD-PARTY-LICENSES"])
			judgeProgram(t, files["outbox-cdc"], platform)
		})
	}
	for _, pattern := range []string{"*_amd64.deb", "*_arm64.deb", "*.x86_64.rpm", "*.aarch64.rpm"} {
		one(t, filepath.Join(dir, pattern))
	}
}

func judgeProgram(t *testing.T, program []byte, platform string) {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if got := settings["GOOS"] + "_" + settings["GOARCH"]; got != platform {
		t.Errorf("the program is for %s", got)
	}
	if settings["CGO_ENABLED"] != "0" || settings["-trimpath"] != "true" || settings["vcs.revision"] == "" {
		t.Errorf("built with %v", settings)
	}
}

// The page's commands on an archive, on a copy of the machine.
func TestArchiveByThePage(t *testing.T) {
	dir := dist(t)
	m := boot(t)
	file := one(t, filepath.Join(dir, "outbox-cdc_*_linux_amd64.tar.gz"))
	m.put(file)
	m.put(filepath.Join(dir, "checksums.txt"))
	named := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "outbox-cdc_"), "_linux_amd64.tar.gz")
	script := strings.ReplaceAll(strings.Join(blocks(t, "Archive (Linux, macOS)"), ""), version, named)
	if out := m.follow(script); !strings.Contains(out, "outbox-cdc "+named+" (commit ") {
		t.Errorf("the page's commands said\n%s", out)
	}
}
