package page

import (
	"encoding/base64"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

func basic(name, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password))
}

// process is a running outbox-cdc, and what it said.
type process struct {
	*harness.Process
	t *testing.T
}

// launch starts outbox-cdc; it is stopped at the end of the test.
func launch(t *testing.T, args ...string) *process {
	t.Helper()
	return &process{harness.Start(t, exec.Command(harness.Binary(t), args...)), t}
}

func (p *process) log() string { return strings.Join(p.Said(), "\n") }

// await waits for what the process says.
func (p *process) await(pattern string) []string {
	p.t.Helper()
	what := regexp.MustCompile(pattern)
	var found []string
	harness.Eventually(p.t, time.Minute, func() error {
		if found = what.FindStringSubmatch(p.log()); found == nil {
			return fmt.Errorf("no %s in %s", pattern, p.log())
		}
		return nil
	})
	return found
}

// chooseTheLastMinute does what a person does with the keyboard, and returns what the chart says.
const chooseTheLastMinute = `(() => {
	const svg = document.querySelector(".chart svg");
	svg.focus();
	svg.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft", bubbles: true }));
	return svg.closest(".chart").querySelector("output").textContent;
})()`

// The pages follow a demo through an outage without a reload.
func TestDemoThroughAnOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers and a browser")
	}
	t.Parallel() // both wait more than they work
	b := start(t)
	demo := launch(t, "demo", "--serve", "--duration", "10s", "--rate", "200", "--outage", "7s", "--log-format", "console")
	url := demo.await(`page: (http://\S+)`)[1]
	demo.await(`writing orders`)
	b.open(url + "/")
	b.await("#live", "Live.")
	b.await("section.lane .mode", "streaming")
	b.await("#attention", "Everything works")
	b.shoot("overview", screen)
	b.await("#attention", "cannot be used")
	b.await("section.lane .mode", "holding")
	b.shoot("overview-outage", screen, dark, phone)
	b.click("section.lane h2 a")
	b.await("#errors", "connection refused")
	b.shoot("stream-outage", screen, phone)
	b.await("section.lane .mode", "streaming")
	b.await("#events", "can be used")
	demo.await(`every row is through`)
	b.await("section.lane", "0 pending")
	b.await(".charts", "Rows published")
	if said := ask[string](b, chooseTheLastMinute); !strings.HasSuffix(said, " rows/s") {
		t.Errorf("a chart says of its last minute: %q", said)
	}
	b.shoot("stream", dark)
	b.open(url + "/failed")
	b.await("main", "No row is FAILED")
	b.shoot("failed-none", screen)
	b.open(url + "/slots")
	b.await("main", "stream demo-")
	b.shoot("slots", screen, phone)
	demo.Signal(syscall.SIGINT)
	if code := demo.Ended(30 * time.Second); code != 0 {
		t.Errorf("exit code %d: %s", code, demo.log())
	}
}

const hostile = `<script>document.title='owned'</script><img src=x onerror="document.title='owned'">'"&`

// served is a stream with FAILED rows and its page.
type served struct {
	db    *harness.DB
	kafka *harness.Cluster
	run   *process
	url   string
}

func serve(t *testing.T) *served {
	t.Helper()
	db, kafka := harness.Postgres(t), harness.Kfake(t)
	kafka.CreateTopic(t, "orders", 1, nil)
	file := filepath.Join(t.TempDir(), "outbox-cdc.yaml")
	text := fmt.Sprintf(`
kafka: {clusters: {main: {brokers: [%q]}}}
streams:
  - name: orders
    postgres: {dsn: %q}
    watch_interval: 200ms
    tables: [{table: public.outbox, profile: native, grace: 0s}]
http: {listen: "127.0.0.1:0", page: true, show_payloads: true, auth: {username: ops, password: "s3cret"}}
`, strings.Join(kafka.Addrs, `", "`), db.DSN)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(harness.Binary(t), "init", "--native-table", "--config", file).CombinedOutput(); err != nil {
		t.Fatalf("init: %v: %s", err, out)
	}
	db.Exec(t, `INSERT INTO outbox (topic, key, payload, status, attempts, last_error)
		SELECT 'orders', 'key ' || n, convert_to('{"total": ' || n || '}', 'UTF8'), 'FAILED', 10, 'Message was too large' FROM generate_series(1, 5) AS n`)
	db.Exec(t, `ALTER TABLE outbox DROP CONSTRAINT outbox_topic_check`) // which tables of others do not have
	db.Exec(t, `INSERT INTO outbox (topic, key, payload, status, attempts, last_error) VALUES ($1, $1, convert_to($1, 'UTF8'), 'FAILED', 10, $1)`, hostile)
	s := &served{db: db, kafka: kafka, run: launch(t, "run", "--config", file, "--log-format", "json")}
	s.url = "http://" + s.run.await(`"address":"([^"]+)"`)[1]
	s.run.await(`"message":"streaming"`)
	return s
}

