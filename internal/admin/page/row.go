package page

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/operator"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// This file shows one row: its columns, the record that it becomes, and what it waits for.

// rowID reads the id of a row from an address or a form: a JSON list of the values of the id columns.
func rowID(text string, t *outbox.Table) (string, error) {
	var parts []string
	if err := json.Unmarshal([]byte(text), &parts); err != nil || len(parts) != len(t.Mapping.ID) {
		return "", &asked{http.StatusBadRequest, "an id needs a value for each of the columns " + strings.Join(t.Mapping.ID, ", ") + ": A,B in a form, a JSON list in an address"}
	}
	return outbox.JoinID(parts...), nil
}

// askedID reads an id that a person wrote into an address.
func askedID(text string) string {
	var parts []string
	if json.Unmarshal([]byte(text), &parts) != nil {
		return text
	}
	return strings.Join(parts, ",")
}

// RowDetail is the body of GET /api/v1/failed/row.
type RowDetail struct {
	operator.Row
	// PayloadAs says how payload is written: json, text or hex.
	PayloadAs string `json:"payload_as,omitempty"`
	// Record is what the row would become. It is left out if the payload is too large.
	Record *operator.Record `json:"record,omitempty"`
	// Waits is what keeps the row, or its key, from being published. Empty: nothing is known.
	Waits []waiting `json:"waits_for,omitempty"`
}

// oneRow is a row as it was read.
type oneRow struct {
	operator.Row
	table   *outbox.Table
	record  *operator.Record
	waits   []waiting
	payload []byte // nil: NULL, too large, or not to be shown
}

// findRow reads one FAILED row (for operators, a row in any state), and its payload if it may be shown.
func (p *Page) findRow(r *http.Request) (one oneRow, err error) {
	q := r.URL.Query()
	s, t, err := p.table(q.Get("stream"), q.Get("table"))
	if err != nil {
		return one, err
	}
	one.table = t
	id, err := rowID(q.Get("id"), t)
	if err != nil {
		return one, err
	}
	pick := tablesql.Filter{State: tablesql.RowsFailed, IDs: []string{id}}
	if p.cfg.MayAct(r) {
		pick.State = tablesql.RowsAny
	}
	err = p.onTable(r, askTimeout, s, t, func(ctx context.Context, d *opened) error {
		read := func(payload bool) error {
			found, err := d.List(ctx, &pick, 1, operator.Shown{Payload: payload, Characters: shownColumn})
			if err != nil {
				return err
			}
			if len(found) == 0 {
				return &asked{http.StatusNotFound, "there is no such row (any more); rows that are not FAILED are shown to operators only"}
			}
			one.Row = found[0]
			return nil
		}
		if err := read(false); err != nil || one.PayloadBytes != nil && *one.PayloadBytes > shownPayload {
			return err
		}
		if err := d.complete(ctx, &pick, &one); err != nil || !p.cfg.ShowPayloads || one.PayloadBytes == nil {
			return err
		}
		if err := read(true); err != nil { // now that the payload's size is known
			return err
		}
		one.payload = d.PayloadOf(&one.Row)
		return nil
	})
	if one.record != nil && !p.cfg.ShowPayloads {
		one.record.Hide()
	}
	return one, err
}

// complete makes the row's record, and finds what the row waits for.
func (o *opened) complete(ctx context.Context, pick *tablesql.Filter, one *oneRow) error {
	made, err := o.Preview(ctx, pick, 1, answerBytes)
	if err != nil || len(made) == 0 {
		return err
	}
	one.record = new(recordOf(made[0]))
	if one.State == "SENT" {
		return nil
	}
	parks, err := o.parks(ctx)
	one.waits = o.waits(made[0], parks)
	return err
}

type rowData struct {
	filter
	Row         *operator.Row
	IDColumns   []string
	Record      *shownRecord // nil: the payload is too large
	Waits       []waiting
	Payload     string
	As          string   // text, json or hex
	Forms       []string // possible values of As
	Note        string   // why there is no payload
	Acts        bool
	Dismissable bool
	Token       string
	Found       string // how soon a pending row will be found
}

func (p *Page) row(w http.ResponseWriter, r *http.Request) {
	one, err := p.findRow(r)
	if err != nil {
		p.unfound(w, r, askedID(r.URL.Query().Get("id")), err)
		return
	}
	d := rowData{
		filter: filterOf(r.URL.Query()), Row: &one.Row, IDColumns: one.table.Mapping.ID, Acts: p.cfg.MayAct(r), Waits: one.waits,
		Dismissable: one.table.Mapping.Status.Column != "", Token: p.forms.token(p.cfg.Who(r), p.cfg.Now()),
	}
	s, t, _ := p.table(d.Stream, d.Table) // findRow has found it
	if d.Stream, d.Table = s.Name, t.String(); s.Found != nil {
		d.Found = s.Found(t).String()
	}
	if one.record != nil {
		d.Record = new(shownOf(one.record))
		if one.record.Value != nil && string(one.record.Value.Raw()) == string(one.payload) { // it is already shown as the payload
			d.Record.As = ""
		}
	}
	switch {
	case !p.cfg.ShowPayloads:
		d.Note = "Payloads are not shown: http.show_payloads of the configuration allows it."
	case one.PayloadBytes == nil:
		d.Note = "The payload is NULL."
	case one.payload == nil:
		d.Note = "The payload is too large for this page: outbox-cdc failed show --payload prints it, and outbox-cdc preview its record."
	default:
		d.As, d.Payload = printed(one.payload, r.URL.Query().Get("as"))
		d.Forms = []string{"json", "text", "hex"}
	}
	p.show(w, http.StatusOK, "row", view{Title: "Row " + one.IDText(), Here: "rows", Data: d, JSON: "/api/v1/failed/row?" + r.URL.RawQuery})
}
