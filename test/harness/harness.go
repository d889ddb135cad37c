// Package harness gives tests their surroundings: a real PostgreSQL, a real
// Apache Kafka or a fake one, proxies to cut between them, a consumer that
// reads what really lies in a topic, and the real binary. Servers are shared by
// the tests of a package and end with its process. It holds no test and no
// expectation about outbox-cdc itself.
package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/internal/localpg/cleanup"
)

// leastWait is the minimum time that a test waits for anything. A limit that suits an idle machine would
// make tests fail on a busy one.
const leastWait = time.Minute

// Eventually polls until check returns nil. When the deadline has passed, it fails the test with the last
// error. Polling starts fast and slows down. A within of less than a minute is raised to a minute; with 0,
// check has one try.
func Eventually(t testing.TB, within time.Duration, check func() error) {
	t.Helper()
	if within > 0 {
		within = max(within, leastWait)
	}
	deadline := time.Now().Add(within)
	pause := 2 * time.Millisecond
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %v", within, err)
		}
		select {
		case <-time.After(pause):
		case <-t.Context().Done():
			t.Fatalf("the test ended before: %v", err)
		}
		pause = min(2*pause, 100*time.Millisecond)
	}
}

// theRoom is the process's folder for brokers and binaries, with a watcher: it is
// gone when the process is.
var theRoom = sync.OnceValues(func() (*cleanup.Folder, error) { return cleanup.Open("outbox-cdc-test-") })

// room is theRoom's path.
func room(t testing.TB) string {
	t.Helper()
	f, err := theRoom()
	if err != nil {
		t.Fatalf("harness: making a folder: %v", err)
	}
	return f.Dir
}

// roomFor makes a new folder in the room.
func roomFor(t testing.TB, what string) string {
	t.Helper()
	dir, err := os.MkdirTemp(room(t), what+"-")
	if err != nil {
		t.Fatalf("harness: making a folder: %v", err)
	}
	return dir
}

// cache returns the folder where downloads are kept between runs.
func cache() (string, error) { return localpg.CacheDir() }

var binaries struct {
	mu   sync.Mutex
	path map[string]string // by tags
}

// Binary builds cmd/outbox-cdc with the given build tags, once per process, and
// gives its path.
func Binary(t testing.TB, tags ...string) string {
	t.Helper()
	binaries.mu.Lock()
	defer binaries.mu.Unlock()
	key := strings.Join(tags, ",")
	if path := binaries.path[key]; path != "" {
		return path
	}
	path := filepath.Join(roomFor(t, "bin"), "outbox-cdc")
	// Unlike build, run keeps what it has linked, for the next package's tests.
	args := []string{"run", "-exec", "cp", "-tags", key, "./cmd/outbox-cdc", path}
	cmd := exec.Command("go", args...)
	cmd.Dir = moduleRoot(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("harness: go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	if binaries.path == nil {
		binaries.path = map[string]string{}
	}
	binaries.path[key] = path
	return path
}

// BinaryOf builds cmd/outbox-cdc of a commit of this repository, and returns its path.
func BinaryOf(t testing.TB, commit string) string {
	t.Helper()
	dir := roomFor(t, "older")
	cmd := exec.Command("sh", "-c", `git archive "$0" | tar -x -C "$1" && cd "$1" && go build -o outbox-cdc ./cmd/outbox-cdc`, commit, dir)
	cmd.Dir = moduleRoot(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("harness: building commit %s: %v\n%s", commit, err, out)
	}
	return filepath.Join(dir, "outbox-cdc")
}

// moduleRoot returns the folder with go.mod above the test's.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("harness: no go.mod above the working folder")
		}
		dir = up
	}
}

// loud prints a line that stands out in the output of go test, once per text.
var loud = func() func(string) {
	var said sync.Map
	return func(line string) {
		if _, again := said.LoadOrStore(line, true); !again {
			fmt.Fprintf(os.Stderr, "\n*** %s ***\n\n", line)
		}
	}
}()
