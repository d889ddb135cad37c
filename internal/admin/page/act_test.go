package page

import (
	"bytes"
	"context"
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

const seven = "00000000-0000-0000-0000-00000000000"

// office is a page at a table with rows that failed.
type office struct {
	*Page
	t   *testing.T
	db  *harness.DB
	log *bytes.Buffer
	who string
	// given is the token of the first list.
	given string
}

func newOffice(t *testing.T, change func(*Config)) *office {
	t.Helper()
	o := &office{t: t, db: harness.Postgres(t), log: &bytes.Buffer{}, who: "ops"}
	l := fixture.Im2be()
	o.db.Exec(t, l.DDL)
	o.db.Exec(t, `INSERT INTO outbox (aggregate_id, event_id, status, topic, payload_bytes, retries, last_error, created_at, sent_at) VALUES
		('`+seven+`1', '`+seven+`1', 'FAILED', 'orders', '{"a": 1}', 3, 'message too large', '2026-01-01 10:00Z', NULL),
		('`+seven+`1', '`+seven+`2', 'SENT', 'orders', 'x', 0, NULL, '2026-01-01 10:01Z', '2026-01-01 10:02Z'),
		('`+seven+`2', '`+seven+`3', 'FAILED', 'orders', '\xff00', 3, $1, '2026-01-01 11:00Z', NULL),
		('`+seven+`2', '`+seven+`4', 'FAILED', 'bills', 'x', 3, $1, '2026-01-01 12:00Z', NULL)`, hostile)
	cfg := config()
	cfg.ShowPayloads, cfg.Log = true, zerolog.New(o.log)
	cfg.MayAct = func(*http.Request) bool { return true }
	cfg.Who = func(*http.Request) string { return o.who }
	cfg.Streams[0].Tables = []*outbox.Table{l.Table}
	cfg.Streams[0].Found = func(*outbox.Table) time.Duration { return 15 * time.Second }
	cfg.Streams[0].Connect = func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, o.db.Own()) }
	if change != nil {
		change(&cfg)
	}
	o.Page = page(t, cfg)
	return o
}

// send posts a form as a browser would that shows our page.
func (o *office) send(form url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/failed/act", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	w := httptest.NewRecorder()
	o.ServeHTTP(w, r)
	return w
}

// idOf is a row's id: its aggregate and its event.
func idOf(event string) string {
	aggregate := map[string]string{"1": "1", "2": "1", "3": "2", "4": "2", "5": "1", "9": "9"}[event]
	return `["` + seven + aggregate + `","` + seven + event + `"]`
}

// form is what the list's form would send of these rows.
func (o *office) form(verb string, ids ...string) url.Values {
	f := url.Values{"verb": {verb}, "stream": {"orders"}, "table": {"public.outbox"}, "token": {o.token()}}
	for _, id := range ids {
		f.Add("id", idOf(id))
	}
	return f
}

var tokens = regexp.MustCompile(`name="token" value="([^"]+)"`)

// token is the one that the list hands out.
func (o *office) token() string {
	o.t.Helper()
	if o.given != "" {
		return o.given
	}
	found := tokens.FindStringSubmatch(get(o, "/failed").Body.String())
	if found == nil {
		o.t.Fatal("the list has no token")
	}
	o.given = found[1]
	return o.given
}

func (o *office) state(id string) string {
	o.t.Helper()
	return harness.One[string](o.t, o.db, `SELECT coalesce((SELECT status FROM outbox WHERE event_id = '`+seven+id+`'), 'gone')`)
}

func (o *office) mustSay(w *httptest.ResponseRecorder, code int, all ...string) {
	o.t.Helper()
	if w.Code != code {
		o.t.Errorf("%d, want %d", w.Code, code)
	}
	for _, want := range all {
		if !strings.Contains(w.Body.String(), want) {
			o.t.Errorf("no %q in\n%s", want, w.Body)
		}
	}
	harmless(o.t, "an answer", w.Body.String())
}

