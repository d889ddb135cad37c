package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/journal"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/preflight"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

type checkOptions struct {
	stream         string
	json, fix, yes bool
	timeout        time.Duration
}

func checkCommand(io streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "check",
		Short: "Look whether everything is right before streaming",
		Long: `Looks at the servers, roles, slots, publications, tables, topics and brokers of a configuration, and
says of each what was found, why it matters and the statement, setting or command that fixes it.
It changes nothing and disturbs no process that runs.

OK    as it should be
WARN  it works, but not as anybody would want
FAIL  somebody has to act, or rows will not be delivered
SKIP  not looked at, and why

--fix makes what is safe to make, after asking: our own schema, publication and slot, as init makes
them, and the index of the native table (CONCURRENTLY). Then it looks again.

Exit codes: 0 no FAIL; 3 a FAIL; 1 no FAIL, but something could not be looked at.
docs/check.md has every check.`,
		Example: `  outbox-cdc check --config outbox-cdc.yaml
  outbox-cdc check --stream orders --json
  ` + adminVariable + `=postgres://postgres@db/orders outbox-cdc check --stream orders --fix`,
	}
	file, o := configFlag(c), checkOptions{}
	streamFlag(c, &o.stream)
	c.Flags().BoolVar(&o.json, "json", false, "print JSON (fields: docs/check.md)")
	c.Flags().BoolVar(&o.fix, "fix", false, "make the schema, publication, slot and native index that are missing, after asking")
	yesFlag(c, &o.yes, "with --fix: do not ask")
	c.Flags().DurationVar(&o.timeout, "timeout", 10*time.Second, "how `LONG` each look may take")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, chosen, err := load(*file, o.stream, chooseDatabase)
		if err != nil {
			return err
		}
		if o.yes && !o.fix {
			return usage("--yes is for --fix: add that, or leave --yes out")
		}
		tellExposed(cfg, io)
		return check(c.Context(), cfg, chosen, o, io)
	}
	return c
}

// check runs the checks. With --fix it fixes what it can and runs them again.
func check(ctx context.Context, cfg *config.Config, chosen []*config.Stream, o checkOptions, io streams) error {
	look := func() preflight.Report {
		return preflight.Run(ctx, preflightStreams(cfg, chosen), preflight.Options{Timeout: o.timeout})
	}
	report := look()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	printed := false
	if o.fix {
		if !o.json {
			printCheck(io.out, &report)
		}
		fixed, err := fix(ctx, chosen, &report, o, io)
		if err != nil {
			return err
		}
		if fixed {
			report = look()
		}
		printed = !fixed
	}
	switch {
	case o.json:
		if err := printJSON(io.out, &report); err != nil {
			return err
		}
	case !printed:
		printCheck(io.out, &report)
	}
	switch {
	case report.MustAct():
		return &failure{exitPermanent, errReported}
	case report.Incomplete():
		return &failure{exitFailure, errReported}
	}
	return nil
}

// preflightStreams returns the streams for the checks, as run would run them.
func preflightStreams(cfg *config.Config, chosen []*config.Stream) []preflight.Stream {
	all := make([]preflight.Stream, len(chosen))
	for i, s := range chosen {
		all[i] = preflight.Stream{
			Name: s.Name, DSN: s.Postgres.DSN.Reveal(), Password: s.Postgres.Password.Reader(), Replication: replicationConfig(s), WALBudget: uint64(s.WALBudget),
			PoolConnections: poolConnections(s), Kafka: sinkConfigs(cfg, s, zerolog.Nop()), Shadow: s.Shadow(),
		}
		if once := onceConfig(cfg, s); once != nil {
			all[i].Once = &preflight.Once{Journals: map[string]journal.Topic{}, Timeout: once.Timeout}
			for cluster, topic := range once.Journals {
				all[i].Once.Journals[cluster] = journal.Topic{Name: topic, Rows: s.Memory.Rows}
			}
		}
		for _, t := range s.Tables {
			all[i].Tables = append(all[i].Tables, preflight.Table{Table: t.Outbox, Native: t.Profile == "native"})
		}
	}
	return all
}

// ---- printing ----

func printCheck(out io.Writer, r *preflight.Report) {
	found := together(r.Findings)
	printFindings(out, found, columns(out))
	for _, level := range []preflight.Level{preflight.Warn, preflight.Fail} {
		for i := range found {
			if found[i].Level == level {
				printHints(out, &found[i])
			}
		}
	}
	s := r.Summary
	fmt.Fprintf(out, "\n%d OK, %d WARN, %d FAIL, %d SKIP", s.OK, s.Warn, s.Fail, s.Skip)
	if s.Unseen > 0 {
		fmt.Fprintf(out, "; %d could not be looked at", s.Unseen)
	}
	fmt.Fprintln(out)
}

// alike is a finding, with the other subjects that have the same finding.
type alike struct {
	preflight.Finding
	others []string // subjects
	checks []string // for SKIP: the checks that one fault kept from looking
}

