package mapping

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/charset"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

func foreign(t *testing.T, encoding string) *Plan {
	t.Helper()
	set, err := charset.Of(encoding)
	if err != nil {
		t.Fatal(err)
	}
	table := &outbox.Table{Schema: "s", Name: "t", Mapping: outbox.Mapping{
		ID: []string{"id"}, Key: &outbox.Expr{Column: "k"}, Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "p"}},
		Topic: outbox.Template{Literals: []string{"t"}}, Cluster: outbox.ClusterMapping{Default: "main"}, Published: outbox.PublishedNone,
	}}
	plan, err := Compile(set, table, []Column{{Name: "id", OID: oidText}, {Name: "k", OID: oidText}, {Name: "p", OID: oidJSONB}})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// Text of another encoding is published as UTF-8, from both forms. If it cannot be converted, the row fails.
// It then has no key, since no row would be found by it, and an id that no other row has.
func TestTextOfOtherEncodings(t *testing.T) {
	for _, c := range []struct {
		encoding, id, key, payload string
		row                        [3]string
		fault                      string
	}{
		{"WIN1252", "\xfc", "\x80", "\"\xe4\"", [3]string{"ü", "€", `"ä"`}, ""},
		{"WIN1252", "\xfc", "\x81", "1", [3]string{"ü", "", "1"}, `column "k" has bytes that WIN1252 cannot turn into UTF-8 and back`},
		{"WIN1252", "a", "b", "\x81", [3]string{"a", "b", ""}, `column "p" has bytes that WIN1252 cannot turn into UTF-8`},
		{"WIN1252", "a\x81", "b", "1", [3]string{`a\x81`, "b", "1"}, `column "id" has bytes that WIN1252 cannot turn into UTF-8 and back`},
		{"SQL_ASCII", "ü", "\xff", "1", [3]string{"ü", "", "1"}, `column "k" has bytes that SQL_ASCII cannot turn into UTF-8 and back`},
	} {
		plan := foreign(t, c.encoding)
		for _, format := range []byte{Text, Binary} {
			payload := c.payload
			if format == Binary {
				payload = "\x01" + payload
			}
			row := plan.Row([]Value{{Data: []byte(c.id), Format: format}, {Data: []byte(c.key), Format: format}, {Data: []byte(payload), Format: format}}, &Arena{})
			fault := ""
			if row.Err != nil {
				fault = row.Err.Error()
			}
			if got := [3]string{row.ID, string(row.Key), string(row.Value)}; got != c.row || !saysFirst(fault, c.fault) {
				t.Errorf("%q in format %c: %q, %q", c.row, format, got, fault)
			}
			if c.row[1] == "" && row.Key != nil {
				t.Errorf("%q: a key that no row has", c.row)
			}
		}
	}
}

// A text with characters that the server converts back to other ones cannot be a key.
func TestKeysComeBack(t *testing.T) {
	set, err := charset.Of("EUC_JP")
	if err != nil {
		t.Fatal(err)
	}
	for lead := 0xa1; lead < 0xff; lead++ {
		for trail := 0xa1; trail < 0xff; trail++ {
			code := []byte{0x8f, byte(lead), byte(trail)}
			_, ok := set.Append(nil, code)
			_, exact := set.AppendExact(nil, code)
			if !ok || exact {
				continue
			}
			row := foreign(t, "EUC_JP").Row([]Value{{Data: []byte("1"), Format: Text}, {Data: code, Format: Text}, {Data: []byte("1"), Format: Text}}, &Arena{})
			if row.Err == nil || row.Key != nil {
				t.Errorf("%x is the key %q", code, row.Key)
			}
			return
		}
	}
	t.Skip("all come back")
}

func TestLargeObjectsAreRefused(t *testing.T) {
	table := &outbox.Table{Schema: "s", Name: "t", Mapping: outbox.Mapping{
		ID: []string{"id"}, Key: &outbox.Expr{Column: "k"}, Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "p"}},
		Headers: []outbox.HeaderMapping{{Name: "h", Column: "h"}},
		Topic:   outbox.Template{Literals: []string{"t"}}, Cluster: outbox.ClusterMapping{Default: "main"}, Published: outbox.PublishedNone,
	}}
	_, err := Compile(nil, table, []Column{{Name: "id", OID: oidOID}, {Name: "k", OID: oidOID}, {Name: "p", OID: oidOID}, {Name: "h", OID: oidOID}})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{`ALTER TABLE "s"."t" ALTER "p" TYPE bytea USING lo_get("p")`, `column "k" (oid) cannot be the record key`, `column "h" (oid) cannot be a header`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %s", err, want)
		}
	}
	if strings.Contains(err.Error(), `"id"`) {
		t.Error(err) // an oid is compared correctly
	}
}
