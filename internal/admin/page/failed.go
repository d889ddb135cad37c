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

	"github.com/outbox-cdc/outbox-cdc/internal/operator"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// Bounds of what is listed and shown.
const (
	listedRows   = 100
	mostListed   = 1000 // over JSON
	countedRows  = 10_000
	shownPayload = 1 << 20 // bytes; larger ones are left to the command
	shownErrors  = 20      // groups

	// longestPattern is what a regular expression of an address may have: what a
	// list links to, an error of last_error_max quoted, has room.
	longestPattern = 4096
	answerBytes    = 8 << 20 // of rows in one answer
)

// filter is what a list is narrowed by, as the address has it.
type filter struct {
	Stream, Table, Topic, Key, Error, Since, Until string
}

func filterOf(q url.Values) filter {
	return filter{
		Stream: q.Get("stream"), Table: q.Get("table"), Topic: q.Get("topic"), Key: q.Get("key"),
		Error: q.Get("error"), Since: q.Get("since"), Until: q.Get("until"),
	}
}

// query is the address of the same list.
func (f filter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"stream": f.Stream, "table": f.Table, "topic": f.Topic, "key": f.Key, "error": f.Error, "since": f.Since, "until": f.Until,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// Narrowed says that the list is not of the whole table.
func (f filter) Narrowed() bool {
	return f.Topic != "" || f.Key != "" || f.Error != "" || f.Since != "" || f.Until != ""
}

// asked is a request that is wrong, as people get it.
type asked struct {
	code int
	text string
}

func (e *asked) Error() string { return e.text }

func codeOf(err error) int {
	var wrong *asked
	var unusable *tablesql.MappingError
	switch {
	case errors.As(err, &wrong):
		return wrong.code
	case errors.As(err, &unusable):
		return http.StatusUnprocessableEntity
	}
	return http.StatusBadGateway // the database
}

func (p *Page) pick(f *filter) (tablesql.Filter, error) {
	if len(f.Error) > longestPattern {
		return tablesql.Filter{}, &asked{http.StatusBadRequest, "the pattern is longer than " + strconv.Itoa(longestPattern) + " bytes"}
	}
	chosen := operator.Selection{Error: f.Error, Since: f.Since, Until: f.Until}
	if f.Topic != "" {
		chosen.Topic = &f.Topic
	}
	if f.Key != "" {
		chosen.Key = &f.Key
	}
	pick, err := chosen.Filter(tablesql.RowsFailed, p.cfg.Now())
	if err != nil {
		return pick, &asked{http.StatusBadRequest, err.Error()}
	}
	return pick, nil
}

// table finds the table that a request names; where there is one only, it needs
// no name.
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

// onTable calls f with the table, opened for one of the requests that ask a database at once.
func (p *Page) onTable(r *http.Request, within time.Duration, s *Stream, t *outbox.Table, f func(context.Context, *operator.Table) error) error {
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
	return f(ctx, table)
}

// listed is a list of failed rows, and its JSON.
type listed struct {
	Stream string         `json:"stream"`
	Table  string         `json:"table"`
	Total  operator.Count `json:"total"`
	Rows   []operator.Row `json:"rows"`
}

func (p *Page) list(r *http.Request, f *filter, limit int) (listed, error) {
	s, t, err := p.table(f.Stream, f.Table)
	if err != nil {
		return listed{}, err
	}
	f.Stream, f.Table = s.Name, t.String()
	l := listed{Stream: s.Name, Table: t.String(), Rows: []operator.Row{}}
	pick, err := p.pick(f)
	if err != nil {
		return l, err
	}
	within := askTimeout
	if f.Error != "" {
		within = patternTime
	}
	err = p.onTable(r, within, s, t, func(ctx context.Context, d *operator.Table) (err error) {
		if l.Total, err = d.Count(ctx, &pick, countedRows); err != nil {
			return err
		}
		l.Rows, err = d.List(ctx, &pick, limit, operator.Shown{Bytes: answerBytes})
		return err
	})
	return l, err
}

// alike are listed rows of one topic with one error.
type alike struct {
	Topic, Error string
	Rows         int
	Link         string
}

type failedData struct {
	filter
	Listed     listed
	StreamRows []streamRow // to choose a table from, where there are several
	Alike      []alike
	Problem    string
	Acts       bool
	Token      string
	All        string // the address of the list without a filter
	// Dismissable: the table has a status column, so a row can get another status.
	Dismissable bool
}

func (p *Page) failed(w http.ResponseWriter, r *http.Request) {
	f := filterOf(r.URL.Query())
	d := failedData{StreamRows: p.streamRows(), Acts: p.cfg.MayAct(r), Token: p.forms.token(p.cfg.Who(r), p.cfg.Now())}
	_, t, err := p.table(f.Stream, f.Table)
	code := http.StatusOK
	switch {
	case err == nil:
		d.Dismissable = t.Mapping.Status.Column != ""
		d.Listed, err = p.list(r, &f, listedRows)
		d.Alike = together(f, d.Listed.Rows)
	case f.Table == "" && codeOf(err) == http.StatusBadRequest:
		err = nil // one is to be chosen
	}
	if err != nil {
		d.Problem, code = err.Error(), codeOf(err)
	}
	d.filter, d.All = f, failedPath(f.Stream, f.Table)
	p.show(w, code, "failed", view{Title: "Failed rows", Here: "failed", Data: d, JSON: "/api/v1/failed?" + f.query().Encode()})
}

// together counts listed rows by topic and error, the commonest first, with the
// address of a list of them alone.
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
				one.Error = "^" + regexp.QuoteMeta(begin) // the rest of it was cut
			} else if r.Error != "" {
				one.Error = "^" + regexp.QuoteMeta(r.Error) + "$"
			}
			all = append(all, alike{Topic: r.Topic, Error: r.Error, Link: "/failed?" + one.query().Encode()})
		}
		all[n].Rows++
	}
	slices.SortStableFunc(all, func(a, b alike) int { return cmp.Compare(b.Rows, a.Rows) })
	return all[:min(len(all), shownErrors)]
}