// together groups findings that differ only in their subjects, such as twenty tables without an index. A
// group stands where its first finding stood. Checks that could not look because of one fault form a group
// too.
func together(all []preflight.Finding) (groups []alike) {
	at := map[string]int{}
	for _, f := range all {
		words := alikeness(&f)
		i, ok := at[words]
		if !ok || f.Level != preflight.Skip && f.Subject == "" {
			at[words] = len(groups)
			groups = append(groups, alike{Finding: f, checks: []string{f.Check}})
			continue
		}
		g := &groups[i]
		if f.Subject != "" && f.Subject != g.Subject && !slices.Contains(g.others, f.Subject) {
			g.others = append(g.others, f.Subject)
		}
		if !slices.Contains(g.checks, f.Check) {
			g.checks = append(g.checks, f.Check)
		}
	}
	return groups
}

// alikeness returns what the findings of a group have in common.
func alikeness(f *preflight.Finding) string {
	if f.Level == preflight.Skip {
		return strings.Join([]string{string(f.Level), f.Stream, f.Found}, "\x00")
	}
	words := strings.Join(append([]string{f.Check, string(f.Level), f.Stream, f.Found, f.Why, f.Fix}, f.Hints...), "\x00")
	if f.Subject == "" {
		return words
	}
	quoted := sql.Identifier(strings.SplitN(f.Subject, ".", 2)...)
	return strings.NewReplacer(quoted, "·", f.Subject, "·").Replace(words)
}

func (g *alike) about() string {
	if len(g.others) == 0 || g.Subject == "" {
		return g.Subject
	}
	return fmt.Sprintf("%s and %d more", g.Subject, len(g.others))
}

// by returns the check's name, or the number of checks.
func (g *alike) by() string {
	if len(g.checks) > 1 {
		return fmt.Sprintf("%d checks", len(g.checks))
	}
	return g.Check
}

// foundWidth is the greatest width of the column "found".
const foundWidth = 90

// tableWidth is how wide a terminal has to be for the table. On a narrower one each finding is a paragraph.
const tableWidth = 150

// printFindings prints findings for a terminal of this width; 0: not a terminal.
func printFindings(out io.Writer, all []alike, width int) {
	if width > 0 && width < tableWidth {
		for i := range all {
			printNarrow(out, &all[i], width)
		}
		return
	}
	w := newTable(out)
	row(w, "", "CHECK", "STREAM", "ABOUT", "FOUND")
	for i := range all {
		f := &all[i]
		lines := wrapped(f.Found, foundWidth)
		row(w, string(f.Level), f.by(), f.Stream, f.about(), lines[0])
		for _, line := range lines[1:] {
			row(w, "", "", "", "", line)
		}
	}
	_ = w.Flush() // a failed write to the output has no other consequence
}

// printNarrow prints a finding in lines that fit into a narrow terminal.
func printNarrow(out io.Writer, f *alike, width int) {
	const indent = 6
	about := strings.Join(strings.Fields(f.by()+" "+f.Stream+" "+f.about()), " ")
	for i, line := range wrapped(about+": "+f.Found, max(width-indent, 2*indent)) {
		level := ""
		if i == 0 {
			level = string(f.Level)
		}
		fmt.Fprintf(out, "%-*s%s\n", indent, level, printable(line))
	}
}

func printHints(out io.Writer, f *alike) {
	about := strings.TrimSpace(f.Stream + " " + f.about())
	fmt.Fprintf(out, "\n%s %s (%s): %s\n", f.Level, f.Check, about, f.Found)
	if f.Why != "" {
		fmt.Fprintf(out, "  why:  %s\n", f.Why)
	}
	for i, hint := range f.Hints {
		label := "      "
		if i == 0 {
			label = "hint: "
		}
		fmt.Fprintf(out, "  %s%s\n", label, hint)
	}
	if f.Fix != "" {
		fmt.Fprintf(out, "        or: outbox-cdc check --fix\n")
	}
	if len(f.others) > 0 {
		fmt.Fprintf(out, "  also: %s\n", strings.Join(f.others, ", "))
	}
}

// ---- --fix ----

// fix creates what the findings say can be created. It reports whether it created anything.
func fix(ctx context.Context, chosen []*config.Stream, r *preflight.Report, o checkOptions, io streams) (bool, error) {
	said := io.out
	if o.json {
		said = io.err
	}
	fixed := false
	for _, s := range chosen {
		var wanted []preflight.Finding
		for _, f := range r.Findings {
			if f.Stream == s.Name && f.Fix != "" {
				wanted = append(wanted, f)
			}
		}
		if len(wanted) == 0 {
			continue
		}
		did, err := fixStream(ctx, s, wanted, o, io, said)
		if err != nil {
			return fixed, fmt.Errorf("stream %s: %w", s.Name, err)
		}
		fixed = fixed || did
	}
	if !fixed {
		fmt.Fprintln(said, "\nthere is nothing that --fix can make")
	}
	return fixed, nil
}

