package charset

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

var update = flag.Bool("update", false, "rewrite the tables, as the server has them")

// encodings are those that a database can have, but for UTF8, SQL_ASCII, and
// MULE_INTERNAL, which is a mixture of most others.
var encodings = []string{
	"EUC_JP", "EUC_CN", "EUC_KR", "EUC_TW", "EUC_JIS_2004",
	"LATIN1", "LATIN2", "LATIN3", "LATIN4", "LATIN5", "LATIN6", "LATIN7", "LATIN8", "LATIN9", "LATIN10",
	"WIN1250", "WIN1251", "WIN1252", "WIN1253", "WIN1254", "WIN1255", "WIN1256", "WIN1257", "WIN1258", "WIN866", "WIN874",
	"KOI8R", "KOI8U", "ISO_8859_5", "ISO_8859_6", "ISO_8859_7", "ISO_8859_8",
}

// The tables are the server's own. -update writes them.
func TestTablesAreTheServers(t *testing.T) {
	conn := harness.Postgres(t).Conn(t)
	if _, err := conn.Exec(t.Context(), characters); err != nil {
		t.Fatal(err)
	}
	for _, encoding := range encodings {
		want := ask(t, conn, encoding)
		name := "tables/" + encoding + ".gz"
		if *update {
			if err := os.WriteFile(name, pack(t, want), 0o644); err != nil { // #nosec G306 -- a source file
				t.Fatal(err)
			}
			continue
		}
		s, err := Of(encoding)
		if err != nil {
			t.Fatal(err)
		}
		if got := lines(s); !slices.Equal(got, want) {
			t.Errorf("%s: %d characters, the server has %d", encoding, len(got), len(want))
			for i := range min(len(got), len(want)) {
				if got[i] != want[i] {
					t.Errorf("the first that differs: %s, the server has %s", got[i], want[i])
					break
				}
			}
		}
	}
}

// characters tries every sequence of bytes that can be a character. It catches
// errors in the server, so that they are not in its log.
const characters = `
CREATE FUNCTION characters(encoding text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE lead int; code bytea; utf8 bytea; back bytea; prefixes bytea[] := '{}'; prefix bytea; widths int; a int; b int;
BEGIN
    IF encoding NOT LIKE 'EUC%' THEN
        FOR a IN 128..255 LOOP RETURN QUERY SELECT * FROM one(encoding, set_byte('\x00', 0, a)); END LOOP;
        RETURN;
    END IF;
    prefixes := ARRAY['\x'::bytea];
    IF encoding IN ('EUC_JP', 'EUC_JIS_2004') THEN
        FOR a IN 161..254 LOOP RETURN QUERY SELECT * FROM one(encoding, '\x8e'::bytea || set_byte('\x00', 0, a)); END LOOP;
        prefixes := prefixes || '\x8f'::bytea;
    ELSIF encoding = 'EUC_TW' THEN
        FOR a IN 161..176 LOOP prefixes := prefixes || ('\x8e'::bytea || set_byte('\x00', 0, a)); END LOOP;
    END IF;
    FOREACH prefix IN ARRAY prefixes LOOP
        FOR a IN 161..254 LOOP FOR b IN 161..254 LOOP
            RETURN QUERY SELECT * FROM one(encoding, prefix || set_byte('\x00', 0, a) || set_byte('\x00', 0, b));
        END LOOP; END LOOP;
    END LOOP;
END $$;
CREATE FUNCTION one(encoding text, code bytea) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE utf8 bytea; back bytea;
BEGIN
    BEGIN utf8 := convert(code, encoding, 'UTF8');
    EXCEPTION WHEN untranslatable_character OR character_not_in_repertoire THEN RETURN; END;
    BEGIN back := convert(utf8, 'UTF8', encoding);
    EXCEPTION WHEN untranslatable_character OR character_not_in_repertoire THEN NULL; END;
    RETURN NEXT encode(code, 'hex') || ' ' || encode(utf8, 'hex') || CASE WHEN back IS DISTINCT FROM code THEN ' <' ELSE '' END;
END $$`

func ask(t *testing.T, conn *pgx.Conn, encoding string) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), "SELECT c FROM characters($1) AS c ORDER BY c COLLATE \"C\"", encoding)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var text string
		err := row.Scan(&text)
		fields := strings.Fields(text)
		var utf []byte
		utf, _ = hex.DecodeString(fields[1])
		fields[1] = runes(string(utf))
		return strings.Join(fields, " "), err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

func runes(text string) string {
	all := make([]string, 0, 1)
	for _, r := range text {
		all = append(all, fmt.Sprintf("%x", r))
	}
	return strings.Join(all, " ")
}

func lines(s *Set) []string {
	all := make([]string, 0, len(s.chars))
	for code, c := range s.chars {
		line := fmt.Sprintf("%x %s", code, runes(c.text))
		if c.oneWay {
			line += " <"
		}
		all = append(all, line)
	}
	slices.Sort(all)
	return all
}

func pack(t *testing.T, lines []string) []byte {
	t.Helper()
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(strings.Join(lines, "\n") + "\n")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		encoding, in, out, exact string
	}{
		{"LATIN1", "f\xfcr \x80", "für \u0080", ""},
		{"WIN1252", "\x80 5", "€ 5", ""},
		{"WIN1252", "a\x81b", `a\x81b`, "!"},
		{"EUC_JP", "\xc6\xfc\xcb\xdc\xb8\xec", "日本語", ""},
		{"EUC_JP", "\xc6", `\xc6`, "!"},
		{"EUC_JP", "\x8e\xb1\x8f\xb0\xa1", "ｱ丂", ""},
		{"SQL_ASCII", "für", "für", ""},
		{"SQL_ASCII", "f\xfcr", `f\xfcr`, "!"},
		{"SQL_ASCII", "\xef\xbf\xbd", "\uFFFD", ""},
		{"SQL_ASCII", "\xed\xa0\x80", `\xed\xa0\x80`, "!"}, // a surrogate
	} {
		s, err := Of(c.encoding)
		if err != nil {
			t.Fatal(err)
		}
		out, ok := s.Append(nil, []byte(c.in))
		if string(out) != c.out || ok != (c.exact == "") || !utf8.Valid(out) {
			t.Errorf("%q in %s: %q, %v", c.in, c.encoding, out, ok)
		}
	}
	if s, err := Of("UTF8"); s != nil || err != nil {
		t.Error(s, err)
	}
	if _, err := Of("MULE_INTERNAL"); err == nil {
		t.Error("an encoding without a table")
	}
}

func TestWritable(t *testing.T) {
	for encoding, want := range map[string]string{"LATIN1": "für 5 ??", "WIN1252": "für 5 €…", "SQL_ASCII": "für 5 €…"} {
		s, err := Of(encoding)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Writable("für 5 €…"); got != want {
			t.Errorf("%s: %q", encoding, got)
		}
	}
}
