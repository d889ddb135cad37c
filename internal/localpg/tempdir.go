package localpg

import (
	"context"
	"sync"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg/cleanup"
)

// tempDir is the process's own folder with everything in it: templates and
// servers. It exists while a server does, and goes when the process does.
type tempDir struct {
	mu        sync.Mutex
	servers   int
	folder    *cleanup.Folder
	templates map[string]template // by bin folder
}

var shared tempDir

// enter counts a server in and gives the folder.
func (d *tempDir) enter() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.servers == 0 {
		// A short name, since a socket's path has about a hundred bytes at most.
		folder, err := cleanup.Open("outbox-cdc-")
		if err != nil {
			return "", err
		}
		d.folder, d.templates = folder, map[string]template{}
	}
	d.servers++
	return d.folder.Dir, nil
}

// leave counts a server out; the last one removes the folder.
func (d *tempDir) leave() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.servers--
	if d.servers > 0 {
		return nil
	}
	return d.folder.Close()
}

// template gives the data folder that servers of an installation start from,
// made on first use, in this folder or in the one that keeps it.
func (d *tempDir) template(ctx context.Context, root string, inst installation, keep string) (template, error) {
	if keep != "" {
		return keptTemplate(ctx, keep, inst)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if t, ok := d.templates[inst.bin]; ok {
		return t, nil
	}
	t, err := initTemplate(ctx, root, inst)
	if err == nil {
		d.templates[inst.bin] = t
	}
	return t, err
}
