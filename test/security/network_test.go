package security

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// served is the program with its page, for a scraper, a viewer and an operator.
type served struct {
	*world
	run *harness.Process
	url string
}

func (w *world) serve(users ...any) *served {
	w.t.Helper()
	http := fields{"listen": "127.0.0.1:0", "page": true, "show_payloads": true}
	if users != nil {
		http["auth"] = fields{"users": users}
	}
	w.config["http"] = http
	p := w.run()
	var line struct{ Address string }
	harness.Eventually(w.t, 30*time.Second, func() error {
		said := p.Said(`"message":"serving `)
		if len(said) == 0 {
			return errors.New("it does not say where it serves")
		}
		return json.Unmarshal([]byte(said[0]), &line)
	})
	return &served{world: w, run: p, url: "http://" + line.Address}
}

var people = []any{
	fields{"role": "metrics", "token": "the scraper's token"},
	fields{"role": "viewer", "username": "support", "password": "the viewer's"},
	fields{"role": "operator", "username": "ann", "password": "the operator's"},
}

func asScraper(r *http.Request)  { r.Header.Set("Authorization", "Bearer the scraper's token") }
func asViewer(r *http.Request)   { r.SetBasicAuth("support", "the viewer's") }
func asOperator(r *http.Request) { r.SetBasicAuth("ann", "the operator's") }
func asNobody(*http.Request)     {}

