package page

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/operator"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// view is the data for every page's template.
type view struct {
	Title   string
	Here    string // the page's entry in the menu
	Version string
	Streams []string // names
	Data    any
	// JSON is the address of the page's data.
	JSON string
	// Live is the address of live updates, or empty.
	Live string
}

var functions = template.FuncMap{
	"bytes":      status.Bytes,
	"bytesrate":  func(f float64) string { return status.Bytes(uint64(max(0, f))) + "/s" },
	"rate":       rateText,
	"count":      func(n uint64) string { return thousands(n) },
	"counted":    func(n int) string { return thousands(n) },
	"capped":     cappedText,
	"seconds":    func(f float64) string { return status.About(time.Duration(f * float64(time.Second))) },
	"moment":     moment,
	"momentat":   func(at time.Time) template.HTML { return moment(at.UTC().Format(time.RFC3339Nano)) },
	"streamurl":  streamPath,
	"failedurl":  failedPath,
	"previewurl": previewPath,
	"broken":     breakable,
	"why":        status.Why,
	"rowsurl":    func(stream, table string) string { return filter{Stream: stream, Table: table}.Path() },
	"rowurl":     rowPath,
	"keyurl": func(stream, table string, key *string) string {
		return filter{Stream: stream, Table: table, Key: *key}.Path()
	},
	"some":      func(n *int64) bool { return n != nil && *n > 0 },
	"deref":     func(p *string) string { return *p },
	"short":     func(width int, text string) string { return operator.OneLine(text, width) },
	"idjson":    idJSON,
	"joined":    func(id []string) string { return strings.Join(id, ",") },
	"headersof": func(all []operator.RecordHeader) []operator.RecordHeader { return all[:min(len(all), shownHeaders)] },
	"field":     fieldFor,
	"room":      roomText,
	"total":     func(c operator.Count) string { return rowsText(c.N, c.Capped) },
	"len64":     func(list []operator.Row) int64 { return int64(len(list)) },
}

// breakable returns a name that may be broken into lines after its punctuation, before it breaks within a
// word.
func breakable(name string) template.HTML {
	return template.HTML(breaks.Replace(template.HTMLEscapeString(name))) // #nosec G203 -- escaped
}

var breaks = strings.NewReplacer("_", "_<wbr>", ".", ".<wbr>", "-", "-<wbr>")

// rateText formats rows per second.
func rateText(f float64) string {
	if f > 0 && f < 10 {
		return strconv.FormatFloat(f, 'f', 1, 64) + " rows/s"
	}
	return thousands(int64(f+0.5)) + " rows/s"
}

func cappedText(n *int64, more bool) string {
	switch {
	case n == nil:
		return "not counted"
	case more:
		return "more than " + thousands(*n)
	}
	return thousands(*n)
}

// roomText formats the WAL that the server still allows.
func roomText(safe *int64) string {
	if safe == nil {
		return "no limit"
	}
	return status.Bytes(uint64(max(0, *safe))) // #nosec G115 -- not negative
}

// moment formats a time so that the script can show it in the viewer's zone; without the script it is shown
// in UTC. A text that is not RFC 3339 is shown as it is.
func moment(at string) template.HTML {
	t, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		return template.HTML(template.HTMLEscapeString(at)) // #nosec G203 -- escaped
	}
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`, // #nosec G203 -- consists of digits
		t.Format(time.RFC3339Nano), t.Format("2006-01-02 15:04:05.000 UTC"), t.Format("2006-01-02 15:04:05 UTC")))
}

func (p *Page) fill(v view) view {
	v.Version = p.cfg.Version
	for i := range p.cfg.Streams {
		v.Streams = append(v.Streams, p.cfg.Streams[i].Name)
	}
	return v
}

// show answers with a complete page, or with an error.
func (p *Page) show(w http.ResponseWriter, code int, name string, v view) {
	var out bytes.Buffer
	if err := p.templates[name].Execute(&out, p.fill(v)); err != nil {
		p.cfg.Log.Error().Err(err).Str("page", name).Msg("the page cannot be shown")
		http.Error(w, "this page cannot be shown; the log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = out.WriteTo(w) // fails only if the client has gone away
}

// message is a page with a single text.
type message struct{ Text, Link, LinkText string }

func (p *Page) say(w http.ResponseWriter, code int, title string, m message) {
	if m.Link == "" {
		m.Link, m.LinkText = "/", "To the overview"
	}
	p.show(w, code, "message", view{Title: title, Data: m})
}

func (p *Page) missing(w http.ResponseWriter, r *http.Request) {
	p.say(w, http.StatusNotFound, "Not found", message{Text: "There is no page " + operator.OneLine(r.URL.Path, 200) + "."})
}

// static answers with a file that is embedded in the program.
func (p *Page) static(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeFileFS(w, r, files, path.Join("static", r.PathValue("file"))) // #nosec G703 -- an embedded file, all of which are public
}
