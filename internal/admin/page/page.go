// Package page is the operator's page and the JSON behind it (/api/v1). They show the state of each stream
// and its recent past, rows and what they wait for, and the servers' slots. Pages are made on the server and
// work without JavaScript, which only keeps them up to date. Nothing is loaded from other sites.
//
// The package mostly reads. For operators it also requeues, discards and replays rows, by package operator,
// and pauses streams. It starts nothing, holds no connection between requests, and does not know the
// configuration: cmd passes what it needs. Package admin serves it behind its authentication.
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

// Config says what is shown, and how.
type Config struct {
	Version string
	Streams []Stream
	// Slots lists the slots of the streams' servers.
	Slots func(ctx context.Context) ([]Server, error)
	// ShowPayloads: payloads of rows are shown.
	ShowPayloads bool
	// Dashboard is where charts of more than an hour are, or empty.
	Dashboard string
	// MayAct reports whether the client is an operator. Who returns the client's name for the log. Both may
	// be nil: then nobody is an operator.
	MayAct func(r *http.Request) bool
	Who    func(r *http.Request) string
	Log    zerolog.Logger
	// Now is the clock.
	Now func() time.Time
}

// Stream is one stream that is shown.
type Stream struct {
	Name     string
	Report   func() status.Stream
	Activity func() status.Activity
	Tables   []*outbox.Table
	// Found returns how soon a requeued row of the table will be found.
	Found func(t *outbox.Table) time.Duration
	// Database is the database without secrets: user@host:port/name.
	Database string
	// Configuration is the configuration in force, without secrets.
	Configuration string
	// Pauses pauses and resumes the stream; nil: pausing is not offered.
	Pauses *Pauses
	// Parks reads the stream's parks from the database; it may be nil.
	Parks func(ctx context.Context, conn *pgx.Conn) ([]outbox.Park, error)
	// Changed is called after rows of the stream were changed; it may be nil.
	Changed func()
	// Connect makes a connection as the role that reads and marks rows. The page closes it.
	Connect func(ctx context.Context) (*pgx.Conn, error)
}

// Server is a database server with its slots.
type Server struct {
	Server string       `json:"server"` // host:port
	Slots  []slots.Slot `json:"slots"`
	// Error says what could not be read.
	Error string `json:"error,omitempty"`
}

// Bounds of what the page may cost.
const (
	maxWatching   = 50               // browsers with live updates
	maxAsking     = 3                // requests that use a database at the same time
	askTimeout    = 20 * time.Second // for a request that uses a database
	patternTime   = 5 * time.Second  // for a request with a regular expression from the client
	actTimeout    = 5 * time.Minute  // for an act
	connectWithin = 5 * time.Second
)

// Page answers requests. Close ends the live updates.
type Page struct {
	cfg       Config
	mux       *http.ServeMux
	templates map[string]*template.Template
	forms     forms
	watching  chan struct{} // a slot for each browser with live updates
	asking    chan struct{} // a slot for each request that uses a database
	closed    chan struct{}
	close     sync.Once
	every     time.Duration // between two live updates
}

//go:embed static templates openapi.yaml
var files embed.FS

// New makes a page. It makes no connection.
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

// routes returns the handlers by pattern. The test of openapi.yaml reads them.
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

// policy allows only content that is served here.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements http.Handler.
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

// embedded reports whether the browser sends the request on behalf of another site, in any way but following
// a link. The other site could not read the response, but making it costs the database.
// https://www.w3.org/TR/fetch-metadata/
func embedded(r *http.Request) bool {
	h := r.Header
	switch h.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	}
	followed := h.Get("Sec-Fetch-Mode") == "navigate" && h.Get("Sec-Fetch-Dest") == "document" && h.Get("Sec-Fetch-User") == "?1"
	return r.Method != http.MethodPost && !followed // forms have a check of their own
}

// Close ends live updates, so that the server can stop.
func (p *Page) Close() { p.close.Do(func() { close(p.closed) }) }

func (p *Page) streamNamed(name string) *Stream {
	for i := range p.cfg.Streams {
		if p.cfg.Streams[i].Name == name {
			return &p.cfg.Streams[i]
		}
	}
	return nil
}

// errBusy: too many requests use the database at the same time.
var errBusy = &asked{http.StatusServiceUnavailable, "too many requests ask the database at once: try again in a moment"}

// turn is a request's slot among those that use a database. It is kept until the response is written: the
// rows that were read stay in memory until then, and the client may be slow.
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

// bounded gives a request that uses a database its slot and its timeout.
func (p *Page) bounded(r *http.Request, within time.Duration) (context.Context, context.CancelFunc, error) {
	if held, ok := r.Context().Value(turnKey{}).(*turn); !ok || !held.take() {
		return nil, nil, errBusy
	}
	ctx, cancel := context.WithTimeout(r.Context(), within)
	return ctx, cancel, nil
}
