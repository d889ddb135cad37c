package main

import (
	"bufio"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

// The listener on a port is found in the kernel's table. Connections and other ports are ignored.
func TestWhoListens(t *testing.T) {
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	line := func(local, state, uid string) string {
		return "   0: " + local + " 00000000:0000 " + state + " 00000000:00000000 00:00000000 00000000  " + uid + "        0 123 1 0 100 0\n"
	}
	us := strconv.Itoa(os.Geteuid())
	for table, want := range map[string]string{
		head: "",
		head + line("0100007F:23E3", "0A", "4711"):                                             "4711",
		head + line("00000000:23E3", "0A", us) + line("0100007F:23E3", "0A", "4711"):           "4711",
		head + line("00000000000000000000000000000000:23E3", "0A", "4711"):                     "4711",
		head + line("0100007F:23E3", "0A", us) + line("0100007F:23E3", "01", "4711"):           "",
		head + line("0100007F:23E4", "0A", "4711") + line("0100007F:23E3", "0A", "0") + "junk": "",
	} {
		if got := listener(bufio.NewScanner(strings.NewReader(table)), ":23E3"); got != want {
			t.Errorf("%q, want %q:\n%s", got, want, table)
		}
	}
}

// A password is sent to our own user's process on this machine. It is not sent if it is unknown who listens.
func TestWhoIsTrustedWithAPassword(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, err := newProcess(&config.HTTP{Listen: l.Addr().String()}, "")
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"http://" + l.Addr().String(): "", "https://localhost:1": "", "http://elsewhere:1": "", "http://localhost": "nothing tells who",
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.trusted(u); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
