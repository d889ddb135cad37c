package replication

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// publicationMark is the text that a publication is compared by: its oid, its xmin and its members. A member
// is an "oid=relation" pair from pg_publication_rel. An excluded table has "!" before its pair.
func publicationMark(oid, xmin, members string) string {
	return strings.TrimSpace(oid + " " + xmin + " " + members)
}

// PassedOver is appended to a Mark when rows were passed over under it, so that no later Mark equals it.
const PassedOver = " 0=0"

// Observed is the state of a stream's slot, publication and tables, which the leader reads every few seconds.
type Observed struct {
	Retained
	Publication string            // its Mark; empty: there is no publication
	Relations   map[string]uint32 // each table's OID by the table's name; 0: none of the table's rows are in the WAL
}

// Observe reads the state of the slot, the publication and the tables. It takes about 0.2 ms. A publication
// that was dropped and re-created between two calls has skipped rows silently on version 18, and ended the
// stream on earlier versions.
func Observe(ctx context.Context, q postgres.DB, cfg Config) (w Observed, err error) {
	err = q.Ask(ctx, Observing(cfg, &w))
	return w, err
}

// Observing returns the question that Observe asks. Its answer is written to w.
func Observing(cfg Config, w *Observed) postgres.Question {
	names, _ := json.Marshal(namesOf(cfg.Tables)) // texts
	return postgres.Question{SQL: sql.Watch, Args: []any{cfg.Slot, cfg.Publication, string(names)}, Read: func(found pgx.Rows, err error) error {
		var row []string
		if err == nil {
			row, err = pgx.CollectExactlyOneRow(found, textsOf)
		}
		if err == nil {
			w.Retained, err = parseRetained(row)
		}
		if err == nil && row[6] != "" {
			w.Publication = publicationMark(row[6], row[7], row[8])
		}
		if err == nil {
			w.Relations, err = parseRelations(cfg.Tables, strings.Fields(row[9]))
		}
		if err != nil {
			return fmt.Errorf("watch slot %s, its publication and its tables: %w", cfg.Slot, err)
		}
		return nil
	}}
}

// Damage compares two Marks of a publication. It returns a phrase for a change between them that may have
// kept rows from the stream, and "" where there is none. Adding a table, or no longer excluding it, is
// harmless. Damage is a pure function.
func Damage(before, after string) string {
	if before == after || before == "" {
		return ""
	}
	if after == "" {
		return "was dropped"
	}
	b, a := strings.Fields(before), strings.Fields(after)
	if len(b) == 0 || len(a) == 0 || b[0] != a[0] {
		return "was dropped and re-created"
	}
	if len(b) < 2 || len(a) < 2 || b[1] != a[1] {
		return "was altered"
	}
	excluded := func(member string) bool { return strings.HasPrefix(member, "!") }
	if slices.ContainsFunc(b[2:], func(member string) bool { return !excluded(member) && !slices.Contains(a[2:], member) }) {
		return "lost a table, even if it has it again"
	}
	if slices.ContainsFunc(a[2:], func(member string) bool { return excluded(member) && !slices.Contains(b[2:], member) }) {
		return "excludes a table that it had"
	}
	return ""
}

func parseRelations(tables []*outbox.Table, oids []string) (map[string]uint32, error) {
	if len(oids) != len(tables) {
		return nil, fmt.Errorf("%d answers for %d tables", len(oids), len(tables))
	}
	relations := map[string]uint32{}
	for i, text := range oids {
		oid, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, err
		}
		relations[tables[i].String()] = uint32(oid)
	}
	return relations, nil
}

// Replaced compares the OIDs of the tables at two times. It returns a sentence about the first table that is
// gone or has another OID, and "" where there is none. A table that was missing before is harmless: the WAL
// has its rows only once the publication has the table. Replaced is a pure function.
func Replaced(before, after map[string]uint32) string {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		was := before[name]
		now, configured := after[name]
		switch {
		case !configured || was == 0 || was == now:
		case now == 0:
			return fmt.Sprintf("table %s is gone from the WAL: relation %d was renamed, moved, dropped or set to UNLOGGED, or another table inherits from it", name, was)
		default:
			return fmt.Sprintf("table %s is another table than before: relation %d, before %d (swapped by rename, or created again)", name, now, was)
		}
	}
	return ""
}

