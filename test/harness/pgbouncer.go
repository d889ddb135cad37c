package harness

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
)

// PgBouncer starts a PgBouncer in front of a database for the role, and gives
// the role's connection string through it. mode is its pool_mode. Where there
// is none, the test is skipped.
func PgBouncer(t testing.TB, db *DB, mode, role, password string) (dsn string) {
	t.Helper()
	program := pgBouncer(t)
	port, err := localpg.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pgbouncer-") // the user nobody cannot enter the room
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ini := fmt.Sprintf(`[databases]
%s = host=127.0.0.1 port=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = scram-sha-256
auth_file = %s
pool_mode = %s
default_pool_size = 20
`, db.Name, db.Server.Port(), port, filepath.Join(dir, "users"), mode)
	users := fmt.Sprintf("%q %q\n", role, password)
	for name, text := range map[string]string{"ini": ini, "users": users} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { // #nosec G306 -- for nobody; a test's secret
			t.Fatal(err)
		}
	}
	cmd := exec.Command(program, filepath.Join(dir, "ini"))
	if os.Geteuid() == 0 { // PgBouncer refuses to run as root
		const nobody = 65534
		if err := os.Chmod(dir, 0o755); err != nil { // #nosec G302 -- for nobody
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	Start(t, cmd)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	Eventually(t, 20*time.Second, func() error {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", role, password, addr, db.Name)
}

// pgBouncer finds the program.
func pgBouncer(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv(EnvPgBouncer) == "required" {
		t.Fatalf("harness: %s=required, but there is no PgBouncer", EnvPgBouncer)
	}
	loud("no PgBouncer: the tests behind a pooler are skipped (Debian's package is pgbouncer)")
	t.Skip("no PgBouncer")
	return ""
}
