package packages

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

const configuration = "/etc/outbox-cdc/outbox-cdc.yaml"

// installation is a machine with servers to stream between.
type installation struct {
	*machine
	*surroundings
}

// install boots a machine with two versions of the packages in the home of the
// person, whose editor fills in the configuration.
func install(t *testing.T) *installation {
	t.Helper()
	dir, newer := release(t), upgrade(t)
	i := &installation{boot(t), newSurroundings(t)}
	for _, pattern := range []string{dir + "/dist/*.deb", dir + "/dist/*.rpm", newer + "/*.deb", newer + "/*.rpm"} {
		i.put(one(t, pattern))
	}
	i.write("/usr/local/bin/edit", i.editor(), 0o755)
	i.env = append(i.env, "EDITOR=/usr/local/bin/edit", "DATABASE_URL="+i.db.DSN)
	return i
}

// editor is a person at work in both files.
func (i *installation) editor() string {
	return fmt.Sprintf(`#!/bin/sh
exec sed -i \
  -e 's|localhost:9092|%s|' \
  -e 's|postgres://postgres@localhost:5432/orders|%s|' \
  -e 's|^streams:|http: {listen: "127.0.0.1:%d"}\nstreams:|' \
  -e 's|^# DB_PASSWORD=.*|DB_PASSWORD=%s|' "$1"
`, i.kafka.Addrs[0], strings.ReplaceAll(i.dsnWith("${env:DB_PASSWORD}"), "&", `\&`), i.port, i.password())
}

// runs waits until systemd has the service streaming, with a version of the program.
func (i *installation) runs(version string) {
	i.machine.t.Helper()
	harness.Eventually(i.machine.t, patience, func() error {
		if state, status := i.shown("SubState"), i.shown("StatusText"); state != "running" || status != "orders: stream" {
			return fmt.Errorf("the service is %s, and says %q", state, status)
		}
		return nil
	})
	if got := i.root("/proc/" + i.shown("MainPID") + "/exe version"); !strings.HasPrefix(got, "outbox-cdc "+version+" ") {
		i.machine.t.Errorf("what runs is %s", got)
	}
}

// From nothing to streaming with the .deb, word for word, through an upgrade and
// a driver that is stuck, to removal.
func TestDebByThePage(t *testing.T) {
	i := install(t)
	page := blocks(t, ".deb and .rpm, with systemd")
	out := i.follow(strings.Join(page, ""))
	for _, want := range []string{"CREATE PUBLICATION", "INSERT 0 1", "active (running)", "orders: streaming"} {
		if !strings.Contains(out, want) {
			t.Errorf("the page's commands did not show %q:\n%s", want, out)
		}
	}
	i.rows = 1
	i.streams()
	i.runs(version)
	if got := i.root("stat -c '%U:%G %a' " + configuration); got != "root:outbox-cdc 640\n" {
		t.Errorf("after editing: %s", got)
	}
	i.root("systemd-analyze verify --man=yes /usr/lib/systemd/system/outbox-cdc.service")

	before := i.root("cat " + configuration)
	i.follow(strings.ReplaceAll(strings.SplitAfter(page[0], "\n")[0], version, next))
	i.runs(next)
	if after := i.root("cat " + configuration); after != before {
		t.Errorf("the upgrade changed the configuration:\n%s", after)
	}
	i.inserts()

	i.stuck()
	i.refused()

	helper := strings.SplitAfter(page[1], "\n")[0]
	i.follow(helper + strings.Join(blocks(t, "Removing it"), ""))
	i.removed()
	if after := i.root("cat " + configuration); after != before {
		t.Errorf("the removal took the configuration:\n%s", after)
	}
	i.follow("sudo apt purge outbox-cdc")
	i.root("! test -e /etc/outbox-cdc && getent passwd outbox-cdc")
}

// stuck stops the process as a debugger would: systemd's watchdog ends it and
// starts another, which goes on.
func (i *installation) stuck() {
	i.machine.t.Helper()
	i.root(`mkdir -p /etc/systemd/system/outbox-cdc.service.d
printf '[Service]\nWatchdogSec=3s\nTimeoutAbortSec=1s\n' >/etc/systemd/system/outbox-cdc.service.d/test.conf
systemctl daemon-reload
systemctl restart outbox-cdc
kill -STOP $(systemctl show --value --property=MainPID outbox-cdc)`)
	harness.Eventually(i.machine.t, patience, func() error {
		if n := i.shown("NRestarts"); n != "1" {
			return fmt.Errorf("%s restarts of a stuck process", n)
		}
		if state := i.shown("SubState"); state != "running" {
			return fmt.Errorf("the service is %s", state)
		}
		return nil
	})
	if journal := i.root("journalctl --no-pager --unit outbox-cdc"); !strings.Contains(journal, "Watchdog timeout") {
		i.machine.t.Errorf("the journal names no watchdog:\n%s", journal)
	}
	i.inserts()
	i.root("rm -r /etc/systemd/system/outbox-cdc.service.d && systemctl daemon-reload")
}

// refused breaks the configuration: that is not tried again and again.
func (i *installation) refused() {
	i.machine.t.Helper()
	i.root("cp -p " + configuration + " /root/kept && echo 'no such key: 1' >>" + configuration)
	i.root("! systemctl restart outbox-cdc")
	if state, code, restarts := i.shown("ActiveState"), i.shown("ExecMainStatus"), i.shown("NRestarts"); state != "failed" || code != "2" || restarts != "0" {
		i.machine.t.Errorf("with a wrong configuration the service is %s, exit code %s, %s restarts", state, code, restarts)
	}
	i.root("mv /root/kept " + configuration + " && systemctl restart outbox-cdc")
	i.inserts()
}

// removed: no program, no service, nothing of ours in the database.
func (i *installation) removed() {
	i.machine.t.Helper()
	i.root("! test -e /usr/bin/outbox-cdc && ! pgrep -x outbox-cdc")
	if state := i.shown("LoadState"); state != "not-found" {
		i.machine.t.Errorf("systemd has the service as %s", state)
	}
	if n := harness.One[int](i.machine.t, i.db, `SELECT count(*)::int FROM pg_replication_slots WHERE database = current_database()`); n > 0 {
		i.machine.t.Errorf("%d slots are left behind", n)
	}
}

// The .rpm the same way, by rpm itself: Debian has no dnf, and its own packages
// do not count as what an .rpm needs.
func TestRpm(t *testing.T) {
	i := install(t)
	needs(t, "rpm")
	page := blocks(t, ".deb and .rpm, with systemd")
	rpm := func(version string) string {
		return "sudo rpm --upgrade --nodeps ./outbox-cdc-" + version + "-1.*.rpm\n"
	}
	_, rest, _ := strings.Cut(page[0], "\n")
	i.follow(rpm(version) + rest + strings.Join(page[1:], ""))
	i.rows = 1
	i.streams()
	i.runs(version)

	before := i.root("cat " + configuration)
	i.follow(rpm(next))
	i.runs(next)
	if after := i.root("cat " + configuration); after != before {
		t.Errorf("the upgrade changed the configuration:\n%s", after)
	}
	i.inserts()

	helper := strings.SplitAfter(page[1], "\n")[0]
	i.follow(helper + strings.ReplaceAll(strings.Join(blocks(t, "Removing it"), ""), "apt remove", "rpm --erase"))
	i.removed()
	if kept := i.root("cat " + configuration + ".rpmsave"); kept != before {
		t.Errorf("the removal took the configuration:\n%s", kept)
	}
}
