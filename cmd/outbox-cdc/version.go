package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version and commit are set by the linker for releases:
// -ldflags "-X main.version=1.2.3 -X main.commit=abc".
var version, commit string

// build says what is running: what the linker or else the Go toolchain put in.
func build() (v, c string) {
	v, c = version, commit
	info, ok := debug.ReadBuildInfo()
	if ok && v == "" {
		v = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && c == "" {
			c = s.Value
		}
	}
	if v == "" || v == "(devel)" {
		v = "devel"
	}
	if c == "" {
		c = "unknown"
	}
	return v, c
}

func versionCommand(io streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			v, c := build()
			_, err := fmt.Fprintf(io.out, "outbox-cdc %s (commit %s, %s, %s/%s)\n", v, c, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
