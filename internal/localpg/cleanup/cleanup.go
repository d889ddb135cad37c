// Package cleanup keeps folders and processes from outliving their owner. A
// Folder is watched by a small process at the other end of a pipe: when the
// owner dies, however, the watcher ends the processes whose pid files are in
// the folder and removes it. Used for private servers of the demo and the
// tests; it never touches anything outside its folders. Unix only.
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

// Folder is a temporary folder that goes when its owner does.
type Folder struct {
	Dir      string
	guard    *exec.Cmd
	lifeline io.Closer // the watcher reads the other end; it closes when we die
}

// Open makes a folder with a random name below the temporary folder, and posts
// the watcher. Other users may pass through it but not list it.
func Open(prefix string) (*Folder, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, err
	}
	f := &Folder{Dir: dir, guard: exec.Command("/bin/sh", "-c", watch, "sh", dir)}
	Detach(f.guard)
	err = os.Chmod(dir, 0o711) //nolint:gosec // a server under another uid passes through
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

// Close removes the folder and sends the watcher away. What runs in the folder
// is ended first.
func (f *Folder) Close() error {
	if err := f.lifeline.Close(); err != nil {
		return err
	}
	_ = f.guard.Wait() // it reports nothing
	return os.RemoveAll(f.Dir)
}

// watch waits for the pipe to close. A pid file holds a pid and the name of
// the signal that ends the process at once.
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

// Tie writes the pid file of a process into a folder directly below a
// Folder's. The file is to be removed when the process has ended: pids are
// used again.
func Tie(dir string, pid int, signal string) (pidFile string, err error) {
	pidFile = filepath.Join(dir, "pid")
	return pidFile, os.WriteFile(pidFile, []byte(strconv.Itoa(pid)+" "+signal+"\n"), 0o600)
}
