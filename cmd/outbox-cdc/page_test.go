package main

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
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

func flagTable(c *cobra.Command) string {
	var out strings.Builder
	fmt.Fprintf(&out, "`%s`\n", c.UseLine())
	head := "\n| flag | default | |\n|---|---|---|\n"
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden {
			return
		}
		value, text := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		standard := f.DefValue
		if standard == "false" || standard == "[]" {
			standard = ""
		}
		fmt.Fprintf(&out, "%s| `%s` | %s | %s |\n", head, strings.TrimSpace(name+" "+value), standard, strings.ReplaceAll(text, "|", `\|`))
		head = ""
	})
	return out.String()
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
