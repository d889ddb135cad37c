package secret

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAFileIsReadEachTime(t *testing.T) {
	path := file(t, " first \n")
	s := Source{File: path}
	for _, want := range []string{" first ", "second\n"} {
		if got, err := s.Read(t.Context()); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
		if err := os.WriteFile(path, []byte("second\n\r\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		fifo: "no regular file", "/dev/zero": "no regular file", t.TempDir(): "a folder", "/nowhere": "no such file",
		file(t, strings.Repeat("x", MaxBytes+1)): "more than", file(t, "\n"): "is empty",
	} {
		if _, err := (&Source{File: path}).Read(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func command(script string) *Source {
	return &Source{Command: []string{"/bin/sh", "-c", script}, Timeout: 20 * time.Second}
}

func TestACommandIsAskedAndItsAnswerKept(t *testing.T) {
	count := file(t, "")
	script := "echo x >>" + count + "; wc -l <" + count
	fresh, kept := command(script), command(script)
	kept.Cache = time.Hour
	for i, s := range []*Source{fresh, fresh, kept, kept} {
		got, err := s.Read(t.Context())
		if want := strconv.Itoa(min(i+1, 3)); err != nil || strings.TrimSpace(got) != want {
			t.Errorf("%d: %q, %v; want %s", i, got, err, want)
		}
	}
}

// An answer that a server refused is not used again.
func TestARefusedAnswerIsNotKept(t *testing.T) {
	s := command("cat " + file(t, "x") + "; date +%N")
	s.Cache = time.Hour
	read := func() string {
		text, err := s.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	first, again := read(), read()
	s.Refused()
	if after := read(); first != again || after == first {
		t.Errorf("%s, %s, then %s", first, again, after)
	}
}

func TestCommandsThatFail(t *testing.T) {
	for script, want := range map[string]string{
		"echo hunter2; echo 'no\x1b[2J luck' >&2; echo more >&2; exit 3": `exit status 3: "no\x1b[2J luck"`,
		"true":                          "is empty",
		"yes hunter2 | head -c 9999999": "more than",
	} {
		_, err := command(script).Read(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
	if _, err := (&Source{Command: []string{"/nowhere/at-all"}, Timeout: time.Second}).Read(t.Context()); err == nil || !strings.Contains(err.Error(), "/nowhere/at-all") {
		t.Error(err)
	}
}

// A command that hangs is ended with everything that it started.
func TestACommandEndsAtItsTimeout(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	s := command("sleep 1000 & echo $! >" + pids + "; echo hunter2; wait")
	s.Timeout = 500 * time.Millisecond
	_, err := s.Read(t.Context())
	if err == nil || !strings.Contains(err.Error(), "longer than 500ms") {
		t.Fatal(err)
	}
	text, err := os.ReadFile(pids)
	if err != nil {
		t.Skip("the machine was too slow for the command to begin")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(state), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d still runs: %s", pid, state)
		}
	}
}

func TestExposed(t *testing.T) {
	path := file(t, "x")
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o604: true, 0o644: true, 0o640: os.Geteuid() != 0} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if got := Exposed(path); (got != "") != want {
			t.Errorf("%04o: %q", mode, got)
		}
	}
	for mode, want := range map[os.FileMode]bool{0o755: false, 0o775: false, 0o757: true, 0o777 | os.ModeSticky: false} {
		if err := errors.Join(os.Chmod(path, 0o600), os.Chmod(filepath.Dir(path), mode)); err != nil {
			t.Fatal(err)
		}
		if got := Exposed(path); (got != "") != want {
			t.Errorf("in a folder of %v: %q", mode, got)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(path, 12345, 0); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]string{0o600: "another user", 0o640: "its group"} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if got := Exposed(path); !strings.Contains(got, want) {
			t.Errorf("%04o: %q", mode, got)
		}
	}
}

// A command gets no variable of ours that it does not need.
func TestTheEnvironmentOfACommand(t *testing.T) {
	t.Setenv("OUR_PASSWORD", "hunter2")
	t.Setenv("ITS_REGION", "north")
	t.Setenv("TZ", "UTC")
	s := command("env")
	s.Environment = []string{"ITS_REGION", "NOWHERE"}
	text, err := s.Read(t.Context())
	if err != nil || strings.Contains(text, "hunter2") || strings.Contains(text, "NOWHERE") {
		t.Error(text, err)
	}
	for _, want := range []string{"ITS_REGION=north", "TZ=UTC", "PATH="} {
		if !strings.Contains(text, want) {
			t.Errorf("without %s:\n%s", want, text)
		}
	}
}
