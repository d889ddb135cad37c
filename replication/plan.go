package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/platform"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Step is one thing that init or destroy does. Its SQL is one or more statements, which run in one
// transaction.
type Step struct {
	Title string
	SQL   string
	// Done is a query for one boolean: true means that there is nothing left to do. If Done is empty, the SQL
	// can safely run again.
	Done string
	// Slot marks the step that makes the slot. It may have to wait.
	Slot bool
	// inside marks a step that reads or writes tables of schema outbox_cdc, so the schema must exist.
	inside bool
}

// Setup describes what init makes.
type Setup struct {
	Config
	Stream string // the stream's name
	// StreamRole is the role that streams (attribute REPLICATION). WriteRole reads and updates the tables.
	// Both may be the same role. An empty role is neither created nor granted anything.
	StreamRole, WriteRole string
	// NoSlot leaves out the slot, for sweeping only.
	NoSlot bool
	// Tally adds the tables of exactly-once delivery.
	Tally bool
}

// AdminVariable is the environment variable that holds the connection string of the role for init. That role
// must be allowed to make everything in the plan.
const AdminVariable = "OUTBOX_CDC_ADMIN_DSN"

// InitPlan returns the steps that remain to be made, in order: roles, schema, grants, publication, slot. s is
// the present state; the zero State gives the complete script. InitPlan never alters an existing object that
// is not ours: it returns an Error with the statement that would. InitPlan is a pure function.
func InitPlan(s *State, setup Setup) ([]Step, error) {
	if err := checkSlotName(setup.Slot); err != nil && !setup.NoSlot {
		return nil, err
	}
	plan := roleSteps(setup, s.Platform)
	plan = append(plan, Step{
		Title: "schema outbox_cdc, where outbox-cdc keeps who leads and what is parked", SQL: sql.Schema,
		Done: "SELECT to_regclass('outbox_cdc.park') IS NOT NULL AND (SELECT count(*) = 3 FROM pg_catalog.pg_attribute " +
			"WHERE attrelid = to_regclass('outbox_cdc.leader') AND attname IN ('relations', 'claim', 'paused'))",
	})
	if setup.Tally {
		plan = append(plan, Step{
			Title: "tables of exactly-once delivery in schema outbox_cdc", SQL: sql.Tally,
			Done: "SELECT to_regclass('outbox_cdc.tally_left') IS NOT NULL AND " +
				"EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = to_regclass('outbox_cdc.tally') AND attname = 'slot')",
		})
	}
	plan = append(plan, grantSteps(s, setup)...)
	if setup.NoSlot {
		return plan, nil
	}
	steps, err := publicationSteps(s, &setup.Config)
	if err != nil {
		return nil, err
	}
	slot, err := slotSteps(s, setup)
	if err != nil {
		return nil, err
	}
	return slices.Concat(plan, steps, filterSteps(s, &setup.Config), storedSteps(s, &setup.Config), slot), nil
}

func roleSteps(setup Setup, on *platform.Platform) []Step {
	var plan []Step
	replicates := " REPLICATION;"
	if on.ByMembership() {
		replicates = "; " + on.Replicates(sql.Identifier(setup.StreamRole))
	}
	for _, role := range []struct{ name, replicates, does string }{
		{setup.StreamRole, replicates, "stream"},
		{setup.WriteRole, ";", "read and update the outbox tables"},
	} {
		if role.name == "" || len(plan) > 0 && role.name == setup.StreamRole {
			continue
		}
		quoted, err := sql.Quote(role.name)
		if err != nil {
			continue // such a role cannot exist; the GRANT fails with a clear error
		}
		plan = append(plan, Step{
			Title: fmt.Sprintf(`role %s, to %s (give it a password with \password %s in psql, and a line in pg_hba.conf: hostssl DATABASE %s ADDRESS scram-sha-256)`,
				role.name, role.does, sql.Identifier(role.name), sql.Identifier(role.name)),
			SQL:  "CREATE ROLE " + sql.Identifier(role.name) + " LOGIN" + role.replicates,
			Done: "SELECT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = " + quoted + ")",
		})
	}
	return plan
}

