package tablesql

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// This file has the SQL for what operators do to rows.

// RowState is the state of the rows that an operator selects from.
type RowState byte

// The values of RowState.
const (
	RowsPending RowState = iota + 1
	RowsFailed
	RowsSent
	RowsAny
)

func (s RowState) String() string { return [...]string{"", "PENDING", "FAILED", "SENT", "any"}[s] }

// Filter selects rows of a state. Zero fields exclude no row.
type Filter struct {
	State RowState
	IDs   []string // in the form of outbox.Row.ID
	// Topic and Key are in the form that records have. The key of a uuid mapping is the uuid's text.
	Topic, Key *string
	// Error is a PostgreSQL regular expression that matches a part of the stored error, ignoring case.
	Error string
	// Since and Until bound the row's time (see TimeOf): Since ≤ time < Until.
	Since, Until time.Time
}

// TimeOf returns the columns that Since and Until are compared with; the first one that is set counts. It
// returns none if the table has no such time.
func (r *Relation) TimeOf(state RowState) []string {
	m := &r.Table.Mapping
	var columns []string
	switch state {
	case RowsFailed:
		columns = notEmpty([]string{m.Status.FailedAt})
	case RowsSent:
		columns = notEmpty(append([]string{m.Status.SentAt}, m.Status.SentBy...))
	}
	if len(columns) > 0 {
		return columns
	}
	return notEmpty([]string{m.CreatedAt})
}

// inState returns the condition that a row is in the state, or a MappingError if the table cannot have such
// rows.
func (r *Relation) inState(state RowState) (string, error) {
	condition := map[RowState]string{RowsPending: r.ourPending(), RowsFailed: r.ourFailed(), RowsSent: r.ofOurs(r.sent()), RowsAny: r.ofOurs("true")}[state]
	hint := "its mapping has no failed state (status.failed, failed_at, or attempts with max_attempts)"
	switch {
	case !r.Table.Stateful():
		return "", r.unfit("keeps no state (published: none)", "map a status, or look at the topics")
	case condition != "false":
		return condition, nil
	case state == RowsSent && r.Table.Mapping.Published == outbox.PublishedArchive:
		hint = fmt.Sprintf("rows that were published are in the archive %s; INSERT one into %s again, as it was, to have it published again", r.Table.Mapping.Archive, r.Table)
	case state == RowsSent:
		hint = "rows that were published are deleted; nothing can be replayed"
	}
	return "", r.unfit("keeps no "+state.String()+" rows", hint)
}

// picked returns the condition of a filter.
func (r *Relation) picked(p *Params, filter *Filter) (string, error) {
	condition, err := r.inState(filter.State)
	if err != nil {
		return "", err
	}
	return r.pickedOf(p, condition, filter)
}

// pickedOf is picked for the rows for which condition is true, whatever their state.
func (r *Relation) pickedOf(p *Params, condition string, filter *Filter) (string, error) {
	var err error
	terms := []string{"(" + condition + ")"}
	add := func(term string, problem error) {
		terms, err = append(terms, term), cmp.Or(err, problem)
	}
	if len(filter.IDs) > 0 {
		add(r.withIDs(p, filter.IDs))
	}
	if filter.Topic != nil {
		add(r.topic()+" = "+p.Bind([]byte(*filter.Topic), "text"), nil)
	}
	if filter.Key != nil {
		add(r.withKey(p, *filter.Key))
	}
	if filter.Error != "" {
		add(r.withError(p, filter.Error))
	}
	if !filter.Since.IsZero() {
		add(r.timed(p, filter.State, ">=", filter.Since))
	}
	if !filter.Until.IsZero() {
		add(r.timed(p, filter.State, "<", filter.Until))
	}
	return strings.Join(terms, " AND "), err
}

func (r *Relation) withIDs(p *Params, ids []string) (string, error) {
	for _, id := range ids {
		if parts := outbox.SplitID(id); !fitAll(r.ids(), parts) {
			return "", r.unfit(fmt.Sprintf("cannot have the id %q", strings.Join(parts, ",")), "write the values of "+strings.Join(r.Table.Mapping.ID, ", ")+" in this order")
		}
	}
	return r.amongIDs(p, ids), nil
}

