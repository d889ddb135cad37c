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

// State is what Inspect read of the server, the slot and the publication, in this order. Insert was read
// after Snapshot was taken.
type State struct {
	SystemID string // the cluster's identifier, from initdb
	Timeline uint32 // raised by every promotion
	// Ended maps the number of each earlier timeline to the position where it ended.
	Ended map[uint32]outbox.LSN

	Version int // server_version_num, for example 150018
	// Lacking are the parts of the catalogue that a stream needs and this server, newer than any known
	// version, does not have. Where it is not empty, slot, publication and tables were not read.
	Lacking []string
	// Untold are facts that such a newer server does not reveal. A stream works without them.
	Untold   []string
	WALLevel string
	// EffectiveLevel is effective_wal_level; empty before version 19.
	EffectiveLevel string
	// Plugins is output_plugin_libraries. Where the server lacks the setting, or hides it from the role, it
	// is "pgoutput": the server itself refuses the plugin if need be.
	Plugins    string
	InRecovery bool // a standby
	Database   string
	User       string
	Snapshot   outbox.Snapshot
	Insert     outbox.LSN // WAL insert position
	Schema     bool       // schema outbox_cdc exists
	Tally      bool       // schema outbox_cdc has the tables of exactly-once delivery
	// SyncStandbys is synchronous_standby_names.
	SyncStandbys string
	// Platform is the managed service that runs the server; nil: none was recognised.
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
	Synced    bool // 17 and later: the slot was copied from the primary
	Active    bool
	ActivePID string
	WALStatus string // reserved, extended, unreserved, lost
	// Invalidation is the server's reason for invalidating the slot (17 and later), or "conflict" (16).
	// Empty: the slot is valid, or the version gives no reason.
	Invalidation string
	// KeepSize is max_slot_wal_keep_size, IdleTimeout idle_replication_slot_timeout (18 and later).
	KeepSize, IdleTimeout string
	Confirmed             outbox.LSN // confirmed_flush_lsn
	Restart               outbox.LSN // restart_lsn; 0 when lost
}

// Lost reports whether the server has invalidated the slot. Such a slot can only be dropped.
func (s *Slot) Lost() bool { return s.Exists && (s.WALStatus == "lost" || s.Invalidation != "") }

// LostBecause returns why the server has invalidated a lost slot, with the present value of the limit that
// caused it.
func (s *Slot) LostBecause() string { return lostText(s.Invalidation, s.KeepSize, s.IdleTimeout) }

// Publication is a row of pg_publication.
type Publication struct {
	Exists                           bool
	AllTables                        bool
	Insert, Update, Delete, Truncate bool
	ViaRoot                          bool
	Ours                             bool // made by init, as its comment says
	Stored                           bool // it publishes STORED generated columns (18 and later)
	// Mark changes when the publication is re-created, altered or renamed, and when it gains or loses a
	// table. Compare two Marks with Damage.
	Mark string
}

// TableState is a configured table and how the publication covers it.
type TableState struct {
	Table               *outbox.Table
	Exists              bool
	Kind                string // pg_class.relkind
	Unlogged            bool
	PartitionOf         string // the topmost parent, or empty
	Children            string // the first tables that inherit from it without being partitions, or empty
	Published           bool   // the publication lists the table by its own name
	PublishedPartitions int    // of its partitions, those that are published by their own names
	Columns             []string
	Generated           map[string]bool // every generated column; true: STORED
	RowFilter           string
	// Types are the type OIDs of the columns that may stand in a row filter. 0: the column has a user-defined
	// collation. Types is empty before version 15. It is also empty where the publication publishes updates:
	// with a row filter, the server would refuse the application's UPDATEs.
	Types map[string]uint32
	OID   uint32 // 0: the table does not exist
	// Numbers are the attribute numbers of the mapped columns, which stay the same when a column is renamed.
	// 0: there is no such column.
	Numbers map[string]uint32
}

// madeByUs is the comment on a publication by which init recognises its own.
const madeByUs = "made by outbox-cdc init"

// Inspect reads the state of server, slot and publication. It uses up one transaction id, so that
// State.Snapshot lists every transaction that began earlier and is in progress. Otherwise it changes nothing.
func (c *Conn) Inspect(ctx context.Context) (State, error) {
	what := "inspect slot " + c.cfg.Slot
	if c.commands() == nil {
		return State{}, &postgres.Error{What: what, Err: ErrClosed}
	}
	_, err := run(ctx, c.pg, sql.CompleteXID)
	var s State
	if err == nil {
		// The server opens a table, and so waits for its lock, to print its row filter.
		_, err = run(ctx, c.pg, "SET lock_timeout = '3s'")
	}
	if err == nil {
		in := inspection{ctx: ctx, pg: c.pg}
		in.server()
		if reason, _ := in.state.Undecodable(); reason != "" && len(in.state.Lacking) == 0 { // how the setting is changed depends on who runs the server
			in.platform()
		}
		in.stream(&c.cfg)
		s, err = in.state, in.err
	}
	if err == nil { // after an error the connection is given up. The timeout is reset because making a slot waits for locks too
		_, err = run(ctx, c.pg, "SET lock_timeout = 0")
	}
	if err != nil {
		return State{}, c.commandFailed(what, err)
	}
	c.NoteInsert(s.Insert)
	return s, nil
}

// Inspect reads the state of server, slot and publication over any connection. SystemID, Timeline and Ended
// are known only over a replication connection (replication=database).
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

// stream reads what a stream needs to start.
func (in *inspection) stream(cfg *Config) {
	in.identify()
	if len(in.state.Lacking) > 0 {
		return
	}
	in.slot(cfg.Slot)
	in.publication(cfg.Publication)
	in.tables(cfg.Tables, cfg.Publication)
}

// InspectServer reads only the part of State that is about the server.
func InspectServer(ctx context.Context, pg *pgconn.PgConn) (State, error) {
	in := inspection{ctx: ctx, pg: pg}
	in.server()
	return in.state, in.err
}

// inspection fills a State, one query after another. After an error it sends no more queries.
type inspection struct {
	ctx   context.Context
	pg    *pgconn.PgConn
	state State
	err   error
}

// rows runs a statement and returns its rows. Fewer columns than wanted are an error.
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

// identify runs IDENTIFY_SYSTEM and reads the timeline's history. It does nothing on an ordinary session: a
// pooler may have dropped the parameter "replication".
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

// parseHistory reads a timeline history file. Each line has a timeline's number, its end and a reason.
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
		invalidation = "conflict" // version 16; before it, only wal_status tells
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

// mapped returns the columns that a table's mapping reads, sorted.
func mapped(m *outbox.Mapping) []string {
	names := m.Columns(outbox.UseAny)
	slices.Sort(names)
	return slices.Compact(names)
}
