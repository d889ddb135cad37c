package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/internal/localpg/cleanup"
)

// start runs the broker's process, tied to ours.
func (n *Node) start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	log, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	main := n.main
	if main == nil {
		main = []string{"kafka.Kafka", n.props}
	}
	cmd := n.java(main[0], main[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cleanup.Detach(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("running broker %d: %w", n.id, err)
	}
	tied, err := n.tie(cmd.Process.Pid)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return err
	}
	n.cmd, n.done = cmd, make(chan struct{})
	go func(done chan struct{}) {
		_ = cmd.Wait() // how it ended is in its log
		_ = os.RemoveAll(tied)
		close(done)
	}(n.done)
	return nil
}

// tie makes the process end with ours: pid files stand directly below the room.
func (n *Node) tie(pid int) (dir string, err error) {
	f, err := theRoom()
	if err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp(f.Dir, "tied-"); err != nil {
		return "", err
	}
	_, err = cleanup.Tie(dir, pid, "KILL")
	return dir, err
}

// freePorts finds ports that nobody listens on.
func freePorts(n int) ([]int, error) {
	var ports []int
	for len(ports) < n {
		port, err := localpg.FreePort()
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports, nil
}
