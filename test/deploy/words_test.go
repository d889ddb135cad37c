package deploy

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// unwanted are words that somebody has to look up or read twice, and the ones that
// PostgreSQL's and Kafka's documentation has instead. Words of our own that are
// used are in the glossary of docs/internals/design.md.
var unwanted = map[string]string{
	`mend(s|ed|ing)?`: "fix, hint",
	`anew`:            "again; re-create, restart",
	`heed(s|ed|ing)?`: "follow, respect",
	`whoever`:         "anybody who, the holder, the user",
	`beside`:          "next to, with",
}

// written are the files that people read.
var written = []string{"README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "deploy", "examples"}

// files are those of written that git knows, below the repository's root.
func files(t *testing.T) []string {
	t.Helper()
	return filesIn(t, written...)
}

// filesIn are those of paths and patterns that git knows.
func filesIn(t *testing.T, paths ...string) []string {
	t.Helper()
	out, err := exec.Command("git", append([]string{"-C", root, "ls-files", "--"}, paths...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// What people read has none of these words: the documentation, what is deployed,
// and every text in the program.
func TestWords(t *testing.T) {
	said := program(t)
	for word, instead := range unwanted {
		found := regexp.MustCompile(`(?i)\b(` + word + `)\b`)
		for _, file := range files(t) {
			if strings.HasSuffix(file, ".go") {
				continue
			}
			for n, line := range strings.Split(prose(read(t, root+"/"+file)), "\n") {
				if m := found.FindString(line); m != "" {
					t.Errorf("%s:%d: %q (write: %s)", file, n+1, m, instead)
				}
			}
		}
		for _, text := range said.texts {
			if m := found.FindString(field.ReplaceAllString(text, "")); m != "" {
				t.Errorf("%q: %q (write: %s)", text, m, instead)
			}
		}
	}
}

// prose is a file without the names in backquotes, which may go on in the next line.
func prose(text string) string {
	return code.ReplaceAllStringFunc(text, func(name string) string { return strings.Repeat("\n", strings.Count(name, "\n")) })
}

var (
	code  = regexp.MustCompile("`[^`]*`")
	field = regexp.MustCompile(`json:"[^"]*"`) // of JSON, which keeps its names
)

// longest is how many words a sentence may have on average in a page, and most how many
// words all pages may have: those that people write and read, so neither blocks of code,
// nor what is made by the code, nor targets of links.
const (
	longest = 18
	most    = 34000
)

var (
	madeByCode = regexp.MustCompile(`(?s)<!-- (keys|checks|metrics|(flags|fields) of [a-z -]+|grants|figures)\b.*?<!-- (end of [a-z]+: )?[a-z]+( end)? -->`)
	target     = regexp.MustCompile(`(?ms)\]\([^)]*\)|^\[[^\]]*\]:.*?$|<!--.*?-->`) // of links, and notes for tests
	readable   = regexp.MustCompile(`\S*[\p{L}\p{N}]\S*`)
	unworded   = regexp.MustCompile(`(?m)^(#|\||[^\n]*( \| |---\|---)|\[[a-z0-9-]+\]:).*$`) // headings, tables, targets of links
	sentence   = regexp.MustCompile(`[.!?](\s|$)|\n\s*\n|\n\s*([-*]|\d+\.) `)
)

// Sentences can be understood at first reading, and the pages can be read. -v prints
// how long they are.
func TestPagesAreShort(t *testing.T) {
	total := 0
	for _, file := range files(t) {
		if !strings.HasSuffix(file, ".md") || file == "CHANGELOG.md" {
			continue
		}
		text := madeByCode.ReplaceAllString(read(t, root+"/"+file), "")
		text = fenced.ReplaceAllString(text, "")
		total += len(readable.FindAllString(target.ReplaceAllString(text, ""), -1))
		text = unworded.ReplaceAllString(text, "")
		words, sentences := 0, 0
		for _, s := range sentence.Split(text, -1) {
			if n := len(strings.Fields(s)); n > 1 {
				words, sentences = words+n, sentences+1
			}
		}
		average := float64(words) / float64(max(sentences, 1))
		t.Logf("%-45s %5d words in %4d sentences, %4.1f on average", file, words, sentences, average)
		if average > longest {
			t.Errorf("%s: %.1f words a sentence on average, of at most %d", file, average, longest)
		}
	}
	t.Logf("%d words", total)
	if total > most {
		t.Errorf("the pages have %d words, of at most %d: link instead of repeating", total, most)
	}
}
