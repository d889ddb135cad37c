// Package bytes compares the records of one row that was published in several ways: from the WAL in text and in
// binary form, by a sweep, and after a look at a restart. It also compares them with what the server prints.
package bytes

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// long says that every type is tried in every encoding.
var long = os.Getenv("OUTBOX_TEST_BYTES") == "long"

func TestTheSameBytesWhicheverWayARowComes(t *testing.T) {
	for _, e := range encodings {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && e.name != "WIN1252" {
				t.Skip("not in the short form")
			}
			newTrial(t, e).run()
		})
	}
}

// trial is one encoding's world with what was inserted.
type trial struct {
	*world
	encoding encoding
	conn     *pgx.Conn
	columns  []column
	values   []*table // with a row for each value
	named    *table   // has a long and strange name
	keys     []*table // of each value a row that fails, and one behind it
	broken   []*table
}

func newTrial(t *testing.T, e encoding) *trial {
	t.Helper()
	r := &trial{world: newWorld(t, e), encoding: e}
	r.conn = r.world.conn()
	for _, c := range columns(e.words) {
		if e.name == "UTF8" || long || c.everywhere {
			r.columns = append(r.columns, c)
		}
	}
	for i := range r.columns {
		if !r.make(&r.columns[i]) {
			r.columns[i].values = nil
		}
	}
	r.columns = slices.DeleteFunc(r.columns, func(c column) bool { return c.values == nil })
	r.addTables()
	r.carry(append(settings, e.settings...)...)
	r.world.run("init", "--stream", "text")
	r.world.run("init", "--stream", "binary")
	if e.name == "UTF8" { // partitions under their own names are the sweeper's
		r.exec(r.conn, "ALTER PUBLICATION binary_"+r.db.Name+" SET (publish_via_partition_root = false)")
	}
	return r
}

// make makes the type, and reports whether the server has it.
func (r *trial) make(c *column) bool {
	if c.ddl == "" {
		return true
	}
	_, err := r.conn.Exec(r.t.Context(), c.ddl)
	if err != nil && !strings.Contains(c.ddl, "EXTENSION") {
		r.t.Fatalf("%s: %v", c.ddl, err)
	}
	return err == nil
}

func (r *trial) addTables() {
	id := "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
	for i := range r.columns {
		c := &r.columns[i]
		config := func(name string) fields {
			event := []string{"id"}
			if c.event {
				event = append(event, "v")
			}
			return fields{
				"key": fields{"column": "v"}, "event_id": fields{"header": "event-id", "columns": event},
				"headers": []any{fields{"name": "table", "value": name}, fields{"name": "v", "column": "v"}},
			}
		}
		name := "t_" + c.name
		r.values = append(r.values, r.add(r.conn, "text", "public", name, id+", v "+c.sqlType, config(name)))
		if c.binary {
			name = "b_" + c.name
			r.values = append(r.values, r.add(r.conn, "binary", "public", name, id+", v "+c.sqlType, config(name)))
		}
		if !c.notKey {
			name = "k_" + c.name
			keyed := fields{"payload": fields{"column": "p"}, "key": fields{"column": "v"}, "headers": []any{fields{"name": "table", "value": name}}, "event_id": fields{"header": "event-id", "columns": []string{"id"}}}
			r.keys = append(r.keys, r.add(r.conn, "text", "public", name, id+", v "+c.sqlType+", p text", keyed))
		}
	}
	r.named = r.add(r.conn, "text", "public", "x "+r.word()+` "quoted" `+strings.Repeat("n", 40), "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text", fields{"headers": []any{fields{"name": "table", "value": "named"}}, "event_id": fields{"header": "event-id"}})
	r.values = append(r.values,
		r.add(r.conn, "text", "public", "ids", "id text COLLATE \"C\" PRIMARY KEY, v text", fields{"key": fields{"column": "id"}, "headers": []any{fields{"name": "table", "value": "ids"}}, "event_id": fields{"header": "event-id"}}),
		r.add(r.conn, "text", "public", "json_headers", "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v json, h jsonb", fields{"headers": []any{fields{"name": "table", "value": "json_headers"}, fields{"json": "v"}, fields{"json": "h"}}, "event_id": fields{"header": "event-id"}}),
		r.named)
	r.addRoles(id)
	r.exec(r.conn, `CREATE SCHEMA other; CREATE TABLE other.t_text (LIKE public.t_text INCLUDING ALL)`)
	for i, role := range []fields{
		{"key": fields{"column": "id"}},
		{"key": fields{"column": "v"}},
		{"headers": []any{fields{"name": "table", "value": "broken"}, fields{"name": "v", "column": "v"}}},
	} {
		role["event_id"] = fields{"header": "event-id", "columns": []string{"id"}}
		name := fmt.Sprintf("broken_%d", i)
		r.broken = append(r.broken, r.add(r.conn, "binary", "public", name, id+", v text", role))
	}
}