// grantSteps grants the least privileges that work. The streaming role needs no privilege on tables. Its
// attribute REPLICATION already lets it read every published row and drop any idle slot, so a separate role
// is better.
func grantSteps(s *State, setup Setup) []Step {
	var plan []Step
	grant := func(role, text string, args ...any) {
		right := fmt.Sprintf(text, args...)
		plan = append(plan, Step{Title: "privilege of role " + role + ": " + right, SQL: "GRANT " + right + " TO " + sql.Identifier(role) + ";"})
	}
	for _, role := range slices.Compact([]string{setup.StreamRole, setup.WriteRole}) {
		if role != "" && s.Database != "" {
			grant(role, "CONNECT ON DATABASE %s", sql.Identifier(s.Database))
		}
	}
	if setup.WriteRole == "" {
		return plan
	}
	grant(setup.WriteRole, "USAGE ON SCHEMA outbox_cdc")
	grant(setup.WriteRole, "SELECT, INSERT, UPDATE, DELETE ON outbox_cdc.leader, outbox_cdc.park")
	if setup.Tally {
		grant(setup.WriteRole, "SELECT, INSERT, UPDATE, DELETE ON outbox_cdc.tally, outbox_cdc.tally_unit, outbox_cdc.tally_left")
	}
	for _, t := range setup.Tables {
		name := quoteTable(t)
		grant(setup.WriteRole, "USAGE ON SCHEMA %s", sql.Identifier(t.Schema))
		grant(setup.WriteRole, "SELECT ON %s", name) // sweeping in cmin order needs SELECT on the whole table
		if columns := written(&t.Mapping); len(columns) > 0 {
			grant(setup.WriteRole, "UPDATE (%s) ON %s", strings.Join(columns, ", "), name)
		}
		if t.Mapping.Published.Removes() || t.Mapping.Retention > 0 && !t.Mapping.DropPartitions || t.Mapping.RetentionUnsent > 0 {
			grant(setup.WriteRole, "DELETE ON %s", name)
		}
	}
	for _, b := range sideTables(setup.Tables) {
		grant(setup.WriteRole, "USAGE ON SCHEMA %s", sql.Identifier(b.schema))
		grant(setup.WriteRole, "%s ON %s.%s", b.privileges, sql.Identifier(b.schema), sql.Identifier(b.name))
	}
	return plan
}

// sideTable is a table of the application that is not its outbox.
type sideTable struct{ schema, name, privileges string }

// sideTables returns the tables for headers, archives and locks, each once.
func sideTables(tables []*outbox.Table) []sideTable {
	var found []sideTable
	add := func(b sideTable) {
		if b.name != "" && !slices.Contains(found, b) {
			found = append(found, b)
		}
	}
	for _, t := range tables {
		m := &t.Mapping
		add(sideTable{m.HeadersTable.Schema, m.HeadersTable.Name, "SELECT"})
		add(sideTable{m.Archive.Schema, m.Archive.Name, "INSERT"})
		for _, lock := range []outbox.ShedLock{m.ShedLock, m.RetentionLock} {
			add(sideTable{lock.Schema, lock.Table, "SELECT, INSERT, UPDATE"})
		}
	}
	return found
}

// written returns the columns that marks write, quoted.
func written(m *outbox.Mapping) []string {
	var columns []string
	for _, name := range m.Columns(outbox.UseMark) {
		if quoted := sql.Identifier(name); !slices.Contains(columns, quoted) {
			columns = append(columns, quoted)
		}
	}
	return columns
}

