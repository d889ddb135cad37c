// Package sql has the fixed statements that outbox-cdc sends to PostgreSQL, one per file, so that each can be read
// and tried as it is. It has text only and never uses a connection.
//
// A statement's parameters are $1, $2 and so on. On pooled connections the driver binds them. A replication
// connection accepts no parameters, so Bind replaces them by literals.
package sql

import (
	_ "embed" // the statements
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Schema creates schema outbox_cdc. Each of its statements can safely run again.
//
//go:embed schema.sql
var Schema string

// Tally creates the tables of exactly-once delivery in schema outbox_cdc. Each of its statements can safely run
// again.
//
//go:embed tally.sql
var Tally string

// The statements on outbox_cdc.tally, tally_unit and tally_left.
var (
	//go:embed tally_open.sql
	TallyOpen string
	//go:embed tally_read.sql
	TallyRead string
	//go:embed tally_left.sql
	TallyLeft string
	//go:embed tally_advance.sql
	TallyAdvance string
	//go:embed tally_position.sql
	TallyPosition string
	//go:embed tally_positions.sql
	TallyPositions string
	//go:embed tally_close.sql
	TallyClose string
	//go:embed tally_forget.sql
	TallyForget string
	//go:embed tally_state.sql
	TallyState string
	//go:embed tally_orphans.sql
	TallyOrphans string
	//go:embed tally_note.sql
	TallyNote string
	//go:embed tally_behind.sql
	TallyBehind string
	//go:embed tally_leave.sql
	TallyLeave string
	//go:embed tally_find.sql
	TallyFind string
	//go:embed tally_settled.sql
	TallySettled string
)

// The statements on outbox_cdc.park and outbox_cdc.leader.
var (
	//go:embed park_write.sql
	ParkWrite string
	//go:embed park_load.sql
	ParkLoad string
	//go:embed leader_raise.sql
	LeaderRaise string
	//go:embed leader_identify.sql
	LeaderIdentify string
	//go:embed leader_claim.sql
	LeaderClaim string
	//go:embed leader_unclean.sql
	LeaderUnclean string
	//go:embed leader_clean.sql
	LeaderClean string
	//go:embed leader_serial.sql
	LeaderSerial string
	//go:embed leader_relations.sql
	LeaderRelations string
	//go:embed leader_watch.sql
	LeaderWatch string
	//go:embed leader_pause.sql
	LeaderPause string
	//go:embed leader_resume.sql
	LeaderResume string
	//go:embed slot_noted.sql
	SlotNoted string
)

// The statements that inspect the server, the slot and the publication.
var (
	//go:embed role_rights.sql
	RoleRights string
	//go:embed schema_trust.sql
	SchemaTrust string
	//go:embed complete_xid.sql
	CompleteXID string
	//go:embed heartbeat.sql
	Heartbeat string
	//go:embed wal_end.sql
	WALEnd string
	//go:embed inspect_server.sql
	InspectServer string
	//go:embed platform.sql
	Platform string
	//go:embed inspect_slot.sql
	InspectSlot string
	//go:embed inspect_publication.sql
	InspectPublication string
	//go:embed inspect_tables.sql
	InspectTables string
	//go:embed watch.sql
	Watch string
	//go:embed pressure.sql
	Pressure string
	//go:embed slot_blockers.sql
	SlotBlockers string
	//go:embed table_lockers.sql
	TableLockers string
	//go:embed standbys.sql
	Standbys string

	//go:embed lock_holder.sql
	LockHolder string
	//go:embed lock_held.sql
	LockHeld string
)

// Timeline runs on every new connection while a stream leads.
//
//go:embed timeline.sql
var Timeline string

// The statements of the operator's commands.
var (
	//go:embed slots_list.sql
	SlotsList string
	//go:embed slots_leaders.sql
	SlotsLeaders string
	//go:embed leader_read.sql
	LeaderRead string
)

// The statements that gather facts for a check, or for a proposal of a mapping. Each returns one JSON document.
var (
	//go:embed check_server.sql
	CheckServer string
	//go:embed check_role.sql
	CheckRole string
	//go:embed check_table.sql
	CheckTable string
	//go:embed check_table_details.sql
	CheckTableDetails string
	//go:embed check_renamed.sql
	CheckRenamed string
	//go:embed check_renamed_columns.sql
	CheckRenamedColumns string
	//go:embed suggest_table.sql
	SuggestTable string
)

var (
	//go:embed native_table.sql
	nativeTable string
	//go:embed published.sql
	published string
	//go:embed published_view.sql
	publishedView string
)

// WithPublished puts the list "published" (what publications publish) before a statement, for a server of this
// major version. A server newer than any known version gets the list of the newest known one. The server's own view
// is not used: it would wait for every session that has a published table locked.
func WithPublished(major int, statement string) string {
	if major >= 15 {
		return published + statement
	}
	return publishedView + statement
}

// NativeTable returns the statements that create the table of profile native under the given name. Its schema has to
// exist.
func NativeTable(schema, table string) string {
	named := strings.NewReplacer(
		"EXISTS outbox_due ", "EXISTS "+Identifier(table+"_due")+" ",
		"EXISTS outbox_failed ", "EXISTS "+Identifier(table+"_failed")+" ",
		"EXISTS outbox (", "EXISTS "+Identifier(schema, table)+" (",
		"ON outbox (", "ON "+Identifier(schema, table)+" (",
	)
	return named.Replace(nativeTable)
}

var (
	// ShedLockColumns reads the columns of an application's ShedLock table.
	//go:embed shedlock_columns.sql
	ShedLockColumns string

	//go:embed shedlock_take.sql
	shedLockTake string
	//go:embed shedlock_extend.sql
	shedLockExtend string
	//go:embed shedlock_release.sql
	shedLockRelease string
	//go:embed shedlock_holder.sql
	shedLockHolder string
)

// ShedLockStatements are the statements of net.javacrumbs.shedlock on one table.
type ShedLockStatements struct{ Take, Extend, Release, Holder string }

// ShedLock returns the statements for the table. zoned: its columns are timestamps with time zone, which hold the
// moment itself. The library's usual columns hold the time of day in UTC.
func ShedLock(schema, table string, zoned bool) ShedLockStatements {
	now := "timezone('utc', CURRENT_TIMESTAMP)"
	if zoned {
		now = "CURRENT_TIMESTAMP"
	}
	named := strings.NewReplacer(" shedlock AS l", " "+Identifier(schema, table)+" AS l", "timezone('utc', CURRENT_TIMESTAMP)", now)
	return ShedLockStatements{
		Take: named.Replace(shedLockTake), Extend: named.Replace(shedLockExtend),
		Release: named.Replace(shedLockRelease), Holder: named.Replace(shedLockHolder),
	}
}

// Identifier returns a quoted name. Several parts make a qualified name.
// https://www.postgresql.org/docs/current/sql-syntax-lexical.html#SQL-SYNTAX-IDENTIFIERS
func Identifier(parts ...string) string {
	quoted := make([]string, len(parts))
	for i, part := range parts {
		quoted[i] = `"` + strings.ReplaceAll(strings.ReplaceAll(part, "\x00", ""), `"`, `""`) + `"`
	}
	return strings.Join(quoted, ".")
}

var comments = regexp.MustCompile(`(?m)^ *--.*\n`)

// Bind replaces $1, $2 and so on by the arguments as literals: strings quoted, int64 and bool as they are, lists of
// strings as a JSON array of arrays. It is meant for the statements of this package, on connections that accept no
// parameters. It does not parse SQL, so a statement must have no other $, and comments only as whole lines. Bind
// removes these lines: a line break in a value would otherwise end the comment. A string with a NUL, which PostgreSQL
// cannot store, is an error, and so is an unknown parameter.
func Bind(statement string, args ...any) (string, error) {
	var out strings.Builder
	statement = comments.ReplaceAllString(statement, "")
	for {
		before, rest, found := strings.Cut(statement, "$")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, err := strconv.Atoi(rest[:digits])
		if err != nil || n < 1 || n > len(args) {
			return "", fmt.Errorf("parameter $%s of a statement with %d arguments", rest[:digits], len(args))
		}
		text, err := literal(args[n-1])
		if err != nil {
			return "", fmt.Errorf("parameter $%d: %w", n, err)
		}
		out.WriteString(text)
		statement = rest[digits:]
	}
}

func literal(arg any) (string, error) {
	switch v := arg.(type) {
	case string:
		return Quote(v)
	case int64:
		return "(" + strconv.FormatInt(v, 10) + ")", nil
	case bool:
		return strconv.FormatBool(v), nil
	case [][2]string, [][]string:
		list, err := json.Marshal(v)
		if err != nil {
			return "", err
		}
		return Quote(string(list))
	}
	return "", fmt.Errorf("a %T cannot be a literal", arg)
}

// Quote is Literal, but returns an error for a NUL, which PostgreSQL cannot store.
func Quote(s string) (string, error) {
	if strings.ContainsRune(s, 0) {
		return "", fmt.Errorf("%q holds a NUL byte, which PostgreSQL text cannot", s)
	}
	return Literal(s), nil
}

// Literal returns a string literal that means the same with either value of standard_conforming_strings. It drops
// NULs. The literal's type is unknown: it takes the type of what it is compared with or assigned to.
// https://www.postgresql.org/docs/current/sql-syntax-lexical.html#SQL-SYNTAX-STRINGS-ESCAPE
func Literal(s string) string {
	quoted := "'" + strings.ReplaceAll(strings.ReplaceAll(s, "\x00", ""), "'", "''") + "'"
	if strings.Contains(s, `\`) {
		return "E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}
