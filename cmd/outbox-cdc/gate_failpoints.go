//go:build failpoints

package main

import (
	"os"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/pipeline"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// The program that tests build delivers exactly once where OUTBOX_TEST_ONCE names the
// journal of all its clusters. No configuration does yet; see docs/exactly-once.md.
func init() {
	journal := os.Getenv("OUTBOX_TEST_ONCE")
	if journal == "" {
		return
	}
	unoffered.stream = func(cfg *pipeline.Config) {
		cfg.Once = &pipeline.Once{Journals: map[string]string{}, MaxRows: max(1, cfg.Core.MaxRows/3), Timeout: 30 * time.Second}
		for cluster := range cfg.Sinks {
			cfg.Once.Journals[cluster] = journal
		}
	}
	unoffered.setup = func(setup *replication.Setup) { setup.Tally = true }
}