// publicationSteps makes the publication, or adds tables to one of ours. The publication has INSERT only.
// With UPDATE, our own marks would come back through the stream, and the application's UPDATE of a table
// without a replica identity would fail.
func publicationSteps(s *State, cfg *Config) ([]Step, error) {
	quoted, err := sql.Quote(cfg.Publication)
	if err != nil || cfg.Publication == "" {
		return nil, &postgres.Error{Permanent: true, What: "make the publication", Err: fmt.Errorf("%q is not a name", cfg.Publication), Hint: "correct the stream's publication"}
	}
	if s.Publication.Exists {
		return addTableSteps(s, cfg, quoted)
	}
	var names []string
	for _, t := range cfg.Tables {
		if err := publishable(s, t); err != nil {
			return nil, err
		}
		names = append(names, s.of(t).Listed())
	}
	name, with := sql.Identifier(cfg.Publication), ""
	if s.lacksStored() {
		with = ", publish_generated_columns = stored"
	}
	return []Step{{
		Title: "publication " + cfg.Publication,
		SQL: fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s\n    WITH (publish = 'insert', publish_via_partition_root = true%s);\nCOMMENT ON PUBLICATION %s IS '%s';",
			name, strings.Join(names, ", "), with, name, madeByUs),
		Done: "SELECT EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = " + quoted + ")",
	}}, nil
}

// Listed returns the table as a publication's list of tables names it, with its row filter if it has one.
func (t *TableState) Listed() string {
	if filter := t.Filter(); filter != "" {
		return quoteTable(t.Table) + " WHERE (" + filter + ")"
	}
	return quoteTable(t.Table)
}

// of returns the TableState of a table. A table that was not inspected gets an empty one.
func (s *State) of(t *outbox.Table) *TableState {
	for i := range s.Tables {
		if s.Tables[i].Table == t {
			return &s.Tables[i]
		}
	}
	return &TableState{Table: t}
}

// publishable returns an Error if no publication can have the table's rows, or the rows of its share.
func publishable(s *State, t *outbox.Table) error {
	if reason, hint := s.of(t).inherited(); reason != "" {
		return &postgres.Error{Permanent: true, What: "publish table " + t.String(), Err: errors.New(reason), Hint: hint}
	}
	if t.Share.Of == 0 || s.Version == 0 || s.Version >= rowFiltersSince {
		return nil
	}
	return &postgres.Error{
		Permanent: true, What: fmt.Sprintf("publish %s of table %s", t.Share, t),
		Err: errors.New("row filters came with PostgreSQL 15"), Hint: "upgrade the server, or take share away and stream the table once",
	}
}

const rowFiltersSince = 150000

func addTableSteps(s *State, cfg *Config, quotedPublication string) ([]Step, error) {
	var plan []Step
	v := Judge(s, cfg, outbox.Identity{})
	for _, t := range v.Add {
		if err := publishable(s, t); err != nil {
			return nil, err
		}
		alter := alterPublication(cfg, "ADD TABLE "+s.of(t).Listed())
		if !s.Publication.Ours {
			return nil, &postgres.Error{
				Permanent: true, What: fmt.Sprintf("add table %s to publication %s", t, cfg.Publication),
				Err: errors.New("outbox-cdc did not make this publication, so it does not alter it"), Hint: alter,
			}
		}
		schema, _ := sql.Quote(t.Schema)
		table, err := sql.Quote(t.Name)
		if err != nil {
			return nil, err
		}
		plan = append(plan, Step{
			Title: fmt.Sprintf("table %s in publication %s", t, cfg.Publication), SQL: alter,
			// This does not read pg_publication_tables, which from version 16 on waits for every locked
			// table.
			Done: fmt.Sprintf("SELECT EXISTS (SELECT FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid "+
				"JOIN pg_catalog.pg_class c ON c.oid = r.prrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "+
				"WHERE p.pubname = %s AND n.nspname = %s AND c.relname = %s)", quotedPublication, schema, table),
		})
	}
	return plan, nil
}

// filterSteps gives tables in our own publication the row filters that their mappings ask for. A running
// stream notices the change and sweeps the table once, because the old filter may have held rows back. A
// table without state keeps its filter: such rows could not be found there.
func filterSteps(s *State, cfg *Config) []Step {
	var plan []Step
	for i := range s.Tables {
		if t := &s.Tables[i]; t.Refilters(s) {
			plan = append(plan, Step{
				Title: fmt.Sprintf("row filter of table %s in publication %s", t.Table, cfg.Publication),
				SQL:   alterPublication(cfg, "DROP TABLE "+quoteTable(t.Table)) + "\n" + alterPublication(cfg, "ADD TABLE "+t.Listed()),
			})
		}
	}
	return plan
}

