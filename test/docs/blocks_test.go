package docs

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

const root = "../.."

// block is what a page has between two fences.
type block struct {
	page, heading, lang, text string
	notRun                    string // why not, from the comment above it
}

func (b block) String() string { return b.page + ", " + b.heading + ":\n" + b.text }

// parsed is how the blocks of each language are looked at without a server. What text has is
// output or a drawing.
var parsed = map[string]func(*testing.T, block){
	"sh": shellIsRight, "yaml": yamlIsRight, "json": jsonIsRight, "go": goIsRight,
	"sql":     func(*testing.T, block) {}, // only PostgreSQL can tell
	"mermaid": func(*testing.T, block) {},
	"text":    func(*testing.T, block) {},
}

// elsewhere are the tests that run the blocks of other sections, by the beginning of the page
// and heading.
var elsewhere = map[string]string{
	"CONTRIBUTING.md":                                 "commands of contributors",
	"README.md/outbox-cdc":                            "commands of contributors",
	"docs/compare.md/Side by side":                    "commands of contributors",
	"docs/internals/":                                 "commands of contributors",
	"docs/takeover/":                                  "test/takeover",
	"docs/install.md/From source":                     "test/packages",
	"docs/install.md/Archive (Linux, macOS)":          "test/packages",
	"docs/install.md/.deb and .rpm, with systemd":     "test/packages",
	"docs/install.md/Removing it":                     "test/packages",
	"README.md/On your own database, in five minutes": "TestFiveMinutes",
	"README.md/For the table that you have":           "cmd/outbox-cdc, TestReadmesMinute",
}

var (
	heading = regexp.MustCompile(`^#+ +(.*?) *$`)
	fence   = regexp.MustCompile("^( *)```(.*)$")
	notRun  = regexp.MustCompile(`^ *<!-- not run: (.+) -->$`)
)

// blocks are those of all pages.
func blocks(t *testing.T) (all []block) {
	t.Helper()
	pages := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md"}
	err := fs.WalkDir(os.DirFS(root), "docs", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, blocksOf(t, page, string(text))...)
	}
	return all
}

func blocksOf(t *testing.T, page, text string) (all []block) {
	t.Helper()
	b := block{page: page}
	indent, inside := "", false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		m := fence.FindStringSubmatch(line)
		switch {
		case inside && m != nil:
			all, inside, b.text, b.notRun = append(all, b), false, "", ""
		case inside:
			b.text += strings.TrimPrefix(line, indent) + "\n"
		case m != nil:
			inside, indent, b.lang = true, m[1], m[2]
		case heading.MatchString(line):
			b.heading = heading.FindStringSubmatch(line)[1]
		case notRun.MatchString(line):
			b.notRun = notRun.FindStringSubmatch(line)[1]
		case line != "":
			b.notRun = ""
		}
	}
	if inside {
		t.Errorf("%s: the last block does not end", page)
	}
	return all
}

func TestBlocksAreRight(t *testing.T) {
	t.Setenv("KAFKA_BROKERS", "localhost:9092") // of the takeover pages
	t.Setenv("DATABASE_URL", "postgres://app@localhost/orders")
	seen := map[string]int{}
	for _, b := range blocks(t) {
		look, known := parsed[b.lang]
		if !known {
			t.Errorf("%v\nits language is %q, not one that is known", b, b.lang)
			continue
		}
		seen[b.lang]++
		look(t, b)
	}
	for lang, least := range map[string]int{"sh": 30, "yaml": 20, "sql": 10, "json": 1, "go": 1, "mermaid": 1} {
		if seen[lang] < least {
			t.Errorf("%d blocks in %s: at least %d were expected", seen[lang], lang, least)
		}
	}
}

// The parser sees what a page has.
func TestBlocksOf(t *testing.T) {
	got := blocksOf(t, "p", "# One\n\n```sh\na\n\n# b\n```\n\n## Two\n\n1. x\n\n   <!-- not run: why -->\n   ```sql\n   c\n     d\n   ```\n\nx\n\n```\n```\n")
	want := []block{{"p", "One", "sh", "a\n\n# b\n", ""}, {"p", "Two", "sql", "c\n  d\n", "why"}, {"p", "Two", "", "", ""}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

var makes = regexp.MustCompile(`(?m)^make ([a-z-]+)`)

// shellIsRight leaves command lines of outbox-cdc to TestCommandLinesOfTheDocs.
func shellIsRight(t *testing.T, b block) {
	t.Helper()
	cmd := exec.Command("sh", "-n")
	cmd.Stdin = strings.NewReader(b.text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%v\n%s", b, err, out)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range makes.FindAllStringSubmatch(b.text, -1) {
		if !strings.Contains(string(makefile), "\n"+m[1]+":") {
			t.Errorf("%v\nthere is no make %s", b, m[1])
		}
	}
}

func jsonIsRight(t *testing.T, b block) {
	t.Helper()
	if !json.Valid([]byte(b.text)) {
		t.Errorf("%v\nis not JSON", b)
	}
}

func goIsRight(t *testing.T, b block) {
	t.Helper()
	if _, err := parser.ParseFile(token.NewFileSet(), b.page, "package p\n"+b.text, parser.SkipObjectResolution); err != nil {
		t.Errorf("%v\n%v", b, err)
	}
}

// yamlIsRight looks whether the program takes it. What is marked is for another program.
func yamlIsRight(t *testing.T, b block) {
	t.Helper()
	var part map[string]any
	if err := yaml.Unmarshal([]byte(b.text), &part); err != nil {
		t.Errorf("%v\n%v", b, err)
		return
	}
	if b.notRun != "" {
		return
	}
	whole, err := yaml.Marshal(completed(part))
	if err != nil {
		t.Fatal(err)
	}
	// Files of the reader's are there, empty.
	folder := t.TempDir()
	text := certificate.ReplaceAllString(string(whole), "")
	text = file.ReplaceAllStringFunc(text, func(s string) string {
		key, path, _ := strings.Cut(s, ": ")
		path = filepath.Join(folder, filepath.Base(path))
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return key + ": " + path
	})
	if _, err := config.Parse([]byte(text), b.page, folder); err != nil {
		t.Errorf("%v\n%v\nas:\n%s", b, err, text)
	}
}

var (
	certificate = regexp.MustCompile(`&sslrootcert=[^"&\s]+`)
	file        = regexp.MustCompile(`\b(ca|cert|key)_file: \S+`)
)

// completed is a configuration with a part of one: of the file, a stream or a table.
func completed(part map[string]any) map[string]any {
	table := map[string]any{"table": "public.outbox", "profile": "native"}
	stream := map[string]any{"name": "orders", "postgres": map[string]any{"dsn": "postgres://localhost/orders"}, "tables": []any{table}}
	whole := map[string]any{
		"kafka":   map[string]any{"clusters": map[string]any{"main": map[string]any{"brokers": []string{"localhost:9092"}}}},
		"streams": []any{stream},
	}
	into := table
	for key := range part {
		switch {
		case hasKey(reflect.TypeFor[config.Config](), key):
			into = whole
		case hasKey(reflect.TypeFor[config.Stream](), key):
			into = stream
		}
	}
	for key, value := range part {
		into[key] = value
	}
	return whole
}

func hasKey(of reflect.Type, key string) bool {
	for f := range of.Fields() {
		if f.Tag.Get("yaml") == key {
			return true
		}
	}
	return false
}
