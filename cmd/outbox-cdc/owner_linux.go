package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"strings"
)

// strangerAt returns the user who listens on the port of this machine; "" if that is root, our own user, or
// nobody. https://www.kernel.org/doc/html/latest/networking/proc_net_tcp.html
func strangerAt(port string) (string, error) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", err
	}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(table)
		if errors.Is(err, fs.ErrNotExist) { // the kernel has no IPv6
			continue
		} else if err != nil {
			return "", err
		}
		uid := listener(bufio.NewScanner(f), fmt.Sprintf(":%04X", n))
		_ = f.Close()
		if uid == "" {
			continue
		}
		if u, err := user.LookupId(uid); err == nil {
			return u.Username, nil
		}
		return uid, nil
	}
	return "", nil
}

// listener returns the first user that listens on the port and is neither root nor our own user.
func listener(lines *bufio.Scanner, port string) (uid string) {
	const listening = "0A"
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) > 7 && f[3] == listening && strings.HasSuffix(f[1], port) && f[7] != "0" && f[7] != strconv.Itoa(os.Geteuid()) {
			return f[7]
		}
	}
	return ""
}
