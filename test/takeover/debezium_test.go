package takeover

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

var debezium = outboxOf{
	profile: "debezium", table: "public.outbox", unsettled: `SELECT 0`,
	overrides: fields{
		"headers": []fields{{"name": "eventType", "column": "type"}},
	},
}

// Debezium's own outbox event router, in Kafka Connect, and outbox-cdc make the
// same records of the same rows: NULL and empty payloads, keys and headers too.
func TestParityWithDebezium(t *testing.T) {
	t.Parallel()
	kafka := broker(t)
	aggregate := strings.ReplaceAll(kafka.Topic(t, 1), "-", "_") // a name of our own
	topic := "outbox.event." + aggregate
	kafka.CreateTopic(t, topic, 6, nil)

	before := newWorld(t, debezium, kafka, topic)
	before.connect()
	before.insertEvents(aggregate)
	theirs := kafka.AwaitRecords(t, topic, events, time.Minute)

	after := newWorld(t, debezium, kafka, topic)
	p := after.run()
	p.Await(time.Minute, `"message":"streaming"`)
	after.insertEvents(aggregate)
	ours := beyond(kafka.AwaitRecords(t, topic, 2*events, time.Minute), theirs)
	p.Stop(30 * time.Second)
	same(t, theirs, ours)
}

// events is how many rows insertEvents writes.
const events = 46

// insertEvents writes as applications with Debezium do: also in one transaction
// with its DELETE.
func (w *world) insertEvents(aggregate string) {
	w.t.Helper()
	for n := range 40 {
		id := fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
		w.db.Exec(w.t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ($1, $2, $3, $4, $5)`,
			id, aggregate, fmt.Sprintf("order-%d", n%7), "OrderCreated", fmt.Sprintf(`{"b": 1.50, "n": %d, "a":[1,2]}`, n))
	}
	w.db.Exec(w.t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES
		('00000000-0000-4000-8000-000000000100', $1, '', 'Empty key', '{}'),
		('00000000-0000-4000-8000-000000000101', $1, 'order-1', '', '"text"'),
		('00000000-0000-4000-8000-000000000102', $1, 'order-1', 'Null payload', NULL),
		('00000000-0000-4000-8000-000000000103', $1, 'Zürich', 'Überweisung', '{"ä": "ö"}')`, aggregate)
	w.db.Exec(w.t, `WITH inserted AS (INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES
		('00000000-0000-4000-8000-000000000104', $1, 'order-2', 'Deleted at once', '[]') RETURNING id) SELECT 1 FROM inserted`, aggregate)
	w.db.Exec(w.t, `DELETE FROM outbox WHERE id = '00000000-0000-4000-8000-000000000104'`)
	w.db.Exec(w.t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES
		('00000000-0000-4000-8000-000000000105', $1, 'order-2', 'Last', '{"last": true}')`, aggregate)
}

// connect starts Kafka Connect with Debezium's connector and router, and waits
// until it streams: its slot is active as early as while it is being created, and
// with snapshot.mode=no_data what commits before the (empty) snapshot is skipped.
func (w *world) connect() *harness.Process {
	w.t.Helper()
	jars := harness.Jars(w.t, filepath.Join("router", "pom.xml"))
	c, err := pgx.ParseConfig(w.db.Own())
	if err != nil {
		w.t.Fatal(err)
	}
	slot := "debezium_" + w.db.Name
	worker := w.properties("worker.properties", map[string]string{
		"bootstrap.servers": w.kafka.Addrs[0], "listeners": "http://" + freeAddress(w.t),
		"key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
		"offset.storage.file.filename": filepath.Join(w.dir, "offsets"), "offset.flush.interval.ms": "500", "plugin.discovery": "only_scan",
	})
	connector := w.properties("connector.properties", map[string]string{
		"name": "outbox", "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": "1",
		"database.hostname": c.Host, "database.port": fmt.Sprint(c.Port), "database.user": c.User, "database.password": c.Password, "database.dbname": c.Database,
		"plugin.name": "pgoutput", "slot.name": slot, "publication.autocreate.mode": "filtered", "topic.prefix": "app",
		"table.include.list": "public.outbox", "snapshot.mode": "no_data", "tombstones.on.delete": "false", "poll.interval.ms": "50",
		"transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.table.fields.additional.placement": "type:header:eventType",
		"transforms.outbox.route.topic.replacement":           "outbox.event.${routedByValue}",
	})
	p := harness.Start(w.t, exec.Command("java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(jars, "*"),
		"org.apache.kafka.connect.cli.ConnectStandalone", worker, connector))
	harness.Eventually(w.t, 2*time.Minute, func() error {
		if n := harness.One[int](w.t, w.db, `SELECT count(*)::int FROM pg_replication_slots s JOIN pg_stat_replication r ON r.pid = s.active_pid
			WHERE r.state = 'streaming' AND s.slot_name = '`+slot+`'`); n == 0 {
			return fmt.Errorf("Debezium does not stream from slot %s", slot)
		}
		return nil
	})
	return p
}

func (w *world) properties(name string, values map[string]string) string {
	w.t.Helper()
	var text strings.Builder
	for key, value := range values {
		fmt.Fprintf(&text, "%s=%s\n", key, value)
	}
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
