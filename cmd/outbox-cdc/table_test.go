package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/preflight"
)

func TestFindingsAreATable(t *testing.T) {
	var out strings.Builder
	printFindings(&out, together([]preflight.Finding{
		{Level: preflight.OK, Check: "slot", Stream: "orders", Subject: "slot a\tb", Found: "it is there"},
		{Level: preflight.Fail, Check: "brokers", Subject: "é", Found: strings.Repeat("word ", 30)},
	}), 0)
	first := strings.TrimSpace(strings.Repeat("word ", 18))
	rest := strings.TrimSpace(strings.Repeat("word ", 12))
	want := []string{
		"      CHECK    STREAM  ABOUT          FOUND",
		`OK    slot     orders  slot a\u0009b  it is there`,
		"FAIL  brokers          é              " + first,
		strings.Repeat(" ", 38) + rest, "",
	}
	if got := strings.Split(out.String(), "\n"); !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", out.String(), strings.Join(want, "\n"))
	}
	out.Reset()
	down := preflight.Finding{Level: preflight.Skip, Check: "slot", Stream: "orders", Found: "could not look: no connection", Unseen: true}
	role := preflight.Finding{Level: preflight.Skip, Check: "role", Stream: "orders", Subject: "app", Found: "shadow streams need none"}
	other := down
	other.Check = "table"
	printFindings(&out, together([]preflight.Finding{down, role, down, other}), 0)
	want = []string{
		"      CHECK     STREAM  ABOUT  FOUND",
		"SKIP  2 checks  orders         could not look: no connection",
		"SKIP  role      orders  app    shadow streams need none", "",
	}
	if got := strings.Split(out.String(), "\n"); !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", out.String(), strings.Join(want, "\n"))
	}
	out.Reset()
	printFindings(&out, together([]preflight.Finding{role, {Level: preflight.Fail, Check: "brokers", Subject: "b", Found: "nobody answers there"}}), 30)
	if got, want := out.String(), "SKIP  role orders app: shadow\n      streams need none\nFAIL  brokers b: nobody\n      answers there\n"; got != want {
		t.Errorf("on a narrow terminal:\n%s\nwant\n%s", got, want)
	}
	if got := wrapped("", 10); !slices.Equal(got, []string{""}) {
		t.Errorf("%q", got)
	}
}
