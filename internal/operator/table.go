// Package operator does what operators do to rows of outbox tables: list, count,
// requeue, replay and discard them. Every change is one guarded statement per
// page: a row that is not (any more) in the state that was asked for, and one
// that somebody has locked, is passed over, so a row in flight is never touched.
//
// It publishes nothing and asks nobody for permission: the commands do. It is
// called by cmd, with a connection of its own.
package operator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// Bounds of what one statement does.
const (
	pageRows = 500
	// MaxLimit is the most rows that one act takes: their ids are read first, so
	// that nothing is done twice to a row that fails again meanwhile.
	MaxLimit = 1_000_000
	// maxIDBytes of the rows that one act takes are kept: far more than MaxLimit ids of the usual kinds have.
	maxIDBytes = 256 << 20
	// MaxNamed is how many ids of changed rows are returned.
	MaxNamed         = 100
	maxExplained     = 100 // parks that a listing looks at
	statementTimeout = time.Minute
	printTimeout     = 10 * time.Second // of a listing that prints values to learn their lengths
	orderTimeout     = 10 * time.Second // of the look whether order can be kept
	orderRows        = 1000             // rows that are looked at for it
	lockTimeout      = 5 * time.Second
)

// Table is an outbox table as operators see it. It is not safe for concurrent use.
type Table struct {
	conn     *pgx.Conn
	relation *tablesql.Relation
}

// Open reads the table's columns from the catalogue.
func Open(ctx context.Context, conn *pgx.Conn, t *outbox.Table) (*Table, error) {
	relation, err := tablesql.Load(ctx, conn, t)
	if err != nil {
		return nil, withHint(err, t, conn)
	}
	return &Table{conn: conn, relation: relation}, nil
}

// Outbox is the table as it is configured.
func (t *Table) Outbox() *outbox.Table { return t.relation.Table }

// Row is one row for people. Times are RFC 3339 in UTC.
type Row struct {
	// Table that the row is in.
	Table string `json:"table"`
	// ID is the values of the id columns, in the mapping's order.
	ID []string `json:"id"`
	// State is PENDING, FAILED or SENT (any other final state, too).
	State string `json:"state"`
	// Topic of the record.
	Topic string `json:"topic"`
	// Key of the record; null: none.
	Key *string `json:"key"`
	// Created is the row's `created_at`. This and the next three are missing where they are NULL or
	// not mapped.
	Created string `json:"created_at,omitempty"`
	// Due is when the row may be published.
	Due string `json:"available_after,omitempty"`
	// Sent is when it was marked SENT.
	Sent string `json:"sent_at,omitempty"`
	// Failed is when it became FAILED.
	Failed string `json:"failed_at,omitempty"`
	// Attempts that were charged, as stored.
	Attempts int64 `json:"attempts"`
	// Error is the last error, as stored.
	Error string `json:"error,omitempty"`
	// PayloadBytes is the size of the payload; null: it is NULL.
	PayloadBytes *int64 `json:"payload_bytes"`
	// Payload itself, only with `failed show --payload`.
	Payload *string `json:"payload,omitempty"`
	// Parked is the park that a pending row waits for, and why.
	Parked string `json:"parked,omitempty"`
}

// IDText is the id as --id takes it.
func (r *Row) IDText() string { return strings.Join(r.ID, ",") }

// Count is how many rows there are; Capped: more than N.
type Count struct {
	// N is how many there are.
	N int64 `json:"rows"`
	// Capped is true where there are more, since counting stopped there.
	Capped bool `json:"capped"`
}

// Count counts picked rows, up to a limit.
func (t *Table) Count(ctx context.Context, filter *tablesql.Filter, limit int) (Count, error) {
	step, err := t.relation.Counting(filter, limit)
	if err != nil {
		return Count{}, err
	}
	var c Count
	step.Each = func(row [][]byte) (err error) {
		c.N, err = tablesql.Count(row[0])
		return err
	}
	if err := t.run(ctx, statementTimeout, step); err != nil {
		return Count{}, t.failure("count rows", err)
	}
	if c.N > int64(limit) {
		c = Count{N: int64(limit), Capped: true}
	}
	return c, nil
}

// Shown says what a listing shows.
type Shown struct {
	// Payload: payloads of at most MaxPayload bytes are shown.
	Payload bool
	Parks   []outbox.Park // pending rows are told which of them they wait for
	// Characters of each column at most, 0: a thousand, as many as status.last_error_max is unless it is set. What is
	// longer ends in an ellipsis.
	Characters int
	// Bytes at most are listed, and at least one row; 0: any number.
	Bytes int
	// Newest: the last in the order of sweeping come first.
	Newest bool
}

// MaxPayload is the longest payload that is shown, Whole as many characters as status.last_error_max may be.
const (
	MaxPayload = 64 << 20
	Whole      = 1_000_000
)

// List lists picked rows in the order of sweeping. If the server cannot print a value, or
// not in time, it lists them without values that can be long to print.
func (t *Table) List(ctx context.Context, filter *tablesql.Filter, limit int, shown Shown) ([]Row, error) {
	rows, err := t.list(ctx, t.relation, printTimeout, filter, limit, shown)
	if tablesql.Unprintable(err) || postgres.HasCode(err, pgerrcode.QueryCanceled) {
		rows, err = t.list(ctx, t.relation.Brief(), statementTimeout, filter, limit, shown)
	}
	return rows, err
}

