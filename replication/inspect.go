package replication

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/platform"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// State is what the server says about itself, the slot and the publication, in
// this order; Insert is read after Snapshot was taken.
type State struct {
	SystemID string // of the cluster, from initdb
	Timeline uint32 // raised by every promotion
	// Ended is where earlier timelines ended, by their number.
	Ended map[uint32]outbox.LSN

	Version int // server_version_num, for example 150018
	// Lacking is what a stream needs and a server newer than the known ones does not have. If there is any,
	// nothing is known of slot, publication and tables.
	Lacking []string
	// Untold is what such a server does not tell and a stream can do without.
	Untold   []string
	WALLevel string
	// EffectiveLevel is effective_wal_level; before version 19 there is none.
	EffectiveLevel string
	// Plugins is output_plugin_libraries, as far as the server has it and shows it to the role;
	// otherwise it is pgoutput, and the server refuses by itself.
	Plugins    string
	InRecovery bool // a standby
	Database   string
	User       string
	Snapshot   outbox.Snapshot
	Insert     outbox.LSN // WAL insert position
	Schema     bool       // schema outbox_cdc is there
	Tally      bool       // … with the tables of exactly-once delivery
	// SyncStandbys is synchronous_standby_names.
	SyncStandbys string
	// Platform is who runs the server for others; nil: nobody, as far as it tells.
	Platform *platform.Platform

	Slot        Slot
	Publication Publication
	Tables      []TableState // in the order of Config.Tables
}

// Slot is a row of pg_replication_slots.
// https://www.postgresql.org/docs/current/view-pg-replication-slots.html
type Slot struct {
	Exists    bool
	Plugin    string
	Type      string // logical or physical
	Database  string
	Temporary bool
	TwoPhase  bool
	Failover  bool // 17 and later
	Synced    bool // 17 and later: carried along from a primary
	Active    bool
	ActivePID string
	WALStatus string // reserved, extended, unreserved, lost
	// Invalidation is why the slot was invalidated (17 and later), or
	// "conflict" (16), or empty.
	Invalidation string
	// KeepSize is max_slot_wal_keep_size, IdleTimeout idle_replication_slot_timeout (18 and later).
	KeepSize, IdleTimeout string
	Confirmed             outbox.LSN // confirmed_flush_lsn
	Restart               outbox.LSN // restart_lsn; 0 when lost
}

// Lost says that the server has invalidated the slot: it can only be dropped.
func (s *Slot) Lost() bool { return s.Exists && (s.WALStatus == "lost" || s.Invalidation != "") }

// LostBecause is why the server has invalidated a slot that is lost, with the limit that did it, as it is now.
func (s *Slot) LostBecause() string { return lostText(s.Invalidation, s.KeepSize, s.IdleTimeout) }

// Publication is a row of pg_publication.
type Publication struct {
	Exists                           bool
	AllTables                        bool
	Insert, Update, Delete, Truncate bool
	ViaRoot                          bool
	Ours                             bool // made by init, as its comment says
	Stored                           bool // it publishes STORED generated columns (18 and later)
	// Mark changes when the publication is re-created, altered, renamed or
	// loses or gains a table. Compare with Damage.
	Mark string
}

// TableState is one configured table, and how the publication covers it.
type TableState struct {
	Table               *outbox.Table
	Exists              bool
	Kind                string // pg_class.relkind
	Unlogged            bool
	PartitionOf         string // the topmost parent, or empty
	Children            string // the first tables that inherit from it and are no partitions, or empty
	Published           bool   // by its own name
	PublishedPartitions int    // of its partitions, those that are published by their own names
	Columns             []string
	Generated           map[string]bool // the generated columns; true: STORED
	RowFilter           string
	// Types are the type OIDs of the columns that can stand in a row filter; 0: the collation is
	// a user's. There are none before version 15, and none where the publication publishes
	// updates: with a filter the server would refuse these to the application.
	Types map[string]uint32
	OID   uint32 // 0: it does not exist
	// Numbers are those of the mapped columns, which keep them when they are renamed; 0: there is no such column.
	Numbers map[string]uint32
}

// madeByUs is the comment by which init knows its own publication again.
const madeByUs = "made by outbox-cdc init"

