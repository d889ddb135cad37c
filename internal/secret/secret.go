// Package secret reads a secret from the place that the configuration names: a file, or the output of a
// command. It reads the secret when it is needed, so that the next connection uses a rotated one, and never
// keeps it longer than configured.
package secret

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// MaxBytes is the largest size of a secret, and of a command's output.
const MaxBytes = 64 << 10

// Reader reads a secret as it is now.
type Reader interface {
	Read(ctx context.Context) (string, error)
	// Refused tells the Reader that a server refused the secret. A cached secret is then not returned again.
	Refused()
}

// Source says where a secret is. Exactly one of Value, File and Command is set.
type Source struct {
	Value string
	// File is read each time.
	File string
	// Command is a program and its arguments, run without a shell.
	Command []string
	// Environment names variables that the command gets in addition to the usual ones (see everyCommands).
	Environment []string
	// Timeout bounds the command.
	Timeout time.Duration
	// Cache is how long the command's output is used again.
	Cache time.Duration

	mu   sync.Mutex // one command runs at a time; other callers may use its output
	kept string
	at   time.Time // when kept was read; zero: there is none
}

// Read returns the secret. Errors never contain it.
func (s *Source) Read(ctx context.Context) (string, error) {
	switch {
	case s.File != "":
		data, err := ReadFile(s.File, MaxBytes)
		if err != nil {
			return "", fmt.Errorf("could not read the secret in %s: %w", s.File, withoutPath(err))
		}
		return trimmed(string(data), s.File)
	case len(s.Command) > 0:
		return s.fromCommand(ctx)
	}
	return s.Value, nil
}

// trimmed removes one newline at the end, which editors, commands and secret stores add. Other white space is
// part of the secret.
func trimmed(text, from string) (string, error) {
	text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	if text == "" {
		return "", fmt.Errorf("the secret of %s is empty", from)
	}
	return text, nil
}

// ReadFile reads a regular file of at most limit bytes. It refuses a FIFO or a device, which could be
// endless, without waiting for it.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, errors.New("it is a folder")
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1)) // the file may grow, and files in /proc report size 0
	if err == nil && int64(len(data)) > limit {
		return nil, fmt.Errorf("it has more than %d bytes", limit)
	}
	return data, err
}

func (s *Source) fromCommand(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.at.IsZero() && time.Since(s.at) < s.Cache {
		return s.kept, nil
	}
	text, err := s.run(ctx)
	if err != nil {
		return "", fmt.Errorf("could not get a secret from the command %s: %w", s.Command[0], err)
	}
	if text, err = trimmed(text, "the command "+s.Command[0]); err != nil {
		return "", err
	}
	if s.Cache > 0 {
		s.kept, s.at = text, time.Now()
	}
	return text, nil
}

// Refused implements Reader.
func (s *Source) Refused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept, s.at = "", time.Time{}
}

func (s *Source) run(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	c := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...) // the operator chose the program
	out, complaint := &bounded{most: MaxBytes}, &bounded{most: 1 << 10}
	c.Stdout, c.Stderr, c.Env = out, complaint, environment(s.Environment)
	c.WaitDelay = time.Second // in case a descendant has left the group and keeps the pipe open
	asGroup(c)
	err := c.Run()
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("it took longer than %s, or was interrupted", s.Timeout)
	case err != nil:
		line, _, _ := strings.Cut(strings.TrimSpace(complaint.kept.String()), "\n")
		if line == "" {
			return "", withoutPath(err)
		}
		return "", fmt.Errorf("%w: %.200q", withoutPath(err), line) // in one line that is safe to log
	case out.over:
		return "", fmt.Errorf("it printed more than %d bytes", MaxBytes)
	}
	return out.kept.String(), nil
}

// everyCommands are variables that say where and how a command runs. Every command gets them.
var everyCommands = []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "SYSTEMROOT"}

// environment returns the part of our environment that a command gets. Ours may hold secrets, and other
// processes of the same user can read the command's environment, because the command does not hide it as we
// do.
func environment(further []string) []string {
	own := []string{} // nil would mean the whole environment
	for _, name := range slices.Concat(everyCommands, further) {
		if value, ok := os.LookupEnv(name); ok {
			own = append(own, name+"="+value)
		}
	}
	return own
}

func withoutPath(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// bounded keeps the first bytes that are written to it and discards the rest, so that the writer is not
// blocked.
type bounded struct {
	kept bytes.Buffer
	most int
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := min(len(p), b.most-b.kept.Len())
	b.over = b.over || room < len(p)
	b.kept.Write(p[:room])
	return len(p), nil
}
