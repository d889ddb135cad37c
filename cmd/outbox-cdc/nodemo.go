//go:build nodemo

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// demoCommand stands for the demo in the program of packages and images, which streams on servers. It starts
// no database and no Kafka, and links no code that would.
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
