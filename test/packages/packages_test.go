// Package packages tests what is released: that a commit decides its bytes, what
// the packages and archives hold, and that docs/install.md leads from nothing to
// streaming. It builds the commit, not what lies in the working folder, and
// installs on a copy of this machine, with a systemd of its own. Nothing here
// runs unless OUTBOX_TEST_PACKAGES is set: see `make package-test`.
package packages

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// OUTBOX_TEST_PACKAGES: "1" tests what can be tested here, "required" makes a
// missing tool a failure.
const env = "OUTBOX_TEST_PACKAGES"

// long says that the long form was asked for.
var long = os.Getenv("OUTBOX_TEST_LONG") == "1"

func wanted(t *testing.T) {
	t.Helper()
	if os.Getenv(env) == "" {
		t.Skip("builds and installs packages: " + env + "=1 allows it")
	}
}

// lacking skips a test for want of something, or fails it.
func lacking(t *testing.T, what string) {
	t.Helper()
	if os.Getenv(env) == "required" {
		t.Fatal(what)
	}
	t.Skip(what)
}

func needs(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			lacking(t, tool+" is missing")
		}
	}
}

func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

func in(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	return cmd
}

const (
	root    = "../.."
	version = "1.2.3"
	next    = "1.2.4"
)

// Made once per process: a clone of the commit with its packages in dist, and
// the folder with the next version's packages.
var built, upgraded string

func TestMain(m *testing.M) {
	code := m.Run()
	for _, dir := range []string{built, upgraded} {
		if dir != "" {
			_ = os.RemoveAll(filepath.Dir(dir)) // a temporary folder
		}
	}
	os.Exit(code)
}

func release(t *testing.T) string {
	t.Helper()
	wanted(t)
	if built == "" {
		built = folder(t, "clone")
		run(t, in(".", "git", "clone", "-q", root, built))
		run(t, in(built, "make", "packages", "VERSION="+version))
	}
	return built
}

func upgrade(t *testing.T) string {
	t.Helper()
	if dir := release(t); upgraded == "" {
		upgraded = folder(t, "next")
		run(t, in(dir, "make", "build", "VERSION="+next))
		run(t, in(filepath.Join(dir, "deploy", "packaging"), "go", "run", "./nfpm", "-binary", "../../bin/outbox-cdc", "-version", next, "-out", upgraded))
	}
	return upgraded
}

// folder is a path for what several tests use.
func folder(t *testing.T, name string) string {
	t.Helper()
	parent, err := os.MkdirTemp("", "outbox-cdc-release-")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(parent, name)
}

// blocks are the commands of a section of docs/install.md, for this version and
// this machine.
func blocks(t *testing.T, heading string) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs/install.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "# "+heading+"\n")
	if !found {
		t.Fatalf("docs/install.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	section, _, _ = strings.Cut(section, "\n### ")
	section = regexp.MustCompile("(?s)<!-- not run: [^\n]*\n```.*?```").ReplaceAllString(section, "")
	var all []string
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		all = append(all, strings.NewReplacer("VERSION", version, "amd64", runtime.GOARCH).Replace(m[1]))
	}
	return all
}

