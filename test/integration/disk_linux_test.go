package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// The disk under pg_wal fills up under load, so that the server panics and cannot
// come back. When there is room and somebody has started it, the program goes on
// by itself: what was committed is delivered, once, in order.
func TestTheDiskOfTheLogIsFull(t *testing.T) {
	db := harness.PrivatePostgres(t, localpg.Options{Settings: map[string]string{"max_wal_size": "32MB", "min_wal_size": "32MB"}})
	disk := smallDisk(t, db.Server, 80<<20)
	w := newWorld(t, surroundings{db: db, partitions: 2})
	p := w.run().streaming()
	l := steady()
	l.patient = true
	load := w.write(l)
	load.wrote(100, 30*time.Second)
	filler := fill(t, disk)
	w.writeUntilItFails()
	p.Await(30*time.Second, "the replication connection ended")
	load.stop()
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := db.Server.Stop(t.Context(), localpg.Immediate); err != nil {
		t.Logf("it had ended by itself: %v", err)
	}
	if err := db.Server.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.recovered()
	p.streaming()
	if said := loud(p.Said()); len(said) > 6 { // ten and more before, for a server that is away for a second
		t.Errorf("%d lines about one cause:\n%s", len(said), strings.Join(said, "\n"))
	}
	load = w.write(l)
	load.wrote(100, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// smallDisk moves the server's pg_wal to a file system of that many bytes.
func smallDisk(t *testing.T, s *localpg.Server, bytes int) string {
	t.Helper()
	wal := filepath.Join(s.DataDir(), "pg_wal")
	info, err := os.Stat(wal)
	if err != nil {
		t.Fatal(err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatalf("no owner of %s", wal)
	}
	disk, err := os.MkdirTemp("", "outbox-cdc-disk-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(disk) })
	options := fmt.Sprintf("size=%d,mode=0700,uid=%d,gid=%d", bytes, owner.Uid, owner.Gid)
	if err := syscall.Mount("outbox-cdc", disk, "tmpfs", 0, options); err != nil {
		t.Skipf("NOT TRIED: a full disk needs the right to mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		s.Kill()
		_ = syscall.Unmount(disk, syscall.MNT_DETACH) // the server's children are still leaving
	})
	err = s.Stop(t.Context(), localpg.Fast)
	if err == nil {
		err = exec.CommandContext(t.Context(), "cp", "-a", wal+"/.", disk).Run()
	}
	if err = errors.Join(err, os.RemoveAll(wal), os.Symlink(disk, wal)); err == nil {
		err = s.Resume(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return disk
}

// fill leaves no room on a disk, and says which file to remove.
func fill(t *testing.T, disk string) string {
	t.Helper()
	name := filepath.Join(disk, "filler")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for zeros := make([]byte, 64<<10); err == nil; {
		_, err = f.Write(zeros)
	}
	if _ = f.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return name
}

// writeUntilItFails writes log, segment by segment, until the server cannot.
func (w *world) writeUntilItFails() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, w.db.Own())
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for err == nil {
		_, err = conn.Exec(ctx, `SELECT pg_logical_emit_message(true, 'filler', repeat('x', 1000000))`)
	}
	if ctx.Err() != nil {
		w.t.Fatal("the server writes on with its disk full")
	}
	w.t.Logf("the server: %v", err)
}
