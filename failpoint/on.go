//go:build failpoints

package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// armed is OUTBOX_FAILPOINT=NAME:N: at the Nth hit of NAME the process kills
// itself with SIGKILL.
var armed, at = parse(os.Getenv("OUTBOX_FAILPOINT"))

var hits atomic.Int64

func parse(text string) (string, int64) {
	name, count, _ := strings.Cut(text, ":")
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		n = 1
	}
	return name, n
}

// Hit kills the process when it is the armed failpoint's turn.
func Hit(name string) {
	if name == armed && hits.Add(1) == at {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // nothing more happens until the signal is there
	}
}
