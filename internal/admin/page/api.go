package page

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// This file returns the same data as JSON. openapi.yaml describes it.

// StreamDetail is the body of GET /api/v1/streams/{stream}.
type StreamDetail struct {
	Status   status.Stream   `json:"status"`
	Activity status.Activity `json:"activity"`
	// Needs are the findings that somebody should look at, most urgent first.
	Needs         []attention `json:"needs"`
	Database      string      `json:"database"`
	Configuration string      `json:"configuration"` // YAML, without secrets
}

// ServerList is the body of GET /api/v1/slots.
type ServerList struct {
	Servers []Server `json:"servers"`
}

// problem is the body of every error.
type problem struct {
	Error string `json:"error"`
}

// asJSON returns a handler that answers with the result of of, or with its error.
func asJSON(of func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		code := http.StatusOK
		body, err := of(r)
		if err != nil {
			code, body = codeOf(err), problem{err.Error()}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(body) // fails only if the client has gone away
	}
}

func (p *Page) apiStream(r *http.Request) (any, error) {
	s := p.streamNamed(r.PathValue("stream"))
	if s == nil {
		return nil, &asked{http.StatusNotFound, "there is no such stream"}
	}
	st := s.Report()
	return StreamDetail{
		Status: st, Activity: s.Activity(), Needs: append([]attention{}, needsOf(&st)...),
		Database: s.Database, Configuration: s.Configuration,
	}, nil
}

func (p *Page) apiFailed(r *http.Request) (any, error) { return p.apiList(r, "failed") }

func (p *Page) apiRows(r *http.Request) (any, error) { return p.apiList(r, r.URL.Query().Get("state")) }

func (p *Page) apiList(r *http.Request, state string) (any, error) {
	limit, err := limitOf(r, listedRows, mostListed)
	if err != nil {
		return nil, err
	}
	f := filterOf(r.URL.Query())
	f.State = state
	return p.list(r, &f, limit)
}

func (p *Page) apiRow(r *http.Request) (any, error) {
	one, err := p.findRow(r)
	d := RowDetail{Row: one.Row, Record: one.record, Waits: one.waits}
	d.Payload = nil
	if one.payload != nil {
		as, text := printed(one.payload, r.URL.Query().Get("as"))
		d.PayloadAs, d.Payload = as, &text
	}
	return d, err
}

func (p *Page) apiPreview(r *http.Request) (any, error) {
	limit, err := limitOf(r, previewed, mostPreviewed)
	if err != nil {
		return nil, err
	}
	return p.records(r, limit)
}

func (p *Page) apiSlots(r *http.Request) (any, error) {
	servers, err := p.askSlots(r)
	return ServerList{append([]Server{}, servers...)}, err
}

func (p *Page) apiDescription(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	http.ServeFileFS(w, r, files, "openapi.yaml")
}

// limitOf returns the limit that a request asks for.
func limitOf(r *http.Request, usual, most int) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, &asked{http.StatusBadRequest, "limit is not between 1 and " + strconv.Itoa(most)}
	}
	return n, nil
}
