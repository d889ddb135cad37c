package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// version is set by the linker for releases: -ldflags "-X main.version=1.2.3". Commit and date come from the
// Go toolchain, which reads them from git.
var version string

// build returns version and commit of the running program: those that the linker set, or else those of the Go
// toolchain.
func build() (v, commit string) {
	v = strings.TrimPrefix(cmp.Or(version, buildInfo().Main.Version), "v")
	if v == "" || v == "(devel)" {
		v = "devel"
	}
	return v, cmp.Or(setting("vcs.revision"), "unknown")
}

// committed returns the time of the program's commit; zero: it was not built from a repository.
func committed() time.Time {
	at, _ := time.Parse(time.RFC3339, setting("vcs.time"))
	return at
}

func buildInfo() *debug.BuildInfo {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info
	}
	return &debug.BuildInfo{}
}

func setting(key string) string {
	for _, s := range buildInfo().Settings {
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
