package integration

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sql"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// What migrations and operators do to tables, columns and partitions of a stream.

// swap puts a new, empty table in the place of the outbox, in one transaction.
const swap = `BEGIN;
	CREATE TABLE fresh (LIKE outbox INCLUDING ALL);
	ALTER TABLE outbox RENAME TO used;
	ALTER TABLE fresh RENAME TO outbox;
	COMMIT`

// The table is swapped out under load: the publication is of the old one. It is
// noticed, every row of the new one is published, and it is streamed again.
func TestATableIsSwapped(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	p := w.run().streaming()
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT '`+w.topic+`', 'k', ('old' || i)::text::bytea FROM generate_series(1, 5) i`)
	w.settled(30 * time.Second)
	w.db.Exec(t, strings.TrimSuffix(swap, "COMMIT")+`
		INSERT INTO outbox (topic, key, payload) SELECT '`+w.topic+`', 'k', ('new' || i)::text::bytea FROM generate_series(1, 5) i;
		INSERT INTO used (topic, key, payload) VALUES ('`+w.topic+`', 'k', 'too late');
		COMMIT`)
	p.Await(15*time.Second, "table public.outbox is another table than before")
	p.Await(30*time.Second, "rows are PENDING in the table that was swapped out", `"swapped_out":"public.used"`, `"pending":1`)
	p.Await(30*time.Second, "handed back to the stream")
	w.settled(30 * time.Second)
	if n := harness.One[int](t, w.db, `SELECT count(*) FROM pg_publication_tables WHERE tablename = 'outbox'`); n != 1 {
		t.Error("the new table is not in the publication")
	}
	swept := p.logged("found pending rows that the stream does not carry")
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ('`+w.topic+`', 'k', 'streamed')`)
	w.settled(30 * time.Second)
	if p.logged("found pending rows that the stream does not carry") != swept {
		t.Error("the new table is not streamed")
	}
	p.stop()

	// The same while nobody watches.
	w.db.Exec(t, `ALTER TABLE used RENAME TO older`)
	w.db.Exec(t, swap)
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ('`+w.topic+`', 'k', 'last')`)
	p = w.run()
	p.Await(30*time.Second, "parked", "table public.outbox is another table than before")
	p.streaming()
	w.settled(30 * time.Second)
	p.stop()
	if got := w.values(); got != "old1 old2 old3 old4 old5 new1 new2 new3 new4 new5 streamed last" {
		t.Errorf("published: %s", got)
	}
}

// A table that keeps no state is swapped: nothing tells which rows were passed
// over, so the stream stops and says what to do, and goes on when it was done.
func TestATableWithoutStateIsSwapped(t *testing.T) {
	t.Parallel() // it mostly waits
	l := stateless()
	w := newWorld(t, surroundings{layout: &l})
	w.serve()
	p := w.run().streaming()
	w.db.Exec(t, strings.ReplaceAll(swap, "outbox", "events"))
	insert := func(value string) {
		w.db.Exec(t, `INSERT INTO events (topic, key, body) VALUES ('`+w.topic+`', 'k', '`+value+`')`)
	}
	insert("lost1")
	p.Await(15*time.Second, "the stream does not work", "table public.events is another table than before", "UPDATE outbox_cdc.leader SET publication")
	if code, body, err := p.page("/readyz"); err != nil || code != http.StatusServiceUnavailable || !strings.Contains(body, "swapped by rename") {
		t.Errorf("/readyz: %d %s %v", code, body, err)
	}
	p.stop()
	p = w.run()
	p.Await(15*time.Second, "the stream does not work", "table public.events is another table than before")
	insert("lost2")
	if out, err := w.command("init", "--config", w.file()); err != nil {
		t.Fatal(out)
	}
	w.db.Exec(t, `UPDATE outbox_cdc.leader SET publication = '' WHERE slot = '`+fmt.Sprint(w.stream["slot"])+`'`)
	p.streaming()
	insert("streamed")
	harness.Eventually(t, 30*time.Second, func() error {
		if n := len(w.kafka.Records(t, w.topic)); n != 1 {
			return fmt.Errorf("%d records", n)
		}
		return nil
	})
	p.stop()
}

// A column of a table that keeps no state is renamed while rows come: the stream waits before the first row that it
// cannot read, says so, and brings it when the mapping fits.
func TestAColumnOfATableWithoutStateIsRenamed(t *testing.T) {
	t.Parallel() // it mostly waits
	l := stateless()
	w := newWorld(t, surroundings{layout: &l})
	w.serve()
	p := w.run().streaming()
	insert := func(column, value string) {
		w.db.Exec(t, `INSERT INTO events (topic, key, `+column+`) VALUES ('`+w.topic+`', 'k', '`+value+`')`)
	}
	insert("body", "1")
	w.kafka.AwaitRecords(t, w.topic, 1, 30*time.Second)
	w.db.Exec(t, `ALTER TABLE events RENAME COLUMN body TO content`)
	insert("content", "2")
	insert("content", "3")
	p.Await(15*time.Second, "the stream does not work", "read table public.events from the WAL", `"needs_a_person":true`)
	p.readyz(http.StatusServiceUnavailable, "outbox-cdc check")
	p.stop()
	w.table["payload"] = fields{"column": "content"}
	p = w.run()
	w.kafka.AwaitRecords(t, w.topic, 3, 30*time.Second)
	p.stop()
	if got := w.values(); got != "1 2 3" {
		t.Errorf("published: %s", got)
	}
}

// A partition is detached, with rows that were just written, and another takes its
// place: nothing is lost, doubled or swept.
func TestAPartitionIsSwapped(t *testing.T) {
	t.Parallel() // it mostly waits
	l := partitioned()
	w := newWorld(t, surroundings{layout: &l})
	p := w.run()
	p.Await(60*time.Second, "handed back to the stream") // a sweep would not see the rows of outbox_1
	table := `outbox (part, topic, key, payload) SELECT 1, '` + w.topic + `', 'k', (`
	w.db.Exec(t, `INSERT INTO `+table+`'a' || i)::text::bytea FROM generate_series(1, 3) i;
		BEGIN;
		ALTER TABLE outbox DETACH PARTITION outbox_1;
		CREATE TABLE fresh (LIKE outbox INCLUDING ALL);
		ALTER TABLE outbox ATTACH PARTITION fresh FOR VALUES IN (1);
		COMMIT;
		INSERT INTO `+table+`'b' || i)::text::bytea FROM generate_series(1, 3) i`)
	w.settled(30 * time.Second)
	harness.Eventually(t, 30*time.Second, func() error {
		if got := w.values(); got != "a1 a2 a3 b1 b2 b3" {
			return errors.New("published: " + got)
		}
		return nil
	})
	w.db.Exec(t, `DROP TABLE outbox_1`)
	w.db.Exec(t, `INSERT INTO `+table+`'c')::text::bytea`)
	w.settled(30 * time.Second)
	p.stop()
	if got := w.values(); got != "a1 a2 a3 b1 b2 b3 c" || p.logged(`"message":"parked"`) > 0 || p.logged("is another table than before") > 0 {
		t.Errorf("published: %s", got)
	}
}

// The whole schema is swapped by rename, as for a blue-green migration.
func TestASchemaIsSwapped(t *testing.T) {
	t.Parallel() // it mostly waits
	l := native()
	l.ddl = `CREATE SCHEMA app;` + sql.NativeTable("app", "outbox")
	l.config["table"] = "app.outbox"
	w := newWorld(t, surroundings{layout: &l})
	p := w.run().streaming()
	w.puts("app.outbox", "old1", "old2")
	w.settled(30 * time.Second)
	w.db.Exec(t, `BEGIN; ALTER SCHEMA app RENAME TO app_blue; CREATE SCHEMA app;`+sql.NativeTable("app", "outbox")+`; COMMIT`)
	w.puts("app.outbox", "new1", "new2")
	p.Await(15*time.Second, "table app.outbox is another table than before")
	p.Await(30*time.Second, "handed back to the stream")
	w.settled(30 * time.Second)
	w.puts("app.outbox", "streamed")
	w.settled(30 * time.Second)
	p.stop()
	if got := w.values(); got != "old1 old2 new1 new2 streamed" {
		t.Errorf("published: %s", got)
	}
}

// A table is renamed, written to under that name, and renamed back, before and
// after anybody noticed: every row is published, once.
func TestATableIsAwayForAWhile(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	p := w.run().streaming()
	w.puts("outbox", "1")
	w.settled(30 * time.Second)
	w.db.Exec(t, `ALTER TABLE outbox RENAME TO away`)
	w.puts("away", "2")
	w.db.Exec(t, `ALTER TABLE away RENAME TO outbox`)
	w.puts("outbox", "3")
	w.settled(30 * time.Second)

	w.db.Exec(t, `ALTER TABLE outbox RENAME TO away`)
	w.puts("away", "4")
	p.Await(15*time.Second, "table public.outbox is gone")
	w.db.Exec(t, `ALTER TABLE away RENAME TO outbox`)
	w.puts("outbox", "5")
	w.settled(60 * time.Second)
	w.puts("outbox", "6")
	w.settled(60 * time.Second)
	p.stop()
	values := strings.Fields(w.values())
	slices.Sort(values) // a row that the WAL passed over may be overtaken
	if got := strings.Join(values, " "); got != "1 2 3 4 5 6" {
		t.Errorf("published: %s", got)
	}
}

// Another table inherits from the outbox while it is streamed: its rows are swept with the outbox's, and the log names
// it. When it does so no more, the table is streamed again.
func TestATableIsInheritedFrom(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	p := w.run().streaming()
	w.puts("outbox", "1")
	w.settled(30 * time.Second)
	w.db.Exec(t, `CREATE TABLE child () INHERITS (outbox)`)
	w.db.Exec(t, `INSERT INTO child (id, topic, key, payload) VALUES (2, '`+w.topic+`', 'k', '2')`)
	p.Await(15*time.Second, "or another table inherits from it")
	p.Await(15*time.Second, "inherit from public.outbox (public.child)")
	w.settled(60 * time.Second)
	w.puts("outbox", "3")
	w.settled(60 * time.Second)
	w.db.Exec(t, `ALTER TABLE child NO INHERIT outbox`)
	p.Await(60*time.Second, "handed back to the stream")
	w.puts("outbox", "4")
	w.settled(30 * time.Second)
	p.stop()
	if got := w.values(); got != "1 2 3 4" {
		t.Errorf("published: %s", got)
	}
}

// A table that keeps no state leaves the WAL of a publication for all tables, and comes back
// before anybody looks: the stream stops until a person has looked.
func TestATableWithoutStateLeavesAllTables(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, c := range map[string]struct{ leaves, comes string }{
		"unlogged":  {`ALTER TABLE events SET UNLOGGED`, `ALTER TABLE events SET LOGGED`},
		"inherited": {`CREATE TABLE child () INHERITS (events)`, `DROP TABLE child`},
		"excluded":  {`ALTER PUBLICATION %s SET ALL TABLES EXCEPT (TABLE events)`, `ALTER PUBLICATION %s SET ALL TABLES`},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "excluded" {
				atLeast(t, 19)
			}
			l := stateless()
			w := newWorld(t, surroundings{layout: &l})
			publication := harness.One[string](t, w.db, `SELECT pubname::text FROM pg_publication`)
			w.db.Exec(t, `DROP PUBLICATION `+publication)
			w.db.Exec(t, `CREATE PUBLICATION `+publication+` FOR ALL TABLES WITH (publish = 'insert', publish_via_partition_root = true)`)
			p := w.run().streaming()
			w.db.Exec(t, strings.ReplaceAll(c.leaves, "%s", publication))
			p.Await(15*time.Second, "rows may have been passed over, so the stream stops")
			w.db.Exec(t, strings.ReplaceAll(c.comes, "%s", publication))
			p.stop()
			p = w.run() // it has only what was remembered
			p.Await(15*time.Second, "the stream does not work", "UPDATE outbox_cdc.leader SET publication")
			p.stop()
		})
	}
}

// A table that keeps no state is taken out of the publication: the stream stops,
// and its metrics show that for as long as it lasts.
func TestATableWithoutStateIsTakenOut(t *testing.T) {
	t.Parallel() // it mostly waits
	l := stateless()
	w := newWorld(t, surroundings{layout: &l})
	w.serve()
	p := w.run().streaming()
	insert := func(value string) {
		w.db.Exec(t, `INSERT INTO events (topic, key, body) VALUES ('`+w.topic+`', 'k', '`+value+`')`)
	}
	insert("1")
	w.kafka.AwaitRecords(t, w.topic, 1, 30*time.Second)
	publication := harness.One[string](t, w.db, `SELECT pubname::text FROM pg_publication`)
	w.db.Exec(t, `ALTER PUBLICATION `+publication+` DROP TABLE events`)
	insert("lost")
	w.db.Exec(t, `ALTER PUBLICATION `+publication+` ADD TABLE events`)
	insert("2")
	p.Await(15*time.Second, "the stream does not work", "UPDATE outbox_cdc.leader SET publication")
	p.readyz(http.StatusServiceUnavailable, "with published: none")
	harness.Eventually(t, 60*time.Second, func() error {
		if n := p.metric("outbox_cdc_stream_errors_total"); n < 3 {
			return fmt.Errorf("stream_errors_total is %v", n)
		}
		return nil
	})
	p.stop()
	if got := w.values(); strings.Contains(got, "lost") {
		t.Errorf("published: %s", got)
	}
}
