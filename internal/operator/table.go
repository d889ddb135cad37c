// Package operator carries out what operators do to rows of outbox tables: it lists, counts, requeues,
// replays and discards them. Every change is one guarded statement per page. A row that is no longer in the
// requested state, or that is locked, is skipped. So a row in flight is never changed.
//
// The package publishes nothing and does not ask for confirmation: the commands do. cmd calls it with a
// connection of its own.
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

// Bounds of a statement, and of an act.
const (
	pageRows = 500
	// MaxLimit is the largest number of rows that one act changes. Their ids are read first, so that nothing
	// is done twice to a row that fails again meanwhile.
	MaxLimit = 1_000_000
	// maxIDBytes is how many bytes of ids one act keeps: far more than MaxLimit ids of the usual kinds take.
	maxIDBytes = 256 << 20
	// MaxNamed is how many ids of changed rows are returned.
	MaxNamed         = 100
	maxExplained     = 100 // number of parks that a listing considers
	statementTimeout = time.Minute
	printTimeout     = 10 * time.Second // for a listing that has to print values to learn their lengths
	orderTimeout     = 10 * time.Second // for finding out whether order can be kept
	orderRows        = 1000             // number of rows considered for that
	lockTimeout      = 5 * time.Second
)

// Table is an outbox table with the operations of operators. It is not safe for concurrent use.
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

// Outbox returns the table as it is configured.
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

// IDText returns the id in the form that --id takes.
func (r *Row) IDText() string { return strings.Join(r.ID, ",") }

// Count is how many rows there are; Capped: more than N.
type Count struct {
	// N is how many there are.
	N int64 `json:"rows"`
	// Capped is true where there are more, since counting stopped there.
	Capped bool `json:"capped"`
}

// Count counts the selected rows, up to limit.
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
	Parks   []outbox.Park // for each pending row, the listing names the park that it waits for
	// Characters is how many characters of each column are shown; a longer text ends with an ellipsis. 0: a
	// thousand, which is also the default of status.last_error_max.
	Characters int
	// Bytes is how many bytes are listed, and at least one row; 0: no limit.
	Bytes int
	// Newest reverses the order: the last row in the order of sweeping comes first.
	Newest bool
}

// MaxPayload is the longest payload in bytes that is shown. Whole is the largest value of
// status.last_error_max, in characters.
const (
	MaxPayload = 64 << 20
	Whole      = 1_000_000
)

// List lists the selected rows in the order of sweeping. If the server cannot print a value, or not in time,
// List leaves out values that can be long to print.
func (t *Table) List(ctx context.Context, filter *tablesql.Filter, limit int, shown Shown) ([]Row, error) {
	rows, err := t.list(ctx, t.relation, printTimeout, filter, limit, shown)
	if tablesql.Unprintable(err) || postgres.HasCode(err, pgerrcode.QueryCanceled) {
		rows, err = t.list(ctx, t.relation.Brief(), statementTimeout, filter, limit, shown)
	}
	return rows, err
}

func (t *Table) list(ctx context.Context, relation *tablesql.Relation, timeout time.Duration, filter *tablesql.Filter, limit int, shown Shown) ([]Row, error) {
	parks := slices.Clone(shown.Parks)
	slices.SortStableFunc(parks, func(a, b outbox.Park) int { return cmp.Compare(a.Scope.Kind, b.Scope.Kind) }) // widest first
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

// unmarked returns, by id, why published rows of the table cannot be marked.
func unmarked(parks []outbox.Park, table *outbox.Table) map[string]string {
	reasons := map[string]string{}
	for i := range parks {
		if p := &parks[i]; p.Unmarked() && p.Scope.Table == table.String() {
			reasons[p.Scope.ID] = strings.TrimPrefix(p.Reason, "marking rows of table "+p.Scope.Table+": ")
		}
	}
	return reasons
}

// shorten cuts texts with more than most characters.
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
	if ends, bounded := ctx.Deadline(); bounded { // otherwise the server would go on for a client that has gone
		timeout = max(time.Millisecond, min(timeout, time.Until(ends)*5/6))
	}
	// The server's own timeout comes first, because its error says more.
	ctx, cancel := context.WithTimeout(ctx, timeout*6/5)
	defer cancel()
	settings := tablesql.Settings{StatementTimeout: timeout, LockTimeout: lockTimeout}
	return tablesql.Run(ctx, t.conn, settings.Step(nil), step)
}

func (t *Table) failure(doing string, err error) error {
	return fmt.Errorf("%s of table %s: %w", doing, t.relation.Table, withHint(err, t.relation.Table, t.conn))
}

// PatternFault returns why the server refused a regular expression, or "".
func PatternFault(err error) string {
	if !postgres.HasCode(err, pgerrcode.InvalidRegularExpression) {
		return ""
	}
	return postgres.ServerError(err).Message
}

// withHint adds to a refusal what to do about it.
func withHint(err error, t *outbox.Table, conn *pgx.Conn) error {
	if PatternFault(err) != "" {
		return postgres.WithHint(err, "--error is a regular expression: put \\ before a character that stands for itself")
	}
	return tablesql.WithHint(err, t, conn.Config().User)
}
