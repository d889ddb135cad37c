package takeover

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/operator"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// documented is an outbox whose relay is not run here: its table as its makers
// document it, and a relay of our own that sends what preview shows, and marks as theirs does.
type documented struct {
	outboxOf
	insert string // rows from $1 on, up to $2, for topic $3
	mark   string // what their relay writes of all pending rows
}

const ofSeries = ` FROM generate_series($1::int, $2::int) AS n`

var documentedOutboxes = []documented{
	{
		outboxOf{profile: "published-at", table: "public.outbox_events", unsettled: `SELECT count(*)::int FROM outbox_events WHERE published_at IS NULL`},
		`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload) SELECT substr($3, 14), n % 7, 'OrderPlaced', jsonb_build_object('n', n)` + ofSeries,
		`UPDATE outbox_events SET published_at = now() WHERE published_at IS NULL`,
	},
	{
		outboxOf{profile: "namastack", table: "public.outbox_record", unsettled: `SELECT count(*)::int FROM outbox_record WHERE status = 'NEW'`},
		`INSERT INTO outbox_record (id, status, record_key, record_type, payload, created_at, failure_count, next_retry_at, partition_no, handler_id)
			SELECT gen_random_uuid(), 'NEW', n % 7, 'com.acme.OrderPlaced', jsonb_build_object('n', n), clock_timestamp(), 0, now(), 1, coalesce(NULLIF($3, ''), 'x')` + ofSeries,
		`UPDATE outbox_record SET status = 'COMPLETED', completed_at = now() WHERE status = 'NEW'`,
	},
	{
		outboxOf{profile: "tomorrow-one", table: "public.outbox_kafka", unsettled: `SELECT count(*)::int FROM outbox_kafka WHERE processed IS NULL`},
		`INSERT INTO outbox_kafka (created, topic, key, value, headers) SELECT clock_timestamp(), $3, n % 7, convert_to(jsonb_build_object('n', n)::text, 'UTF8'), '{"source": "shop"}'` + ofSeries,
		`UPDATE outbox_kafka SET processed = now() WHERE processed IS NULL`,
	},
	{
		outboxOf{profile: "modulith", table: "public.event_publication", unsettled: `SELECT count(*)::int FROM event_publication WHERE status <> 'COMPLETED' AND listener_id LIKE '%DelegatingEventExternalizer%'`},
		`INSERT INTO event_publication (id, listener_id, event_type, serialized_event, publication_date, status, completion_attempts)
			SELECT gen_random_uuid(), 'org.springframework.modulith.events.support.DelegatingEventExternalizer.externalize(java.lang.Object)', 'com.acme.OrderPlaced',
			jsonb_build_object('n', n), clock_timestamp(), 'PUBLISHED', 1 FROM (SELECT $3::text) AS t, generate_series($1::int, $2::int) AS n`,
		`UPDATE event_publication SET status = 'COMPLETED', completion_date = now() WHERE status = 'PUBLISHED' AND listener_id LIKE '%DelegatingEventExternalizer%'`,
	},
	{
		outboxOf{profile: "brighter", table: "public.outbox", unsettled: `SELECT count(*)::int FROM outbox WHERE dispatched IS NULL`},
		`INSERT INTO outbox (messageid, topic, messagetype, timestamp, contenttype, partitionkey, body) SELECT n, $3, 'MT_EVENT', clock_timestamp(), 'application/json', n % 7, jsonb_build_object('n', n)` + ofSeries,
		`UPDATE outbox SET dispatched = now() WHERE dispatched IS NULL`,
	},
	{
		outboxOf{profile: "outbox-messages-dotnet", table: "public.outbox_messages", unsettled: `SELECT count(*)::int FROM outbox_messages WHERE processed_on_utc IS NULL`},
		`INSERT INTO outbox_messages (id, type, content, occurred_on_utc) SELECT gen_random_uuid(), 'OrderPlaced', jsonb_build_object('n', n), clock_timestamp()
			FROM (SELECT $3::text) AS t, generate_series($1::int, $2::int) AS n`,
		`UPDATE outbox_messages SET processed_on_utc = now() WHERE processed_on_utc IS NULL`,
	},
	{
		outboxOf{profile: "open-outbox", table: "public.openoutbox_events", unsettled: `SELECT count(*)::int FROM openoutbox_events WHERE status <> 'DELIVERED'`},
		`INSERT INTO openoutbox_events (event_id, event_type, partition_key, payload, headers) SELECT gen_random_uuid(), $3, n % 7, convert_to(jsonb_build_object('n', n)::text, 'UTF8'), '{"source": "shop"}'` + ofSeries,
		`UPDATE openoutbox_events SET status = 'DELIVERED', delivered_at = now() WHERE status = 'PENDING'`,
	},
	{
		outboxOf{profile: "pg-transactional-outbox", table: "public.outbox", unsettled: `SELECT count(*)::int FROM outbox WHERE processed_at IS NULL`},
		`INSERT INTO outbox (id, aggregate_type, aggregate_id, message_type, payload) SELECT gen_random_uuid(), split_part($3, '.', 1), n % 7, split_part($3, '.', 2), jsonb_build_object('n', n)` + ofSeries,
		`UPDATE outbox SET processed_at = now(), finished_attempts = 1 WHERE processed_at IS NULL`,
	},
	{
		outboxOf{profile: "cap", table: "cap.published", unsettled: `SELECT count(*)::int FROM cap.published WHERE "StatusName" <> 'Succeeded'`},
		`INSERT INTO cap.published ("Id", "Version", "Name", "Content", "Retries", "Added", "StatusName")
			SELECT n, 'v1', $3, '{"Headers":{"cap-msg-id":"' || n || '","cap-corr-id":null},"Value":{"n":' || n || '}}', 0, clock_timestamp(), 'Scheduled'` + ofSeries,
		`UPDATE cap.published SET "StatusName" = 'Succeeded', "ExpiresAt" = now() + interval '1 day' WHERE "StatusName" = 'Scheduled'`,
	},
	{
		outboxOf{profile: "eventuate", table: "eventuate.message", unsettled: `SELECT count(*)::int FROM eventuate.message WHERE published = 0`},
		`INSERT INTO eventuate.message (id, destination, headers, payload) SELECT to_char(n, '0000'), $3,
			json_build_object('ID', to_char(n, '0000'), 'PARTITION_ID', (n % 7)::text), jsonb_build_object('n', n)` + ofSeries,
		`UPDATE eventuate.message SET published = 1 WHERE published = 0`,
	},
	{
		outboxOf{profile: "watermill-forwarder", table: "public.watermill_outbox", unsettled: `SELECT count(*)::int FROM watermill_outbox`},
		`INSERT INTO watermill_outbox (uuid, payload, metadata, transaction_id) SELECT gen_random_uuid(), json_build_object('destination_topic', $3::text, 'uuid', n::text,
			'payload', encode(convert_to(jsonb_build_object('n', n)::text, 'UTF8'), 'base64'), 'metadata', json_build_object('source', 'shop')), '{}', pg_current_xact_id()` + ofSeries,
		`INSERT INTO watermill_offsets_outbox SELECT '', "offset", transaction_id FROM watermill_outbox ORDER BY 3 DESC, 2 DESC LIMIT 1
			ON CONFLICT (consumer_group) DO UPDATE SET offset_acked = excluded.offset_acked, last_processed_transaction_id = excluded.last_processed_transaction_id`,
	},
}

