package bytes

import (
	"errors"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// Columns whose content would not be published, or by which no row is found again,
// are refused by name before a row is read, and others go on.
func TestColumnsThatCannotServeAreRefusedByName(t *testing.T) {
	w := newWorld(t, encodings[0])
	w.backoff = fields{} // tables that refuse are asked again, each time for all
	conn := w.conn()
	w.exec(conn, `CREATE DOMAIN public.lob AS oid; CREATE TYPE public.pair AS (a text, b int);
		CREATE TYPE public.mood AS ENUM ('ok'); CREATE DOMAIN public.d_mood AS public.mood; CREATE DOMAIN public.d_list AS int[]`)
	const id = "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text"
	refused := map[*table]string{}
	add := func(name, columns, insert, says string, config fields) {
		if _, err := conn.Exec(t.Context(), "SELECT "+insert); err != nil {
			t.Logf("%s: %v", name, err) // a server without it
			return
		}
		refused[w.add(conn, "text", "public", name, columns, config)] = says
	}
	lob := `ALTER TABLE "public"."%" ALTER "lob" TYPE bytea USING lo_get("lob")`
	add("lob_payload", id+", lob oid DEFAULT 7", "7", lob, fields{"payload": fields{"column": "lob"}})
	add("lob_key", id+", lob public.lob DEFAULT 7", "7", lob, fields{"key": fields{"column": "lob"}})
	add("lob_header", id+", lob oid DEFAULT 7", "7", lob, fields{"headers": []any{fields{"name": "h", "column": "lob"}}})
	for name, c := range map[string][2]string{
		"d_mood": {"public.d_mood", "'ok'::public.d_mood"}, "list": {"int[]", "'{1}'::int[]"}, "d_list": {"public.d_list", "'{1}'::public.d_list"},
		"pair": {"public.pair", "ROW('a', NULL)::public.pair"}, "xml": {"xml", "'<a/>'::xml"}, "jsonpath": {"jsonpath", "'$.a'::jsonpath"},
		"point": {"point", "'(1,2)'::point"}, "snapshot": {"pg_snapshot", "'10:20:10'::pg_snapshot"}, "refcursor": {"refcursor", "'c'::refcursor"}, "box": {"box", "'(1,1),(0,0)'::box"},
	} {
		add("id_"+name, "id "+c[0]+" NOT NULL DEFAULT "+c[1]+", v text", c[1], `column "id"`, nil)
	}
	good := w.add(conn, "text", "public", "good", id, nil)
	w.run("init", "--stream", "text")

	out, err := w.try("check", "--stream", "text")
	if err == nil {
		t.Error("check has nothing to say")
	}
	p := w.start()
	p.Await(patience, `"streaming"`)
	for table := range refused {
		w.exec(conn, "INSERT INTO "+table.sql+" (v) VALUES ('not published')")
	}
	w.exec(conn, "INSERT INTO "+good.sql+" (v) VALUES ('published')")
	harness.Eventually(t, patience, func() error {
		return pending(w, good)
	})
	p.Await(patience, `"parked: left to the sweeper"`)
	for table, says := range refused {
		says = strings.ReplaceAll(says, "%", strings.TrimPrefix(table.name, "public."))
		if !strings.Contains(out, table.name) || !strings.Contains(out, says) {
			t.Errorf("check does not say %q of %s", says, table.name)
		}
		if harness.One[int](t, w.db, "SELECT count(*)::int FROM "+table.sql+" WHERE status = 'PENDING' AND attempts = 0") != 1 {
			t.Errorf("a row of %s was touched", table.name)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
	if n := w.kafka.Count(t, w.topic); n != 1 {
		t.Errorf("%d records, not 1", n)
	}
	p.Stop(patience)
}

func pending(w *world, t *table) error {
	n, err := harness.TryOne[int](w.t.Context(), w.db, "SELECT count(*)::int FROM "+t.sql+" WHERE status = 'PENDING'")
	if err == nil && n > 0 {
		err = errPending
	}
	return err
}

var errPending = errors.New("rows are still PENDING")
