package page

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/operator"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// Bounds of what is listed and shown.
const (
	listedRows   = 100
	mostListed   = 1000 // through JSON
	countedRows  = 10_000
	shownPayload = 1 << 20 // bytes; larger payloads are left to the command
	shownColumn  = 100_000 // characters of each other column of a row
	shownErrors  = 20      // groups of errors

	// longestPattern is the longest regular expression in an address. It has room for the pattern that a list
	// links to: an error of last_error_max characters, quoted.
	longestPattern = 4096
	answerBytes    = 1 << 20 // bytes of rows in one response: as JSON they may take six times that, twice
)

// filter is what a list is narrowed by, as the address has it.
type filter struct {
	Stream, Table, Topic, Key, Error, Since, Until string
	// State is a key of states. Clients that may not act see only FAILED rows.
	State string
}

func filterOf(q url.Values) filter {
	return filter{
		Stream: q.Get("stream"), Table: q.Get("table"), Topic: q.Get("topic"), Key: q.Get("key"),
		Error: q.Get("error"), Since: q.Get("since"), Until: q.Get("until"), State: q.Get("state"),
	}
}

// states are the states that a list can be of, by their names in addresses.
var states = map[string]tablesql.RowState{
	"failed": tablesql.RowsFailed, "pending": tablesql.RowsPending, "sent": tablesql.RowsSent, "any": tablesql.RowsAny,
}

// Path returns the address of the list.
func (f filter) Path() string {
	if f.State != "failed" {
		return "/rows?" + f.query().Encode()
	}
	f.State = ""
	return "/failed?" + f.query().Encode()
}

// Everything returns the address of the list of the same state without other filters.
func (f filter) Everything() string {
	return filter{Stream: f.Stream, Table: f.Table, State: f.State}.Path()
}