// unlike are the profiles that differ most: rows of others and a topic by a map,
// values in JSON, rows under locks. The short form has these.
var unlike = []string{"modulith", "cap", "open-outbox"}

// The pages of the other profiles are followed word for word, on the documented
// tables. Only durations are shorter, and topics are the test's.
func TestDocumentedPagesAreFollowed(t *testing.T) {
	t.Parallel()
	kafka := broker(t)
	for _, app := range documentedOutboxes {
		t.Run(app.profile, func(t *testing.T) {
			if os.Getenv("OUTBOX_TEST_LONG") == "" && !slices.Contains(unlike, app.profile) {
				t.Skip("only with OUTBOX_TEST_LONG=1 (make takeover)")
			}
			t.Parallel()
			w := app.world(t, kafka)
			r := newReader(w)
			app.abridge(r)
			for _, line := range r.commands {
				switch {
				case strings.HasPrefix(line, "outbox-cdc run "):
					r.run()
				case strings.HasPrefix(line, "outbox-cdc compare "):
					r.compare(line, func() { app.writes(w, 1, 30); app.sends(r) })
				case strings.HasPrefix(line, "outbox-cdc destroy "):
					app.writes(w, 31, 60)
					w.settled(time.Minute)
					r.running.Stop(30 * time.Second)
					r.shell(line)
				default:
					r.shell(line)
				}
			}
			app.writes(w, 61, 70)
			app.sends(r)
			app.eachOnce(w, 70)
		})
	}
}

