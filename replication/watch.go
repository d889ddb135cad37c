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

// publicationMark is oid, xmin and the members of a publication as text.
// Members are "oid=relation" of pg_publication_rel, with a "!" before one that is excluded.
func publicationMark(oid, xmin, members string) string {
	return strings.TrimSpace(oid + " " + xmin + " " + members)
}

// PassedOver is appended to a Mark under which rows were passed over: no later Mark equals
// it.
const PassedOver = " 0=0"

// Watched is what a leader looks at every few seconds.
type Watched struct {
	Retained
	Publication string            // its Mark; empty: it does not exist
	Relations   map[string]uint32 // which each table is, by OID; 0: there is none in the WAL
}

// Watch looks at a slot, its publication and its tables in 0.2 ms. A publication that was
// dropped and re-created between two calls has silently passed over rows on version 18, and
// ended the stream on earlier ones.
func Watch(ctx context.Context, q postgres.DB, cfg Config) (w Watched, err error) {
	err = q.Ask(ctx, Watching(cfg, &w))
	return w, err
}

// Watching is the question that Watch asks.
func Watching(cfg Config, w *Watched) postgres.Question {
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

// Damage compares two Marks of a publication: it says what happened between
// them that may have kept rows from the stream, or nothing. Tables that were
// added, or are not excluded any more, do no harm. It is pure.
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

// Replaced compares which relations the tables were and are: it says which table is
// another one, or gone, or nothing. One that was missing and came back did no harm: its
// rows are not in the WAL until the publication has it. It is pure.
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

// Retained is how much WAL a slot holds back.
type Retained struct {
	Insert    outbox.LSN // WAL insert position
	Restart   outbox.LSN // where the slot's WAL begins; 0: no slot, or lost
	Confirmed outbox.LSN
	Status    string // wal_status; empty: no slot
	// Safe is how many bytes may still be written before the slot may be lost;
	// -1: no limit is set, or it is lost.
	Safe   int64
	Active bool
	Lost   string // why the server has invalidated it
}

// Exists says whether there is such a slot.
func (r Retained) Exists() bool { return r.Status != "" || r.Restart != 0 }

// Lag is the WAL between the slot's confirmed position and the server's end, in bytes.
func (r Retained) Lag() uint64 {
	if r.Confirmed == 0 || r.Confirmed > r.Insert {
		return 0
	}
	return uint64(r.Insert - r.Confirmed)
}

// Bytes is the WAL held back, in bytes; 0 where nothing is.
func (r Retained) Bytes() uint64 {
	if r.Restart == 0 || r.Restart > r.Insert {
		return 0
	}
	return uint64(r.Insert - r.Restart)
}

// HeldByOthers says that the slot holds back most of a budget although its position is near
// the end of the WAL: an open transaction of anybody holds it, and moving on frees nothing.
func (r Retained) HeldByOthers(budget uint64) bool {
	return budget > 0 && r.Bytes() > budget/4*3 && r.Lag() <= budget/4
}

// HolderOf is the oldest open transaction, if others have the slot hold back most of the
// budget; none if they do not, or it has ended.
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

// ReadRetained asks how much WAL the slot holds back.
func ReadRetained(ctx context.Context, q postgres.DB, slot string) (Retained, error) {
	w, err := Watch(ctx, q, Config{Slot: slot})
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

// ReadHolder asks who holds the leadership over a slot; PID is empty: nobody.
func ReadHolder(ctx context.Context, q postgres.DB, slot string) (Holder, error) {
	rows, err := texts(ctx, q, sql.LockHolder, LockKey(slot))
	return parseHolder(rows), err
}

// Standbys asks which sessions wait for the leadership over a slot: those whose names begin as the leader's does, up to
// its host. Any session may have such a name: the answer is for people only.
func Standbys(slot, leader string, to *[]Holder) postgres.Question {
	begin := leader[:strings.LastIndexByte(leader, '@')+1]
	return postgres.Question{SQL: sql.Standbys, Args: []any{LockKey(slot), begin}, Read: func(found pgx.Rows, err error) error {
		var rows [][]string
		if err == nil && begin != "" { // else any session would be one
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

// heartbeatTimeout bounds a heartbeat. It waits for no lock, so a connection without an answer for
// so long is silent, and its caller has other regular work to do.
const heartbeatTimeout = 5 * time.Second

// Heartbeat commits a transaction that changes nothing, so that the slot of an idle
// outbox can move on in a busy cluster. It returns a position that the WAL passes by
// that. Other consumers of the WAL do not see it, as they would see a message: Debezium
// sends messages to a topic, and stops where that topic does not exist. It gives up after
// five seconds.
func Heartbeat(ctx context.Context, q postgres.DB) (outbox.LSN, error) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	rows, err := texts(ctx, q, sql.Heartbeat)
	if err != nil {
		return 0, fmt.Errorf("write a heartbeat: %w", err)
	}
	return outbox.ParseLSN(rows[0][0])
}

// WALEnd asks where the WAL ends. It gives up after five seconds.
func WALEnd(ctx context.Context, q postgres.DB) (outbox.LSN, error) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	rows, err := texts(ctx, q, sql.WALEnd)
	if err != nil {
		return 0, fmt.Errorf("ask where the WAL ends: %w", err)
	}
	return outbox.ParseLSN(rows[0][0])
}

// texts reads rows of text columns.
func texts(ctx context.Context, q postgres.DB, statement string, args ...any) ([][]string, error) {
	return postgres.Collect(ctx, q, textsOf, statement, args...)
}

// textsOf reads a row of text columns; NULL reads as "".
func textsOf(row pgx.CollectableRow) ([]string, error) {
	raw := row.RawValues()
	out := make([]string, len(raw))
	for i, v := range raw {
		out[i] = string(v)
	}
	return out, nil
}

// Blocker is a transaction that others wait for.
type Blocker struct {
	PID         string // empty: a prepared transaction
	Prepared    string // its global identifier
	Database    string
	User        string
	Application string
	State       string
	Seconds     int // since it began; 0: not to be seen
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

// Exists says whether there is one.
func (b Blocker) Exists() bool { return b.PID != "" || b.Prepared != "" }

// Text is String, and empty where there is none.
func (b Blocker) Text() string {
	if !b.Exists() {
		return ""
	}
	return b.String()
}

// Lasting is b without what changes from one look to the next, so that a reason made of
// it changes only with the transaction.
func (b Blocker) Lasting() Blocker {
	b.State, b.Seconds = "", 0
	return b
}

// LockedBy says that a table is locked, and by whom.
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
		seconds, _ := strconv.Atoi(r[5]) // only for people
		b := Blocker{PID: r[0], Database: r[1], User: r[2], Application: r[3], State: r[4], Seconds: seconds, Prepared: r[6]}
		if b.PID == "0" {
			b.PID = ""
		}
		out = append(out, b)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Seconds > out[j].Seconds })
	return out
}
