package localpg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// installation is a folder that has initdb and postgres.
type installation struct {
	bin     string
	version string // as the program prints it, for example 15.18
	major   int
}

// oldest is the oldest major version that outbox-cdc supports.
const oldest = 14

// fetched are the versions to fetch if a major version is not installed. A machine without PostgreSQL gets
// the last one.
var fetched = map[int]string{14: "14.24.0", 15: "15.19.0", 16: "16.15.0", 17: "17.11.0", 18: "18.6.0"}

// places are the folders where packages install the programs: Debian, PGDG's RPMs, Homebrew, Postgres.app.
var places = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

func findInstallation(ctx context.Context, version string) (installation, error) {
	if strings.Contains(version, ".") {
		return fetch(ctx, version)
	}
	major := 0
	if version != "" {
		n, err := strconv.Atoi(version)
		if err != nil || n < oldest {
			return installation{}, fmt.Errorf("%q is not a major version from %d on, nor a whole one such as 17.11.0", version, oldest)
		}
		major = n
	}
	if inst, ok := newest(installed(ctx), major); ok {
		return inst, nil
	}
	wanted := fetched[cmp.Or(major, 18)]
	if wanted == "" {
		return installation{}, fmt.Errorf("PostgreSQL %d is not installed (looked in %s and next to pg_config and postgres), and cannot be fetched", major, strings.Join(places, ", "))
	}
	inst, err := fetch(ctx, wanted)
	if err != nil {
		return installation{}, fmt.Errorf("none is installed (looked in %s and next to pg_config) and fetching %s failed: %w",
			strings.Join(places, ", "), wanted, err)
	}
	return inst, nil
}

// newest returns the newest installation of a major version; 0: of any.
func newest(all []installation, major int) (best installation, ok bool) {
	for _, i := range all {
		if (major == 0 || i.major == major) && i.major >= oldest && i.major > best.major {
			best, ok = i, true
		}
	}
	return best, ok
}

func installed(ctx context.Context) []installation {
	var bins []string
	for _, place := range places {
		found, _ := filepath.Glob(place) // the patterns are well-formed
		bins = append(bins, found...)
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		bins = append(bins, strings.TrimSpace(string(out)))
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		bins = append(bins, filepath.Dir(path))
	}
	slices.Sort(bins)
	var all []installation
	for _, bin := range slices.Compact(bins) {
		if inst, err := examine(ctx, bin); err == nil {
			all = append(all, inst)
		}
	}
	return all
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) ((\d+)[.0-9a-z]*)`)

// examine asks the postgres in a folder for its version.
func examine(ctx context.Context, bin string) (installation, error) {
	if _, err := os.Stat(filepath.Join(bin, "initdb")); err != nil {
		return installation{}, err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--version").Output()
	if err != nil {
		return installation{}, fmt.Errorf("asking %s/postgres for its version: %w", bin, err)
	}
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return installation{}, fmt.Errorf("%s/postgres says %q, which names no version", bin, out)
	}
	major, err := strconv.Atoi(string(m[2]))
	return installation{bin: bin, version: string(m[1]), major: major}, err
}

// fetch downloads a version by the embedded-postgres library, once per machine.
//
// The library always runs initdb after the download, and refuses to run as root. So it is given a locale that
// does not exist: it downloads and unpacks, and then initdb fails. Whether the programs are there decides
// about success.
func fetch(ctx context.Context, version string) (installation, error) {
	cache, err := CacheDir()
	if err != nil {
		return installation{}, err
	}
	home := filepath.Join(cache, "postgres-"+version)
	if inst, err := examine(ctx, filepath.Join(home, "bin")); err == nil {
		return inst, nil
	}
	// The version is unpacked in a folder next to its place, which is then renamed, so that another process
	// never sees a part of it.
	tmp, err := os.MkdirTemp(cache, "unpacking-")
	if err != nil {
		return installation{}, err
	}
	defer os.RemoveAll(tmp)
	port, err := FreePort()
	if err != nil {
		return installation{}, err
	}
	db := embedded.NewDatabase(embedded.DefaultConfig().
		Version(embedded.PostgresVersion(version)).Port(uint32(port)).Locale("none-such").
		CachePath(cache).BinariesPath(filepath.Join(tmp, "pg")).
		RuntimePath(filepath.Join(tmp, "run")).DataPath(filepath.Join(tmp, "data")).
		Logger(nil))
	logs := libraryLogs()
	startErr := db.Start()
	if startErr == nil {
		startErr = db.Stop()
	}
	for _, log := range libraryLogs() {
		if !slices.Contains(logs, log) {
			_ = os.Remove(log) // a few lines from initdb in the temporary folder
		}
	}
	if _, err := examine(ctx, filepath.Join(tmp, "pg", "bin")); err != nil {
		return installation{}, errors.Join(startErr, err)
	}
	if err := os.Rename(filepath.Join(tmp, "pg"), home); err != nil && !errors.Is(err, os.ErrExist) {
		if _, gone := os.Stat(home); gone != nil {
			return installation{}, err
		}
	}
	return examine(ctx, filepath.Join(home, "bin"))
}

// libraryLogs returns the files that the library leaves in the temporary folder.
func libraryLogs() []string {
	logs, _ := filepath.Glob(filepath.Join(os.TempDir(), "embedded_postgres_log*")) // well-formed
	return logs
}

// CacheDir returns the folder for fetched servers, which also suits as a TemplateDir. It is the user's cache
// folder, or, for root, one that the server's own uid can enter.
func CacheDir() (string, error) {
	dir := "/var/cache"
	if os.Geteuid() != 0 {
		var err error
		if dir, err = os.UserCacheDir(); err != nil {
			return "", err
		}
	}
	dir = filepath.Join(dir, "outbox-cdc")
	return dir, os.MkdirAll(dir, 0o755) //nolint:gosec // the server's uid must get in
}
