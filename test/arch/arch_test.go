// Package arch keeps the dependency rule of docs/internals/design.md: arrows point down
// only. It looks at what the packages really import.
package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/outbox-cdc/outbox-cdc"

// arrows are the imports that each package may have of the module's own
// packages. A package that is not named here may not exist.
var arrows = map[string][]string{
	// The vocabulary and what is pure: no driver, no clock, no goroutine.
	"internal/outbox":      {},
	"internal/mailbox":     {},
	"internal/wait":        {},
	"sql":                  {},
	"internal/failpoint":   {},
	"internal/postgres":    {"sql", "internal/secret"},
	"internal/charset":     {},
	"internal/platform":    {},
	"internal/mapping":     {"internal/outbox", "internal/charset", "sql"},
	"decoder":              {"internal/outbox", "internal/mapping", "internal/charset"},
	"checkpoint":           {"internal/outbox"},
	"internal/exactlyonce": {"internal/outbox"},

	// The edges: each knows the vocabulary and its driver, none knows another.
	"internal/tablesql":   {"internal/outbox", "internal/charset", "internal/postgres", "internal/mapping", "sql"},
	"replication":         {"internal/wait", "internal/secret", "internal/outbox", "internal/platform", "internal/charset", "internal/postgres", "internal/mailbox", "sql"},
	"sink":                {"internal/wait", "internal/secret", "internal/transport", "internal/failpoint", "internal/outbox", "internal/mailbox", "internal/exactlyonce"},
	"internal/journal":    {"sink"},
	"statusupdater":       {"internal/wait", "internal/loglimit", "internal/failpoint", "internal/outbox", "internal/postgres", "internal/mailbox", "internal/mapping", "internal/exactlyonce", "sql", "internal/tablesql"},
	"internal/sweeper":    {"internal/outbox", "internal/postgres", "internal/mailbox", "internal/mapping", "sql", "internal/tablesql"},
	"internal/statestore": {"internal/outbox", "internal/charset", "internal/exactlyonce", "internal/postgres", "internal/tablesql", "sql"},
	"internal/shedlock":   {"internal/wait", "internal/outbox", "internal/postgres", "sql"},
	"internal/config":     {"internal/outbox", "internal/postgres", "internal/secret", "internal/transport"},
	"internal/secret":     {},
	"internal/transport":  {},
	"internal/compare":    {"sql", "internal/outbox", "internal/charset", "internal/postgres", "internal/mapping", "decoder", "internal/tablesql", "replication", "sink"},
	"internal/status":     {"internal/outbox"},
	"internal/slots":      {"internal/outbox", "internal/postgres", "sql"},
	"internal/operator":   {"internal/wait", "internal/outbox", "internal/postgres", "internal/mapping", "sql", "internal/tablesql"},
	"internal/survey":     {"internal/outbox", "internal/postgres", "internal/statestore", "replication", "sql", "internal/status", "internal/sweeper", "internal/tablesql"},
	"internal/admin":      {"internal/outbox", "internal/metrics", "internal/status", "internal/transport"},
	"internal/admin/page": {"internal/outbox", "internal/operator", "internal/slots", "internal/tablesql", "internal/status"},
	"internal/metrics":    {"internal/outbox", "internal/status"},
	"internal/tracing":    {"internal/outbox", "internal/transport"},
	"internal/loglimit":   {},

	// What looks at a stream's surroundings before it runs.
	"internal/preflight": {"internal/outbox", "internal/platform", "internal/secret", "internal/charset", "internal/statestore", "internal/postgres", "internal/mapping", "sql", "internal/tablesql", "replication", "sink", "internal/journal", "internal/shedlock", "internal/status", "internal/transport"},

	// What looks at a table before there is a configuration.
	"internal/suggest": {"internal/config", "internal/tablesql", "sql"},

	// One stream's flow, and the program.
	"internal/pipeline": {"internal/wait", "internal/secret", "internal/failpoint", "internal/outbox", "internal/postgres", "internal/mailbox", "internal/mapping", "decoder", "checkpoint", "internal/exactlyonce", "sql", "replication", "sink", "statusupdater", "internal/sweeper", "internal/statestore", "internal/shedlock", "internal/tablesql", "internal/metrics", "internal/status", "internal/survey", "internal/tracing", "internal/loglimit"},
	"cmd/outbox-cdc":    {"*"},

	// The demo's surroundings.
	"internal/localpg/cleanup": {},
	"internal/localpg":         {"internal/localpg/cleanup", "internal/wait"},
	"internal/demo":            {"*"},
}

// pure packages import nothing that does I/O, reads a clock or waits.
var pure = []string{"internal/outbox", "internal/charset", "internal/platform", "internal/mapping", "decoder", "checkpoint", "internal/exactlyonce"}

// parsing is what pure packages may import of others: pglogrepl reads bytes, and of
// what it does on a connection they can use nothing, since they have none.
var parsing = []string{"github.com/jackc/pglogrepl"}

// impure are the standard library's ways out. Package time is allowed for its
// types; that nobody calls time.Now is left to review.
var impure = []string{"net", "os", "os/exec", "database/sql", "log", "math/rand", "math/rand/v2", "net/http", "syscall"}

// testOnly may not be imported by what users run.
var testOnly = []string{"testing", module + "/test/harness", module + "/test/fixture", "github.com/Shopify/toxiproxy/v2", "go.uber.org/goleak", "pgregory.net/rapid"}

