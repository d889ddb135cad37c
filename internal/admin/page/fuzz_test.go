package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
)

// FuzzPage: whatever is asked for, nothing panics and nothing fails but by the
// database; without credentials no database is asked and nothing of a stream is
// shown; and a form is carried out for an operator's own page only.
func FuzzPage(f *testing.F) {
	const viewer, operator = "Bearer viewer-secret", "Basic b3BzOm9wZXJhdG9yLXNlY3JldA==" // ops:operator-secret
	const rowOfSeed = `["` + seven + `1","` + seven + `1"]`
	const form = "verb=requeue&stream=orders&table=public.outbox&id=" + rowOfSeed + "&confirmed=yes&token="
	for _, path := range []string{"/", "/streams/orders", "/failed", "/failed/row", "/preview", "/rows", "/streams/orders/pause", "/api/v1/rows", "/api/v1/preview", "/slots", "/live", "/static/page.js", "/api/v1/streams/orders", "/api/v1/failed", "/api/v1/failed/row", "/api/v1/slots", "/api/v1/openapi.yaml", "//failed/../failed", "/static/..%2f", "/static/\x00", "*", ""} {
		for _, who := range []string{"", viewer, operator, "Bearer wrong"} {
			f.Add("GET", path, "stream=orders&table=public.outbox&error=(&since=infinity&limit=-1&id=x", "localhost", who, "", "", "", false)
			f.Add("GET", path, "stream=orders&table=public.outbox&id="+rowOfSeed, "[::1]:80", who, "", "", "", false)
			f.Add("POST", path, "", "127.0.0.1:80", who, "http://127.0.0.1:80", "", form, true)
		}
	}
	f.Add("POST", "/failed/act", "", "localhost", operator, "", "same-origin", form, true)
	f.Add("POST", "/streams/orders/pause", "", "localhost", operator, "", "same-origin", "verb=pause&confirmed=yes&token=", true)
	f.Add("POST", "/streams/orders/pause", "", "localhost", viewer, "", "same-origin", "verb=pause&confirmed=yes&token=", true)
	f.Add("POST", "/failed/act", "", "localhost", operator, "", "cross-site", form, true)
	f.Add("POST", "/failed/act", "", "localhost", operator, "http://localhost", "", form+"x", false)
	f.Add("GET", "/", "", "evil.example", "", "null", "none", "", false)

	connected, now := 0, noon
	cfg := config()
	cfg.Now = func() time.Time { return now }
	cfg.MayAct, cfg.Who = admin.MayAct, admin.NameOf
	cfg.Streams[0].Tables = []*outbox.Table{fixture.Im2be().Table}
	cfg.Streams[0].Found = func(*outbox.Table) time.Duration { return time.Second }
	cfg.Streams[0].Connect = func(context.Context) (*pgx.Conn, error) {
		connected++
		return nil, errors.New("no database here")
	}
	cfg.Streams[0].Pauses = &Pauses{
		May: func(string) error { return nil },
		Change: func(context.Context, string, string, string) ([]outbox.Park, error) {
			connected++
			return nil, errors.New("no database here")
		},
	}
	cfg.Slots = func(context.Context) ([]Server, error) {
		connected++
		return nil, errors.New("no database here")
	}
	p, err := New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(p.Close)
	secret := func(text string) admin.Secret {
		return func(context.Context) (string, error) { return text, nil }
	}
	h, err := admin.Handler(admin.Config{
		Metrics: http.NotFoundHandler(), Page: p,
		Auth: admin.Auth{Users: []admin.User{{Role: admin.Viewer, Password: secret("viewer-secret")}, {Role: admin.Operator, Name: "ops", Password: secret("operator-secret")}}},
	}, func() time.Time { return now })
	if err != nil {
		f.Fatal(err)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	n := 0
	f.Fuzz(func(t *testing.T, method, path, query, host, authorization, origin, site, body string, ours bool) {
		now, n, connected = now.Add(time.Minute), n+1, 0
		if ours {
			body += p.forms.token("ops", now)
		}
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)).WithContext(gone)
		r.Method, r.URL, r.Host, r.RemoteAddr = method, &url.URL{Path: path, RawQuery: query}, host, fmt.Sprintf("10.%d.%d.%d:1", n>>16&255, n>>8&255, n&255)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for name, value := range map[string]string{"Authorization": authorization, "Origin": origin, "Sec-Fetch-Site": site} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		name, password, _ := r.BasicAuth()
		isOperator := name == "ops" && password == "operator-secret"
		isKnown := isOperator || authorization == viewer || name == "" && password == "viewer-secret"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		switch {
		case w.Code == http.StatusInternalServerError || w.Code == http.StatusBadGateway && connected == 0:
			t.Fatalf("%s %q?%q: %d: %s", method, path, query, w.Code, w.Body)
		case !isKnown && (connected > 0 || strings.Contains(w.Body.String(), "cdc@db") || strings.Contains(w.Body.String(), "<script>alert")):
			t.Fatalf("%s %q?%q told or asked for a stranger: %s", method, path, query, w.Body)
		case connected > 0 && method != http.MethodGet && method != http.MethodHead && (!isOperator || !ours && !strings.Contains(body, "token=")):
			t.Fatalf("%s %q was carried out: %s", method, path, w.Body)
		case connected > 0 && method == http.MethodPost && site != "same-origin" && (site != "" || !strings.HasSuffix(origin, host)):
			t.Fatalf("%s %q of %q, %q was carried out", method, path, site, origin)
		}
		harmless(t, path, w.Body.String())
	})
}
