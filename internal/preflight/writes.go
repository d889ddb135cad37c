package preflight

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"

	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// writes finds out whether the table accepts what we write, without writing it.
func (i *inspector) writes(ctx context.Context) error {
	if slices.ContainsFunc(i.Findings, func(f TableFinding) bool { return f.Fatal }) {
		return nil // the statements cannot be built, or the finding covers them
	}
	writes, err := i.Relation.Writes()
	if err != nil {
		return err
	}
	rules := map[*tablesql.Relation]*tablesql.Rules{}
	var discards []TableFinding
	ways := 0
	for n := range writes {
		w := &writes[n]
		if rules[w.To] == nil {
			if rules[w.To], err = i.rules(ctx, w.To); err != nil {
				return err
			}
		}
		found, err := i.refusals(ctx, w, rules[w.To])
		switch {
		case err != nil:
			return err
		case w.Discards && len(found) > 0:
			discards = append(discards, found[0])
		case w.Discards:
			ways++
		default:
			i.Findings = append(i.Findings, found...)
		}
	}
	if ways == 0 {
		i.Findings = append(i.Findings, discards...)
	}
	i.Findings = together(i.Findings)
	return nil
}

// together joins statements that are refused for the same reason into one finding.
func together(all []TableFinding) (told []TableFinding) {
	for _, f := range all {
		what, why, _ := strings.Cut(f.Problem, refused)
		at := slices.IndexFunc(told, func(other TableFinding) bool {
			return f.About == AboutWrite && other.About == AboutWrite && other.Fatal == f.Fatal && strings.HasSuffix(other.Problem, refused+why)
		})
		if at < 0 {
			told = append(told, f)
		} else {
			other, _, _ := strings.Cut(told[at].Problem, refused)
			told[at].Problem = other + ", " + what + refused + why
		}
	}
	return told
}

// refused stands between a statement's name and the reason for its refusal.
const refused = " would be refused: "

func (i *inspector) rules(ctx context.Context, r *tablesql.Relation) (*tablesql.Rules, error) {
	event := 16 // UPDATE, see pg_trigger.h
	if r == i.Relation.Archive {
		event = 4 // INSERT
	}
	found := &tablesql.Rules{}
	args := tablesql.Texts([]byte(strconv.FormatUint(uint64(r.OID), 10)), []byte(strconv.Itoa(event)))
	err := i.look(ctx, i.timeout, tablesql.Step{SQL: tablesql.RulesSQL, Args: args, Each: func(row [][]byte) error { return json.Unmarshal(row[0], found) }})
	if err != nil {
		return nil, fmt.Errorf("reading the constraints of table %s: %w", r.Table, err)
	}
	return found, nil
}

// look runs a query in a read-only transaction.
func (i *inspector) look(ctx context.Context, timeout time.Duration, query tablesql.Step) error {
	return tablesql.Run(ctx, i.conn, tablesql.Reading(timeout).Step(nil), tablesql.Step{SQL: "SELECT pg_catalog.set_config('transaction_read_only', 'on', true)"}, query)
}

// refusals returns why the table would refuse a statement. The returned error may be temporary.
func (i *inspector) refusals(ctx context.Context, w *tablesql.Write, rules *tablesql.Rules) (found []TableFinding, err error) {
	add := func(surely bool, column, why, hint string) {
		if len(rules.Triggers) > 0 && surely {
			surely, why = false, why+" (unless the trigger "+strings.Join(rules.Triggers, ", ")+" changes it before)"
		}
		found = append(found, TableFinding{Fatal: surely && !w.Asked, About: AboutWrite, Column: column, Problem: w.Name + refused + why, Hint: hint})
	}
	table := w.To.Name()
	switch err := i.look(ctx, i.timeout, w.Explain); {
	case err == nil:
	case postgres.HasCode(err, pgerrcode.ObjectNotInPrerequisiteState):
		add(true, "", said(err), "do what the check replica-identity says")
		return found, nil
	case passing(err):
		return nil, err
	case postgres.HasCode(err, pgerrcode.InvalidTextRepresentation) && i.enumStatus():
		return nil, nil // the status values are judged separately
	case postgres.HasCode(err, pgerrcode.InsufficientPrivilege):
		add(true, "", said(err), "GRANT "+privilegeOf(w)+" ON "+table+" TO "+i.role)
		return found, nil
	default:
		add(true, "", said(err), "let the column take it, or map another one, or none")
		return found, nil
	}
	query := w.Evaluate(rules, func(b tablesql.Broken) {
		rows := ""
		if b.Seen > 0 {
			rows = fmt.Sprintf(", of %d of %s", b.Rows, count(b.Seen, "row", "rows"))
		}
		if b.Column != "" {
			hint := "ALTER TABLE " + table + " ALTER " + sql.Identifier(b.Column) + " TYPE text, or map words that fit"
			if b.Text == "NOT NULL" {
				hint = "ALTER TABLE " + table + " ALTER " + sql.Identifier(b.Column) + " DROP NOT NULL"
			}
			add(b.Surely(w), b.Column, fmt.Sprintf("column %q is %s%s", b.Column, b.Text, rows), hint)
			return
		}
		column := ""
		if len(b.Columns) == 1 {
			column = b.Columns[0]
		}
		add(b.Surely(w), column, fmt.Sprintf("by the constraint %q on %s, %s%s", b.Name, strings.Join(b.Columns, ", "), b.Text, rows),
			"ALTER TABLE "+table+" DROP CONSTRAINT "+sql.Identifier(b.Name)+", or change it, or the mapping")
	})
	if query.SQL == "" || i.Unevaluated != "" {
		return found, nil
	}
	evaluation := i.evaluate(ctx, query)
	if evaluation == nil || i.Unevaluated != "" {
		return found, ctx.Err()
	}
	casts := w.Casts(rules)
	for _, column := range slices.Sorted(maps.Keys(casts)) {
		if err := i.evaluate(ctx, casts[column]); err != nil && i.Unevaluated == "" {
			add(true, column, fmt.Sprintf("column %q is %s: %s", column, rules.Types[column], said(err)), "let its type take what is written, or map another column, or none")
		}
	}
	if len(found) == 0 && i.Unevaluated == "" {
		add(false, "", "its constraints cannot be evaluated: "+said(evaluation), "look at what the constraints call")
	}
	return found, nil
}

// evaluateTimeout bounds a query that reads rows. A table that begins with gigabytes of emptied pages, or
// that has a slow CHECK, gives no answer in time; then the other facts about the table have to do.
const evaluateTimeout = 2 * time.Second

// evaluate runs a query over rows. If a query does not answer in time, Unevaluated says so, and no further
// one is run.
func (i *inspector) evaluate(ctx context.Context, query tablesql.Step) error {
	err := i.look(ctx, min(i.timeout, evaluateTimeout), query)
	if err != nil && passing(err) {
		i.Unevaluated = said(err)
	}
	return err
}

// passing reports whether the error is temporary, so that it says nothing about the table.
func passing(err error) bool {
	fault := tablesql.FaultOf(err)
	return fault == tablesql.Passing || fault == tablesql.Locked
}

func said(err error) string {
	if server := postgres.ServerError(err); server != nil {
		return server.Message
	}
	return err.Error()
}

func privilegeOf(w *tablesql.Write) string {
	if strings.Contains(w.Explain.SQL, "DELETE FROM") {
		return "DELETE"
	}
	return "UPDATE"
}

// enumStatus reports whether the status column's type is an enum.
func (i *inspector) enumStatus() bool {
	c := i.Relation.Column(i.Table.Mapping.Status.Column)
	return c != nil && c.Enum
}
