// Package arch keeps the dependency rule of docs/design.md: arrows point down
// only. It looks at what the packages really import.
package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/outbox-cdc/outbox-cdc"

// arrows are the imports that each package may have of the module's own
// packages. A package that is not named here may not exist.
var arrows = map[string][]string{
	// The vocabulary and what is pure: no driver, no clock, no goroutine.
	"outbox":     {},
	"mailbox":    {},
	"sql":        {},
	"failpoint":  {},
	"mapping":    {"outbox"},
	"decoder":    {"outbox", "mapping"},
	"checkpoint": {"outbox"},

	// The edges: each knows the vocabulary and its driver, none knows another.
	"statement":     {"outbox", "mapping", "sql"},
	"replication":   {"outbox", "mailbox", "sql"},
	"sink":          {"failpoint", "outbox", "mailbox"},
	"statusupdater": {"failpoint", "outbox", "mailbox", "mapping", "sql", "statement"},
	"sweeper":       {"outbox", "mailbox", "mapping", "sql", "statement"},
	"parks":         {"outbox", "sql"},
	"shedlock":      {"outbox", "sql"},
	"config":        {"outbox"},
	"compare":       {"outbox", "mapping", "decoder", "statement"},
	"status":        {"outbox"},
	"slots":         {"outbox", "sql"},
	"rows":          {"outbox", "sql", "statement"},
	"survey":        {"outbox", "parks", "replication", "rows", "sql", "statement", "status", "sweeper"},
	"admin":         {"outbox", "metrics", "status"},
	"admin/page":    {"outbox", "rows", "slots", "statement", "status"},
	"metrics":       {"outbox", "status"},
	"tracing":       {"outbox"},
	"loglimit":      {},

	// What looks at a stream's surroundings before it runs.
	"preflight": {"outbox", "mapping", "sql", "statement", "replication", "sweeper", "sink", "shedlock", "status"},

	// One stream's flow, and the program.
	"pipeline":       {"failpoint", "outbox", "mailbox", "mapping", "decoder", "checkpoint", "sql", "replication", "sink", "statusupdater", "sweeper", "parks", "shedlock", "statement", "metrics", "status", "tracing", "loglimit"},
	"cmd/outbox-cdc": {"*"},

	// The demo's surroundings.
	"localpg/leash": {},
	"localpg":       {"localpg/leash"},
	"demo":          {"*"},
}

// pure packages import nothing that does I/O, reads a clock or waits.
var pure = []string{"outbox", "mapping", "decoder", "checkpoint"}

// impure are the standard library's ways out. Package time is allowed for its
// types; that nobody calls time.Now is left to review.
var impure = []string{"net", "os", "os/exec", "database/sql", "log", "math/rand", "math/rand/v2", "net/http", "syscall"}

// testOnly may not be imported by what users run.
var testOnly = []string{"testing", module + "/test/harness", module + "/statement/fixture", "github.com/Shopify/toxiproxy/v2", "go.uber.org/goleak", "pgregory.net/rapid"}

type listed struct {
	ImportPath string
	Imports    []string
	GoFiles    []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,GoFiles", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestArrowsPointDown(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if strings.HasPrefix(name, "test/") || strings.HasSuffix(name, "/fixture") || len(p.GoFiles) == 0 {
			continue
		}
		allowed, known := arrows[name]
		if !known {
			t.Errorf("package %s has no place in the table of arrows", name)
			continue
		}
		for _, imported := range p.Imports {
			other, ours := strings.CutPrefix(imported, module+"/")
			switch {
			case slices.Contains(testOnly, imported):
				t.Errorf("%s imports %s, which is for tests", name, imported)
			case ours && allowed != nil && !slices.Contains(allowed, other) && !slices.Contains(allowed, "*"):
				t.Errorf("%s imports %s: that arrow points up or sideways", name, other)
			}
		}
	}
}

func TestPurePackagesAreIsolated(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if !slices.Contains(pure, name) {
			continue
		}
		for _, imported := range p.Imports {
			switch {
			case slices.Contains(impure, imported):
				t.Errorf("%s is pure and imports %s", name, imported)
			case strings.Contains(imported, ".") && !strings.HasPrefix(imported, module):
				t.Errorf("%s is pure and imports %s", name, imported)
			}
		}
	}
}

// Only the demo and the tests start servers.
func TestServersAreStartedByDemoAndTestsOnly(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, imported := range p.Imports {
			starter := imported == module+"/localpg" || strings.HasPrefix(imported, "github.com/twmb/franz-go/pkg/kfake") ||
				strings.HasPrefix(imported, "github.com/fergusstrange/")
			if starter && name != "demo" && name != "localpg" && !strings.HasPrefix(name, "test/") {
				t.Errorf("%s imports %s", name, imported)
			}
		}
	}
}