// ask sends a request and gives the answer's code and body.
func (s *served) ask(method, path, body string, change ...func(*http.Request)) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for _, c := range change {
		c(r)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	res, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// must is ask for an answer of this code.
func (s *served) answers(want int, method, path string, change ...func(*http.Request)) string {
	s.t.Helper()
	code, body := s.ask(method, path, "", change...)
	if code != want {
		s.t.Errorf("%s %s: %d, want %d: %.300s", method, path, code, want, body)
	}
	return body
}

var formToken = regexp.MustCompile(`name="token" value="([^"]+)"`)

// The credentials of a scraper, of a viewer and of a stranger are used to delete
// a FAILED row, with a form token that an operator was shown; then the operator
// deletes it.
func TestOnlyOperatorsChangeRows(t *testing.T) {
	w := newWorld(t)
	s := w.serve(people...)
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, status, attempts, last_error) VALUES ($1, 'k', 'x', 'FAILED', 10, 'refused')`, w.topic)
	id := harness.One[int64](t, w.db, `SELECT id FROM outbox`)

	s.answers(200, "GET", "/metrics", asScraper)
	s.answers(403, "GET", "/failed", asScraper)
	s.answers(401, "GET", "/metrics", asNobody)
	if page := s.answers(200, "GET", "/failed", asViewer); strings.Contains(page, "Requeue …") {
		t.Error("a viewer is offered acts")
	}
	token := formToken.FindStringSubmatch(s.answers(200, "GET", "/failed", asOperator))
	if token == nil {
		t.Fatal("an operator is shown no form")
	}
	form := url.Values{
		"verb": {"delete"}, "stream": {"s"}, "table": {"public.outbox"}, "confirmed": {"yes"}, "token": {token[1]}, "id": {fmt.Sprintf(`["%d"]`, id)},
	}.Encode()
	for who, as := range map[string]func(*http.Request){"the scraper": asScraper, "the viewer": asViewer, "nobody": asNobody} {
		if code, body := s.ask("POST", "/failed/act", form, as); code != 403 && code != 401 {
			t.Errorf("%s: %d %.200s", who, code, body)
		}
	}
	if n := harness.One[int](t, w.db, `SELECT count(*) FROM outbox`); n != 1 {
		t.Fatal("the row was deleted without an operator")
	}
	if code, body := s.ask("POST", "/failed/act", form, asOperator); code != 200 || harness.One[int](t, w.db, `SELECT count(*) FROM outbox`) != 0 {
		t.Errorf("the operator: %d %.300s", code, body)
	}
	s.run.Await(5*time.Second, "an operator changed rows", `"user":"ann"`)
}

// 300 wrong passwords: they are counted and logged a few times, the right one is
// not found among them, and the scraper behind the same address goes on.
func TestGuessingIsSlowAndSeen(t *testing.T) {
	w := newWorld(t)
	s := w.serve(people...)
	looked, refused, began := 0, 0, time.Now()
	guess := func() {
		t.Helper()
		refused++
		switch code, body := s.ask("GET", "/failed", "", func(r *http.Request) { r.SetBasicAuth("ann", "guess "+strconv.Itoa(refused)) }); code {
		case 401:
			looked++
		case 429:
		default:
			t.Fatalf("guess %d: %d %.200s", refused, code, body)
		}
	}
	for range 300 {
		guess()
	}
	harness.Eventually(t, 30*time.Second, func() error { // the operator may get the try that comes back every ten seconds
		guess()
		if code, _ := s.ask("GET", "/failed", "", asOperator); code != http.StatusTooManyRequests { // from the guesser's address, for that user
			return fmt.Errorf("the operator is answered with %d", code)
		}
		refused++
		return nil
	})
	if text := s.answers(200, "GET", "/metrics", asScraper); !strings.Contains(text, fmt.Sprintf("outbox_cdc_http_logins_refused_total %d\n", refused)) {
		t.Errorf("%d of them are not counted", refused)
	}
	lines, more := s.run.Said("refused wrong credentials"), int(time.Since(began)/(5*time.Second))
	if looked > 20+more {
		t.Errorf("%d guesses were looked at", looked)
	}
	if len(lines) == 0 || len(lines) > 15+more || strings.Contains(strings.Join(lines, ""), "guess ") || !strings.Contains(lines[0], "127.0.0.1") {
		t.Errorf("%d lines in the log: %.500s", len(lines), lines)
	}
}

// The page's slots are shown to viewers, in a session of the marker or the streamer,
// whatever the owner of the database has put in its way.
func TestSlotsAreShownToViewers(t *testing.T) {
	w := unprivileged(t)
	w.db.Exec(t, `ALTER SYSTEM SET log_connections = on`)
	w.db.Exec(t, `SELECT pg_reload_conf()`)
	s := w.serve(people...)
	for _, path := range []string{"/slots", "/api/v1/slots"} {
		s.answers(401, "GET", path, asNobody)
		s.answers(403, "GET", path, asScraper)
		s.answers(404, "POST", path, asOperator)
		if body := s.answers(200, "GET", path, asViewer); !strings.Contains(strings.ReplaceAll(body, "<wbr>", ""), "slot_"+w.db.Name) {
			t.Errorf("%s does not show the slot:\n%s", path, body)
		}
	}
	logins := regexp.MustCompile(`user=(\w+) database=app application_name=outbox-cdc`).FindAllStringSubmatch(w.db.Server.Log(), -1)
	for _, login := range logins {
		if login[1] != "cdc" && login[1] != "repl" {
			t.Errorf("a session of role %s", login[1])
		}
	}
	if len(logins) == 0 {
		t.Error("the server's log has no logins")
	}
}

// Another site's name leads to the process's address (DNS rebinding): a browser
// of somebody inside then asks with that name as Host.
func TestDNSRebinding(t *testing.T) {
	w := newWorld(t)
	s := w.serve()
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, status) VALUES ($1, 'secret key', 'secret payload', 'FAILED')`, w.topic)
	row := "/failed/row?id=" + url.QueryEscape(fmt.Sprintf(`["%d"]`, harness.One[int64](t, w.db, `SELECT id FROM outbox`)))
	paths := []string{"/metrics", "/healthz", "/readyz", "/api/v1/status", "/", "/failed", row, "/slots", "/api/v1/failed", "/api/v1/streams/s"}
	harness.Eventually(t, 30*time.Second, func() error {
		if code, body := s.ask("GET", "/readyz", ""); code != 200 {
			return fmt.Errorf("/readyz: %d %s", code, body)
		}
		return nil
	})
	for _, path := range paths {
		body := s.answers(421, "GET", path, func(r *http.Request) { r.Host = "evil.example" })
		if strings.Contains(body, "secret") || strings.Contains(body, "outbox_cdc_") {
			t.Errorf("%s told another site: %.300s", path, body)
		}
		s.answers(200, "GET", path)
	}
	// What another site's page embeds makes no query either.
	s.answers(403, "GET", "/failed?error=(a*)*b", func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Sec-Fetch-Mode", "no-cors")
		r.Header.Set("Sec-Fetch-Dest", "image")
	})
}

