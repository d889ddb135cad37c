package localpg

import (
	"context"
	"sync"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg/leash"
)

// room is the process's own folder with everything in it: templates and
// servers. It exists while a server does, and is on a leash.
type room struct {
	mu        sync.Mutex
	servers   int
	folder    *leash.Folder
	templates map[string]template // by bin folder
}

var theRoom room

// enter counts a server in and gives the folder.
func (r *room) enter() (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.servers == 0 {
		// A short name, since a socket's path has about a hundred bytes at most.
		folder, err := leash.Open("outbox-cdc-")
		if err != nil {
			return "", err
		}
		r.folder, r.templates = folder, map[string]template{}
	}
	r.servers++
	return r.folder.Dir, nil
}

// leave counts a server out; the last one closes the room.
func (r *room) leave() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.servers--
	if r.servers > 0 {
		return nil
	}
	return r.folder.Close()
}

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
