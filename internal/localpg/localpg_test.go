//go:build unix

package localpg

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// asChild makes the test binary start a server, say where it is, and wait to
// be killed.
const asChild = "LOCALPG_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(asChild) != "" {
		s, err := Start(context.Background(), Options{})
		if err != nil {
			panic(err)
		}
		pid := s.running.cmd.Process.Pid
		_, _ = os.Stdout.WriteString(strconv.Itoa(pid) + " " + shared.folder.Dir + "\n")
		select {}
	}
	os.Exit(m.Run())
}

func start(t *testing.T, o Options) *Server {
	t.Helper()
	if o.TemplateDir == "" { // initdb takes most of the time
		dir, err := CacheDir()
		if err != nil {
			t.Fatal(err)
		}
		o.TemplateDir = dir
	}
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func query(t *testing.T, s *Server, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var out string
	if err := conn.QueryRow(t.Context(), sql).Scan(&out); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return out
}

func TestServerIsReadyForLogicalDecoding(t *testing.T) {
	s := start(t, Options{Settings: map[string]string{"work_mem": "7MB", "log_line_prefix": "it's "}})
	if got := query(t, s, "select current_setting('wal_level')"); got != "logical" {
		t.Errorf("wal_level is %s", got)
	}
	if got := query(t, s, "select current_setting('work_mem')"); got != "7MB" {
		t.Errorf("work_mem is %s", got)
	}
	if got := query(t, s, "select current_setting('server_version')"); !strings.HasPrefix(got, s.Version()) {
		t.Errorf("the server says %s, Version says %s", got, s.Version())
	}
}

func TestDataOutlivesRestartsAndKills(t *testing.T) {
	s := start(t, Options{})
	for name, stop := range map[string]func() error{
		"fast":      func() error { return s.Stop(t.Context(), Fast) },
		"immediate": func() error { return s.Stop(t.Context(), Immediate) },
		"kill":      func() error { s.Kill(); return nil },
	} {
		marker := query(t, s, "select pg_create_restore_point('"+name+"')::text")
		if err := stop(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := s.Resume(t.Context()); err != nil {
			t.Fatalf("after %s: %v", name, err)
		}
		if now := query(t, s, "select pg_current_wal_lsn()::text"); now == marker {
			t.Errorf("after %s the WAL stands still at %s", name, now)
		}
	}
	if err := s.Resume(t.Context()); err == nil {
		t.Error("a running server was started again")
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	s := start(t, Options{})
	dir, pid := shared.folder.Dir, s.running.cmd.Process.Pid
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there", dir)
	}
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("process %d still runs", pid)
	}
}

func TestKilledOwnerLeavesNothing(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(exe)
	child.Env = append(os.Environ(), asChild+"=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(line)
	pid, _ := strconv.Atoi(fields[0])
	_ = child.Process.Kill()
	_ = child.Wait()
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, statErr := os.Stat(fields[1])
		if os.IsNotExist(statErr) && syscall.Kill(pid, 0) != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind: process %d (%v), folder %s (%v)", pid, syscall.Kill(pid, 0), fields[1], statErr)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestPasswordIsAskedOverTCP(t *testing.T) {
	s := start(t, Options{})
	_, err := pgx.Connect(t.Context(), s.DSNAs("postgres", "postgres", "wrong"))
	if err == nil || !strings.Contains(err.Error(), "28P01") {
		t.Errorf("a wrong password gave %v", err)
	}
}

func TestGivenFolderIsKeptAndUsedAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("starts two servers")
	}
	dir, err := os.MkdirTemp("", "localpg-kept-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	first := start(t, Options{Dir: dir})
	id := query(t, first, "select system_identifier::text from pg_control_system()")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again := start(t, Options{Dir: dir})
	if got := query(t, again, "select system_identifier::text from pg_control_system()"); got != id {
		t.Errorf("another cluster: %s, was %s", got, id)
	}
}

func TestStandbyFollows(t *testing.T) {
	if testing.Short() {
		t.Skip("starts two servers")
	}
	primary := start(t, Options{})
	if err := primary.Stop(t.Context(), Fast); err != nil {
		t.Fatal(err)
	}
	standby := start(t, Options{CopyOf: primary, Standby: true, Settings: map[string]string{
		"primary_conninfo": primary.DSN("postgres"),
	}})
	if err := primary.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := query(t, standby, "select pg_is_in_recovery()::text"); got != "true" {
		t.Errorf("pg_is_in_recovery is %s", got)
	}
}

func TestTemplateIsKept(t *testing.T) {
	if testing.Short() {
		t.Skip("runs initdb")
	}
	keep, err := os.MkdirTemp("", "localpg-templates-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(keep)
	if err := os.Chmod(keep, 0o711); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s := start(t, Options{TemplateDir: keep})
		query(t, s, "select 'works'")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if kept, _ := filepath.Glob(keep + "/*"); len(kept) != 1 {
		t.Errorf("kept: %v", kept)
	}
}

func TestUnknownVersionIsRefused(t *testing.T) {
	for _, v := range []string{"9", "abc", "99"} {
		if _, err := Start(t.Context(), Options{Version: v}); err == nil {
			t.Errorf("version %q was accepted", v)
		}
	}
}

func TestNewestInstallationWins(t *testing.T) {
	all := []installation{{major: 13}, {major: 15}, {major: 17}, {major: 16}}
	if got, ok := newest(all, 0); !ok || got.major != 17 {
		t.Errorf("newest of all is %v", got)
	}
	if got, ok := newest(all, 15); !ok || got.major != 15 {
		t.Errorf("newest of 15 is %v", got)
	}
	if _, ok := newest(all, 13); ok {
		t.Error("13 is too old")
	}
}

func TestFetchedServer(t *testing.T) {
	if testing.Short() {
		t.Skip("fetches 15 MB on first use")
	}
	cache, err := CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, Options{Version: "17.11.0"})
	if got := query(t, s, "select current_setting('server_version')"); got != "17.11" {
		t.Errorf("the server is %s", got)
	}
	left, _ := filepath.Glob(filepath.Join(cache, "unpacking-*"))
	if len(left) > 0 {
		t.Errorf("left in the cache: %v", left)
	}
}