func (r *Relation) withKey(p *Params, key string) (string, error) {
	if r.Table.Mapping.Key == nil {
		return "", r.unfit("has records without keys", "leave the key out")
	}
	expression, sqlType, encode := r.key()
	switch r.Table.Mapping.Key.Encoding {
	case outbox.EncodingUUID:
		encode = func(key string) (string, bool) {
			key = strings.ToLower(key)
			return key, (&Column{OID: oidUUID}).fits(key)
		}
	case outbox.EncodingInt64:
		encode = func(key string) (string, bool) { return key, r.Column(r.Table.Mapping.Key.Column).fits(key) }
	case outbox.EncodingRFC3339:
		encode = momentText
	}
	value, ok := encode(key)
	if !ok {
		return "", r.unfit(fmt.Sprintf("cannot have the key %q", key), r.keyForm())
	}
	return expression + " = " + p.Bind([]byte(value), sqlType), nil
}

// finerThanNanoseconds matches digits of a second that time.Parse drops.
var finerThanNanoseconds = regexp.MustCompile(`[.,]\d{10}`)

// momentText parses a time that people write, in any zone. PostgreSQL would read the zone for timestamptz
// only, and round what is finer than microseconds.
func momentText(key string) (string, bool) {
	t, err := time.Parse(time.RFC3339Nano, key)
	if err != nil || finerThanNanoseconds.MatchString(key) {
		return "", false
	}
	return rfc3339Text(t.UTC().Format(time.RFC3339Nano))
}

// keyForm returns how a key is written.
func (r *Relation) keyForm() string {
	key := r.Table.Mapping.Key
	switch {
	case key.Parts != nil:
		form := key.Parts.Literals[0]
		for i := range key.Parts.Columns {
			form += "${" + key.Parts.Columns[i].Column + "}" + key.Parts.Literals[i+1]
		}
		return "write it as " + form
	case key.Encoding == outbox.EncodingRFC3339:
		return "write it as 2026-01-31T10:00:00.5Z, with at most six digits behind the point"
	}
	return "write it as the column " + key.Column + " prints it"
}

func (r *Relation) withError(p *Params, pattern string) (string, error) {
	column := r.Table.Mapping.Status.LastError
	if column == "" {
		return "", r.unfit("keeps no errors", "map last_error, or filter rows in another way")
	}
	// Only the database's collation knows the case of letters beyond ASCII.
	return "(" + r.Column(column).printed() + `) COLLATE "default" ~* ` + p.Bind([]byte(pattern), "text"), nil
}

func (r *Relation) timed(p *Params, state RowState, operator string, at time.Time) (string, error) {
	columns := r.TimeOf(state)
	if len(columns) == 0 {
		return "", r.unfit("has no time of its rows", "map created_at, or filter rows in another way")
	}
	moment := p.Bind([]byte(at.UTC().Format(time.RFC3339Nano)), "timestamptz")
	if len(columns) == 1 { // compared directly, so that an index serves it
		return r.when(columns[0], operator, moment), nil
	}
	return "coalesce(" + joined(columns, ", ", r.timestamp) + ") " + operator + " " + moment, nil
}

// Counting counts the selected rows, up to limit and one more.
func (r *Relation) Counting(filter *Filter, limit int) (Step, error) {
	var p Params
	where, err := r.picked(&p, filter)
	return Step{SQL: "SELECT count(*) FROM (SELECT 1 FROM " + r.Name() + " AS t WHERE " + where + " LIMIT " + strconv.Itoa(limit+1) + ") AS counted", Args: p}, err
}

// PickIDs finds the ids of the selected rows in the order of sweeping, except ids that are too long.
func (r *Relation) PickIDs(filter *Filter, limit int, found func(id string)) (Step, error) {
	var p Params
	where, err := r.picked(&p, filter)
	return Step{SQL: r.selectIDs(where) + r.inOrder(limit), Args: p, Each: r.eachID(found)}, err
}

// List says what is listed of the selected rows, in the order of sweeping.
type List struct {
	Limit int
	// Characters is how many characters are shown of each column that a writer can make long; one more is
	// read.
	Characters int
	// Payload is the length of the longest payload that is shown; 0: no payload is shown.
	Payload int
	// Parks are scopes. Listed.Park names the first scope that the row is in.
	Parks []outbox.Scope
	// Newest reverses the order: the last row in the order of sweeping comes first.
	Newest bool
}

