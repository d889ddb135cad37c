package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"outbox-cdc": main})
}

// The scripts of testdata/script run the real program.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":      exits,
			"background": background,
			"waitfor":    waitFor,
			"signal":     sendSignal,
			"exited":     exited,
			"taken":      taken,
		},
	})
}

// exits CODE PROGRAM ARG… runs a program that must end with this exit code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// child is a program in the background. Its output can be searched.
type child struct {
	cmd   *exec.Cmd
	mu    sync.Mutex
	print bytes.Buffer
	wrote chan struct{}
	ended chan struct{}
}

func (c *child) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.print.Write(p)
	select {
	case c.wrote <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (c *child) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.print.String()
}

// printed returns an error until the program has printed the text.
func (c *child) printed(text string) error {
	if !bytes.Contains([]byte(c.text()), []byte(text)) {
		return fmt.Errorf("it has not printed %q:\n%s", text, c.text())
	}
	return nil
}

// await waits until the text is printed.
func (c *child) await(t *testing.T, text string) {
	t.Helper()
	for deadline := time.After(patience); c.printed(text) != nil; {
		select {
		case <-c.wrote:
		case <-deadline:
			t.Fatal(c.printed(text))
		}
	}
}

var children sync.Map // script's folder and name → *child

func find(ts *testscript.TestScript, name string) *child {
	c, ok := children.Load(ts.Getenv("WORK") + name)
	if !ok {
		ts.Fatalf("there is no %s in the background", name)
	}
	return c.(*child)
}

// background NAME PROGRAM ARG… starts a program.
func background(ts *testscript.TestScript, _ bool, args []string) {
	path, err := exec.LookPath(args[1])
	for _, dir := range []string{ts.Getenv("PATH")} {
		if err != nil {
			path, err = lookIn(dir, args[1])
		}
	}
	ts.Check(err)
	c := &child{wrote: make(chan struct{}, 1), ended: make(chan struct{})}
	c.cmd = exec.Command(path, args[2:]...) // #nosec G204 -- a test's own program
	c.cmd.Dir = ts.MkAbs(".")
	c.cmd.Env = append(os.Environ(), "PATH="+ts.Getenv("PATH"))
	c.cmd.Stdout, c.cmd.Stderr = c, c
	ts.Check(c.cmd.Start())
	go func() {
		_ = c.cmd.Wait()
		close(c.ended)
	}()
	ts.Defer(func() { _ = c.cmd.Process.Kill() })
	children.Store(ts.Getenv("WORK")+args[0], c)
}

func lookIn(path, name string) (string, error) {
	for _, dir := range regexp.MustCompile(string(os.PathListSeparator)).Split(path, -1) {
		if info, err := os.Stat(dir + "/" + name); err == nil && !info.IsDir() {
			return dir + "/" + name, nil
		}
	}
	return "", fmt.Errorf("%s is not in %s", name, path)
}

const patience = time.Minute

// waitfor NAME PATTERN waits until a program has printed a text that matches.
func waitFor(ts *testscript.TestScript, _ bool, args []string) {
	c, pattern, deadline := find(ts, args[0]), regexp.MustCompile(args[1]), time.After(patience)
	for !pattern.MatchString(c.text()) {
		select {
		case <-c.wrote:
		case <-c.ended:
			if !pattern.MatchString(c.text()) {
				ts.Fatalf("%s ended without %s:\n%s", args[0], args[1], c.text())
			}
		case <-deadline:
			ts.Fatalf("%s has not printed %s:\n%s", args[0], args[1], c.text())
		}
	}
}

// signal NAME TERM|INT sends a signal.
func sendSignal(ts *testscript.TestScript, _ bool, args []string) {
	s := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT}[args[1]]
	ts.Check(find(ts, args[0]).cmd.Process.Signal(s))
}

// exited NAME CODE waits for the program's end. Its output is then in stderr.
func exited(ts *testscript.TestScript, _ bool, args []string) {
	c := find(ts, args[0])
	select {
	case <-c.ended:
	case <-time.After(patience):
		ts.Fatalf("%s has not ended:\n%s", args[0], c.text())
	}
	if code := c.cmd.ProcessState.ExitCode(); strconv.Itoa(code) != args[1] {
		ts.Fatalf("%s: exit code %d, want %s:\n%s", args[0], code, args[1], c.text())
	}
	_, _ = fmt.Fprint(ts.Stderr(), c.text())
}

// taken VARIABLE sets a variable to an address that is in use.
func taken(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	ts.Setenv(args[0], l.Addr().String())
}
