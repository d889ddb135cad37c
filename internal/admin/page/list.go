package page

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/operator"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// This file lists rows: FAILED ones, and those that somebody searches for.

// listed is a list of rows, and its JSON.
type listed struct {
	Stream string         `json:"stream"`
	Table  string         `json:"table"`
	State  string         `json:"state"`
	Total  operator.Count `json:"total"`
	Rows   []operator.Row `json:"rows"`
	// First is the first PENDING row of the key, and what that row waits for.
	First *first `json:"first_pending_of_key,omitempty"`
}

// first is the row that later rows of its key wait for.
type first struct {
	ID    []string  `json:"id"`
	Waits []waiting `json:"waits_for"`
}

// stateOf returns the state that a list is for. Without one in the request, it is the state that the client
// may see.
func (p *Page) stateOf(r *http.Request, f *filter) (tablesql.RowState, error) {
	may := p.cfg.MayAct(r)
	if f.State == "" {
		f.State = map[bool]string{true: "any", false: "failed"}[may]
	}
	state := states[f.State]
	switch {
	case state == 0:
		return 0, &asked{http.StatusBadRequest, "state is failed, pending, sent or any"}
	case state != tablesql.RowsFailed && !may:
		return 0, errOthers
	}
	return state, nil
}

// list lists rows. SENT rows, and rows of any state, come newest first; others come in the order of sweeping.
func (p *Page) list(r *http.Request, f *filter, limit int) (listed, error) {
	s, t, err := p.table(f.Stream, f.Table)
	if err != nil {
		return listed{}, err
	}
	f.Stream, f.Table = s.Name, t.String()
	state, err := p.stateOf(r, f)
	l := listed{Stream: s.Name, Table: t.String(), State: strings.ToUpper(f.State), Rows: []operator.Row{}}
	if err != nil {
		return l, err
	}
	pick, err := p.pick(f, state)
	if err != nil {
		return l, err
	}
	within := askTimeout
	if f.Error != "" {
		within = patternTime
	}
	err = p.onTable(r, within, s, t, func(ctx context.Context, d *opened) (err error) {
		shown := operator.Shown{Bytes: answerBytes, Newest: state == tablesql.RowsSent || state == tablesql.RowsAny}
		if state != tablesql.RowsFailed {
			if shown.Parks, err = d.parks(ctx); err != nil {
				return err
			}
		}
		if l.Rows, err = d.List(ctx, &pick, limit, shown); err != nil {
			return err
		}
		l.Total = operator.Count{N: int64(len(l.Rows))}
		switch {
		case len(l.Rows) < limit && !crowded(l.Rows): // these are all
		case shown.Newest: // counting all rows ever sent would take long
			l.Total.Capped = true
		default:
			if l.Total, err = d.Count(ctx, &pick, countedRows); err != nil {
				return err
			}
		}
		if f.Key != "" && p.cfg.MayAct(r) {
			l.First, err = d.firstOfKey(ctx, &pick, shown.Parks)
		}
		return err
	})
	return l, patternFault(err)
}

// crowded reports whether there may have been no room for further rows.
func crowded(rows []operator.Row) bool {
	bytes := 0
	for i := range rows {
		r := &rows[i]
		bytes += len(r.IDText()) + len(r.Topic) + len(r.Error)
		if r.Key != nil {
			bytes += len(*r.Key)
		}
	}
	return bytes > answerBytes/2 // no single row takes as much
}

// firstOfKey finds the row that later rows of a key wait for; nil: no row of the key is PENDING.
func (o *opened) firstOfKey(ctx context.Context, of *tablesql.Filter, parks []outbox.Park) (*first, error) {
	pick := tablesql.Filter{State: tablesql.RowsPending, Key: of.Key, Topic: of.Topic}
	found, err := o.Preview(ctx, &pick, 1, answerBytes)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	if parks == nil {
		if parks, err = o.parks(ctx); err != nil {
			return nil, err
		}
	}
	return &first{ID: outbox.SplitID(found[0].ID), Waits: o.waits(found[0], parks)}, nil
}

