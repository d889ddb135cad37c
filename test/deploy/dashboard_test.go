package deploy

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

const dashboardFile = root + "/deploy/grafana/dashboard.json"

// query is one line of a panel.
type query struct{ expr, legend string }

// panel is what the dashboard shows of one question.
type panel struct {
	title, unit, about string
	kind               string // stat or timeseries
	queries            []query
}

// quantile asks for the classic form of a histogram, or the native one where
// Prometheus asks for that.
func quantile(q, metric, legend string) query {
	of := func(labels, name string) string {
		return "histogram_quantile(" + q + ", sum by (" + labels + ") (rate(" + name + `{stream=~"$stream"}[$__rate_interval])))`
	}
	return query{of("stream, le", metric+"_bucket") + " or " + of("stream", metric), legend}
}

// rows are the dashboard, from what is looked at first to what explains it.
// Filters are by $stream; maxima over processes, since a standby shows 0.
var rows = []struct {
	title  string
	panels []panel
}{
	{"Is it well?", []panel{
		{"Leaders", "none", "Processes that lead; one per stream.", "stat", []query{{`sum by (stream) (outbox_cdc_leader{stream=~"$stream"})`, "{{stream}}"}}},
		{"To look at", "none", "What somebody should know, as outbox-cdc status lists it.", "stat", []query{{`max by (stream, level) (outbox_cdc_findings{stream=~"$stream", level!="note"})`, "{{stream}}: {{level}}"}}},
		{"Mode", "none", "stream is the ordinary one; hold: Kafka cannot be used; sweep: rows come from the table.", "stat", []query{{`max by (stream, mode) (outbox_cdc_mode{stream=~"$stream", mode!="standby"}) == 1`, "{{stream}}: {{mode}}"}}},
		{"Oldest pending row", "s", "Age of the oldest row still to be published.", "stat", []query{{`max by (stream) (outbox_cdc_pending_oldest_age_seconds{stream=~"$stream"})`, "{{stream}}"}}},
		{"WAL held back, of its budget", "percentunit", "At 75 % the stream is swept instead.", "stat", []query{{`max by (stream) (outbox_cdc_retained_wal_bytes{stream=~"$stream"}) / max by (stream) (outbox_cdc_wal_budget_bytes{stream=~"$stream"})`, "{{stream}}"}}},
		{"FAILED rows", "none", "Rows in the tables that wait for a decision.", "stat", []query{{`sum by (stream) (max by (stream, table) (outbox_cdc_failed_rows{stream=~"$stream"}))`, "{{stream}}"}}},
		{"Kafka", "none", "1: the cluster can be used.", "stat", []query{{`max by (stream, cluster) (outbox_cdc_kafka_usable{stream=~"$stream"})`, "{{stream}}: {{cluster}}"}}},
	}},
	{"Events", []panel{
		{"Rows in and out", "ops", "", "timeseries", []query{
			{`sum by (stream) (rate(outbox_cdc_rows_decoded_total{stream=~"$stream"}[$__rate_interval]))`, "{{stream}} read from the WAL"},
			{`sum by (stream) (rate(outbox_cdc_rows_swept_total{stream=~"$stream"}[$__rate_interval]))`, "{{stream}} read from the table"},
			{`sum by (stream) (rate(outbox_cdc_rows_published_total{stream=~"$stream"}[$__rate_interval]))`, "{{stream}} published"},
			{`sum by (stream) (rate(outbox_cdc_rows_marked_total{stream=~"$stream"}[$__rate_interval]))`, "{{stream}} marked"},
		}},
		{"From creation to Kafka", "s", "By the clocks of the writer and of this process.", "timeseries", []query{
			quantile(`0.5`, `outbox_cdc_created_to_published_seconds`, "{{stream}} p50"),
			quantile(`0.99`, `outbox_cdc_created_to_published_seconds`, "{{stream}} p99"),
		}},
		{"By topic", "ops", "", "timeseries", []query{{`sum by (topic, outcome) (rate(outbox_cdc_topic_rows_total{stream=~"$stream"}[$__rate_interval]))`, "{{topic}} {{outcome}}"}}},
		{"Bytes by topic", "Bps", "Before compression.", "timeseries", []query{{`sum by (topic) (rate(outbox_cdc_topic_bytes_total{stream=~"$stream"}[$__rate_interval]))`, "{{topic}}"}}},
		{"Pending rows", "none", "At most 100,000 are counted.", "timeseries", []query{{`max by (stream, table) (outbox_cdc_pending_rows{stream=~"$stream"})`, "{{stream}} {{table}}"}}},
		{"Failures of rows", "ops", "row: refused by itself; budget: FAILED now; topic: given back; write_back: the mark was refused.", "timeseries", []query{{`sum by (table, class) (rate(outbox_cdc_rows_failed_total{stream=~"$stream"}[$__rate_interval]))`, "{{table}} {{class}}"}}},
	}},
	{"The slot and the primary's disk", []panel{
		{"WAL held back", "bytes", "", "timeseries", []query{
			{`max by (stream) (outbox_cdc_retained_wal_bytes{stream=~"$stream"})`, "{{stream}}"},
			{`max by (stream) (outbox_cdc_wal_budget_bytes{stream=~"$stream"})`, "{{stream}} budget"},
		}},
		{"Until the slot's end at this rate", "s", "No line: not in sight.", "timeseries", []query{{`min by (stream) (outbox_cdc_slot_lost_in_seconds{stream=~"$stream"}) < 1e9`, "{{stream}}"}}},
		{"WAL until the server may drop the slot", "bytes", "No line: the server sets no bound.", "timeseries", []query{{`min by (stream) (outbox_cdc_slot_safe_wal_bytes{stream=~"$stream"}) < 1e18`, "{{stream}}"}}},
		{"Lag", "bytes", "WAL between the server's end and the confirmed position.", "timeseries", []query{{`max by (stream) (outbox_cdc_replication_lag_bytes{stream=~"$stream"})`, "{{stream}}"}}},
		{"Lag in time", "s", "How long ago everything was last confirmed.", "timeseries", []query{
			{`max by (stream) (outbox_cdc_replication_lag_seconds{stream=~"$stream"})`, "{{stream}}"},
			{`max by (stream) (outbox_cdc_replication_silence_seconds{stream=~"$stream"})`, "{{stream}} silence"},
		}},
		{"Slot state", "none", "", "timeseries", []query{{`max by (stream, state) (outbox_cdc_slot_state{stream=~"$stream"}) == 1`, "{{stream}} {{state}}"}}},
	}},
	{"Parts", []panel{
		{"Parked", "none", "Scopes left to the sweeper: stream, cluster, table, topic, key or row; topics: all unknown topics of a table.", "timeseries", []query{{`max by (stream, scope, cause) (outbox_cdc_parks{stream=~"$stream"})`, "{{stream}} {{scope}}: {{cause}}"}}},
		{"Parked and handed back", "ops", "", "timeseries", []query{
			{`sum by (scope, cause) (rate(outbox_cdc_parked_total{stream=~"$stream"}[$__rate_interval]))`, "{{scope}} parked: {{cause}}"},
			{`sum by (scope) (rate(outbox_cdc_handed_back_total{stream=~"$stream"}[$__rate_interval]))`, "{{scope}} handed back"},
		}},
		{"Rows that need a look", "none", "never ready: neither their writer nor anybody else will send them; recovered: left behind by another relay; uncounted: counts that failed, which leaves gauges old.", "timeseries", []query{
			{`max by (stream, table) (outbox_cdc_never_ready_rows{stream=~"$stream"})`, "{{table}} never ready"},
			{`sum by (stream, table) (increase(outbox_cdc_rows_recovered_total{stream=~"$stream"}[$__rate_interval]))`, "{{table}} recovered"},
			{`sum by (stream, table) (increase(outbox_cdc_count_errors_total{stream=~"$stream"}[$__rate_interval]))`, "{{table}} uncounted"},
		}},
		{"Rows that the stream missed", "ops", "", "timeseries", []query{{`sum by (stream, cause) (rate(outbox_cdc_rows_missed_total{stream=~"$stream"}[$__rate_interval]))`, "{{stream}} {{cause}}"}}},
		{"Memory", "none", "", "timeseries", []query{
			{`max by (stream) (outbox_cdc_memory_rows{stream=~"$stream"})`, "{{stream}} rows"},
			{`max by (stream) (outbox_cdc_inflight_rows{stream=~"$stream"})`, "{{stream}} in flight"},
			{`max by (stream) (outbox_cdc_mark_waiting_rows{stream=~"$stream"})`, "{{stream}} waiting for marks"},
			{`max by (stream) (outbox_cdc_memory_limit_rows{stream=~"$stream"})`, "{{stream}} limit"},
		}},
		{"Limit", "none", "Rows per second that may be taken, by what limits them. No line: as fast as they come.", "timeseries", []query{
			{`max by (stream, reason) (outbox_cdc_limit_rows_per_second{stream=~"$stream"})`, "{{stream}} {{reason}}"},
		}},
		{"Kafka: time to acknowledge", "s", "", "timeseries", []query{
			quantile(`0.5`, `outbox_cdc_publish_latency_seconds`, "{{stream}} p50"),
			quantile(`0.99`, `outbox_cdc_publish_latency_seconds`, "{{stream}} p99"),
		}},
		{"Kafka: tries that failed", "ops", "", "timeseries", []query{{`sum by (cluster, class) (rate(outbox_cdc_kafka_retries_total{stream=~"$stream"}[$__rate_interval]))`, "{{cluster}} {{class}}"}}},
		{"Database: time to mark", "s", "", "timeseries", []query{
			quantile(`0.5`, `outbox_cdc_mark_latency_seconds`, "{{stream}} p50"),
			quantile(`0.99`, `outbox_cdc_mark_latency_seconds`, "{{stream}} p99"),
		}},
		{"Database: answers to marks", "ops", "", "timeseries", []query{
			{`sum by (table, outcome) (rate(outbox_cdc_marks_total{stream=~"$stream"}[$__rate_interval]))`, "{{table}} {{outcome}}"},
			{`sum by (stream) (rate(outbox_cdc_mark_retries_total{stream=~"$stream"}[$__rate_interval]))`, "{{stream}} repeated"},
			{`sum by (stream) (rate(outbox_cdc_mark_locked_rows_total{stream=~"$stream"}[$__rate_interval]))`, "{{stream}} locked"},
		}},
		{"Transactions", "ops", "With delivery: exactly_once. An aborted one's rows go into the next.", "timeseries", []query{
			{`sum by (stream, cluster) (rate(outbox_cdc_transactions_committed_total{stream=~"$stream"}[$__rate_interval]))`, "{{stream}} {{cluster}} committed"},
			{`sum by (stream, cause) (rate(outbox_cdc_transactions_aborted_total{stream=~"$stream"}[$__rate_interval]))`, "{{stream}} aborted: {{cause}}"},
		}},
		{"Transactions: time to commit", "s", "With delivery: exactly_once.", "timeseries", []query{
			quantile(`0.5`, `outbox_cdc_transaction_latency_seconds`, "{{stream}} p50"),
			quantile(`0.99`, `outbox_cdc_transaction_latency_seconds`, "{{stream}} p99"),
		}},
		{"Tally", "none", "With delivery: exactly_once. Units that are committed and wait to be noted, and published rows that are marked later; partitions that lack the end of a transaction; open is 1 while the stream runs.", "timeseries", []query{
			{`max by (stream, cluster) (outbox_cdc_tally_waiting_units{stream=~"$stream"})`, "{{stream}} {{cluster}} units"},
			{`sum by (stream, cluster) (outbox_cdc_transaction_end_missing{stream=~"$stream"})`, "{{stream}} {{cluster}} partitions without an end"},
			{`max by (stream, cluster) (outbox_cdc_tally_left_rows{stream=~"$stream"})`, "{{stream}} {{cluster}} rows"},
			{`max by (stream, cluster) (outbox_cdc_tally_open{stream=~"$stream"})`, "{{stream}} {{cluster}} open"},
		}},
		{"Connections and terms", "none", "", "timeseries", []query{
			{`sum by (stream) (increase(outbox_cdc_replication_connections_total{stream=~"$stream"}[$__rate_interval]))`, "{{stream}} connections"},
			{`sum by (stream) (increase(outbox_cdc_leaderships_total{stream=~"$stream"}[$__rate_interval]))`, "{{stream}} leaderships"},
			{`sum by (stream) (increase(outbox_cdc_stream_errors_total{stream=~"$stream"}[$__rate_interval]))`, "{{stream}} restarted"},
		}},
	}},
}