// Inspect looks at server, slot and publication. It changes nothing but for the
// transaction id that it uses up: State.Snapshot lists every transaction in
// progress that has begun before.
func (c *Conn) Inspect(ctx context.Context) (State, error) {
	what := "inspect slot " + c.cfg.Slot
	if c.commands() == nil {
		return State{}, &postgres.Error{What: what, Err: ErrClosed}
	}
	_, err := run(ctx, c.pg, sql.CompleteXID)
	var s State
	if err == nil {
		// A table's row filter is printed only once the table is open.
		_, err = run(ctx, c.pg, "SET lock_timeout = '3s'")
	}
	if err == nil {
		in := inspection{ctx: ctx, pg: c.pg}
		in.server()
		if reason, _ := in.state.Undecodable(); reason != "" && len(in.state.Lacking) == 0 { // how it is changed depends on who runs the server
			in.platform()
		}
		in.stream(&c.cfg)
		s, err = in.state, in.err
	}
	if err == nil { // else the connection is given up. A slot that is made waits for locks of its own
		_, err = run(ctx, c.pg, "SET lock_timeout = 0")
	}
	if err != nil {
		return State{}, c.commandFailed(what, err)
	}
	c.NoteInsert(s.Insert)
	return s, nil
}

// Inspect looks at server, slot and publication over any connection; only a
// replication connection (replication=database) tells SystemID, Timeline and
// Ended.
func Inspect(ctx context.Context, pg *pgconn.PgConn, cfg Config) (State, error) {
	in := inspection{ctx: ctx, pg: pg}
	in.server()
	if reason, hints := in.state.unknownCatalogue(); reason != "" && in.err == nil {
		return in.state, &postgres.Error{Permanent: true, What: "inspect slot " + cfg.Slot, Hint: oneHint(hints), Err: errors.New(reason)}
	}
	in.platform()
	in.stream(&cfg)
	return in.state, in.err
}

// stream asks for what a stream begins with.
func (in *inspection) stream(cfg *Config) {
	in.identify()
	if len(in.state.Lacking) > 0 {
		return
	}
	in.slot(cfg.Slot)
	in.publication(cfg.Publication)
	in.tables(cfg.Tables, cfg.Publication)
}

// InspectServer is what Inspect tells of the server alone.
func InspectServer(ctx context.Context, pg *pgconn.PgConn) (State, error) {
	in := inspection{ctx: ctx, pg: pg}
	in.server()
	return in.state, in.err
}

// inspection fills a State question by question; after an error it asks no more.
type inspection struct {
	ctx   context.Context
	pg    *pgconn.PgConn
	state State
	err   error
}

// rows runs a statement of package sql; less than the wanted columns is an error.
func (in *inspection) rows(columns int, statement string, args ...any) [][]string {
	if in.err != nil {
		return nil
	}
	rows, err := bindAndRun(in.ctx, in.pg, statement, args...)
	if err == nil && len(rows) > 0 && len(rows[0]) < columns {
		err = fmt.Errorf("%w: fewer columns than asked for", ErrProtocol)
	}
	if err != nil {
		in.err = err
		return nil
	}
	return rows
}

func (in *inspection) lsn(text string) outbox.LSN {
	if text == "" || in.err != nil {
		return 0
	}
	l, err := outbox.ParseLSN(text)
	if err != nil {
		in.err = err
	}
	return l
}

func (in *inspection) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil && in.err == nil {
		in.err = fmt.Errorf("%q is not a number", text)
	}
	return n
}

func (in *inspection) server() {
	rows := in.rows(12, sql.InspectServer)
	if in.err != nil {
		return
	}
	if len(rows) != 1 {
		in.err = fmt.Errorf("%w: %d rows about the server", ErrProtocol, len(rows))
		return
	}
	r, s := rows[0], &in.state
	s.Version, s.WALLevel, s.InRecovery = in.number(r[0]), r[1], r[2] == "true"
	s.Database, s.Insert, s.User, s.Schema = r[4], in.lsn(r[5]), r[6], r[7] == "true"
	s.SyncStandbys, s.Tally, s.EffectiveLevel, s.Plugins = r[8], r[9] == "true", r[10], r[11]
	if in.err == nil {
		s.Snapshot, in.err = outbox.ParseSnapshot(r[3])
	}
	if s.Newer() {
		in.newer()
	}
}

func (in *inspection) platform() {
	var signs platform.Signs
	if rows := in.rows(1, sql.Platform); len(rows) == 1 {
		in.err = json.Unmarshal([]byte(rows[0][0]), &signs)
	}
	in.state.Platform = platform.Of(signs)
}

// identify runs IDENTIFY_SYSTEM and reads the timeline's history, if the session knows
// replication commands: a pooler may have dropped the parameter.
// https://www.postgresql.org/docs/current/protocol-replication.html
func (in *inspection) identify() {
	backend := in.rows(1, `SELECT coalesce((SELECT backend_type FROM pg_stat_activity WHERE pid = pg_backend_pid()), '')`)
	if len(backend) != 1 || backend[0][0] != "walsender" {
		return
	}
	system, err := pglogrepl.IdentifySystem(in.ctx, in.pg)
	if err != nil {
		in.err = err
		return
	}
	in.state.SystemID = system.SystemID
	in.state.Timeline = uint32(system.Timeline) // #nosec G115 -- a TimeLineID
	if system.Timeline <= 1 {
		return
	}
	file, err := pglogrepl.TimelineHistory(in.ctx, in.pg, system.Timeline)
	if err != nil {
		in.err = err
		return
	}
	in.state.Ended, in.err = parseHistory(string(file.Content))
}