// Replays reports whether the list is of SENT rows.
func (d *rowsData) Replays() bool { return d.State == "sent" }

// Choose reports whether rows can be selected for an act.
func (d *rowsData) Choose() bool { return d.Acts && (d.State == "sent" || d.State == "failed") }

type rowsData struct {
	filter
	Listed     listed
	StreamRows []streamRow // the tables to choose from, if there are several
	Alike      []alike
	Problem    string
	Wrong      string // the form field that the problem is about, or empty
	ID         string // the id that was searched for
	Acts       bool
	Failed     bool // this is the page of FAILED rows
	Token      string
	States     []string // the states to choose from
	// Dismissable: the table has a status column, so that a row can get another status.
	Dismissable bool
}

func (p *Page) failed(w http.ResponseWriter, r *http.Request) { p.rows(w, r, true) }

// find lists rows in any state, or shows the row whose id is given.
func (p *Page) find(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	id := strings.TrimSpace(q.Get("id"))
	if id == "" {
		p.rows(w, r, false)
		return
	}
	s, t, err := p.table(q.Get("stream"), q.Get("table"))
	if err != nil {
		p.unfound(w, r, id, err)
		return
	}
	id = operator.ParseID(id, len(t.Mapping.ID))
	http.Redirect(w, r, rowPath(s.Name, t.String(), outbox.SplitID(id)), http.StatusSeeOther) // #nosec G710 -- a path of this page
}

// unfound shows the search again, for a row that could not be shown.
func (p *Page) unfound(w http.ResponseWriter, r *http.Request, id string, err error) {
	f := filter{Stream: r.URL.Query().Get("stream"), Table: r.URL.Query().Get("table")}
	d := p.search(r, false)
	if s, t, found := p.table(f.Stream, f.Table); found == nil {
		f.Stream, f.Table, d.Listed.Table = s.Name, t.String(), t.String()
	}
	d.filter, d.ID, d.Problem = f, id, err.Error()
	if code := codeOf(err); code < http.StatusInternalServerError {
		d.Wrong = "id"
	}
	p.show(w, codeOf(err), "rows", view{Title: "Find a row", Here: "rows", Data: &d})
}

// search returns the page of rows before a search.
func (p *Page) search(r *http.Request, failed bool) rowsData {
	d := rowsData{StreamRows: p.streamRows(0), Acts: p.cfg.MayAct(r), Token: p.forms.token(p.cfg.Who(r), p.cfg.Now()), Failed: failed, States: []string{"failed"}}
	if d.Acts {
		d.States = []string{"any", "pending", "sent", "failed"}
	}
	return d
}

func (p *Page) rows(w http.ResponseWriter, r *http.Request, failed bool) {
	f := filterOf(r.URL.Query())
	d := p.search(r, failed)
	if failed {
		f.State = "failed"
	}
	s, t, err := p.table(f.Stream, f.Table)
	code := http.StatusOK
	switch {
	case err == nil:
		d.Dismissable = t.Mapping.Status.Column != ""
		if failed || f.Narrowed() || f.State != "" { // a search says what it is for
			d.Listed, err = p.list(r, &f, listedRows)
		}
		f.Stream, f.Table, d.Listed.Table = s.Name, t.String(), t.String()
		if f.State == "failed" {
			d.Alike = together(f, d.Listed.Rows)
		}
	case f.Table == "" && codeOf(err) == http.StatusBadRequest:
		err = nil // a table has to be chosen
	}
	if err != nil {
		d.Problem, d.Wrong, code = err.Error(), fieldOf(err), codeOf(err)
	}
	d.filter = f
	v := view{Title: "Find a row", Here: "rows", Data: &d, JSON: "/api/v1/rows?" + f.query().Encode()}
	if d.Failed {
		v.Title, v.Here, v.JSON = "Failed rows", "failed", "/api/v1"+f.Path()
	}
	p.show(w, code, "rows", v)
}

// rowPath is the address of one row.
func rowPath(stream, table string, id []string) string {
	return "/failed/row?" + url.Values{"stream": {stream}, "table": {table}, "id": {idJSON(id)}}.Encode()
}