func TestFailedRowsAreListed(t *testing.T) {
	o := newOffice(t, nil)
	o.mustSay(get(o, "/failed"), 200, "3 rows are FAILED", "message too large", "&lt;script&gt;", "5,000 at a time", `name="status"`)
	o.mustSay(get(o, "/failed?topic=bills"), 200, "1 row is FAILED, narrowed down")
	o.mustSay(get(o, "/failed?error=TOO+LARGE"), 200, "1 row is FAILED")
	o.mustSay(get(o, "/failed?until=2020-01-01"), 200, "No failed row matches")
	o.mustSay(get(o, "/failed?since=never&topic=bills"), 400, "is not a time", `name="since" value="never"`, `aria-describedby="hint-since problem" aria-invalid="true"`, `name="topic" value="bills"`)
	o.mustSay(get(o, "/failed?since=1h&until=2h"), 400, "no row is between them", `aria-describedby="hint-until problem"`)
	o.mustSay(get(o, "/failed?error=("), 400, "“Error matches” is no regular expression", `name="error" value="("`, `aria-describedby="hint-error problem"`)
	o.mustSay(get(o, "/failed?table=public.none"), 404, "there is no table")
	conforms(t, "/api/v1/failed", get(o, "/api/v1/failed?topic=orders&limit=1"))
}

// The links of what rows have in common lead to those rows.
func TestAlikeRowsAreLinked(t *testing.T) {
	o := newOffice(t, nil)
	var l listed
	if err := json.Unmarshal(get(o, "/api/v1/failed").Body.Bytes(), &l); err != nil || len(l.Rows) == 0 {
		t.Fatal(err, l)
	}
	for _, a := range together(filter{State: "failed"}, l.Rows) {
		o.mustSay(get(o, a.Link), 200, "1 row is FAILED, narrowed down")
	}
}

func TestOneRow(t *testing.T) {
	o := newOffice(t, nil)
	row := func(id, more string) string {
		return "row?id=" + url.QueryEscape(idOf(id)) + more
	}
	o.mustSay(get(o, "/failed/"+row("1", "")), 200, "Payload, as json", "&#34;a&#34;: 1", "Requeue")
	o.mustSay(get(o, "/failed/"+row("3", "")), 200, "Payload, as hex", "ff 00", "&lt;script&gt;")
	o.mustSay(get(o, "/failed/"+row("9", "")), 404, "no such row")
	o.mustSay(get(o, "/failed/row?id=x"), 400, "an id needs a value for each of the columns")
	o.mustSay(get(o, "/failed/"+row("1", "")), 200, "The record that it would become", "<code>orders</code>", "Its key goes on without it")
	if body := get(o, "/failed/"+row("2", "")).Body.String(); !strings.Contains(body, "as it would be sent again") || !strings.Contains(body, `value="replay"`) || strings.Contains(body, `value="requeue"`) {
		t.Errorf("a row that is SENT can be replayed, and nothing else: %s", body)
	}
	w := get(o, "/api/v1/failed/"+row("1", "&as=text"))
	var d RowDetail
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil || d.PayloadAs != "text" || *d.Payload != `{"a": 1}` {
		t.Errorf("%v %+v", err, d)
	}
	conforms(t, "/api/v1/failed/row", w)
	o.cfg.ShowPayloads = false
	o.mustSay(get(o, "/failed/"+row("1", "")), 200, "http.show_payloads")
	if body := get(o, "/api/v1/failed/"+row("1", "")).Body.String(); strings.Contains(body, `"payload":`) {
		t.Error("a payload is shown that may not be")
	}
	d = RowDetail{}
	if err := json.Unmarshal(get(o, "/api/v1/failed/"+row("1", "")).Body.Bytes(), &d); err != nil || d.Record == nil || d.Record.Value.Text != nil || d.Record.Value.Length != 8 {
		t.Errorf("the record is to have the length of its value alone: %v %+v", err, d.Record)
	}
}

func TestRequeueIsConfirmed(t *testing.T) {
	o := newOffice(t, nil)
	f := o.form("requeue", "1", "3")
	o.mustSay(o.send(f), 200, "2 FAILED rows", "Nothing was changed yet", "later rows of the same key were SENT", "Yes, requeue 2 rows")
	if o.state("1") != "FAILED" || strings.Contains(o.log.String(), "changed rows") {
		t.Error("something was done without a confirmation")
	}
	f.Set("confirmed", "yes")
	o.mustSay(o.send(f), 200, "2 rows of public.outbox: requeue", "within about 15s", "in the log, with your name")
	if o.state("1") != "PENDING" || o.state("3") != "PENDING" || o.state("4") != "FAILED" {
		t.Error("not what was asked for")
	}
	for _, want := range []string{`"verb":"requeue"`, `"user":"ops"`, `"remote":"192.0.2.1:1234"`, `"rows":2`, seven + "1"} {
		if !strings.Contains(o.log.String(), want) {
			t.Errorf("the log has no %s: %s", want, o.log)
		}
	}
	o.mustSay(o.send(f), 200, "0 rows of public.outbox")
}

