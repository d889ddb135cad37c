//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// armed is what OUTBOX_FAILPOINT says. A mistake in it ends the process at once:
// a test that arms nothing would pass.
var armed = func() plan {
	p, err := parse(os.Getenv("OUTBOX_FAILPOINT"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return p
}()

// plan is what happens at the hit number at of a place.
type plan struct {
	name  string
	at    int64
	delay time.Duration // 0: the process is killed
}

var hits atomic.Int64

func parse(text string) (p plan, err error) {
	if text == "" {
		return plan{}, nil
	}
	fields := strings.Split(text, ":")
	p = plan{name: fields[0], at: 1}
	if !slices.Contains(Names(), p.name) {
		return plan{}, fmt.Errorf("OUTBOX_FAILPOINT=%s names no failpoint: choose one of %s", text, strings.Join(Names(), ", "))
	}
	if len(fields) > 1 {
		p.at, err = strconv.ParseInt(fields[1], 10, 64)
	}
	if len(fields) > 2 && err == nil {
		p.delay, err = time.ParseDuration(fields[2])
	}
	if err != nil || len(fields) > 3 || p.at < 1 || p.delay < 0 {
		return plan{}, fmt.Errorf("OUTBOX_FAILPOINT=%s: write NAME:N or NAME:N:DURATION", text)
	}
	return p, nil
}

// Hit kills or holds up the process when it is the armed failpoint's turn.
func Hit(name string) {
	if name != armed.name || hits.Add(1) != armed.at {
		return
	}
	if armed.delay > 0 {
		time.Sleep(armed.delay)
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // nothing more happens until the signal is there
}
