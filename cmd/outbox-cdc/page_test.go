package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outbox-cdc/outbox-cdc/internal/compare"
	"github.com/outbox-cdc/outbox-cdc/internal/preflight"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/test/doctable"
	"github.com/outbox-cdc/outbox-cdc/test/stable"
)

var update = flag.Bool("update", false, "write the tables of docs/commands.md and docs/check.md again")

const (
	commandsPage = "../../docs/commands.md"
	checkPage    = "../../docs/check.md"
)

// Every command has its section in docs/commands.md, with the program's usage and flags. -update writes them
// again and adds missing ones.
func TestCommandsPageIsUpToDate(t *testing.T) {
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
		case !*update:
			t.Errorf("docs/commands.md does not say of %s what the program does: make generated", name)
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

// standardOf returns a flag's default, unless the default is one of those that need no mention.
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

// printed is what commands print as JSON, by the page and the section that have its fields.
var printed = []struct {
	page, command string
	of            reflect.Type
}{
	{commandsPage, "status", reflect.TypeFor[status.Report]()},
	{commandsPage, "slots", reflect.TypeFor[slotsReport]()},
	{commandsPage, "slots drop", reflect.TypeFor[droppedSlot]()},
	{commandsPage, "failed list", reflect.TypeFor[listing]()},
	{commandsPage, "failed requeue", reflect.TypeFor[acted]()},
	{commandsPage, "pause", reflect.TypeFor[pauses]()},
	{commandsPage, "sweep", reflect.TypeFor[sweepReport]()},
	{commandsPage, "compare", reflect.TypeFor[compare.Report]()},
	{commandsPage, "destroy", reflect.TypeFor[destroyReport]()},
	{commandsPage, "mapping suggest", reflect.TypeFor[suggestion]()},
	{commandsPage, "preview", reflect.TypeFor[previewed]()},
	{checkPage, "check", reflect.TypeFor[preflight.Report]()},
	{checkPage, "config validate", reflect.TypeFor[againstReport]()},
}

// The tables of JSON fields are made from the structs that are printed and the comments on
// their fields; -update writes them again.
func TestFieldsAreUpToDate(t *testing.T) {
	everything := func(reflect.Type) bool { return true }
	for _, p := range printed {
		table := "\nfield of the JSON | meaning\n---|---\n"
		doctable.Keys(p.of, "json", "", everything, func(path, meaning string, _ reflect.StructField) {
			if meaning == "" {
				t.Errorf("%s: the field %s has no comment", p.command, path)
			}
			table += doctable.Row("`"+path+"`", meaning)
		})
		doctable.Section(t, p.page, "<!-- fields of "+p.command+" -->", "<!-- fields end -->", table+"\n", *update)
	}
}

// A script that works with one release of 1.x works with the next one.
func TestCommandLineIsStable(t *testing.T) {
	var now []string
	for _, c := range everyCommand(rootCommand(streams{out: io.Discard, err: io.Discard})) {
		path := c.CommandPath()
		now = append(now, path)
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { now = append(now, path+" --"+f.Name+" "+f.Value.Type()) })
	}
	for meaning, code := range map[string]int{"done": exitOK, "failed": exitFailure, "usage": exitUsage, "act first": exitPermanent} {
		now = append(now, fmt.Sprintf("exit code %d: %s", code, meaning))
	}
	stable.Compare(t, "commands", now, *update)
}

// A program that reads the JSON of one release of 1.x can read that of the next one.
func TestJSONIsStable(t *testing.T) {
	var now []string
	for _, p := range printed {
		doctable.Keys(p.of, "json", "", func(reflect.Type) bool { return true }, func(path, _ string, f reflect.StructField) {
			now = append(now, p.command+": "+path+": "+stable.TypeName(f.Type))
		})
	}
	stable.Compare(t, "json", now, *update)
}

// Help names the values of flags by words that a reader knows, not by types of Go.
func TestHelpNamesValuesByWords(t *testing.T) {
	types := regexp.MustCompile(`--[a-z-]+ (string|strings|stringArray|duration|int|count|float64)\b`)
	for _, c := range everyCommand(rootCommand(streams{out: io.Discard, err: io.Discard})) {
		if found := types.FindString(c.LocalFlags().FlagUsages()); found != "" {
			t.Errorf("%s: %s", c.CommandPath(), found)
		}
	}
}