func TestDiscarding(t *testing.T) {
	o := newOffice(t, nil)
	f := o.form("delete", "1")
	f.Set("confirmed", "yes")
	o.mustSay(o.send(f), 200, "1 row of public.outbox: delete")
	f = o.form("dismiss", "3")
	o.mustSay(o.send(f), 400, "write the status", `aria-describedby="hint-status problem" aria-invalid="true"`, "Try again")
	f.Set("status", "SENT")
	// What was typed and what was chosen are kept.
	o.mustSay(o.send(f), 422, "uses the status", `name="status" value="SENT"`, `name="id" value="`+html.EscapeString(idOf("3"))+`"`)
	f.Set("status", "ARCHIVED")
	f.Set("confirmed", "yes")
	o.mustSay(o.send(f), 200, "1 row of public.outbox: set to ARCHIVED")
	if o.state("1") != "gone" || o.state("3") != "ARCHIVED" || o.state("4") != "FAILED" {
		t.Error("not what was asked for")
	}
	f = o.form("delete")
	o.mustSay(o.send(f), 400, "choose at least one row")
	f.Set("matching", "yes")
	f.Set("topic", "bills")
	o.mustSay(o.send(f), 200, "1 FAILED row", "cannot be undone")
	f.Set("confirmed", "yes")
	o.mustSay(o.send(f), 200, "1 row of public.outbox: delete")
	o.mustSay(o.send(o.form("drop", "1")), 400, "choose what is to be done")
	o.mustSay(o.send(o.form("delete", "x")), 422, "cannot have the id")
}

func TestForgedFormsAreRefused(t *testing.T) {
	o := newOffice(t, nil)
	good := o.form("delete", "1")
	good.Set("confirmed", "yes")
	for name, change := range map[string]func(url.Values, *http.Request){
		"no token":        func(f url.Values, _ *http.Request) { f.Del("token") },
		"another's token": func(f url.Values, _ *http.Request) { f.Set("token", o.forms.token("eve", noon)) },
		"an old token": func(f url.Values, _ *http.Request) {
			f.Set("token", o.forms.token("ops", noon.Add(-formLife-time.Second)))
		},
		"another process": func(f url.Values, _ *http.Request) { f.Set("token", newForms().token("ops", noon)) },
		"another site":    func(_ url.Values, r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"no browser":      func(_ url.Values, r *http.Request) { r.Header.Del("Sec-Fetch-Site") },
	} {
		f := url.Values{}
		for key, value := range good {
			f[key] = value
		}
		r := httptest.NewRequest(http.MethodPost, "/failed/act", nil)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		change(f, r)
		r.Body = http.NoBody
		r.PostForm, r.Form = f, f
		w := httptest.NewRecorder()
		o.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden || o.state("1") != "FAILED" {
			t.Errorf("%s: %d, the row is %s", name, w.Code, o.state("1"))
		}
	}
	if n := strings.Count(o.log.String(), "a form was refused"); n != 6 {
		t.Errorf("%d of 6 are in the log", n)
	}
	// In the address it is no form at all.
	r := httptest.NewRequest(http.MethodPost, "/failed/act?"+good.Encode(), nil)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	w := httptest.NewRecorder()
	o.ServeHTTP(w, r)
	if w.Code != http.StatusForbidden || o.state("1") != "FAILED" {
		t.Error(w.Code)
	}
}

// Without credentials nobody can be named, so nothing is offered or done.
func TestNoActsWithoutCredentials(t *testing.T) {
	o := newOffice(t, func(c *Config) { c.MayAct = nil })
	body := get(o, "/failed").Body.String()
	if strings.Contains(body, "Requeue …") || !strings.Contains(body, "http.auth") {
		t.Error(body)
	}
	f := url.Values{"verb": {"delete"}, "confirmed": {"yes"}, "matching": {"yes"}, "token": {o.forms.token("ops", noon)}}
	if w := o.send(f); w.Code != http.StatusForbidden || o.state("1") != "FAILED" {
		t.Error(w.Code)
	}
}
