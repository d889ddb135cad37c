package bytes

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
)

// What check and the listings read of rows in another encoding, or with bytes that
// are none, is shown, and one row keeps nothing else from being looked at.
func TestCheckReadsTextOfEveryEncoding(t *testing.T) {
	for _, e := range encodings[1:] {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, e)
			conn := w.conn()
			table := w.add(conn, "text", "public", "outbox", "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tp text, v text",
				fields{"topic": fields{"column": "tp"}})
			w.run("init", "--stream", "text")
			for _, word := range append(append([]string{}, e.words...), e.broken...) {
				w.exec(conn, "INSERT INTO "+table.sql+" (tp, v) VALUES (("+word+"), ''); INSERT INTO "+table.sql+" (tp, v, status) VALUES ('"+w.topic+"', '', left(("+word+"), 20))")
			}
			var word string
			if err := conn.QueryRow(t.Context(), "SELECT "+e.words[0]).Scan(&word); err != nil {
				t.Fatal(err)
			}
			out, err := w.try("check", "--stream", "text")
			if strings.Contains(out, "could not look") || strings.Count(out, word) < 2 {
				t.Errorf("check (%v) does not tell of topic and status %q:\n%s", err, word, out)
			}
			w.run("pending", "list", "--stream", "text")
		})
	}
}

// Keys of a megabyte, and records whose size is just within and just beyond what a
// broker takes, end alike by the WAL and by a sweep.
func TestEdgesOfSizes(t *testing.T) {
	w := newWorld(t, encodings[0])
	conn := w.conn()
	const id = "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, k text, v text"
	table := w.add(conn, "text", "public", "outbox", id, fields{"key": fields{"column": "k"}, "event_id": fields{"header": "event-id"}})
	w.run("init", "--stream", "text")
	insert := func() {
		w.exec(conn, `INSERT INTO `+table.sql+` (k, v) SELECT 'edge', repeat('v', 1048588 - n) FROM generate_series(0, 200, 5) n`)
		w.exec(conn, `INSERT INTO `+table.sql+` (k, v) SELECT repeat('k', 990000), v FROM unnest(ARRAY['first', NULL, repeat('v', 100000), 'last']) v`)
		w.exec(conn, `INSERT INTO `+table.sql+` (k, v) SELECT repeat('k', 2000000), v FROM unnest(ARRAY['first', NULL, 'last']) v`)
	}
	ends := func(after int64) string {
		var text string
		sql := fmt.Sprintf(`SELECT string_agg(status || ' ' || attempts, ', ' ORDER BY id) FROM %s WHERE id > %d`, table.sql, after)
		if err := conn.QueryRow(t.Context(), sql).Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	p := w.start()
	p.Await(patience, `"streaming"`)
	insert()
	w.settled(conn)
	var last int64
	if err := conn.QueryRow(t.Context(), `SELECT max(id) FROM `+table.sql).Scan(&last); err != nil {
		t.Fatal(err)
	}
	byLog := ends(0)
	p.Stop(patience)
	insert()
	w.sweep(conn)
	if swept := ends(last); swept != byLog || strings.Count(byLog, "SENT") < 10 || strings.Count(byLog, "FAILED") < 5 {
		t.Errorf("by the WAL: %s\nswept:      %s", byLog, swept)
	}
	sizes := map[int]int{}
	for _, r := range w.kafka.Records(t, w.topic) {
		sizes[len(r.Key)+len(r.Value)]++
	}
	for size, n := range sizes {
		if n%2 != 0 {
			t.Errorf("%d records of %d bytes: not as often by the WAL as by a sweep", n, size)
		}
	}
}

// The table is locked while the stream starts, for longer than idle_session_timeout
// lets a leader's session be without a word: the lead is kept.
func TestASlowStartKeepsItsLead(t *testing.T) {
	w := newWorld(t, encodings[0])
	conn, locker := w.conn(), w.conn()
	table := w.add(conn, "text", "public", "outbox", "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text", nil)
	w.senderTimeout = "2s"
	w.run("init", "--stream", "text")
	w.carry("idle_session_timeout = '1s'")
	w.exec(conn, "INSERT INTO "+table.sql+" (v) VALUES ('x')")
	w.exec(locker, "BEGIN; LOCK TABLE "+table.sql)
	p := w.start()
	p.Await(patience, `"leading"`)
	time.Sleep(7 * time.Second)
	w.exec(locker, "COMMIT")
	p.Await(patience, `"streaming"`)
	w.settled(conn)
	if n := len(p.Said(`"leading"`)); n != 1 {
		t.Errorf("it took the lead %d times", n)
	}
	p.Stop(time.Minute)
}

// Headers of a side table are published as UTF-8 whatever the database's encoding,
// by the WAL and by a sweep; one that cannot be fails its own row.
func TestSideHeadersInEveryEncoding(t *testing.T) {
	for _, e := range encodings {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, e)
			conn := w.conn()
			w.exec(conn, `CREATE TABLE public.header (parent bigint, i int, n text, v text)`)
			table := w.add(conn, "text", "public", "outbox", "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text",
				fields{"headers_table": fields{"table": "public.header", "parent": "parent", "order": "i", "name": "n", "value": "v"}})
			w.run("init", "--stream", "text")
			w.carry(append(settings, e.settings...)...)
			insert := func(words []string) {
				for _, word := range words {
					w.exec(conn, "WITH o AS (INSERT INTO "+table.sql+" (v) VALUES ('') RETURNING id) INSERT INTO public.header SELECT id, 1, 'word', ("+word+") FROM o")
				}
			}
			p := w.start()
			p.Await(patience, `"streaming"`)
			insert(append(append([]string{}, e.words...), e.broken...))
			w.settled(conn)
			p.Stop(patience)
			insert(e.words)
			w.sweep(conn)
			want := map[string]int{}
			for _, word := range e.words {
				var text string
				if err := conn.QueryRow(t.Context(), "SELECT "+word).Scan(&text); err != nil {
					t.Fatal(err)
				}
				want[text] = 2
			}
			got := map[string]int{}
			for _, r := range w.kafka.Records(t, w.topic) {
				got[string(r.Header("word"))]++
			}
			if !maps.Equal(got, want) {
				t.Errorf("headers %v, want %v", got, want)
			}
			var failed int
			if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM "+table.sql+" WHERE status = 'FAILED'").Scan(&failed); err != nil || failed != len(e.broken) {
				t.Errorf("%d rows are FAILED, want %d (%v)", failed, len(e.broken), err)
			}
		})
	}
}
