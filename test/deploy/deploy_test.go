// Package deploy holds what is deployed next to the program to what the program
// really exports: alerts and dashboard may only name metrics and labels that
// docs/metrics.md lists, which package metrics holds to the code.
package deploy

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

var update = flag.Bool("update", false, "write deploy/grafana/dashboard.json")

const (
	root       = "../.."
	alertsFile = root + "/deploy/prometheus/alerts.yaml"
	testsFile  = root + "/deploy/prometheus/alerts_test.yaml"
	runbooks   = root + "/docs/runbooks"
	runbookURL = "https://github.com/outbox-cdc/outbox-cdc/blob/main/docs/runbooks/"
)

type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string  `yaml:"name"`
			Rules []alert `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.UnmarshalWithOptions([]byte(read(t, alertsFile)), &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	var all []alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	listedMetric = regexp.MustCompile("(?m)^\\| `(outbox_cdc_[a-z_]+)` \\| (\\w+)([^|]*) \\|")
	quotedWord   = regexp.MustCompile("`([a-z_]+)`")
	namedMetric  = regexp.MustCompile(`(outbox_cdc_[a-z_]+)(\{[^}]*\})?`)
	matcher      = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	grouping     = regexp.MustCompile(`\b(?:by|on|without|ignoring)\s*\(([^)]*)\)`)
)

// listed are the metrics of docs/metrics.md with their labels.
func listed(t *testing.T) map[string][]string {
	t.Helper()
	metrics := map[string][]string{}
	for _, m := range listedMetric.FindAllStringSubmatch(read(t, root+"/docs/metrics.md"), -1) {
		labels := []string{"stream", "job", "instance"}
		for _, l := range quotedWord.FindAllStringSubmatch(m[3], -1) {
			labels = append(labels, l[1])
		}
		metrics[m[1]] = labels
		if m[2] == "histogram" {
			metrics[m[1]+"_bucket"] = append(slices.Clone(labels), "le")
			metrics[m[1]+"_sum"], metrics[m[1]+"_count"] = labels, labels
		}
	}
	if len(metrics) < 30 {
		t.Fatalf("only %d metrics found in docs/metrics.md", len(metrics))
	}
	return metrics
}

// holds checks that an expression names metrics and labels that exist.
func holds(t *testing.T, where, expr string, metrics map[string][]string) {
	t.Helper()
	var labels []string
	found := namedMetric.FindAllStringSubmatch(expr, -1)
	if len(found) == 0 {
		t.Errorf("%s names no metric of ours: %s", where, expr)
	}
	for _, m := range found {
		if metrics[m[1]] == nil {
			t.Errorf("%s: there is no metric %s", where, m[1])
			continue
		}
		labels = append(labels, metrics[m[1]]...)
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(metrics[m[1]], l[1]) {
				t.Errorf("%s: %s has no label %s", where, m[1], l[1])
			}
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(g[1], ",") {
			if label = strings.TrimSpace(label); !slices.Contains(labels, label) {
				t.Errorf("%s: none of its metrics has a label %s", where, label)
			}
		}
	}
}

func TestAlerts(t *testing.T) {
	metrics, situations := listed(t), read(t, testsFile)
	for _, a := range alerts(t) {
		holds(t, a.Alert, a.Expr, metrics)
		if want := runbookURL + a.Alert + ".md"; a.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url is %q, want %s", a.Alert, a.Annotations["runbook_url"], want)
		}
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" || !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("%s needs a summary, a description and a severity", a.Alert)
		}
		if !strings.Contains(situations, `alertname="`+a.Alert+`", alertstate="firing"`) {
			t.Errorf("%s fires in no situation of %s", a.Alert, testsFile)
		}
	}
}

// The situations name only what exists, or they would prove nothing.
func TestSituations(t *testing.T) {
	metrics := listed(t)
	for _, m := range namedMetric.FindAllString(read(t, testsFile), -1) {
		holds(t, testsFile, m, metrics)
	}
}

// Each alert has a runbook with the same four parts, and the other way round.
func TestRunbooks(t *testing.T) {
	known := map[string]bool{"README": true}
	index := read(t, runbooks+"/README.md")
	for _, a := range alerts(t) {
		known[a.Alert] = true
		text := read(t, runbooks+"/"+a.Alert+".md")
		at := 0
		for _, part := range []string{
			"# " + a.Alert + "\n", "\n## Symptom\n", "\n## What it means\n", "\n**Consumers**: ", "\n**The primary's disk**: ",
			"\n## What to do\n", "\n## When it is over\n",
		} {
			i := strings.Index(text[at:], part)
			if i < 0 {
				t.Errorf("%s.md lacks %q, in this order", a.Alert, strings.TrimSpace(part))
				break
			}
			at += i
		}
		if !strings.Contains(index, "("+a.Alert+".md)") {
			t.Errorf("the index of runbooks lacks %s", a.Alert)
		}
	}
	files, err := filepath.Glob(runbooks + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	metrics := listed(t)
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".md"); !known[name] {
			t.Errorf("%s is the runbook of no alert", f)
		}
		for _, m := range namedMetric.FindAllString(read(t, f), -1) {
			holds(t, f, m, metrics)
		}
	}
}
