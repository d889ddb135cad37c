package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var (
	block  = regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```")
	inline = regexp.MustCompile("(?m)(^#.*$)|`(outbox-cdc [^`\n]+)`") // not in headings, which quote messages
)

// The program understands every command line in the documentation, in a block or in a sentence: the command
// and its flags exist. Pages whose blocks are run as a whole have tests of their own.
func TestCommandLinesOfTheDocs(t *testing.T) {
	lines := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range commandLines(string(text)) {
			lines++
			if err := understood(line); err != nil {
				t.Errorf("%s: %s: %v", page, line, err)
			}
		}
	}
	if lines < 100 {
		t.Errorf("only %d command lines were looked at", lines)
	}
}

func TestWhatIsNotUnderstood(t *testing.T) {
	for _, line := range []string{"outbox-cdc stream", "outbox-cdc failed forget", "outbox-cdc run --for ever", "outbox-cdc replay --limit many"} {
		if understood(line) == nil {
			t.Errorf("%s is understood", line)
		}
	}
}

func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"../../README.md", "../../CONTRIBUTING.md", "../../SECURITY.md"}
	err := filepath.WalkDir("../../docs", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// commandLines returns the command lines in a text. In a block they follow a prompt or begin a line, and end
// at a comment, a pipe or a redirection. In a sentence they stand between backquotes.
func commandLines(text string) []string {
	var found []string
	for _, b := range block.FindAllStringSubmatch(text, -1) {
		if !slices.Contains([]string{"", "sh", "bash", "console"}, b[1]) {
			continue
		}
		for line := range strings.Lines(b[2]) {
			line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
			if strings.HasPrefix(line, "outbox-cdc ") {
				found = append(found, line)
			}
		}
	}
	for _, m := range inline.FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1) {
		if m[2] != "" {
			found = append(found, m[2])
		}
	}
	return found
}

// synopsis matches lines that show how a command is written and that nobody can type.
var synopsis = regexp.MustCompile(`\[.*\||…|COMMAND`)

func understood(line string) error {
	if synopsis.MatchString(line) {
		return nil
	}
	line = strings.NewReplacer(" [flags]", "", "[", "", "]", "").Replace(line) // what may be left out
	line = regexp.MustCompile(` (#|\||>|<|&&|;).*`).ReplaceAllString(line, "")
	words := regexp.MustCompile(`"[^"]*"|'[^']*'|\S+`).FindAllString(line, -1)[1:]
	root := rootCommand(streams{out: io.Discard, err: io.Discard})
	c, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	if c.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return fmt.Errorf("%s has no command %s", c.CommandPath(), rest[0])
	}
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	return parsed(c, rest)
}

// parsed checks the flags' names, and the value of a flag that has one.
func parsed(c *cobra.Command, words []string) error {
	for i, w := range words {
		words[i] = strings.Trim(w, `"'`)
	}
	if n := len(words); n > 0 && strings.HasPrefix(words[n-1], "--") && c.Flags().Lookup(words[n-1][2:]) != nil {
		return nil // the name of a flag alone, without its value
	}
	return c.ParseFlags(words)
}
