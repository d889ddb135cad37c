package page

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// pauser remembers what was done.
type pauser struct{ done []string }

func (p *pauser) change(_ context.Context, verb, table, by string) ([]outbox.Park, error) {
	if verb != "" {
		p.done = append(p.done, verb+" "+table+" "+by)
	}
	if len(p.done)%2 == 1 {
		return []outbox.Park{{Scope: outbox.Scope{Kind: outbox.ScopeTable, Table: "public.outbox"}, Reason: "paused by " + hostile, Since: noon}}, nil
	}
	return nil, nil
}

// A pause is explained, confirmed, and logged; so is its end. Forged forms are refused as they are for rows.
func TestPauseIsConfirmed(t *testing.T) {
	var log strings.Builder
	pauses, may := &pauser{}, true
	cfg := config()
	cfg.MayAct, cfg.Who, cfg.Log = func(*http.Request) bool { return may }, func(*http.Request) string { return "ops" }, zerolog.New(&log)
	cfg.Streams[0].Pauses = &Pauses{Change: pauses.change, May: func(table string) error {
		if table == "public.none" {
			return errors.New("stream orders has no such table")
		}
		return nil
	}}
	p := page(t, cfg)
	body := get(p, "/streams/orders").Body.String()
	token := tokens.FindStringSubmatch(body)
	if token == nil || !strings.Contains(body, "Pause …") {
		t.Fatalf("an operator is offered no pause: %s", body)
	}
	send := func(code int, want, site string, form ...string) {
		t.Helper()
		f := url.Values{"token": {token[1]}}
		for i := 0; i < len(form); i += 2 {
			f.Set(form[i], form[i+1])
		}
		r := httptest.NewRequest(http.MethodPost, "/streams/orders/pause", strings.NewReader(f.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", site)
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if w.Code != code || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%v: %d, want %d and %q: %s", form, w.Code, code, want, w.Body)
		}
		harmless(t, "pause", w.Body.String())
	}
	const ours = "same-origin"
	send(200, "Nothing was changed yet", ours, "verb", "pause", "table", "public.outbox")
	send(403, "another site", "cross-site", "verb", "pause", "confirmed", "yes")
	send(403, "did not come from this page", ours, "verb", "pause", "confirmed", "yes", "token", "AAAA")
	send(422, "no such table", ours, "verb", "pause", "confirmed", "yes", "table", "public.none")
	send(422, `aria-describedby="hint-table problem" aria-invalid="true"`, ours, "verb", "pause", "table", "public.none")
	send(409, "is paused", ours, "verb", "resume", "confirmed", "yes")
	send(400, "pause or resume", ours, "verb", "stop", "confirmed", "yes")
	if may = false; len(pauses.done) > 0 {
		t.Fatalf("done: %q", pauses.done)
	}
	send(403, "only an operator", ours, "verb", "pause", "confirmed", "yes")
	if strings.Contains(get(p, "/streams/orders").Body.String(), "Pause …") {
		t.Error("a viewer is offered a pause")
	}
	may = true
	send(200, "2030-01-01 12:00:00 UTC", ours, "verb", "pause", "confirmed", "yes", "table", "public.outbox")
	send(409, `<option value="public.outbox">table public.outbox`, ours, "verb", "resume", "table", "public.other")
	send(409, "nothing of it is paused public.other", ours, "verb", "resume", "confirmed", "yes", "table", "public.other")
	send(200, "Nothing was changed yet", ours, "verb", "resume")
	send(200, "goes on", ours, "verb", "resume", "confirmed", "yes")
	if want := []string{"pause public.outbox ops on the page", "resume  ops on the page"}; strings.Join(pauses.done, "|") != strings.Join(want, "|") {
		t.Errorf("done: %q", pauses.done)
	}
	for _, want := range []string{PausedMessage, ResumedMessage, `"user":"ops"`, `"level":"info"`, `"table":"public.outbox"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s: %s", want, log.String())
		}
	}
}
