// Package page is the operator's page and the JSON behind it, /api/v1: how each
// stream stands and what happened to it, rows and what they wait for, and the
// servers' slots. Pages are made on the server and work without JavaScript,
// which only keeps them up to date; nothing is loaded from elsewhere.
//
// It reads. For operators it requeues, discards and replays rows, by package
// operator, and pauses streams. It starts nothing, holds no connection between
// requests, and knows no configuration: cmd hands in what it shows. Package
// admin serves it, behind its authentication.
package page

import (
	"context"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/slots"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// Config is what is shown.
type Config struct {
	Version string
	Streams []Stream
	// Slots lists the slots of the streams' servers.
	Slots func(ctx context.Context) ([]Server, error)
	// ShowPayloads: payloads of rows are shown.
	ShowPayloads bool
	// Dashboard is where longer times than an hour are drawn, or empty.
	Dashboard string
	// MayAct says whether the asker is an operator, and Who, for the log, who it
	// is. They may be nil: nobody is.
	MayAct func(r *http.Request) bool
	Who    func(r *http.Request) string
	Log    zerolog.Logger
	// Now is the clock.
	Now func() time.Time
}

// Stream is one stream to show.
type Stream struct {
	Name     string
	Report   func() status.Stream
	Activity func() status.Activity
	Tables   []*outbox.Table
	// Found is how soon a requeued row of the table is found, for people.
	Found func(t *outbox.Table) time.Duration
	// Database says where it is, without secrets: user@host:port/name.
	Database string
	// Configuration is what it runs with, without secrets.
	Configuration string
	// Pauses pauses and resumes it; nil: that is not offered.
	Pauses *Pauses
	// Parks are those that the database remembers of the stream; it may be nil.
	Parks func(ctx context.Context, conn *pgx.Conn) ([]outbox.Park, error)
	// Changed is told when rows of the stream were changed; it may be nil.
	Changed func()
	// Connect makes a connection as the role that reads and marks rows. The
	// page closes it.
	Connect func(ctx context.Context) (*pgx.Conn, error)
}

// Server is a database server with its slots.
type Server struct {
	Server string       `json:"server"` // host:port
	Slots  []slots.Slot `json:"slots"`
	// Error says what could not be found out.
	Error string `json:"error,omitempty"`
}

// Bounds of what the page costs.
const (
	maxWatching   = 50               // browsers with live updates
	maxAsking     = 3                // requests that ask a database at once
	askTimeout    = 20 * time.Second // of a request that asks a database
	patternTime   = 5 * time.Second  // of one with a regular expression of the caller's
	actTimeout    = 5 * time.Minute  // of an act
	connectWithin = 5 * time.Second
)

// Page answers the requests. Close ends the live ones.
type Page struct {
	cfg       Config
	mux       *http.ServeMux
	templates map[string]*template.Template
	forms     forms
	watching  chan struct{} // a place for each browser with live updates
	asking    chan struct{} // a place for each request that asks a database
	closed    chan struct{}
	close     sync.Once
	every     time.Duration // between two live updates
}

//go:embed static templates openapi.yaml
var files embed.FS

// New makes a page. It connects nowhere.
func New(cfg Config) (*Page, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Who == nil {
		cfg.Who = func(*http.Request) string { return "" }
	}
	if cfg.MayAct == nil {
		cfg.MayAct = func(*http.Request) bool { return false }
	}
	p := &Page{
		cfg: cfg, mux: http.NewServeMux(), forms: newForms(), templates: map[string]*template.Template{},
		watching: make(chan struct{}, maxWatching), asking: make(chan struct{}, maxAsking),
		closed: make(chan struct{}), every: liveEvery,
	}
	for _, name := range []string{"overview", "stream", "rows", "row", "act", "pause", "preview", "slots", "message"} {
		t, err := template.New("layout.html").Funcs(functions).ParseFS(files, "templates/layout.html", "templates/parts.html", "templates/"+name+".html")
		if err != nil {
			return nil, fmt.Errorf("read the page's templates: %w", err)
		}
		p.templates[name] = t
	}
	for pattern, handler := range p.routes() {
		p.mux.HandleFunc(pattern, handler)
	}
	return p, nil
}

// routes are what is answered, by pattern; the test of openapi.yaml reads them.
func (p *Page) routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET /{$}":                     p.overview,
		"GET /streams/{stream}":        p.stream,
		"GET /failed":                  p.failed,
		"GET /failed/row":              p.row,
		"GET /rows":                    p.find,
		"GET /preview":                 p.preview,
		"GET /slots":                   p.slots,
		"GET /live":                    p.live,
		"GET /static/{file}":           p.static,
		"GET /api/v1/streams/{stream}": asJSON(p.apiStream),
		"GET /api/v1/failed":           asJSON(p.apiFailed),
		"GET /api/v1/failed/row":       asJSON(p.apiRow),
		"GET /api/v1/rows":             asJSON(p.apiRows),
		"GET /api/v1/preview":          asJSON(p.apiPreview),
		"GET /api/v1/slots":            asJSON(p.apiSlots),
		"GET /api/v1/openapi.yaml":     p.apiDescription,
		"POST /failed/act":             p.act,
		"POST /streams/{stream}/pause": p.pause,
		"/":                            p.missing,
	}
}

// policy lets nothing in but what is served here.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP is part of http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if embedded(r) {
		http.Error(w, "another site asked for this: open it by a link or its address", http.StatusForbidden)
		return
	}
	held := &turn{of: p.asking}
	defer held.leave()
	p.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), turnKey{}, held)))
}

// embedded says whether the browser asks for another site's sake: anything but
// somebody following a link. Such an answer cannot be read there, but making it
// costs the database.
// https://www.w3.org/TR/fetch-metadata/
func embedded(r *http.Request) bool {
	h := r.Header
	switch h.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	}
	followed := h.Get("Sec-Fetch-Mode") == "navigate" && h.Get("Sec-Fetch-Dest") == "document" && h.Get("Sec-Fetch-User") == "?1"
	return r.Method != http.MethodPost && !followed // forms have a rule of their own
}

// Close ends live updates, so that a server can stop.
func (p *Page) Close() { p.close.Do(func() { close(p.closed) }) }

func (p *Page) streamNamed(name string) *Stream {
	for i := range p.cfg.Streams {
		if p.cfg.Streams[i].Name == name {
			return &p.cfg.Streams[i]
		}
	}
	return nil
}

// errBusy: too many ask at once.
var errBusy = &asked{http.StatusServiceUnavailable, "too many requests ask the database at once: try again in a moment"}

// turn is a request's place among those that ask a database at once. It is kept until the answer is
// written: what was read is in memory until then, and a client may take it slowly.
type turn struct {
	of   chan struct{}
	have bool
}

type turnKey struct{}

func (t *turn) take() bool {
	if !t.have {
		select {
		case t.of <- struct{}{}:
			t.have = true
		default:
		}
	}
	return t.have
}

func (t *turn) leave() {
	if t.have {
		<-t.of
	}
}

// bounded gives a request that asks a database its turn and its time.
func (p *Page) bounded(r *http.Request, within time.Duration) (context.Context, context.CancelFunc, error) {
	if held, ok := r.Context().Value(turnKey{}).(*turn); !ok || !held.take() {
		return nil, nil, errBusy
	}
	ctx, cancel := context.WithTimeout(r.Context(), within)
	return ctx, cancel, nil
}