// Retained describes the WAL that a slot holds back.
type Retained struct {
	Insert    outbox.LSN // WAL insert position
	Restart   outbox.LSN // where the slot's WAL begins; 0: no slot, or lost
	Confirmed outbox.LSN
	Status    string // wal_status; empty: no slot
	// Safe is the number of bytes of WAL that can still be written before the slot may be lost. -1: the
	// server sets no limit, or the slot is lost.
	Safe   int64
	Active bool
	Lost   string // why the server has invalidated the slot; empty: it has not
}

// Exists reports whether the slot exists.
func (r Retained) Exists() bool { return r.Status != "" || r.Restart != 0 }

// Lag is the number of bytes of WAL between the slot's confirmed position and the insert position.
func (r Retained) Lag() uint64 {
	if r.Confirmed == 0 || r.Confirmed > r.Insert {
		return 0
	}
	return uint64(r.Insert - r.Confirmed)
}

// Bytes is the number of bytes of WAL that the slot holds back.
func (r Retained) Bytes() uint64 {
	if r.Restart == 0 || r.Restart > r.Insert {
		return 0
	}
	return uint64(r.Insert - r.Restart)
}

// HeldByOthers reports whether the slot holds back more than three quarters of the budget (bytes) although
// its confirmed position is near the end of the WAL. An open transaction in the cluster causes this.
// Confirming further frees no WAL then.
func (r Retained) HeldByOthers(budget uint64) bool {
	return budget > 0 && r.Bytes() > budget/4*3 && r.Lag() <= budget/4
}

// HolderOf returns the oldest open transaction while HeldByOthers is true for r and the budget (bytes).
// Otherwise, and when that transaction has ended, it returns the zero Blocker.
func HolderOf(ctx context.Context, q postgres.DB, r Retained, budget uint64) (Blocker, error) {
	if !r.HeldByOthers(budget) {
		return Blocker{}, nil
	}
	rows, err := texts(ctx, q, sql.SlotBlockers)
	if err != nil {
		return Blocker{}, fmt.Errorf("look for the transaction that holds back WAL: %w", err)
	}
	if by := parseBlockers(rows); len(by) > 0 {
		return by[0], nil
	}
	return Blocker{}, nil
}

// ReadRetained reads how much WAL the slot holds back.
func ReadRetained(ctx context.Context, q postgres.DB, slot string) (Retained, error) {
	w, err := Observe(ctx, q, Config{Slot: slot})
	return w.Retained, err
}

func parseRetained(row []string) (r Retained, err error) {
	for i, to := range []*outbox.LSN{&r.Insert, &r.Restart, &r.Confirmed} {
		if *to, err = outbox.ParseLSN(row[i]); err != nil {
			return r, err
		}
	}
	r.Status, r.Active = row[3], row[5] == "true"
	if r.Status == "lost" {
		r.Lost = lostText(row[10], row[11], row[12])
	}
	r.Safe, err = strconv.ParseInt(row[4], 10, 64)
	return r, err
}

// ReadHolder reads which session holds the leadership of a slot. The Holder's PID is empty where no session
// does.
func ReadHolder(ctx context.Context, q postgres.DB, slot string) (Holder, error) {
	rows, err := texts(ctx, q, sql.LockHolder, LockKey(slot))
	return parseHolder(rows), err
}

// Standbys asks which sessions wait for the leadership of a slot. It takes for a standby each session that
// does not hold the lock and whose application_name equals the leader's up to the "@" before the host. Any
// session can choose such a name, so the answer is only shown to people.
func Standbys(slot, leader string, to *[]Holder) postgres.Question {
	begin := leader[:strings.LastIndexByte(leader, '@')+1]
	return postgres.Question{SQL: sql.Standbys, Args: []any{LockKey(slot), begin}, Read: func(found pgx.Rows, err error) error {
		var rows [][]string
		if err == nil && begin != "" { // with an empty beginning, every session would match
			rows, err = pgx.CollectRows(found, textsOf)
		}
		if err != nil {
			return fmt.Errorf("look who waits for the lead of slot %s: %w", slot, err)
		}
		*to = nil
		for _, row := range rows {
			*to = append(*to, holderOf(row))
		}
		return nil
	}}
}

