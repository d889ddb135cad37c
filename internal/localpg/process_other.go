//go:build !unix

package localpg

import (
	"errors"
	"os"
	"os/exec"
)

// Private servers work on Unix only. On other systems Start returns an error.

var stopSignals = map[Mode]os.Signal{Smart: os.Kill, Fast: os.Kill, Immediate: os.Kill}

type process struct {
	done chan struct{}
	err  error
}

var errUnsupported = errors.New("private PostgreSQL servers are started on Unix systems only: give a connection string instead")

func (s *Server) spawn() (*process, error) { return nil, errUnsupported }
func (p *process) pid() int                { return 0 }
func (p *process) ended() bool             { return true }
func (p *process) signal(os.Signal) error  { return errUnsupported }
func (p *process) kill()                   {}
func (p *process) end()                    {}
func asServerUser(*exec.Cmd)               {}
func handOver(string) error                { return errUnsupported }
func serverUID() int                       { return 0 }
