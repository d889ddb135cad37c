package bench

import (
	"encoding/xml"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestRecord is make bench-record.
func TestRecord(t *testing.T) {
	if os.Getenv("BENCH_RECORD") == "" {
		t.Skip("only by make bench-record")
	}
	if err := record(os.Getenv("BENCH_RECORD"), os.Getenv("BENCH_RECORD_PEERS")); err != nil {
		t.Fatal(err)
	}
	if err := putDocuments(true); err != nil {
		t.Error(err)
	}
}

func TestTheDocsSayWhatWasRecorded(t *testing.T) {
	t.Parallel()
	if err := putDocuments(false); err != nil {
		t.Error(err)
	}
	bars, peers, err := recorded()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range bars {
		if !r.Quiet {
			t.Errorf("%s, %s was recorded although the machine was not quiet", r.Bar, r.What)
		}
	}
	if len(peers.Relays) > 0 && !peers.Quiet {
		t.Error("the comparison was recorded although the machine was not quiet")
	}
}

func TestABarIsRecordedAlone(t *testing.T) {
	t.Parallel()
	bar := func(name, version, rows string) Result {
		return Result{Bar: name, Versions: map[string]string{"outbox-cdc": version}, Settings: map[string]string{"rows": rows, "rounds": "3"}}
	}
	before := []Result{bar("B1", "v1", "500"), bar("B2", "v1", "500"), bar("B13", "v1", "500")}
	all, err := merged(before, []Result{bar("B2", "v2", "500"), bar("B2", "v2", "500")})
	var got []string
	for _, r := range all {
		got = append(got, r.Bar+" "+r.Versions["outbox-cdc"])
	}
	if want := []string{"B1 v1", "B2 v2", "B2 v2", "B13 v1"}; err != nil || !slices.Equal(got, want) || later(all) != "B2: of v2.\n\n" {
		t.Errorf("%v, %v, %q", got, err, later(all))
	}
	if _, err := merged(before, []Result{bar("B2", "v2", "100")}); err == nil {
		t.Error("of other rows")
	}
}

func TestWhatIsWrittenIntoTheDocs(t *testing.T) {
	t.Parallel()
	result := Result{
		Bar: "B1", What: "stream", Value: new(2e5), Unit: "rows/s", Reference: new(4e5), Ratio: new(0.5), Goal: "ratio ≥ 0.65", OK: new(false), MissedBy: "23 %", Quiet: true,
		CPU: CPU{OutboxCDC: new(2.0), Postgres: new(4.0), Kafka: new(1.0)}, Settings: map[string]string{"rows": "1000000"},
	}
	peers := PeerReport{
		Relays: []PeerRelay{{Name: kafkaItself}, {Name: "outbox-cdc & co", Version: "v1"}, {Name: "absent", Missing: "no network"}},
		Figures: []PeerFigure{
			{Relay: "outbox-cdc & co", Measure: "rows_per_s", Value: 1234}, {Relay: kafkaItself, Measure: "p99_1000_ms", Value: 1.5}, {Relay: "outbox-cdc & co", Measure: "kills_lost", Value: 0},
		},
	}
	all := documents([]Result{result}, peers)
	for place, wants := range map[[2]string][]string{
		{"internals/performance.md", "bars"}: {"| 200,000 rows/s | 400,000 rows/s | 0.50 |", "MISSED by 23 %", "2.0, 4.0, 1.0 µs"},
		{"compare.md", "peers"}:              {"| outbox-cdc & co v1 |", "| 1,234 |", "absent was not measured", "images/peers-latency.svg"},
	} {
		for _, want := range wants {
			if !strings.Contains(all[place], want) {
				t.Errorf("%s lacks %q:\n%s", place, want, all[place])
			}
		}
		page, err := between("before\n<!-- figures: "+place[1]+" -->\nold\n<!-- end of figures: "+place[1]+" -->\nafter\n", place[1], all[place])
		if err != nil || strings.Contains(page, "\nold\n") || !strings.HasPrefix(page, "before\n") || !strings.HasSuffix(page, "\nafter\n") {
			t.Errorf("%v\n%s", err, page)
		}
	}
	for name, c := range chartsOf(peers) {
		if err := xml.Unmarshal([]byte(c.svg()), new(struct{})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
