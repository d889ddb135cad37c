package main

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/config"
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
