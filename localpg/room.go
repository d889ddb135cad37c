package localpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// room is the process's own folder with everything in it: templates and
// servers. It exists while a server does. A watcher process keeps guard: when
// we die, however, it ends our servers and removes the folder.
type room struct {
	mu        sync.Mutex
	servers   int
	dir       string
	templates map[string]template // by bin folder
	guard     *exec.Cmd
	lifeline  io.Closer // the watcher reads the other end; it closes when we die
}

var theRoom room

// enter counts a server in and gives the folder.
func (r *room) enter() (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.servers == 0 {
		if err := r.open(); err != nil {
			return "", err
		}
	}
	r.servers++
	return r.dir, nil
}

// leave counts a server out; the last one closes the room.
func (r *room) leave() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.servers--
	if r.servers > 0 {
		return nil
	}
	err := os.RemoveAll(r.dir)
	if closeErr := r.lifeline.Close(); closeErr != nil {
		err = errors.Join(err, closeErr)
	}
	_ = r.guard.Wait() // it has nothing left to say
	return err
}

// open makes the folder, which only its owner may read but the server's uid
// may pass through, and posts the watcher.
func (r *room) open() (err error) {
	if r.dir, err = os.MkdirTemp("", "outbox-cdc-pg-"); err != nil {
		return err
	}
	if err := os.Chmod(r.dir, 0o711); err != nil { //nolint:gosec // passing through is needed
		return err
	}
	r.templates = map[string]template{}
	r.guard = exec.Command("/bin/sh", "-c", watchScript, "sh", r.dir)
	detach(r.guard)
	if r.lifeline, err = r.guard.StdinPipe(); err != nil {
		return err
	}
	if err := r.guard.Start(); err != nil {
		return fmt.Errorf("starting the watcher over private servers: %w", err)
	}
	return nil
}

// watchScript waits for our end of the pipe to close. Then it ends every
// server whose pid file is still there and removes the folder, which is gone
// already after an orderly end.
const watchScript = `
cat >/dev/null
cd / && [ -d "$1" ] || exit 0
for f in "$1"/*/pid; do
  [ -f "$f" ] || continue
  p=$(cat "$f"); kill -QUIT "$p"; kill -CONT "$p"
  n=0; while kill -0 "$p" && [ $n -lt 50 ]; do sleep 0.1; n=$((n+1)); done
  kill -KILL "$p"
done 2>/dev/null
rm -rf "$1"
`

// template gives the data folder that servers of an installation start from,
// made on first use, in the room or in the folder that keeps it.
func (r *room) template(ctx context.Context, root string, inst installation, keep string) (template, error) {
	if keep != "" {
		return keptTemplate(ctx, keep, inst)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if t, ok := r.templates[inst.bin]; ok {
		return t, nil
	}
	t, err := initTemplate(ctx, root, inst)
	if err == nil {
		r.templates[inst.bin] = t
	}
	return t, err
}
