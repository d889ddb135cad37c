//go:build nodemo

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// demoCommand is in the packages' and the image's program, which streams on
// servers: it starts no database and no Kafka, and does not link what would.
func demoCommand(streams) *cobra.Command {
	return &cobra.Command{
		Use:                "demo",
		Short:              "Not in this build: the release archives have it",
		Hidden:             true,
		DisableFlagParsing: true,
		Args:               cobra.ArbitraryArgs,
		RunE: func(*cobra.Command, []string) error {
			return &failure{exitPermanent, errors.New("this build has no demo: take a release archive, or run `make demo` in a checkout")}
		},
	}
}
