package harness

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
)

// standbyName is a standby's application_name and the name of its slot.
const standbyName = "standby"

// Pair is a primary and its hot standby.
type Pair struct {
	// Primary and Standby each lead to one server.
	Primary, Standby *DB
	// Either leads to whichever of the two can be written to: both hosts are in
	// its connection string, with target_session_attrs=read-write.
	Either *DB
	// Link is what the standby receives the WAL through.
	Link *Proxy
}

// PrivatePair starts two servers for one test: a primary, and a standby that
// streams from it, asynchronously. Settings are of both.
func PrivatePair(t testing.TB, settings map[string]string) *Pair {
	t.Helper()
	primary := PrivatePostgres(t, localpg.Options{Settings: settings})
	primary.Exec(t, `SELECT pg_create_physical_replication_slot($1, true)`, standbyName)
	link := NewProxy(t, primary.Server.Addr())
	if err := primary.Server.Stop(t.Context(), localpg.Fast); err != nil {
		t.Fatal(err)
	}
	of := map[string]string{
		"primary_conninfo":             conninfo(t, primary, link) + " application_name=" + standbyName,
		"primary_slot_name":            standbyName,
		"hot_standby_feedback":         "on",
		"wal_receiver_status_interval": "1s",
		"wal_retrieve_retry_interval":  "100ms",
	}
	maps.Copy(of, settings)
	server, err := localpg.Start(t.Context(), serverOptions(localpg.Options{CopyOf: primary.Server, Standby: true, Settings: of}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the standby logged:\n%s", lastLines(server.Log(), 40))
		}
		if err := server.Close(); err != nil {
			t.Errorf("closing the standby: %v", err)
		}
	})
	if err := primary.Server.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := &Pair{Primary: primary, Standby: &DB{Server: server, Name: primary.Name, DSN: server.DSN(primary.Name)}, Link: link}
	p.Either = &DB{Server: primary.Server, Name: primary.Name, DSN: eitherDSN(primary, p.Standby)}
	p.CaughtUp(t)
	return p
}

// conninfo is libpq's way to reach a database through a proxy.
func conninfo(t testing.TB, db *DB, through *Proxy) string {
	t.Helper()
	u, err := url.Parse(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	host, port, _ := strings.Cut(through.Addr(), ":")
	return fmt.Sprintf("host=%s port=%s user=%s password=%s dbname=%s", host, port, u.User.Username(), password, db.Name)
}

func eitherDSN(primary, standby *DB) string {
	return strings.Replace(primary.DSN, primary.Server.Addr(), primary.Server.Addr()+","+standby.Server.Addr(), 1) +
		"&target_session_attrs=read-write&connect_timeout=5"
}

// CaughtUp waits until the standby has replayed the WAL that the primary has now.
func (p *Pair) CaughtUp(t testing.TB) {
	t.Helper()
	at := One[string](t, p.Primary, `SELECT pg_current_wal_flush_lsn()::text`)
	Eventually(t, 20*time.Second, func() error {
		there, err := TryOne[bool](t.Context(), p.Standby, `SELECT coalesce(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false)`, at)
		if err == nil && !there {
			err = errors.New("the standby is behind")
		}
		return err
	})
}

// Synchronous makes every commit on the primary wait until the standby has it.
func (p *Pair) Synchronous(t testing.TB) {
	t.Helper()
	p.Primary.Exec(t, `ALTER SYSTEM SET synchronous_standby_names = '`+standbyName+`'`)
	p.Primary.Exec(t, `SELECT pg_reload_conf()`)
	Eventually(t, 20*time.Second, func() error {
		state, err := TryOne[string](t.Context(), p.Primary, `SELECT sync_state FROM pg_stat_replication WHERE application_name = $1`, standbyName)
		if err == nil && state != "sync" {
			err = fmt.Errorf("the standby is %s", state)
		}
		return err
	})
}

// FailOver kills the primary and promotes the standby.
func (p *Pair) FailOver(t testing.TB) {
	t.Helper()
	p.Primary.Server.Kill()
	if !One[bool](t, p.Standby, `SELECT pg_promote(true, 20)`) {
		t.Fatal("harness: the standby was not promoted")
	}
}

// Backup returns a copy of a server's whole data folder, slots included, as a
// snapshot of its file system is. The server must be stopped.
func Backup(t testing.TB, s *localpg.Server) (dir string) {
	t.Helper()
	dir = filepath.Join(roomFor(t, "backup"), "data")
	copyFolder(t, s.DataDir(), dir)
	return dir
}

// Restore puts a Backup in the place of a stopped server's data folder.
func Restore(t testing.TB, s *localpg.Server, backup string) {
	t.Helper()
	replaceFolder(t, backup, s.DataDir())
}

// RestoreSlots puts only a Backup's replication slots in the place of a stopped
// server's.
func RestoreSlots(t testing.TB, s *localpg.Server, backup string) {
	t.Helper()
	replaceFolder(t, filepath.Join(backup, "pg_replslot"), filepath.Join(s.DataDir(), "pg_replslot"))
}

func replaceFolder(t testing.TB, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatalf("harness: restoring %s: %v", to, err)
	}
	copyFolder(t, from, to)
}

// copyFolder copies with owners and modes.
func copyFolder(t testing.TB, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("harness: copying %s: %v: %s", from, err, out)
	}
}

// Accepts reports whether the server accepts a setting, as in SET. From version 19 on, string literals are
// always standard ones.
func (db *DB) Accepts(t testing.TB, setting string) bool {
	t.Helper()
	return db.Major(t) < 19 || setting != "standard_conforming_strings = off" && setting != "escape_string_warning = off"
}

// Major returns the major version of the server.
func (db *DB) Major(t testing.TB) int {
	t.Helper()
	return One[int](t, db, `SELECT current_setting('server_version_num')::int / 10000`)
}