// lacksStored reports whether a mapping reads a generated column that a publication could publish, but this
// one does not.
func (s *State) lacksStored() bool {
	return s.Version >= generatedSince && !s.Publication.Stored && slices.ContainsFunc(s.Tables, func(t TableState) bool {
		return slices.ContainsFunc(t.unseen(), func(column string) bool { return t.Generated[column] })
	})
}

// storedSteps makes our own publication publish STORED generated columns. A running stream notices the change
// and sweeps its tables once. A stream with a table without state would stop, so it gets no such step.
func storedSteps(s *State, cfg *Config) []Step {
	stateless := slices.ContainsFunc(cfg.Tables, func(t *outbox.Table) bool { return !t.Stateful() })
	if !s.Publication.Exists || !s.Publication.Ours || stateless || !s.lacksStored() {
		return nil
	}
	return []Step{{Title: "generated columns in publication " + cfg.Publication, SQL: publishStored(cfg)}}
}

// slotSteps records that nothing has gone through the slot yet, then makes the slot.
func slotSteps(s *State, setup Setup) ([]Step, error) {
	if s.Slot.Exists && foreignSlot(s) == "" {
		return nil, nil // whatever its state: run repairs it, after parking the stream
	}
	if s.Slot.Exists {
		v := Verdict{}
		v.judgeSlot(s, &setup.Config, outbox.Identity{})
		return nil, v.Err
	}
	noted, err := sql.Bind(strings.TrimSuffix(sql.SlotNoted, "\n"), setup.Stream, setup.Slot)
	if err != nil {
		return nil, err
	}
	done := "SELECT EXISTS (SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = '" + setup.Slot + "')"
	return []Step{
		{Title: "note that slot " + setup.Slot + " is new", SQL: noted + ";", Done: done},
		{Title: "slot " + setup.Slot, SQL: createSlot(setup.Config, s.Version) + ";", Done: done, Slot: true},
	}, nil
}

// DestroyPlan returns the steps that undo InitPlan. They remove the slot, the publication if it is ours, the
// stream's rows in schema outbox_cdc, and the schema itself once no other stream uses it. Roles and grants
// stay.
func DestroyPlan(s *State, setup Setup) ([]Step, error) {
	var plan []Step
	if s.Slot.Exists && foreignSlot(s) == "" {
		plan = append(plan, Step{Title: "slot " + setup.Slot, SQL: "SELECT pg_catalog.pg_drop_replication_slot('" + setup.Slot + "');"})
	}
	if s.Publication.Exists && s.Publication.Ours {
		plan = append(plan, Step{Title: "publication " + setup.Publication, SQL: "DROP PUBLICATION " + sql.Identifier(setup.Publication) + ";"})
	}
	if !s.Schema {
		return plan, nil
	}
	stream, err := sql.Quote(setup.Stream)
	if err != nil {
		return nil, err
	}
	var kept strings.Builder
	tables := []string{"outbox_cdc.park", "outbox_cdc.leader"}
	if s.Tally {
		tables = append([]string{"outbox_cdc.tally_left", "outbox_cdc.tally_unit", "outbox_cdc.tally"}, tables...)
	}
	for _, table := range tables {
		fmt.Fprintf(&kept, "DELETE FROM %s WHERE stream = %s;\n", table, stream)
	}
	return append(plan,
		Step{Title: "what is kept about stream " + setup.Stream, SQL: strings.TrimSuffix(kept.String(), "\n"), inside: true},
		Step{
			Title: "schema outbox_cdc, if no other stream is left in it",
			SQL:   "DROP TABLE " + strings.Join(tables, ", ") + ";\nDROP SCHEMA outbox_cdc;",
			Done:  "SELECT EXISTS (SELECT FROM outbox_cdc.leader)", inside: true,
		}), nil
}

// Script returns the steps as an SQL script that people can read and run.
func Script(plan []Step) string {
	var out strings.Builder
	for i, step := range plan {
		if i == 0 || plan[i-1].Title != step.Title {
			fmt.Fprintf(&out, "\n-- %s\n", step.Title)
		}
		out.WriteString(strings.TrimSpace(step.SQL) + "\n")
	}
	return strings.TrimPrefix(out.String(), "\n")
}

