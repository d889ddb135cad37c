package takeover

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/operator"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// recorded is what a run of a library left: its rows, pending, and the records that its
// relay made of them. Rows of many bytes are left out.
type recorded struct {
	Topic   string
	Rows    []json.RawMessage
	Records []harness.Record
}

const fewBytes = 10_000

// The preview of the rows that libraries wrote shows the records that they sent. They were
// recorded by make takeover with OUTBOX_TEST_RECORD=1, so no library is needed here.
func TestRecordsOfLibraries(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(t *testing.T, topic string) library{
		"modulith": modulith, "namastack": namastack, "eventuate": eventuate,
		"faststream":              func(t *testing.T, topic string) library { return fastStream(t, topic, "") },
		"pg-transactional-outbox": func(t *testing.T, topic string) library { return pgTransactionalOutbox(t, topic, "") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(recordedFile(name))
			if err != nil {
				t.Fatal(err)
			}
			var r recorded
			if err := json.Unmarshal(text, &r); err != nil {
				t.Fatal(err)
			}
			l := of(t, r.Topic)
			w := emptyWorld(t, l.outboxOf, &harness.Cluster{Addrs: []string{"127.0.0.1:1"}}, r.Topic)
			w.db.Exec(t, documentedTable(t, name)+";"+l.moved)
			for _, row := range r.Rows {
				w.db.Exec(t, `INSERT INTO `+l.table+` SELECT * FROM json_populate_record(NULL::`+l.table+`, $1)`, string(row))
			}
			ours := w.previewed()
			if l.unlike != nil {
				l.unlike(ours)
				l.unlike(r.Records)
			}
			same(t, r.Records, ours)
		})
	}
}

func recordedFile(name string) string { return filepath.Join("testdata", name+".json") }

// record keeps a run for TestRecordsOfLibraries.
func (l library) record(t *testing.T, w *world, records []harness.Record) {
	t.Helper()
	if os.Getenv("OUTBOX_TEST_RECORD") == "" {
		return
	}
	r := recorded{Topic: w.topic, Rows: harness.One[[]json.RawMessage](t, w.db, `SELECT array_agg(to_json(k) ORDER BY `+l.order+`) FROM kept AS k WHERE length(k::text) < $1`, fewBytes)}
	for _, record := range records {
		if len(record.Value) < fewBytes {
			r.Records = append(r.Records, harness.Record{Topic: record.Topic, Key: record.Key, Value: record.Value, Headers: record.Headers})
		}
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recordedFile(l.name), append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// previewed returns the records that preview shows of pending rows.
func (w *world) previewed() (records []harness.Record) {
	w.t.Helper()
	out, err := exec.Command(harness.Binary(w.t), "preview", "--config", w.config("stream"), "--json", "--limit", "1000").Output()
	if err != nil {
		w.t.Fatalf("preview: %v\n%s", err, out)
	}
	var shown struct {
		Tables []struct{ Records []operator.Record }
	}
	if err := json.Unmarshal(out, &shown); err != nil {
		w.t.Fatal(err)
	}
	for _, r := range shown.Tables[0].Records {
		record := harness.Record{Topic: r.Topic, Key: raw(w.t, r.Key), Value: raw(w.t, r.Value)}
		for _, h := range r.Headers {
			record.Headers = append(record.Headers, harness.Header{Name: h.Name, Value: raw(w.t, h.Value)})
		}
		records = append(records, record)
	}
	return records
}