// Listed is a row as people see it.
type Listed struct {
	ID                            []string
	State, Topic                  string
	Key                           *string // nil: it is NULL, or no key is mapped
	Created, Due, Sent, Failed    string  // in RFC 3339 and UTC, or empty
	Attempts, Error, PayloadBytes string
	Payload                       *string // nil: it is NULL, or is not shown
	Park                          int     // index in List.Parks; -1: the row is in none
	Bytes                         int     // number of bytes that were read
}

// Listing lists the selected rows for people.
func (r *Relation) Listing(filter *Filter, list List, each func(*Listed) error) (Step, error) {
	var p Params
	where, err := r.picked(&p, filter)
	columns := slices.Concat(r.shownIDs(list.Characters+1), r.listed(list.Characters+1), []string{r.shownPayload(list.Payload), r.firstCovering(&p, list.Parks)})
	read := func(row [][]byte) error {
		l, err := r.readListed(row, len(list.Parks))
		if err != nil {
			return err
		}
		return each(l)
	}
	order := r.inOrder(list.Limit)
	if list.Newest {
		order = r.newestFirst(list.Limit)
	}
	return Step{SQL: "SELECT " + strings.Join(columns, ", ") + " FROM " + r.Name() + " AS t WHERE " + where + order, Args: p, Each: read}, err
}

// newestFirst returns the reverse order of sweeping, as far as an index can provide it.
func (r *Relation) newestFirst(most int) string {
	by := slices.Concat(r.Table.Mapping.Order, r.Table.Mapping.ID)
	return " ORDER BY " + joined(by, ", ", func(column string) string { return Ref(column) + " DESC" }) + limit(most)
}

// firstCovering returns an expression for the position, from 1, of the first scope that covers the row.
func (r *Relation) firstCovering(p *Params, scopes []outbox.Scope) string {
	var cases strings.Builder
	for i := range scopes {
		condition, all := r.covering(p, scopes[i:i+1])
		if all {
			condition = "true"
		}
		if condition != "" {
			fmt.Fprintf(&cases, " WHEN %s THEN %d", condition, i+1)
		}
	}
	if cases.Len() == 0 {
		return "NULL"
	}
	return "CASE" + cases.String() + " END"
}

func (r *Relation) listed(characters int) []string {
	m := &r.Table.Mapping
	key, failure, due := "NULL", "NULL", "NULL"
	if m.Key != nil {
		key = r.shownKey(characters)
	}
	if m.Status.LastError != "" {
		failure = r.Column(m.Status.LastError).prefix(characters)
	}
	switch times := m.AvailableAfter; len(times) {
	case 0:
	case 1:
		due = r.moment(times[0])
	default:
		last := "greatest(" + joined(times, ", ", func(name string) string { return "(" + r.timestamp(name) + ")::timestamptz" }) + ")"
		due = printedTime(last, last)
	}
	topic := "left(" + r.topic() + ", " + strconv.Itoa(characters) + ")"
	return []string{
		r.state(), r.asText(topic), r.asText(key), r.moment(m.CreatedAt), due, r.moment(m.Status.SentAt), r.moment(m.Status.FailedAt),
		r.storedCount() + "::text", r.asText(failure), r.Column(m.Payload.Column).size() + "::text",
	}
}

// shownKey returns the beginning of the key as people see it.
func (r *Relation) shownKey(characters int) string {
	key := r.Table.Mapping.Key
	switch {
	case !key.Plain():
		return "left(" + r.keyText() + ", " + strconv.Itoa(characters) + ")"
	case key.Encoding == outbox.EncodingRFC3339:
		return "regexp_replace(" + printedTime(Ref(key.Column), Ref(key.Column)) + `, '[.]?0+Z$', 'Z')` // in the form that the record has
	}
	return r.Column(key.Column).prefix(characters)
}

// size returns how many bytes the column has in a record. For a column that may be too long to print, it is
// how many bytes the column takes in the table.
func (c *Column) size() string {
	if c.sized() {
		return "octet_length(" + Ref(c.Name) + ")"
	}
	fits, stored := c.within(16 << 20)
	return "CASE WHEN " + fits + " THEN octet_length(" + c.printed() + ") ELSE " + stored + " END"
}

