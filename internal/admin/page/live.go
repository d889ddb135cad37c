package page

import (
	"bytes"
	"fmt"
	"net/http"
	"time"
)

// This file keeps open pages up to date by server-sent events. Each event is the changeable part of the page
// as it is now, and the script applies the differences.
// https://html.spec.whatwg.org/multipage/server-sent-events.html

const (
	liveEvery   = 2 * time.Second
	liveWrite   = 10 * time.Second // time to send one event; a slower client is disconnected
	liveSilence = 7                // unchanged events until a sign of life is sent
)

// live sends the page of one stream, or the overview, whenever it has changed.
func (p *Page) live(w http.ResponseWriter, r *http.Request) {
	render := func() (string, view) { return "overview", p.overviewView(spanOf(r)) }
	if name := r.URL.Query().Get("stream"); name != "" {
		s := p.streamNamed(name)
		if s == nil {
			http.Error(w, "there is no such stream", http.StatusNotFound)
			return
		}
		render = func() (string, view) { return "stream", p.streamView(s, spanOf(r), "") }
	}
	select {
	case p.watching <- struct{}{}:
		defer func() { <-p.watching }()
	default:
		http.Error(w, "too many browsers watch already; reload the page instead", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	ticker := time.NewTicker(p.every)
	defer ticker.Stop()
	var before []byte
	for silent := 0; ; {
		var event bytes.Buffer
		name, v := render()
		if err := p.templates[name].ExecuteTemplate(&event, "main", p.fill(v)); err != nil {
			p.cfg.Log.Error().Err(err).Str("page", name).Msg("the page cannot be kept up to date")
			return
		}
		text := ":\n\n" // a comment that prevents time-outs on the way
		if silent++; !bytes.Equal(before, event.Bytes()) {
			before, silent, text = event.Bytes(), 0, "data: "+string(bytes.ReplaceAll(event.Bytes(), []byte("\n"), []byte("\ndata: ")))+"\n\n"
		}
		if silent%liveSilence == 0 {
			_ = out.SetWriteDeadline(time.Now().Add(liveWrite)) // not every ResponseWriter supports it
			if _, err := fmt.Fprint(w, text); err != nil || out.Flush() != nil {
				return
			}
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		case <-p.closed:
			return
		}
	}
}
