package main

import (
	"os"
	"runtime"
	"runtime/debug"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

// limitMemory lets the garbage collector run earlier where the process would
// grow beyond what its rows need: they are most of what lives, and the collector
// by itself lets the heap double. An operator's GOMEMLIMIT stands.
func limitMemory(cfg *config.Config) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit(cfg))
	}
}

// memoryLimit is what the process needs, in bytes.
func memoryLimit(cfg *config.Config) int64 {
	const (
		base  = 24 << 20  // the program, its connections and their buffers
		table = 128 << 10 // its statements on each connection, its metrics
	)
	limit := int64(base)
	for _, s := range cfg.Streams {
		limit += int64(s.Memory.Bytes)/4*5 + int64(len(s.Tables)-1)*table
	}
	return limit
}

// limitProcessors gives Go's scheduler one processor for each stream, where the
// machine has more: a stream keeps no more than one busy, and near the tip a
// second one costs wake-ups of threads that find nothing to do. An operator's
// GOMAXPROCS stands. https://pkg.go.dev/runtime#GOMAXPROCS
func limitProcessors(cfg *config.Config) {
	if os.Getenv("GOMAXPROCS") == "" && len(cfg.Streams) < runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(len(cfg.Streams))
	}
}