// A row that is no FAILED one is read by counting ids; a pattern that takes
// PostgreSQL hours is asked for.
func TestWhatThePageShows(t *testing.T) {
	w := newWorld(t)
	s := w.serve(people...)
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, status) VALUES ($1, 'k', 'secret payload', 'SENT')`, w.topic)
	row := "/failed/row?id=" + url.QueryEscape(fmt.Sprintf(`["%d"]`, harness.One[int64](t, w.db, `SELECT id FROM outbox`)))
	if body := s.answers(404, "GET", row, asViewer); strings.Contains(body, "secret") {
		t.Errorf("a viewer is shown it: %s", body)
	}
	s.answers(200, "GET", row, asOperator)

	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, status, last_error) SELECT $1, 'k', '', 'FAILED', repeat('a', 900) FROM generate_series(1, 2000)`, w.topic)
	s.answers(400, "GET", "/api/v1/failed?error="+strings.Repeat("a", 5000), asViewer)
	began := time.Now()
	_, _ = s.ask("GET", "/api/v1/failed?error="+url.QueryEscape(`(a*)*(a|aa)*(.*a){12}b\1`), "", asViewer)
	if took := time.Since(began); took > time.Minute {
		t.Errorf("a pattern occupied the database for %s", took)
	}
}

// Somebody opens as many connections as they may and asks nothing, or asks byte
// by byte. Metrics are scraped meanwhile.
func TestIdleConnectionsKeepNobodyOut(t *testing.T) {
	w := newWorld(t)
	s := w.serve(people...)
	address := strings.TrimPrefix(s.url, "http://")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range 800 {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: local")
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.run.PID()))
	if err == nil && len(open) > 600 {
		t.Errorf("%d descriptors are open", len(open))
	}
	quickest := time.Hour // one answer can be late on a busy machine
	for range 5 {
		began := time.Now()
		s.answers(200, "GET", "/metrics", asScraper)
		quickest = min(quickest, time.Since(began))
	}
	if quickest > 4*time.Second { // the slow ones time out after five
		t.Errorf("the scraper waited %s and longer", quickest)
	}
	w.good(3, 20*time.Second)
}