// heartbeatTimeout bounds a heartbeat. A heartbeat waits for no lock, so a connection that has not answered
// by then is dead. The caller has other periodic work to do.
const heartbeatTimeout = 5 * time.Second

// Heartbeat commits a transaction that changes nothing, so that the slot of an idle outbox can advance in a
// busy cluster. It returns a WAL position that this commit lies beyond. A heartbeat is invisible to other
// consumers of the WAL. A logical message would be visible: Debezium publishes such messages to a topic, and
// stops where that topic is missing. Heartbeat gives up after five seconds.
func Heartbeat(ctx context.Context, q postgres.DB) (outbox.LSN, error) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	rows, err := texts(ctx, q, sql.Heartbeat)
	if err != nil {
		return 0, fmt.Errorf("write a heartbeat: %w", err)
	}
	return outbox.ParseLSN(rows[0][0])
}

// WALEnd reads the position of the WAL's end. It gives up after five seconds.
func WALEnd(ctx context.Context, q postgres.DB) (outbox.LSN, error) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	rows, err := texts(ctx, q, sql.WALEnd)
	if err != nil {
		return 0, fmt.Errorf("ask where the WAL ends: %w", err)
	}
	return outbox.ParseLSN(rows[0][0])
}

// texts runs a statement whose columns are all text, and returns its rows.
func texts(ctx context.Context, q postgres.DB, statement string, args ...any) ([][]string, error) {
	return postgres.Collect(ctx, q, textsOf, statement, args...)
}

// textsOf reads one row of text columns. NULL becomes "".
func textsOf(row pgx.CollectableRow) ([]string, error) {
	raw := row.RawValues()
	out := make([]string, len(raw))
	for i, v := range raw {
		out[i] = string(v)
	}
	return out, nil
}

// Blocker is a transaction that other sessions wait for.
type Blocker struct {
	PID         string // of the server process; empty: a prepared transaction
	Prepared    string // the global identifier of a prepared transaction
	Database    string
	User        string
	Application string
	State       string
	Seconds     int // since the transaction began; 0: unknown
}

func (b Blocker) String() string {
	if b.Prepared != "" {
		age := ""
		if b.Seconds > 0 {
			age = fmt.Sprintf(", %d s old", b.Seconds)
		}
		return fmt.Sprintf("prepared transaction %q of %s in database %s%s (COMMIT PREPARED or ROLLBACK PREPARED ends it)", b.Prepared, b.User, b.Database, age)
	}
	since := ""
	if b.Seconds > 0 {
		since = fmt.Sprintf(", %d s in its transaction", b.Seconds)
	}
	who := strings.Join(strings.Fields(fmt.Sprintf("process %s %s %s %s %s", b.PID, b.User, b.Database, b.Application, b.State)), " ")
	return fmt.Sprintf("%s%s (SELECT pg_terminate_backend(%s) ends it)", who, since, b.PID)
}

// Exists reports whether b is a transaction at all, and not the zero Blocker.
func (b Blocker) Exists() bool { return b.PID != "" || b.Prepared != "" }

// Text is String, or "" for the zero Blocker.
func (b Blocker) Text() string {
	if !b.Exists() {
		return ""
	}
	return b.String()
}

// Lasting returns b without the fields that change while the transaction lasts. A reason made of the result
// changes only when another transaction takes the place of this one.
func (b Blocker) Lasting() Blocker {
	b.State, b.Seconds = "", 0
	return b
}

// LockedBy returns a sentence that says that a table is locked, and by which transactions.
func LockedBy(by []Blocker) string {
	who := make([]string, len(by))
	for i := range by {
		who[i] = by[i].String()
	}
	return "it is locked (ACCESS EXCLUSIVE), so nobody can read or write it: " + strings.Join(who, "; ")
}

func parseBlockers(rows [][]string) []Blocker {
	var out []Blocker
	for _, r := range rows {
		seconds, _ := strconv.Atoi(r[5]) // 0 if unreadable: the age is only shown
		b := Blocker{PID: r[0], Database: r[1], User: r[2], Application: r[3], State: r[4], Seconds: seconds, Prepared: r[6]}
		if b.PID == "0" {
			b.PID = ""
		}
		out = append(out, b)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Seconds > out[j].Seconds })
	return out
}