func (s *served) state(t *testing.T, id int) string {
	t.Helper()
	return harness.One[string](t, s.db, fmt.Sprintf(`SELECT coalesce((SELECT status FROM outbox WHERE id = %d), 'gone')`, id))
}

func TestActsOnFailedRows(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers and a browser")
	}
	t.Parallel() // both wait more than they work
	b, s := start(t), serve(t)
	t.Run("no credentials", func(t *testing.T) { refusedWithout(t, s) })
	b.as("ops", "s3cret")
	b.open(s.url + "/")
	b.await("#attention", "6 rows are FAILED")
	b.click("#attention a")
	b.await("main", "6 rows are FAILED")
	b.shoot("failed", screen, dark, phone)
	harmless(t, b)
	t.Run("hostile contents", func(t *testing.T) { hostileRow(t, b, s) })
	t.Run("requeue one", func(t *testing.T) { requeueOne(t, b, s) })
	t.Run("discard a selection", func(t *testing.T) { discardSelected(t, b, s) })
	t.Run("forged", func(t *testing.T) { forged(t, b, s) })
	t.Run("by keyboard", func(t *testing.T) { byKeyboard(t, b, s) })
	t.Run("without scripts", func(t *testing.T) { withoutScripts(t, b, s) })
	t.Run("requeue all that match", func(t *testing.T) { requeueMatching(t, b, s) })
	t.Run("wrong input", func(t *testing.T) { wrongInput(t, b, s) })
	t.Run("preview", func(t *testing.T) { previewed(t, b, s) })
	t.Run("find and replay", func(t *testing.T) { findAndReplay(t, b, s) })
	t.Run("pause and resume", func(t *testing.T) { pauseAndResume(t, b, s) })
	t.Run("a topic that is missing", func(t *testing.T) { parked(t, b, s) })
}

// harmless fails when anything of a row was run.
func harmless(t *testing.T, b *browser) {
	t.Helper()
	title := ask[string](b, `document.title`)
	images := ask[int](b, `document.querySelectorAll("main img, main script").length`)
	if title == "owned" || images > 0 {
		t.Errorf("a row's contents were taken for the page's: %q, %d", title, images)
	}
}

func hostileRow(t *testing.T, b *browser, s *served) {
	for _, path := range []string{"/failed/row?id=%5B%226%22%5D", "/failed/row?id=%5B%226%22%5D&as=hex", "/streams/orders", "/failed?topic=" + "%3Cscript%3Edocument.title%3D'owned'%3C%2Fscript%3E"} {
		b.open(s.url + path)
		harmless(t, b)
	}
	b.open(s.url + "/failed/row?id=%5B%226%22%5D")
	b.await("main pre", hostile)
	b.await("main dl", hostile)
	b.shoot("row", screen, phone)
	b.open(s.url + "/failed/row?id=%5B%221%22%5D")
	b.await("main pre", "{\n  \"total\": 1\n}")
}

// previewed: the records that rows would become, those that can be none among them.
func previewed(t *testing.T, b *browser, s *served) {
	s.db.Exec(t, `INSERT INTO outbox (topic, key, payload, headers, created_at, available_after) VALUES
		('orders', 'later', convert_to('{"total": 12, "items": ["a", "b"]}', 'UTF8'), '{"source": "shop"}', now(), now() + interval '1 day'),
		('orders', 'later', '\x00ff', '{"source": {"nested": 1}}', now(), now() + interval '1 day'),
		($1, $1, convert_to($1, 'UTF8'), NULL, now(), now() + interval '1 day')`, hostile)
	b.open(s.url + "/streams/orders")
	b.click(`#tables a[href^="/preview"]`)
	b.await("h1", "Preview")
	b.await("main", "No record: column \"headers\"")
	b.await("main", "source")
	b.await("main pre", "{\n  \"total\": 12")
	harmless(t, b)
	b.shoot("preview", screen, dark, phone)
	b.open(s.url + "/failed/row?id=%5B%226%22%5D")
	b.await("main", "The record that it would become")
	b.await("main", "No record:")
	harmless(t, b)
}

func requeueOne(t *testing.T, b *browser, s *served) {
	b.open(s.url + "/failed/row?id=%5B%221%22%5D")
	b.click(`button[value="requeue"]`)
	b.await("h1", "Confirm: requeue")
	b.await("main", "Nothing was changed yet")
	b.shoot("confirm", screen, dark)
	if got := s.state(t, 1); got != "FAILED" {
		t.Errorf("before the confirmation the row is %s", got)
	}
	b.click(`button[value="requeue"]`)
	b.await("main", "1 row of public.outbox: requeue")
	b.shoot("done", screen)
	harness.Eventually(t, patience, func() error {
		if got := s.state(t, 1); got != "SENT" {
			return fmt.Errorf("the row is %s", got)
		}
		return nil
	})
	s.run.await(`"verb":"requeue".*"user":"ops".*"ids":\["1"\].*an operator changed rows`)
}