// rowID reads the id of a row in an address or a form: a JSON list of the
// values of the id columns.
func rowID(text string, t *outbox.Table) (string, error) {
	var parts []string
	if err := json.Unmarshal([]byte(text), &parts); err != nil || len(parts) != len(t.Mapping.ID) {
		return "", &asked{http.StatusBadRequest, "an id is a JSON list of the values of " + strconv.Quote(t.Mapping.ID[0]) + " and what else makes the id"}
	}
	return outbox.JoinID(parts...), nil
}

type rowData struct {
	filter
	Row         *operator.Row
	IDColumns   []string
	Payload     string
	As          string   // text, json, hex
	Forms       []string // that there are
	Note        string   // why there is no payload
	Acts        bool
	Dismissable bool
	Token       string
}

// findRow reads one FAILED row, for those who may act one in whatever state, and
// its payload where it may be shown.
func (p *Page) findRow(r *http.Request) (row operator.Row, payload []byte, t *outbox.Table, err error) {
	q := r.URL.Query()
	s, t, err := p.table(q.Get("stream"), q.Get("table"))
	if err != nil {
		return row, nil, nil, err
	}
	id, err := rowID(q.Get("id"), t)
	if err != nil {
		return row, nil, nil, err
	}
	pick := tablesql.Filter{State: tablesql.RowsFailed, IDs: []string{id}}
	if p.cfg.MayAct(r) {
		pick.State = tablesql.RowsAny
	}
	err = p.onTable(r, askTimeout, s, t, func(ctx context.Context, d *operator.Table) error {
		read := func(payload bool) error {
			found, err := d.List(ctx, &pick, 1, operator.Shown{Payload: payload, Whole: true})
			if err != nil {
				return err
			}
			if len(found) == 0 {
				return &asked{http.StatusNotFound, "there is no such row (any more); rows that are not FAILED are shown to operators only"}
			}
			row = found[0]
			return nil
		}
		if err := read(false); err != nil || !p.cfg.ShowPayloads || row.PayloadBytes == nil || *row.PayloadBytes > shownPayload {
			return err
		}
		if err := read(true); err != nil { // now that its size is known
			return err
		}
		payload = d.PayloadOf(&row)
		return nil
	})
	return row, payload, t, err
}

func (p *Page) row(w http.ResponseWriter, r *http.Request) {
	row, payload, t, err := p.findRow(r)
	if err != nil {
		p.say(w, codeOf(err), "Row", message{Text: err.Error(), Link: "/failed", LinkText: "To the failed rows"})
		return
	}
	d := rowData{
		filter: filterOf(r.URL.Query()), Row: &row, IDColumns: t.Mapping.ID, Acts: p.cfg.MayAct(r) && row.State == "FAILED",
		Dismissable: t.Mapping.Status.Column != "", Token: p.forms.token(p.cfg.Who(r), p.cfg.Now()),
	}
	d.Table = t.String()
	switch {
	case !p.cfg.ShowPayloads:
		d.Note = "Payloads are not shown: http.show_payloads of the configuration allows it."
	case row.PayloadBytes == nil:
		d.Note = "The payload is NULL."
	case payload == nil:
		d.Note = "The payload is too large for this page: outbox-cdc failed show --payload prints it."
	default:
		d.As, d.Payload = printed(payload, r.URL.Query().Get("as"))
		d.Forms = []string{"json", "text", "hex"}
	}
	p.show(w, http.StatusOK, "row", view{Title: "Row " + row.IDText(), Here: "failed", Data: d, JSON: "/api/v1/failed/row?" + r.URL.RawQuery})
}

// printed is a payload as text, JSON or hex: as asked for, or as it looks.
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
	text, _ := json.Marshal(id) // strings always can
	return string(text)
}
