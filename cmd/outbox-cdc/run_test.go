package main

import (
	"runtime"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

func TestTheMemoryLimitGrowsWithStreamsAndTables(t *testing.T) {
	stream := func(bytes config.Bytes, tables int) *config.Stream {
		return &config.Stream{Memory: config.Memory{Bytes: bytes}, Tables: make([]*config.Table, tables)}
	}
	const mib = 1 << 20
	for _, c := range []struct {
		streams []*config.Stream
		want    int64
	}{
		{[]*config.Stream{stream(8*mib, 1)}, 34 * mib},
		{[]*config.Stream{stream(8*mib, 1), stream(16*mib, 1)}, 54 * mib},
		{[]*config.Stream{stream(8*mib, 49)}, 40 * mib},
	} {
		if got := memoryLimit(&config.Config{Streams: c.streams}); got != c.want {
			t.Errorf("%d streams, the first with %d tables: %d bytes, want %d", len(c.streams), len(c.streams[0].Tables), got, c.want)
		}
	}
}

func TestAProcessorForEachStreamUnlessTheOperatorSaysOtherwise(t *testing.T) {
	before := runtime.GOMAXPROCS(2)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	one, three := make([]*config.Stream, 1), make([]*config.Stream, 3)
	for _, c := range []struct {
		operator string
		streams  []*config.Stream
		want     int
	}{{"2", one, 2}, {"", three, 2}, {"", one, 1}} {
		t.Setenv("GOMAXPROCS", c.operator)
		limitProcessors(&config.Config{Streams: c.streams})
		if got := runtime.GOMAXPROCS(0); got != c.want {
			t.Errorf("GOMAXPROCS=%q, %d streams: %d processors, want %d", c.operator, len(c.streams), got, c.want)
		}
	}
}

// docs/operations.md says how many there are.
func TestTheConnectionsOfAStream(t *testing.T) {
	for name, c := range map[string]struct {
		mapping outbox.Mapping
		more    int
	}{
		"plain":     {outbox.Mapping{}, 0},
		"retention": {outbox.Mapping{Published: outbox.PublishedStatus, Retention: 1}, 1},
		"lock":      {outbox.Mapping{ShedLock: outbox.ShedLock{Name: "l"}}, 1},
		"claim":     {outbox.Mapping{Claim: outbox.ClaimRowLock}, 4},
	} {
		s := &config.Stream{Mark: config.Mark{Connections: 7}, Tables: []*config.Table{{Outbox: &outbox.Table{}}, {Outbox: &outbox.Table{Mapping: c.mapping}}}}
		if got := poolConnections(s); got != 7+4+c.more {
			t.Errorf("%s: %d", name, got)
		}
	}
}