func fixStream(ctx context.Context, s *config.Stream, wanted []preflight.Finding, o checkOptions, io streams, said io.Writer) (bool, error) {
	pg, err := connectAdmin(ctx, s)
	if err != nil {
		return false, err
	}
	defer postgres.HangUp(pg)
	setup := setupOf(s, "")
	setup.StreamRole, setup.WriteRole = "", "" // it makes no roles
	plan, err := fixPlan(ctx, pg, s, setup, wanted)
	if err != nil || len(plan) == 0 {
		return false, err
	}
	fmt.Fprintf(said, "\nstream %s, database %s on %s:%d:\n\n%s\n", s.Name, s.Postgres.Database, s.Postgres.Host, s.Postgres.Port, replication.Script(plan))
	if err := confirm(io, o.yes, fmt.Sprintf("Run this for stream %s?", s.Name)); err != nil {
		return false, err
	}
	return true, apply(ctx, pg, s, setup, plan, said)
}

// fixPlan returns those steps of init that create what is missing: schema, publication, slot, and indexes of
// native tables. It touches no other table.
func fixPlan(ctx context.Context, pg *pgconn.PgConn, s *config.Stream, setup replication.Setup, wanted []preflight.Finding) ([]replication.Step, error) {
	is := func(what string) bool {
		return slices.ContainsFunc(wanted, func(f preflight.Finding) bool { return f.Fix == what })
	}
	state, err := replication.Inspect(ctx, pg, setup.Config)
	if err != nil {
		return nil, err
	}
	setup.NoSlot = !is(preflight.FixPublication) && !is(preflight.FixSlot)
	missing := slices.IndexFunc(state.Tables, func(t replication.TableState) bool { return !t.Exists })
	if missing >= 0 && !setup.NoSlot {
		return nil, &failure{exitPermanent, errors.New("table " + state.Tables[missing].Table.String() + " has to be there before its publication: create it, or correct its name (outbox-cdc init --native-table makes a native one)")}
	}
	steps, err := replication.InitPlan(&state, setup)
	if err != nil {
		return nil, err
	}
	if role := s.Postgres.User; is(preflight.FixSchema) && role != pg.ParameterStatus("session_authorization") {
		made, tables := 1, "outbox_cdc.leader, outbox_cdc.park" // number of steps that make these tables
		if setup.Tally {
			made, tables = 2, tables+", outbox_cdc.tally, outbox_cdc.tally_unit, outbox_cdc.tally_left"
		}
		quoted := sql.Identifier(role)
		steps = slices.Insert(steps, min(made, len(steps)), replication.Step{
			Title: "privileges of role " + role + " on schema outbox_cdc",
			SQL: "GRANT USAGE ON SCHEMA outbox_cdc TO " + quoted + ";\n" +
				"GRANT SELECT, INSERT, UPDATE, DELETE ON " + tables + " TO " + quoted + ";",
		})
	}
	for _, t := range s.Tables {
		about := func(f preflight.Finding) bool { return f.Fix == preflight.FixIndex && f.Subject == t.Outbox.String() }
		if slices.ContainsFunc(wanted, about) {
			steps = append(steps, nativeIndex(t.Outbox.Schema, t.Outbox.Name)...)
		}
	}
	return replication.Pending(ctx, pg, steps)
}

// nativeIndex returns steps that create the index of a native table without blocking writers. The first step
// removes what an interrupted CREATE INDEX left.
func nativeIndex(schema, name string) []replication.Step {
	index := name + "_due"
	qualified := sql.Identifier(schema, index)
	return []replication.Step{
		{
			Title: "the invalid index " + index + ", which was never finished, goes",
			SQL:   "DROP INDEX CONCURRENTLY " + qualified + ";",
			Done:  "SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_index WHERE indexrelid = to_regclass(" + sql.Literal(qualified) + ") AND NOT indisvalid)",
		},
		nativeDue(schema, name),
	}
}

func nativeDue(schema, name string) replication.Step {
	index := name + "_due"
	return replication.Step{
		Title: "index " + index + " for the sweep",
		SQL:   "CREATE INDEX CONCURRENTLY IF NOT EXISTS " + sql.Identifier(index) + " ON " + sql.Identifier(schema, name) + " (available_after, id) WHERE status = 'PENDING';",
		Done: "SELECT EXISTS (SELECT FROM pg_catalog.pg_index WHERE indexrelid = to_regclass(" + sql.Literal(sql.Identifier(schema, index)) + ") AND indisvalid)" +
			" OR EXISTS (SELECT FROM pg_catalog.pg_class WHERE oid = to_regclass(" + sql.Literal(sql.Identifier(schema, name)) + ") AND relkind = 'p')", // check says how to index a partitioned table
	}
}