func (f filter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"stream": f.Stream, "table": f.Table, "topic": f.Topic, "key": f.Key, "error": f.Error, "since": f.Since, "until": f.Until, "state": f.State,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// Narrowed reports whether the list has only a part of the table.
func (f filter) Narrowed() bool {
	return f.Topic != "" || f.Key != "" || f.Error != "" || f.Since != "" || f.Until != ""
}

// asked is an error of the request, with the text that people see.
type asked struct {
	code int
	text string
}

func (e *asked) Error() string { return e.text }

// wrongField is an error in one field of a form.
type wrongField struct {
	asked
	field string
}

func (e *wrongField) Unwrap() error { return &e.asked }

// fieldOf returns the form field that the error is about, or "".
func fieldOf(err error) string {
	if wrong, is := errors.AsType[*wrongField](err); is {
		return wrong.field
	}
	return ""
}

// field is one field of a form, for its template.
type field struct {
	Name, Label, Value, Hint string
	Wrong                    bool
}

func fieldFor(name, label, value, hint, wrong string) field {
	return field{name, label, value, hint, name == wrong}
}

func codeOf(err error) int {
	var wrong *asked
	var unusable *tablesql.MappingError
	switch {
	case errors.As(err, &wrong):
		return wrong.code
	case errors.As(err, &unusable):
		return http.StatusUnprocessableEntity
	}
	return http.StatusBadGateway // the database failed
}

func (p *Page) pick(f *filter, state tablesql.RowState) (tablesql.Filter, error) {
	if len(f.Error) > longestPattern {
		return tablesql.Filter{}, &wrongField{asked{http.StatusBadRequest, "the pattern is longer than " + strconv.Itoa(longestPattern) + " bytes"}, "error"}
	}
	chosen := operator.Selection{Error: f.Error, Since: f.Since, Until: f.Until}
	if f.Topic != "" {
		chosen.Topic = &f.Topic
	}
	if f.Key != "" {
		chosen.Key = &f.Key
	}
	pick, err := chosen.Filter(state, p.cfg.Now())
	if wrong, is := errors.AsType[*operator.WrongField](err); is {
		return pick, &wrongField{asked{http.StatusBadRequest, wrong.Error()}, wrong.Field}
	}
	return pick, err
}

// patternFault turns the server's refusal of a regular expression into an error of that form field.
func patternFault(err error) error {
	if why := operator.PatternFault(err); why != "" {
		return &wrongField{asked{http.StatusBadRequest, "“Error matches” is no regular expression: " + why + "; put \\ before a character that stands for itself"}, "error"}
	}
	return err
}

// table finds the table that a request names. The name may be left out if there is only one table.
func (p *Page) table(stream, name string) (*Stream, *outbox.Table, error) {
	var found []*outbox.Table
	var of *Stream
	for i := range p.cfg.Streams {
		for _, t := range p.cfg.Streams[i].Tables {
			if (stream == "" || stream == p.cfg.Streams[i].Name) && (name == "" || name == t.String()) {
				found, of = append(found, t), &p.cfg.Streams[i]
			}
		}
	}
	switch {
	case len(found) == 0:
		return nil, nil, &asked{http.StatusNotFound, "there is no table " + strconv.Quote(name) + " of a stream " + strconv.Quote(stream)}
	case len(found) > 1:
		return nil, nil, &asked{http.StatusBadRequest, "there are several tables: name one, and its stream"}
	}
	return of, found[0], nil
}

// opened is a table of a stream, opened for one request.
type opened struct {
	*operator.Table
	of   *Stream
	conn *pgx.Conn
	now  time.Time
}

// parks returns the stream's parks in the database.
func (o *opened) parks(ctx context.Context) ([]outbox.Park, error) {
	if o.of.Parks == nil {
		return nil, nil
	}
	return o.of.Parks(ctx, o.conn)
}

func (o *opened) waits(row *outbox.Row, parks []outbox.Park) []waiting {
	s := o.of.Report()
	return waitsFor(row, parks, &s, o.now)
}

// onTable opens the table and calls f. Only a few requests may use a database at the same time.
func (p *Page) onTable(r *http.Request, within time.Duration, s *Stream, t *outbox.Table, f func(context.Context, *opened) error) error {
	ctx, done, err := p.bounded(r, within)
	if err != nil {
		return err
	}
	defer done()
	connecting, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	conn, err := s.Connect(connecting)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	table, err := operator.Open(ctx, conn, t)
	if err != nil {
		return err
	}
	return f(ctx, &opened{Table: table, of: s, conn: conn, now: p.cfg.Now()})
}

// alike are listed rows of one topic with the same error.
type alike struct {
	Topic, Error string
	Rows         int
	Link         string
}

// together counts listed rows by topic and error, most frequent first. Each has the address of a list of its
// rows.
func together(f filter, list []operator.Row) []alike {
	var all []alike
	at := map[[2]string]int{}
	for i := range list {
		r := &list[i]
		n, known := at[[2]string{r.Topic, r.Error}]
		if !known {
			n = len(all)
			at[[2]string{r.Topic, r.Error}] = n
			one := f
			one.Topic = r.Topic
			if begin, cut := strings.CutSuffix(r.Error, outbox.Ellipsis); cut {
				one.Error = "^" + regexp.QuoteMeta(begin) // the rest of the error was cut
			} else if r.Error != "" {
				one.Error = "^" + regexp.QuoteMeta(r.Error) + "$"
			}
			all = append(all, alike{Topic: r.Topic, Error: r.Error, Link: one.Path()})
		}
		all[n].Rows++
	}
	slices.SortStableFunc(all, func(a, b alike) int { return cmp.Compare(b.Rows, a.Rows) })
	return all[:min(len(all), shownErrors)]
}

// printed formats a payload as text, JSON or hex: as requested, or as fits its content.
func printed(payload []byte, as string) (string, string) {
	var value any
	if json.Unmarshal(payload, &value) == nil && as != "text" && as != "hex" {
		if indented, err := json.MarshalIndent(json.RawMessage(payload), "", "  "); err == nil {
			return "json", string(indented)
		}
	}
	if as != "hex" && utf8.Valid(payload) {
		return "text", string(payload)
	}
	return "hex", hex.Dump(payload)
}

func idJSON(id []string) string {
	text, _ := json.Marshal(id) // a string can always be marshalled
	return string(text)
}