// parseHistory reads a timeline history file: lines of number, end, reason.
func parseHistory(text string) (map[uint32]outbox.LSN, error) {
	ended := map[uint32]outbox.LSN{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		n, err := strconv.ParseUint(fields[0], 10, 32)
		if err == nil {
			ended[uint32(n)], err = outbox.ParseLSN(fields[1])
		}
		if err != nil {
			return nil, fmt.Errorf("timeline history line %q: %w", line, err)
		}
	}
	return ended, nil
}

func (in *inspection) slot(name string) {
	values := map[string]string{}
	for _, r := range in.rows(2, sql.InspectSlot, name) {
		values[r[0]] = r[1]
	}
	if len(values) == 0 {
		return
	}
	invalidation := values["invalidation_reason"] // 17 and later
	if invalidation == "" && values["conflicting"] == "true" && values["wal_status"] != "lost" {
		invalidation = "conflict" // 16; before, wal_status alone tells
	}
	in.state.Slot = Slot{
		Exists: true, Plugin: values["plugin"], Type: values["slot_type"], Database: values["database"],
		Temporary: values["temporary"] == "true", TwoPhase: values["two_phase"] == "true",
		Failover: values["failover"] == "true", Synced: values["synced"] == "true",
		Active: values["active"] == "true", ActivePID: values["active_pid"],
		WALStatus: values["wal_status"], Invalidation: invalidation,
		KeepSize: values["max_slot_wal_keep_size"], IdleTimeout: values["idle_replication_slot_timeout"],
		Confirmed: in.lsn(values["confirmed_flush_lsn"]), Restart: in.lsn(values["restart_lsn"]),
	}
}

func (in *inspection) publication(name string) {
	rows := in.rows(11, sql.InspectPublication, name)
	if len(rows) == 0 {
		return
	}
	r := rows[0]
	in.state.Publication = Publication{
		Exists: true, AllTables: r[2] == "true", Insert: r[3] == "true", Update: r[4] == "true",
		Delete: r[5] == "true", Truncate: r[6] == "true", ViaRoot: r[7] == "true",
		Ours: strings.Contains(r[8], madeByUs), Mark: publicationMark(r[0], r[1], r[9]), Stored: r[10] == "s",
	}
}

func (in *inspection) tables(tables []*outbox.Table, publication string) {
	in.state.Tables = make([]TableState, len(tables))
	for i, t := range tables {
		in.state.Tables[i].Table = t
	}
	for _, r := range in.rows(13, sql.WithPublished(in.state.Version/10_000, sql.InspectTables), namesOf(tables), publication) {
		place := in.number(r[0])
		if in.err != nil {
			return
		}
		t := &in.state.Tables[place-1]
		t.Exists, t.Kind, t.Unlogged = true, r[1], r[2] == "u"
		t.PartitionOf, t.Published, t.PublishedPartitions = r[3], r[4] == "true", in.number(r[5])
		if r[6] != "" {
			t.Columns = strings.Split(r[6], "\n")
		}
		t.RowFilter = r[7]
		t.OID = uint32(in.number(r[8])) // #nosec G115 -- an OID
		t.Children = r[10]
		if r[11] != "" {
			in.json("the generated columns of a table", r[11], &t.Generated)
		}
		var numbers map[string]uint32
		in.json("the numbers of a table's columns", r[12], &numbers)
		t.Numbers = map[string]uint32{}
		for _, name := range mapped(&t.Table.Mapping) {
			t.Numbers[name] = numbers[name]
		}
		if p := &in.state.Publication; in.state.Version >= rowFiltersSince && !p.Update && !p.Delete {
			in.json("the types of a table's columns", r[9], &t.Types)
		}
	}
}

func (in *inspection) json(what, text string, into any) {
	if err := json.Unmarshal([]byte(text), into); err != nil && in.err == nil {
		in.err = fmt.Errorf("%s: %w", what, err)
	}
}

func namesOf(tables []*outbox.Table) [][2]string {
	names := make([][2]string, len(tables))
	for i, t := range tables {
		names[i] = [2]string{t.Schema, t.Name}
	}
	return names
}

// mapped lists the columns that a table's mapping reads, sorted.
func mapped(m *outbox.Mapping) []string {
	names := m.Columns(outbox.UseAny)
	slices.Sort(names)
	return slices.Compact(names)
}