// dashboard is the JSON that Grafana imports.
// https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
func dashboard() ([]byte, error) {
	type object = map[string]any
	source := object{"type": "prometheus", "uid": "${datasource}"}
	var panels []object
	id, y := 0, 0
	next := func(title, kind string, x, width, height int) object {
		id++
		return object{"id": id, "title": title, "type": kind, "gridPos": object{"x": x, "y": y, "w": width, "h": height}}
	}
	for _, row := range rows {
		panels = append(panels, next(row.title, "row", 0, 24, 1))
		y++
		perLine, height := 3, 8
		if row.panels[0].kind == "stat" {
			perLine, height = 6, 4
		}
		for i, p := range row.panels {
			if i > 0 && i%perLine == 0 {
				y += height
			}
			made := next(p.title, p.kind, i%perLine*24/perLine, 24/perLine, height)
			var targets []object
			for n, q := range p.queries {
				targets = append(targets, object{"refId": string(rune('A' + n)), "datasource": source, "expr": q.expr, "legendFormat": q.legend})
			}
			made["datasource"], made["targets"], made["description"] = source, targets, p.about
			made["fieldConfig"] = object{"defaults": object{"unit": p.unit, "min": 0}, "overrides": []object{}}
			panels = append(panels, made)
		}
		y += height
	}
	return json.MarshalIndent(object{
		"title": "outbox-cdc", "uid": "outbox-cdc", "schemaVersion": 39, "editable": true, "refresh": "30s",
		"tags": []string{"outbox-cdc"}, "time": object{"from": "now-3h", "to": "now"}, "panels": panels,
		"templating": object{"list": []object{
			{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
			{
				"name": "stream", "type": "query", "datasource": source, "includeAll": true, "multi": true, "refresh": 2,
				"query": "label_values(outbox_cdc_leader, stream)", "current": object{"text": "All", "value": "$__all"},
			},
		}},
	}, "", "  ")
}

// deploy/grafana/dashboard.json is made from rows, with -update, and every
// query names metrics and labels that exist.
func TestDashboard(t *testing.T) {
	want, err := dashboard()
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile(dashboardFile, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, dashboardFile) != string(want) {
		t.Error("deploy/grafana/dashboard.json is not what rows say; run go test ./test/deploy -update")
	}
	metrics := listed(t)
	for _, row := range rows {
		for _, p := range row.panels {
			for _, q := range p.queries {
				holds(t, p.title, q.expr, metrics)
				if strings.Count(q.expr, "(") != strings.Count(q.expr, ")") {
					t.Errorf("%s: parentheses of %s", p.title, q.expr)
				}
			}
		}
	}
}

// Every metric of ours is in an alert or on the dashboard, or it is here, with
// the reason why not.
func TestEveryMetricIsLookedAt(t *testing.T) {
	elsewhere := map[string]string{
		"outbox_cdc_build_info":                    "to join versions to other metrics",
		"outbox_cdc_inflight_bytes":                "next to memory_rows, for sizing",
		"outbox_cdc_memory_limit_bytes":            "the same",
		"outbox_cdc_leader_epoch":                  "to tell terms apart",
		"outbox_cdc_kafka_batches_total":           "to see how full batches are",
		"outbox_cdc_kafka_throttled_seconds_total": "the runbook of OutboxPublishingSlow asks for it",
		"outbox_cdc_kafka_outages_total":           "for reports over months",
		"outbox_cdc_rows_changed_total":            "a warning says it, for each table",
		"outbox_cdc_rows_left_total":               "only a cost, which a row filter takes away",
	}
	all := read(t, alertsFile) + read(t, dashboardFile)
	for name := range listed(t) {
		base := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			base = strings.TrimSuffix(base, suffix)
		}
		if !strings.Contains(all, base) && elsewhere[base] == "" {
			t.Errorf("nothing looks at %s", base)
		}
	}
}