func discardSelected(t *testing.T, b *browser, s *served) {
	b.open(s.url + "/failed")
	b.tick(`input[value='["2"]']`)
	b.tick(`input[value='["3"]']`)
	b.click(`button[value="delete"]`)
	b.await("main", "2 FAILED rows of table public.outbox match")
	b.await("main", "cannot be undone")
	b.click(`main .acts a`) // No
	if s.state(t, 2) != "FAILED" {
		t.Error("deleted without a confirmation")
	}
	b.tick(`input[value='["2"]']`)
	b.tick(`input[value='["3"]']`)
	b.click(`button[value="delete"]`)
	b.click(`button[value="delete"]`)
	b.await("main", "2 rows of public.outbox: delete")
	if s.state(t, 2) != "gone" || s.state(t, 3) != "gone" || s.state(t, 4) != "FAILED" {
		t.Error("other rows were deleted than those ticked")
	}
}

// forged: another site's page sends the form with the person's credentials, and
// a program with credentials but without our token does.
func forged(t *testing.T, b *browser, s *served) {
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<form method="post" action="%s/failed/act"><input name="id" value="%s"><input name="verb" value="requeue">
			<input name="confirmed" value="yes"><button id="go">Win</button></form>`, html.EscapeString(s.url), html.EscapeString(`["4"]`))
	}))
	defer evil.Close()
	b.open(strings.Replace(evil.URL, "127.0.0.1", "localhost", 1))
	b.click("#go")
	b.await("main", "from another site")
	// From our own page, but without its token.
	b.open(s.url + "/failed")
	ask[int](b, `document.querySelector('input[name=token]').value = 'AAAA'; document.querySelector('input[name=id]').checked = true; 0`)
	b.click(`button[value="requeue"]`)
	b.await("main", "did not come from this page")
	b.shoot("refused", screen)
	if got := s.state(t, 4); got != "FAILED" {
		t.Errorf("the row is %s", got)
	}
}

// byKeyboard: the first key leads past the menu, and every control is reached.
func byKeyboard(t *testing.T, b *browser, s *served) {
	b.open(s.url + "/failed")
	reached := map[string]bool{}
	for range 40 {
		b.do(chromedp.KeyEvent(kb.Tab))
		reached[ask[string](b, `(e => e.tagName === "BUTTON" && e.value || e.className || e.value || e.name || e.textContent)(document.activeElement)`)] = true
	}
	for _, want := range []string{"skip", "name", "topic", "requeue", "delete", "dismiss", "status"} {
		if !reached[want] {
			t.Errorf("%s is not reached by the keyboard: %v", want, reached)
		}
	}
	b.open(s.url + "/failed")
	b.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	if got := ask[string](b, `document.activeElement.id`); got != "main" {
		t.Errorf("past the menu is %q", got)
	}
}

// withoutScripts: all works but live updates and the viewer's zone.
func withoutScripts(t *testing.T, b *browser, s *served) {
	b.scripts(false)
	defer b.scripts(true)
	b.open(s.url + "/streams/orders")
	b.await("main", "UTC")
	b.await("footer", "Reload for newer numbers")
	b.open(s.url + "/failed")
	b.tick(`input[value='["6"]']`)
	b.click(`button[value="requeue"]`)
	b.await("main", "1 FAILED row of table public.outbox matches")
	b.click(`main .acts a`)
	b.await("h1", "Failed rows")
	if s.state(t, 6) != "FAILED" {
		t.Error("requeued without a confirmation")
	}
}

func requeueMatching(t *testing.T, b *browser, s *served) {
	b.open(s.url + "/failed")
	b.do(chromedp.SendKeys(chromedp.CSS(`input[name=error]:not([type])`), "too LARGE"))
	b.click(".filter button")
	b.await("main", "2 rows are FAILED, narrowed down")
	b.tick(`input[value=yes]`)
	b.click(`button[value="requeue"]`)
	b.await("main", "2 FAILED rows of table public.outbox match")
	b.click(`button[value="requeue"]`)
	b.await("main", "2 rows of public.outbox: requeue")
	if s.state(t, 6) != "FAILED" {
		t.Error("a row that does not match was requeued")
	}
	b.open(s.url + "/")
	b.await("#attention", "1 row is FAILED")
}

// wrongInput: the field that is wrong is named and has the focus, and what was typed and ticked is kept.
func wrongInput(t *testing.T, b *browser, s *served) {
	focus := func(want string) { // comes with the next frame
		t.Helper()
		harness.Eventually(t, patience, func() error {
			if got := ask[string](b, `[document.activeElement.name, document.activeElement.value, document.querySelector("input[name=topic]").value].join(" ")`); got != want {
				return fmt.Errorf("the focus is on %q, not on %q", got, want)
			}
			return nil
		})
	}
	b.open(s.url + "/failed?topic=orders")
	b.do(chromedp.SendKeys(chromedp.CSS(`input[name=since]:not([type])`), "yesterday"), chromedp.KeyEvent(kb.Enter))
	b.await("#problem", "is not a time")
	focus("since yesterday orders")
	b.shoot("wrong", screen, dark, phone)
	b.open(s.url + "/failed")
	b.tick(`input[value='["6"]']`)
	b.do(chromedp.SendKeys(chromedp.CSS(`input[name=status]`), "SENT"), chromedp.KeyEvent(kb.Enter))
	b.await("#problem", "uses the status")
	focus("status SENT ")
	b.shoot("wrong-status", screen, phone)
	ask[int](b, `document.querySelector("input[name=status]").value = ""; 0`)
	b.do(chromedp.SendKeys(chromedp.CSS(`input[name=status]`), "ARCHIVED"), chromedp.KeyEvent(kb.Enter))
	b.await("h1", "Confirm: set to ARCHIVED")
	b.await("main", "1 FAILED row of table public.outbox matches")
}

// findAndReplay: a row is found by its key, with its record, and published once more.
func findAndReplay(t *testing.T, b *browser, s *served) {
	b.open(s.url + "/rows")
	b.do(chromedp.SendKeys(chromedp.CSS("input[name=key]"), "key 1"))
	b.click(".filter button")
	b.await("main", "no row of it is PENDING")
	b.shoot("find", screen, dark, phone, darkPhone)
	b.click("tbody th a")
	b.await("main", "Its record, as it would be sent again")
	b.click(`button[value="replay"]`)
	b.await("h1", "Confirm: replay")
	b.await("main", "the same event ids again")
	b.click(`button[value="replay"]`)
	b.await("main", "1 row of public.outbox: replay")
}

// pauseAndResume: what a paused stream's row waits for is told.
func pauseAndResume(t *testing.T, b *browser, s *served) {
	b.open(s.url + "/streams/orders")
	b.click(`button[value="pause"]`)
	b.await("h1", "Confirm: pause")
	b.shoot("pause", screen, phone)
	b.click(`button[value="pause"]`)
	b.await("main", "Paused now")
	s.run.await(`"user":"ops".*an operator paused a stream`)
	s.run.await(`paused: its rows stay pending`) // the leader knows
	s.db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'held', 'x')`)
	b.open(s.url + "/rows?key=held")
	b.await("main", "paused by ops on the page")
	b.shoot("held-up", screen, phone)
	b.click("main section a")
	b.await("main", "paused by ops on the page")
	b.open(s.url + "/streams/orders")
	b.click(`button[value="resume"]`)
	b.click(`button[value="resume"]`)
	b.await("main", "Nothing of the stream is paused any more")
	harness.Eventually(t, patience, func() error {
		if state := harness.One[string](t, s.db, `SELECT status FROM outbox WHERE key = 'held'`); state != "SENT" {
			return fmt.Errorf("the row is %s", state)
		}
		return nil
	})
}

// parked: what waits, why, and until when; and it goes away by itself.
func parked(t *testing.T, b *browser, s *served) {
	b.open(s.url + "/streams/orders")
	b.await("#live", "Live.")
	s.db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ('not-there', 'k', 'x')`)
	b.await("#parks", "not-there")
	b.await("#attention", "Create the topic")
	b.await("#events", "not-there")
	b.shoot("parked", screen)
	s.kafka.CreateTopic(t, "not-there", 1, nil)
	b.await("#parks", "Nothing is parked")
	b.await("#topics", "not-there")
}

func refusedWithout(t *testing.T, s *served) {
	for name, header := range map[string]string{"none": "", "wrong": basic("ops", "secret"), "another name": basic("root", "s3cret")} {
		for _, path := range []string{"/", "/failed", "/static/page.js", "/live", "/api/v1/slots", "/failed/act"} {
			method := http.MethodGet
			if path == "/failed/act" {
				method = http.MethodPost
			}
			r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if header != "" {
				r.Header.Set("Authorization", header)
			}
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != http.StatusUnauthorized || !strings.Contains(strings.Join(res.Header.Values("WWW-Authenticate"), " "), "Basic") {
				t.Errorf("%s, %s: %s", name, path, res.Status)
			}
		}
	}
}
