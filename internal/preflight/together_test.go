package preflight

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// One statement asks about many tables. The facts about each table are the same as if it were asked for
// alone, even if one table is locked, missing or not a table, and if that statement gets no answer.
func TestTablesAreAskedForTogether(t *testing.T) {
	w := made(t, harness.Postgres(t))
	w.db.Exec(t, `CREATE TABLE held (LIKE outbox INCLUDING ALL); CREATE TABLE archive (LIKE outbox INCLUDING ALL);
		CREATE TABLE third (LIKE outbox INCLUDING ALL); ALTER TABLE third DROP COLUMN payload; CREATE VIEW seen AS SELECT * FROM outbox`)
	w.stream.Tables[0].Mapping.Archive = outbox.ArchiveTable{Schema: "public", Name: "archive"}
	for _, name := range []string{"held", "away", "seen", "third"} {
		table := native()
		table.Name = name
		w.stream.Tables = append(w.stream.Tables, Table{Table: table})
	}
	other := w.db.Conn(t)
	if _, err := other.Exec(t.Context(), "BEGIN; LOCK TABLE held IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	pool, err := openPool(&w.stream)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	look := func(ctx context.Context) *gathering {
		g := &gathering{o: Options{}.withDefaults(), facts: &Facts{Stream: &w.stream, Missing: map[string]string{}}}
		g.facts.Tables = make([]TableFacts, len(w.stream.Tables))
		for i, table := range w.stream.Tables {
			g.facts.Tables[i].Table, g.facts.Tables[i].Missing = table, map[string]string{}
		}
		g.together(ctx, pool)
		return g
	}
	before := look(t.Context())
	for i, want := range []string{"true true", "false false", "true false", "true false", "true true"} {
		f := &before.facts.Tables[i]
		if got := fmt.Sprint(f.described != nil, f.Catalogue != nil && f.Details != nil); got != want || !f.asked {
			t.Errorf("%s: described, with a catalogue: %s, want %s", f.Table, got, want)
		}
	}
	over, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	after := look(over)
	for i := range before.facts.Tables {
		together, alone := &before.facts.Tables[i], &after.facts.Tables[i]
		if alone.asked || alone.described != nil || alone.Catalogue != nil {
			t.Fatalf("%s: the statement was answered", alone.Table)
		}
		before.table(t.Context(), pool, together)
		after.table(t.Context(), pool, alone)
		if got, want := told(together), told(alone); got != want {
			t.Errorf("%s: together\n%s\nalone\n%s", together.Table, got, want)
		}
	}
}

// told is what is known of a table, but for how it was asked for.
func told(f *TableFacts) string {
	text := fmt.Sprintf("gone %q refused %q missing %v lockers %d", f.Gone, f.Refused, f.Missing, len(f.Lockers))
	if c := f.Catalogue; c != nil {
		text += fmt.Sprintf(" catalogue %+v", *c)
	}
	if d := f.Details; d != nil {
		text += fmt.Sprintf(" details %+v", *d)
	}
	if i := f.Inspection; i != nil {
		text += fmt.Sprintf(" columns %d findings %+v", len(i.Columns), i.Findings)
	}
	return text
}

// A start counts no rows, and looks at nothing that its proof and the report of differences do not judge.
func TestAProofIsBrief(t *testing.T) {
	w := made(t, harness.Postgres(t))
	o := Options{}.withDefaults()
	whole, brief := gather(t.Context(), &w.stream, o, false), gather(t.Context(), &w.stream, o, true)
	for _, f := range []*Facts{whole, brief} {
		looked := []bool{f.Tables[0].Backlog != nil, f.Tables[0].Topics != nil, f.Tables[0].Details != nil, f.Leader != nil, f.Retained != nil, f.Server.Settings != nil}
		if want := f == whole; slices.Contains(looked, !want) {
			t.Errorf("whole: %t, looked: %v", want, looked)
		}
	}
	ofProof := func(f *Facts) string {
		told, err := f.differences()
		return fmt.Sprintf("%s %+v %v", unproven(f), told, err)
	}
	if got, want := ofProof(brief), ofProof(whole); got != want {
		t.Errorf("brief:\n%s\nwhole:\n%s", got, want)
	}
}

// On Amazon RDS a role replicates by membership, so a proof has to know the platform.
func TestAProofKnowsThePlatform(t *testing.T) {
	conn := harness.Postgres(t).Conn(t)
	if _, err := conn.Exec(t.Context(), "BEGIN; CREATE ROLE rds_superuser"); err != nil {
		t.Fatal(err)
	}
	g := gathering{o: Options{}.withDefaults(), brief: true, facts: &Facts{Stream: &Stream{}}}
	server, err := g.server(t.Context(), conn.PgConn())
	if err != nil || !server.platform().ByMembership() {
		t.Errorf("%+v, %v", server, err)
	}
}
