package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
)

// supervisor reports the process's state to systemd by sd_notify(3). It sends READY=1 once every stream
// streams, is a standby, or has said why it cannot; STATUS, which `systemctl status` shows; WATCHDOG=1 while
// no driver is stuck; and STOPPING=1. It does nothing if systemd does not wait for it (NOTIFY_SOCKET is not
// set).
type supervisor struct {
	streams []supervised
	// watchdog is WatchdogSec of the unit, or 0.
	watchdog time.Duration
	log      zerolog.Logger

	ready, stopping bool
}

// supervised is one stream as the supervisor sees it.
type supervised struct {
	admin.Stream
	// halted returns the time since the stream's driver last completed a round; 0: no driver runs.
	halted func(now time.Time) time.Duration
}

// How often systemd is told. The first interval is short, because other units may wait for this one.
const (
	tellFirst = 100 * time.Millisecond
	tellEvery = 5 * time.Second
)

// extendStop asks systemd for more time to stop (in microseconds), repeatedly during the drain. drain_timeout
// bounds the drain, so TimeoutStopSec need not be adapted to it.
const extendStop = "EXTEND_TIMEOUT_USEC=20000000"

func newSupervisor(streams []supervised, log zerolog.Logger) (*supervisor, error) {
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("read WATCHDOG_USEC, which systemd sets from WatchdogSec: %w", err)
	}
	return &supervisor{streams: streams, watchdog: watchdog, log: log}, nil
}

// run sends reports until ctx ends, which is after the drain that begins when stop ends. If systemd cannot be
// reached, streaming goes on; systemd will end the process itself.
func (s *supervisor) run(stop, ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	stopped := stop.Done()
	for {
		select {
		case <-ctx.Done():
			if s.stopping || stop.Err() == nil {
				return
			}
			stopped, s.stopping = nil, true // reported even if the stop is over at once
		case <-stopped:
			stopped, s.stopping = nil, true
		case <-timer.C:
		}
		sent, err := daemon.SdNotify(false, s.tell(time.Now()))
		if err != nil {
			s.log.Warn().Err(err).Str("NOTIFY_SOCKET", os.Getenv("NOTIFY_SOCKET")).Msg("could not report to systemd: this process goes on, but systemd may take it for dead")
		}
		if !sent {
			return
		}
		pause := tellEvery
		if !s.ready {
			pause = tellFirst
		}
		if s.watchdog > 0 {
			pause = min(pause, s.watchdog/3) // three times per watchdog interval
		}
		timer.Reset(pause)
	}
}

func (s *supervisor) tell(now time.Time) string {
	var lines []string
	settled := true // every stream works, or has said why it cannot
	for _, stream := range s.streams {
		mode, failing := stream.Status().Mode, stream.Report().Error
		switch {
		case failing != "":
			mode = "does not work: " + strings.ReplaceAll(failing, "\n", " ")
		case mode == "":
			mode, settled = "connecting", false
		}
		lines = append(lines, stream.Name+": "+mode)
	}
	status := strings.Join(lines, "; ")
	var say []string
	switch {
	case s.stopping:
		status = "draining; " + status
		say = append(say, daemon.SdNotifyStopping, extendStop)
	case settled && !s.ready:
		s.ready = true
		say = append(say, daemon.SdNotifyReady)
	}
	say = append(say, "STATUS="+status)
	if s.watchdog > 0 && s.lively(now) {
		say = append(say, daemon.SdNotifyWatchdog)
	}
	return strings.Join(say, "\n")
}

// lively reports whether no driver has been stuck for half of the watchdog's interval. A driver that is stuck
// for long could not be told to stop either.
func (s *supervisor) lively(now time.Time) bool {
	for _, stream := range s.streams {
		if halted := stream.halted(now); halted > s.watchdog/2 {
			s.log.Error().Str("stream", stream.Name).Dur("for", halted).Msg("the stream's driver is stuck: systemd's watchdog will end this process")
			return false
		}
	}
	return true
}