type listed struct {
	ImportPath string
	Dir        string
	Imports    []string
	GoFiles    []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,Imports,GoFiles", module+"/...")
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
		if !strings.HasPrefix(p.ImportPath, module+"/examples/") { // other people's programs
			all = append(all, p)
		}
	}
}

// top is what the repository shows first: the packages of a row's way, and next to
// them internal/ for every other package.
var top = []string{"cmd", "replication", "decoder", "sink", "checkpoint", "statusupdater", "sql", "test", "internal", "docs", "deploy", "examples", "findings"}

func TestTheTopLevelIsTheOneInDesign(t *testing.T) {
	// What git has: build output is nobody's layout.
	out, err := exec.Command("git", "-C", "../..", "ls-tree", "-d", "--name-only", "HEAD").Output()
	if err != nil {
		t.Skip("not a git checkout:", err)
	}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		if !slices.Contains(top, name) && !strings.HasPrefix(name, ".") {
			t.Errorf("folder %s at the top: packages that others need not see first belong in internal/", name)
		}
	}
}

func TestArrowsPointDown(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if strings.HasPrefix(name, "test/") || len(p.GoFiles) == 0 {
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
			case strings.Contains(imported, ".") && !strings.HasPrefix(imported, module) && !slices.Contains(parsing, imported):
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
			starter := imported == module+"/internal/localpg" || strings.HasPrefix(imported, "github.com/twmb/franz-go/pkg/kfake") ||
				strings.HasPrefix(imported, "github.com/fergusstrange/")
			if starter && name != "internal/demo" && name != "internal/localpg" && !strings.HasPrefix(name, "test/") {
				t.Errorf("%s imports %s", name, imported)
			}
		}
	}
}

// Package sink alone speaks to Kafka, so that another library changes nothing elsewhere.
func TestOnlySinkKnowsSarama(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if name != "sink" && !strings.HasPrefix(name, "test/") && slices.Contains(p.Imports, "github.com/IBM/sarama") {
			t.Errorf("%s imports sarama: ask by a sink.Broker, or read by a sink.Reader", name)
		}
	}
	api, err := exec.Command("go", "doc", "-all", module+"/sink").Output()
	if err != nil || !strings.Contains(string(api), "type Broker struct") {
		t.Fatalf("go doc: %v\n%s", err, api)
	}
	for _, found := range regexp.MustCompile(`.*\bsarama\.[A-Z].*`).FindAllString(string(api), -1) {
		t.Errorf("what package sink exports has a type of sarama's: %s", strings.TrimSpace(found))
	}
}

// unlinked is what the packages' program must not contain: servers, their
// clients, and what makes documents.
var unlinked = []string{"github.com/fergusstrange/", "github.com/lib/pq", "github.com/twmb/franz-go", "github.com/cpuguy83/go-md2man", "github.com/russross/blackfriday", "github.com/invopop/jsonschema", "go.yaml.in/yaml"}

func TestTheServersProgramLinksNoDemo(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-tags", "nodemo", module+"/cmd/outbox-cdc").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for imported := range strings.Lines(string(out)) {
		for _, prefix := range unlinked {
			if strings.HasPrefix(imported, prefix) {
				t.Errorf("built with nodemo, the program links %s", strings.TrimSpace(imported))
			}
		}
	}
}

// Everything that connects to PostgreSQL does so by package postgres, which sets the
// session up before anything else is run; and statements go by package tablesql,
// postgres.On or postgres.Exec, which set up a transaction where the session is
// a pooler's. The demo's own application runs its statements itself.
var (
	connecting = regexp.MustCompile(`\b(pgx|pgconn|pgxpool|stdlib)\.(Connect\w*|New\w*|Parse(Config|DSN)\w*|Open\w*)\(`)
	returning  = regexp.MustCompile(`\.(Release\(\)|AcquireFunc\()`)
	running    = regexp.MustCompile(`\b(\w*[pP]ool|\w*[cC]onn|Conn\(\)|pg|tx)\.(Query|QueryRow|Exec|ExecParams|ExecPrepared|SendBatch|CopyFrom|Begin\w*)\(`)
)

func TestOneWayToPostgres(t *testing.T) {
	outsidePostgres(t, func(name, file, text string) {
		if found := connecting.FindString(text); found != "" {
			t.Errorf("%s/%s calls %s): connect by package postgres, which sets sessions up", name, file, found)
		}
		if found := returning.FindString(text); found != "" {
			t.Errorf("%s/%s calls %s: give connections back by postgres.Release or postgres.Acquire, which clean sessions", name, file, strings.TrimPrefix(found, "."))
		}
		if found := running.FindString(text); found != "" && name != "internal/demo" {
			t.Errorf("%s/%s calls %s): run statements by postgres.On or postgres.Exec, which set the transaction up", name, file, found)
		}
	})
}

// parsesErrors may name the driver's type of a server's error: it reads the server's messages
// itself, past the driver.
const parsesErrors = "replication/stream.go"

func TestOneReaderOfServerErrors(t *testing.T) {
	outsidePostgres(t, func(name, file, text string) {
		if name+"/"+file != parsesErrors && strings.Contains(text, "pgconn.PgError") {
			t.Errorf("%s/%s names pgconn.PgError: ask by postgres.HasCode, postgres.Code or postgres.ServerError", name, file)
		}
	})
}

// outsidePostgres gives the text of each file of the program but for package postgres.
func outsidePostgres(t *testing.T, each func(name, file, text string)) {
	t.Helper()
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if strings.HasPrefix(name, "test/") || name == "internal/postgres" {
			continue
		}
		for _, file := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			each(name, file, string(text))
		}
	}
}