// contents are the bytes of every file below some folders.
func contents(t *testing.T, parent string, folders ...string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(parent, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			name, err := filepath.Rel(parent, path)
			if err == nil {
				all[name], err = os.ReadFile(path)
			}
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

// A second build by the page's commands, in another folder, has the same bytes
// in every file. In the long form nothing that was compiled before is used.
func TestTheSameCommitMakesTheSameBytes(t *testing.T) {
	first := release(t)
	parent := t.TempDir()
	// The first clone stands in for the public one: the same commit, whatever is committed meanwhile.
	environment := append(os.Environ(), "VERSION="+version,
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url."+first+".insteadOf", "GIT_CONFIG_VALUE_0=https://github.com/outbox-cdc/outbox-cdc")
	if long {
		environment = append(environment, "GOCACHE="+t.TempDir())
	}
	bash := in(parent, "sh", "-ec", strings.Join(blocks(t, "From source"), ""))
	bash.Env = environment
	out := run(t, bash)
	commit := strings.TrimSpace(run(t, in(first, "git", "rev-parse", "HEAD")))
	if !strings.Contains(out, "outbox-cdc "+version+" (commit "+commit+" of 20") {
		t.Errorf("the page's commands said\n%s", out)
	}
	again := filepath.Join(parent, "outbox-cdc")
	packages := in(again, "make", "packages")
	packages.Env = environment
	run(t, packages)
	differ(t, contents(t, first, "build", "dist"), contents(t, again, "build", "dist"))
	build := in(first, "make", "build") // with the demo, which packages leave out
	build.Env = environment
	run(t, build)
	if !bytes.Equal(contents(t, first, "bin")["bin/outbox-cdc"], contents(t, again, "bin")["bin/outbox-cdc"]) {
		t.Error("make build made another program in another folder")
	}
}

func differ(t *testing.T, a, b map[string][]byte) {
	t.Helper()
	if len(a) < 10 || len(a) != len(b) {
		t.Errorf("%d and %d files", len(a), len(b))
	}
	for name, content := range a {
		if !bytes.Equal(content, b[name]) {
			t.Errorf("%s differs", name)
		}
	}
}

func TestTheProgramIsStatic(t *testing.T) {
	dir := release(t)
	needs(t, "ldd")
	if out, err := exec.Command("ldd", filepath.Join(dir, "build/host/outbox-cdc")).CombinedOutput(); err == nil {
		t.Errorf("it needs libraries:\n%s", out)
	}
}

// What is released for other platforms compiles, at least; macOS on Intel only
// in the long form.
func TestOtherPlatformsCompile(t *testing.T) {
	wanted(t)
	platforms := []string{"linux/arm64", "darwin/arm64"}
	if long {
		platforms = append(platforms, "darwin/amd64")
	}
	for _, platform := range platforms {
		system, processor, _ := strings.Cut(platform, "/")
		build := in(root, "go", "build", "-trimpath", "./...") // several packages: compiled, and not linked
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+processor)
		run(t, build)
	}
}

// The bill has a library that is linked in, and none that only tests use.
func TestBillOfMaterials(t *testing.T) {
	folder := filepath.Join(release(t), "build/sbom/packages-linux-"+runtime.GOARCH)
	bill, err := os.ReadFile(filepath.Join(folder, "sbom.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	licences, err := os.ReadFile(filepath.Join(folder, "THIRD-PARTY-LICENSES"))
	if err != nil {
		t.Fatal(err)
	}
	judgeBill(t, bill, licences)
}

func judgeBill(t *testing.T, bill, texts []byte) {
	t.Helper()
	var bom struct {
		BOMFormat, SpecVersion string
		Components             []struct {
			Name     string
			Licenses []struct{ License struct{ ID, Name string } }
		}
	}
	if err := json.Unmarshal(bill, &bom); err != nil || bom.BOMFormat != "CycloneDX" || bom.SpecVersion == "" {
		t.Fatalf("%v, %q %q", err, bom.BOMFormat, bom.SpecVersion)
	}
	licences := map[string]string{}
	for _, c := range bom.Components {
		licences[c.Name] = c.Licenses[0].License.ID
		if c.Name != "std" && !bytes.Contains(texts, []byte("==== "+c.Name+" ")) {
			t.Errorf("the licence's text of %s is missing", c.Name)
		}
	}
	if licences["github.com/jackc/pgx/v5"] != "MIT" || licences["github.com/IBM/sarama"] != "MIT" || licences["std"] != "BSD-3-Clause" {
		t.Errorf("licences: %v", licences)
	}
	if _, there := licences["go.uber.org/goleak"]; there {
		t.Error("what only tests use is in the bill")
	}
}

// What both formats hold, with mode, owner and group.
var held = []string{
	"-rwxr-xr-x root root /usr/bin/outbox-cdc",
	"drwxr-x--- root outbox-cdc /etc/outbox-cdc",
	"-rw-r----- root outbox-cdc /etc/outbox-cdc/outbox-cdc.yaml",
	"-rw-r----- root outbox-cdc /etc/outbox-cdc/environment",
	"-rw-r--r-- root root /usr/lib/systemd/system/outbox-cdc.service",
	"-rw-r--r-- root root /usr/lib/sysusers.d/outbox-cdc.conf",
	"-rw-r--r-- root root /usr/share/man/man1/outbox-cdc-run.1.gz",
	"-rw-r--r-- root root /usr/share/bash-completion/completions/outbox-cdc",
	"-rw-r--r-- root root /usr/share/zsh/vendor-completions/_outbox-cdc",
	"-rw-r--r-- root root /usr/share/fish/vendor_completions.d/outbox-cdc.fish",
	"-rw-r--r-- root root /usr/share/doc/outbox-cdc/copyright",
	"-rw-r--r-- root root /usr/share/doc/outbox-cdc/sbom.cdx.json",
	"-rw-r--r-- root root /usr/share/doc/outbox-cdc/THIRD-PARTY-LICENSES",
}

const configs = "/etc/outbox-cdc/environment\n/etc/outbox-cdc/outbox-cdc.yaml\n"

func TestDebHolds(t *testing.T) {
	dir := release(t)
	needs(t, "dpkg-deb")
	file := one(t, filepath.Join(dir, "dist/*.deb"))
	var list []string
	for _, line := range strings.Split(run(t, exec.Command("dpkg-deb", "--contents", file)), "\n") {
		if f := strings.Fields(line); len(f) >= 6 { // mode owner/group size date time path
			owner, group, _ := strings.Cut(f[1], "/")
			list = append(list, strings.Join([]string{f[0], owner, group, strings.TrimSuffix(strings.TrimPrefix(f[5], "."), "/")}, " "))
		}
	}
	holds(t, list)
	if got := run(t, exec.Command("dpkg-deb", "--info", file, "conffiles")); got != configs {
		t.Errorf("files that an upgrade keeps: %q", got)
	}
}

func TestRpmHolds(t *testing.T) {
	dir := release(t)
	needs(t, "rpm")
	file := one(t, filepath.Join(dir, "dist/*.rpm"))
	const format = `[%{FILEMODES:perms} %{FILEUSERNAME} %{FILEGROUPNAME} %{FILENAMES}\n]`
	holds(t, strings.Split(run(t, exec.Command("rpm", "--query", "--package", "--queryformat", format, file)), "\n"))
	for _, path := range strings.Fields(configs) {
		if got := run(t, exec.Command("rpm", "--query", "--package", "--configfiles", file)); !strings.Contains(got, path+"\n") {
			t.Errorf("%s is none of the files that an upgrade keeps: %q", path, got)
		}
	}
	if out := run(t, exec.Command("rpm", "--checksig", "--nosignature", file)); !strings.Contains(out, "OK") {
		t.Errorf("checksums: %s", out)
	}
}

func holds(t *testing.T, list []string) {
	t.Helper()
	there := "\n" + strings.Join(list, "\n") + "\n"
	for _, want := range held {
		if !strings.Contains(there, "\n"+want+"\n") {
			t.Errorf("%q is not in%s", want, there)
		}
	}
}

// The page's score of the unit is the one that systemd-analyze gives.
func TestTheUnitsScore(t *testing.T) {
	wanted(t)
	needs(t, "systemd-analyze")
	page, err := os.ReadFile(filepath.Join(root, "docs/install.md"))
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile(`(?s)of systemd\s(\d+) gives it \*\*([0-9.]+)\*\*`).FindStringSubmatch(string(page))
	if said == nil {
		t.Fatal("docs/install.md states no score")
	}
	if have := run(t, exec.Command("systemd-analyze", "--version")); !strings.HasPrefix(have, "systemd "+said[1]+" ") {
		t.Skipf("another systemd judges otherwise: %s", have)
	}
	out := run(t, exec.Command("systemd-analyze", "security", "--no-pager", "--offline=yes", filepath.Join(root, "deploy/packaging/systemd/outbox-cdc.service")))
	if !strings.Contains(out, "outbox-cdc.service: "+said[2]+" ") {
		t.Errorf("the page says %s:\n%s", said[2], out)
	}
}