// addRoles makes tables whose topic is padded, and tables in partitions.
func (r *trial) addRoles(id string) {
	config := func(name string) fields {
		return fields{"headers": []any{fields{"name": "table", "value": name}}, "event_id": fields{"header": "event-id", "columns": []string{"id"}}, "key": fields{"column": "v"}}
	}
	topical := config("topical")
	topical["topic"] = fields{"template": "${tp}${te}"}
	half := len(r.topic) / 2
	columns := id + ", v text, tp character(120) NOT NULL DEFAULT '" + r.topic[:half] + "', te public.note NOT NULL DEFAULT '" + r.topic[half:] + "'"
	r.values = append(r.values, r.add(r.conn, "text", "public", "topical", columns, topical))
	id = "id bigint GENERATED ALWAYS AS IDENTITY, v text, PRIMARY KEY (id)"
	r.partitioned = "PARTITION BY RANGE (id)"
	r.values = append(r.values, r.add(r.conn, "binary", "public", "ranged", id, config("ranged")))
	r.partitioned = "PARTITION BY LIST (id)"
	r.values = append(r.values, r.add(r.conn, "binary", "public", "listed", id, config("listed")))
	r.partitioned = ""
	r.exec(r.conn, `CREATE TABLE public.ranged_1 PARTITION OF public.ranged FOR VALUES FROM (1) TO (3); CREATE TABLE public.ranged_2 PARTITION OF public.ranged DEFAULT;
		CREATE TABLE public.listed_1 PARTITION OF public.listed FOR VALUES IN (1, 3); CREATE TABLE public.listed_2 PARTITION OF public.listed DEFAULT`)
}

// word returns the first of the encoding's texts, short.
func (r *trial) word() (text string) {
	if err := r.conn.QueryRow(r.t.Context(), "SELECT left("+r.encoding.words[0]+", 3)").Scan(&text); err != nil {
		r.t.Fatal(err)
	}
	return text
}

// insert fills the tables.
func (r *trial) insert() {
	byName := map[string]*column{}
	for i := range r.columns {
		byName[r.columns[i].name] = &r.columns[i]
	}
	var all []string
	for _, t := range slices.Concat(r.values, r.keys) {
		name := strings.TrimPrefix(t.name, "public.")
		c := byName[name[min(2, len(name)):]]
		switch {
		case c != nil && name[0] == 'k':
			for _, v := range c.values {
				all = append(all, "INSERT INTO "+t.sql+" (v, p) VALUES (("+v+")::"+c.sqlType+", NULL)", "INSERT INTO "+t.sql+" (v, p) VALUES (("+v+")::"+c.sqlType+", 'behind')")
			}
		case c != nil:
			for _, v := range c.values {
				all = append(all, "INSERT INTO "+t.sql+" (v) VALUES (("+v+")::"+c.sqlType+")")
			}
		}
	}
	for i, v := range r.encoding.words {
		all = append(all,
			fmt.Sprintf("INSERT INTO public.ids SELECT coalesce(max(n), 0) || '|' || (%s), (%[1]s) FROM (SELECT count(*) + %d AS n FROM public.ids) c", v, i),
			fmt.Sprintf("INSERT INTO public.json_headers (v, h) VALUES (json_build_object('a', (%s), 'b', NULL), jsonb_build_object((%[1]s), 'c'))", v),
			fmt.Sprintf("INSERT INTO %s (v) VALUES ((%s))", r.named.sql, v),
			fmt.Sprintf("INSERT INTO public.topical (v) VALUES ((%s))", v),
			fmt.Sprintf("INSERT INTO public.ranged (v) VALUES ((%s))", v),
			fmt.Sprintf("INSERT INTO public.listed (v) VALUES ((%s))", v),
			fmt.Sprintf("INSERT INTO other.t_text (v) VALUES ((%s))", v))
	}
	for _, t := range r.broken {
		all = append(all, "INSERT INTO "+t.sql+" (v) VALUES ('good')")
		for _, v := range r.encoding.broken {
			all = append(all, "INSERT INTO "+t.sql+" (v) VALUES (("+v+"))")
		}
		all = append(all, "INSERT INTO "+t.sql+" (v) VALUES ('also good')")
	}
	for _, sql := range all {
		r.exec(r.conn, sql)
	}
}

