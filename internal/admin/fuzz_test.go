package admin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// Whatever a client without credentials requests, nothing panics, and only health is shown.
func FuzzRequests(f *testing.F) {
	f.Add("GET", "/metrics", "", "Bearer wrong", "")
	f.Add("GET", "/readyz", "stream=orders&stream=", "", "")
	f.Add("POST", "/api/v1/status", "stream=%zz", "Basic eDp5", "{")
	f.Add("GET", "//healthz/../api/v1/status", "%00", "Bearer  secret", strings.Repeat("x", 100))
	f.Add("HEAD", "/readyz/", "a;b", "bearer secret", "")
	cfg := Config{
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("confidential")) }),
		Streams: []Stream{stream("orders", status.Stream{Mode: "stream", Reason: "confidential"})},
		Auth:    Auth{Users: []User{{Role: Viewer, Password: fixed("secret")}, {Role: Operator, Name: "somebody", Password: fixed("another")}}},
	}
	h, err := Handler(cfg, func() time.Time { return noon })
	if err != nil {
		f.Fatal(err)
	}
	guarded, _ := h.(*guard)
	f.Fuzz(func(t *testing.T, method, path, query, authorization, body string) {
		r := httptest.NewRequest(http.MethodGet, "/", strings.NewReader(body))
		r.Method = method
		r.URL = &url.URL{Path: path, RawQuery: query}
		r.Header.Set("Authorization", authorization)
		guarded.logins = newLogins(guarded.now) // each input has its tries
		_, is := guarded.identify(r)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if is != known && strings.Contains(w.Body.String(), "confidential") {
			t.Fatalf("%s %q %q told a stranger:\n%s", method, path, query, w.Body)
		}
		if w.Code >= http.StatusInternalServerError && w.Code != http.StatusServiceUnavailable {
			t.Fatalf("%s %q: %d", method, path, w.Code)
		}
		if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") && method != http.MethodHead && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%s %q: no JSON: %s", method, path, w.Body)
		}
	})
}
