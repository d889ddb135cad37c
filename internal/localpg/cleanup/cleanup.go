// Package cleanup keeps folders and processes from outliving their owner. A small process watches a Folder,
// at the other end of a pipe. When the owner dies in whatever way, the watcher ends the processes whose pid
// files are in the folder, and removes the folder. The package is used for private servers of the demo and
// the tests. It never touches anything outside its folders. Unix only.
package cleanup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// Folder is a temporary folder that is removed when its owner ends.
type Folder struct {
	Dir      string
	guard    *exec.Cmd
	lifeline io.Closer // the watcher reads the other end; it closes when we die
}

// Open makes a folder with a random name in the system's temporary folder, and starts the watcher. Other
// users may enter the folder but not list it.
func Open(prefix string) (*Folder, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, err
	}
	f := &Folder{Dir: dir, guard: exec.Command("/bin/sh", "-c", watch, "sh", dir)}
	Detach(f.guard)
	err = os.Chmod(dir, 0o711) //nolint:gosec // a server under another uid has to enter
	if err == nil {
		f.lifeline, err = f.guard.StdinPipe()
	}
	if err == nil {
		if err = f.guard.Start(); err != nil {
			err = fmt.Errorf("starting the watcher over %s: %w", dir, err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return f, nil
}

// Close removes the folder and ends the watcher. Processes in the folder are ended first.
func (f *Folder) Close() error {
	if err := f.lifeline.Close(); err != nil {
		return err
	}
	_ = f.guard.Wait() // its exit status has no meaning
	return os.RemoveAll(f.Dir)
}

// watch is the watcher's script. It waits for the pipe to close. A pid file has a pid, and the name of the
// signal that ends the process at once.
const watch = `
cat >/dev/null
cd / && [ -d "$1" ] || exit 0
for f in "$1"/*/pid; do
  [ -f "$f" ] || continue
  read -r p sig <"$f"; kill "-$sig" "$p"; kill -CONT "$p"
done 2>/dev/null
for f in "$1"/*/pid; do
  [ -f "$f" ] || continue
  read -r p sig <"$f"
  n=0; while kill -0 "$p" && [ $n -lt 50 ]; do sleep 0.1; n=$((n+1)); done
  kill -KILL "$p"
done 2>/dev/null
rm -rf "$1"
`

// Tie writes the pid file of a process into a folder directly below a Folder's. Remove the file when the
// process has ended, because pids are used again.
func Tie(dir string, pid int, signal string) (pidFile string, err error) {
	pidFile = filepath.Join(dir, "pid")
	return pidFile, os.WriteFile(pidFile, []byte(strconv.Itoa(pid)+" "+signal+"\n"), 0o600)
}