// again publishes every row once more.
func (r *trial) again() {
	for _, t := range r.tables {
		r.exec(r.conn, "UPDATE "+t.sql+" SET status = 'PENDING', attempts = 0, last_error = NULL")
	}
}

func (r *trial) run() {
	p := r.start()
	for _, stream := range []string{`"binary"`, `"text"`} { // whichever comes first
		harness.Eventually(r.t, patience, func() error {
			if len(p.Said(`"streaming"`, stream)) == 0 {
				return fmt.Errorf("%s does not stream", stream)
			}
			return nil
		})
	}
	r.insert()
	r.settled(r.conn)
	r.judge("by the WAL", 1)
	if said := p.Said("reading the WAL as text", `"binary"`); len(said) > 0 {
		r.t.Errorf("the WAL is not read in binary form: %s", said[0])
	}

	r.again() // the stream missed them: they are swept key by key
	r.settled(r.conn)
	r.judge("swept by key", 2)

	p.Stop(patience)
	r.again()
	r.sweep(r.conn)
	r.judge("swept", 3)

	r.insert() // looked at before they are published
	p = r.start()
	r.settled(r.conn)
	r.judge("after a restart", 1)
	r.compare()
	r.world.run("failed", "list")
	p.Stop(patience)
}

// judge compares the records of the topic with the tables. Each row has at least this number of records, and
// all of them are equal.
func (r *trial) judge(when string, least int) {
	r.t.Helper()
	records := map[string][]harness.Record{}
	for _, rec := range r.kafka.Records(r.t, r.topic) {
		name, id := string(rec.Header("table")), string(rec.Header("event-id"))
		if name == "" {
			name = "broken"
		}
		id, _, _ = strings.Cut(id, ":")
		records[name+" "+id] = append(records[name+" "+id], rec)
	}
	for key, all := range records {
		for _, rec := range all[1:] {
			if !same(&rec, &all[0]) && !strings.HasPrefix(key, "broken") {
				r.t.Errorf("%s: %s has differing records:\n%s\n%s", when, key, told(&all[0]), told(&rec))
			}
		}
	}
	for _, t := range r.values {
		r.printed(when, t, records, least)
	}
	r.fates(when)
}

// printed: the records have what the server prints.
func (r *trial) printed(when string, t *table, records map[string][]harness.Record, least int) {
	name := t.config["headers"].([]any)[0].(fields)["value"].(string)
	rows, err := r.conn.Query(r.t.Context(), "SELECT id::text, CASE WHEN pg_typeof(v) = 'bytea'::regtype THEN format('%s', v) ELSE '=' || format('%s', v) END, status FROM "+t.sql)
	if err != nil {
		r.t.Fatal(err)
	}
	var id, want, status string
	_, err = pgx.ForEachRow(rows, []any{&id, &want, &status}, func() error {
		value := []byte(want[1:])
		if want[0] == '\\' {
			value, _ = hex.DecodeString(want[2:])
		}
		all := records[name+" "+id]
		switch {
		case status != "SENT":
			r.t.Errorf("%s: row %s of %s is %s", when, id, t.name, status)
		case len(all) < least:
			r.t.Errorf("%s: row %s of %s has %d records, not %d", when, id, t.name, len(all), least)
		case !bytes.Equal(all[0].Value, value):
			r.t.Errorf("%s: row %s of %s is %q, the server prints %q", when, id, t.name, all[0].Value, value)
		case name[1] == '_' && !bytes.Equal(all[0].Key, value):
			r.t.Errorf("%s: row %s of %s has the key %q, the server prints %q", when, id, t.name, all[0].Key, value)
		case name[1] == '_' && !bytes.Equal(all[0].Header("v"), value):
			r.t.Errorf("%s: row %s of %s has the header %q, the server prints %q", when, id, t.name, all[0].Header("v"), value)
		}
		return nil
	})
	if err != nil {
		r.t.Fatalf("%s: %v", t.name, err)
	}
}

