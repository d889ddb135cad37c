package page

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/outbox-cdc/outbox-cdc/internal/operator"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// This file shows the records that rows would become. It publishes and changes nothing.

// Bounds of a preview.
const (
	previewed     = 10
	mostPreviewed = 100     // through JSON
	shownValue    = 4 << 10 // bytes of a value on the page; JSON has all of it
	shownHeaders  = 30      // headers of a record on the page
)

// preview is the records of a table's rows, and its JSON form.
type preview struct {
	Stream  string            `json:"stream"`
	Table   string            `json:"table"`
	State   string            `json:"state"` // PENDING, FAILED, or ANY for given ids
	Records []operator.Record `json:"records"`
	// Hidden: values are left out, because payloads are not shown.
	Hidden bool `json:"values_hidden"`
}

// errOthers: on every page, only operators see rows that are not FAILED.
var errOthers = &asked{http.StatusForbidden, "only an operator of http.auth sees rows that are not FAILED; records of FAILED rows are shown with state=failed"}

// previewFilter returns the filter for the rows that a request asks for.
func (p *Page) previewFilter(r *http.Request, t *outbox.Table) (tablesql.Filter, error) {
	q, may := r.URL.Query(), p.cfg.MayAct(r)
	filter := tablesql.Filter{State: tablesql.RowsFailed}
	if text := q.Get("id"); text != "" {
		id, err := rowID(text, t)
		filter.IDs = []string{id}
		if may {
			filter.State = tablesql.RowsAny
		}
		return filter, err
	}
	switch state := q.Get("state"); {
	case state == "failed", state == "" && !may:
	case state != "" && state != "pending":
		return filter, &asked{http.StatusBadRequest, "state is pending or failed"}
	case !may:
		return filter, errOthers
	default:
		filter.State = tablesql.RowsPending
	}
	return filter, nil
}

func (p *Page) records(r *http.Request, limit int) (preview, error) {
	q := r.URL.Query()
	s, t, err := p.table(q.Get("stream"), q.Get("table"))
	if err != nil {
		return preview{}, err
	}
	list := preview{Stream: s.Name, Table: t.String(), Records: []operator.Record{}, Hidden: !p.cfg.ShowPayloads}
	filter, err := p.previewFilter(r, t)
	if err != nil {
		return list, err
	}
	list.State = strings.ToUpper(filter.State.String())
	err = p.onTable(r, askTimeout, s, t, func(ctx context.Context, d *opened) error {
		rows, err := d.Preview(ctx, &filter, limit, answerBytes)
		for _, row := range rows {
			record := recordOf(row)
			if list.Hidden {
				record.Hide()
			}
			list.Records = append(list.Records, record)
		}
		return err
	})
	return list, err
}

// recordOf returns a row's record. It has only the lengths of values that are too long for a response.
func recordOf(row *outbox.Row) operator.Record {
	record := operator.RecordOf(row)
	if row.Size() > answerBytes {
		record.Hide()
		record.HideKey()
	}
	return record
}

type previewData struct {
	preview
	StreamRows []streamRow // the tables to choose from, if there are several
	Records    []shownRecord
	One        bool // a single row was asked for
	Acts       bool
	Problem    string
	Limit      int
}

// shownRecord is a record with its value as the page shows it.
type shownRecord struct {
	operator.Record
	As, Text string
	Cut      bool // Text is only the beginning
}

func (p *Page) preview(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	d := previewData{One: q.Get("id") != "", Acts: p.cfg.MayAct(r), Limit: previewed}
	list, err := p.records(r, previewed)
	code := http.StatusOK
	if err != nil {
		if code = codeOf(err); code != http.StatusBadRequest || q.Get("table") != "" {
			d.Problem = err.Error()
		} else { // a table has to be chosen
			code = http.StatusOK
		}
		d.StreamRows = p.streamRows(0)
	}
	d.preview = list
	for i := range list.Records {
		d.Records = append(d.Records, shownOf(&list.Records[i]))
	}
	p.show(w, code, "preview", view{Title: "Preview", Here: "preview", Data: d, JSON: "/api/v1/preview?" + q.Encode()})
}

func shownOf(r *operator.Record) shownRecord {
	s := shownRecord{Record: *r}
	raw := r.Value.Raw()
	if raw == nil {
		return s
	}
	if s.Cut = len(raw) > shownValue; s.Cut {
		end := shownValue
		for r.Value.Text != nil && !utf8.RuneStart(raw[end]) {
			end--
		}
		raw = raw[:end]
	}
	s.As, s.Text = printed(raw, "")
	return s
}

// previewPath returns the address of the records of a table's rows.
func previewPath(stream, table, state string) string {
	return "/preview?" + url.Values{"stream": {stream}, "table": {table}, "state": {state}}.Encode()
}
