package suggest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/sql"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// Each file of testdata/tables is an outbox table that is in use somewhere, as
// facts, with what a person who knows outbox tables makes of it in its second line:
//
//	-- want: refused
//	-- want: profile=debezium
//	-- want: topic=? key=- sent_at=published_at
//
// What is not named must not be proposed, except for id=id and payload=payload. A
// question mark says that only people know: a question must be asked there.
func TestProposals(t *testing.T) {
	files, err := filepath.Glob("testdata/tables/*.sql")
	if err != nil || len(files) < 100 {
		t.Fatal(len(files), err)
	}
	db := harness.Postgres(t)
	conn := db.Conn(t)
	byHand, right, known := 0, 0, map[string]bool{}
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".sql")
		f := made(t, conn, fmt.Sprintf("t%d", i), string(text))
		p := Propose(f, Options{})
		known[p.Known] = true
		wrong := differs(p, wanted(string(text)))
		if p.Refused == "" {
			wrong = append(wrong, unfit(t, f, p)...)
		}
		hand := strings.HasPrefix(name, "hand-")
		if hand {
			byHand++
			if len(wrong) == 0 {
				right++
			}
		}
		for _, w := range wrong {
			t.Errorf("%s: %s", name, w)
		}
	}
	for _, of := range []string{"im2be", "advert-market", "jeap"} {
		ddl, _ := fixture.Original(of)
		ddl = strings.ReplaceAll(shedlock.ReplaceAllString(ddl, ""), "public.", "")
		p := Propose(made(t, conn, strings.ReplaceAll(of, "-", "_"), ddl), Options{})
		if known[p.Known] = true; len(p.Lines) == 0 || p.Lines[0].Value != of {
			t.Errorf("%s: %+v", of, p)
		}
	}
	known[Propose(made(t, conn, "own", sql.NativeTable("own", "outbox")), Options{}).Known] = true
	for _, l := range layouts() {
		if !known[l.Name] {
			t.Errorf("%s has no table in testdata", l.Name)
		}
	}
	t.Logf("%d of %d tables written by hand are right", right, byHand)
}

// shedlock is the table next to some outboxes.
var shedlock = regexp.MustCompile(`CREATE TABLE (?:public\.)?shedlock\s*\([^;]*;`)