func (t *Table) list(ctx context.Context, relation *tablesql.Relation, timeout time.Duration, filter *tablesql.Filter, limit int, shown Shown) ([]Row, error) {
	parks := slices.Clone(shown.Parks)
	slices.SortStableFunc(parks, func(a, b outbox.Park) int { return cmp.Compare(a.Scope.Kind, b.Scope.Kind) }) // the widest first
	parks = parks[:min(len(parks), maxExplained)]
	characters := cmp.Or(shown.Characters, 1000)
	list := tablesql.List{Limit: limit, Characters: characters, Newest: shown.Newest}
	if shown.Payload {
		list.Payload = MaxPayload
	}
	for i := range parks {
		list.Parks = append(list.Parks, parks[i].Scope)
	}
	rows, bytes := []Row{}, 0
	unmarked := unmarked(shown.Parks, t.relation.Table)
	step, err := relation.Listing(filter, list, func(l *tablesql.Listed) error {
		bytes += l.Bytes
		if shown.Bytes > 0 && bytes > shown.Bytes && len(rows) > 0 {
			return nil
		}
		r, err := t.row(l, parks)
		if reason, ok := unmarked[outbox.JoinID(r.ID...)]; ok && r.State == "PENDING" {
			r.Parked = "published, cannot be marked: " + reason
		}
		r.shorten(characters)
		rows = append(rows, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := t.run(ctx, timeout, step); err != nil {
		return nil, t.failure("list rows", err)
	}
	return rows, nil
}

// unmarked is why rows of the table that were published cannot be marked, by their ids.
func unmarked(parks []outbox.Park, table *outbox.Table) map[string]string {
	reasons := map[string]string{}
	for i := range parks {
		if p := &parks[i]; p.Unmarked() && p.Scope.Table == table.String() {
			reasons[p.Scope.ID] = strings.TrimPrefix(p.Reason, "marking rows of table "+p.Scope.Table+": ")
		}
	}
	return reasons
}

// shorten cuts what has more characters than were to be shown.
func (r *Row) shorten(most int) {
	texts := []*string{&r.Topic, &r.Error}
	if r.Key != nil {
		texts = append(texts, r.Key)
	}
	for i := range r.ID {
		texts = append(texts, &r.ID[i])
	}
	for _, text := range texts {
		*text = outbox.Cut(*text, most)
	}
}

var states = map[tablesql.State]string{tablesql.Pending: "PENDING", tablesql.Failed: "FAILED", tablesql.Settled: "SENT"}

func (t *Table) row(l *tablesql.Listed, parks []outbox.Park) (Row, error) {
	r := Row{
		Table: t.relation.Table.String(), ID: l.ID, State: states[tablesql.State(l.State[0])], Topic: l.Topic, Key: l.Key,
		Created: l.Created, Due: l.Due, Sent: l.Sent, Failed: l.Failed, Error: l.Error, Payload: l.Payload,
	}
	var err error
	if r.Attempts, err = tablesql.Count([]byte(l.Attempts)); err != nil {
		return r, err
	}
	if l.PayloadBytes != "" {
		n, err := strconv.ParseInt(l.PayloadBytes, 10, 64)
		if err != nil {
			return r, fmt.Errorf("reading the size of a payload: %w", err)
		}
		r.PayloadBytes = &n
	}
	if l.Park >= 0 && r.State == "PENDING" {
		r.Parked = parks[l.Park].Scope.Kind.String() + ": " + parks[l.Park].Reason
	}
	return r, nil
}

func (t *Table) run(ctx context.Context, timeout time.Duration, step tablesql.Step) error {
	if ends, bounded := ctx.Deadline(); bounded { // else the server would go on for an asker who is gone
		timeout = max(time.Millisecond, min(timeout, time.Until(ends)*5/6))
	}
	// The server's own limit comes first and says more.
	ctx, cancel := context.WithTimeout(ctx, timeout*6/5)
	defer cancel()
	settings := tablesql.Settings{StatementTimeout: timeout, LockTimeout: lockTimeout}
	return tablesql.Run(ctx, t.conn, settings.Step(nil), step)
}

func (t *Table) failure(doing string, err error) error {
	return fmt.Errorf("%s of table %s: %w", doing, t.relation.Table, withHint(err, t.relation.Table, t.conn))
}

// PatternFault is why the server refused a regular expression, or empty.
func PatternFault(err error) string {
	if !postgres.HasCode(err, pgerrcode.InvalidRegularExpression) {
		return ""
	}
	return postgres.ServerError(err).Message
}

// withHint adds what ends a refusal.
func withHint(err error, t *outbox.Table, conn *pgx.Conn) error {
	if PatternFault(err) != "" {
		return postgres.WithHint(err, "--error is a regular expression: put \\ before a character that stands for itself")
	}
	return tablesql.WithHint(err, t, conn.Config().User)
}
