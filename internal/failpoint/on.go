//go:build failpoints

package failpoint

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// armed are the failpoints in OUTBOX_FAILPOINT. A mistake in it ends the process at once: a test that arms
// nothing would pass.
var armed = func() []*plan {
	plans, err := parse(os.Getenv("OUTBOX_FAILPOINT"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return plans
}()

// plan is what happens at the at-th hit of a place: an error, or a delay, or, with neither, the end of the
// process.
type plan struct {
	name  string
	at    int64
	delay time.Duration
	fail  bool
	hits  atomic.Int64
}

func parse(text string) (plans []*plan, err error) {
	if text == "" {
		return nil, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		p, err := parseOne(one)
		if err != nil {
			return nil, err
		}
		plans = append(plans, p)
	}
	return plans, nil
}

func parseOne(text string) (_ *plan, err error) {
	fields := strings.Split(text, ":")
	p := &plan{name: fields[0], at: 1}
	if !slices.Contains(Names(), p.name) {
		return nil, fmt.Errorf("OUTBOX_FAILPOINT=%s names no failpoint: choose one of %s", text, strings.Join(Names(), ", "))
	}
	if len(fields) > 1 {
		p.at, err = strconv.ParseInt(fields[1], 10, 64)
	}
	if len(fields) > 2 && err == nil {
		if p.fail = fields[2] == "error"; !p.fail {
			p.delay, err = time.ParseDuration(fields[2])
		}
	}
	if err != nil || len(fields) > 3 || p.at < 1 || p.delay < 0 {
		return nil, fmt.Errorf("OUTBOX_FAILPOINT=%s: write NAME:N, NAME:N:DURATION or NAME:N:error", text)
	}
	return p, nil
}

// Here kills or delays the process, or returns an error, if an armed failpoint is due.
func Here(name string) error {
	var due *plan
	for _, p := range armed {
		if p.name == name && p.hits.Add(1) == p.at {
			due = p
		}
	}
	if due == nil {
		return nil
	}
	return due.act()
}

// act returns the error that a connection returns after its other end has reset it.
func (p *plan) act() error {
	fmt.Fprintf(os.Stderr, "failpoint %s, hit %d\n", p.name, p.at)
	switch {
	case p.fail:
		return &net.OpError{Op: "failpoint " + p.name, Net: "tcp", Err: syscall.ECONNRESET}
	case p.delay > 0:
		time.Sleep(p.delay)
		return nil
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // wait for the signal
}
