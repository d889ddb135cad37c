package page

import (
	"encoding/json"
	"net/http"

	"github.com/outbox-cdc/outbox-cdc/internal/operator"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// This file is the same data as JSON. openapi.yaml describes it.

// StreamDetail is the body of GET /api/v1/streams/{stream}.
type StreamDetail struct {
	Status   status.Stream   `json:"status"`
	Activity status.Activity `json:"activity"`
	// Needs is what somebody should look at, the most urgent first.
	Needs         []attention `json:"needs"`
	Database      string      `json:"database"`
	Configuration string      `json:"configuration"` // YAML, without secrets
}

// RowDetail is the body of GET /api/v1/failed/row.
type RowDetail struct {
	operator.Row
	// PayloadAs says how payload is written: json, text or hex.
	PayloadAs string `json:"payload_as,omitempty"`
}

// ServerList is the body of GET /api/v1/slots.
type ServerList struct {
	Servers []Server `json:"servers"`
}

// problem is the body of every error.
type problem struct {
	Error string `json:"error"`
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(body) // the client went away
}

func (p *Page) apiStream(w http.ResponseWriter, r *http.Request) {
	s := p.streamNamed(r.PathValue("stream"))
	if s == nil {
		answer(w, http.StatusNotFound, problem{"there is no such stream"})
		return
	}
	st := s.Report()
	answer(w, http.StatusOK, StreamDetail{
		Status: st, Activity: s.Activity(), Needs: append([]attention{}, needsOf(&st)...),
		Database: s.Database, Configuration: s.Configuration,
	})
}

func (p *Page) apiFailed(w http.ResponseWriter, r *http.Request) {
	limit, err := limitOf(r, listedRows, mostListed)
	if err != nil {
		answer(w, codeOf(err), problem{err.Error()})
		return
	}
	f := filterOf(r.URL.Query())
	l, err := p.list(r, &f, limit)
	if err != nil {
		answer(w, codeOf(err), problem{err.Error()})
		return
	}
	answer(w, http.StatusOK, l)
}

func (p *Page) apiRow(w http.ResponseWriter, r *http.Request) {
	row, payload, _, err := p.findRow(r)
	if err != nil {
		answer(w, codeOf(err), problem{err.Error()})
		return
	}
	d := RowDetail{Row: row}
	d.Payload = nil
	if payload != nil {
		as, text := printed(payload, r.URL.Query().Get("as"))
		d.PayloadAs, d.Payload = as, &text
	}
	answer(w, http.StatusOK, d)
}

func (p *Page) apiSlots(w http.ResponseWriter, r *http.Request) {
	servers, code, err := p.askSlots(r)
	if err != nil {
		answer(w, code, problem{err.Error()})
		return
	}
	answer(w, http.StatusOK, ServerList{append([]Server{}, servers...)})
}

func (p *Page) apiDescription(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	http.ServeFileFS(w, r, files, "openapi.yaml")
}