// shownPayload returns the payload as people see it: text as it is, bytes that are not printable as octal
// escapes. It is NULL if the payload has more than most bytes.
func (r *Relation) shownPayload(most int) string {
	if most == 0 {
		return "NULL"
	}
	c := r.Column(r.Table.Mapping.Payload.Column)
	text := c.printed()
	if c.OID == oidBytea {
		text = "encode(" + Ref(c.Name) + ", 'escape')"
	}
	fits, _ := c.within(most)
	return r.asText("CASE WHEN " + fits + " THEN " + text + " END")
}

func (r *Relation) readListed(row [][]byte, parks int) (*Listed, error) {
	id, err := r.readID(row)
	if err != nil {
		return nil, err
	}
	l := &Listed{ID: id, Park: -1}
	for _, column := range row {
		l.Bytes += len(column)
	}
	row = row[len(id):]
	text := func(i int) string { return string(row[i]) }
	optional := func(i int) *string {
		if row[i] == nil {
			return nil
		}
		text := r.readText(row[i])
		return &text
	}
	l.State, l.Topic, l.Key, l.Created, l.Due, l.Sent, l.Failed = text(0), r.readText(row[1]), optional(2), text(3), text(4), text(5), text(6)
	l.Attempts, l.Error, l.PayloadBytes, l.Payload = text(7), r.readText(row[8]), text(9), optional(10)
	if row[11] != nil {
		l.Park, err = Ordinal(row[11], parks)
	}
	return l, err
}

// Change is a statement that changes rows in a given state. It skips rows that are no longer in that state,
// and rows that other sessions have locked.
type Change struct {
	relation *Relation
	sql      string
}

// Of returns the statement for the rows with these ids. It calls changed with each id whose row it changed.
func (c *Change) Of(ids []string, changed func(id string)) (Step, error) {
	var args Params
	err := c.relation.bindIDs(&args, len(ids), func(i int) string { return ids[i] })
	return Step{SQL: c.sql, Args: args, Each: ordinals(ids, changed)}, err
}

// ordinals reads rows that have only an ordinal, which is a position in ids.
func ordinals(ids []string, found func(id string)) func(row [][]byte) error {
	return func(row [][]byte) error {
		n, err := Ordinal(row[0], len(ids))
		if err == nil {
			found(ids[n])
		}
		return err
	}
}

// Requeue makes rows in a state PENDING, as if they had never been tried.
//
// If there is a resend column, only that column and the count are written: it makes a row PENDING whatever
// its other columns say.
func (r *Relation) Requeue(state RowState) (*Change, error) {
	condition, err := r.inState(state)
	if err != nil {
		return nil, err
	}
	head := r.update(r.untriedSet())
	if head == "" {
		return nil, r.unfit("has nothing to requeue by", "map a status column, sent_at, or attempts")
	}
	return r.updateOf(condition, head), nil
}

func (r *Relation) untriedSet() []assignment {
	s := &r.Table.Mapping.Status
	if s.Resend != "" {
		return []assignment{{s.Resend, "true"}, {s.Attempts, "0"}}
	}
	var set []assignment
	if s.Column != "" && len(s.Pending) > 0 {
		set = append(set, assignment{s.Column, sql.Literal(s.Pending[0])})
	}
	for _, name := range slices.Concat([]string{s.SentAt, s.FailedAt, s.ExpiresAt}, s.SentBy) {
		set = append(set, r.cleared(name))
	}
	set = append(set, assignment{s.Attempts, "0"})
	if sets(set) != "" {
		set = append(set, r.noError())
	}
	return set
}

// Delete deletes rows in a state.
func (r *Relation) Delete(state RowState) (*Change, error) {
	condition, err := r.inState(state)
	if err != nil {
		return nil, err
	}
	free, change := r.changeOf(condition, "DELETE FROM "+r.Name()+" AS t USING ")
	return &Change{r, "WITH " + free + " " + change}, nil
}