// Configurations that would show rows or send secrets in the clear do not start.
func TestOpenConfigurationsAreRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("not in the short form")
	}
	for what, c := range map[string]struct{ postgres, cluster, http, want string }{
		"an open page":         {http: `{"listen": "0.0.0.0:0", "page": true}`, want: "http.page: true is open"},
		"open payloads":        {http: `{"listen": ":0", "show_payloads": true}`, want: "http.show_payloads: true is open"},
		"credentials in clear": {http: `{"listen": ":0", "auth": {"token": "0123456789abcdef"}}`, want: "in plain text"},
		"a short token":        {http: `{"listen": ":0", "allow_plaintext": true, "auth": {"token": "short"}}`, want: "fewer than 16"},
		"a password in clear":  {postgres: `{"dsn": "postgres://u:secret@192.0.2.1/d"}`, want: "its password could go to 192.0.2.1 in plain text"},
		"one beside":           {postgres: `{"dsn": "postgres://u@192.0.2.1/d?sslmode=prefer", "password": {"command": ["true"]}}`, want: "in plain text"},
		"a broker's":           {cluster: `{"brokers": ["192.0.2.1:9092"], "sasl": {"mechanism": "PLAIN", "username": "u", "password": "secret"}}`, want: "without TLS"},
	} {
		postgres, cluster, http := `{"dsn": "postgres://u@localhost/d"}`, `{"brokers": ["localhost:9092"]}`, `{}`
		for _, part := range []struct {
			from string
			to   *string
		}{{c.postgres, &postgres}, {c.cluster, &cluster}, {c.http, &http}} {
			if part.from != "" {
				*part.to = part.from
			}
		}
		file := filepath.Join(t.TempDir(), "outbox-cdc.yaml")
		text := fmt.Sprintf(`{"kafka": {"clusters": {"main": %s}}, "streams": [{"name": "s", "postgres": %s, "tables": [{"table": "public.outbox", "profile": "native"}]}], "http": %s}`, cluster, postgres, http)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, command := range [][]string{{"config", "validate"}, {"run"}} {
			out, err := exec.CommandContext(t.Context(), harness.Binary(t, "failpoints"), append(command, "--config", file)...).CombinedOutput()
			if err == nil || !bytes.Contains(out, []byte(c.want)) || bytes.Contains(out, []byte("secret@")) {
				t.Errorf("%s, %s: %v\n%s", what, command, err, out)
			}
		}
	}
}

// The server is given another password while the process runs: each connection
// asks for the one of now, of a file and of a command.
func TestPasswordsAreRotated(t *testing.T) {
	w := newWorld(t)
	role := "cdc_" + w.db.Name
	w.db.Exec(t, fmt.Sprintf(`CREATE ROLE %s LOGIN SUPERUSER PASSWORD 'first#/?'`, role)) // of a cluster of the test's own
	at, err := url.Parse(w.db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	at.User = url.User(role)
	file := filepath.Join(w.dir, "password")
	write := func(password string) {
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first#/?")
	w.stream["postgres"] = fields{
		"dsn": at.String(), "password": fields{"file": file},
		"replication_dsn": at.String(), "replication_password": fields{"command": []string{"cat", file}}, "wal_sender_timeout": "3s",
	}
	w.run()
	w.good(3, 20*time.Second)
	w.db.Exec(t, fmt.Sprintf(`ALTER ROLE %s PASSWORD 'second'`, role))
	write("second")
	w.db.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1`, role)
	w.good(3, 30*time.Second)
}

// Somebody with the service's own user looks at the process: the kernel gives its
// memory and environment to root only, and a crash leaves no core behind.
func TestTheProcessIsSealed(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("starts the program as another user")
	}
	dir, err := os.MkdirTemp("", "sealed")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program, err := os.ReadFile(harness.Binary(t, "failpoints"))
	if err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	config := `{"kafka": {"clusters": {"main": {"brokers": ["127.0.0.1:1"]}}}, "http": {"listen": "off"},
		"streams": [{"name": "s", "postgres": {"dsn": "postgres://u@127.0.0.1:1/d"}, "tables": [{"table": "public.outbox", "profile": "native"}]}]}`
	for name, data := range map[string][]byte{"program": program, "config": []byte(config)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o500); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(dir, name), nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil { // #nosec G302 -- for the other user
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "program"), "run", "--config", filepath.Join(dir, "config"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	p := harness.Start(t, cmd)
	p.Await(20*time.Second, "does not work")
	var owner syscall.Stat_t
	if err := syscall.Stat(fmt.Sprintf("/proc/%d/environ", p.PID()), &owner); err != nil {
		t.Skip("no /proc: ", err)
	}
	if owner.Uid != 0 {
		t.Errorf("user %d may read the process's memory and environment", owner.Uid)
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.PID()))
	if err != nil || !regexp.MustCompile(`Max core file size\s+0\s+0\s`).Match(limits) {
		t.Errorf("%v\n%s", err, limits)
	}
}
