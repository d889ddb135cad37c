package main

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outbox-cdc/outbox-cdc/internal/operator"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

const commandsPage = "../../docs/commands.md"

// Every command has its section in docs/commands.md, with its usage and flags as
// the program has them. UPDATE=1 writes them again and adds what is missing.
func TestCommandsPage(t *testing.T) {
	text, err := os.ReadFile(commandsPage)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^## `outbox-cdc ([a-z -]+)`$").FindAllStringSubmatch(page, -1) {
		documented[m[1]] = true
	}
	for _, c := range everyCommand(rootCommand(streams{out: io.Discard, err: io.Discard})) {
		name := strings.TrimPrefix(c.CommandPath(), "outbox-cdc ")
		begin, end := "<!-- flags of "+name+" -->\n", "<!-- flags end -->\n"
		want := begin + flagTable(c) + end
		switch {
		case strings.Contains(page, want):
		case os.Getenv("UPDATE") == "":
			t.Errorf("docs/commands.md does not say of %s what the program does; run UPDATE=1 go test ./cmd/outbox-cdc -run TestCommandsPage", name)
		case documented[name]:
			before, rest, _ := strings.Cut(page, begin)
			_, after, _ := strings.Cut(rest, end)
			page = before + want + after
		default:
			page += fmt.Sprintf("\n## `outbox-cdc %s`\n\n%s.\n\n%s", name, c.Short, want)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("docs/commands.md has a section on %s, which is no command", name)
	}
	if page != string(text) {
		if err := os.WriteFile(commandsPage, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func everyCommand(c *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, sub := range c.Commands() {
		if sub.Hidden || sub.Name() == "help" || sub.Name() == "completion" {
			continue
		}
		if !sub.HasSubCommands() || sub.HasLocalFlags() {
			all = append(all, sub)
		}
		all = append(all, everyCommand(sub)...)
	}
	return all
}

// sharedFlags are explained once, in the section of that name, by how their help begins.
var sharedFlags = map[string]string{
	"config": "configuration ", "json": "print JSON (", "stream": "only the stream ", "log-format": "", "log-level": "", "yes": "",
	"table": "only the table ", "topic": "only rows ", "key": "only rows ", "id": "only the row ", "since": "only rows ", "until": "only rows ",
	"error": "only rows ", "limit": "at most this many ", "all": "every row", "rows-per-second": "change at most ",
}

func flagTable(c *cobra.Command) string {
	var own, shared []string
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		begin, ok := sharedFlags[f.Name]
		switch {
		case f.Name == "help" || f.Hidden:
		case ok && strings.HasPrefix(f.Usage, begin):
			shared = append(shared, strings.TrimSuffix("`--"+f.Name+"` "+standardOf(f, "info", "auto", "0"), " "))
		default:
			own = append(own, flagRow(f))
		}
	})
	out := fmt.Sprintf("`%s`\n", c.UseLine())
	if len(own) > 0 {
		out += "\n| flag | default | |\n|---|---|---|\n" + strings.Join(own, "")
	}
	if len(shared) > 0 {
		out += "\n[Shared](#shared-flags): " + strings.Join(shared, ", ") + ".\n"
	}
	return out
}

func flagRow(f *pflag.Flag) string {
	value, text := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", strings.TrimSpace(name+" "+value), standardOf(f), strings.ReplaceAll(text, "|", `\|`))
}

// standardOf is a flag's default, unless it is one of those that go without saying.
func standardOf(f *pflag.Flag, without ...string) string {
	if slices.Contains(append(without, "false", "[]"), f.DefValue) {
		return ""
	}
	return f.DefValue
}

// The flags that commands share are all in the section on them.
func TestSharedFlagsAreDocumented(t *testing.T) {
	text, err := os.ReadFile(commandsPage)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Shared flags\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for name := range sharedFlags {
		if !strings.Contains(section, "--"+name) {
			t.Errorf("docs/commands.md, shared flags: no word on --%s", name)
		}
	}
}

// Every field that a command prints as JSON is explained in its section.
func TestJSONFieldsAreDocumented(t *testing.T) {
	text, err := os.ReadFile(commandsPage)
	if err != nil {
		t.Fatal(err)
	}
	for name, printed := range map[string]reflect.Type{
		"status":         reflect.TypeFor[status.Report](),
		"slots":          reflect.TypeFor[slotServer](),
		"failed list":    reflect.TypeFor[listing](),
		"failed show":    reflect.TypeFor[operator.Row](),
		"failed requeue": reflect.TypeFor[acted](),
		"destroy":        reflect.TypeFor[destroyReport](),
		"sweep":          reflect.TypeFor[swept](),
	} {
		_, section, _ := strings.Cut(string(text), "\n## `outbox-cdc "+name+"`\n")
		section, _, _ = strings.Cut(section, "\n## ")
		for _, field := range fieldsOf(printed, map[reflect.Type]bool{}) {
			if !strings.Contains(section, "`"+field+"`") {
				t.Errorf("docs/commands.md, %s: no word on the field `%s`", name, field)
			}
		}
	}
}

// documentedOnce are explained where they are printed first.
var documentedOnce = map[reflect.Type]bool{reflect.TypeFor[time.Time](): true}

func fieldsOf(t reflect.Type, seen map[reflect.Type]bool) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] || documentedOnce[t] {
		return nil
	}
	seen[t] = true
	var names []string
	for f := range t.Fields() {
		if !f.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && f.Anonymous {
			names = append(names, fieldsOf(f.Type, seen)...)
			continue
		}
		names = append(append(names, name), fieldsOf(f.Type, seen)...)
	}
	return names
}