// Dismiss gives FAILED rows another status. It must not be one of the pending, sent or failed values.
func (r *Relation) Dismiss(status string) (*Change, error) {
	s := &r.Table.Mapping.Status
	switch {
	case s.Column == "":
		return nil, r.unfit("has no status column", "delete the rows instead")
	case slices.Contains(append([]string{s.Sent, s.Failed, s.Processing}, s.Pending...), status) || status == "":
		return nil, r.unfit(fmt.Sprintf("uses the status %q itself", status), "choose one that is neither pending, sent, failed nor processing, such as ARCHIVED")
	}
	condition, err := r.inState(RowsFailed)
	if err != nil {
		return nil, err
	}
	return r.updateOf(condition, r.update([]assignment{{s.Column, sql.Literal(status)}})), nil
}

// changeOf completes a statement from its FROM or USING on. free is the query for its WITH: the rows of the
// list that meet the condition and are not locked.
func (r *Relation) changeOf(condition, head string) (free, change string) {
	return "free AS MATERIALIZED (SELECT u.* FROM " + r.list() + " JOIN " + r.Name() + " AS t ON " + r.sameID() +
			" WHERE " + Opaque(condition) + " FOR UPDATE OF t SKIP LOCKED)",
		head + "free AS u WHERE " + r.sameID() + " AND " + Opaque(condition) + " RETURNING u.n"
}

// updateOf moves rows out of the state of the condition. A row that a trigger keeps in that state does not
// count as changed.
func (r *Relation) updateOf(condition, head string) *Change {
	free, change := r.changeOf(condition, head)
	return &Change{r, "WITH " + free + ", done AS (" + change + ", " + Opaque(condition) + " IS TRUE AS still) SELECT n FROM done WHERE NOT still"}
}

// Overtaken finds the ids of rows whose key has a later row, by the order columns, that is SENT. ok is false
// if rows have no key, or if the table keeps no SENT rows.
func (r *Relation) Overtaken(ids []string, found func(id string)) (step Step, ok bool, err error) {
	sent := r.sent()
	if r.Table.Mapping.Key == nil || sent == "false" {
		return Step{}, false, nil
	}
	p, from, on, err := r.bindList(ids)
	if err != nil {
		return Step{}, false, err
	}
	key, _, _ := r.key()
	var order, aliases []string
	for i, name := range r.Table.Mapping.Order {
		alias := "o" + strconv.Itoa(i)
		order, aliases = append(order, Ref(name)+" AS "+alias), append(aliases, "w."+alias)
	}
	return Step{
		SQL: "WITH w AS MATERIALIZED (SELECT u.n, " + key + " AS key, " + r.topic() + " AS topic, " + strings.Join(order, ", ") +
			" FROM " + from + " JOIN " + r.Name() + " AS t ON " + on + ") SELECT w.n FROM w WHERE EXISTS (SELECT 1 FROM " + r.Name() +
			" AS t WHERE " + Opaque(sent) + " AND " + key + " = w.key AND " + r.topic() + ` = w.topic COLLATE "C" AND ` +
			"(" + joined(r.Table.Mapping.Order, ", ", Ref) + ") > (" + strings.Join(aliases, ", ") + ")) ORDER BY w.n",
		Args: p, Each: ordinals(ids, found),
	}, true, nil
}

// Records selects the columns of the selected rows' records, in the order of sweeping. For a table without
// state it ignores the filter's state.
func (r *Relation) Records(filter *Filter, columns Selected, limit int) (Step, error) {
	var p Params
	condition := r.ofOurs("true")
	if r.Table.Stateful() {
		var err error
		if condition, err = r.inState(filter.State); err != nil {
			return Step{}, err
		}
	}
	where, err := r.pickedOf(&p, condition, filter)
	q := PageQuery{relation: r, columns: columns, params: p, where: []string{where}, limit: limit}
	step, _ := q.Step(nil)
	return step, err
}

// RecordOf selects the same columns of a row that is given as a JSON object and is not in the table. Missing
// members are NULL.
func (r *Relation) RecordOf(object []byte, columns Selected) Step {
	var p Params
	row := "json_populate_record(NULL::" + r.Name() + ", " + p.Bind(object, "json") + ")"
	return Step{SQL: "SELECT " + columns.list + " FROM (SELECT (" + row + ").*) AS t", Args: p}
}
