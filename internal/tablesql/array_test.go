package tablesql

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// The server reads the same elements from an array in whichever form it is sent.
func TestArraysAsTheServerReadsThem(t *testing.T) {
	conn := harness.Postgres(t).Conn(t)
	for _, c := range []struct {
		elementType string
		format      int16
		elements    []string
	}{
		{"uuid", binaryFormat, []string{"00112233-4455-6677-8899-aabbccddeeff", "ffffffff-ffff-ffff-ffff-ffffffffffff"}},
		{"smallint", binaryFormat, []string{"-32768", "0", "32767"}},
		{"integer", binaryFormat, []string{"-2147483648", "-1", "2147483647"}},
		{"bigint", binaryFormat, []string{"-9223372036854775808", "1", "9223372036854775807"}},
		{"text", binaryFormat, []string{"", `a"b\c`, "{NULL,}", "NULL", "日本語", " x "}},
		{"character varying", binaryFormat, []string{strings.Repeat("x", 100_000), "", "y"}},
		{"text", textFormat, nil},
		{"numeric", textFormat, []string{"1.50", "NaN", "-12345678901234567890.5"}},
		{"timestamp with time zone", textFormat, []string{"2026-01-02 03:04:05.678901+00", "infinity"}},
		{"name", textFormat, []string{`a"b\c`, "", "NULL", "{,}"}},
	} {
		var a Array
		for _, e := range c.elements {
			a.Add(e)
		}
		got, format := readArray(t, conn, &a, c.elementType)
		if format != c.format || !slices.Equal(got, c.elements) {
			t.Errorf("%s in format %d: %q, want %q in format %d", c.elementType, format, got, c.elements, c.format)
		}
	}
}

// Values in another spelling are left to the server.
func TestArraysOfOtherSpellings(t *testing.T) {
	conn := harness.Postgres(t).Conn(t)
	const written = "00112233-4455-6677-8899-aabbccddeeff"
	for elementType, spellings := range map[string]map[string]string{
		"uuid": {
			"{00112233445566778899aabbccddeeff}": written, "00112233445566778899AABBCCDDEEFF": written,
			"0011-2233-4455-6677-8899-aabb-ccdd-eeff": written, strings.ToUpper(written): written,
		},
		"bigint":  {" 7": "7"},
		"integer": {"007": "7"},
	} {
		for spelling, want := range spellings {
			var a Array
			a.Add(want)
			a.Add(spelling)
			if got, _ := readArray(t, conn, &a, elementType); !slices.Equal(got, []string{want, want}) {
				t.Errorf("%q as %s: %q", spelling, elementType, got)
			}
		}
	}
	for elementType, wrong := range map[string]string{"uuid": "00112233x4455-6677-8899-aabbccddeeff", "smallint": "32768", "integer": "one"} {
		var a Array
		a.Add(wrong)
		var p Params
		sql := "SELECT " + p.BindArray(&a, elementType)
		if err := Run(t.Context(), conn, Step{SQL: sql, Args: p}); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%q as %s: %v", wrong, elementType, err)
		}
	}
}

func readArray(t *testing.T, conn *pgx.Conn, a *Array, elementType string) (got []string, format int16) {
	t.Helper()
	var p Params
	sql := fmt.Sprintf("SELECT e::text FROM unnest(%s) WITH ORDINALITY AS u(e, n) ORDER BY n", p.BindArray(a, elementType))
	err := Run(t.Context(), conn, Settings{}.Step(nil), Step{SQL: sql, Args: p, Each: func(row [][]byte) error {
		got = append(got, string(row[0]))
		return nil
	}})
	if err != nil {
		t.Fatalf("%s: %v", elementType, err)
	}
	return got, p.formats[0]
}

// A thousand ids are bound again and again, so memory that is reserved and not used makes the garbage
// collector run more often. A long id among short ones does not reserve memory for the others.
func TestBinaryArraysAreAsLongAsTheirElements(t *testing.T) {
	elements := map[string][]string{
		"uuid": {"00112233-4455-6677-8899-aabbccddeeff"}, "smallint": {"1"}, "integer": {"-2147483648"},
		"bigint": {"9223372036854775807"}, "text": {strings.Repeat("x", 100_000), "", "y"},
	}
	for elementType, element := range elements {
		value, ok := binaryArray(binaryForms[elementType], 999, func(i int) string { return element[i%len(element)] })
		if !ok || cap(value) != len(value) {
			t.Errorf("%s: %t, %d of %d bytes are used", elementType, ok, len(value), cap(value))
		}
	}
}
