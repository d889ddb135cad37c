package localpg

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg/cleanup"
)

// defaults are the settings of every server. Nothing here is meant to last, so durability is off. A test
// about durability switches it on.
var defaults = map[string]string{
	"wal_level":                 "logical",
	"fsync":                     "off",
	"full_page_writes":          "off",
	"listen_addresses":          "127.0.0.1",
	"shared_buffers":            "32MB",
	"max_connections":           "100",
	"max_wal_senders":           "20",
	"max_replication_slots":     "20",
	"max_prepared_transactions": "20",
	"jit":                       "off",
	"log_line_prefix":           "%m [%p] %q%u@%d ",
}

// prepare makes a server's folder, ready to start.
func prepare(ctx context.Context, inst installation, o Options) (s *Server, err error) {
	root, err := shared.enter()
	if err != nil {
		return nil, err
	}
	s = &Server{install: inst, dir: o.Dir, keepDir: o.Dir != ""}
	defer func() {
		if err != nil {
			_ = s.Close() // the first error is returned
		}
	}()
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp(root, "pg"); err != nil {
			return s, err
		}
		s.tied = s.dir
	} else if s.tied, err = os.MkdirTemp(root, "kept"); err != nil {
		return s, err
	}
	if s.port, err = FreePort(); err != nil {
		return s, err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return s, err
	}
	if err := s.fillData(ctx, root, o); err != nil {
		return s, err
	}
	return s, s.configure(o)
}

// fillData provides a data folder: one that is there already, a copy of another server's, or a copy of the
// template. In the first two cases the password is in the file next to the folder.
func (s *Server) fillData(ctx context.Context, root string, o Options) error {
	secret := filepath.Join(s.dir, "password")
	_, err := os.Stat(filepath.Join(s.DataDir(), "PG_VERSION"))
	switch {
	case err == nil:
		b, err := os.ReadFile(secret)
		s.password = string(b)
		return err
	case o.CopyOf != nil:
		s.password = o.CopyOf.password
		err = copyData(o.CopyOf.DataDir(), s.DataDir())
	default:
		var t template
		if t, err = shared.template(ctx, root, s.install, o.TemplateDir); err == nil {
			if s.password, err = t.password(); err == nil {
				err = copyData(t.data(), s.DataDir())
			}
		}
	}
	if err != nil {
		return err
	}
	if err := os.WriteFile(secret, []byte(s.password), 0o600); err != nil {
		return err
	}
	// Files that belong to the original server are removed.
	slots := filepath.Join(s.DataDir(), "pg_replslot")
	if err := errors.Join(os.RemoveAll(filepath.Join(s.DataDir(), "postmaster.pid")), os.RemoveAll(slots)); err != nil {
		return err
	}
	return os.Mkdir(slots, 0o700)
}

// configure writes the settings to a place after postgresql.conf where ALTER SYSTEM still takes precedence.
func (s *Server) configure(o Options) error {
	merged := maps.Clone(defaults)
	merged["unix_socket_directories"], merged["port"] = s.dir, strconv.Itoa(s.port)
	maps.Copy(merged, o.Settings)
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		fmt.Fprintf(&lines, "%s = '%s'\n", name, strings.ReplaceAll(merged[name], "'", "''"))
	}
	conf := filepath.Join(s.DataDir(), "postgresql.conf")
	if err := os.WriteFile(conf, []byte(lines.String()), 0o600); err != nil {
		return err
	}
	if err := s.SetHBA(HBA); err != nil {
		return err
	}
	if o.Standby {
		if err := os.WriteFile(filepath.Join(s.DataDir(), "standby.signal"), nil, 0o600); err != nil {
			return err
		}
	}
	return handOver(s.dir)
}

// template is a folder with a fresh data folder from initdb, and its password.
type template struct {
	dir string
}

func (t template) data() string { return filepath.Join(t.dir, "data") }

func (t template) password() (string, error) {
	b, err := os.ReadFile(filepath.Join(t.dir, "password"))
	return string(b), err
}

// keptTemplate returns the template kept in a folder. It is made there on first use, in a folder next to its
// place that is then renamed, since other processes do the same.
func keptTemplate(ctx context.Context, keep string, inst installation) (template, error) {
	name := fmt.Sprintf("template-%s-%x-%d", inst.version, crc32.ChecksumIEEE([]byte(inst.bin)), serverUID())
	kept := template{dir: filepath.Join(keep, name)}
	if _, err := kept.password(); err == nil {
		return kept, nil
	}
	if err := os.MkdirAll(keep, 0o711); err != nil { //nolint:gosec // the server's uid must get in
		return template{}, err
	}
	made, err := initTemplate(ctx, keep, inst)
	if err != nil {
		return template{}, err
	}
	defer os.RemoveAll(made.dir)
	if err := os.Rename(made.dir, kept.dir); err != nil {
		if _, other := kept.password(); other != nil {
			return template{}, err
		}
	}
	return kept, nil
}

// initTemplate runs initdb in a new folder below parent.
func initTemplate(ctx context.Context, parent string, inst installation) (t template, err error) {
	if t.dir, err = os.MkdirTemp(parent, "initdb-"); err != nil {
		return t, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(t.dir))
		}
	}()
	pwfile := filepath.Join(t.dir, "password")
	if err := os.WriteFile(pwfile, []byte(rand.Text()), 0o600); err != nil {
		return t, err
	}
	if err := handOver(t.dir); err != nil {
		return t, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(inst.bin, "initdb"),
		"-D", t.data(), "-U", superuser, "--pwfile="+pwfile, "-A", "scram-sha-256",
		"-E", "UTF8", "--locale=C", "--no-sync")
	cmd.Dir, cmd.Env = t.dir, serverEnv()
	asServerUser(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return t, fmt.Errorf("initdb of %s: %w: %s", inst.bin, err, bytes.TrimSpace(out))
	}
	return t, nil
}

// serverEnv returns our environment without variables that change how a server or its tools work.
func serverEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PG") && !strings.HasPrefix(kv, "LC_") && !strings.HasPrefix(kv, "LANG") {
			env = append(env, kv)
		}
	}
	return append(env, "LC_ALL=C")
}

// copyData copies a data folder. PostgreSQL requires that only the owner can access it.
func copyData(from, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(from))
}

// tempDir is the process's folder with all its templates and servers. It exists while there is a server, and
// is removed when the process ends.
type tempDir struct {
	mu        sync.Mutex
	servers   int
	folder    *cleanup.Folder
	templates map[string]template // by folder of programs
}

var shared tempDir

// enter registers a server and returns the folder.
func (d *tempDir) enter() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.servers == 0 {
		// A short name, because the path of a socket has at most about a hundred bytes.
		folder, err := cleanup.Open("outbox-cdc-")
		if err != nil {
			return "", err
		}
		d.folder, d.templates = folder, map[string]template{}
	}
	d.servers++
	return d.folder.Dir, nil
}

// leave removes a server from the count. The last one removes the folder.
func (d *tempDir) leave() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.servers--
	if d.servers > 0 {
		return nil
	}
	return d.folder.Close()
}

// template returns the data folder that an installation's servers start from. It is made on first use, in
// root or in the folder that keeps it.
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