// Pending returns the steps that are not done yet. It changes nothing.
func Pending(ctx context.Context, pg *pgconn.PgConn, plan []Step) ([]Step, error) {
	var left []Step
	for _, step := range plan {
		done, err := stepDone(ctx, pg, step)
		if err != nil {
			return nil, err
		}
		if !done {
			left = append(left, step)
		}
	}
	return left, nil
}

// Progress has functions that are called while a plan is carried out. Each may be nil.
type Progress struct {
	Skipped func(Step)           // the step was done already
	Done    func(Step)           // the step was carried out
	Blocked func(Step, *Blocked) // the step waits for transactions to end
}

// Apply carries the steps out in order and stops at the first error. It can safely be repeated. The
// connection must not be in a transaction. Making a slot waits as long as the context allows. Before each
// step Apply checks that schema outbox_cdc can be trusted: another role may have made it since the last step.
func Apply(ctx context.Context, pg *pgconn.PgConn, setup Setup, plan []Step, progress Progress) error {
	there := false
	for _, step := range plan {
		there = there || step.inside
		if err := TrustSchemaAsAdministrator(ctx, pg, there); err != nil {
			return err
		}
		done, err := stepDone(ctx, pg, step)
		if err != nil {
			return err
		}
		there = there || step.SQL == sql.Schema
		if done {
			tell(progress.Skipped, step)
			continue
		}
		if err := applyStep(ctx, pg, setup, step, progress); err != nil {
			return err
		}
		tell(progress.Done, step)
	}
	return nil
}

func tell(listener func(Step), step Step) {
	if listener != nil {
		listener(step)
	}
}

func stepDone(ctx context.Context, pg *pgconn.PgConn, step Step) (bool, error) {
	if step.Done == "" {
		return false, nil
	}
	rows, err := run(ctx, pg, step.Done)
	if err != nil {
		return false, &postgres.Error{What: "look whether to make " + step.Title, Err: err}
	}
	return len(rows) == 1 && rows[0][0] == "t", nil
}

func applyStep(ctx context.Context, pg *pgconn.PgConn, setup Setup, step Step, progress Progress) error {
	if !step.Slot {
		if _, err := run(ctx, pg, step.SQL); err != nil {
			return stepError(step, err)
		}
		return nil
	}
	for timeout := firstTimeout; ; timeout = min(2*timeout, lastTimeout) {
		_, err := MakeSlot(ctx, pg, setup.Config, Make, timeout)
		blocked, ok := errors.AsType[*Blocked](err)
		if !ok {
			return err
		}
		if progress.Blocked != nil {
			progress.Blocked(step, blocked)
		}
	}
}

// How long the first and the longest attempt to make a slot wait. After an attempt, the program reports the
// transactions that it waited for, and tries again.
const (
	firstTimeout = 5 * time.Second
	lastTimeout  = 5 * time.Minute
)

func stepError(step Step, err error) *postgres.Error {
	e := &postgres.Error{What: "make " + step.Title, Err: err}
	code := postgres.Code(err)
	e.Permanent = code != ""
	switch code {
	case pgerrcode.InsufficientPrivilege:
		e.Hint = "run outbox-cdc init as the owner of the tables, or as a superuser: its connection string goes into " + AdminVariable + "; --show-sql prints the statements"
	case pgerrcode.DependentObjectsStillExist:
		e.Hint = "outbox-cdc did not make what depends on it: look at it and drop it first, or leave it there"
	}
	return e
}

// MakePublication makes the publication where it is missing, and adds tables to it where it is ours. The role
// must own the tables.
func MakePublication(ctx context.Context, pg *pgconn.PgConn, cfg Config) error {
	s, err := Inspect(ctx, pg, cfg)
	if err != nil {
		return &postgres.Error{What: "make publication " + cfg.Publication, Err: err}
	}
	plan, err := publicationSteps(&s, &cfg)
	if err != nil {
		return err
	}
	return Apply(ctx, pg, Setup{Config: cfg}, plan, Progress{})
}