// made runs the SQL in a schema of its own and reads the facts of its table.
func made(t *testing.T, conn *pgx.Conn, schema, ddl string) *Facts {
	t.Helper()
	if _, err := conn.Exec(t.Context(), "CREATE SCHEMA "+schema+"; SET search_path = "+schema+", pg_catalog; "+ddl+"; SET search_path = pg_catalog"); err != nil {
		t.Fatalf("%s: %v", ddl, err)
	}
	var table string
	if err := conn.QueryRow(t.Context(), "SELECT relname FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition", schema).Scan(&table); err != nil {
		t.Fatal(err)
	}
	f, err := Read(t.Context(), conn, schema, table, 200)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func wanted(sql string) map[string]string {
	want := map[string]string{}
	_, line, _ := strings.Cut(sql, "-- want: ")
	line, _, _ = strings.Cut(line, "\n")
	for _, word := range strings.Fields(line) {
		key, value, _ := strings.Cut(word, "=")
		want[key] = value
	}
	if _, refused := want["refused"]; !refused && want["profile"] == "" {
		want["id"], want["payload"] = cmp.Or(want["id"], "id"), cmp.Or(want["payload"], "payload")
	}
	return want
}

// judged are the keys of a mapping that are compared, by their names in want.
var judged = map[string]string{
	"profile": "profile", "id": "id", "topic": "topic", "key": "key", "payload": "payload", "created_at": "created", "available_after": "due",
	"status.column": "column", "status.pending": "pending", "status.sent": "sent", "status.failed": "failed", "status.processing": "processing",
	"status.sent_at": "sent_at", "status.failed_at": "failed_at", "status.attempts": "attempts", "status.last_error": "error",
}

func differs(p *Proposal, want map[string]string) (wrong []string) {
	got := map[string]string{}
	if p.Refused != "" {
		got["refused"] = ""
	} else if p.Lines[0].Key != "profile" {
		got["key"] = "-"
	}
	for _, l := range p.Lines {
		if name, ok := judged[l.Key]; ok {
			got[name] = said(l)
		}
		if _, named := want[l.Key]; named && (l.Key == "rows" || l.Key == "order") { // judged where they are named
			got[l.Key] = said(l)
		}
		if l.Key == "published" && said(l) != "status" {
			got["published"] = said(l)
		}
	}
	if want["due"] == "-" {
		delete(want, "due")
	}
	for name, value := range want {
		if got[name] != value {
			wrong = append(wrong, fmt.Sprintf("%s is %q, want %q (refused: %q)", name, got[name], value, p.Refused))
		}
		delete(got, name)
	}
	for name, value := range got {
		wrong = append(wrong, fmt.Sprintf("%s is %q, want none (refused: %q)", name, value, p.Refused))
	}
	slices.Sort(wrong)
	return wrong
}

// said is a line's value in short: the column, the constant, the words.
func said(l Line) string {
	text := strings.Trim(flow(l.Value), `"`)
	switch v := l.Value.(type) {
	case yaml.MapSlice:
		if text = fmt.Sprint(v[0].Value); v[0].Key == "first" || v[0].Key == "object" {
			text = fmt.Sprint(v[0].Key)
		}
	case []string:
		text = strings.Join(v, ",")
	case []any:
		words := make([]string, len(v))
		for i := range v {
			words[i] = strings.Trim(flow(v[i]), `"`)
			if item, ok := v[i].(yaml.MapSlice); ok {
				words[i] = fmt.Sprint(item[0].Value)
			}
			if len(questionsIn(v[i])) > 0 {
				words[i] = "?"
			}
		}
		text = strings.Join(words, ",")
	}
	switch {
	case l.Key == "topic" && len(questionsIn(l.Value)) > 0, l.Ask != "" && l.Value == nil:
		return "?"
	case l.Ask != "":
		return "?" + text
	}
	return text
}

// answered has each candidate in place of its question, and nothing where there is none.
func answered(p *Proposal) *Proposal {
	a := *p
	a.Lines = nil
	for _, l := range p.Lines {
		switch {
		case l.Ask == "" || l.Value != nil:
		case l.Key == "topic":
			l.Value = yaml.MapSlice{{Key: "constant", Value: "t"}}
		case l.Key == "order":
			l.Value = p.Lines[slices.IndexFunc(p.Lines, func(l Line) bool { return l.Key == "id" })].Value
		default:
			continue
		}
		whole := l.Value
		if l.Ask, l.Value = "", without(whole); l.Value != nil || whole == nil {
			a.Lines = append(a.Lines, l)
		}
	}
	return &a
}

// without takes the questions out of a list, and answers those of a map.
func without(value any) any {
	switch v := value.(type) {
	case []any:
		v = slices.DeleteFunc(slices.Clone(v), func(item any) bool { _, is := item.(question); return is })
		if len(v) == 0 {
			return nil
		}
		return v
	case yaml.MapSlice:
		v = slices.Clone(v)
		for i := range v {
			if v[i].Value = without(v[i].Value); len(questionsIn(v[i].Value)) > 0 {
				v[i].Value = "t"
			}
		}
		return v
	}
	return value
}

// unfit pastes the YAML into the example of the README, as people do, and
// compares the mapping with the table's columns.
func unfit(t *testing.T, f *Facts, p *Proposal) (wrong []string) {
	t.Helper()
	example, err := os.ReadFile("../../examples/minimal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	above, _, _ := strings.Cut(string(example), "      - {table:")
	// As it is, each question is told, and nothing else.
	_, err = config.Parse([]byte(above+p.YAML()), "outbox-cdc.yaml", t.TempDir())
	var problems config.Problems
	errors.As(err, &problems)
	open := len(p.Asked())
	if len(problems) != open || open > 20 {
		wrong = append(wrong, fmt.Sprintf("%d questions, and these faults: %v\n%s", open, err, p.YAML()))
	}
	for _, problem := range problems {
		if !strings.HasPrefix(problem.Found, "is still a question: ") {
			wrong = append(wrong, problem.Error())
		}
	}
	file := above + answered(p).YAML()
	cfg, err := config.Parse([]byte(file), "outbox-cdc.yaml", t.TempDir())
	if err != nil {
		return []string{fmt.Sprintf("%v\n%s", err, file)}
	}
	table := cfg.Streams[0].Tables[0].Outbox
	if table.Schema != f.Schema || table.Name != f.Name {
		wrong = append(wrong, "the table's name became "+table.String())
	}
	columns := make([]mapping.Column, len(f.Columns))
	for i, c := range f.Columns {
		columns[i] = mapping.Column{Name: c.Name, OID: c.OID, Enum: c.Enum}
	}
	if err := mapping.Verify(table, columns); err != nil {
		wrong = append(wrong, err.Error()+"\n"+file)
	}
	return wrong
}