// fates: a row that can be no record fails by itself, and nothing waits for it.
func (r *trial) fates(when string) {
	for _, t := range r.keys {
		n := harness.One[int](r.t, r.db, "SELECT count(*)::int FROM "+t.sql+" WHERE status <> CASE WHEN p IS NULL THEN 'FAILED' ELSE 'SENT' END")
		if n > 0 {
			r.t.Errorf("%s: %d rows of %s are in the wrong state", when, n, t.name)
		}
	}
	for _, t := range r.broken {
		n := harness.One[int](r.t, r.db, "SELECT count(*)::int FROM "+t.sql+" WHERE status <> CASE WHEN v IN ('good', 'also good') THEN 'SENT' ELSE 'FAILED' END OR status = 'FAILED' AND coalesce(last_error, '') NOT LIKE '%UTF-8%'")
		if n > 0 {
			r.t.Errorf("%s: %d rows of %s are in the wrong state", when, n, t.name)
		}
	}
	if n := harness.One[int](r.t, r.db, "SELECT count(*)::int FROM outbox_cdc.park WHERE kind = 'table' AND reason NOT LIKE '%by their own names'"); n > 0 {
		r.t.Errorf("%s: %d tables are parked", when, n)
	}
}

// compare: the command reads the same.
func (r *trial) compare() {
	for _, stream := range []string{"text", "binary"} {
		cmd := exec.Command(harness.Binary(r.t), "compare", "--config", r.config(), "--stream", stream, "--for", "6s", "--settle", "20s", "--json") // #nosec G204 -- the test's own program
		p := harness.Start(r.t, cmd)
		harness.Eventually(r.t, patience, func() error {
			if harness.One[int](r.t, r.db, "SELECT count(*)::int FROM pg_replication_slots WHERE temporary AND database = current_database() AND confirmed_flush_lsn IS NOT NULL") == 0 {
				return fmt.Errorf("no slot of compare yet")
			}
			return nil
		})
		r.insert()
		p.Ended(patience)
		var report struct {
			Rows, Same, Differences int
			Kinds                   []struct {
				Kind       string
				Difference bool
				Count      int
				Examples   []map[string]any
			}
		}
		text := p.Tail(100_000)
		if err := json.Unmarshal([]byte(text[strings.Index(text, "{"):]), &report); err != nil {
			r.t.Fatalf("%v: %s", err, text)
		}
		if report.Same == 0 {
			r.t.Errorf("compare of %s found nothing that is the same: %s", stream, text)
		}
		for _, k := range report.Kinds {
			if k.Difference && k.Count > 0 && k.Kind != "refused" {
				r.t.Errorf("compare of %s finds %d %s: %v", stream, k.Count, k.Kind, k.Examples)
			}
		}
		r.settled(r.conn)
	}
}

func same(a, b *harness.Record) bool {
	return bytes.Equal(a.Key, b.Key) && (a.Key == nil) == (b.Key == nil) && bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil) &&
		(a.Key == nil || a.Partition == b.Partition) && a.Timestamp.Equal(b.Timestamp) && slices.EqualFunc(a.Headers, b.Headers, func(x, y harness.Header) bool {
		return x.Name == y.Name && bytes.Equal(x.Value, y.Value) && (x.Value == nil) == (y.Value == nil)
	})
}

func told(r *harness.Record) string {
	text := fmt.Sprintf("%d %v %q = %q", r.Partition, r.Timestamp.UTC(), r.Key, r.Value)
	for _, h := range r.Headers {
		text += fmt.Sprintf(" %s=%q", h.Name, h.Value)
	}
	return text
}