// world has the documented table, and the topic that the page's rows go to.
func (app documented) world(t *testing.T, kafka *harness.Cluster) *world {
	t.Helper()
	name := strings.ReplaceAll(kafka.Topic(t, 1), ".", "-") // made for its name, which is our own
	topic := map[string]string{"published-at": "outbox.event." + name, "namastack": "outbox-events", "pg-transactional-outbox": name + ".Placed"}[app.profile]
	if topic == "" {
		topic = name
	}
	kafka.CreateTopic(t, topic, 3, nil)
	w := emptyWorld(t, app.outboxOf, kafka, topic)
	w.db.Exec(t, documentedTable(t, app.profile))
	if app.profile == "cap" {
		w.db.Exec(t, `CREATE SCHEMA cap; ALTER TABLE published SET SCHEMA cap`)
	}
	if app.profile == "eventuate" {
		w.db.Exec(t, `CREATE SCHEMA eventuate; ALTER TABLE message SET SCHEMA eventuate`)
	}
	if app.profile == "watermill-forwarder" {
		w.db.Exec(t, `CREATE TABLE watermill_offsets_outbox (consumer_group VARCHAR(255) NOT NULL PRIMARY KEY, offset_acked BIGINT, last_processed_transaction_id xid8 NOT NULL)`)
	}
	w.db.Exec(t, `TRUNCATE `+app.table)
	return w
}

// abridge makes waits shorter, and the topics of a map the test's.
func (app documented) abridge(r *reader) {
	r.config = strings.Replace(r.config, ": orders}}\n", ": "+r.w.topic+"}}\n", 1)
	slot := "    slot: documented_" + strings.ReplaceAll(app.profile, "-", "_") + "\n" // the server is shared
	r.config = strings.Replace(r.config, "  - name: orders\n", "  - name: orders\n"+slot, 1)
	grace := "        profile: " + app.profile + "\n        grace: 1s\n"
	if app.profile == "cap" || app.profile == "modulith" {
		grace += "        head_start: 1s\n"
	}
	r.config = strings.Replace(r.config, "        profile: "+app.profile+"\n", grace, 1)
	r.write(r.config)
}

func (app documented) writes(w *world, from, to int) {
	w.t.Helper()
	w.db.Exec(w.t, app.insert, from, to, w.topic)
}

// sends is the relay: what preview shows of pending rows is sent and marked.
func (app documented) sends(r *reader) {
	w := r.w
	w.t.Helper()
	out, err := r.prepared(exec.Command(harness.Binary(w.t), "preview", "--config", "outbox-cdc.yaml", "--json", "--limit", "1000")).Output()
	if err != nil {
		w.t.Fatalf("preview: %v\n%s", err, out)
	}
	var shown struct {
		Tables []struct{ Records []operator.Record }
	}
	if err := json.Unmarshal(out, &shown); err != nil {
		w.t.Fatal(err)
	}
	client, err := w.kafka.Client()
	if err != nil {
		w.t.Fatal(err)
	}
	defer client.Close()
	for _, record := range shown.Tables[0].Records {
		sent := &kgo.Record{Topic: record.Topic, Key: raw(w.t, record.Key), Value: raw(w.t, record.Value)}
		for _, h := range record.Headers {
			sent.Headers = append(sent.Headers, kgo.RecordHeader{Key: h.Name, Value: raw(w.t, h.Value)})
		}
		if err := client.ProduceSync(w.t.Context(), sent).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
	}
	w.db.Exec(w.t, app.mark)
	for _, statement := range r.sql {
		w.db.Exec(w.t, statement)
	}
}

// eachOnce: each of so many rows is in the topic, once.
func (app documented) eachOnce(w *world, rows int) {
	w.t.Helper()
	times := map[string]int{}
	for _, r := range w.kafka.Records(w.t, w.topic) {
		times[string(numbered.FindSubmatch(r.Value)[1])]++
	}
	for n := range rows {
		if got := times[strconv.Itoa(n+1)]; got != 1 {
			w.t.Errorf("row %d was sent %d times", n+1, got)
		}
	}
}

func raw(t *testing.T, b *operator.Bytes) []byte {
	t.Helper()
	switch {
	case b == nil:
		return nil
	case b.Text != nil:
		return []byte(*b.Text)
	}
	bytes, err := base64.StdEncoding.DecodeString(*b.Base64)
	if err != nil {
		t.Fatal(fmt.Errorf("base64 of a preview: %w", err))
	}
	return bytes
}
