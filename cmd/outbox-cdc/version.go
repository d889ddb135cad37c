package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// version is set by the linker for releases: -ldflags "-X main.version=1.2.3".
// Commit and date come from the Go toolchain, which reads them from git.
var version string

// build says what is running: what the linker or else the Go toolchain put in.
func build() (v, commit string) {
	info := buildInfo()
	v = version
	if v == "" {
		v = info.Main.Version
	}
	v = strings.TrimPrefix(v, "v")
	if v == "" || v == "(devel)" {
		v = "devel"
	}
	if commit = setting(info, "vcs.revision"); commit == "" {
		commit = "unknown"
	}
	return v, commit
}

// committed is when the commit that is running was made, or zero.
func committed() time.Time {
	at, err := time.Parse(time.RFC3339, setting(buildInfo(), "vcs.time"))
	if err != nil {
		return time.Time{} // built from no repository
	}
	return at
}

func buildInfo() *debug.BuildInfo {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info
	}
	return &debug.BuildInfo{}
}

func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

func versionCommand(io streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			v, commit := build()
			from := "commit " + commit
			if at := committed(); !at.IsZero() {
				from += " of " + at.UTC().Format(time.RFC3339)
			}
			_, err := fmt.Fprintf(io.out, "outbox-cdc %s (%s, %s, %s/%s)\n", v, from, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
