package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

func TestPreview(t *testing.T) {
	db, c := nativeRows(t)
	db.Exec(t, `INSERT INTO outbox (topic, key, payload, headers) VALUES ('orders', 'k', '{"total": 12}', '{"source": "shop"}'), ('bad', 'k', 'x', '{"source": {}}')`)
	out, said := command(t, exitPermanent, "preview", "-c", c)
	mustHave(t, out, "stream orders, table public.outbox: 3 rows\n", "bills", `{"total": 12}`, "source=shop", `NO RECORD: column "headers"`)
	mustHave(t, said, "1 row cannot become a record")

	one := decoded[previewed](t, "preview", "-c", c, "--id", "1").Tables[0].Records
	if len(one) != 1 || one[0].Topic != "orders" || *one[0].Key.Text != "a" || *one[0].Value.Text != "secret payload" || one[0].Pending {
		t.Errorf("%+v", one)
	}
	if n := harness.One[int](t, db, "SELECT count(*) FROM outbox WHERE status = 'PENDING' AND attempts = 0"); n != 3 {
		t.Errorf("%d rows are as they were, want 3", n)
	}
	_, said = command(t, exitUsage, "preview", "-c", c, "--limit", "1001")
	mustHave(t, said, "not between 1 and 1000")
}

// A row on standard input is read as PostgreSQL reads it, and is not inserted.
func TestPreviewOfAGivenRow(t *testing.T) {
	db, c := nativeRows(t)
	given := func(text string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "row")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(file) // #nosec G304 -- the test's own
		if err != nil {
			t.Fatal(err)
		}
		was := os.Stdin
		os.Stdin = f
		t.Cleanup(func() { os.Stdin = was; _ = f.Close() })
	}
	given(`{"id": 77, "event_id": "00000000-0000-0000-0000-000000000001", "topic": "orders", "key": "k", "payload": "\\x00ff", "headers": {"source": "shop"}, "status": "PENDING", "created_at": "2026-01-01 00:00+02"}`)
	r := decoded[previewed](t, "preview", "-c", c, "--stdin").Tables[0].Records[0]
	if r.ID[0] != "77" || *r.Key.Text != "k" || *r.Value.Base64 != "AP8=" || *r.Headers[len(r.Headers)-1].Value.Text != "shop" || !r.Pending || r.Error != "" {
		t.Errorf("%+v", r)
	}
	for text, want := range map[string]string{
		`[1]`:                       "is no JSON object",
		`{"id": 1} {"id": 2}`:       "give one row",
		`{"Id": 1}`:                 `has no column "Id"`,
		`{"id": "one"}`:             "invalid input syntax",
		`{"id": 1, "payload": 1} x`: "give one row",
		strings.Repeat("[", 10_000): "is no JSON object",
	} {
		given(text)
		_, said := command(t, exitUsage, "preview", "-c", c, "--stdin")
		mustHave(t, said, want)
	}
	given(`{"id": 1}`)
	_, said := command(t, exitUsage, "preview", "-c", c, "--stdin", "--id", "1")
	mustHave(t, said, "leave out what picks rows")
	text, err := os.ReadFile(c) // #nosec G304 -- the test's own
	if err != nil {
		t.Fatal(err)
	}
	others := filepath.Join(t.TempDir(), "others.yaml")
	if err := os.WriteFile(others, []byte(strings.Replace(string(text), "profile: native", "profile: native, rows: [{column: topic, in: [orders]}]", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	given(`{"id": 1, "event_id": "00000000-0000-0000-0000-000000000001", "topic": "bills", "payload": ""}`)
	out, _ := command(t, exitPermanent, "preview", "-c", others, "--stdin")
	mustHave(t, out, "NO RECORD: the row is not ours")
	if n := harness.One[int](t, db, "SELECT count(*) FROM outbox"); n != 4 {
		t.Errorf("%d rows, want the 4 that were there", n)
	}
}
