package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// conditions are what a panel shows nothing for on purpose: its description says so.
var conditions = strings.NewReplacer(" < 1e9", "", " < 1e18", "")

// dashboardFills has a Prometheus record a process, with histograms of either form, and expects every
// panel of the dashboard to show a number in the end: those of exactly-once delivery, or the others.
func dashboardFills(t *testing.T, p *process, once bool) func() {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		if os.Getenv("OUTBOX_TEST_KAFKA") == "required" { // as continuous integration has it
			t.Error(err)
		}
		t.Log("NOT CHECKED: the dashboard's queries need Debian's package prometheus")
		return func() {}
	}
	address, err := p.address()
	if err != nil {
		t.Fatal(err)
	}
	servers := []string{prometheus(t, program, address), prometheus(t, program, address, "--enable-feature=native-histograms")}
	all := slices.DeleteFunc(panels(t), func(p panel) bool { return p.once() != once })
	await := func(p panel) {
		t.Helper()
		for i, server := range servers {
			harness.Eventually(t, 30*time.Second, func() error { return p.shows(server, i == 1) })
		}
	}
	await(all[0]) // a rate needs a sample from before
	return func() {
		t.Helper()
		for _, p := range all {
			await(p)
		}
	}
}

// prometheus starts one that looks each second, and gives its address.
func prometheus(t *testing.T, program, target string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf(`{global: {scrape_interval: 1s}, scrape_configs: [{job_name: outbox-cdc, static_configs: [{targets: [%q]}]}]}`, target)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	port, err := localpg.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	args := append([]string{"--config.file=" + dir + "/prometheus.yml", "--storage.tsdb.path=" + dir + "/data", "--web.listen-address=" + address}, flags...)
	harness.Start(t, exec.Command(program, args...))
	return "http://" + address
}

// panel has queries of which one at least gives a number, in a run that had some of everything.
type panel struct {
	Title   string
	Targets []struct{ Expr string }
}

func panels(t *testing.T) []panel {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	all := slices.DeleteFunc(dashboard.Panels, func(p panel) bool { return len(p.Targets) == 0 }) // titles of rows
	if len(all) < 20 {
		t.Fatalf("%d panels", len(all))
	}
	return all
}

// once reports whether the panel is about streams that deliver exactly once.
func (p panel) once() bool {
	return strings.Contains(p.Targets[0].Expr, "outbox_cdc_transaction") || strings.Contains(p.Targets[0].Expr, "outbox_cdc_tally")
}

func (p panel) shows(server string, native bool) error {
	numbers := 0
	for _, target := range p.Targets { // $stream: all of them
		expr := strings.NewReplacer("$stream", ".*", "$__rate_interval", "10m").Replace(conditions.Replace(target.Expr))
		n, err := evaluated(server, expr)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", p.Title, expr, err)
		}
		numbers += n
	}
	if numbers == 0 {
		return fmt.Errorf("%s is empty (native histograms: %v): %v", p.Title, native, p.Targets)
	}
	return nil
}

// evaluated counts the series of a query's graph that have a number somewhere.
func evaluated(server, expr string) (numbers int, err error) {
	var answer struct {
		Error string
		Data  struct{ Result []struct{ Values [][2]any } }
	}
	now := time.Now()
	res, err := http.Get(fmt.Sprintf("%s/api/v1/query_range?query=%s&start=%d&end=%d&step=1", server, url.QueryEscape(expr), now.Add(-10*time.Minute).Unix(), now.Unix()))
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || answer.Error != "" {
		return 0, errors.Join(err, errors.New(answer.Error))
	}
	for _, series := range answer.Data.Result {
		if slices.ContainsFunc(series.Values, func(v [2]any) bool { return v[1] != "NaN" }) {
			numbers++
		}
	}
	return numbers, nil
}
